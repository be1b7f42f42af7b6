"""Peak memory of a process's tensors on CPU, where torch's allocator keeps no statistics: counted by its profiler."""

from __future__ import annotations

import os
from typing import Any

VARIABLE = "LAUNCH_TENSOR_MEMORY"
"""Where set, the first iterations of a CPU rehearsal count their tensors; those iterations take longer."""


class TensorMemory:
    """Counts what torch's CPU allocator hands out and takes back, from `start` to `stop`."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self.peak: int | None = None
        """Most bytes at a time, of tensors made since `start`; None: not counted."""

    def start(self) -> None:
        """Begin to count, where the environment asks for it."""
        if os.environ.get(VARIABLE):
            import torch

            self._profiler = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
            )
            self._profiler.start()

    def stop(self) -> None:
        """End the count, if there is one."""
        if self._profiler is None:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        held = most = 0
        changes = [
            (event.start_ns(), event.nbytes())
            for event in profiler.profiler.kineto_results.events()
            if event.name() == "[memory]"
        ]
        for _, change in sorted(changes, key=lambda each: each[0]):
            held += change
            most = max(most, held)
        self.peak = most
