# -- what the files of a run share; above stand: id, folder (of the run), launch_dir, nodes, first_path, grace (seconds),
#    reserved_ports (folder, but for the number of the user), bound_seconds, started_seconds
run=$folder/run logs=$folder/logs
set -u

say() { printf 'launch: %s\n' "$*"; }

# A port that something on this machine listens to (state 0A), whatever its address; see proc(5), /proc/net/tcp.
port_taken() {
  local hex
  printf -v hex '%04X' "$1"
  grep -qE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Ports that runs of this user on this machine are about to use (launcher/executors/port.py): of two that start at once
# one would find the port of the other taken, or its nodes would join the other's. A file a port, which holds a mark.
run_mark=${id:-}.$(printf '%s' "$run" | cksum | cut -d' ' -f1)
ports=$reserved_ports$UID

reservation_holds() { # FILE HOLDER
  [ -n "$(find "$1" -newermt "-$bound_seconds seconds" 2>/dev/null)" ] || return 1
  [ -n "$(find "$1" -newermt "-$started_seconds seconds" 2>/dev/null)" ] || grep -qszF "LAUNCH_RUN=$2/" /proc/[0-9]*/environ
}

# True if no other run holds the port, which is then this run's.
reserve_port() {
  local holder=''
  (umask 077; mkdir -p "$ports" 2>/dev/null)
  [ -O "$ports" ] && [ ! -L "$ports" ] || return 0
  (
    ! command -v flock >/dev/null || flock -w 10 9
    read -r holder 2>/dev/null <"$ports/$1"
    if [ -n "$holder" ] && [ "$holder" != "$run_mark" ] && reservation_holds "$ports/$1" "$holder"; then exit 1; fi
    { printf '%s\n' "$run_mark" >"$ports/$1"; } 2>/dev/null
    exit 0
  ) 9<"$ports"
}

release_port() {
  local holder=''
  { read -r holder <"$ports/$1"; } 2>/dev/null
  [ "$holder" != "$run_mark" ] || rm -f "$ports/$1"
}

# The first port from a number on that is free and that no other run has reserved.
free_port() {
  local port=$1 tries=200
  while { port_taken "$port" || ! reserve_port "$port"; } && ((tries-- > 0)); do port=$((port + 1)); done
  echo "$port"
}
