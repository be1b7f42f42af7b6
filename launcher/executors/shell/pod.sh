# -- a pod: brings its files to their place, looks where to go on, and becomes the node.
#    Above stand also: files (folder of the ConfigMap), rank_from, master_addr, master_port, checkpoints, trackers,
#    hang_seconds, startup_seconds, iteration_line, rank_log, first_attempt (above 0: of a run that is resumed)

# The first process of a container is deaf to signals that it has no trap for, and a volume may take long to answer.
trap 'exit 143' TERM INT
rank=${!rank_from:?which node this pod is}
export MASTER_ADDR=${master_addr:-${PET_MASTER_ADDR:?the address of the first pod}}
export MASTER_PORT=$master_port
mkdir -p -- "$launch_dir" "$run/exits" "$logs" || { say "$(hostname): $run cannot be written: a volume is missing (cluster.volumes)"; exit 72; }
# The folder may be one that all pods share: every file appears at once, whoever writes it.
for file in node.sh command.sh resume.sh; do
  [ ! -e "$files/$file" ] || { cp "$files/$file" "$run/.$file.$rank" && mv -f "$run/.$file.$rank" "$run/$file"; } || exit 72
done
ATTEMPT=$first_attempt
while [ -e "$run/exits/$ATTEMPT.$rank" ]; do ATTEMPT=$((ATTEMPT + 1)); done
LAUNCH_RESUME=$(last_checkpoint)
export ATTEMPT LAUNCH_RESUME
[ -z "$LAUNCH_RESUME" ] || say "resumes from $LAUNCH_RESUME"
if ((first_attempt > 0)) && [ -z "$LAUNCH_RESUME" ]; then
  say "$(hostname): there is no complete checkpoint in $checkpoints: nothing is trained anew"
  exit 74
fi
[ -n "$hang_seconds$startup_seconds" ] && [ -n "$iteration_line" ] || exec bash "$run/node.sh"

# Somebody must see when nothing moves any more: the pod that prints iterations watches them, and fails for all.
seen=$(mktemp) hung='' node='' asked=''
trap 'rm -f -- "$seen"' EXIT
# Ranks that were asked to end save, and print no iteration meanwhile.
trap 'asked=1; [ -z "$node" ] || kill -TERM "$node" 2>/dev/null' TERM INT
keep_last() { grep --line-buffered -aE -e "$iteration_line" | while IFS= read -r line; do printf '%s\n' "$line" >"$seen"; done; }
exec 4> >(exec tee >(keep_last))
shown=$!
bash "$run/node.sh" >&4 2>&1 4>&- &
node=$!
exec 4>&-

last_iteration() {
  cat "$seen" "$run"/progress/[0-9]* 2>/dev/null
  # shellcheck disable=SC2086 # rank_log is a pattern of file names
  [ -z "$rank_log" ] || tail -qc 20000 /dev/null "$folder"/$rank_log 2>/dev/null | grep -aE -e "$iteration_line" | tail -n 1
}

# Of several pods some print no iteration. Where all have the same folder each sees what the others do there; where they
# have not, or not all run yet, the first iteration is due of a single one only.
mkdir -p "$run/pods" && : >"$run/pods/$ATTEMPT.$rank"
see_all() { ((nodes == 1)) || [ "$(find "$run/pods" -name "$ATTEMPT.*" 2>/dev/null | wc -l)" = "$nodes" ]; }
startup_limit='' all=''
before=$(last_iteration) last=$(last_iteration) since=$SECONDS
while kill -0 "$node" 2>/dev/null; do
  sleep 1
  [ -n "$all" ] || ! see_all || all=1 startup_limit=$startup_seconds since=$SECONDS
  now=$(last_iteration)
  [ "$now" = "$last" ] || last=$now since=$SECONDS
  if [ "$now" != "$before" ]; then limit=$hang_seconds; else limit=$startup_limit; fi
  if [ -z "$hung$asked" ] && [ -n "$limit" ] && ((SECONDS - since > limit)); then
    hung=1
    say "no new iteration for $((SECONDS - since)) s: the ranks are ended"
    kill -TERM "$node" 2>/dev/null
  fi
done
while wait "$node"; code=$?; ((code > 128)) && kill -0 "$node" 2>/dev/null; do :; done
wait "$shown"
# Where this script asked the node to end, and nothing else did, it failed.
if [ -n "$hung" ]; then
  code=124
  printf '%s %s\n' "$code" "$(hostname)" >"$run/exits/.$ATTEMPT.$rank" &&
    mv -f "$run/exits/.$ATTEMPT.$rank" "$run/exits/$ATTEMPT.$rank"
fi
exit "$code"
