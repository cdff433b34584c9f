# shellcheck shell=bash
# Where things that are built once are kept: outside the checkout, in folders named by the content they were made from.

cache=${FELIX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/felix}

# content_hash PATH...: of names and contents of all files below the paths, in an order that depends on nothing else. The
# same content in another checkout has the same hash, so names begin at each path.
content_hash() {
  local path
  for path; do
    (cd "$(dirname "$path")" && find "$(basename "$path")" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum)
  done | sha256sum | cut -c1-16
}

# cached DIR COMMAND...: runs COMMAND with the name of an empty folder, which becomes DIR only if it succeeds. Callers
# that come at the same time wait for the first.
cached() {
  local dir=$1
  shift
  [ ! -d "$dir" ] || return 0
  mkdir -p "${dir%/*}"
  (
    set -e
    flock 8
    [ ! -d "$dir" ] || exit 0
    rm -rf "$dir.making"
    mkdir "$dir.making"
    "$@" "$dir.making" 8>&-
    mv "$dir.making" "$dir"
  ) 8>"${dir%/*}/.lock"
}
