# shellcheck shell=bash
# Keys, certificates and kubeconfigs. Each file appears whole or not at all, so that `up` after a kill goes on from there.

new_key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

make_authority() {
  [ ! -f ca.crt ] || return 0
  openssl req -x509 "${new_key[@]}" -days 3650 -subj /CN=felix-kube -keyout ca.key -out ca.new 2>/dev/null
  openssl genrsa -out sa.key 2048 2>/dev/null
  openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
  mv ca.new ca.crt
}

# certificate NAME SUBJECT USAGES [NAMES]
certificate() {
  local name=$1 subject=$2 usages=$3 names=${4:-}
  [ ! -f "$name.crt" ] || return 0
  openssl req "${new_key[@]}" -subj "$subject" -keyout "$name.key" -out "$name.csr" 2>/dev/null
  openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out "$name.new" -extfile \
    <(echo "extendedKeyUsage=$usages"; [ -z "$names" ] || echo "subjectAltName=$names") 2>/dev/null
  mv "$name.new" "$name.crt"
}

# kubeconfig NAME: for the user that the certificate of that name says
kubeconfig() {
  local file=$state/$1.kubeconfig
  (umask 077 && cat >"$file.new") <<Y
apiVersion: v1
kind: Config
clusters:
- name: felix-kube
  cluster:
    server: https://$control_ip:6443
    certificate-authority-data: $(base64 -w0 ca.crt)
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$1.crt")
    client-key-data: $(base64 -w0 "$1.key")
contexts:
- name: felix-kube
  context: {cluster: felix-kube, user: $1}
current-context: felix-kube
Y
  mv "$file.new" "$file"
}

make_control_keys() {
  cd "$state/pki"
  make_authority
  certificate apiserver /CN=kube-apiserver serverAuth "IP:127.0.0.1,IP:$control_ip,IP:$kubernetes_service_ip,DNS:localhost,\
DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate apiserver-kubelet /O=system:masters/CN=apiserver-kubelet clientAuth
  certificate front-proxy /CN=front-proxy clientAuth
  certificate admin /O=system:masters/CN=admin clientAuth
  certificate local /O=system:masters/CN=felix-kube clientAuth # CoreDNS and the volume reclaimer, apart from people in the audit log
  certificate kube-controller-manager /CN=system:kube-controller-manager clientAuth
  certificate kube-scheduler /CN=system:kube-scheduler clientAuth
  certificate kube-proxy /CN=system:kube-proxy clientAuth
  local name
  for name in admin local kube-controller-manager kube-scheduler kube-proxy; do kubeconfig $name; done
  # Of all keys only the administrator's is for the person who asked for root.
  chown "${SUDO_UID:-0}:${SUDO_GID:-0}" "$admin_config"
}

make_node_keys() {
  cd "$state/pki"
  certificate "node-$1" "/O=system:nodes/CN=system:node:node-$1" clientAuth,serverAuth "IP:$(node_ip "$1"),DNS:node-$1"
  kubeconfig "node-$1"
}
