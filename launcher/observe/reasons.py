"""Table of the reasons for which a run stops: what shows each of them, what it means, and what to change."""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache


class Kind(StrEnum):
    """Where a sign is looked for."""

    ERROR = "text of an uncaught exception, from torch elastic's error file or a traceback"
    LINE = "line that is no warning or notice, or text of an uncaught exception"
    NODE = "line of any level that the node's kernel, driver or queue writes, whichever rank's log it is in"
    ANY = "line of any level"
    QUEUE = "reason that the queue, the pod or the launcher gives for the end"
    SIGNAL = "name of the signal that ended a rank or the node's command"


class Grade(StrEnum):
    """How much a reason explains; a smaller one is preferred, in this order."""

    CAUSE = "cause"
    KILLED = "ended from outside, by whom is not known"
    GENERAL = "an exception whose text says why"
    CRASH = "ended by a signal of its own"
    CONSEQUENCE = "follows from the end of another rank"
    ENDED = "was asked to end"


GRADES = tuple(Grade)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One pattern that shows a reason, and the software that writes it."""

    kind: Kind
    pattern: re.Pattern[str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One kind of failure.

    Attributes:
        name: short, stable name.
        meaning: what happened.
        fields: what to change: canonical fields with the direction, or words.
        grade: how much it explains.
        signs: what shows it.
    """

    name: str
    meaning: str
    fields: tuple[str, ...] = ()
    grade: Grade = Grade.CAUSE
    signs: tuple[Sign, ...] = ()

    @property
    def consequence(self) -> bool:
        """Whether it is the reason only if there is no other."""
        return self.grade in (Grade.CONSEQUENCE, Grade.ENDED)


def _reason(
    name: str, meaning: str, *signs: Sign, change: tuple[str, ...] = (), grade: Grade = Grade.CAUSE
) -> Reason:
    return Reason(name=name, meaning=meaning, fields=change, grade=grade, signs=signs)


def _sign(kind: Kind, pattern: str, source: str) -> Sign:
    return Sign(kind=kind, pattern=re.compile(pattern), source=source)


ERROR, LINE, NODE, ANY, QUEUE, SIGNAL = Kind
_CANN = "CANN error codes (Ascend documentation, Error Codes)"
_LESS_MEMORY = (
    "batch.micro_batch_size (smaller)",
    "recompute.granularity=full",
    "parallel.tp or parallel.pp (larger)",
    "offload.optimizer=true",
)
_MAIN_MEMORY = ("data.num_workers (fewer)", "offload.optimizer=false", "cluster.memory (more)")

# Of reasons of one grade, the first that a text shows names it.
REASONS = (
    _reason(
        "device-out-of-memory",
        "a device ran out of memory",
        _sign(LINE, r"(CUDA|NPU|HIP|XPU) out of memory|\bOutOfMemoryError\b|CUDA error: out of memory", "torch, torch_npu allocators"),
        _sign(LINE, r"EL0004\b|Memory_Allocation_Failure", _CANN),
        _sign(LINE, r"is more than total mem size|Allocate (\w+ )?memory failed|Out of memory!? .*[Dd]evice\b", "mindspore mem_dynamic_allocator"),
        change=_LESS_MEMORY,
    ),
    _reason(
        "host-out-of-memory",
        "a process was killed because main memory ran out, or was refused memory",
        _sign(NODE, r"[Dd]etected \d+ oom[-_]kill event|oom-kill:constraint|[Oo]ut of memory: Kill(ed)? process|task \d+: Out Of Memory", "Linux mm/oom_kill.c; Slurm slurmstepd, srun"),
        _sign(LINE, r"DefaultCPUAllocator: (can't|not enough memory)", "torch c10 CPUAllocator"),
        _sign(LINE, r"^(\S+: )?(numpy\.\S+)?_?(Array)?MemoryError\b|Cannot allocate memory|std::bad_alloc", "Python; errno ENOMEM; C++"),
        _sign(QUEUE, r"OUT_OF_MEMORY|OOMKilled|oom_kill", "Slurm job states; Kubernetes ContainerStateTerminated; cgroup memory.events"),
        change=_MAIN_MEMORY,
    ),
    _reason(
        "shared-memory",
        "/dev/shm is too small for the data loaders",
        _sign(LINE, r"DataLoader worker .* killed by signal: Bus error|insufficient shared memory|unable to (write|allocate|mmap|open|resize).*shared memory|No space left on device.*/dev/shm", "torch DataLoader"),
        change=("data.num_workers (fewer)", "cluster.shm_size (larger)"),
    ),
    _reason(
        "disk-quota",
        "the quota of a disk is used up, in bytes or in files",
        _sign(LINE, r"Disk quota exceeded|\[Errno 122\]", "errno EDQUOT"),
        change=("checkpoint.save", "checkpoint.save_total_limit", "data.cache_path"),
    ),
    _reason(
        "disk-full",
        "a disk is full",
        _sign(LINE, r"No space left on device|\[Errno 28\]|SafetensorError.*IoError.*StorageFull", "errno ENOSPC"),
        change=("checkpoint.save", "checkpoint.save_total_limit"),
    ),
    _reason(
        "write-failed",
        "a file could not be written: mostly a full disk, a quota, or a folder that is missing",
        _sign(ERROR, r"PytorchStreamWriter failed|write\(\): fd \d+ failed with|^RuntimeError: File \S+ cannot be opened|unexpected pos \d+ vs \d+|Parent directory \S+ does not exist", "torch serialization, inline_container.cc"),
        _sign(LINE, r"\[Errno (5|30|116)\]|Read-only file system|Stale file handle|: Input/output error", "errno EIO, EROFS, ESTALE"),
        change=("checkpoint.save", "checkpoint.save_total_limit"),
    ),
    _reason(
        "open-files",
        "a limit of the system is reached: open files, processes or threads",
        _sign(LINE, r"Too many open files|\[Errno 24\]|received 0 items of ancdata", "errno EMFILE; torch multiprocessing"),
        _sign(LINE, r"can't start new thread|pthread_create failed|\[Errno 11\] Resource temporarily unavailable|fork: Resource temporarily", "errno EAGAIN"),
        change=("data.num_workers (fewer)", "ulimit -n or -u (larger), in cluster.setup"),
    ),
    _reason(
        "port-taken",
        "the port of the rendezvous is in use",
        _sign(LINE, r"EADDRINUSE|server socket has failed to listen on any local network address|[Aa]ddress already in use", "torch TCPStore; errno EADDRINUSE"),
        _sign(QUEUE, r"^port \d+ is taken", "launch"),
        change=("cluster.master_port (none: a free one is chosen)",),
    ),
    _reason(
        "no-rendezvous",
        "not all nodes found each other",
        _sign(LINE, r"waiting for clients\. \d+/\d+ clients joined|client socket has (timed out|failed to connect)|DistStoreError: Socket Timeout|store[ -]based barrier|RendezvousTimeoutError|RendezvousConnectionError|The IPv[46] network addresses of .* cannot be retrieved", "torch TCPStore, elastic rendezvous"),
        _sign(LINE, r"Cluster is not (initialized|ready)|Failed to (connect to|register).*[Ss]cheduler|Topology build timed out", "mindspore msrun"),
        _sign(QUEUE, r"^the master cannot be asked", "launch"),
        change=("cluster.master_addr", "cluster.nodes"),
    ),
    _reason(
        "network",
        "the network between nodes does not work",
        _sign(ANY, r"NCCL WARN .*(Got completion .* with (error|status)(?![ =]*5\b)|Call to connect .*failed|ibv_\w+ failed)", "NCCL net_ib, socket"),
        _sign(LINE, r"socketPollConnect: .*(refused|timed out|unreachable)|No route to host|ibv_\w+ failed|ncclSystemError", "NCCL socket, net_ib"),
        _sign(LINE, r"Bootstrap : no socket interface found|Unable to find address for", "NCCL bootstrap; gloo"),
        change=("backend.env.NCCL_SOCKET_IFNAME", "backend.env.GLOO_SOCKET_IFNAME", "backend.env.HCCL_SOCKET_IFNAME"),
    ),
    _reason(
        "device-fault",
        "a device or its link failed: hardware",
        _sign(LINE, r"uncorrectable (NVLink|ECC)|CUDA error: (hardware|uncorrectable)|an uncorrectable|Detected Critical Xid", "CUDA runtime"),
        _sign(NODE, r"NVRM: Xid \([^)]*\): (48|54|6[1-4]|74|79|9[2457]|11[09]|120|140|143),", "NVIDIA driver (XID errors)"),
        _sign(NODE, r"[Ff]allen off the bus|GPU is lost|Uncorrected \(Fatal\) error", "NVIDIA driver; PCIe AER"),
        _sign(LINE, r"E[A-Z]\d{4}.*(HBM|hbm).*(ECC|ecc)|multi[- ]bit ECC|device_status is abnormal|error code is 50705[3456]", _CANN),
        change=("cluster.exclude (the node)",),
    ),
    _reason(
        "device-assert",
        "an index on the device is out of range: mostly a token number beyond the vocabulary, or a position beyond the sequence",
        _sign(LINE, r"device-side assert|[Dd]evice-side assertion|Indexing\.(cu|hip):\d+:.*[Aa]ssertion", "torch ATen Indexing"),
        change=("model.vocab_size", "tokenizer.path", "batch.seq_length"),
    ),
    _reason(
        "device-kernel",
        "a kernel failed on a device: a fault in it, in its arguments, or of the device",
        _sign(LINE, r"an illegal memory access|unspecified launch failure|misaligned address|illegal instruction was encountered|CUBLAS_STATUS_EXECUTION_FAILED|CUDNN_STATUS_EXECUTION_FAILED", "CUDA runtime"),
        _sign(NODE, r"NVRM: Xid \([^)]*\): (13|31|43|69),", "NVIDIA driver (XID errors)"),
        _sign(LINE, r"EZ9999|ai(core|cpu|vector|vec) exception|AICORE_EXCEPTION|vector core (execution )?(is abnormal|exception)|error code is 5070(15|35|49)", _CANN),
        change=("kernels.attention_backend", "cluster.exclude (the node, if it is always the same)"),
    ),
    _reason(
        "device-busy",
        "another process holds a device, or one of an earlier run has not ended yet",
        _sign(LINE, r"CUDA-capable device\(s\) is/are busy|Maybe the last training process is running|EJ0001\b", "CUDA runtime; " + _CANN),
        change=("launch clean RUN", "cluster.exclude (the node)"),
    ),
    _reason(
        "device-unsupported",
        "the software is built for other devices than this one",
        _sign(LINE, r"no kernel image is available|is not compatible with the current PyTorch installation\.?$|FlashAttention only supports", "CUDA runtime; torch"),
        change=("cluster.python", "cluster.container", "kernels.attention_backend"),
    ),
    _reason(
        "driver",
        "the device's driver is missing, too old or failed",
        _sign(LINE, r"NVIDIA driver on your system is too old|Found no NVIDIA driver|No CUDA GPUs are available|CUDA driver version is insufficient|forward compatibility was attempted|Driver/library version mismatch|system not yet initialized", "torch; CUDA runtime"),
        _sign(LINE, r"internal error occurs in the Driver module|error code is 507899|EL9999|No NPU is available|libascend_hal\.so", _CANN),
        change=("the driver of the node", "cluster.container", "cluster.exclude (the node)"),
    ),
    _reason(
        "not-a-number",
        "the loss is not a number, or no token was left that counts in it",
        _sign(LINE, r"the loss is not a number|[Uu]nexpected result nan|found (NaN|Inf) in|overflow.*loss scale|^(\S+: )?\w*Error.*\b(loss|grad\w*)( norm)? (is|was|=|contains)( a)? ?(nan|NaN|inf)\b|FloatingPointError: (Minimum loss scale|.*\bnan)", "Megatron-LM rerun_state_machine; this rehearsal"),
        change=(
            "tokenizer.type or data.eod_mask_loss (padding that is the end of a document masks the loss)",
            "optimizer.lr (smaller)",
            "precision.dtype=bf16",
            "optimizer.clip_grad",
        ),
    ),
    _reason(
        "checkpoint-mismatch",
        "a checkpoint does not fit the model",
        _sign(LINE, r"size mismatch for |Error\(s\) in loading state_dict|Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict|[Gg]lobal shape mismatch|CheckpointingException|are not compatible with the loaded|checkpoint .* does not match the model", "torch; megatron-core dist_checkpointing"),
        change=("model.path", "checkpoint.load", "parallel.tp or parallel.pp (as it was saved)"),
    ),
    _reason(
        "checkpoint-broken",
        "a checkpoint or a data file is incomplete or damaged",
        _sign(ERROR, r"PytorchStreamReader failed|invalid header or archive|HeaderTooLarge|InvalidHeaderDeserialization|MetadataIncompleteBuffer|UnpicklingError|not a valid (checkpoint|zip)", "torch serialization; safetensors; pickle"),
        change=("checkpoint.load", "model.path"),
    ),
    _reason(
        "hub-unreachable",
        "a model, tokenizer or data set is not on this machine, and its hub cannot be reached",
        _sign(LINE, r"couldn't connect to 'https?://|host='(huggingface|hf-mirror|www\.modelscope|modelscope)\S*'.*Max retries|LocalEntryNotFoundError|OfflineModeIsEnabled|(Repository|Gated|Revision)\w*NotFoundError|GatedRepoError|Cannot reach https?://(huggingface|www\.modelscope)|(401|403|404|429) Client Error.*(huggingface|modelscope)", "huggingface_hub; modelscope; transformers"),
        change=("model.path (a local folder)", "tokenizer.path", "backend.env.HF_TOKEN"),
    ),
    _reason(
        "missing-file",
        "a file or folder is missing",
        _sign(ERROR, r"\b(FileNotFoundError|NotADirectoryError|FileNotFound\w*)\b|No such file or directory|does not appear to have a file named|is not the path to a directory", "Python; errno ENOENT; transformers"),
        _sign(LINE, r"^launch: .* is not there: every node|^(\S+: )?(can't open file|python\d?: can't open)", "launch; Python"),
        change=("data.paths", "model.path", "tokenizer.path", "checkpoint.load"),
    ),
    _reason(
        "permission",
        "no permission to read or write a file",
        _sign(ERROR, r"\bPermissionError\b|Permission denied|Operation not permitted", "Python; errno EACCES, EPERM"),
        change=("checkpoint.save", "data.cache_path"),
    ),
    _reason(
        "missing-module",
        "a Python package is missing or incompatible",
        _sign(ERROR, r"\b(ModuleNotFoundError|ImportError|PackageNotFoundError|VersionConflict)\b|undefined symbol|cannot open shared object file", "Python"),
        _sign(LINE, r"^(\S+: )?No module named |error while loading shared libraries|GLIBC\w*_\S+. not found", "Python; ld.so"),
        change=("cluster.python", "backend.version"),
    ),
    _reason(
        "missing-program",
        "a program is not on the PATH of the node",
        _sign(LINE, r"(command|exec: \S+): not found$|: command not found$|^(\S+: )?exec: .*: cannot execute", "bash"),
        change=("cluster.python", "cluster.setup", "cluster.container"),
    ),
    _reason(
        "unknown-argument",
        "the backend does not accept an argument",
        _sign(LINE, r"\.py: error: |: error: (unrecognized arguments|argument |the following arguments are required|ambiguous option)", "argparse"),
        _sign(ERROR, r"got an unexpected keyword argument|remaining_argv|Some specified arguments are not used", "transformers HfArgumentParser"),
        change=("backend.version", "backend.args"),
    ),
    _reason(
        "time-limit",
        "the time limit of the queue ended it",
        _sign(NODE, r"CANCELLED AT \S+ DUE TO TIME LIMIT", "Slurm slurmstepd"),
        _sign(QUEUE, r"\bTIMEOUT\b|\bDEADLINE\b|DeadlineExceeded|TimeLimit", "Slurm job states; Kubernetes JobFailureReason"),
        change=("cluster.time_limit (longer)", "checkpoint.save_interval (shorter)"),
    ),
    _reason(
        "preempted",
        "the queue took its machines for another job",
        _sign(NODE, r"CANCELLED AT \S+ DUE TO PREEMPTION", "Slurm slurmstepd"),
        _sign(QUEUE, r"\bPREEMPTED\b|Preempt(ed|ion|ing)", "Slurm job states; Kubernetes scheduler; Kueue"),
        change=("cluster.qos or cluster.priority_class", "fault_tolerance.max_restarts"),
    ),
    _reason(
        "node-failed",
        "a machine of the job failed",
        _sign(NODE, r"DUE TO NODE FAILURE|srun: error: Node failure on|NODE_FAIL", "Slurm slurmstepd, srun"),
        _sign(QUEUE, r"\bNODE_FAIL\b|\bBOOT_FAIL\b|\bNodeLost\b|NodeShutdown|^NodeFailure", "Slurm job states; Kubernetes"),
        change=("cluster.exclude (the node)", "fault_tolerance.max_restarts"),
    ),
    _reason(
        "evicted",
        "the cluster evicted a pod",
        _sign(QUEUE, r"\bEvicted\b|TerminationByKubelet|DeletionByTaintManager|The node was low on resource", "Kubernetes kubelet"),
        change=("cluster.memory or cluster.resources (requests)",),
    ),
    _reason(
        "queue-launch",
        "the queue could not start the job's processes",
        _sign(NODE, r"[Tt]ask launch for \S+ failed on node|slurmstepd: error: execve\(\)|Unable to create step|srun: error: .*(Job credential|Invalid (job )?credential)|Prolog hung|spank_pyxis\.so.*failed|pyxis: .*(failed|couldn't)", "Slurm srun, slurmstepd; Pyxis"),
        _sign(QUEUE, r"\bLAUNCH_FAILED\b|JobLaunchFailure|ErrImagePull|ImagePullBackOff|InvalidImageName|CreateContainer\w*Error|RunContainerError|ContainerCannotRun|StartError", "Slurm job states; Kubernetes"),
        change=("cluster.container", "cluster.exclude (the node)"),
    ),
    _reason(
        "cancelled",
        "the job was cancelled in the queue",
        _sign(QUEUE, r"\bCANCELLED\b", "Slurm job states"),
        grade=Grade.ENDED,
    ),
    _reason(
        "hang",
        "no new iteration was logged for fault_tolerance.hang_minutes",
        _sign(QUEUE, r"^hung$", "launch"),
        change=("fault_tolerance.hang_minutes", "data.num_workers"),
    ),
    # -- ended by a signal
    _reason(
        "killed",
        "it was killed (SIGKILL) from outside: by the out-of-memory killer, the queue or a user; nothing says by whom",
        _sign(SIGNAL, r"^SIGKILL$", "signal(7)"),
        _sign(LINE, r"DataLoader worker .* killed by signal: Killed", "torch DataLoader"),
        change=("cluster.memory (more), if main memory ran out",),
        grade=Grade.KILLED,
    ),
    _reason(
        "node-lost",
        "the connection to a node broke, or was never made",
        _sign(QUEUE, r"^lost$", "launch, ssh exit code 255"),
        _sign(NODE, r"^(\S+: )?launch: the connection is lost, or was never made", "launch"),
        change=("cluster.hosts", "cluster.exclude (the node)"),
        grade=Grade.KILLED,
    ),
    _reason(
        "segmentation-fault",
        "a segmentation fault (SIGSEGV) in compiled code: mostly packages that do not fit together",
        _sign(SIGNAL, r"^SIGSEGV$", "signal(7)"),
        change=("cluster.python", "cluster.container", "PYTHONFAULTHANDLER=1 (the next log has the line)"),
        grade=Grade.CRASH,
    ),
    _reason(
        "bus-error",
        "a bus error (SIGBUS): mostly /dev/shm or a disk with a mapped file is full",
        _sign(SIGNAL, r"^SIGBUS$", "signal(7)"),
        change=("data.num_workers (fewer)", "cluster.shm_size (larger)"),
        grade=Grade.CRASH,
    ),
    _reason(
        "illegal-instruction",
        "an instruction that this CPU does not have (SIGILL): packages built for another CPU",
        _sign(SIGNAL, r"^SIGILL$", "signal(7)"),
        change=("cluster.python", "cluster.container"),
        grade=Grade.CRASH,
    ),
    _reason(
        "arithmetic-fault",
        "an arithmetic fault (SIGFPE) in compiled code: mostly a division by zero",
        _sign(SIGNAL, r"^SIGFPE$", "signal(7)"),
        grade=Grade.CRASH,
    ),
    # -- of an exception, its type and text are the reason
    _reason(
        "assertion",
        "the backend refuses a combination of values",
        _sign(ERROR, r"^(\S+: )?AssertionError\b", "Python assert"),
        grade=Grade.GENERAL,
    ),
    # -- what the end of another rank causes
    _reason(
        "collective-timeout",
        "a collective waited too long for a rank that is slow, hangs or has ended",
        _sign(LINE, r"caught collective operation timeout|ran for \d+ milliseconds before timing out|Timed out waiting \d+ms for|monitoredBarrier.*(timed out|timeout)", "torch ProcessGroupNCCL, ProcessGroupGloo"),
        _sign(LINE, r"EI0002\b|[Nn]otify register times out", _CANN),
        change=("fault_tolerance.timeout_minutes", "data.num_workers"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "connect-timeout",
        "a rank waited in vain for the connection to another one, which hangs, has ended or cannot be reached",
        _sign(LINE, r"EI0006\b|EI0009\b|EI0015\b|Getting socket times out|connectFullMesh failed|wait timeout after \d+ms", _CANN + "; gloo; torch TCPStore"),
        change=("backend.env.HCCL_CONNECT_TIMEOUT (longer)", "backend.env.HCCL_SOCKET_IFNAME"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "connection-lost",
        "another rank or node disconnected",
        _sign(LINE, r"Connection (was )?(closed|reset) by (remote )?peer|[Bb]roken pipe|BrokenPipeError|ConnectionResetError|ncclRemoteError|remote process exited|Socket closed|received errors while waiting for send/recv|connection was likely closed|error code is 507057", "gloo; NCCL; torch TCPStore"),
        _sign(ANY, r"NCCL WARN .*Connection closed by remote peer", "NCCL socket"),
        change=(),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "device-timeout",
        "work on a device did not end in time: mostly a collective that waits for another rank",
        _sign(LINE, r"reason=\[?(task|stream sync) timeout|EE1002\b|error code is (107020|5070(14|17|34|46|48))", _CANN),
        change=("backend.env.HCCL_EXEC_TIMEOUT (longer)",),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "aborted",
        "the program aborted itself (SIGABRT)",
        _sign(SIGNAL, r"^SIGABRT$", "signal(7)"),
        grade=Grade.CONSEQUENCE,
    ),
    _reason(
        "terminated",
        "it was asked to end (SIGTERM) from outside: by the queue, the platform or a user; nothing says by whom",
        _sign(SIGNAL, r"^SIG(TERM|HUP)$", "signal(7)"),
        _sign(ANY, r"Received (15|1|SIGTERM|Signals\.SIGTERM) death signal|got signal: (15|1)\b|SignalException", "torch elastic agent"),
        grade=Grade.ENDED,
    ),
    _reason(
        "interrupted",
        "it was interrupted (SIGINT, Ctrl-C)",
        _sign(SIGNAL, r"^SIGINT$", "signal(7)"),
        _sign(ERROR, r"\bKeyboardInterrupt\b", "Python"),
        grade=Grade.ENDED,
    ),
)  # fmt: skip

EXCEPTION = _reason("exception", "the program raised an exception", grade=Grade.GENERAL)
"""Of an uncaught exception that no row names."""

# A line that begins a traceback which is not the end of its process: Python's own words for those that it drops, and
# libraries' for those that they retry.
HANDLED = re.compile(
    r"Exception ignored in|Exception in thread |--- Logging error ---|Error in atexit|Exception ignored on|"
    r"[Rr]etry attempt failed|[Rr]etrying\b|\bWARNING\b|\[W\d|[Ww]arning:|[Ii]gnor(ing|ed)\b.*:$"
)
# Lines that are never evidence, whatever they say: notices and warnings, in the forms of the libraries that write them.
BENIGN = re.compile(
    r"^\W{0,2}(W|I|D|V)\d* ?\d\d[:\d]|^\[(W|I)\d*[ \d]\S*|^(W|I)\d{4} |^W \w+\.cpp|\b\w*Warning: |^\W*(WARNING|INFO|DEBUG|NOTICE|WARN)\b|"
    r"^\d{4}-\d\d-\d\d[T ][\d:.,]+:? ?[-|]? *(\S+ +[-|]? *)?(\| *)?(WARNING|INFO|DEBUG|W|I)\b|\bNCCL (INFO|WARN|TRACE)\b|libibverbs: Warning|"
    r"\bsubmitit WARNING|\[(WARNING|INFO|DEBUG|WARN)\]|: warning: |^\S+ warnings?\.warn|wandb: (?!ERROR)|^\[INFO:"
)  # fmt: skip


def order_of(reason: Reason) -> tuple[int, int]:
    """Return the key by which reasons are preferred: grade, then place in the table."""
    return GRADES.index(reason.grade), REASONS.index(reason) if reason in REASONS else len(REASONS)


@cache
def signs(*kinds: Kind) -> tuple[tuple[re.Pattern[str], Reason], ...]:
    """Return the patterns of some kinds with their reasons, those that explain most first."""
    rows = sorted(REASONS, key=order_of)
    return tuple((sign.pattern, reason) for reason in rows for sign in reason.signs if sign.kind in kinds)


def reason_of(text: str, *kinds: Kind) -> Reason | None:
    """Return the reason that a text shows; None if it shows none."""
    return next((reason for pattern, reason in signs(*kinds) if pattern.search(text)), None)
