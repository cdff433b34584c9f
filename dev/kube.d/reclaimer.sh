#!/usr/bin/env bash
# Wipes local volumes whose claim was deleted and offers them again: Kubernetes leaves them Released for good. A component
# of its own, because it must go on while the cluster is up.
#   reclaimer.sh KUBECTL KUBECONFIG STATE
set -euo pipefail
kubectl=$1
export KUBECONFIG=$2
state=$3

columns='custom-columns=NAME:.metadata.name,PHASE:.status.phase,PATH:.spec.local.path'

# A pod of a dead or slow node may hold the volume still.
in_use() { # path
  local node=${1#"$state"/} source
  source=$(findmnt -n -o SOURCE --target "$1") || return 1
  node=${node%%/*}
  grep -qF " $state/$node/kubelet/" <<<"$(findmnt -rn -o SOURCE,TARGET | grep -F "${source}[")"
}

reclaim() { # volume path
  [[ $2 == "$state"/node-*/volumes/*/data ]] || return 0
  ! in_use "$2" || return 1
  find "$2" -mindepth 1 -delete
  chown 0:0 "$2"
  chmod 755 "$2"
  "$kubectl" patch pv "$1" --type merge -p '{"spec":{"claimRef":null}}'
}

while true; do
  declare -A waiting=()
  while true; do
    # A deadline only while something waits for a pod to let go; 128 and more is that deadline, else the watch has ended.
    timeout=()
    [ ${#waiting[@]} -eq 0 ] || timeout=(-t 1)
    status=0
    read -r "${timeout[@]}" name phase path || status=$?
    if [ "$status" = 0 ]; then
      if [ "$phase" = Released ]; then waiting[$name]=$path; else unset "waiting[$name]"; fi
    elif [ "$status" -le 128 ]; then
      break
    fi
    for volume in "${!waiting[@]}"; do
      if reclaim "$volume" "${waiting[$volume]}"; then unset "waiting[$volume]"; fi
    done
  done < <("$kubectl" get pv --watch --no-headers -o "$columns")
  sleep 1
done
