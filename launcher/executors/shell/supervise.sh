# -- the whole job: starts all nodes, ends all when the first fails or none goes on, starts again from the last
#    checkpoint. Above stand also: max_restarts, restart_seconds, longest_wait, heartbeat_seconds, hang_seconds, startup_seconds, save_seconds
#    (empty: ranks do not save on a signal), iteration_line, checkpoints, trackers (pairs), fixed_port,
#    master_addr, the texts of end_reasons.py, bind_error and most_binds, and from the executor: start_nodes, nodes_run, stop_nodes, kill_nodes, end_nodes, first_port,
#    master_port_on, again_elsewhere (asks for other machines; false where it cannot).
stopped='' hangup='' why='' silent='' hung='' restarts=0 binds=0 attempt=-1
parent=$PPID

# A signal without a request to stop comes from the queue or from outside the launcher: preemption, an expiring time limit.
stop_reason() {
  [ ! -e "$run/stop.json" ] && [ "$stopped" = 143 ] || return 0
  if [ -n "$hangup" ]; then
    echo "$terminal_lost"
  else
    # shellcheck disable=SC2059 # a format, as in Python
    printf "$preempted\n" "${signal_reason:-$by_sigterm}${save_seconds:+; ranks had $save_seconds s to save}"
  fi
}

write_status() { # STATE CODE REASON
  local text file=$run/.status.$$
  printf -v text '{"state": "%s", "code": %s, "attempt": %s, "restarts": %s, "reason": "%s", "at": "%s"}' \
    "$1" "$2" "$attempt" "$restarts" "$3" "$(date -u +%FT%TZ)"
  if printf '%s\n' "$text" >"$file" && [ -s "$file" ]; then
    chmod 600 "$file"
    mv "$file" "$run/status.json"
  else
    # The disk is full: into the blocks that the file has. Blanks stand for the rest of a longer text.
    rm -f "$file"
    [ ! -s "$run/status.json" ] || printf '%-500s\n' "$text" 1<>"$run/status.json"
  fi 2>/dev/null
}

trap 'stopped=143 hangup=""' TERM
# Shells and service managers send it with another signal, or twice.
trap '[ -n "$stopped" ] || stopped=143 hangup=1' HUP
trap 'stopped=130' INT
# What waits for a node saw that it ended, and not well; it may have been killed, or its disk is full, so that it says nothing.
trap 'silent=1' USR2

# Exit code of the node that failed first, by the clock of the disk. A node that was told to stop does not count, unless
# $1 says so, no signal did here.
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

# Of every node that prints iterations the last one (record.sh).
last_iteration() { cat "$run"/progress/[0-9]* 2>/dev/null; }

# Wait for all nodes; look for a failure, for a wish to stop, and for progress.
watch_nodes() {
  local seen now since=$SECONDS ending='' until=0 limit what beat=-$heartbeat_seconds
  before=$(last_iteration)
  seen=$before
  while nodes_run; do
    sleep 0.5
    if [ -z "$ending" ] && { [ -n "$stopped" ] || parent_gone; }; then
      [ -n "$stopped" ] || why=$starter_killed
      : "${stopped:=143}"
      ending=1 until=$((SECONDS + ${save_seconds:-0} + grace + 10))
      stop_nodes
    elif [ -z "$ending" ] && failed=$(first_failure) && [ -n "$failed$(first_failure all)$silent" ]; then
      # The others get a moment to say what they saw.
      ending=1 until=$((SECONDS + ${save_seconds:-0} + grace + 10))
      sleep 3
      stop_nodes
    elif [ -z "$ending" ] && [ -n "$hang_seconds$startup_seconds" ] && [ -n "$iteration_line" ]; then
      now=$(last_iteration)
      [ "$now" = "$seen" ] || seen=$now since=$SECONDS
      if [ "$now" != "$before" ]; then limit=$hang_seconds what='new'; else limit=$startup_seconds what='first'; fi
      if [ -n "$limit" ] && ((SECONDS - since > limit)); then
        # shellcheck disable=SC2059 # a format, as in Python
        printf -v hung "$no_iteration" "$what" "$((SECONDS - since))"
        ending=1 until=$((SECONDS + ${save_seconds:-0} + grace + 10))
        say "$hung: the ranks are ended"
        stop_nodes
      fi
    fi
    if ((SECONDS - beat >= heartbeat_seconds)); then beat=$SECONDS; touch "$run/heartbeat"; fi
    if [ -n "$ending" ] && ((SECONDS > until)); then
      kill_nodes
      until=$((SECONDS + 10))
    fi
  done
}

# What failed a moment ago mostly fails again at once: each restart waits twice as long as the one before.
wait_to_restart() {
  local wait=$restart_seconds number until
  for ((number = 1; number < restarts && wait < longest_wait; number++)); do wait=$((wait * 2)); done
  ((wait <= longest_wait)) || wait=$longest_wait
  ((wait > 0)) || return 0
  until=$((SECONDS + wait))
  # shellcheck disable=SC2059 # a format, as in Python
  write_status running null \
    "$(printf "$restart_waits" "$(date -u -d "+$wait seconds" +%FT%TZ)" "$restarts" "$max_restarts" "$code")"
  while ((SECONDS < until)) && [ -z "$stopped" ]; do
    ! parent_gone || stopped=143 why=$starter_killed
    sleep 0.5
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
# An attempt whose nodes left no exit counts, too.
number=$(sed -nE 's/.*"attempt": ([0-9]{1,6}),.*/\1/p' "$run/status.json" 2>/dev/null | head -n 1)
((${number:--1} <= attempt)) || attempt=$number
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
  silent='' # also a late word about a node of the attempt before
  start_nodes
  watch_nodes
  end_nodes
  code=${failed:-$(first_failure)}
  [ -n "$code$hung" ] || others=$(first_failure all)
  if [ -n "$stopped" ]; then
    write_status stopped "$stopped" "${why:-$(stop_reason)}"
    exit "$stopped"
  fi
  [ -z "$hung" ] || code=124
  # A node that is gone, or that was ended from outside the job, is no failure of the job.
  gone=$((nodes - $(find "$run/exits" -name "$attempt.*" -size +0 | wc -l)))
  if ((gone > 0)) || [ -n "$others" ]; then
    : "${code:=${others:-1}}"
    if again_elsewhere; then
      say "$gone of $nodes nodes ended without an exit code, or nodes were ended from outside the job: it waits for others"
      write_status queued null "a node was lost"
      exit 0
    fi
  fi
  if [ -z "$code" ]; then
    write_status "done" 0 ""
    exit 0
  fi
  if [ -z "$fixed_port" ] && ((binds < most_binds)) &&
    tail -qc 20000 "$logs"/node0.log 2>/dev/null | grep -aqE -e "$bind_error"; then
    binds=$((binds + 1)) first_port=$((MASTER_PORT + 1))
    say "port $MASTER_PORT was taken meanwhile; once more with another"
    continue
  fi
  if ((restarts >= max_restarts)); then
    # shellcheck disable=SC2059 # a format, as in Python
    write_status failed "$code" "$([ -z "$hung" ] || printf "$hung_reason" "$hung")"
    exit "$code"
  fi
  restarts=$((restarts + 1)) first_port=$((MASTER_PORT + 1))
  say "attempt $attempt failed (exit code $code); restart $restarts of $max_restarts"
  wait_to_restart
  if [ -n "$stopped" ]; then
    write_status stopped "$stopped" "${why:-$(stop_reason)}"
    exit "$stopped"
  fi
done
