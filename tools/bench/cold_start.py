"""How long the command line takes from nothing, as ratios to named references measured in the same run.

    python -m tools.bench.cold_start [-n RUNS]

References: `python -c pass` for `launch --help`; a bare Hydra compose of a job of 12 groups with 15 keys each and three
overrides for `launch dry-run`, and for a check that finds faults and computes their fixes. Both commands of a pair run
in turn, so that a slow moment hits both. Bytecode is compiled once and kept, as an installed package has it.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

GROUPS, KEYS = 12, 15
HELP_GOAL = 8.0
# CPU seconds that a command may take beside bare Hydra, which composes its job.
MORE_GOAL = 0.25
FAULTS = "parallel.cp=8 parallel.cp_algorithm=hybrid parallel.ulysses_degree=3 recompute.activation=true"
HEAVY = ("torch", "numpy", "transformers", "megatron", "scipy", "pandas")
COMPOSE = """
import sys
from hydra import compose, initialize_config_dir
with initialize_config_dir(sys.argv[1], version_base="1.3"):
    compose("config", overrides=["group0.key0=1", "group1.key1=2", "group2=other"])
"""
LOADED = """
import sys
from launcher.cli import main
sys.argv = ["launch", *sys.argv[1:]]
code = main()
heavy = [name for name in %r if name in sys.modules]
print("HEAVY", *heavy, file=sys.stderr)
"""


def reference_job(folder: Path) -> None:
    """Write the bare Hydra job: a primary file and two options for each group."""
    defaults = "".join(f"  - group{number}: base\n" for number in range(GROUPS))
    (folder / "config.yaml").write_text(f"defaults:\n{defaults}  - _self_\n")
    for number in range(GROUPS):
        group = folder / f"group{number}"
        group.mkdir()
        for option in ("base", "other"):
            group.joinpath(f"{option}.yaml").write_text("".join(f"key{key}: {key}\n" for key in range(KEYS)))


def cpu_seconds(command: list[str]) -> float:
    """Run a command and return the processor time of its process tree: steadier than wall time on a shared machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def pair(name: str, command: list[str], reference: list[str], runs: int, goal: str) -> None:
    """Measure two commands in turn and print one row: both times, their ratio, and their difference."""
    cpu_seconds(command), cpu_seconds(reference)
    rows = [(cpu_seconds(command), cpu_seconds(reference)) for _ in range(runs)]
    mine, other = (statistics.median(column) for column in zip(*rows, strict=True))
    more = mine - other
    print(f"{name:44} {mine * 1e3:8.0f} ms {other * 1e3:8.0f} ms {mine / other:7.2f} {more * 1e3:8.0f} ms   {goal}")


def heavy_imports(args: list[str]) -> str:
    """Return which heavy packages a command imports."""
    done = subprocess.run([sys.executable, "-c", LOADED % (HEAVY,), *args], capture_output=True, text=True, check=False)
    return next((line for line in done.stderr.splitlines() if line.startswith("HEAVY")), "HEAVY ?")[6:] or "none"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=15, help="counted runs of each command")
    runs = parser.parse_args().n
    launch = str(Path(sys.executable).with_name("launch"))
    dry_run = ["dry-run", "+recipe=qwen3_moe", "backend=megatron"]
    check = ["check", "+recipe=qwen3_moe", "backend=mindspeed", *FAULTS.split(), "recompute.granularity=selective"]
    with tempfile.TemporaryDirectory() as bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        _table(launch, dry_run, check, runs)
    print(f"heavy packages imported by --help: {heavy_imports(['--help'])}; by dry-run: {heavy_imports(dry_run)}")


def _table(launch: str, dry_run: list[str], check: list[str], runs: int) -> None:
    print(f"{'command (CPU time, median)':44} {'ours':>11} {'reference':>11} {'ratio':>7} {'more':>11}")
    pair(
        "launch --help / python -c pass",
        [launch, "--help"],
        [sys.executable, "-c", "pass"],
        runs,
        f"goal: ratio ≤ {HELP_GOAL}",
    )
    with tempfile.TemporaryDirectory() as name:
        reference_job(Path(name))
        compose = [sys.executable, "-c", COMPOSE, name]
        goal = f"goal: more ≤ {MORE_GOAL * 1e3:.0f} ms"
        pair("launch dry-run / bare Hydra compose", [launch, *dry_run], compose, runs, goal)
        pair("launch check, faults / bare Hydra compose", [launch, *check], compose, runs, goal)


if __name__ == "__main__":
    main()
