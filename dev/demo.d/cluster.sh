# shellcheck shell=bash
# Which Kubernetes the demo runs on, and how images get there. Never the current context unless asked for by name.

offer_local() {
  cat >&2 <<'T'
make demo brings up a Kubernetes of its own with dev/kube, which needs Linux (Debian or its kin) and root. Without them:
  make demo CLUSTER=kind       a cluster made by kind (needs Linux, kind and Docker, not root)
  make demo CLUSTER=current    the cluster of your current context, with images that it can pull; it asks first
  make demo-local              no Kubernetes: broker and benchmark in one process on loopback
T
  local answer
  [ -t 0 ] || exit 1
  read -rp "Run make demo-local now? [y/N] " answer
  [[ $answer =~ ^[yY] ]] || exit 1
  exec dev/demo-local
}

# The nodes come up while the last images are built.
use_dev_kube() {
  step "dev/kube up 3" dev/kube up 3
  await_images
  eval "$(dev/kube env)"
  step "load the images into each node" load_archives dev/kube load
}

use_kind() {
  command -v kind >/dev/null || fail "kind is missing: https://kind.sigs.k8s.io"
  export KUBECONFIG=$cache/kind.kubeconfig
  if ! grep -qx felix <<<"$(kind get clusters 2>/dev/null)"; then
    step "kind create cluster" kind create cluster --name felix --kubeconfig "$KUBECONFIG" --wait 120s
  fi
  kind export kubeconfig --name felix --kubeconfig "$KUBECONFIG" >/dev/null
  await_images
  step "load the images into each node" load_archives kind load image-archive --name felix
}

# The images must be where that cluster pulls from: nobody but its owner knows how they get there.
use_current() {
  local context server answer
  context=$(kubectl config current-context 2>/dev/null) || fail "your kubectl has no current context; choose one with: kubectl config use-context"
  server=$(kubectl config view --minify -o 'jsonpath={.clusters[0].cluster.server}')
  say "context: $context"
  say "server:  $server"
  say "images:  ${REGISTRY:-localhost}/felix-{operator,broker,bench,prometheus}:$version (REGISTRY= names another place; make images builds them)"
  [ -t 0 ] || fail "CLUSTER=current asks before it changes a cluster, and there is no terminal to ask at"
  read -rp "Install the demo there, in the namespace felix? [y/N] " answer
  [[ $answer =~ ^[yY] ]] || exit 1
}

# Beside the build of the Kubernetes programs: each has stretches that keep one processor only.
start_images() {
  images/build >"$work/archives" &
  images_job=$!
}

await_images() {
  wait "$images_job" || fail "the images were not built; see above"
  mapfile -t archives <"$work/archives"
}

load_archives() { # command that takes an archive
  local archive
  for archive in "${archives[@]}"; do "$@" "$archive"; done
}
