# -- what the files of a run share; above stand: id, folder (of the run), launch_dir, nodes, first_path, grace (seconds)
run=$folder/run logs=$folder/logs
set -u

say() { printf 'launch: %s\n' "$*"; }

# A port that something on this machine listens to (state 0A), whatever its address; see proc(5), /proc/net/tcp.
port_taken() {
  local hex
  printf -v hex '%04X' "$1"
  grep -qE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# The first free port from a number on.
free_port() {
  local port=$1 tries=200
  while port_taken "$port" && ((tries-- > 0)); do port=$((port + 1)); done
  echo "$port"
}
