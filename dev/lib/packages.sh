# shellcheck shell=bash
# Debian packages: what is missing is named and installed in one go; what is there costs one look.

# need_packages PURPOSE PACKAGE...
need_packages() {
  local purpose=$1 package missing=()
  shift
  command -v dpkg-query >/dev/null || fail "$purpose needs Debian or one of its kin; install by hand: $*"
  for package; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing with apt, for $purpose: ${missing[*]}"
  as_root apt_install "${missing[@]}"
}

apt_install() {
  local log
  log=$(mktemp)
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
    tail -n 20 "$log" >&2
    fail "apt could not install $*; its log is $log"
  fi
  rm -f "$log"
}

# as_root FUNCTION ARGUMENT...: here if this is root already, else through sudo.
as_root() {
  if [ "$EUID" = 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null || fail "root is needed (for: $*) and there is no sudo"
  sudo bash -c "$(declare -f say fail apt_install); \"\$@\"" "${0##*/}" "$@"
}
