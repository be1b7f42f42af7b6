"""The file of a checkpoint folder that names its newest iteration (megatron-core dist_checkpointing, Megatron-LM)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from launcher.convert.containers.errors import Damaged
from launcher.convert.containers.files import create_sized
from launcher.syntax import is_count

TRACKER: Final = "latest_checkpointed_iteration.txt"


def write_tracker(root: Path, iteration: int | Literal["release"]) -> Path:
    """Write the file and return the name of the folder that it points to."""
    word = str(iteration).encode()
    create_sized(root / TRACKER, [(0, word)], len(word))
    return root / (f"iter_{iteration:07d}" if isinstance(iteration, int) else iteration)


def read_tracker(file: Path) -> int | Literal["release"]:
    """Return what the file names; Damaged if it is neither an iteration nor released weights."""
    with file.open("rb") as opened:
        word = opened.read(64).decode(errors="replace").strip()
    if word == "release":
        return "release"
    if not is_count(word):
        raise Damaged(file, "not an iteration", expected="a number or release", found=word)
    return int(word)
