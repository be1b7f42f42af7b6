# -- the whole job: starts all nodes, ends all when the first fails or none goes on, starts again from the last
#    checkpoint. Above stand also: max_restarts, hang_seconds, iteration_line, checkpoints, trackers (pairs), rank_log,
#    fixed_port, master_addr, and from the executor: start_nodes, nodes_run, stop_nodes, kill_nodes, end_nodes, first_port,
#    master_port_on, again_elsewhere (asks for other machines; false where it cannot).
stopped='' hung='' restarts=0 binds=0 attempt=-1
parent=$PPID

write_status() { # STATE CODE REASON
  printf '{"state": "%s", "code": %s, "attempt": %s, "restarts": %s, "reason": "%s", "at": "%s"}\n' \
    "$1" "$2" "$attempt" "$restarts" "$3" "$(date -u +%FT%TZ)" >"$run/.status.$$"
  chmod 600 "$run/.status.$$"
  mv "$run/.status.$$" "$run/status.json"
}

trap 'stopped=143' TERM HUP
trap 'stopped=130' INT

# Exit code of the node that failed first, by the clock of the disk. A node that was told to stop does not count, unless
# $1 says so: nobody told it here.
first_failure() {
  local file code rest all=${1:-}
  # shellcheck disable=SC2012 # names are numbers
  while IFS= read -r file; do
    read -r code _ rest <"$file" || continue
    [[ $code =~ ^[0-9]+$ ]] || continue
    if [ "$code" != 0 ] && { [ "$rest" != stopped ] || [ -n "$all" ]; }; then
      echo "$code"
      return
    fi
  done < <(ls -tr "$run/exits/$attempt".* 2>/dev/null)
}

parent_gone() {
  local now
  [ "${LAUNCH_ATTACHED:-}" = 1 ] || return 1
  read -r _ _ _ now _ </proc/$$/stat
  [ "$now" != "$parent" ]
}

last_iteration() {
  # shellcheck disable=SC2086 # rank_log is a pattern of file names
  tail -qc 20000 "$logs"/node*.log ${rank_log:+"$folder"/$rank_log} 2>/dev/null | grep -aE -e "$iteration_line" | tail -n 1
}

# Wait for all nodes; look for a failure, for a wish to stop, and for progress.
watch_nodes() {
  local seen='' now since=$SECONDS told='' until=0
  before=$(last_iteration)
  while nodes_run; do
    sleep 0.5
    if [ -z "$told" ] && { [ -n "$stopped" ] || parent_gone; }; then
      : "${stopped:=143}"
      told=1 until=$((SECONDS + grace + 10))
      stop_nodes
    elif [ -z "$told" ] && failed=$(first_failure) && [ -n "$failed$(first_failure all)" ]; then
      # The others get a moment to say what they saw.
      told=1 until=$((SECONDS + grace + 10))
      sleep 3
      stop_nodes
    elif [ -z "$told" ] && [ -n "$hang_seconds" ] && [ -n "$iteration_line" ]; then
      now=$(last_iteration)
      if [ "$now" != "$seen" ]; then
        seen=$now since=$SECONDS
      elif [ "$now" != "$before" ] && ((SECONDS - since > hang_seconds)); then
        hung=1 told=1 until=$((SECONDS + grace + 10))
        say "no new iteration for $((SECONDS - since)) s: the ranks are ended"
        stop_nodes
      fi
    fi
    if [ -n "$told" ] && ((SECONDS > until)); then
      kill_nodes
      until=$((SECONDS + 10))
    fi
  done
}

(umask 077; mkdir -p "$run/exits" "$logs")
for file in "$run/exits"/*.*; do
  [ -e "$file" ] || continue
  number=${file##*/} number=${number%%.*}
  # Arithmetic would run a command that a name holds.
  [[ $number =~ ^[0-9]+$ ]] || continue
  ((number <= attempt)) || attempt=$number
done
# A job that was stopped, and that its queue starts again, was not asked to end this time.
((attempt < 0)) || rm -f "$run/stop.json"
first_port=$(first_port)
while :; do
  attempt=$((attempt + 1)) hung='' failed='' others=''
  LAUNCH_RESUME=$(last_checkpoint)
  # What a login shell over there prints besides stands before the number.
  MASTER_PORT=$(master_port_on "$first_port") || MASTER_PORT=''
  MASTER_PORT=${MASTER_PORT##*[!0-9]}
  if [ -z "$MASTER_PORT" ]; then
    write_status failed 75 "the master cannot be asked"
    exit 75
  fi
  if [ -n "$fixed_port" ] && [ "$MASTER_PORT" != "$fixed_port" ]; then
    say "port $fixed_port is taken on $MASTER_ADDR: choose another cluster.master_port, or none"
    write_status failed 73 "port $fixed_port is taken"
    exit 73
  fi
  export ATTEMPT=$attempt LAUNCH_RESUME MASTER_PORT MASTER_ADDR
  [ -z "$LAUNCH_RESUME" ] || say "resumes from $LAUNCH_RESUME"
  write_status running null ""
  start_nodes
  watch_nodes
  end_nodes
  code=${failed:-$(first_failure)}
  [ -n "$code$hung" ] || others=$(first_failure all)
  if [ -n "$stopped" ]; then
    write_status stopped "$stopped" ""
    exit "$stopped"
  fi
  [ -z "$hung" ] || code=124
  # A node that is gone, or that was ended by somebody else, says nothing against the job.
  gone=$((nodes - $(find "$run/exits" -name "$attempt.*" | wc -l)))
  if ((gone > 0)) || [ -n "$others" ]; then
    : "${code:=${others:-1}}"
    if again_elsewhere; then
      say "$gone of $nodes nodes are gone without a word, or nodes were ended by somebody else: the job waits for others"
      write_status queued null "a node was lost"
      exit 0
    fi
  fi
  if [ -z "$code" ]; then
    write_status "done" 0 ""
    exit 0
  fi
  if [ -z "$fixed_port" ] && ((binds < 3)) &&
    tail -qc 20000 "$logs"/node0.log 2>/dev/null | grep -aqE 'EADDRINUSE|[Aa]ddress already in use'; then
    binds=$((binds + 1)) first_port=$((MASTER_PORT + 1))
    say "port $MASTER_PORT was taken meanwhile; once more with another"
    continue
  fi
  if ((restarts >= max_restarts)); then
    write_status failed "$code" "${hung:+hung}"
    exit "$code"
  fi
  restarts=$((restarts + 1)) first_port=$((MASTER_PORT + 1))
  say "attempt $attempt failed (exit code $code); restart $restarts of $max_restarts"
done
