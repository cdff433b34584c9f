# shellcheck shell=bash
# Control groups: several kubelets on one kernel each need a sub-tree of their own, under cgroup v1 and under v2.

cgroup_root=/sys/fs/cgroup

is_cgroup_v2() { [ -f $cgroup_root/cgroup.controllers ]; }

make_cgroup() {
  local name=felix-node-$1 hierarchy file
  if is_cgroup_v2; then
    mkdir -p "$cgroup_root/$name"
    enable_controllers $cgroup_root
    enable_controllers "$cgroup_root/$name"
    return
  fi
  for hierarchy in "$cgroup_root"/*/; do
    # The empty v2 hierarchy of a hybrid machine, and links such as cpu -> cpu,cpuacct.
    if [ -f "$hierarchy/cgroup.controllers" ] || [ -L "${hierarchy%/}" ]; then continue; fi
    mkdir -p "$hierarchy/$name"
  done
  for file in cpus mems; do # a cpuset without them takes no process
    cat "$cgroup_root/cpuset/cpuset.$file" >"$cgroup_root/cpuset/$name/cpuset.$file"
  done
}

# One at a time: a controller that cannot be enabled (rt threads hold cpu, for one) must not cost the others.
enable_controllers() {
  local controller controllers
  read -ra controllers <"$1/cgroup.controllers"
  for controller in "${controllers[@]}"; do
    { echo "+$controller" >"$1/cgroup.subtree_control"; } 2>/dev/null || true
  done
  for controller in cpu memory pids; do
    grep -qw "$controller" "$1/cgroup.subtree_control" || fail "the cgroup controller $controller cannot be enabled in $1"
  done
}

cgroups_of() { # node: every folder of its sub-tree, deepest first
  local base
  for base in "$cgroup_root/felix-node-$1" "$cgroup_root"/*/"felix-node-$1"; do
    [ ! -d "$base" ] || find "$base" -depth -type d 2>/dev/null || true
  done
}

processes_in_cgroup() { # node
  local dir
  for dir in $(cgroups_of "$1"); do cat "$dir/cgroup.procs" 2>/dev/null || true; done | sort -u
}

remove_cgroups() { # node
  local dir tries
  for ((tries = 0; tries < 50; tries++)); do
    for dir in $(cgroups_of "$1"); do rmdir "$dir" 2>/dev/null || true; done
    [ -n "$(cgroups_of "$1")" ] || return 0
    sleep 0.1
  done
}
