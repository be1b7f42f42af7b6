"""Syntax check for words of sbatch."""

import re
from collections.abc import Iterable

# getopt_long(3), as sbatch calls it.
_LONG = re.compile(r"--[A-Za-z][A-Za-z0-9-]*(?:=.*)?", re.DOTALL | re.ASCII)
_SHORT = re.compile(r"-[A-Za-z].*", re.DOTALL | re.ASCII)


def sbatch_options_problem(words: Iterable[str]) -> str:
    """Return an error for the first word that is neither an sbatch option nor its value; "" if there is none."""
    takes_value = False
    for word in words:
        if _LONG.fullmatch(word):
            takes_value = "=" not in word
        elif _SHORT.fullmatch(word):
            takes_value = len(word) == 2
        elif not takes_value or word.startswith("-"):
            return f"{word!r} is not an option of sbatch: --NAME or --NAME=VALUE"
        else:
            takes_value = False
    return ""
