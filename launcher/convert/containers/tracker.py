"""The file of a checkpoint folder that names its newest iteration (megatron-core dist_checkpointing, Megatron-LM)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from launcher.convert.containers.files import create_sized

TRACKER: Final = "latest_checkpointed_iteration.txt"


def write_tracker(root: Path, iteration: int | Literal["release"]) -> Path:
    """Write the file and return the name of the folder that it points to."""
    word = str(iteration).encode()
    create_sized(root / TRACKER, [(0, word)], len(word))
    return root / (f"iter_{iteration:07d}" if isinstance(iteration, int) else iteration)
