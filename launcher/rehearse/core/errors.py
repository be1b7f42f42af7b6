"""The errors that a user of the trainer can cause; they end the run with one readable message and no traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class RehearsalError(Exception):
    """A refusal: what is wrong, where, and what would work; one line for each problem."""

    exit_code = EXIT_REFUSED

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(RehearsalError):
    """A command line that cannot be understood: an unknown flag, a wrong type or choice."""

    exit_code = EXIT_USAGE


class StageError(RehearsalError):
    """What megatron-core refused, on this rank, while a part of the run was built."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Report what fails inside as one line that names the stage; refusals of our own pass through."""
    try:
        yield
    except RehearsalError:
        raise
    except (AssertionError, AttributeError, ImportError, NotImplementedError, TypeError, ValueError) as error:
        text = " ".join(str(error).split()) or "no message"
        raise StageError(f"{name}: megatron-core: {type(error).__name__}: {text[:500]}") from error
