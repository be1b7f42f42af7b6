# Ends what a run started on this machine if the program that started it is killed, and writes down that it was. $1: the run;
# $2: seconds to end in; $3: its status file; $4: the reason that it gets. Standard input names the process group of the moment, one a line, and "end"
# before that program ends by itself; its end is the end of that program.
group='' ended=''
while read -r line; do
  if [ "$line" = end ]; then ended=1; else group=$line; fi
done
ours() { grep -lz "^LAUNCH_RUN=${1//./[.]}/" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
found=$(ours "$1")
if [ -z "$found$ended" ]; then
  # A process that was started last may not have its own environment yet, and its group may not have been named.
  for ((ticks = 5; ticks > 0; ticks--)); do
    sleep 0.2
    found=$(ours "$1")
    [ -z "$found" ] || break
  done
fi
[ -n "$group$found" ] || exit 0
if [ -n "$found" ]; then
  # shellcheck disable=SC2086 # one word a process
  kill -TERM -- "-$group" 2>/dev/null || kill -TERM $found 2>/dev/null
  for ((ticks = $2 * 5; ticks > 0; ticks--)); do
    [ -n "$(ours "$1")" ] || break
    sleep 0.2
  done
  ours "$1" | xargs -r kill -KILL
fi
# Whoever ended by itself has written another state.
grep -qs '"state": "running"' "$3" || exit 0
umask 077
sed -E 's/"state": "running", "code": null/"state": "stopped", "code": 143/
  s/"reason": "[^"]*"/"reason": "'"$4"'"/
  s/"at": "[^"]*"/"at": "'"$(date -u +%FT%TZ)"'"/' "$3" >"${3%/*}/.status.$$" && mv "${3%/*}/.status.$$" "$3"
