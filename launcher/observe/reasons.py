"""Table of the reasons for which a run stops: what shows each of them, what it means, and what to change."""

import re
from functools import cache

from launcher.observe.reason import GRADES, Grade, Kind, Reason, Sign
from launcher.observe.reasons_kubernetes import KUBERNETES


def _reason(
    name: str,
    meaning: str,
    *signs: Sign,
    change: tuple[str, ...] = (),
    grade: Grade = Grade.CAUSE,
    of_device: bool = False,
) -> Reason:
    return Reason(name=name, meaning=meaning, fields=change, grade=grade, of_device=of_device, signs=signs)


def _sign(kind: Kind, source: str, *patterns: str) -> Sign:
    return Sign(kind=kind, source=source, pattern=re.compile("|".join(patterns)))


TYPE, ERROR, LINE, NODE, ANY, QUEUE, SIGNAL, CODE = Kind
_CANN = "CANN error codes (Ascend documentation, Error Codes)"
_LESS_MEMORY = (
    "batch.micro_batch_size (smaller)",
    "recompute.granularity=full",
    "parallel.tp or parallel.pp (larger)",
    "offload.optimizer=true",
)
_MAIN_MEMORY = ("data.num_workers (fewer)", "offload.optimizer=false", "cluster.memory (more)")

# Of reasons of one grade, the first that a text shows names it.
# fmt: off
REASONS = (
    _reason(
        "device-out-of-memory",
        "a device ran out of memory",
        _sign(LINE, "torch, torch_npu allocators", r"(CUDA|NPU|HIP|XPU) out of memory",
            r"torch(\.cuda)?\.OutOfMemoryError", r"CUDA error: out of memory"),
        _sign(LINE, _CANN, r"EL0004\b", r"Memory_Allocation_Failure"),
        _sign(LINE, "mindspore mem_dynamic_allocator", r"is more than total mem size",
            r"Allocate (\w+ )?memory failed", r"Out of memory!? .*[Dd]evice\b"),
        change=_LESS_MEMORY,
    ),
    _reason(
        "host-out-of-memory",
        "a process was killed because main memory ran out, or was refused memory",
        _sign(NODE, "Linux mm/oom_kill.c; Slurm slurmstepd, srun", r"[Dd]etected \d+ oom[-_]kill event",
            r"oom-kill:constraint", r"[Oo]ut of memory: Kill(ed)? process", r"task \d+: Out Of Memory"),
        _sign(LINE, "torch c10 CPUAllocator", r"DefaultCPUAllocator: (can't|not enough memory)"),
        _sign(LINE, "Ray memory monitor", r"was killed due to the node running low on memory"),
        _sign(TYPE, "Python; numpy", r"^_?(Array)?MemoryError$"),
        _sign(LINE, "errno ENOMEM; C++", r"Cannot allocate memory", r"std::bad_alloc"),
        _sign(QUEUE, "Slurm job states; Kubernetes ContainerStateTerminated; cgroup memory.events", r"OUT_OF_MEMORY",
            r"OOMKilled", r"oom_kill"),
        change=_MAIN_MEMORY,
    ),
    _reason(
        "shared-memory",
        "/dev/shm is too small for the data loaders",
        _sign(LINE, "torch DataLoader", r"DataLoader worker .* killed by signal: Bus error",
            r"insufficient shared memory", r"unable to (write|allocate|mmap|open|resize).*shared memory",
            r"No space left on device.*/dev/shm"),
        change=("data.num_workers (fewer)", "cluster.shm_size (larger)"),
    ),
    _reason(
        "disk-quota",
        "the quota of a disk is used up, in bytes or in files",
        _sign(LINE, "errno EDQUOT", r"Disk quota exceeded", r"\[Errno 122\]"),
        change=("checkpoint.save", "checkpoint.save_total_limit", "data.cache_path"),
    ),
    _reason(
        "disk-full",
        "a disk is full",
        _sign(LINE, "errno ENOSPC", r"No space left on device", r"\[Errno 28\]",
            r"SafetensorError.*IoError.*StorageFull"),
        change=("checkpoint.save", "checkpoint.save_total_limit"),
    ),
    _reason(
        "write-failed",
        "a file could not be written: mostly a full disk, a quota, or a folder that is missing",
        _sign(ERROR, "torch serialization, inline_container.cc", r"PytorchStreamWriter failed",
            r"write\(\): fd \d+ failed with", r"^RuntimeError: File \S+ cannot be opened",
            r"unexpected pos \d+ vs \d+", r"Parent directory \S+ does not exist"),
        _sign(LINE, "errno EIO, EROFS, ESTALE", r"\[Errno (5|30|116)\]", r"Read-only file system",
            r"Stale file handle", r": Input/output error"),
        change=("checkpoint.save", "checkpoint.save_total_limit"),
    ),
    _reason(
        "open-files",
        "a limit of the system is reached: open files, processes or threads",
        _sign(LINE, "errno EMFILE; torch multiprocessing", r"Too many open files", r"\[Errno 24\]",
            r"received 0 items of ancdata"),
        _sign(LINE, "errno EAGAIN", r"can't start new thread", r"pthread_create failed",
            r"\[Errno 11\] Resource temporarily unavailable", r"fork: Resource temporarily"),
        change=("data.num_workers (fewer)", "ulimit -n and -u (larger), in cluster.setup"),
    ),
    _reason(
        "port-taken",
        "the port of the rendezvous is in use",
        _sign(LINE, "torch TCPStore; errno EADDRINUSE", r"EADDRINUSE",
            r"server socket has failed to listen on any local network address", r"[Aa]ddress already in use"),
        _sign(QUEUE, "launch", r"^port \d+ is taken"),
        change=("cluster.master_port (none: a free one is chosen)",),
    ),
    _reason(
        "no-rendezvous",
        "not all nodes found each other",
        _sign(LINE, "torch TCPStore, elastic rendezvous", r"waiting for clients\. \d+/\d+ clients joined",
            r"client socket has (timed out|failed to connect)", r"DistStoreError: Socket Timeout",
            r"Timed out .*store[ -]based barrier", r"RendezvousTimeoutError", r"RendezvousConnectionError",
            r"The IPv[46] network addresses of .* cannot be retrieved"),
        _sign(LINE, "mindspore msrun", r"Cluster is not (initialized|ready)",
            r"Failed to (connect to|register).*[Ss]cheduler", r"Topology build timed out"),
        _sign(QUEUE, "launch", r"^the master cannot be asked"),
        change=("cluster.master_addr", "cluster.nodes"),
    ),
    _reason(
        "network",
        "the network between nodes does not work",
        _sign(ANY, "NCCL net_ib, socket",
            r"NCCL WARN .*(Got completion .* with (error|status)(?![ =]*5\b)|Call to connect .*failed|ibv_\w+ failed)"),
        _sign(LINE, "NCCL socket, net_ib", r"socketPollConnect: .*(refused|timed out|unreachable)",
            r"No route to host", r"ibv_\w+ failed", r"ncclSystemError"),
        _sign(LINE, "NCCL bootstrap; gloo", r"Bootstrap : no socket interface found", r"Unable to find address for"),
        change=("backend.env.NCCL_SOCKET_IFNAME", "backend.env.GLOO_SOCKET_IFNAME", "backend.env.HCCL_SOCKET_IFNAME"),
    ),
    _reason(
        "device-fault",
        "a device or its link failed: hardware",
        _sign(LINE, "CUDA runtime", r"uncorrectable (NVLink|ECC)", r"CUDA error: (hardware|uncorrectable)",
            r"an uncorrectable", r"Detected Critical Xid"),
        _sign(NODE, "NVIDIA driver (XID errors)",
            r"NVRM: Xid \([^)]*\): (48|54|6[124]|74|79|9[457]|11[09]|120|140|143|14[4-9]|150),(?!.*\bNonfatal\b)",
            r"caused by previous Xid (48|64|74|79|9[45]|119|120|14[0-9]|150)\b"),
        _sign(NODE, "NVIDIA driver; PCIe AER", r"[Ff]allen off the bus", r"GPU is lost",
            r"Uncorrected \(Fatal\) error"),
        _sign(LINE, _CANN, r"E[A-Z]\d{4}.*(HBM|hbm).*(ECC|ecc)", r"multi[- ]bit ECC", r"device_status is abnormal",
            r"error code is 50705[3456]"),
        of_device=True,
        change=("cluster.exclude (the node)",),
    ),
    _reason(
        "device-assert",
        "an index on the device is out of range: mostly a token number beyond the vocabulary, or a position beyond "
        "the sequence",
        _sign(LINE, "torch ATen Indexing", r"device-side assert", r"[Dd]evice-side assertion",
            r"Indexing\.(cu|hip):\d+:.*[Aa]ssertion"),
        change=("model.vocab_size", "tokenizer.path", "batch.seq_length"),
    ),
    _reason(
        "device-kernel",
        "a kernel failed on a device: a fault in it, in its arguments, or of the device",
        _sign(LINE, "CUDA runtime", r"an illegal memory access", r"unspecified launch failure", r"misaligned address",
            r"illegal instruction was encountered", r"CUBLAS_STATUS_EXECUTION_FAILED",
            r"CUDNN_STATUS_EXECUTION_FAILED"),
        _sign(NODE, "NVIDIA driver (XID errors)", r"NVRM: Xid \([^)]*\): (13|31|43|69),"),
        _sign(LINE, _CANN, r"EZ9999", r"ai(core|cpu|vector|vec) exception", r"AICORE_EXCEPTION",
            r"vector core (execution )?(is abnormal|exception)", r"error code is 5070(15|35|49)"),
        of_device=True,
        change=("kernels.attention_backend", "cluster.exclude (the node, if it is always the same)"),
    ),
    _reason(
        "device-busy",
        "another process holds a device, or one of an earlier run has not ended yet",
        _sign(LINE, "CUDA runtime; " + _CANN, r"CUDA-capable device\(s\) is/are busy",
            r"Maybe the last training process is running", r"EJ0001\b"),
        change=("launch clean RUN", "cluster.exclude (the node)"),
    ),
    _reason(
        "device-unsupported",
        "the software is built for other devices than this one",
        _sign(LINE, "CUDA runtime; torch", r"no kernel image is available",
            r"is not compatible with the current PyTorch installation\.?$", r"FlashAttention only supports"),
        change=("cluster.python", "cluster.container", "kernels.attention_backend"),
    ),
    _reason(
        "driver",
        "the device's driver is missing, too old or failed",
        _sign(LINE, "torch; CUDA runtime", r"NVIDIA driver on your system is too old", r"Found no NVIDIA driver",
            r"No CUDA GPUs are available", r"CUDA driver version is insufficient",
            r"forward compatibility was attempted", r"Driver/library version mismatch",
            r"system not yet initialized"),
        _sign(LINE, _CANN, r"internal error occurs in the Driver module", r"error code is 507899", r"EL9999",
            r"No NPU is available", r"libascend_hal\.so"),
        change=("the driver of the node", "cluster.container", "cluster.exclude (the node)"),
    ),
    _reason(
        "not-a-number",
        "the loss is not a number, or no token was left that counts in it",
        _sign(LINE, "Megatron-LM rerun_state_machine; this rehearsal", r"the loss is not a number",
            r"[Uu]nexpected result nan", r"found (NaN|Inf) in", r"loss scale already at minimum",
            r"^(\S+: )?\w*Error.*\b(loss|grad\w*)( norm)? (is|was|=|contains)( a)? ?(nan|NaN|inf)\b",
            r"FloatingPointError: (Minimum loss scale|.*\bnan)"),
        change=("tokenizer.type or data.eod_mask_loss (padding that is the end of a document masks the loss)",
            "optimizer.lr (smaller)", "precision.dtype=bf16", "optimizer.clip_grad"),
    ),
    _reason(
        "checkpoint-mismatch",
        "a checkpoint does not fit the model",
        _sign(LINE, "torch; megatron-core dist_checkpointing", r"size mismatch for ",
            r"Error\(s\) in loading state_dict", r"Missing key\(s\) in state_dict",
            r"Unexpected key\(s\) in state_dict", r"[Gg]lobal shape mismatch",
            r"are not compatible with the loaded", r"checkpoint .* does not match the model"),
        change=("model.path", "checkpoint.load", "parallel.tp or parallel.pp (as it was saved)"),
    ),
    _reason(
        "checkpoint-broken",
        "a checkpoint or a data file is incomplete or damaged",
        _sign(ERROR, "torch serialization; safetensors; pickle", r"PytorchStreamReader failed",
            r"invalid header or archive", r"HeaderTooLarge", r"InvalidHeaderDeserialization",
            r"MetadataIncompleteBuffer", r"UnpicklingError", r"not a valid (checkpoint|zip)"),
        change=("checkpoint.load", "model.path"),
    ),
    _reason(
        "hub-unreachable",
        "a model, tokenizer or data set is not on this machine, and its hub cannot be reached",
        _sign(TYPE, "huggingface_hub", r"^LocalEntryNotFoundError$", r"^OfflineModeIsEnabled$", r"^GatedRepoError$",
            r"^(Repository|Revision|Entry)NotFoundError$"),
        _sign(LINE, "huggingface_hub; modelscope; transformers", r"couldn't connect to 'https?://",
            r"host='(huggingface|hf-mirror|www\.modelscope|modelscope)\S*'.*Max retries",
            r"Cannot reach https?://(huggingface|www\.modelscope)",
            r"(401|403|404|429) Client Error.*(huggingface|modelscope)"),
        change=("model.path (a local folder)", "tokenizer.path", "backend.env.HF_TOKEN"),
    ),
    _reason(
        "missing-file",
        "a file or folder is missing",
        _sign(TYPE, "Python", r"^FileNotFound\w*$", r"^NotADirectoryError$"),
        _sign(ERROR, "errno ENOENT; transformers", r"No such file or directory",
            r"does not appear to have a file named", r"is not the path to a directory"),
        _sign(LINE, "launch; Python", r"^launch: .* is not there: every node",
            r"^launch: .*: there is no complete checkpoint in ",
            r"^\S*python\S*: can't open file"),
        change=("data.paths", "model.path", "tokenizer.path", "checkpoint.load"),
    ),
    _reason(
        "permission",
        "no permission to read or write a file",
        _sign(TYPE, "Python", r"^PermissionError$"),
        _sign(ERROR, "errno EACCES, EPERM", r"Permission denied", r"Operation not permitted"),
        change=("checkpoint.save", "data.cache_path"),
    ),
    _reason(
        "missing-module",
        "a Python package is missing or incompatible",
        _sign(TYPE, "Python; setuptools", r"^(ModuleNotFoundError|ImportError|PackageNotFoundError)$",
            r"^(VersionConflict|DistributionNotFound)$"),
        _sign(ERROR, "ld.so", r"undefined symbol", r"cannot open shared object file"),
        _sign(LINE, "Python; ld.so", r"^\S*python\S*: No module named ", r"error while loading shared libraries",
            r"GLIBC\w*_\S+. not found"),
        change=("cluster.python", "backend.version"),
    ),
    _reason(
        "missing-program",
        "a program is not on the PATH of the node, or cannot be executed",
        _sign(CODE, "POSIX shell", r"^12[67]$"),
        change=("cluster.python", "cluster.setup", "cluster.container"),
    ),
    _reason(
        "unknown-argument",
        "the backend does not accept an argument",
        _sign(LINE, "argparse", r"\.py: error: ",
            r": error: (unrecognized arguments|argument |the following arguments are required|ambiguous option)"),
        _sign(ERROR, "transformers HfArgumentParser", r"got an unexpected keyword argument", r"remaining_argv",
            r"Some specified arguments are not used"),
        change=("backend.version", "backend.args"),
    ),
    _reason(
        "time-limit",
        "the time limit of the queue ended it",
        _sign(NODE, "Slurm slurmstepd", r"CANCELLED AT \S+ DUE TO TIME LIMIT"),
        _sign(QUEUE, "Slurm job states; Kubernetes JobFailureReason", r"\bTIMEOUT\b", r"\bDEADLINE\b",
            r"DeadlineExceeded", r"TimeLimit"),
        change=("cluster.time_limit (longer)", "checkpoint.save_interval (shorter)"),
    ),
    _reason(
        "preempted",
        "the queue took its machines for another job",
        _sign(NODE, "Slurm slurmstepd", r"CANCELLED AT \S+ DUE TO PREEMPTION"),
        _sign(QUEUE, "Slurm job states; Kubernetes scheduler; Kueue", r"\bPREEMPTED\b", r"Preempt(ed|ing|ionBy)"),
        change=("cluster.qos or cluster.priority_class", "fault_tolerance.max_restarts"),
    ),
    _reason(
        "node-failed",
        "a machine of the job failed",
        _sign(NODE, "Slurm slurmstepd, srun", r"DUE TO NODE FAILURE", r"srun: error: Node failure on", r"NODE_FAIL"),
        _sign(QUEUE, "Slurm job states; Kubernetes", r"\bNODE_FAIL\b", r"\bBOOT_FAIL\b", r"\bNodeLost\b",
            r"NodeShutdown", r"^NodeFailure", r"DeletionByPodGC"),
        change=("cluster.exclude (the node)", "fault_tolerance.max_restarts"),
    ),
    _reason(
        "evicted",
        "the cluster evicted a pod",
        _sign(QUEUE, "Kubernetes kubelet", r"\bEvicted\b", r"EvictionByEvictionAPI", r"TerminationByKubelet",
            r"The node was low on resource"),
        change=("cluster.memory or cluster.resources (requests)",),
    ),
    *KUBERNETES,
    _reason(
        "queue-launch",
        "the queue could not start the job's processes",
        _sign(NODE, "Slurm srun, slurmstepd", r"srun: error: .*\blaunch\b.* failed", r"slurmstepd: error: execve\(\)",
            r"Unable to create step", r"srun: error: .*Invalid (job )?credential", r"Prolog hung"),
        _sign(NODE, "Pyxis", r"pyxis: container start failed", r"pyxis: couldn't start container",
            r"spank_pyxis\.so: (task_init|user_init|init_post_opt)\(\) failed", r"pyxis: failed to import"),
        _sign(QUEUE, "Slurm job states; Kubernetes", r"\bLAUNCH_FAILED\b", r"JobLaunchFailure",
            r"CreateContainer\w*Error", r"RunContainerError", r"ContainerCannotRun", r"StartError",
            r"FailedCreatePodSandBox"),
        change=("cluster.container", "cluster.exclude (the node)"),
    ),
    _reason(
        "cancelled",
        "the job was cancelled in the queue",
        _sign(QUEUE, "Slurm job states", r"\bCANCELLED\b"),
        grade=Grade.ENDED,
    ),
    _reason(
        "hang",
        "no new iteration was logged for fault_tolerance.hang_minutes",
        _sign(QUEUE, "launch", r"^hung(: |$)"),
        _sign(LINE, "launch", r"^launch: no \w+ iteration for \d+ s: the ranks are ended"),
        change=("fault_tolerance.hang_minutes", "data.num_workers"),
    ),
    # -- ended by a signal
    _reason(
        "killed",
        "it was killed (SIGKILL) from outside: by the out-of-memory killer, the queue or a user; nothing says by "
        "whom",
        _sign(SIGNAL, "signal(7)", r"^SIGKILL$"),
        _sign(LINE, "torch DataLoader", r"DataLoader worker .* killed by signal: Killed"),
        change=("cluster.memory (more), if main memory ran out",),
        grade=Grade.KILLED,
    ),
    _reason(
        "node-lost",
        "the connection to a node broke, or was never made",
        _sign(QUEUE, "launch, ssh exit code 255", r"^lost$"),
        _sign(NODE, "launch", r"^(\S+: )?launch: the connection is lost, or was never made"),
        change=("cluster.hosts", "cluster.exclude (the node)"),
        grade=Grade.KILLED,
    ),
    _reason(
        "segmentation-fault",
        "a segmentation fault (SIGSEGV) in compiled code: mostly packages that do not fit together",
        _sign(SIGNAL, "signal(7)", r"^SIGSEGV$"),
        change=("cluster.python", "cluster.container", "PYTHONFAULTHANDLER=1 (the next log has the line)"),
        grade=Grade.CRASH,
    ),
    _reason(
        "bus-error",
        "a bus error (SIGBUS): mostly /dev/shm or a disk with a mapped file is full",
        _sign(SIGNAL, "signal(7)", r"^SIGBUS$"),
        change=("data.num_workers (fewer)", "cluster.shm_size (larger)"),
        grade=Grade.CRASH,
    ),
    _reason(
        "illegal-instruction",
        "an instruction that this CPU does not have (SIGILL): packages built for another CPU",
        _sign(SIGNAL, "signal(7)", r"^SIGILL$"),
        change=("cluster.python", "cluster.container"),
        grade=Grade.CRASH,
    ),
    _reason(
        "arithmetic-fault",
        "an arithmetic fault (SIGFPE) in compiled code: mostly a division by zero",
        _sign(SIGNAL, "signal(7)", r"^SIGFPE$"),
        grade=Grade.CRASH,
    ),
    # -- of an exception, its type and text are the reason
    _reason(
        "refused",
        "the rehearsal refuses the job",
        _sign(TYPE, "this rehearsal", r"^(Rehearsal|Stage|Usage)Error$", r"Refused$"),
        grade=Grade.GENERAL,
    ),
    _reason(
        "assertion",
        "the backend refuses a combination of values",
        _sign(TYPE, "Python assert", r"^AssertionError$"),
        grade=Grade.GENERAL,
    ),
    # -- what the end of another rank causes
    _reason(
        "collective-timeout",
        "a collective waited too long for a rank that is slow, hangs or has ended",
        _sign(LINE, "torch ProcessGroupNCCL, ProcessGroupGloo", r"caught collective operation timeout",
            r"ran for \d+ milliseconds before timing out", r"Timed out waiting \d+ms for",
            r"monitoredBarrier.*(timed out|timeout)"),
        _sign(LINE, _CANN, r"EI0002\b", r"[Nn]otify register times out"),
        change=("fault_tolerance.timeout_minutes", "data.num_workers"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "connect-timeout",
        "a rank did not get the connection to another one, which hangs, has ended or cannot be reached",
        _sign(LINE, _CANN + "; gloo; torch TCPStore", r"EI0006\b", r"EI0009\b", r"EI0015\b",
            r"Getting socket times out", r"connectFullMesh failed", r"wait timeout after \d+ms"),
        change=("backend.env.HCCL_CONNECT_TIMEOUT (longer)", "backend.env.HCCL_SOCKET_IFNAME"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "connection-lost",
        "another rank or node disconnected",
        _sign(TYPE, "Python", r"^(BrokenPipe|ConnectionReset|ConnectionAborted)Error$"),
        _sign(LINE, "gloo; NCCL; torch TCPStore", r"Connection (was )?(closed|reset) by (remote )?peer",
            r"[Bb]roken pipe", r"ncclRemoteError", r"remote process exited", r"Socket closed",
            r"received errors while waiting for send/recv", r"connection was likely closed", r"error code is 507057"),
        _sign(ANY, "NCCL socket", r"NCCL WARN .*Connection closed by remote peer"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "device-timeout",
        "work on a device did not end in time: mostly a collective that waits for another rank",
        _sign(LINE, _CANN, r"reason=\[?(task|stream sync) timeout", r"EE1002\b",
            r"error code is (107020|5070(14|17|34|46|48))"),
        change=("backend.env.HCCL_EXEC_TIMEOUT (longer)",),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "aborted",
        "the program aborted itself (SIGABRT)",
        _sign(SIGNAL, "signal(7)", r"^SIGABRT$"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "terminated",
        "it was asked to end (SIGTERM) from outside: by the queue, the platform or a user; nothing says by whom",
        _sign(SIGNAL, "signal(7)", r"^SIG(TERM|HUP)$"),
        _sign(ANY, "torch elastic agent", r"Received (15|1|SIGTERM|Signals\.SIGTERM) death signal",
            r"got signal: (15|1)\b", r"SignalException"),
        grade=Grade.ENDED,
    ),
    _reason(
        "interrupted",
        "it was interrupted (SIGINT, Ctrl-C; SIGQUIT)",
        _sign(SIGNAL, "signal(7)", r"^SIG(INT|QUIT)$"),
        _sign(TYPE, "Python", r"^KeyboardInterrupt$"),
        grade=Grade.ENDED,
    ),
)
# fmt: on

EXCEPTION = _reason("exception", "the program raised an exception", grade=Grade.GENERAL)
"""Of an uncaught exception that no row names."""


def order_of(reason: Reason) -> tuple[int, int]:
    """Return the key by which reasons are preferred: grade, then place in the table."""
    return GRADES.index(reason.grade), REASONS.index(reason) if reason in REASONS else len(REASONS)


@cache
def signs(*kinds: Kind) -> tuple[tuple[re.Pattern[str], Reason], ...]:
    """Return the patterns of some kinds with their reasons, those that explain most first."""
    rows = sorted(REASONS, key=order_of)
    return tuple((sign.pattern, reason) for reason in rows for sign in reason.signs if sign.kind in kinds)


_TYPE = re.compile(r"^(?:[A-Za-z_]\w*\.)*(\w+)(?::|$)")
_TEXT = (Kind.LINE, Kind.ANY, Kind.NODE)


def reason_of_error(text: str, *, first: bool = True) -> Reason | None:
    """Return the reason that a line of an exception shows; its first line, with the type, shows more."""
    if not first:
        return reason_of(text, *_TEXT)
    found = _TYPE.match(text)
    by_type = reason_of(found[1], Kind.TYPE) if found else None
    if by_type is not None and by_type.grade is Grade.CAUSE:
        return by_type
    rows = [row for row in (reason_of(text, Kind.ERROR, *_TEXT), by_type) if row is not None]
    return min(rows, key=order_of, default=None)


def reason_of(text: str, *kinds: Kind) -> Reason | None:
    """Return the reason that a text shows; None if it shows none."""
    return next((reason for pattern, reason in signs(*kinds) if pattern.search(text)), None)
