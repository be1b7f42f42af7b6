"""What a reason for which a run stops is, and what shows one: the records of the table in `reasons.py`."""

import re
from enum import StrEnum

from launcher.records import dataclass


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
    """One pattern that shows a reason, and the software that writes it.

    Attributes:
        words: one of them is in every text that the pattern finds; (): not known.
    """

    kind: Kind
    pattern: re.Pattern[str]
    source: str
    words: tuple[str, ...] = ()


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


TYPE, ERROR, LINE, NODE, ANY, QUEUE, SIGNAL, CODE = Kind
CANN = "CANN error codes (Ascend documentation, Error Codes)"


def row(
    name: str,
    meaning: str,
    *signs: Sign,
    change: tuple[str, ...] = (),
    grade: Grade = Grade.CAUSE,
    of_device: bool = False,
) -> Reason:
    """Return a row of the table."""
    return Reason(name=name, meaning=meaning, fields=change, grade=grade, of_device=of_device, signs=signs)


def sign(kind: Kind, source: str, *patterns: str) -> Sign:
    """Return a sign that any of the patterns shows."""
    words = [_word(each) for pattern in patterns for each in _alternatives(pattern)]
    known = tuple(dict.fromkeys(words)) if all(words) else ()
    return Sign(kind=kind, source=source, pattern=re.compile("|".join(patterns)), words=known)


# Parts of a pattern: a class, a character that stands for itself, one that does not.
_PART = re.compile(r"\\[A-Za-z0-9]|\\(.)|\[\^?\]?[^\]]*\]|([^][\\^$.|?*+(){}])|.", re.DOTALL)
_OPTIONAL = ("?", "*", "{")


def _alternatives(pattern: str) -> list[list[tuple[str, str]]]:
    """Return the alternatives of a pattern, each as parts outside groups with what they stand for ("": unknown)."""
    found: list[list[tuple[str, str]]] = [[]]
    depth = 0
    for part in _PART.finditer(pattern):
        text, plain = part[0], part[1] or part[2] or ""
        depth -= text == ")"
        if depth == 0 and text == "|":
            found.append([])
        elif depth == 0:
            found[-1].append((text, plain))
        depth += text == "("
    return found


def _word(parts: list[tuple[str, str]]) -> str:
    """Return the longest text that is in everything that an alternative finds."""
    words = [""]
    for number, (_, plain) in enumerate(parts):
        after = parts[number + 1][0] if number + 1 < len(parts) else ""
        if not plain or after in _OPTIONAL:
            words.append("")
            continue
        words[-1] += plain
        if after == "+":
            words.append("")
    return max(words, key=len)
