#!/usr/bin/env bash
# Machines for tests on one machine: each "node" is a set of Linux namespaces with its own host name, address, ports, sshd
# and slurmd, on one bridge. Needs root, iproute2, openssh-server; with Slurm also slurm-wlm and munge.
#   cluster.sh up FOLDER COUNT             of a failed one nothing is left but its files
#   cluster.sh down FOLDER
#   cluster.sh in FOLDER NODE COMMAND …    runs a command on a node
#   cluster.sh slurmd FOLDER NODE          starts a node's slurmd (again); likewise sshd
#   cluster.sh slurmctld FOLDER            starts the controller (again)
#   cluster.sh link FOLDER NODE up|down    the node's network

# shellcheck disable=SC2154 # the file of sizes says number and count
set -euo pipefail
verb=$1 root=$2
shift 2
export SLURM_CONF=$root/slurm.conf

# Network namespaces are held by their names, so that one that is gone is never taken for another; likewise the links.
space() { echo "l$number$1"; }
address() { echo "$net.$((10 + ${1#n}))"; }
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

# The process that holds a node's mount and host name: number and start, since numbers are used again.
holder() {
  local pid start
  read -r pid start <"$root/$1.ns"
  [ "$(started "$pid")" = "$start" ] || { echo "$1 is not up" >&2; return 1; }
  echo "$pid"
}
inside() {
  local node=$1 pid
  shift
  pid=$(holder "$node")
  nsenter -t "$pid" -m -u --net="/run/netns/$(space "$node")" -- "$@"
}

# Numbers keep clusters on one machine apart. To make the bridge is to claim its number: of two only one can. It is removed
# last; what still has a name of this number is left of a cluster that was killed.
claim() {
  local tries start=$RANDOM why=''
  for tries in $(seq 200); do
    number=$(((start + tries) % 200 + 1)) bridge=lb$number
    why=$(ip link add "$bridge" type bridge 2>&1) || continue
    if [ -z "$(ip -o link show | grep -F " l${number}n"; ip netns list | grep "^l${number}n")" ]; then return 0; fi
    ip link del "$bridge"
  done
  echo "no number is free: ${why:-left of clusters that were killed}" >&2
  return 1
}

config() {
  local node
  rm -rf "$short"
  mkdir -p "$root"/{state,log,dev} "$short"
  { echo "127.0.0.1 localhost"; echo "$net.1 $(hostname)"; for node in $nodes; do echo "$(address "$node") $node"; done; } >"$root/hosts"
  for node in 0 1 2 3 4 5 6 7; do [ -e "$root/dev/nvidia$node" ] || mknod "$root/dev/nvidia$node" c 195 "$node"; done
  echo "NodeName=n[1-$count] Name=gpu File=$root/dev/nvidia[0-7]" >"$root/gres.conf"
  echo "CgroupAutomount=no" >"$root/cgroup.conf"
  cat >"$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)($net.1)
SlurmctldPort=$control
SlurmdPort=6818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$short/munge
SlurmctldPidFile=$root/slurmctld.pid
SlurmdPidFile=$root/slurmd.%n.pid
SlurmctldLogFile=$root/log/slurmctld.log
SlurmdLogFile=$root/log/slurmd.%n.log
StateSaveLocation=$root/state
SlurmdSpoolDir=$short/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=30
SlurmdTimeout=8
MinJobAge=300
Waittime=0
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
$(for node in $nodes; do echo "NodeName=$node NodeAddr=$(address "$node") CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=20000 Gres=gpu:8 State=UNKNOWN"; done)
PartitionName=debug Nodes=n[1-$count] Default=YES MaxTime=INFINITE State=UP
PartitionName=spot Nodes=n[1-$count] PreemptMode=CANCEL MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=n[1-$count] PriorityTier=9 PreemptMode=OFF MaxTime=INFINITE State=UP
CONF
  [ -e "$root/host_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$root/host_key"
  [ -e "$root/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$root/key"
  printf '%s\n' "Port 22" "HostKey $root/host_key" "AuthorizedKeysFile $root/key.pub" "PermitRootLogin prohibit-password" \
    "PasswordAuthentication no" "UsePAM no" "StrictModes no" "PidFile none" >"$root/sshd_config"
  { for node in $nodes; do printf 'Host %s\n  HostName %s\n' "$node" "$(address "$node")"; done
    printf '%s\n' 'Host *' '  User root' "  IdentityFile $root/key" '  StrictHostKeyChecking no' \
      '  UserKnownHostsFile /dev/null' '  LogLevel ERROR'; } >"$root/ssh_config"
}

start_slurmctld() { slurmctld -f "$SLURM_CONF" >/dev/null 2>&1; }
start_sshd() { inside "$1" /usr/sbin/sshd -f "$root/sshd_config" -E "$root/log/sshd.$1.log"; }
start_slurmd() { mkdir -p "$short/$1"; inside "$1" slurmd -f "$SLURM_CONF" -N "$1"; }

# A daemon of this cluster's own: the machine's may be absent, half installed, or belong to another run. `--force`, because
# pytest's folders are closed to other users, whom munged would otherwise insist on admitting.
start_munged() {
  mkdir -p "$root/munge"
  (umask 077 && head -c 128 /dev/urandom >"$root/munge/key")
  /usr/sbin/munged --force --key-file="$root/munge/key" --socket="$short/munge" --pid-file="$root/munged.pid" \
    --log-file="$root/log/munged.log" --seed-file="$root/munge/seed" 2>>"$root/log/munged.log"
}

start_node() {
  local node=$1 link
  link=$(space "$node")
  ip netns add "$link"
  # shellcheck disable=SC2016 # the inner shell expands
  setsid unshare -m -u nsenter --net="/run/netns/$link" bash -c '
    hostname "$1"; mount --make-rprivate /; umount -l /run/netns; mount --bind "$2/hosts" /etc/hosts; mkdir -p /run/sshd
    echo "$$ $(sed "s/.*) //" /proc/$$/stat | cut -d" " -f20)" >"$2/.$1.ns" && mv "$2/.$1.ns" "$2/$1.ns"
    exec sleep infinity' _ "$node" "$root" </dev/null >/dev/null 2>"$root/log/$node.log" &
  until [ -e "$root/$node.ns" ]; do
    kill -0 $! 2>/dev/null || { cat "$root/log/$node.log" >&2; return 1; }
    sleep 0.05
  done
  disown
  ip link add "$link" type veth peer name eth0 netns "$link"
  ip link set "$link" master "$bridge" up
  inside "$node" ip addr add "$(address "$node")/24" dev eth0
  inside "$node" ip link set eth0 up
  inside "$node" ip link set lo up
  start_sshd "$node"
}

up() {
  local node
  config
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  for node in $nodes; do start_node "$node"; done
  command -v slurmctld >/dev/null && command -v munged >/dev/null || return 0
  start_munged
  start_slurmctld
  for node in $nodes; do start_slurmd "$node"; done
  for _ in $(seq 300); do
    [ "$(sinfo -h -N -p debug -o %t 2>/dev/null | grep -c '^idle')" != "$count" ] || return 0
    sleep 0.2
  done
  sinfo -N >&2
  return 1
}

# Those of this cluster outside of its nodes, by what they run: numbers in files may be those of other processes by now.
daemons() {
  local file
  grep -lsxE 'munged|slurmctld' /proc/[0-9]*/comm | while IFS= read -r file; do
    if grep -qsF "$root/" "${file%comm}cmdline"; then basename "${file%/comm}"; fi
  done || true
}

down() {
  local node pid link
  while pid=$(daemons) && [ -n "$pid" ]; do
    # shellcheck disable=SC2086 # one word a process
    kill -KILL $pid 2>/dev/null || true
    sleep 0.05
  done
  for node in $nodes; do
    link=$(space "$node")
    while pid=$(ip netns pids "$link" 2>/dev/null) && [ -n "$pid" ]; do
      # shellcheck disable=SC2086 # one word a process
      kill -KILL $pid 2>/dev/null || true
      sleep 0.05
    done
    ip link del "$link" 2>/dev/null || true # at once; with its namespace only once the kernel has time
    ip netns del "$link" 2>/dev/null || true
    rm -f "$root/$node.ns"
  done
  rm -rf "$short"
  ip link del "$bridge" 2>/dev/null || true
  rm -f "$root/sizes" # another cluster may take the number now
}

if [ "$verb" = up ]; then
  mkdir -p "$root/log"
  [ ! -e "$root/sizes" ] || { echo "$root is up" >&2; exit 1; }
  rm -f "$root"/*.ns
  claim
  printf 'number=%s count=%s\n' "$number" "$1" >"$root/sizes"
elif [ "$verb" = down ] && [ ! -e "$root/sizes" ]; then
  exit 0
fi
# shellcheck source=/dev/null
. "$root/sizes" # number, count
net=10.88.$number bridge=lb$number control=$((16000 + number))
short=/run/$bridge # for sockets: their paths have at most 107 characters, those of pytest's folders may have more
nodes=$(for i in $(seq "$count"); do printf 'n%s ' "$i"; done)
case $verb in
  up)
    trap down EXIT
    trap 'exit 1' TERM INT HUP
    up
    trap - EXIT ;;
  down) down ;;
  in) inside "$@" ;;
  sshd) start_sshd "$1" ;;
  slurmd) start_slurmd "$1" ;;
  slurmctld) start_slurmctld ;;
  link) ip link set "$(space "$1")" "$2" ;;
  *) echo "unknown: $verb" >&2; exit 2 ;;
esac
