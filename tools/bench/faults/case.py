"""A case of the list, what was measured of it, and whether that is right."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Iterations of the trainer's checkpoints: one that it always has, one that it writes on SIGTERM, the last.
EARLY, ASKED, LAST = 5, 7, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A fault.

    Attributes:
        executor: which executor's job it is done to.
        group: heading of the table.
        name: what is done, as the table has it; with the executor it is unique.
        do: does it to a stage.
        state: state of the run afterwards.
        reason: part of the reason that `launch status` gives; "": none is asked.
        code: exit code of the command that the user ran, 128 + its signal where it was killed.
        saved: iteration of the newest complete checkpoint, at least.
        overrides: words of the job.
        nodes: machines.
        wait: with a queue, the user's command waits for the end (`--wait`).
        finish: the ranks train on to the end after the fault.
        resumes: `launch resume` then completes it.
        settle: seconds in which the state is reached.
        starts: ranks run before the fault is done; otherwise `do` itself starts the job.
    """

    executor: str
    group: str
    name: str
    do: Callable[[Any], None]
    state: str
    code: int
    reason: str = ""
    saved: int = EARLY
    overrides: tuple[str, ...] = ()
    nodes: int = 2
    wait: bool = True
    finish: bool = False
    resumes: bool = False
    settle: float = 60
    starts: bool = True
    disk: bool = False
    program: str = ""

    @property
    def key(self) -> str:
        """What identifies it in a file of results."""
        return f"{self.executor}: {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured.

    Attributes:
        left: processes of the job that still run 20 seconds after its end.
        saved: iteration of the newest complete checkpoint; 0: none.
        resumed: whether `launch resume` completed it; None: not tried.
        wrong: what is not as expected; empty: all is.
    """

    state: str = ""
    reason: str = ""
    code: int | None = None
    left: int = 0
    saved: int = 0
    resumed: bool | None = None
    seconds: float = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether all is as expected."""
        return not self.wrong


def judged(case: Case, found: Result, problems: list[str]) -> Result:
    """Return a result with what is wrong in it."""
    wrong = list(problems)
    if found.state != case.state:
        wrong.append(f"state {found.state}, not {case.state}")
    if case.reason not in found.reason:
        wrong.append(f"reason {found.reason!r} without {case.reason!r}")
    if found.code != case.code:
        wrong.append(f"exit code {found.code}, not {case.code}")
    if found.left:
        wrong.append(f"{found.left} processes are left")
    if found.saved < case.saved:
        wrong.append(f"checkpoint {found.saved} in place of {case.saved}")
    if found.resumed is False:
        wrong.append("it cannot be resumed")
    return Result(
        state=found.state, reason=found.reason, code=found.code, left=found.left, saved=found.saved,
        resumed=found.resumed, seconds=found.seconds, wrong=wrong,
    )  # fmt: skip
