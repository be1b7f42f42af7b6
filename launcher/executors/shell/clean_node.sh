# -- ends the processes of a run that has ended. Above stand: id and run (its folder)
mark="LAUNCH_RUN=$id.$(printf '%s' "$run" | cksum | cut -d' ' -f1)/"
left() { grep -lzF "$mark" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
found=$(left)
[ -n "$found" ] || exit 0
# shellcheck disable=SC2086 # one word a process
kill -TERM $found 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -n "$(left)" ] || break; sleep 0.5; done
# shellcheck disable=SC2046
[ -z "$(left)" ] || kill -KILL $(left) 2>/dev/null
for process in $found; do echo "process $process"; done
