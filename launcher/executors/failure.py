"""Exception for a plan that cannot be started."""


class CannotStart(Exception):
    """A cause outside the job keeps the plan from starting; the message names it, and what would work."""


class NoAnswer(CannotStart):
    """The command that submits a job did not end in time: the job may be submitted, or not."""
