# -- a pod: brings its files to their place, looks where to go on, and becomes the node.
#    Above stand also: files (folder of the ConfigMap), rank_from, master_addr, master_port, checkpoints, trackers
rank=${!rank_from:?which node this pod is}
export MASTER_ADDR=${master_addr:-${PET_MASTER_ADDR:?the address of the first pod}}
export MASTER_PORT=$master_port
mkdir -p "$launch_dir" "$run/exits" "$logs" || { say "$(hostname): $run cannot be written: a volume is missing (cluster.volumes)"; exit 72; }
# The folder may be one that all pods share: every file appears at once, whoever writes it.
for file in node.sh command.sh resume.sh; do
  [ ! -e "$files/$file" ] || { cp "$files/$file" "$run/.$file.$rank" && mv -f "$run/.$file.$rank" "$run/$file"; } || exit 72
done
ATTEMPT=0
while [ -e "$run/exits/$ATTEMPT.$rank" ]; do ATTEMPT=$((ATTEMPT + 1)); done
LAUNCH_RESUME=$(last_checkpoint)
export ATTEMPT LAUNCH_RESUME
[ -z "$LAUNCH_RESUME" ] || say "goes on from $LAUNCH_RESUME"
exec bash "$run/node.sh"
