# -- nodes are tasks of a Slurm step; this script itself runs on the first node. Above stand also: srun (array), requeue
#    (empty: no), step_logs (folder of the logs, as a pattern of file names), carry (names of variables that hold inside a
#    container whatever its image sets; empty: there is none)
mapfile -t hosts < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?this is a Slurm job: sbatch $run/job.sbatch}")
if [ "${#hosts[@]}" -lt "$nodes" ]; then
  say "${#hosts[@]} nodes are allocated (${SLURM_JOB_NODELIST}), the job needs $nodes"
  exit 71
fi
MASTER_ADDR=${master_addr:-${hosts[0]}}
step=''
signal_reason='Slurm preempts the job, or its time limit is near'

first_port() { echo "${fixed_port:-$((20000 + SLURM_JOB_ID % 10000))}"; }
master_port_on() { free_port "$1"; }

# Pyxis: an image's own values win over those outside, unless a variable is named.
container_env() {
  local name names=MASTER_ADDR,MASTER_PORT,ATTEMPT,LAUNCH_RESUME
  for name in ${carry[@]+"${carry[@]}"}; do [ -z "${!name+x}" ] || names+=,$name; done
  echo "$names"
}

# srun says of a task that ended by a signal, or with another exit code than 0, which one and how.
report_tasks() {
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line" >&2
    [[ $line != "srun: error: "*": task"* ]] || kill -USR2 $$
  done
}

start_nodes() {
  local inside=()
  ((${#carry[@]} == 0)) || inside=(--container-env="$(container_env)")
  # Under set -u bash before 4.4 takes an empty array for an unset variable.
  "${srun[@]}" ${inside[@]+"${inside[@]}"} --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 \
    --output="$step_logs/node%n.log" --open-mode=append env LAUNCH_CHILD=1 bash "$run/node.sh" \
    </dev/null 2> >(report_tasks) &
  step=$!
}
nodes_run() { kill -0 "$step" 2>/dev/null; }
# Signal the step of now by its number: Slurm repeats signals to a node that does not answer, and a requeued job has the
# same number of its own. Not by a signal to srun, which would kill the tasks at once.
signal_step() {
  local name
  for name in $(squeue -h -s -j "$SLURM_JOB_ID" -o %i 2>/dev/null | grep -E '\.[0-9]+$'); do
    scancel --signal="$1" "$SLURM_JOB_ID.${name##*.}" 2>/dev/null
  done
}
# Slurm signals every process of a step, also ranks and the workers of their data loaders: URG, which they ignore, asks
# node.sh alone, which then lets ranks save.
stop_nodes() { if [ -n "$save_seconds" ]; then signal_step URG; else signal_step TERM; fi; }
kill_nodes() { signal_step KILL; kill -KILL "$step" 2>/dev/null; }
# Slurm itself requeues a job when it notices that a node is gone; ranks on the others notice earlier.
again_elsewhere() {
  [ -n "$requeue" ] && ((${SLURM_RESTART_COUNT:-0} < 5)) && scontrol requeue "$SLURM_JOB_ID"
}
end_nodes() { wait "$step" 2>/dev/null; }
