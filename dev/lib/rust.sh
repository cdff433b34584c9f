# shellcheck shell=bash
# Building this workspace: where cargo puts things, and what it needs.

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${FELIX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/felix}/target}

need_rust() {
  command -v cargo >/dev/null || fail "Rust is missing: install the stable toolchain (https://rustup.rs)"
  if command -v dpkg-query >/dev/null && ! command -v cc >/dev/null; then need_packages "building Rust" gcc libc6-dev; fi
}

workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml"; }

# The commit of this checkout, which may belong to somebody else; whoever builds from an archive says it in FELIX_COMMIT.
commit_of_checkout() {
  echo "${FELIX_COMMIT:-$(git -c safe.directory='*' -C "$root" describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)}"
}

# Programs that tell their commit read it from FELIX_COMMIT; only their own crates are built again for another one.
build_release() { # package...
  need_rust
  local package packages=()
  for package; do packages+=(-p "$package"); done
  (cd "$root" && FELIX_COMMIT=$(commit_of_checkout) cargo build --quiet --locked --release "${packages[@]}" >&2)
}
