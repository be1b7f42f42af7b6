"""Whether the user's own weights can be trained on this machine: memory and disk, before anything is converted."""

import math
import os
import shutil
from pathlib import Path

from launcher.convert.containers.safetensors import read
from launcher.job import Job
from launcher.parity.request import Request
from launcher.parity.sides import RANDOM_WEIGHTS, CannotCompare, own_weights

# Bytes per parameter in memory: weights and gradients in fp32, and Adam's two moments of 4 bytes each.
_WEIGHTS, _TRAINED = 4, 16
# On the disk for each backend: converted weights, a checkpoint (weights, fp32 copy, moments), and the weights read back
# from it. Measured: 22.5 bytes per parameter on MindSpeed-LLM, 4.1 for transformers, tiny_qwen3 in fp32.
_BACKEND = 4 + 16 + 4
_GIB = 2**30


def check_size(request: Request, job: Job, folder: Path) -> None:
    """Refuse the user's weights where this machine has too little memory or disk for them.

    Args:
        job: the first side's small job, which keeps the size of its own weights.
        folder: where the comparison will be written; need not be there.

    Raises:
        CannotCompare: with what is needed and what is free.
    """
    weights = own_weights(job)
    if weights is None or not job.estimate.enforce:
        return
    count = parameters(weights)
    lacking = []
    memory, free = memory_needed(job, count), _memory()
    if memory > free:
        lacking.append(f"{_gib(memory)} of memory for weights, gradients and Adam's moments ({_gib(free)} are there)")
    disk, place = disk_needed(request, count), _existing(folder)
    left = shutil.disk_usage(place).free
    if disk > left:
        lacking.append(f"{_gib(disk)} on the disk ({_gib(left)} are free at {place})")
    if lacking:
        raise CannotCompare(
            f"model.path={weights} has {count:,} parameters: the comparison needs at least {' and '.join(lacking)}",
            RANDOM_WEIGHTS,
            "estimate.enforce=false (it goes on)",
            job=job,
        )


def parameters(weights: Path) -> int:
    """Return the number of parameters of the safetensors files in a folder, from their headers."""
    files = sorted(weights.glob("*.safetensors"))
    return sum(math.prod(slot.shape) for file in files for slot in read(file).slots)


def memory_needed(job: Job, count: int) -> int:
    """Return the bytes that a training holds at least, in all its processes together."""
    trained = _WEIGHTS if job.lora.rank is not None else _TRAINED
    copies = job.parallel.dp or 1
    frozen = _WEIGHTS if job.task.type == "dpo" else 0  # the reference model
    return count * copies * (trained + frozen)


def disk_needed(request: Request, count: int) -> int:
    """Return the bytes that are written: by every backend, by transformers, and by the reference's second training."""
    reference = _WEIGHTS if request.reference is not None else 0
    again = _WEIGHTS + (reference or _BACKEND) if request.tolerance is None else 0
    return count * (len(request.backends) * _BACKEND + reference + again)


def _memory() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
