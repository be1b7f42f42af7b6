"""User errors of the trainer; they end the run with one readable message and no traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

EXIT_OK = 0
EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class RehearsalError(Exception):
    """A rejected run: what is wrong, where, and what would work; one line per problem."""

    exit_code = EXIT_REFUSED

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class UsageError(RehearsalError):
    """An invalid command line: an unknown flag, a wrong type or choice."""

    exit_code = EXIT_USAGE


class StageError(RehearsalError):
    """An error of megatron-core on this rank while a part of the run was built."""


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Convert exceptions inside to one line that names the stage; RehearsalError is re-raised."""
    try:
        yield
    except RehearsalError:
        raise
    except (AssertionError, AttributeError, ImportError, NotImplementedError, TypeError, ValueError) as error:
        text = " ".join(str(error).split()) or "no message"
        raise StageError(f"{name}: megatron-core: {type(error).__name__}: {text[:500]}") from error
