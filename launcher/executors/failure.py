"""Exception for a plan that cannot be started."""

from collections.abc import Sequence


class CannotStart(Exception):
    """A cause outside the job keeps the plan from starting; the message names it, and what would work.

    Attributes:
        reason: the message without what would work.
        works: what would work.
    """

    def __init__(self, reason: str, works: Sequence[str] = ()) -> None:
        super().__init__("\n  works: ".join(filter(None, (reason, " · ".join(works)))))
        self.reason, self.works = reason, tuple(works)


class NoAnswer(CannotStart):
    """The command that submits a job did not end in time: the job may be submitted, or not."""
