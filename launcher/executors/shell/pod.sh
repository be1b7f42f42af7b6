# -- a pod: brings its files to their place, looks where to go on, and becomes the node.
#    Above stand also: files (folder of the ConfigMap), rank_from, master_addr, master_port, checkpoints, trackers,
#    hang_seconds, iteration_line, rank_log
rank=${!rank_from:?which node this pod is}
export MASTER_ADDR=${master_addr:-${PET_MASTER_ADDR:?the address of the first pod}}
export MASTER_PORT=$master_port
mkdir -p -- "$launch_dir" "$run/exits" "$logs" || { say "$(hostname): $run cannot be written: a volume is missing (cluster.volumes)"; exit 72; }
# The folder may be one that all pods share: every file appears at once, whoever writes it.
for file in node.sh command.sh resume.sh; do
  [ ! -e "$files/$file" ] || { cp "$files/$file" "$run/.$file.$rank" && mv -f "$run/.$file.$rank" "$run/$file"; } || exit 72
done
ATTEMPT=0
while [ -e "$run/exits/$ATTEMPT.$rank" ]; do ATTEMPT=$((ATTEMPT + 1)); done
LAUNCH_RESUME=$(last_checkpoint)
export ATTEMPT LAUNCH_RESUME
[ -z "$LAUNCH_RESUME" ] || say "resumes from $LAUNCH_RESUME"
[ -n "$hang_seconds" ] && [ -n "$iteration_line" ] || exec bash "$run/node.sh"

# Somebody must see when nothing moves any more: the pod that prints iterations watches them, and fails for all.
seen=$(mktemp) hung='' node=''
trap 'rm -f -- "$seen"' EXIT
trap '[ -z "$node" ] || kill -TERM "$node" 2>/dev/null' TERM INT
keep_last() { grep --line-buffered -aE -e "$iteration_line" | while IFS= read -r line; do printf '%s\n' "$line" >"$seen"; done; }
exec 4> >(exec tee >(keep_last))
shown=$!
bash "$run/node.sh" >&4 2>&1 4>&- &
node=$!
exec 4>&-

last_iteration() {
  cat "$seen"
  # shellcheck disable=SC2086 # rank_log is a pattern of file names
  [ -z "$rank_log" ] || tail -qc 20000 /dev/null "$folder"/$rank_log 2>/dev/null | grep -aE -e "$iteration_line" | tail -n 1
}

before=$(last_iteration) last='' since=$SECONDS
while kill -0 "$node" 2>/dev/null; do
  sleep 1
  now=$(last_iteration)
  if [ "$now" != "$last" ]; then
    last=$now since=$SECONDS
  elif [ "$now" != "$before" ] && [ -z "$hung" ] && ((SECONDS - since > hang_seconds)); then
    hung=1
    say "no new iteration for $((SECONDS - since)) s: the ranks are ended"
    kill -TERM "$node" 2>/dev/null
  fi
done
while wait "$node"; code=$?; ((code > 128)) && kill -0 "$node" 2>/dev/null; do :; done
wait "$shown"
[ -z "$hung" ] || code=124
exit "$code"
