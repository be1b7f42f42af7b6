"""Refusals of a queue or a cluster: what its message means for the job, and the values that it would accept."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from launcher.executors.failure import CannotStart
from launcher.records import dataclass

Asked = TypeVar("Asked")
# Names that a message lists at most.
_MOST_NAMES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal(Generic[Asked]):
    """One reason for which a system refuses a job.

    Attributes:
        sign: pattern of the system's message.
        means: the reason in terms of the job.
        works: returns what would work, values that the system has now first.
    """

    sign: "re.Pattern[str]"
    means: str
    works: Callable[[Asked], Iterable[str]]


def refused(who: str, message: str, asked: Asked, refusals: Sequence[Refusal[Asked]]) -> CannotStart:
    """Return the exception for a system's message; the first row whose sign the message shows explains it."""
    row = next((each for each in refusals if each.sign.search(message)), None)
    if row is None:
        return CannotStart(f"{who}: {message}")
    return CannotStart(f"{who}: {row.means} ({message})", tuple(row.works(asked)))


def values(field: str, names: Iterable[str]) -> list[str]:
    """Return overrides of a field with names that a system lists, the first of them."""
    found = [name for name in dict.fromkeys(name.strip() for name in names) if name]
    return [f"{field}={name}" for name in found[:_MOST_NAMES]]
