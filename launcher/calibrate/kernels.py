"""Peaks of this device, measured in a process of their own: `python -m launcher.calibrate.kernels cpu|cuda DTYPE`.

Prints JSON: `tflops` of the fastest of some matrix products, `gbs` of a copy of memory, `name`, `memory_bytes`.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

_SIZES = {"cpu": (512, 1024), "cuda": (4096, 8192)}
_BYTES = {"cpu": 1 << 26, "cuda": 1 << 30}
_REPEATS = 8


def measured(device: str, dtype: str) -> dict[str, Any]:
    """Return the peaks of a device.

    Args:
        device: `cpu` or `cuda`.
        dtype: fp32, bf16 or fp16.
    """
    import torch

    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]

    def seconds(work: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(_REPEATS):
            if device == "cuda":
                torch.cuda.synchronize()
            started = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - started)
        return best

    flops = 0.0
    for size in _SIZES[device]:
        # Random numbers: equal ones switch fewer transistors, and a GPU multiplies them faster than any training's.
        one, other = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
        flops = max(flops, 2 * size**3 / seconds(lambda one=one, other=other: one @ other))  # type: ignore[misc]
    source = torch.ones(_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = seconds(lambda: target.copy_(source))
    if device == "cuda":
        name, memory = torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory
    else:
        name, memory = processor(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "tflops": flops / 1e12,
        "gbs": 2 * _BYTES[device] / copy / 1e9,
        "name": name,
        "memory_bytes": memory,
        "torch": torch.__version__,
    }


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], sys.argv[2])))
