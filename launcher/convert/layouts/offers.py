"""Sizes to try where one of a layout does not divide what it splits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from launcher.convert.containers.errors import ConvertError
from launcher.records import dataclass

# Offers of one problem, and plans that are made for them.
_MOST = 2
_TRIES = 12

Changes = Mapping[str, int]
"""Fields of the layout to their sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that a size of the layout does not divide.

    Attributes:
        text: the message.
        field: the size, a field of the layout; `now` is its value (0: none).
        sizes: values that remove this problem, nearest first; the plan may fail with them for another reason.
    """

    text: str
    field: str
    now: int
    sizes: tuple[int, ...]


class Undivided(ConvertError):
    """A model that cannot be split according to a layout."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__([problem.text for problem in problems])
        self.undivided = problems

    def with_offers(self, attempt: Callable[[Changes], ConvertError | None]) -> ConvertError:
        """Return the error with the nearest sizes that work.

        Args:
            attempt: makes the plan with changed sizes; returns why there is none.
        """
        tried: dict[tuple[tuple[str, int], ...], ConvertError | None] = {}

        def once(changes: Changes) -> ConvertError | None:
            key = tuple(sorted(changes.items()))
            if key not in tried:
                tried[key] = attempt(changes)
            return tried[key]

        return ConvertError([problem.text + _offered(_working(problem, {}, once)) for problem in self.undivided])


def divisors(*counts: int) -> tuple[int, ...]:
    """Return what divides all of these counts."""
    return tuple(size for size in range(1, min(counts) + 1) if not any(count % size for count in counts))


def problem(text: str, field: str, now: int | None, sizes: Iterable[int]) -> Problem:
    """Return a problem; the sizes nearest to the present one are tried first."""
    others = sorted({size for size in sizes if size != now}, key=lambda size: (abs(size - (now or 0)), size))
    return Problem(text=text, field=field, now=now or 0, sizes=tuple(others[:_TRIES]))


def _working(
    problem: Problem, changed: Changes, attempt: Callable[[Changes], ConvertError | None]
) -> Iterator[Changes]:
    """Yield changes with which there is a plan; a size that uncovers another problem is changed with that one's."""
    for size in problem.sizes:
        changes = {**changed, problem.field: size}
        error = attempt(changes)
        if error is None:
            yield changes
        elif isinstance(error, Undivided) and error.undivided[0].field not in changes:
            yield from islice(_working(error.undivided[0], changes, attempt), 1)


def _offered(found: Iterator[Changes]) -> str:
    offers = sorted(islice(found, _MOST), key=lambda changes: list(changes.values()))
    shown = (" ".join(f"parallel.{field}={size}" for field, size in changes.items()) for changes in offers)
    text = " · ".join(shown)
    return f"; works: {text}" if text else ""
