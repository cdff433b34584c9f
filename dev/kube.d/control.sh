# shellcheck shell=bash
# The control plane: etcd, API server, controllers, scheduler, DNS. It lives in the fabric, on no node, so that any node
# can be killed and none is needed.

launch_etcd() {
  install -d -m 700 "$state/etcd"
  # Not synced: a cluster for tests may die with the machine, and this halves what it costs.
  start etcd "$bin/etcd" --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn
}

write_audit_policy() {
  cat >"$state/audit.yaml" <<Y
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, userGroups: ["system:nodes"]}
- {level: None, users: ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy", "felix-kube"]}
- {level: None, nonResourceURLs: ["/*"]}
- {level: Metadata}
Y
  # The API server appends to a log that is there, so the caller's right to read it lasts.
  [ -f "$state/log/audit.log" ] || install -m 640 -o "${SUDO_UID:-0}" -g "${SUDO_GID:-0}" /dev/null "$state/log/audit.log"
}

launch_kube-apiserver() {
  cd "$state/pki"
  write_audit_policy
  start kube-apiserver "$bin/kube-apiserver" --etcd-servers http://127.0.0.1:2379 \
    --advertise-address $control_ip --secure-port 6443 --service-cluster-ip-range $services_net \
    --tls-cert-file apiserver.crt --tls-private-key-file apiserver.key --client-ca-file ca.crt \
    --kubelet-client-certificate apiserver-kubelet.crt --kubelet-client-key apiserver-kubelet.key \
    --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file sa.pub --service-account-signing-key-file sa.key \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
    --proxy-client-cert-file front-proxy.crt --proxy-client-key-file front-proxy.key \
    --requestheader-client-ca-file ca.crt --requestheader-allowed-names front-proxy \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --audit-policy-file "$state/audit.yaml" --audit-log-path "$state/log/audit.log" --audit-log-mode blocking \
    --audit-log-maxsize 500 --audit-log-maxbackup 1
}

launch_kube-controller-manager() {
  cd "$state/pki"
  # A dead node is noticed in 16 s, not 40: tests wait for it.
  start kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$state/kube-controller-manager.kubeconfig" \
    --authentication-kubeconfig "$state/kube-controller-manager.kubeconfig" \
    --authorization-kubeconfig "$state/kube-controller-manager.kubeconfig" --leader-elect=false \
    --use-service-account-credentials --service-account-private-key-file sa.key --root-ca-file ca.crt \
    --cluster-signing-cert-file ca.crt --cluster-signing-key-file ca.key --node-monitor-grace-period 16s
}

launch_kube-scheduler() {
  start kube-scheduler "$bin/kube-scheduler" --kubeconfig "$state/kube-scheduler.kubeconfig" --leader-elect=false \
    --authentication-kubeconfig "$state/kube-scheduler.kubeconfig" \
    --authorization-kubeconfig "$state/kube-scheduler.kubeconfig"
}

launch_coredns() {
  cat >"$state/Corefile" <<Y
.:53 {
    bind $control_ip
    errors
    ready $control_ip:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig $state/local.kubeconfig
        ttl 1
    }
    cache 1
}
Y
  start coredns "$bin/coredns" -conf "$state/Corefile"
}

launch_volume-reclaimer() {
  start volume-reclaimer bash "$kube_d/reclaimer.sh" "$bin/kubectl" "$state/local.kubeconfig" "$state"
}

api_is_ready() {
  curl -fsS --max-time 20 --cacert "$state/pki/ca.crt" --cert "$state/pki/admin.crt" --key "$state/pki/admin.key" "https://$control_ip:6443/readyz"
}

controllers_are_healthy() { in_fabric curl -fsk --max-time 20 https://127.0.0.1:10257/healthz; }

scheduler_is_healthy() { in_fabric curl -fsk --max-time 20 https://127.0.0.1:10259/healthz; }

dns_is_ready() { curl -fsS --max-time 20 "http://$control_ip:8181/ready"; }
