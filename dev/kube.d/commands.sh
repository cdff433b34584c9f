# shellcheck shell=bash
# The commands that change the cluster. `up` starts what is not running, so a second `up` does nothing and one after a kill
# goes on; `down` trusts no record of what `up` did and looks at what is there.

launch() { # component
  case $1 in
  *-[1-9]) "launch_${1%-*}" "${1##*-}" ;;
  *) "launch_$1" ;;
  esac
}

launch_if_dead() {
  alive "$1" || launch "$1"
}

kube_up() { # number of nodes
  local count=$1 n name began=$SECONDS
  load_modules
  refuse_clash
  mkdir -p "$state"/{pki,log} "$run"
  ln -sfn "$FELIX_KUBE_BIN" "$bin"
  for ((n = 1; n <= count; n++)); do mkdir -p "$(node_dir "$n")"; done
  make_fabric
  for n in $(nodes); do make_node_namespace "$n"; done
  make_routes
  make_control_keys
  launch_if_dead etcd
  launch_if_dead kube-apiserver
  # While the API server starts:
  for n in $(nodes); do
    make_node_keys "$n"
    launch_if_dead "containerd-$n"
    make_volumes "$n"
  done
  await "the API server" api_is_ready
  for name in "${control_components[@]:2}"; do launch_if_dead "$name"; done
  offer_volumes
  for n in $(nodes); do
    launch_if_dead "kubelet-$n"
    launch_if_dead "kube-proxy-$n"
  done
  await kube-controller-manager controllers_are_healthy
  await kube-scheduler scheduler_is_healthy
  await CoreDNS dns_is_ready
  for n in $(nodes); do
    await "node $n" node_is_ready "$n"
    await "kube-proxy of node $n" proxy_is_healthy "$n"
  done
  await "the default service account" kubectl get serviceaccount default
  check_alive
  say "kube: the control plane and $(nodes | wc -l) node(s) are up after $((SECONDS - began)) s; KUBECONFIG=$admin_config"
}

# Says yes only if `up` with this many nodes, and these very programs, would change nothing.
is_up() { # number of nodes
  local name
  [ "$(readlink "$bin")" = "$FELIX_KUBE_BIN" ] && is_node_count "$1" || return 1
  for name in $(all_components); do alive "$name" || return 1; done
  api_is_ready >/dev/null 2>&1
}

is_node_count() { [ "$1" = 0 ] || is_node "$1"; }

# Into all nodes at once: what takes the time is syncing the unpacked files.
kube_load() { # image archive
  local n loading=()
  [ -f "$1" ] || fail "there is no image archive $1"
  for n in $(nodes); do
    if alive "containerd-$n"; then load_into "$n" "$1" & loading+=($!); fi
  done
  for n in "${loading[@]}"; do wait "$n"; done
}

kube_kill_node() { # node
  end_processes_of_node "$1"
  rm -f "$run"/*-"$1".pid
  ip -n "felix-node-$1" link set eth0 down
  make_routes
}

kube_start_node() { # node
  local name
  ip -n "felix-node-$1" link set eth0 up
  make_routes
  for name in "${node_components[@]}"; do launch_if_dead "$name-$1"; done
}

kube_restart() { # component
  stop "$1"
  launch "$1"
  check_alive
}

kube_down() {
  local n namespace
  for ((n = 1; n <= most_nodes; n++)); do end_processes_of_node "$n"; done
  end_processes_of_fabric
  unmount_all
  ip link del felix-host 2>/dev/null || true
  for namespace in /run/netns/felix-node-[1-9] /run/netns/felix-fabric; do
    [ ! -e "$namespace" ] || ip netns del "${namespace##*/}" 2>/dev/null || rm -f "$namespace"
  done
  for ((n = 1; n <= most_nodes; n++)); do remove_cgroups "$n"; done
  rm -rf --one-file-system "$state" "$run"
  remove_traces_of_kubelets
}

# Two places that a kubelet writes to whatever its root directory is; what another kubelet of this machine has there stays.
remove_traces_of_kubelets() {
  local socket=/var/lib/kubelet/device-plugins/kubelet.sock
  [ ! -d /var/log/containers ] || find /var/log/containers -maxdepth 1 -lname "$state/*" -delete
  if [ -S $socket ] && ! ss -xlH src $socket | grep -F $socket >/dev/null; then
    rm -f $socket
    rmdir -p --ignore-fail-on-non-empty "${socket%/*}"
  fi
}

end_processes_of_fabric() {
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    # shellcheck disable=SC2046 # one argument per process
    kill -9 $(ip netns pids felix-fabric 2>/dev/null) 2>/dev/null || return 0
    sleep 0.1
  done
}

# Deepest mounts first, again until none is left: a mount may lie on another. What is still busy is let go lazily.
unmount_all() {
  local tries mounts
  for ((tries = 0; tries < 20; tries++)); do
    mounts=$(awk -v a="$state/" -v b="$run/" 'index($2, a) == 1 || index($2, b) == 1 {print $2}' /proc/mounts | sort -r)
    [ -n "$mounts" ] || return 0
    xargs -r -d '\n' umount 2>/dev/null <<<"$mounts" || xargs -r -d '\n' umount -l 2>/dev/null <<<"$mounts" || sleep 0.1
  done
}

# What a machine that went down left behind is not a cluster: none of its processes lives.
kube_running() {
  local name
  for name in $(all_components); do
    if alive "$name"; then return 0; fi
  done
  return 1
}

kube_status() {
  local name pid dead=0
  [ -d "$run" ] || { say "kube: down"; return 1; }
  printf '%-26s %-8s %s\n' COMPONENT PROCESS LOG
  for name in $(all_components); do
    pid=$(process_in "$run/$name.pid") || { pid=dead; dead=1; }
    printf '%-26s %-8s %s\n' "$name" "$pid" "$state/log/$name.log"
  done
  if [ -r "$admin_config" ]; then
    kubectl get nodes -o wide || dead=1
    kubectl get persistentvolumes || dead=1
  fi
  echo "KUBECONFIG=$admin_config"
  return $dead
}
