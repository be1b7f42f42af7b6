# -- one node: starts its command in a session of its own, and ends what it started, by a mark in the environment.
#    Above stand also: rank_from (name of the variable that tells the rank; empty: NODE_RANK), site_setup, rank_logs
if [ "${1:-}" = port ]; then free_port "$2"; exit; fi
[ -z "$rank_from" ] || NODE_RANK=${!rank_from}
: "${NODE_RANK:?the rank of this node, 0..$((nodes - 1))}"
: "${ATTEMPT:=0}"
export NODE_RANK ATTEMPT
# Ids repeat where states lie in several places: the folder tells runs apart.
mark="$id.$(printf '%s' "$run" | cksum | cut -d' ' -f1)/$NODE_RANK/$ATTEMPT"
child='' monitor='' stopping=''

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

stop() {
  [ -z "$stopping" ] || return 0
  stopping=1
  [ -z "$child" ] && return 0
  kill -TERM -- "-$child" 2>/dev/null
  sweep "$grace" &
}
trap stop TERM INT HUP

cd -- "$launch_dir" || { say "$(hostname): $launch_dir is not there: every node needs the same folders"; exit 72; }
[ -z "$first_path" ] || export PATH="$first_path:$PATH"
if [ "${LAUNCH_ATTACHED:-}" = 1 ]; then
  # Standard input first names variables, up to a dot, each ended by NUL; its end means that whoever started this is gone.
  exec 3<&0
  while IFS= read -r -d '' -u 3 line && [ "$line" != . ]; do export "${line?}"; done
  { while read -r -u 3 line; do :; done; kill -TERM $$; } </dev/null >/dev/null 2>&1 &
  monitor=$!
  exec 3<&-
fi
site_setup
rank_logs
script=$run/command.sh
[ -z "${LAUNCH_RESUME:-}" ] || script=$run/resume.sh
read -r -a begun < <(evidence_begin)
LAUNCH_RUN=$mark setsid bash "$script" </dev/null &
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
[ -z "$monitor" ] || kill "$monitor" 2>/dev/null
umask 077
mkdir -p "$run/exits"
if [ "$code" != 0 ] && [ -z "$stopping" ] && causes=$(evidence_end "${begun[@]}") && [ -n "$causes" ]; then
  mkdir -p "$run/causes" && printf '%s\n' "$causes" >"$run/causes/$ATTEMPT.$NODE_RANK"
fi
printf '%s %s %s\n' "$code" "$(hostname)" "${stopping:+stopped}" >"$run/exits/.$ATTEMPT.$NODE_RANK" &&
  mv -n "$run/exits/.$ATTEMPT.$NODE_RANK" "$run/exits/$ATTEMPT.$NODE_RANK"
exit "$code"
