"""Starts this node's part of a job that a platform started on every node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.executors.failure import CannotStart
from launcher.executors.local.executor import OnThisMachine
from launcher.job import Job
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Ended, Place

if TYPE_CHECKING:
    from launcher.executors.environment.nodes import Here

_ON_THE_PLATFORM = "inherited from the platform's job: set {name} there, as one of its secrets"


class Environment(OnThisMachine):
    """Starts the processes of this node; the platform's variables identify it."""

    name = "environment"
    title = "the environment of a platform's job"
    no_resume = "its platform starts it again, by the same command, and it goes on from its last checkpoint"
    secrets = (_ON_THE_PLATFORM, _ON_THE_PLATFORM)

    def restarts(self, job: Job) -> bool:
        """Platforms start a job again."""
        return True

    def check(self, plan: LaunchPlan) -> None:
        """Check that the environment agrees with the plan, and the programs of this node's commands."""
        from launcher.executors.environment.nodes import here, plan_of_node
        from launcher.executors.local.run import check_commands

        place = here(plan)
        _check_continues(plan, place)
        check_commands(plan_of_node(plan, place))

    def handle(self, plan: LaunchPlan) -> Mapping[str, Any]:
        """Return the platform and its job, by which a restart is recognised."""
        from launcher.executors.environment.nodes import here

        found = here(plan)
        return {"platform": found.platform.title, **found.identity}

    def run(self, plan: LaunchPlan, place: Place, files: Sequence[PlanFile], *, quiet: bool, first: int = 0) -> Ended:
        """Run the part of this node; node 0 writes the run directory."""
        from launcher.executors.environment.nodes import here, plan_of_node
        from launcher.executors.environment.shared_output_dir import join
        from launcher.executors.local.run import Kept, run

        node = here(plan)
        again = _check_continues(plan, node)
        kept = Kept(
            id=place.id,
            files=files if node.rank == 0 else (),
            node=node.rank,
            log=f"node{node.rank}.log",
            shared=len(plan.nodes) > 1 or again,
            again=again,
        )
        part = plan_of_node(plan, node)
        if again or not kept.shared:
            return run(part, quiet=quiet, kept=kept)
        marked = join(Path(plan.output_dir), node)
        try:
            return run(part, quiet=quiet, kept=kept)
        except CannotStart:
            marked.undo()
            raise


def _check_continues(plan: LaunchPlan, place: "Here") -> bool:
    """Return whether a platform has started this same job before; reject an output folder of another job."""
    from launcher.executors.environment.shared_output_dir import check_ours, continues
    from launcher.executors.files import check_free
    from launcher.executors.record import read_record

    folder = Path(plan.output_dir)
    if continues(read_record(folder), place):
        return True
    if len(plan.nodes) > 1:
        check_ours(folder, place)
    else:
        check_free(folder)
    return False


EXECUTOR = Environment()
