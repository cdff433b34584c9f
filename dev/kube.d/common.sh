# shellcheck shell=bash
# Names, places and processes of the local Kubernetes. A component is a process that `up` starts and `down` ends; each has
# a name (etcd, kubelet-2, ...), a log and a file that holds its process id.

state=/var/lib/felix-kube # what outlives a restart of the machine: keys, etcd, volumes, logs
run=/run/felix-kube       # what does not: process ids, sockets
services_net=10.96.0.0/16
nodes_net=10.123.0.0/24
pods_net=10.244.0.0/16
machine_ip=10.123.0.1
control_ip=10.123.0.2
kubernetes_service_ip=10.96.0.1
most_nodes=3
volumes_per_node=3
volume_size=1G
admin_config=$state/admin.kubeconfig
bin=$state/bin # a link to what `dev/tools kubernetes` built

control_components=(etcd kube-apiserver kube-controller-manager kube-scheduler coredns volume-reclaimer)
node_components=(containerd kubelet kube-proxy)

node_ip() { echo "10.123.0.1$1"; }
node_pods() { echo "10.244.$1.0/24"; }
node_dir() { echo "$state/node-$1"; }

# The nodes that `up` made, dead or alive, as numbers.
nodes() {
  local n
  for ((n = 1; n <= most_nodes; n++)); do [ ! -d "$state/node-$n" ] || echo "$n"; done
}

is_node() { [ -d "$state/node-$1" ]; }

# The namespace that a component lives in: its node's, or the fabric for the control plane.
namespace_of() {
  case $1 in
  *-[1-9]) echo "felix-node-${1##*-}" ;;
  *) echo felix-fabric ;;
  esac
}

all_components() {
  local n c
  printf '%s\n' "${control_components[@]}"
  for n in $(nodes); do for c in "${node_components[@]}"; do echo "$c-$n"; done; done
}

# The process that a file of "pid start-time" names, if it is still that one: process ids are used again.
process_in() {
  local pid started stat
  { read -r pid started <"$1" && read -r stat <"/proc/$pid/stat"; } 2>/dev/null || return 1
  # After the name, which ends at the last ")": state is field 1, start time field 20.
  read -ra stat <<<"${stat##*) }"
  [ "${stat[0]}" != Z ] && [ "${stat[19]}" = "$started" ] && echo "$pid"
}

alive() { [ -f "$run/$1.pid" ] && process_in "$run/$1.pid" >/dev/null; }

# start COMPONENT COMMAND...: runs it in its namespace, away from this terminal, appending to its log. The process notes
# its own id before it becomes COMMAND, so that a kill of this script leaves no process unknown.
start() {
  local name=$1 namespace
  shift
  namespace=$(namespace_of "$name")
  rm -f "$run/$name.pid"
  # shellcheck disable=SC2016 # expanded by the inner shell
  setsid bash -c 'stat=$(<"/proc/$$/stat"); read -ra stat <<<"${stat##*) }"
    echo "$$ ${stat[19]}" >"$1.new"; mv "$1.new" "$1"; namespace=$2; shift 2; exec nsenter --net="/run/netns/$namespace" "$@"' \
    start "$run/$name.pid" "$namespace" "$@" >>"$state/log/$name.log" 2>&1 </dev/null 9>&- &
  until [ -f "$run/$name.pid" ]; do sleep 0.01; done
}

# stop COMPONENT: asks it to end, and ends it if it has not after five seconds.
stop() {
  local pid tries
  pid=$(process_in "$run/$1.pid") || { rm -f "$run/$1.pid"; return 0; }
  kill "$pid" 2>/dev/null || true
  for ((tries = 0; tries < 50; tries++)); do
    alive "$1" || break
    sleep 0.1
  done
  kill -9 "$pid" 2>/dev/null || true
  rm -f "$run/$1.pid"
}

# Names the first component that should run and does not; its log says why.
check_alive() {
  local file name
  for file in "$run"/*.pid; do
    name=${file##*/}
    name=${name%.pid}
    alive "$name" && continue
    say "the end of $state/log/$name.log:"
    tail -n 5 "$state/log/$name.log" >&2 || true
    fail "$name has exited; see $state/log/$name.log"
  done
}

# await WHAT COMMAND...: until it succeeds; fails at once when any component has exited. The deadline is for machines
# without hardware virtualisation, where the API server takes minutes.
await() {
  local what=$1 told=$((SECONDS + 20)) deadline=$((SECONDS + 600))
  shift
  until "$@" >/dev/null 2>&1; do
    check_alive
    ((SECONDS < deadline)) || fail "$what did not come up within ten minutes; the logs are in $state/log"
    if ((SECONDS >= told)); then
      say "kube: still waiting for $what"
      told=$((SECONDS + 60))
    fi
    sleep 0.1
  done
}

kubectl() { KUBECONFIG=$admin_config "$bin/kubectl" "$@"; }
