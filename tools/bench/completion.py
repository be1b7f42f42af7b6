"""Seconds of one completion, beside those of `python -c pass` and `launch --version` in the same run.

python -m tools.bench.completion [--rounds 20]

Each line is answered as a shell asks it: a process of its own, the index in a cache folder, everything interleaved, so
that a busy machine slows all of them. The processor's seconds are of the process alone.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LINES = (
    "launch dry",
    "launch dry-run --form",
    "launch +recipe=qwen3_",
    "launch check parallel.",
    "launch check parallel.cp_algorithm=",
    "launch check backend=megatron backend.args.moe",
    "launch check model.path=/usr/",
    "launch logs ",
    "launch explain MOE",
)


@dataclass(kw_only=True, slots=True)
class Times:
    """Seconds of a command, by the clock and of the processor."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def timed(command: Sequence[str], environment: Mapping[str, str], times: Times) -> None:
    """Run a command once and add its seconds; file descriptor 8 is where it answers."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 8, inheritable=True)
        done = subprocess.run(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pass_fds=(8,), check=False
        )
    finally:
        os.close(sink)
        os.close(8)
    times.wall.append(time.perf_counter() - began)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    times.processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.decode()}")


def asked(line: str, cache: str) -> dict[str, str]:
    """Return the environment in which a shell asks for completions of a line."""
    return {
        **os.environ,
        "XDG_CACHE_HOME": cache,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }


def main() -> int:
    """Print one line for each command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    launch = shutil.which("launch", path=f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}")
    assert launch is not None, "launch is not installed"
    with tempfile.TemporaryDirectory() as cache:
        plain = {name: value for name, value in os.environ.items() if name != "_ARGCOMPLETE"} | {
            "XDG_CACHE_HOME": cache
        }
        subprocess.run([launch, "completion", "bash"], env=plain, stdout=subprocess.DEVNULL, check=True)
        found: dict[str, Times] = {}
        for _ in range(rounds):
            timed([sys.executable, "-c", "pass"], plain, found.setdefault("python -c pass", Times()))
            timed([launch, "--version"], plain, found.setdefault("launch --version", Times()))
            for line in LINES:
                timed([launch], asked(line, cache), found.setdefault(line, Times()))
    show(found, rounds)
    return 0


def show(found: Mapping[str, Times], rounds: int) -> None:
    """Print medians, the slowest of all rounds, and how many were within 100 ms."""
    base = statistics.median(next(iter(found.values())).wall)
    print(f"{'median of ' + str(rounds):50} {'ms':>6} {'worst':>6} {'CPU ms':>6} {'x pass':>6}  within 100 ms")
    for name, times in found.items():
        wall, worst, processor = statistics.median(times.wall), max(times.wall), statistics.median(times.processor)
        within = sum(each <= 0.1 for each in times.wall)
        print(
            f"{name:50} {wall * 1000:6.0f} {worst * 1000:6.0f} {processor * 1000:6.0f} {wall / base:6.1f}"
            f"  {within} of {rounds}"
        )


if __name__ == "__main__":
    raise SystemExit(main())
