"""Starts a plan on this machine."""

from collections.abc import Sequence

from launcher.executors.private import PROGRAM
from launcher.plan import LaunchPlan, PlanFile
from launcher.plan.executor import Ended, Executor, Place
from launcher.plan.shell import script


class OnThisMachine(Executor):
    """Processes run on this machine, in the foreground; one script starts them without this program."""

    foreground = True
    here = True

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return the script of the plan, which is the same on every node."""
        return [PlanFile(path=f"{place.folder}/run/command.sh", content=script(plan), mode=PROGRAM)]

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that runs the script."""
        return ("bash", f"{place.folder}/run/command.sh")


class Local(OnThisMachine):
    """Starts the processes of one node here."""

    name = "local"
    title = "this machine"
    one_machine = True
    resumes = True

    def check(self, plan: LaunchPlan) -> None:
        """Check for what would prevent the plan from starting here; nothing is written."""
        from launcher.executors.local.run import check

        check(plan)

    def check_again(self, plan: LaunchPlan) -> None:
        """As `check`, in the folder of an earlier start."""
        from launcher.executors.local.run import check

        check(plan, again=True)

    def run(self, plan: LaunchPlan, place: Place, files: Sequence[PlanFile], *, quiet: bool, first: int = 0) -> Ended:
        """Run the plan, and restart it from its checkpoint."""
        from launcher.executors.local.run import Kept, run

        return run(plan, quiet=quiet, kept=Kept(id=place.id, files=files, again=first > 0, first=first))


EXECUTOR = Local()
