# -- the first host of a group: starts the nodes of the group over ssh, and ends them when whoever started it is gone.
#    Arguments: rank of the group's first node, and how many there are
attempt=$ATTEMPT
exec 3<&0
while IFS= read -r -d '' -u 3 line && [ "$line" != . ]; do export "${line?}"; done
trap '' INT HUP USR2
trap stop_nodes TERM
open_hold || exit 1
for ((rank = $1; rank < $1 + $2; rank++)); do
  one_node "$rank" "${hosts[rank]}" 8>&- 3<&- &
  pids+=($!)
done
{ while read -r -u 3 line; do :; done; kill -TERM $$; } </dev/null >/dev/null 2>&1 7<&- 8>&- &
watch=$!
exec 3<&-
while nodes_run; do sleep 0.5; done
kill "$watch" 2>/dev/null
end_nodes
exit 0
