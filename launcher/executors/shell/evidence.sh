# -- what the system of this node says of processes that ended: the out-of-memory kills that their cgroup counts, and the
#    kernel's log where it may be read
oom_file() { # of this process's cgroup: version 2, else version 1; the second of each is what a container sees
  local line path file
  while IFS= read -r line; do
    path=${line#*:*:}
    case $line in
      0::*) set -- "/sys/fs/cgroup$path/memory.events" /sys/fs/cgroup/memory.events ;;
      *:memory:*) set -- "/sys/fs/cgroup/memory$path/memory.oom_control" /sys/fs/cgroup/memory/memory.oom_control ;;
      *) continue ;;
    esac
    for file; do
      if grep -q '^oom_kill ' "$file" 2>/dev/null; then echo "$file"; return; fi
    done
  done </proc/self/cgroup
}
oom_kills() { sed -n 's/^oom_kill //p' "$1" 2>/dev/null; }

evidence_begin() {
  local file now
  file=$(oom_file)
  now=$(oom_kills "$file")
  read -r uptime _ </proc/uptime
  echo "${now:-0} $uptime $file"
}

evidence_end() { # COUNT UPTIME [FILE], as evidence_begin printed them
  local now
  now=$(oom_kills "${3:-}")
  ((${now:-0} <= $1)) || echo "cgroup: oom_kill $((now - $1)) ($3)"
  timeout 5 dmesg 2>/dev/null | awk -v since="$2" -v mine="UID:$UID " '
    match($0, /^\[ *[0-9.]+\]/) && substr($0, 2, RLENGTH - 2) + 0 >= since &&
    (/NVRM: Xid|fallen off the bus/ || (/[Oo]ut of memory: Kill/ && index($0, mine)))' | tail -n 20
}
