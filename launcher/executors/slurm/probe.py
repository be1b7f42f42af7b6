"""Runs a script on nodes that Slurm allocates for it, before a job is submitted."""

import subprocess
from collections.abc import Sequence

from launcher.executors.failure import CannotStart
from launcher.executors.slurm.state import call, words

# Nodes that are not free within these seconds are not asked.
_FREE_SECONDS, _MINUTES, _SECONDS = 30, 1, 120
# One write a node, so that lines of nodes are not mixed.
_ON_NODE = """said=$(bash -c "$1" 2>&1); printf '%s\\t%s\\n' "$SLURMD_NODENAME" "${said//$'\\n'/$'\\036'}\""""
# Options of sbatch that srun does not have, or that concern a submission only.
_NOT_OF_SRUN = (
    "--requeue",
    "--no-requeue",
    "--time",
    "-t",
    "--array",
    "-a",
    "--signal",
    "--mail",
    "--dependency",
    "-d",
)


def answers_of(options: Sequence[str], nodes: int, script: str) -> list[tuple[str, "subprocess.CompletedProcess[str]"]]:
    """Return what a script prints on each node of an allocation like that of the job.

    Args:
        options: those of sbatch.

    Raises:
        CannotStart: no nodes are free, or they cannot be asked, with Slurm's message.
    """
    kept = [option for option in options if not option.startswith(_NOT_OF_SRUN)]
    argv = [
        "srun",
        *kept,
        f"--immediate={_FREE_SECONDS}",
        f"--time={_MINUTES}",
        f"--ntasks={nodes}",
        "--quit-on-interrupt",
    ]
    done = call([*argv, "bash", "-c", _ON_NODE, "launch-doctor", script], _SECONDS)
    found = []
    for line in done.stdout.split("\n"):
        host, sign, said = line.partition("\t")
        if sign:
            found.append((host, subprocess.CompletedProcess(argv, 0, said.replace("\036", "\n"), "")))
    if not found:
        raise CannotStart(f"the nodes cannot be asked: {words(done)}")
    return found
