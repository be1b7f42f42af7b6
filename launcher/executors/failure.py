"""Why a plan could not be started."""


class CannotStart(Exception):
    """Something outside the job keeps the plan from starting; the message says what, and what would work."""
