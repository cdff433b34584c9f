# shellcheck shell=bash
# Local volumes: each is a file system of its own in a sparse file, so that full is really full. Pods get the folder
# `data` in it: the file system's own lost+found stays out of their sight.

make_volumes() { # node
  local n=$1 i dir
  for ((i = 1; i <= volumes_per_node; i++)); do
    dir=$(node_dir "$n")/volumes/$i
    mkdir -p "$dir"
    ! mountpoint -q "$dir" || continue
    if [ ! -f "$dir.img" ]; then
      truncate -s $volume_size "$dir.new"
      mkfs.ext4 -q -m 0 "$dir.new"
      mv "$dir.new" "$dir.img"
    fi
    mount -o loop,noatime "$dir.img" "$dir"
    mkdir -p "$dir/data"
  done
}

describe_volumes() { # all nodes
  local n i
  cat <<Y
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: felix-local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Retain
Y
  for n in $(nodes); do
    for ((i = 1; i <= volumes_per_node; i++)); do
      cat <<Y
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: node-$n-volume-$i}
spec:
  storageClassName: felix-local
  capacity: {storage: ${volume_size}i}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  local: {path: $(node_dir "$n")/volumes/$i/data}
  nodeAffinity:
    required:
      nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-$n]}]}]
Y
    done
  done
}

offer_volumes() { describe_volumes | kubectl apply -f - >/dev/null; }
