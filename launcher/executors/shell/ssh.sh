# -- nodes are reached by ssh. Above stand also: hosts (array), ssh (array), carry (names of variables), fanout (with more
#    hosts than that, each of so many connects to those of its group; 0: none does)
MASTER_ADDR=${master_addr:-${hosts[0]##*@}}
pids=()

first_port() { echo "${fixed_port:-$((20000 + $(printf '%s' "$id" | cksum | cut -d' ' -f1) % 10000))}"; }
master_port_on() { "${ssh[@]}" -n -- "${hosts[0]}" "exec $(quoted bash "$run/node.sh" port "$1")"; }

# Words for a shell that need not be bash: ssh hands one line to the user's shell over there.
quoted() {
  local word
  for word in "$@"; do printf "'%s' " "${word//"'"/"'\\''"}"; done
}

# Variables go through the pipe, never into a file or a command line: some are secrets. Values may have several lines, so
# that NUL ends each. The pipe then stays open.
variables() {
  local name
  for name in ${carry[@]+"${carry[@]}"}; do
    [ -z "${!name+x}" ] || printf '%s=%s\0' "$name" "${!name}"
  done
  printf '.\0'
}

one_node() { # RANK HOST
  local words code line
  trap '' TERM INT HUP
  words=$(quoted env "NODE_RANK=$1" "MASTER_ADDR=$MASTER_ADDR" "MASTER_PORT=$MASTER_PORT" "ATTEMPT=$attempt" \
    "LAUNCH_RESUME=$LAUNCH_RESUME" LAUNCH_ATTACHED=1 bash "$run/node.sh")
  "${ssh[@]}" -- "$2" "exec $words" < <(exec 8>&-; variables; exec cat <&7) 2>&1 8>&- 7<&- |
    tee -a "$logs/node$1.log" |
    while IFS= read -r line || [ -n "$line" ]; do printf '%s: %s\n' "$2" "$line"; done
  code=${PIPESTATUS[0]}
  # What a node says of itself counts, unless the connection broke: then it was ended by that.
  if [ "$code" = 255 ] || [ ! -s "$run/exits/$attempt.$1" ]; then lost_node "$1" "$2" "$code"; fi
  [ -s "$run/exits/$attempt.$1" ] || kill -USR2 $$
}

was_stopped() { # RANK
  local how=''
  read -r _ _ how _ <"$run/exits/$attempt.$1"
  [ "$how" = stopped ]
}

lost_node() { # RANK HOST CODE
  [ "$3" != 255 ] || echo "$2: launch: the connection is lost, or was never made"
  printf '%s %s %s\n' "$3" "$2" "lost" >"$run/exits/.lost.$attempt.$1" &&
    mv "$run/exits/.lost.$attempt.$1" "$run/exits/$attempt.$1"
}

# The nodes of a group by way of its first host, which keeps the connections to them (relay.sh).
one_group() { # RANK COUNT
  local words code rank
  trap '' TERM INT HUP
  words=$(quoted env "MASTER_PORT=$MASTER_PORT" "ATTEMPT=$attempt" "LAUNCH_RESUME=$LAUNCH_RESUME" \
    bash "$run/relay.sh" "$1" "$2")
  "${ssh[@]}" -- "${hosts[$1]}" "exec $words" < <(exec 8>&-; variables; exec cat <&7) 2>&1 8>&- 7<&-
  code=$?
  for ((rank = $1; rank < $1 + $2; rank++)); do
    # The end of that host is the end of the connections to its group, which ends those of its nodes that still run.
    if [ ! -s "$run/exits/$attempt.$rank" ] || { [ "$code" != 0 ] && was_stopped "$rank"; }; then
      lost_node "$rank" "${hosts[rank]}" 255
    fi
    [ -s "$run/exits/$attempt.$rank" ] || kill -USR2 $$
  done
}

start_nodes() {
  local count=${#hosts[@]} first size=1
  ((fanout == 0 || count <= fanout)) || size=$(((count + fanout - 1) / fanout))
  open_hold || return 1
  for ((first = 0; first < count; first += size)); do
    if ((size == 1)); then
      one_node "$first" "${hosts[first]}" 8>&- &
    else
      one_group "$first" $((first + size <= count ? size : count - first)) 8>&- &
    fi
    pids+=($!)
  done
}

# What nodes have as their standard input ends with descriptor 8 of this shell.
open_hold() {
  local hold
  # In a folder of its own, which no other user can write to: a name in /tmp that is free now may be taken a moment later.
  pids=()
  hold=$(mktemp -d) || { say "no temporary folder can be made"; return 1; }
  mkfifo -m 600 "$hold/pipe"
  # shellcheck disable=SC2094 # one end to hold it open, one to read
  exec 8<>"$hold/pipe" 7<"$hold/pipe"
  rm -rf -- "$hold"
}

nodes_run() {
  local pid
  for pid in ${pids[@]+"${pids[@]}"}; do kill -0 "$pid" 2>/dev/null && return 0; done
  return 1
}

again_elsewhere() { return 1; }
stop_nodes() { exec 8>&-; }
kill_nodes() { # the connections; what runs behind them ends by itself
  local pid
  # shellcheck disable=SC2046 # one word a process
  for pid in ${pids[@]+"${pids[@]}"}; do kill -KILL $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) 2>/dev/null; done
}
end_nodes() { exec 8>&- 7<&-; wait ${pids[@]+"${pids[@]}"} 2>/dev/null; }
