"""What the evaluation cannot know of the programs that a script starts; its caller may."""

import re
from collections.abc import Callable, Mapping, Sequence

from launcher.records import dataclass


def _as_typed(words: Sequence[str], script: str) -> tuple[str, ...]:
    return tuple(words)


def _none(outer: Sequence[str]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Knowledge of programs.

    Attributes:
        starts: matches text that may start what the caller looks for: a loop or condition around it is not guessed.
        trains: the same, and not just any named script of Python.
        with_header: completes the words that start a script by the options in the script's own text (`#SBATCH`).
        variables: the variables that programs set for the scripts they start, by the words that start them.
    """

    starts: re.Pattern[str] = re.compile(r"\b(eval|[\w/]+\.py)\b")
    trains: re.Pattern[str] = re.compile(r"\b(eval|[\w/]+\.py)\b")
    with_header: Callable[[Sequence[str], str], tuple[str, ...]] = _as_typed
    variables: Callable[[Sequence[str]], Mapping[str, str]] = _none
