"""What a reason for which a run stops is, and what shows one: the records of the table in `reasons.py`."""

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Where a sign is looked for."""

    TYPE = "type of an uncaught exception, without its package: before what its text shows"
    ERROR = "first line of an uncaught exception, from torch elastic's error file or a traceback"
    LINE = "line that is no warning or notice, or text of an uncaught exception"
    NODE = "line of any level that the node's kernel, driver or queue writes, whichever rank's log it is in"
    ANY = "line of any level"
    QUEUE = "reason that the queue, the pod or the launcher gives for the end"
    SIGNAL = "name of the signal that ended a rank or the node's command"
    CODE = "exit code of the node's command"


class Grade(StrEnum):
    """How much a reason explains; a smaller one is preferred, in this order."""

    CAUSE = "cause"
    KILLED = "ended from outside, by whom is not known"
    GENERAL = "an exception whose text says why"
    CRASH = "ended by a signal of its own"
    CONSEQUENCE = "follows from the end of another rank"
    ENDED = "was asked to end"


GRADES = tuple(Grade)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One pattern that shows a reason, and the software that writes it."""

    kind: Kind
    pattern: re.Pattern[str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One kind of failure.

    Attributes:
        name: short, stable name.
        meaning: what happened.
        fields: what to change: canonical fields with the direction, or words.
        grade: how much it explains.
        of_device: the node's driver says it of a device, whichever process used that.
        signs: what shows it.
    """

    name: str
    meaning: str
    fields: tuple[str, ...] = ()
    grade: Grade = Grade.CAUSE
    of_device: bool = False
    signs: tuple[Sign, ...] = ()

    @property
    def consequence(self) -> bool:
        """Whether it is the reason only if there is no other."""
        return self.grade in (Grade.CONSEQUENCE, Grade.ENDED)
