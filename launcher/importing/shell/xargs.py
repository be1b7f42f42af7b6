"""`… | xargs PROGRAM`: the command lines that it starts, given what it reads (GNU findutils 4.9, xargs.1)."""

import re
import shlex
from collections.abc import Iterator, Sequence

# Options with a value, and those that are followed.
_VALUED, _FOLLOWED = "adEILnPs", frozenset("InPrtLxd")
_QUOTED = re.compile(r"(['\"])(.*?)\1")


def command_lines(words: Sequence[str], given: str) -> list[list[str]] | None:
    """Return the command lines that `xargs …` starts; None: an option that is not followed.

    Args:
        words: xargs, its options, the program and its first arguments.
        given: what it reads.
    """
    options: dict[str, str] = {}
    at = 1
    while at < len(words) and words[at].startswith("-"):
        letter, rest = words[at][1:2], words[at][2:]
        if letter in _VALUED and not rest:
            at += 1
            rest = words[at] if at < len(words) else ""
        options[letter] = rest
        at += 1
    program = list(words[at:]) or ["echo"]
    if set(options) - _FOLLOWED or options.get("d", "\n") not in ("\n", "\\n"):
        return None
    try:
        items = given.splitlines() if {"I", "L", "d"} & set(options) else shlex.split(given)
        most = int(options.get("n") or options.get("L") or len(items) or 1)
        if "I" in options:
            return [
                [word.replace(options["I"], _QUOTED.sub(r"\2", item.strip())) for word in program] for item in items
            ]
        parts = [list(part) for part in _parts(items, most)] or ([] if "r" in options else [[]])
        return [[*program, *(shlex.split(" ".join(part)) if "L" in options else part)] for part in parts]
    except ValueError:  # a quote that is not closed, or no number
        return None


def _parts(items: Sequence[str], most: int) -> Iterator[Sequence[str]]:
    return (items[at : at + most] for at in range(0, len(items), max(most, 1)))
