# -- where to go on. Above stand also: checkpoints (folder), trackers (pairs: pattern of folders below it, file in them)

# The folder of the newest complete checkpoint of this job; nothing where there is none.
last_checkpoint() {
  local index newest='' folder
  [ -n "$checkpoints" ] && [ -e "$run/resume.sh" ] || return 0
  for ((index = 0; index < ${#trackers[@]}; index += 2)); do
    for folder in "$checkpoints"${trackers[index]:+/}${trackers[index]}; do
      local file=$folder/${trackers[index + 1]}
      if [ -s "$file" ] && { [ -z "$newest" ] || [ "$file" -nt "$newest" ]; }; then
        newest=$file
        found=$folder
      fi
    done
  done
  [ -z "$newest" ] || printf '%s\n' "$found"
}
