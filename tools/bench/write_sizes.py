"""How much processor time do writes of a cached file take, by their size? The figures of `launch convert`'s writes.

    python -m tools.bench.write_sizes [--size 1 4] [--folder DIR] [--rounds 3]

A file of each `--size` in GB is mapped and written to a new one in pieces of each size, into reserved space
(`fallocate`) and without it; beside it `copy_file_range` and `cp`. A row is the best of `--rounds` rounds, in turns,
the time of 4 MB in that round (median, and the slowest of a hundred), and the slowest round. Files are removed after
each run.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from launcher.convert.containers.transfer import STEP, OpenFiles

_PIECES = (4, 32, 64, 512)
_RESERVED = 16 * 2**20
Times = list[float]
"""Processor seconds of each `STEP`."""


def written(source: Path, target: Path, piece: int, *, reserved: bool) -> Times:
    """Write a file from a map, as `launch convert` does."""
    target.touch()
    times = []
    with OpenFiles() as files:
        view, descriptor, size = files.view(source), files.write_fd(target), source.stat().st_size
        os.truncate(descriptor, size)
        for first in range(0, size, STEP):
            started, last = time.process_time(), min(first + STEP, size)
            if reserved and first % _RESERVED == 0:
                files.reserve(target, first, min(_RESERVED, size - first))
            files.load(source, first, last - first)
            for at in range(first, last, piece):
                os.pwrite(descriptor, view[at : min(at + piece, last)], at)
            files.forget(source, first, last - first)
            times.append(time.process_time() - started)
    return times


def copied(source: Path, target: Path) -> Times:
    """Copy a file inside the kernel."""
    times = []
    with source.open("rb") as read, target.open("wb") as write:
        for first in range(0, source.stat().st_size, STEP):
            started = time.process_time()
            os.copy_file_range(read.fileno(), write.fileno(), STEP, first, first)
            times.append(time.process_time() - started)
    return times


def by_cp(source: Path, target: Path) -> Times:
    """Copy a file by cp."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run(["cp", source, target], check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return [after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]


def ways() -> dict[str, Callable[[Path, Path], Times]]:
    """Return what is measured, by its row."""
    found: dict[str, Callable[[Path, Path], Times]] = {"cp": by_cp, "copy_file_range": copied}
    for kib in _PIECES:
        for reserved in (False, True):
            found[f"{kib} KiB{', reserved' if reserved else ''}"] = (
                lambda source, target, piece=kib * 2**10, reserved=reserved: written(
                    source, target, piece, reserved=reserved
                )
            )
    return found


def main() -> None:
    """Measure and print."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--size", type=float, nargs="+", default=[1.0, 4.0], help="GB of each file")
    made.add_argument("--folder", type=Path, help="on the disk to measure; default: the temporary folder's")
    made.add_argument("--rounds", type=int, default=3)
    options = made.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    print("| GB | writes | CPU s per GB | 4 MB: median ms | slowest of 100 | slowest round |")
    print("|---:|---|---:|---:|---:|---:|")
    for gigabytes in options.size:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-write-") as name:
            source, target = Path(name) / "source", Path(name) / "target"
            block = os.urandom(STEP)
            with source.open("wb") as file:
                for _ in range(round(gigabytes * 1e9) // STEP):
                    file.write(block)
            runs: dict[str, list[Times]] = {}
            for _ in range(options.rounds):
                for row, way in ways().items():
                    runs.setdefault(row, []).append(way(source, target))
                    target.unlink()
            for row, found in runs.items():
                best = min(found, key=sum)
                parts = f"{1e3 * statistics.median(best):.2f} | {1e3 * sorted(best)[len(best) * 99 // 100]:.1f}"
                shown = parts if len(best) > 1 else "| "
                worst = max(map(sum, found)) / gigabytes
                print(f"| {gigabytes:g} | {row} | {sum(best) / gigabytes:.2f} | {shown} | {worst:.2f} |", flush=True)


if __name__ == "__main__":
    main()
