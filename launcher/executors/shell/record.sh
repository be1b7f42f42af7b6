# -- what a node writes down of itself: when its log grew, its last iteration, lines that may say why it failed. Above stand
#    also: iteration_line, rank_log (with {rank}; empty: none), devices, log_tail (bytes), row_seconds
own_logs() { # sets own: the logs of this node's ranks
  local rank
  own=("$logs/node$NODE_RANK.log")
  [ -n "$rank_log" ] || return 0
  for ((rank = NODE_RANK * devices; rank < (NODE_RANK + 1) * devices; rank++)); do
    own+=("$folder/${rank_log//\{rank\}/$rank}")
  done
}

# The hang watch and `launch status` read one small file of each node that prints iterations, not all logs.
record_iteration() {
  local line file=$run/progress/$NODE_RANK
  [ -n "$iteration_line" ] || return 0
  line=$(tail -qc "$log_tail" "${own[@]}" 2>/dev/null | grep -aE -e "$iteration_line" | tail -n 1)
  [ -n "$line" ] && [ "$line" != "$iteration" ] || return 0
  mkdir -p "$run/progress" && printf '%s\n' "${line:0:1000}" >"$run/progress/.$NODE_RANK" && mv "$run/progress/.$NODE_RANK" "$file" && iteration=$line
}

# Until node.sh ends; if it is killed, for a second more.
record() {
  local sizes='' before size row=0 at=0 parent
  umask 077
  own_logs
  while sleep 1 && [ -e "/proc/$$" ]; do
    # LAUNCH_CHILD: this script ends with the process that started it, where nothing else ends it then.
    if [ -n "${LAUNCH_CHILD:-}" ] && read -r _ _ _ parent _ <"/proc/$$/stat" && [ "$parent" != "$PPID" ]; then
      kill -TERM $$
    fi
    before=$sizes
    sizes=$(stat -c '%s %n' "${own[@]}" 2>/dev/null)
    [ "$sizes" != "$before" ] || continue
    if [ -e "${own[0]}" ] && ((at - row >= row_seconds)); then
      size=${before%% *}
      mkdir -p "$logs/times" && printf '%s %s\n' "$at" "${size:-0}" >>"$logs/times/node$NODE_RANK"
      row=$at
    fi
    printf -v at '%(%s)T' -1
    record_iteration
  done </dev/null >/dev/null 2>&1
}

# The last lines that look like errors, each text once; the reader of the run sorts them.
error_lines() {
  tail -qc $((10 * log_tail)) "${own[@]}" 2>/dev/null |
    grep -aE '(Error|Exception|Interrupt|Failure|Timeout)\b|what\(\):|[Oo]ut of memory|exitcode: -|fault|Killed|NCCL|HCCL|Xid' |
    cut -c1-300 | awk '{ text = $0; sub(/^\[[a-z]*[0-9]*\]:? ?/, "", text); gsub(/[0-9]+/, "", text) } !seen[text]++' | tail -n 8
}
