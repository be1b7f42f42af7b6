"""Table of libraries' error messages, what they mean, and what to change."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One kind of failure.

    Attributes:
        name: short, stable name.
        pattern: regular expression of a line of output.
        meaning: what happened.
        fields: canonical fields that affect it, with the direction.
        source: library that writes the line.
        consequence: caused by the failure of another rank, so it is the reason only if there is no other.
    """

    name: str
    pattern: re.Pattern[str]
    meaning: str
    fields: tuple[str, ...] = ()
    source: str = ""
    consequence: bool = False


def _reason(name: str, pattern: str, meaning: str, *fields: str, source: str = "", consequence: bool = False) -> Reason:
    return Reason(
        name=name,
        pattern=re.compile(pattern),
        meaning=meaning,
        fields=fields,
        source=source,
        consequence=consequence,
    )


_LESS_MEMORY = (
    "batch.micro_batch_size (smaller)",
    "recompute.granularity=full",
    "parallel.tp or parallel.pp (larger)",
    "offload.optimizer=true",
)
# Searched in this order: the first that fits a line names it.
REASONS = (
    _reason(
        "device-out-of-memory",
        r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|NPU out of memory|HIP out of memory",
        "a device ran out of memory",
        *_LESS_MEMORY,
        source="torch/csrc CUDACachingAllocator; torch_npu NPUCachingAllocator",
    ),
    _reason(
        "device-out-of-memory",
        r"Out of memory.*(Device|device)|Allocate (continuous )?memory failed|EL0004|Memory not enough",
        "a device ran out of memory",
        *_LESS_MEMORY,
        source="mindspore device memory pool; CANN error code EL0004",
    ),
    _reason(
        "host-out-of-memory",
        r"oom-kill|Out [Oo]f [Mm]emory: Killed|Detected \d+ oom.kill event|DefaultCPUAllocator: can't allocate memory"
        r"|DataLoader worker .* is killed by signal: Killed",
        "the machine ran out of main memory",
        "data.num_workers (fewer)",
        "offload.optimizer=false",
        "cluster.memory",
        source="Linux kernel; Slurm slurmstepd; torch c10 CPUAllocator",
    ),
    _reason(
        "shared-memory",
        r"unable to (write|allocate).*shared memory|No space left on device.*/dev/shm|bus error.*shared memory",
        "/dev/shm is too small for the data loaders",
        "data.num_workers (fewer)",
        source="torch DataLoader",
    ),
    _reason(
        "disk-full",
        r"No space left on device|Disk quota exceeded",
        "a disk is full",
        "checkpoint.save",
        "checkpoint.save_total_limit",
        source="errno ENOSPC, EDQUOT",
    ),
    _reason(
        "port-taken",
        r"EADDRINUSE|[Aa]ddress already in use",
        "the port of the rendezvous is in use",
        "cluster.master_port (none: a free one is chosen)",
        source="torch TCPStore; errno EADDRINUSE",
    ),
    _reason(
        "no-rendezvous",
        r"(failed to connect|timed out).*TCPStore|TCPStore.*(failed to connect|timed out)|RendezvousTimeoutError"
        r"|client socket has timed out|Cluster is not (initialized|ready)|Failed to (connect to|register).*scheduler",
        "not all nodes found each other",
        "cluster.master_addr",
        "cluster.nodes",
        source="torch TCPStore; mindspore msrun",
    ),
    _reason(
        "collective-timeout",
        r"Watchdog caught collective operation timeout|ran for \d+ milliseconds before timing out"
        r"|Timed out waiting \d+ms for|HCCL.*(time ?out|EI0002)|EI0002|Wait timeout",
        "a collective waited too long for a rank that is slow, hangs or has ended",
        "fault_tolerance.timeout_minutes",
        "data.num_workers",
        source="torch ProcessGroupNCCL and ProcessGroupGloo; CANN error code EI0002",
        consequence=True,
    ),
    _reason(
        "network",
        r"ncclSystemError|ncclInternalError|NCCL WARN .*(error|failed)|ibv_\w+ failed|EI0006|EJ0001",
        "the network between nodes failed",
        "backend.env.NCCL_SOCKET_IFNAME",
        "backend.env.HCCL_SOCKET_IFNAME",
        source="NCCL; CANN error codes EI0006, EJ0001",
    ),
    _reason(
        "device-fault",
        r"CUDA error: (an illegal memory access|unspecified launch failure|uncorrectable ECC|device-side assert)"
        r"|Xid \(|uncorrectable ECC error|EZ9999|AICORE_EXCEPTION|aicore exception",
        "a device failed",
        "cluster.exclude (the node)",
        source="CUDA runtime; CANN error code EZ9999",
    ),
    _reason(
        "connection-lost",
        r"Connection (closed|reset) by peer|Broken pipe|ncclRemoteError|remote process exited|Socket closed"
        r"|connection was likely closed|the connection is lost",
        "another rank or node disconnected",
        source="gloo; NCCL; torch TCPStore; ssh",
        consequence=True,
    ),
    _reason(
        "missing-file",
        r"FileNotFoundError|No such file or directory|NotADirectoryError|does not appear to have a file named",
        "a file or folder is missing",
        "data.paths",
        "model.path",
        "tokenizer.path",
        "checkpoint.load",
        source="Python; errno ENOENT",
    ),
    _reason(
        "permission",
        r"PermissionError|Permission denied",
        "no permission to read or write a file",
        "checkpoint.save",
        "data.cache_path",
        source="errno EACCES",
    ),
    _reason(
        "missing-module",
        r"ModuleNotFoundError|ImportError",
        "a Python package is missing or incompatible",
        "cluster.python",
        "backend.version",
        source="Python",
    ),
    _reason(
        "unknown-argument",
        r"error: unrecognized arguments|error: argument |got an unexpected keyword argument"
        r"|remaining_argv|Some specified arguments are not used",
        "the backend does not accept an argument",
        "backend.version",
        "backend.args",
        source="argparse; transformers HfArgumentParser",
    ),
    _reason(
        "not-a-number",
        r"the loss is not a number|loss (is )?(nan|NaN|inf)|found NaN in|Unexpected result nan|overflow.*loss scale",
        "the loss is not a number, or no token was left that counts in it",
        "tokenizer.type or data.eod_mask_loss (padding that is the end of a document masks the loss)",
        "optimizer.lr (smaller)",
        "precision.dtype=bf16",
        "optimizer.clip_grad",
        source="Megatron-LM rerun_state_machine; this rehearsal",
    ),
    # `raise ValueError(`, a line of the source in a traceback, is not the message.
    _reason(
        "assertion", r"AssertionError(?!\()", "the backend refuses a combination of values", source="Python assert"
    ),
    _reason("refused", r"^error: |^\w*Error: |(Value|Runtime|Key|Type)Error(?!\()", "it failed", source="Python"),
    _reason(
        "ended-by-signal",
        r"Signal (\d+) \(SIG\w+\) received by PID|exitcode\s*:\s*-\d+|Received \d+ death signal",
        "a rank was ended by a signal",
        source="torch elastic",
        consequence=True,
    ),
)
