"""Writes a model's weights as MindFormers loads them in data parallel mode: one whole file in a folder of each rank.

In that mode there is no strategy file to slice complete weights with, and before 2.x the mcore models for training do
not read Hugging Face's (parallel_core/utils/model_mixin.py:137, 1.8.0).

python -m backends.mindformers.rehearse.weights SOURCE FOLDER RANKS [OVERRIDE ...]
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = "weights"
_CONVERTED, _NAME = "converted", "weights.safetensors"


def has_rank_folders(source: Path) -> bool:
    """Return whether a folder was written by MindFormers' ranks, each of which loads its own part."""
    return (source / "rank_0").is_dir()


def main(words: Sequence[str]) -> int:
    """Convert SOURCE, unless it has MindFormers' names already, and link it into RANKS folders below FOLDER."""
    source, folder, ranks, overrides = Path(words[0]), Path(words[1]), int(words[2]), words[3:]
    if (source / "config.json").is_file():
        target = folder / _CONVERTED
        command = [sys.executable, "-m", "launcher", "convert", "hf-to-mcore", "--model", str(source)]
        code = subprocess.call([*command, "--out", str(target), "--overwrite", *overrides])
        if code:
            return code
        source = target
    files = sorted(source.rglob("*.safetensors"))
    if len(files) != 1:
        print(f"{source} has {len(files)} safetensors files: in data parallel mode MindFormers loads one per rank")
        return 1
    for rank in range(ranks):
        place = folder / f"rank_{rank}" / _NAME
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(files[0].resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
