# -- one node: starts its command in a session of its own, and ends what it started, by a mark in the environment.
#    Above stand also: rank_from (name of the variable that tells the rank; empty: NODE_RANK), site_setup, rank_logs
if [ "${1:-}" = port ]; then free_port "$2"; exit; fi
[ -z "$rank_from" ] || NODE_RANK=${!rank_from}
: "${NODE_RANK:?the rank of this node, 0..$((nodes - 1))}"
: "${ATTEMPT:=0}"
export NODE_RANK ATTEMPT
# Ids repeat where states lie in several places: the folder tells runs apart.
mark=$run_mark/$NODE_RANK/$ATTEMPT
child='' monitor='' recorder='' stopping='' iteration=''

# Processes that this node's command started, also those that left its session.
ours() { grep -lzFx "LAUNCH_RUN=$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }

# End them: wait for a number of seconds, then kill.
sweep() {
  local ticks=$(($1 * 5)) left
  while left=$(ours) && [ -n "$left" ]; do
    if ((ticks-- <= 0)); then
      # shellcheck disable=SC2086 # one word a process
      kill -KILL $left 2>/dev/null
      ticks=10
    fi
    sleep 0.2
  done
}

# Ranks, without the workers of their data loaders, which inherit their environment. A rank that saves on SIGTERM ends by
# itself, and what started it then ends, too; torchrun kills ranks 30 s after it was told to end.
# A platform may set RANK for the node (PyTorchJob), so that also what starts the ranks has it: LOCAL_RANK counts first.
ranks() {
  local name pid parent found=''
  for name in LOCAL_RANK RANK; do
    for pid in $(ours); do
      grep -qsz "^$name=" "/proc/$pid/environ" || continue
      parent=$(sed -nE 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
      grep -qsz "^$name=" "/proc/$parent/environ" || found+=" $pid"
    done
    [ -z "$found" ] || break
  done
  echo "$found"
}

save_first() {
  local ticks=$((save_seconds * 5)) saving
  saving=$(ranks)
  [ -n "$saving" ] || return 0
  say "node $NODE_RANK: ranks have $save_seconds s to save"
  # shellcheck disable=SC2086 # one word a process
  kill -TERM $saving 2>/dev/null
  # shellcheck disable=SC2086
  while ((ticks-- > 0)) && kill -0 $saving 2>/dev/null; do sleep 0.2; done
}

stop() {
  local ticks
  [ -z "$stopping" ] || return 0
  stopping=1
  [ -z "$child" ] && return 0
  {
    [ -z "$save_seconds" ] || save_first
    # Its group is there once setsid has made it; before, nobody hears the signal, and it would train until the grace ends.
    for ((ticks = 100; ticks > 0; ticks--)); do
      ! kill -TERM -- "-$child" 2>/dev/null || break
      kill -0 "$child" 2>/dev/null || break
      sleep 0.1
    done
    sweep "$grace"
  } 9>&- &
}
trap stop TERM INT HUP URG

# Where this script is killed its ranks go on: whoever holds the other end of its pipe then ends them. Not a subshell: what kills
# this script's group or all of its name would end that, too.
exec 9> >(exec setsid bash -c "$(declare -f ours sweep)"'
  mark=$1
  cat >/dev/null
  ours | xargs -r kill -TERM 2>/dev/null
  sweep "$2"' watchdog "$mark" "$grace" >/dev/null 2>&1)

cd -- "$launch_dir" || { say "$(hostname): $launch_dir is not there: every node needs the same folders"; exit 72; }
[ -z "$first_path" ] || export PATH="$first_path:$PATH"
if [ "${LAUNCH_ATTACHED:-}" = 1 ]; then
  # Standard input first names variables, up to a dot, each ended by NUL; its end means that whoever started this is gone.
  exec 3<&0
  while IFS= read -r -d '' -u 3 line && [ "$line" != . ]; do export "${line?}"; done
  { while read -r -u 3 line; do :; done; kill -TERM $$; } </dev/null >/dev/null 2>&1 9>&- &
  monitor=$!
  exec 3<&-
fi
# What the site's lines leave running must not hold the pipe open.
site_setup 9>&-
rank_logs
script=$run/command.sh
[ -z "${LAUNCH_RESUME:-}" ] || script=$run/resume.sh
read -r -a begun < <(evidence_begin)
record 9>&- &
recorder=$!
LAUNCH_RUN=$mark setsid bash "$script" </dev/null 9>&- &
child=$!
[ -z "$stopping" ] || { stopping=''; stop; }
while wait "$child"; code=$?; ((code > 128)) && kill -0 "$child" 2>/dev/null; do :; done
if [ -n "$stopping" ]; then
  sweep "$grace"
else
  ours | xargs -r kill -TERM 2>/dev/null
  sweep 5
fi
wait "$child" 2>/dev/null
for helper in $monitor $recorder; do kill "$helper" 2>/dev/null; done
[ "$NODE_RANK" != 0 ] || [ -z "${MASTER_PORT:-}" ] || release_port "$MASTER_PORT"
umask 077
mkdir -p "$run/exits"
own_logs
record_iteration
if [ "$code" != 0 ] && [ -z "$stopping" ] && causes=$(evidence_end ${begun[@]+"${begun[@]}"}) && [ -n "$causes" ]; then
  mkdir -p "$run/causes" && printf '%s\n' "$causes" >"$run/causes/$ATTEMPT.$NODE_RANK"
fi
{
  printf '%s %s %s\n' "$code" "$(hostname)" "${stopping:+stopped}"
  [ "$code" = 0 ] || [ -n "$stopping" ] || error_lines
} >"$run/exits/.$ATTEMPT.$NODE_RANK"
# An empty file is that of a full disk, and says nothing.
[ ! -s "$run/exits/.$ATTEMPT.$NODE_RANK" ] || mv -n "$run/exits/.$ATTEMPT.$NODE_RANK" "$run/exits/$ATTEMPT.$NODE_RANK"
exit "$code"
