"""Submits a sweep's job array through submitit, for users of submitit; each task runs a rendered job.sbatch."""

import os
import shutil
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.slurm.executor import SCRIPT, Request
from launcher.executors.slurm.syntax import sbatch_options_problem
from launcher.plan import LaunchPlan
from launcher.plan.executor import Place, Submitted
from launcher.syntax import shown

# submitit requests SIGUSR2 before the time limit, which would end the nodes' shells; SIGURG is ignored by default.
_SIGNAL = "URG@60"
# submitit's own limit if none is set.
_AT_ONCE = 256


def check(plans: Sequence[LaunchPlan]) -> None:
    """Check for what would prevent submitit from submitting a sweep; nothing is written.

    Raises:
        CannotStart: it is not installed, or the jobs are not Slurm's, or request different machines.
    """
    options = _options(plans[0])
    if any(_options(plan) != options for plan in plans):
        raise CannotStart("one job array has the same machines for all its jobs: leave out hydra/launcher=…")
    problem = sbatch_options_problem(options)
    if problem:
        raise CannotStart(f"cluster.sbatch_options: {problem}")
    short = [word for word in options if not word.startswith("--")]
    if short:
        raise CannotStart(f"submitit takes long options only, and cluster.sbatch_options has {' '.join(short)}")
    folders = [os.path.abspath(plan.output_dir) for plan in plans]
    # submitit quotes for bash, but sbatch parses differently: _as_sbatch_flag, slurm/slurm.py.
    unquoted = [text for text in (*folders, plans[0].start.name, *options) if not text.isprintable() or "\\" in text]
    if unquoted or any("%" in folder for folder in folders):
        text = next(iter(unquoted), folders[0])
        raise CannotStart(f"submitit writes {shown(text)} as a pattern or as several lines: leave out hydra/launcher=…")
    clusters = _clusters(plans[0])
    if "," in clusters or clusters == "all":
        raise CannotStart(
            f"submitit does not report which of the clusters {clusters} took the jobs: name one, or leave out "
            "hydra/launcher=…"
        )
    if find_spec("submitit") is None:
        raise CannotStart(
            "submitit is not installed: pip install 'launch-llm[sweep]', or leave out hydra/launcher=…: "
            "a sweep with cluster=slurm is a job array without it too"
        )


def submit(runs: Sequence[tuple[LaunchPlan, Place]]) -> list[Submitted]:
    """Submit rendered runs as one array and return their jobs.

    Raises:
        CannotStart: with the message of submitit or Slurm.
    """
    submitit: Any = import_module("submitit")
    plan, place = runs[0]
    folder = Path(place.folder) / "run" / "submitit"
    try:
        executor = submitit.SlurmExecutor(folder=folder)
        executor.update_parameters(**parameters(plan))
        function = submitit.helpers.CommandFunction
        jobs = executor.submit_array([function(command(each), verbose=False) for _, each in runs])
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        message = " · ".join(line.strip() for line in str(error).splitlines() if line.strip())
        raise CannotStart(f"submitit does not submit the sweep: {message or type(error).__name__}") from None
    cluster = {"cluster": clusters} if (clusters := _clusters(plan)) else {}
    return [Submitted(handle={"job": str(job.job_id), **cluster}) for job in jobs]


def _options(plan: LaunchPlan) -> tuple[str, ...]:
    return _request(plan).options


def _request(plan: LaunchPlan) -> Request:
    request = plan.start.settings
    if not isinstance(request, Request):
        raise CannotStart("hydra/launcher=submitit_slurm submits to Slurm: cluster=slurm")
    return request


def _clusters(plan: LaunchPlan) -> str:
    """Return the clusters that sbatch submits to; "": the local cluster. Source: sbatch(1), --clusters."""
    asked = [word.partition("=")[2] for word in _options(plan) if word.startswith("--clusters=")]
    return asked[-1] if asked else os.environ.get("SBATCH_CLUSTERS", os.environ.get("SLURM_CLUSTERS", ""))


def command(place: Place) -> list[str]:
    """Return the command of an array task: the run's script, with its own log."""
    return [
        "bash",
        "-c",
        'exec bash "$0" >>"$1" 2>&1',
        f"{place.folder}/run/{SCRIPT}",
        f"{place.folder}/logs/slurm.log",
    ]


def parameters(plan: LaunchPlan) -> dict[str, Any]:
    """Return submitit's parameters: the plan's sbatch options, without submitit's defaults.

    Source: submitit 1.5.4 slurm/slurm.py, _make_sbatch_string.
    """
    options: dict[str, object] = {"signal": _SIGNAL}
    for word in _options(plan):
        name, equals, value = word.removeprefix("--").partition("=")
        options[name.replace("-", "_")] = value if equals else True
    return {
        "job_name": plan.start.name,
        "time": None,
        "wckey": None,
        # The script itself starts a task on every node.
        "use_srun": False,
        "array_parallelism": _request(plan).array_limit or _AT_ONCE,
        "additional_parameters": options,
    }
