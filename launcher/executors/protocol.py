"""What every executor can do: render, submit, observe, stop. A new one is a module with one object like this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from launcher.executors.render import Place
from launcher.plan import LaunchPlan, PlanFile

# queued: waits for machines. running. done: exit code 0. failed. stopped: somebody ended it. lost: nobody knows.
STATES = ("queued", "running", "done", "failed", "stopped", "lost")
ENDED = ("done", "failed", "stopped", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What whoever runs a job says of it now.

    Attributes:
        state: one of STATES; "": it knows nothing (any more), so the run directory must tell.
        why: words of its own (a reason to wait, an exit state).
        nodes: names of the machines.
        asked: False: it could not be asked just now, and `why` says why; that alone ends nothing.
    """

    state: str
    why: str = ""
    nodes: tuple[str, ...] = ()
    asked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A job that was handed over: what `observe` and `stop` need to find it again, as plain data."""

    handle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several runs as one submission: a further file, the command, and what its output says of each run."""

    file: PlanFile
    command: tuple[str, ...]
    submitted: Callable[[str], Sequence[Submitted]]


class Executor(Protocol):
    """A way to start the nodes of a plan. Failures that a user can mend are `CannotStart`."""

    foreground: bool
    """Whether the job ends with the program that started it; otherwise it is submitted and goes on alone."""

    def check(self, plan: LaunchPlan) -> None:
        """Look for what would keep the plan from starting; nothing is written."""

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return the files that start the plan without this program; pure."""

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that starts the rendered files: it runs to the end of the job, or submits it."""

    def submitted(self, output: str) -> Submitted:
        """Read the handle from what the submitting command printed."""

    def together(self, runs: Sequence[tuple[LaunchPlan, Place]]) -> Together | None:
        """Return how several rendered runs are submitted as one; None if they cannot be."""

    def observe(self, handle: Mapping[str, Any]) -> Observed:
        """Ask the system for the state of a job."""

    def fetch(self, handle: Mapping[str, Any]) -> None:
        """Bring what the job printed since the last look into its run directory, if it is kept elsewhere."""

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Ask the system to end a job."""
