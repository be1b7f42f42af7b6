"""Deep check: megatron-core builds the job and runs one step of selected ranks of the full world."""

import dataclasses
import json
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from launcher.executors.failure import CannotStart
from launcher.executors.local.run import run
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.pipeline import Outcome
from launcher.rehearse.plan import rehearsal_plan
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rehearse.shrink import shrink

_SOURCE = "megatron-core 0.16.1, run on a fake process group"


def deep_findings(outcome: Outcome) -> list[Finding]:
    """Simulate ranks of the job's full layout; return megatron-core's errors, and the reduced sizes.

    Layers, experts and their placement are the job's; widths, lengths and the batch are small. Needs the extra
    `rehearsal`; takes seconds. Leaves no files on disk.
    """
    if find_spec("torch") is None or find_spec("megatron") is None:
        return [
            _finding("DEEP-NOT-RUN", "warning", "needs torch and megatron-core: pip install 'launch-llm[rehearsal]'")
        ]
    with tempfile.TemporaryDirectory() as folder:
        job = _played(outcome.job, f"{folder}/world")
        try:
            ended = run(rehearsal_plan(dataclasses.replace(outcome, job=job)), quiet=True)
        except RehearsalRefused as error:
            return error.findings
        except CannotStart as error:
            return [_finding("DEEP-NOT-RUN", "warning", str(error))]
        return [_played_smaller(job), *_refused(_result(Path(folder) / "world" / "result.json"), ended.log)]


def _played(job: Job, folder: str) -> Job:
    rehearse = dataclasses.replace(job.rehearse, entry="core", fake_world=True, shrink=False)
    return dataclasses.replace(job, runtime="rehearsal", rehearse=rehearse, output_dir=folder)


def _played_smaller(job: Job) -> Finding:
    report = shrink(job, cores=None).report
    return _finding("DEEP-SHRUNK", "change", f"built and stepped with {', '.join(report) or 'nothing smaller'}")


def _result(path: Path) -> dict[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _refused(result: dict[str, Any], log: Path) -> list[Finding]:
    ranks = result.get("ranks")
    if not ranks:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        return [_finding("DEEP-REFUSED", "error", lines[-1] if lines else "megatron-core ended without a message")]
    messages = dict.fromkeys(
        f"rank {rank['rank']} while it {_DOING.get(rank['stage'], rank['stage'])}: {rank['error']}"
        for rank in ranks
        if not rank["ok"]
    )
    return [_finding("DEEP-REFUSED", "error", message) for message in messages]


_DOING = {"model": "builds the model", "train": "runs the first step", "config": "reads its configuration"}


def _finding(rule: str, severity: str, message: str) -> Finding:
    return Finding(rule=rule, severity=severity, message=message, source=_SOURCE)
