# shellcheck shell=bash
# The two engines that can build an image, and the base image from Debian's packages.

choose_engine() {
  if command -v buildah >/dev/null; then echo buildah
  elif docker info >/dev/null 2>&1; then echo docker
  else echo buildah; fi
}

# Debian's buildah needs neither a daemon nor overlay mounts with these.
builder() { buildah --storage-driver vfs --root "$cache/images/.store" --runroot "$work/run" "$@"; }

engine_build() { # NAME:TAG DOCKERFILE CONTEXT OUT.tar
  local arguments=(--build-arg "BASE=$base" --build-arg "VERSION=$version" --build-arg "REVISION=$revision" -t "$1" -f "$2" "$3")
  case $engine in
  buildah)
    builder bud --quiet --isolation chroot "${arguments[@]}" >&2
    builder push --quiet "$1" "docker-archive:$4:$1" >&2
    builder rmi --force "$1" >/dev/null
    ;;
  docker)
    docker build --quiet "${arguments[@]}" >&2
    docker save -o "$4" "$1"
    ;;
  *) fail "there is no engine '$engine'; there are buildah and docker" ;;
  esac
}

# The name of an image with libc, libgcc, a CA bundle and time zones, made from the packages of this very Debian, so that
# programs built here run on it.
base_name() {
  local suite
  # shellcheck source=/dev/null
  suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
  echo "localhost/felix-base:$suite-$(content_hash "$here/base.sh")"
}

# Makes that image and gives it to the engine, unless that has it.
prepare_base() {
  local suite dir=$cache/images/base/${base##*:}
  case $engine in
  buildah) ! builder inspect "$base" >/dev/null 2>&1 || return 0 ;;
  docker) ! docker image inspect "$base" >/dev/null 2>&1 || return 0 ;;
  esac
  need_packages "building images" mmdebstrap buildah uidmap
  suite=${base##*:}
  suite=${suite%-*}
  [ -d "$dir" ] || cached "$dir" make_base "$suite"
  import_base "$dir/root.tar"
}

# shellcheck disable=SC2016 # the hooks expand $1, the folder, themselves
make_base() { # suite folder
  local suite=$1 out=$2 mode=unshare
  [ "$EUID" != 0 ] || mode=root
  mmdebstrap --quiet --mode="$mode" --variant=extract --include=libc6,libgcc-s1,ca-certificates,tzdata \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --customize-hook='cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1/etc/ssl/certs/ca-certificates.crt"' \
    --customize-hook='printf "root:x:0:0:root:/:/sbin/nologin\nfelix:x:65532:65532:felix:/:/sbin/nologin\n" >"$1/etc/passwd"' \
    --customize-hook='printf "root:x:0:\nfelix:x:65532:\n" >"$1/etc/group"' \
    --customize-hook='test "$(grep -c BEGIN "$1/etc/ssl/certs/ca-certificates.crt")" -gt 100' \
    "$suite" "$out/root.tar" >&2
}

import_base() { # archive of its files
  local context=$work/base
  mkdir "$context"
  ln "$1" "$context/root.tar" 2>/dev/null || cp "$1" "$context/root.tar"
  printf 'FROM scratch\nADD root.tar /\n' >"$context/Dockerfile"
  case $engine in
  buildah) builder bud --quiet --isolation chroot -t "$base" "$context" >&2 ;;
  docker) docker build --quiet -t "$base" "$context" >&2 ;;
  esac
}
