# shellcheck shell=bash
# The network: a bridge in a namespace of its own (the fabric, where the control plane lives too) joins the nodes. The
# machine holds one veth into it, so nothing that the machine does with forwarded packets (Docker drops them) matters.

load_modules() {
  modprobe -qa br_netfilter nf_conntrack overlay loop ip_tables 2>/dev/null || true # they may be built in; what counts is checked
  [ -e /proc/sys/net/bridge ] || fail "the kernel module br_netfilter is missing and could not be loaded"
  [ -e /proc/sys/net/netfilter ] || fail "the kernel module nf_conntrack is missing and could not be loaded"
  grep -qw overlay /proc/filesystems || fail "the kernel module overlay is missing and could not be loaded"
}

# Refuses to run where one of our networks is in use: by a route to it, within it, or around it.
refuse_clash() {
  local net clash
  for net in $services_net $nodes_net $pods_net; do
    clash=$({ ip -4 route show root "$net"; ip -4 route show match "$net"; } | grep -v -e '^default' -e 'felix-host' | sort -u | head -n 1 || true)
    [ -z "$clash" ] || fail "$net is needed here, but this machine already has the route: $clash"
  done
}

has_namespace() { nsenter --net="/run/netns/$1" true 2>/dev/null; }

in_fabric() { nsenter --net=/run/netns/felix-fabric "$@"; }

in_node() { # node command...
  local namespace=/run/netns/felix-node-$1
  shift
  nsenter --net="$namespace" "$@"
}

# Makes the fabric unless it is there whole; what is there in part, after a kill, is made anew.
make_fabric() {
  if ! has_namespace felix-fabric; then
    rm -f /run/netns/felix-fabric
    ip netns add felix-fabric
  fi
  ip -n felix-fabric link set lo up
  if ! ip -n felix-fabric link show br0 >/dev/null 2>&1; then ip -n felix-fabric link add br0 type bridge; fi
  ip -n felix-fabric addr replace "$control_ip/24" dev br0
  ip -n felix-fabric link set br0 up
  ip -n felix-fabric route replace default via $machine_ip
  if ! ip link show felix-host >/dev/null 2>&1; then
    ip link add felix-host type veth peer name host netns felix-fabric
  fi
  ip -n felix-fabric link set host master br0 up
  ip addr replace "$machine_ip/24" dev felix-host
  ip link set felix-host up
}

make_node_namespace() {
  local n=$1 namespace=felix-node-$1
  if ! has_namespace "$namespace"; then
    rm -f "/run/netns/$namespace"
    ip netns add "$namespace"
  fi
  if ! ip -n "$namespace" link show eth0 >/dev/null 2>&1; then
    ip -n felix-fabric link add "node-$n" type veth peer name eth0 netns "$namespace"
  fi
  ip -n felix-fabric link set "node-$n" master br0 up
  ip -n "$namespace" addr replace "$(node_ip "$n")/24" dev eth0
  ip -n "$namespace" link set lo up
  ip -n "$namespace" link set eth0 up
  in_node "$n" sysctl -qw net.ipv4.ip_forward=1
}

# Tells every node, the control plane and the machine the way to every living node's pods; and the machine the way to
# Services, through the first living node, whose kube-proxy translates. Links that were down have lost their routes.
make_routes() {
  local n m services_via=
  for n in $(nodes); do
    node_is_linked "$n" || continue
    ip -n "felix-node-$n" route replace default via $machine_ip
    for m in $(nodes); do
      [ "$n" = "$m" ] || ip -n "felix-node-$n" route replace "$(node_pods "$m")" via "$(node_ip "$m")"
    done
    ip -n felix-fabric route replace "$(node_pods "$n")" via "$(node_ip "$n")"
    ip route replace "$(node_pods "$n")" via "$(node_ip "$n")" dev felix-host
    : "${services_via:=$n}"
  done
  [ -z "$services_via" ] || ip route replace $services_net via "$(node_ip "$services_via")" dev felix-host
}

node_is_linked() { grep -q eth0 <<<"$(ip -n "felix-node-$1" link show eth0 up 2>/dev/null)"; }
