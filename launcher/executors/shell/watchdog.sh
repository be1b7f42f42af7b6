# Ends what a run started on this machine if the program that started it is killed. $1: the run; $2: seconds to end in.
# Standard input names the process group of the moment, one a line; its end is the end of that program.
group=''
while read -r line; do group=$line; done
ours() { grep -lz "^LAUNCH_RUN=${1//./[.]}/" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
[ -n "$group" ] && [ -n "$(ours "$1")" ] || exit 0
kill -TERM -- "-$group" 2>/dev/null
for ((ticks = $2 * 5; ticks > 0; ticks--)); do
  [ -n "$(ours "$1")" ] || exit 0
  sleep 0.2
done
ours "$1" | xargs -r kill -KILL
