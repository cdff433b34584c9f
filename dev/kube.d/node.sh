# shellcheck shell=bash
# One node: containerd, kubelet and kube-proxy in a network namespace.

socket_of() { echo "$run/node-$1/containerd.sock"; }

launch_containerd() {
  local n=$1 dir
  dir=$(node_dir "$n")
  mkdir -p "$dir/cni" "$run/node-$n"
  cat >"$dir/containerd.toml" <<Y
version = 2
root = "$dir/containerd"
state = "$run/node-$n/containerd"
[grpc]
  address = "$(socket_of "$n")"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  # Pods' network namespaces are kept where \`down\` finds them.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
Y
  cat >"$dir/cni/10-felix.conflist" <<Y
{"cniVersion": "1.0.0", "name": "felix", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$run/node-$n/ipam",
            "ranges": [[{"subnet": "$(node_pods "$n")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
Y
  start "containerd-$n" containerd --config "$dir/containerd.toml"
}

containerd_answers() { ctr -a "$(socket_of "$1")" version; }

launch_kubelet() {
  local n=$1 dir
  dir=$(node_dir "$n")
  await "containerd of node $n" containerd_answers "$n"
  load_into "$n" "$bin/pause.tar"
  make_cgroup "$n"
  cat >"$dir/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $state/pki/node-$n.crt
tlsPrivateKeyFile: $state/pki/node-$n.key
cgroupDriver: cgroupfs
cgroupRoot: /felix-node-$n
failSwapOn: false
clusterDNS: [$control_ip]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$(socket_of "$n")
podLogsDir: $dir/pod-logs
# Renewed every two seconds, so that a busy machine does not look like a dead node.
nodeLeaseDurationSeconds: 8
nodeStatusUpdateFrequency: 4s
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
# Images are loaded by hand and cannot be pulled again: never collect them.
imageGCHighThresholdPercent: 100
Y
  start "kubelet-$n" "$bin/kubelet" --config "$dir/kubelet.yaml" --kubeconfig "$state/node-$n.kubeconfig" \
    --root-dir "$dir/kubelet" --hostname-override "node-$n" --node-ip "$(node_ip "$n")" \
    --node-labels "topology.kubernetes.io/zone=zone-$n"
}

launch_kube-proxy() {
  local n=$1 file
  file=$(node_dir "$n")/kube-proxy.yaml
  # The limits of conntrack belong to the machine and cannot be set from a namespace.
  cat >"$file" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $state/kube-proxy.kubeconfig}
hostnameOverride: node-$n
clusterCIDR: $pods_net
mode: iptables
conntrack: {maxPerCore: 0, min: 0}
Y
  start "kube-proxy-$n" "$bin/kube-proxy" --config "$file"
}

proxy_is_healthy() { in_node "$1" curl -fsS --max-time 20 http://127.0.0.1:10256/healthz; }

# load_into NODE ARCHIVE: nothing is done where the archive's name stands for that very image already.
load_into() {
  local images=(ctr -a "$(socket_of "$1")" -n k8s.io images) manifest config name digest
  manifest=$(tar -xOf "$2" manifest.json)
  [[ $manifest =~ \"Config\":\"([^\"]+)\" ]] && config=${BASH_REMATCH[1]}
  [[ $manifest =~ \"RepoTags\":\[\"([^\"]+)\" ]] && name=${BASH_REMATCH[1]}
  digest=$(tar -xOf "$2" "$config" | sha256sum | cut -d' ' -f1)
  # The kubelet's containerd knows an image by its name and by the digest of its configuration.
  ! "${images[@]}" list | awk -v name="$name" -v id="sha256:$digest" \
    '$1 == name { named = $3 } $1 == id { known = $3 } END { exit !(named != "" && named == known) }' || return 0
  "${images[@]}" import "$2" >/dev/null
}

node_is_ready() {
  [ "$(kubectl get node "node-$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]
}

# Everything that runs on a node: in its namespace (its daemons, the containers' keepers, pods on the host network), and in
# its control group (all other containers).
processes_of_node() {
  { ip netns pids "felix-node-$1" 2>/dev/null || true; processes_in_cgroup "$1"; } | sort -u
}

# Ends all processes of a node at once, as a power cut would, and waits until the kernel has let go of them.
end_processes_of_node() {
  local tries
  for ((tries = 0; tries < 100; tries++)); do
    # shellcheck disable=SC2046 # one argument per process
    kill -9 $(processes_of_node "$1") 2>/dev/null || return 0
    sleep 0.1
  done
  say "some processes of node $1 do not end: $(processes_of_node "$1" | tr '\n' ' ')"
}
