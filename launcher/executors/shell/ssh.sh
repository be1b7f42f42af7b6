# -- nodes are reached by ssh. Above stand also: hosts (array), ssh (array), carry (names of variables)
MASTER_ADDR=${master_addr:-${hosts[0]##*@}}
pids=()

first_port() { echo "${fixed_port:-$((20000 + $(printf '%s' "$id" | cksum | cut -d' ' -f1) % 10000))}"; }
master_port_on() { "${ssh[@]}" -n "${hosts[0]}" "exec bash $(printf '%q' "$run/node.sh") port $1"; }

# Variables go through the pipe, never into a file or a command line: some are secrets. The pipe then stays open.
carried() {
  local name
  for name in "${carry[@]}"; do
    [ -z "${!name+x}" ] || printf '%s=%s\n' "$name" "${!name}"
  done
  echo .
}

one_node() { # RANK HOST
  local words code
  trap '' TERM INT HUP
  printf -v words '%q ' env "NODE_RANK=$1" "MASTER_ADDR=$MASTER_ADDR" "MASTER_PORT=$MASTER_PORT" "ATTEMPT=$attempt" \
    "LAUNCH_RESUME=$LAUNCH_RESUME" LAUNCH_ATTACHED=1 bash "$run/node.sh"
  "${ssh[@]}" "$2" "exec $words" < <(exec 8>&-; carried; exec cat <&7) 2>&1 8>&- 7<&- |
    tee -a "$logs/node$1.log" | sed -u "s/^/$2: /"
  code=${PIPESTATUS[0]}
  # What a node says of itself counts, unless the connection broke: then it was ended by that.
  if [ "$code" = 255 ] || [ ! -e "$run/exits/$attempt.$1" ]; then
    [ "$code" != 255 ] || echo "$2: launch: the connection is lost, or was never made"
    printf '%s %s %s\n' "$code" "$2" "lost" >"$run/exits/.lost.$attempt.$1"
    mv "$run/exits/.lost.$attempt.$1" "$run/exits/$attempt.$1"
  fi
}

start_nodes() {
  local hold rank
  hold=$(mktemp -u "${TMPDIR:-/tmp}/launch.XXXXXX")
  mkfifo -m 600 "$hold"
  exec 8<>"$hold" 7<"$hold"
  rm -f "$hold"
  pids=()
  for rank in "${!hosts[@]}"; do
    one_node "$rank" "${hosts[rank]}" 8>&- &
    pids+=($!)
  done
}

nodes_run() {
  local pid
  for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && return 0; done
  return 1
}

again_elsewhere() { return 1; }
stop_nodes() { exec 8>&-; }
kill_nodes() { # the connections; what runs behind them ends by itself
  local pid
  # shellcheck disable=SC2046 # one word a process
  for pid in "${pids[@]}"; do kill -KILL $(cat "/proc/$pid/task/$pid/children") 2>/dev/null; done
}
end_nodes() { exec 8>&- 7<&-; wait "${pids[@]}" 2>/dev/null; }
