#!/usr/bin/env bash
# Machines for tests on one machine: each "node" is a set of Linux namespaces with its own host name, address, ports, sshd
# and slurmd, on one bridge. Needs root, iproute2, openssh-server; with Slurm also slurm-wlm and munge.
#   cluster.sh up FOLDER NUMBER COUNT      NUMBER (1..200) keeps clusters on one machine apart
#   cluster.sh down FOLDER
#   cluster.sh in FOLDER NODE COMMAND …    runs a command on a node
#   cluster.sh slurmd FOLDER NODE          starts a node's slurmd (again); likewise sshd

# shellcheck disable=SC2154 # the file of sizes says number and count
set -euo pipefail
verb=$1 root=$2
shift 2
[ "$verb" != up ] || { mkdir -p "$root"; printf 'number=%s count=%s\n' "$1" "$2" >"$root/sizes"; }
. "$root/sizes" # number, count
net=10.88.$number bridge=lb$number control=$((16000 + number))
export SLURM_CONF=$root/slurm.conf

address() { echo "$net.$((10 + ${1#n}))"; }
inside() { local node=$1; shift; nsenter -t "$(cat "$root/$node.ns")" -m -u -n -- "$@"; }

config() {
  local node
  mkdir -p "$root"/{state,log,dev}
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
AuthInfo=socket=$root/munge/socket
SlurmctldPidFile=$root/slurmctld.pid
SlurmdPidFile=$root/slurmd.%n.pid
SlurmctldLogFile=$root/log/slurmctld.log
SlurmdLogFile=$root/log/slurmd.%n.log
StateSaveLocation=$root/state
SlurmdSpoolDir=$root/spool.%n
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
$(for node in $nodes; do echo "NodeName=$node NodeAddr=$(address "$node") CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=20000 Gres=gpu:8 State=UNKNOWN"; done)
PartitionName=debug Nodes=n[1-$count] Default=YES MaxTime=INFINITE State=UP
CONF
  [ -e "$root/host_key" ] || ssh-keygen -q -t ed25519 -N '' -f "$root/host_key"
  [ -e "$root/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$root/key"
  printf '%s\n' "Port 22" "HostKey $root/host_key" "AuthorizedKeysFile $root/key.pub" "PermitRootLogin prohibit-password" \
    "PasswordAuthentication no" "UsePAM no" "StrictModes no" "PidFile none" >"$root/sshd_config"
  { for node in $nodes; do printf 'Host %s\n  HostName %s\n' "$node" "$(address "$node")"; done
    printf '%s\n' 'Host *' '  User root' "  IdentityFile $root/key" '  StrictHostKeyChecking no' \
      '  UserKnownHostsFile /dev/null' '  LogLevel ERROR'; } >"$root/ssh_config"
}

start_sshd() { inside "$1" /usr/sbin/sshd -f "$root/sshd_config" -E "$root/log/sshd.$1.log"; }
start_slurmd() { mkdir -p "$root/spool.$1"; inside "$1" slurmd -f "$SLURM_CONF" -N "$1"; }

# A daemon of this cluster's own: the machine's may be absent, half installed, or belong to another run. `--force`, because
# pytest's folders are closed to other users, whom munged would otherwise insist on admitting.
start_munged() {
  mkdir -p "$root/munge"
  (umask 077 && head -c 128 /dev/urandom >"$root/munge/key")
  /usr/sbin/munged --force --key-file="$root/munge/key" --socket="$root/munge/socket" --pid-file="$root/munged.pid" \
    --log-file="$root/log/munged.log" --seed-file="$root/munge/seed" 2>>"$root/log/munged.log"
}

start_node() {
  local node=$1 pid link=l$number${1}
  # shellcheck disable=SC2016 # the inner shell expands
  setsid unshare -m -u -n bash -c '
    hostname "$1"; mount --make-rprivate /; mount --bind "$2/hosts" /etc/hosts; mkdir -p /run/sshd; echo $$ >"$2/$1.ns"
    exec sleep infinity' _ "$node" "$root" </dev/null >/dev/null 2>&1 &
  until [ -s "$root/$node.ns" ]; do sleep 0.05; done
  pid=$(cat "$root/$node.ns")
  ip link add "$link" type veth peer name eth0 netns "$pid"
  ip link set "$link" master "$bridge" up
  inside "$node" ip addr add "$(address "$node")/24" dev eth0
  inside "$node" ip link set eth0 up
  inside "$node" ip link set lo up
  start_sshd "$node"
}

up() {
  local node
  config
  ip link add "$bridge" type bridge
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  for node in $nodes; do start_node "$node"; done
  command -v slurmctld >/dev/null && command -v munged >/dev/null || return 0
  start_munged
  slurmctld -f "$SLURM_CONF" >/dev/null 2>&1
  for node in $nodes; do start_slurmd "$node"; done
  for _ in $(seq 100); do [ "$(sinfo -h -N -o %t 2>/dev/null | grep -c '^idle')" = "$count" ] && return 0; sleep 0.2; done
  sinfo -N >&2
  return 1
}

down() {
  local file space process
  for file in "$root"/*.pid; do [ -e "$file" ] && kill "$(cat "$file")" 2>/dev/null || true; done
  for file in "$root"/*.ns; do
    # shellcheck disable=SC2015 # the next file if either fails
    [ -e "$file" ] && space=$(readlink "/proc/$(cat "$file")/ns/net") || continue
    for process in /proc/[0-9]*; do # every process in this node's network, and no other
      [ "$(readlink "$process/ns/net" 2>/dev/null)" = "$space" ] && kill -KILL "${process#/proc/}" 2>/dev/null || true
    done
  done
  ip link del "$bridge" 2>/dev/null || true
}

nodes=$(for i in $(seq "$count"); do printf 'n%s ' "$i"; done)
case $verb in
  up) up ;;
  down) down ;;
  in) inside "$@" ;;
  sshd) start_sshd "$1" ;;
  slurmd) start_slurmd "$1" ;;
  *) echo "unknown: $verb" >&2; exit 2 ;;
esac
