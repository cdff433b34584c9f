# shellcheck shell=bash
# Writes a container image of one layer as an archive that containerd and Docker import, with tar alone: the pause image
# must exist before there is anything to build images with.

# image_tar NAME:TAG ENTRYPOINT ROOT OUT.tar
image_tar() {
  local name=$1 entrypoint=$2 root=$3 out=$4 work layer arch
  work=$(mktemp -d)
  tar -C "$root" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$work/layer.tar" .
  layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  arch=$(go env GOARCH)
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["%s"]},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$arch" "$entrypoint" "$layer" >"$work/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" >"$work/manifest.json"
  tar -C "$work" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf "$out" config.json layer.tar manifest.json
  rm -rf "$work"
}
