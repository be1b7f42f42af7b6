"""A figure of what a training stack keeps and does, where it differs from plain Megatron-core."""

from collections.abc import Callable
from dataclasses import dataclass

from launcher.job import Job


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StackFigure:
    """One difference of a backend's profile; the last row that holds for a version and a job counts.

    Rows compare by identity, because resolved profiles are looked up by them for every job.

    Attributes:
        name: field of `launcher.estimate.profile.Profile`, which says its meaning and unit.
        value: its value.
        source: where it is from: upstream file:line, or the rows of measured runs on which it was chosen ("fitted on").
        when: the jobs for which it holds; None: all.
        since, until: versions of the backend, both inclusive.
    """

    name: str
    value: bool | float | str | None
    source: str
    when: Callable[[Job], bool] | None = None
    since: str | None = None
    until: str | None = None
