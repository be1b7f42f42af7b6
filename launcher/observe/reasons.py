"""Table of the reasons for which a run stops: what shows each of them, what it means, and what to change."""

import re
from functools import cache

from launcher.observe.reason import (
    ANY,
    CANN,
    ERROR,
    GRADES,
    LINE,
    NODE,
    QUEUE,
    TYPE,
    Grade,
    Kind,
    Reason,
    Sign,
    row,
    sign,
)
from launcher.observe.reasons_ends import ENDS
from launcher.observe.reasons_kubernetes import KUBERNETES
from launcher.observe.reasons_program import PROGRAM

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
    row(
        "device-out-of-memory",
        "a device ran out of memory",
        sign(LINE, "torch, torch_npu allocators", r"(CUDA|NPU|HIP|XPU) out of memory",
            r"torch(_npu)?(\.\w+)?\.OutOfMemoryError", r"(CUDA|HIP|NPU) error: out of memory"),
        sign(LINE, "CUDA driver, runtime, cuBLAS, cuDNN; NCCL; triton", r"CU(BLAS|DNN)_STATUS_ALLOC_FAILED",
            r"CUDA_ERROR_OUT_OF_MEMORY", r"cudaErrorMemoryAllocation", r"hipErrorOutOfMemory",
            r"[Cc]uda failure (\d+ )?'out of memory'", r"Triton Error \[\w+\]: out of memory",
            r"cudaMalloc failed: out of memory", r"cuda runtime error \(2\)"),
        sign(LINE, "vLLM", r"No available memory for the cache blocks", r"is less than desired GPU memory utilization",
            r"[Kk][Vv] cache (is )?needed, which is larger than the available"),
        sign(LINE, CANN, r"EL0004\b", r"Memory_Allocation_Failure"),
        sign(LINE, "mindspore mem_dynamic_allocator", r"is more than total mem size",
            r"Allocate (\w+ )?memory failed", r"Out of memory!? .*[Dd]evice\b",
            r"memory isn't enough and alloc failed", r"Malloc device memory failed", r"error code(?: is|:) ?207001"),
        change=_LESS_MEMORY,
    ),
    row(
        "host-out-of-memory",
        "a process was killed because main memory ran out, or was refused memory",
        sign(NODE, "Linux mm/oom_kill.c; Slurm slurmstepd, srun", r"[Dd]etected \d+ oom[-_]kill event",
            r"oom-kill:constraint", r"[Oo]ut of memory: Kill(ed)? process", r"task \d+: Out Of Memory",
            r"^\s*Reason:\s+OOMKilled",
            r"exceeded (virtual )?memory limit \(\d+ > \d+\), being killed", r"invoked oom-killer"),
        sign(NODE, "PBS; LSF", r"PBS: job killed: \w*mem\b", r"\bTERM_MEMLIMIT\b"),
        sign(LINE, "torch c10 CPUAllocator", r"DefaultCPUAllocator: (can't|not enough memory)"),
        sign(LINE, "Ray memory monitor", r"was killed due to the node running low on memory",
            r"[1-9] Workers \(tasks / actors\) killed due to memory pressure"),
        sign(TYPE, "Python; numpy", r"^_?(Array)?MemoryError$"),
        sign(LINE, "errno ENOMEM; C++", r"^(?!.*\bibv_).*Cannot allocate memory", r"std::bad_alloc"),
        sign(QUEUE, "Slurm job states; Kubernetes ContainerStateTerminated; cgroup memory.events", r"OUT_OF_MEMORY",
            r"OOMKilled", r"oom_kill", r"\bSystemOOM\b", r"\bOutOfMemory\b"),
        change=_MAIN_MEMORY,
    ),
    row(
        "shared-memory",
        "/dev/shm is too small for the data loaders",
        sign(LINE, "torch DataLoader", r"DataLoader worker .* killed by signal: Bus error",
            r"insufficient shared memory", r"workers are out of shared memory",
            r"unable to (write|allocate|mmap|open|resize).*shared memory",
            r"No space left on device.*/dev/shm", r"creating shared memory segment", r"posix_fallocate failed"),
        sign(ANY, "NCCL shmutils", r"NCCL WARN .*(creating shared memory segment|posix_fallocate failed)"),
        change=("data.num_workers (fewer)", "cluster.shm_size (larger)"),
    ),
    row(
        "disk-quota",
        "the quota of a disk is used up, in bytes or in files",
        sign(LINE, "errno EDQUOT", r"Disk quota exceeded", r"\[Errno 122\]"),
        sign(NODE, "PBS", r"killed due to exceeding \w+ quota"),
        change=("checkpoint.save", "checkpoint.save_total_limit", "data.cache_path"),
    ),
    row(
        "disk-full",
        "a disk is full",
        sign(LINE, "errno ENOSPC", r"No space left on device", r"\[Errno 28\]",
            r"SafetensorError.*IoError.*StorageFull"),
        change=("checkpoint.save", "checkpoint.save_total_limit"),
    ),
    row(
        "write-failed",
        "a file could not be read or written: a full disk, a quota, a missing folder, or a file system that failed",
        sign(ERROR, "torch serialization, inline_container.cc", r"PytorchStreamWriter failed",
            r"write\(\): fd \d+ failed with", r"^RuntimeError: File \S+ cannot be opened",
            r"unexpected pos \d+ vs \d+", r"Parent directory \S+ does not exist"),
        sign(LINE, "errno EIO, EROFS, ENOTCONN, ESHUTDOWN, ESTALE, EREMOTEIO", r"\[Errno (5|30|10[78]|116|121)\]",
            r"Read-only file system", r"Stale file handle", r": Input/output error", r"Remote I/O error",
            r"Transport endpoint is not connected", r"transport endpoint shutdown"),
        change=("checkpoint.save", "checkpoint.save_total_limit"),
    ),
    row(
        "open-files",
        "a limit of the system is reached: open files, processes, threads or locked memory",
        sign(LINE, "errno EMFILE; torch multiprocessing", r"Too many open files", r"\[Errno 24\]",
            r"received 0 items of ancdata"),
        sign(LINE, "errno EAGAIN", r"can't start new thread", r"pthread_create failed",
            r"Thread creation failed", r"\[Errno 11\] Resource temporarily unavailable", r"fork: Resource temporarily"),
        sign(LINE, "libibverbs: too little locked memory", r"ibv_\w+ failed.*Cannot allocate memory"),
        change=("data.num_workers (fewer)", "ulimit -n, -u and -l (larger), in cluster.setup"),
    ),
    row(
        "port-taken",
        "the port of the rendezvous is in use",
        sign(LINE, "torch TCPStore; errno EADDRINUSE", r"EADDRINUSE",
            r"server socket has failed to listen on any local network address", r"[Aa]ddress already in use"),
        sign(QUEUE, "launch", r"^port \d+ is taken"),
        change=("cluster.master_port (none: a free one is chosen)",),
    ),
    row(
        "no-rendezvous",
        "not all nodes found each other",
        sign(LINE, "torch TCPStore, elastic rendezvous", r"waiting for clients\. \d+/\d+ clients joined",
            r"client socket has (timed out|failed to connect)", r"DistStoreError: Socket Timeout",
            r"Timed out .*store[ -]based barrier", r"RendezvousTimeoutError", r"RendezvousConnectionError",
            r"host not found: ",
            r"The IPv[46] network addresses of .* cannot be retrieved"),
        sign(LINE, "mindspore msrun", r"Cluster is not (initialized|ready)",
            r"Failed to (connect to|register).*[Ss]cheduler", r"Topology build timed out"),
        sign(QUEUE, "launch", r"^the master cannot be asked"),
        change=("cluster.master_addr", "cluster.nodes"),
    ),
    row(
        "network",
        "the network between nodes does not work",
        sign(ANY, "NCCL net_ib, socket",
            r"NCCL WARN .*(Got completion .* with (error|status)(?![ =]*5\b)|"
            r"Got async event : .*(error|fatal)|NET/(?!IB)\w+ .*(error|(?<!initialization) failed)|"
            r"Call to connect .*failed|ibv_\w+ failed)"),
        sign(LINE, "NCCL socket, net_ib", r"socketPollConnect: .*(refused|timed out|unreachable)",
            r"No route to host", r"ibv_\w+ failed", r"ncclSystemError", r"NET/IB ?: Got (completion|async event)",
            r"socket\w*Connect: Connect to .* (failed|refused)"),
        sign(LINE, CANN, r"EI0013\b"),
        sign(LINE, "NCCL bootstrap; gloo", r"Bootstrap : no socket interface found",
            r"Unable to find (address|interface) for", r"Unable to resolve hostname to a", r"unhandled system error"),
        change=("backend.env.NCCL_SOCKET_IFNAME", "backend.env.GLOO_SOCKET_IFNAME", "backend.env.HCCL_SOCKET_IFNAME"),
    ),
    row(
        "device-fault",
        "a device or its link failed: hardware",
        sign(LINE, "CUDA runtime", r"uncorrectable (NVLink|ECC)", r"CUDA error: (hardware|uncorrectable)",
            r"an uncorrectable", r"Detected Critical Xid"),
        sign(NODE, "NVIDIA driver (XID errors)",
            r"NVRM: Xid \([^)]*\): (48|54|6[124]|74|79|9[457]|11[09]|120|140|143|14[4-9]|150),(?!.*\bNonfatal\b)",
            r"NVRM: .*(\bGSP (Timeout|crash)|(?i:rm_?init_?adapter) failed)",
            r"caused by previous Xid (48|64|74|79|9[45]|119|120|14[0-9]|150)\b"),
        sign(NODE, "NVIDIA driver; PCIe AER", r"[Ff]allen off the bus", r"GPU is lost",
            r"Unable to determine the device handle for GPU", r"GPU requires (a )?reset", r"SXid \([^)]*\): \d+, Fatal",
            r"Uncorrected \(Fatal\) error"),
        sign(LINE, CANN, r"E[A-Z]\d{4}.*(HBM|hbm).*(ECC|ecc)", r"multi[- ]bit ECC", r"device_status is abnormal",
            r"error code(?: is|:) ?50(705[3456]|7010)"),
        of_device=True,
        change=("cluster.exclude (the node)",),
    ),
    row(
        "device-assert",
        "an index on the device is out of range: mostly a token number beyond the vocabulary, or a position beyond "
        "the sequence",
        sign(LINE, "torch ATen Indexing, Loss", r"[Dd]evice-side assert(?!ions)",
            r"\.(cu|cuh|hip):\d+: [^`]*[Aa]ssertion `[^`]*` failed"),
        change=("model.vocab_size", "tokenizer.path", "batch.seq_length"),
    ),
    row(
        "device-kernel",
        "a kernel failed on a device: a fault in it, in its arguments, or of the device",
        sign(LINE, "CUDA runtime", r"an illegal memory access", r"unspecified launch failure", r"misaligned address",
            r"illegal instruction was encountered", r"CUBLAS_STATUS_EXECUTION_FAILED",
            r"CUDNN_STATUS_EXECUTION_FAILED", r"CUDA_ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED)"),
        sign(NODE, "NVIDIA driver (XID errors)", r"NVRM: Xid \([^)]*\): (13|31|43|69),"),
        sign(LINE, "ROCm HIP, HSA runtimes", r"Memory access fault by GPU",
            r"HSA_STATUS_ERROR_[A-Z_]*(VIOLATION|EXCEPTION)",
            r"hipError(IllegalAddress|LaunchFailure)"),
        sign(NODE, "amdgpu driver", r"amdgpu\b.*(sq_intr: error|ring \w+\S* timeout|GPU reset begin|page fault)"),
        sign(LINE, CANN, r"EZ9999", r"(?i:ai(core|cpu|vector|vec) (exception|kernel execute failed))",
            r"AICORE_EXCEPTION", r"vector core (execution )?(is abnormal|exception)",
            r"error code(?: is|:) ?5070(11|15|18|35|49)"),
        of_device=True,
        change=("kernels.attention_backend", "cluster.exclude (the node, if it is always the same)"),
    ),
    row(
        "device-busy",
        "another process holds a device, or one of an earlier run has not ended yet",
        sign(LINE, "CUDA runtime; " + CANN, r"CUDA-capable device(\(s\) is/are|s are) busy",
            r"Maybe the last training process is running", r"EJ0001\b"),
        change=("launch clean RUN", "cluster.exclude (the node)"),
    ),
    row(
        "rank-device",
        "a rank has no device of its own: fewer devices are visible than ranks, or two ranks chose one",
        sign(ANY, "NCCL init", r"Duplicate GPU detected"),
        sign(LINE, "CUDA runtime; torch; " + CANN, r"invalid device ordinal", r"Invalid device (id|ID|argument)\b",
            r"error code(?: is|:) ?107001", r"device_id.* (is invalid|out of range)",
            r"reason=\[device id error\]", r"Set visible device failed"),
        sign(ERROR, "verl; vLLM", r"Total available GPUs \d+ is less than", r"number of required GPUs exceeds"),
        change=("cluster.devices_per_node", "CUDA_VISIBLE_DEVICES or ASCEND_RT_VISIBLE_DEVICES of the node"),
    ),
    row(
        "device-unsupported",
        "the software is built for other devices than this one",
        sign(LINE, "CUDA runtime; torch", r"no kernel image is available", r"device kernel image is invalid",
            r"Torch not compiled with CUDA enabled", r"HIP error: invalid device function", r"hipErrorNoBinaryForGpu",
            r"is not compatible with the current PyTorch installation\.?$", r"FlashAttention only supports"),
        change=("cluster.python", "cluster.container", "kernels.attention_backend"),
    ),
    row(
        "driver",
        "the device's driver is missing, too old or failed",
        sign(LINE, "torch; CUDA runtime", r"NVIDIA driver on your system is too old", r"Found no NVIDIA driver",
            r"no CUDA-capable device is detected", r"couldn't communicate with the NVIDIA driver",
            r"No (CUDA|HIP) GPUs are available", r"CUDA driver version is insufficient",
            r"forward compatibility was attempted", r"Driver/library version mismatch",
            r"system not yet initialized", r"unsupported display driver", r"compiled with an unsupported toolchain"),
        sign(ERROR, "torch; NVML", r"torch\.cuda\.is_available\(\) is False", r"Failed to initialize NVML",
            r"Unexpected error from cudaGetDeviceCount", r"only supported with GPUs, no GPUs found",
            r"CUDA driver initialization failed", r"CUDA unknown error - ", r"\b0 active drivers"),
        sign(TYPE, "pynvml", r"^NVMLError\w*$"),
        sign(LINE, CANN, r"internal error occurs in the Driver module", r"error code(?: is|:) ?507899", r"EL9999",
            r"No NPU is available", r"libascend_hal\.so",
            r"dcmi module initialize failed"),
        change=("the driver of the node", "cluster.container", "cluster.exclude (the node)"),
    ),
    row(
        "not-a-number",
        "the loss is not a number, or no token was left that counts in it",
        sign(LINE, "Megatron-LM rerun_state_machine; this rehearsal", r"the loss is not a number",
            r"[Uu]nexpected result nan", r"found (NaN|Inf) in", r"loss scale already at minimum",
            r"^(\S+: )?\w*Error.*\b(loss|grad\w*)( norm)? (is|was|=|contains)( a)? ?(nan|NaN|inf)\b",
            r"FloatingPointError: (Minimum loss scale|.*\bnan)", r"[Ll]oss is (nan|NaN|inf)\w*, (stopping|exiting)",
            r"probability tensor contains either `?inf`?, `?nan`?"),
        change=("tokenizer.type or data.eod_mask_loss (padding that is the end of a document masks the loss)",
            "optimizer.lr (smaller)", "precision.dtype=bf16", "optimizer.clip_grad"),
    ),
    *PROGRAM,
    row(
        "time-limit",
        "the time limit of the queue ended it",
        sign(NODE, "Slurm slurmstepd; PBS; LSF", r"CANCELLED AT \S+ DUE TO TIME LIMIT",
            r"PBS: job killed: (walltime|cput)\b",
            r"\bTERM_(RUNLIMIT|CPULIMIT|DEADLINE)\b"),
        sign(QUEUE, "Slurm job states; Kubernetes JobFailureReason", r"\bTIMEOUT\b", r"\bDEADLINE\b",
            r"DeadlineExceeded", r"TimeLimit", r"longer than (the )?specified deadline"),
        change=("cluster.time_limit (longer)", "checkpoint.save_interval (shorter)"),
    ),
    row(
        "preempted",
        "the queue took its machines for another job",
        sign(NODE, "Slurm slurmstepd", r"CANCELLED AT \S+ DUE TO PREEMPTION"),
        sign(QUEUE, "Slurm job states; Kubernetes scheduler; Kueue", r"\bPREEMPTED\b", r"Preempt(ed|ing|ionBy)"),
        change=("cluster.qos or cluster.priority_class", "fault_tolerance.max_restarts"),
    ),
    row(
        "node-failed",
        "a machine of the job failed",
        sign(NODE, "Slurm slurmstepd, srun", r"DUE TO NODE FAILURE", r"srun: error: Node failure on", r"NODE_FAIL"),
        sign(QUEUE, "Slurm job states; Kubernetes", r"\bNODE_FAIL\b", r"\bBOOT_FAIL\b", r"\bNode(Lost|NotReady)\b",
            r"NodeShutdown", r"imminent node shutdown", r"^NodeFailure", r"DeletionByPodGC"),
        change=("cluster.exclude (the node)", "fault_tolerance.max_restarts"),
    ),
    row(
        "evicted",
        "the cluster evicted a pod",
        sign(QUEUE, "Kubernetes kubelet", r"\bEvicted\b", r"EvictionByEvictionAPI", r"TerminationByKubelet",
            r"The node was low on resource", r"ephemeral[- ](local )?storage.* exceeds"),
        change=("cluster.memory or cluster.resources (requests)",),
    ),
    *KUBERNETES,
    row(
        "queue-launch",
        "the queue could not start the job's processes",
        sign(NODE, "Slurm srun, slurmstepd", r"srun: error: .*\blaunch\b.* failed", r"slurmstepd: error: execve\(\)",
            r"s(run|batch|alloc): (error: (Unable to (allocate|confirm|contact)|.*submission failed)|fatal: )",
            r"There are not enough slots available in the system", r"ORTE was unable to reliably start",
            r"Unable to create step", r"srun: error: .*Invalid (job )?credential", r"Prolog hung"),
        sign(NODE, "Pyxis", r"pyxis: container start failed", r"pyxis: couldn't start container",
            r"spank_pyxis\.so: (task_init|user_init|init_post_opt)\(\) failed", r"pyxis: failed to import"),
        sign(LINE, "Apptainer; docker; OCI runtimes", r"^FATAL: {3}", r"^docker: Error response from daemon",
            r"OCI runtime (create|exec) failed", r"nvidia-container-cli: "),
        sign(QUEUE, "Slurm job states; Kubernetes", r"\bLAUNCH_FAILED\b", r"JobLaunchFailure",
            r"OCI runtime (create|exec) failed", r"failed to start container", r"failed to create \w+ task",
            r"CreateContainer\w*Error", r"RunContainerError", r"ContainerCannotRun", r"StartError",
            r"FailedCreatePodSandBox"),
        change=("cluster.container", "cluster.exclude (the node)"),
    ),
    row(
        "cancelled",
        "the job was cancelled in the queue",
        sign(QUEUE, "Slurm job states", r"\bCANCELLED\b"),
        sign(NODE, "Slurm slurmstepd", r"\*\*\* JOB \d+ ON \S+ CANCELLED AT \S+ \*\*\*"),
        grade=Grade.ENDED,
    ),
    row(
        "hang",
        "no new iteration was logged for fault_tolerance.hang_minutes",
        sign(QUEUE, "launch", r"^hung(: |$)"),
        sign(LINE, "launch", r"^launch: no \w+ iteration for \d+ s: the ranks are ended"),
        change=("fault_tolerance.hang_minutes", "data.num_workers"),
    ),
    *ENDS,
)
# fmt: on

EXCEPTION = row("exception", "the program raised an exception", grade=Grade.GENERAL)
"""Of an uncaught exception that no row names."""


def order_of(reason: Reason) -> tuple[int, int]:
    """Return the key by which reasons are preferred: grade, then place in the table."""
    return GRADES.index(reason.grade), REASONS.index(reason) if reason in REASONS else len(REASONS)


@cache
def signs(*kinds: Kind) -> tuple[tuple[Sign, Reason], ...]:
    """Return the signs of some kinds with their reasons, those that explain most first."""
    rows = sorted(REASONS, key=order_of)
    return tuple((each, reason) for reason in rows for each in reason.signs if each.kind in kinds)


@cache
def _words(*kinds: Kind) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return the words of which a text that shows a sign has one, with the places of these signs in `signs`."""
    found: dict[str, list[int]] = {}
    for number, (each, _) in enumerate(signs(*kinds)):
        for word in each.words or ("",):
            found.setdefault(word, []).append(number)
    return tuple((word, tuple(numbers)) for word, numbers in found.items())


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
    rows = signs(*kinds)
    # Most lines of a log have none of the words, and that takes a tenth of the time of the patterns.
    may = sorted({number for word, numbers in _words(*kinds) if word in text for number in numbers})
    return next((rows[number][1] for number in may if rows[number][0].pattern.search(text)), None)
