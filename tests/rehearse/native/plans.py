"""What the planner gives a backend for a job: where native tests get their command lines and files from."""

import dataclasses
from collections.abc import Sequence

from launcher.compose import compose
from launcher.job import Job
from launcher.pipeline import judge
from launcher.plan.plan import LaunchPlan


def native_plan(words: Sequence[str]) -> tuple[LaunchPlan, Job]:
    """Return the plan of the backend's own stack for a composed job, as dry-run prints it, and the job."""
    job = dataclasses.replace(compose(list(words)), runtime="native")
    outcome = judge(job, fixes=False)
    assert outcome.ok, [finding.message for finding in outcome.findings]
    return outcome.plan(), outcome.job


def words_after(plan: LaunchPlan, script: str) -> list[str]:
    """Return what the single node's command gives its script: everything after the word that ends with ``script``."""
    (node,) = plan.nodes
    place = next(index for index, word in enumerate(node.argv) if word.endswith(script))
    return list(node.argv[place + 1 :])
