"""Sweeps over many jobs (Hydra's multirun): lists, choice, range and glob, parsed by Hydra."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from launcher.budgets import BUDGETS, BeyondBudget, spend
from launcher.compose.compose import compose
from launcher.compose.errors import ComposeError, Mistake, first_line
from launcher.compose.nearby import with_nearby
from launcher.compose.overrides import (
    Override,
    check_fields,
    check_options,
    for_hydra,
    is_one_file,
    is_text,
    parse,
)
from launcher.compose.search_path import SearchPath, search_path

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as Parsed

# Suggestions for an open interval, which cannot be enumerated.
_INTERVAL_WORKS = ("FIELD=1e-5,3e-5,1e-4", "FIELD=range(1,5)", "FIELD=choice(a,b)")


def sweep(words: Sequence[str], config_dirs: Sequence[str] = ()) -> list[list[str]]:
    """Expand lists, `choice()`, `range()` and, for groups, `glob()` into the overrides of each job.

    The last override of a field applies; the first one varies slowest, as in Hydra's basic sweeper.

    Raises:
        ComposeError: a word is not an override, or cannot be enumerated.
    """
    places = search_path(config_dirs)
    overrides, mistakes = parse(list(words))
    mistakes += check_fields(overrides)
    axes: dict[str, list[str]] = {}
    for override in overrides:
        try:
            axes[override.key] = _values(override, places)
        except ComposeError as error:
            mistakes += error.mistakes
    if not mistakes:
        expanded, _ = parse([word for axis in axes.values() for word in axis])
        mistakes = check_options(expanded, places)
        # Of a sweep, the first job is composed.
        mistakes = with_nearby(mistakes, config_dirs, lambda folders: compose(sweep(words, folders)[0], folders))
    if mistakes:
        raise ComposeError(mistakes)
    spend("jobs", math.prod(map(len, axes.values())), "-m")
    return [list(combination) for combination in itertools.product(*axes.values())]


def _values(override: Override, places: SearchPath) -> list[str]:
    """Return one override per value of a sweep; the override itself if it is not a sweep."""
    parsed = _parsed(override)
    if parsed is None or not parsed.is_sweep_override():
        return [override.raw]
    if parsed.is_interval_sweep():
        works = tuple(word.replace("FIELD", override.key) for word in _INTERVAL_WORKS)
        raise ComposeError([Mistake(what=f"{override.key}: an interval has infinitely many values", works=works)])
    if _length(parsed) > BUDGETS["jobs"].limit:  # shuffle(range(…)) makes the whole list at once
        raise BeyondBudget("jobs", override.key)
    made = _globbed(override, parsed, places) if _is_glob(parsed) else _listed(override, parsed)
    try:
        values = list(itertools.islice(made, BUDGETS["jobs"].limit + 1))
    except (ValueError, TypeError, OverflowError) as error:  # range(0,1,0), range(0,inf)
        what = f"{override.key}: {first_line(error)}"
        raise ComposeError([Mistake(what=what, where=override.raw, works=(f"{override.key}=a,b",))]) from None
    if len(values) > BUDGETS["jobs"].limit:
        raise BeyondBudget("jobs", override.key)
    if not values:
        raise ComposeError([Mistake(what=f"{override.key}: no value fits", where=override.raw)])
    return [f"{override.sign}{override.key}={value}" for value in values]


def _parsed(override: Override) -> "Parsed | None":
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if override.sign == "~" or (override.is_group and is_one_file(override)):
        return None
    word = override.raw if override.is_group else for_hydra([override], multirun=True)[0][0]
    try:
        return OverridesParser.create().parse_override(word)
    except HydraException as error:
        raise ComposeError([Mistake(what=first_line(error), where=override.raw)]) from None


def _length(parsed: "Parsed") -> float:
    """Return how many values a `range()` has; 0 for other sweeps and for ranges that have none or no end."""
    from hydra.core.override_parser.types import RangeSweep

    value = parsed.value()
    if not isinstance(value, RangeSweep) or not value.step or value.start is None or value.stop is None:
        return 0
    length = (value.stop - value.start) / value.step
    return length if math.isfinite(length) else 0


def _is_glob(parsed: "Parsed") -> bool:
    from hydra.core.override_parser.types import ValueType

    return parsed.value_type == ValueType.GLOB_CHOICE_SWEEP


def _globbed(override: Override, parsed: "Parsed", places: SearchPath) -> Iterator[str]:
    if not override.is_group:
        works = (f"{override.key}=a,b",)
        what = f"{override.key}: glob() lists the files of a group, and this is a field"
        raise ComposeError([Mistake(what=what, where=override.raw, works=works)])
    names: list[str] = parsed.value().filter(places.options(override.key))  # type: ignore[union-attr]
    yield from names


def _listed(override: Override, parsed: "Parsed") -> Iterator[str]:
    """Yield values as a user would type them: without escapes, since text fields are taken as typed."""
    from hydra.core.override_parser.types import QuotedString, Transformer

    plain = override.is_group or is_text(override.key)

    def typed(value: Any) -> Any:
        if isinstance(value, str) and plain:
            return value
        return value.with_quotes() if isinstance(value, QuotedString) else Transformer.str(value)

    yield from map(str, parsed.sweep_iterator(transformer=typed))
