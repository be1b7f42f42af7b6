"""What the planner gives a backend for a job: where native tests get their command lines and files from."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from launcher.compose import compose
from launcher.job import Job
from launcher.pipeline import judge
from launcher.plan.plan import LaunchPlan


def native_plan(args: Sequence[str]) -> tuple[LaunchPlan, Job]:
    """Return the plan of the backend's own stack for a composed job, as dry-run prints it, and the job."""
    job = dataclasses.replace(compose(list(args)), runtime="native")
    outcome = judge(job, fixes=False)
    assert outcome.ok, [finding.message for finding in outcome.findings]
    return outcome.plan(), outcome.job


def words_after(plan: LaunchPlan, script: str, launch_dir: Path) -> list[str]:
    """Return what the node's command, started from ``launch_dir``, gives its script: all words after ``script``."""
    (node,) = plan.nodes
    place = next(index for index, arg in enumerate(node.argv) if arg.endswith(script))
    return [arg.replace("${LAUNCH_DIR}", str(launch_dir)) for arg in node.argv[place + 1 :]]
