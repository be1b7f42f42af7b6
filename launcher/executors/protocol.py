"""Interface of executors: render, submit, observe, stop. A new executor is a module with one such object."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from launcher.executors.render import Place
from launcher.plan import LaunchPlan, PlanFile

# queued: waits for machines. running. done: exit code 0. failed. stopped: ended by a user. lost: state unknown.
STATES = ("queued", "running", "done", "failed", "stopped", "lost")
ENDED = ("done", "failed", "stopped", "lost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """State of a job as reported by the system that runs it.

    Attributes:
        state: one of STATES; "": unknown to the system (any more), so the run directory decides.
        why: its reason in plain text (for waiting, or an exit state).
        nodes: names of the machines.
        asked: False: the query failed, and `why` has the reason; the job may still run.
    """

    state: str
    why: str = ""
    nodes: tuple[str, ...] = ()
    asked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """A submitted job: the plain data with which `observe` and `stop` find it again."""

    handle: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several runs as one submission: an additional file, the command, and a parser of its output for each run."""

    file: PlanFile
    command: tuple[str, ...]
    submitted: Callable[[str], Sequence[Submitted]]


class Executor(Protocol):
    """A way to start the nodes of a plan. Failures that a user can fix raise `CannotStart`."""

    foreground: bool
    """Whether the job ends with the program that started it; otherwise it is submitted and runs independently."""

    def check(self, plan: LaunchPlan) -> None:
        """Check for what would prevent the plan from starting; nothing is written."""

    def render(self, plan: LaunchPlan, place: Place) -> Sequence[PlanFile]:
        """Return the files that start the plan without this program; pure."""

    def command(self, plan: LaunchPlan, place: Place) -> tuple[str, ...]:
        """Return the command that starts the rendered files: it runs to the end of the job, or submits it."""

    def submitted(self, output: str) -> Submitted:
        """Parse the handle from the output of the submitting command."""

    def together(self, runs: Sequence[tuple[LaunchPlan, Place]]) -> Together | None:
        """Return a single submission of several rendered runs; None if unsupported."""

    def observe(self, handle: Mapping[str, Any]) -> Observed:
        """Query the state of a job."""

    def fetch(self, handle: Mapping[str, Any]) -> None:
        """Append the job's output since the last call to its run directory, if it is stored elsewhere."""

    def stop(self, handle: Mapping[str, Any]) -> None:
        """Ask the system to end a job."""
