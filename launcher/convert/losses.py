"""Losses of a cast: how many values were rounded and by how much, became infinite, or were not finite before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, Final, TypeVar

from launcher.convert.casts import decode
from launcher.convert.layouts.content import Content
from launcher.records import dataclass

T = TypeVar("T")
# Elements compared at a time: few enough for a core's cache, as they are traversed several times.
_STEP: Final = 1 << 16
# Largest finite value of each number format.
LARGEST: Final[Mapping[str, float]] = {
    "F16": 65504.0,
    "BF16": 3.3895313892515355e38,
    "F32": 3.4028234663852886e38,
    "F64": 1.7976931348623157e308,
}
_WORDS: Final = {"F16": "fp16", "BF16": "bf16", "F32": "fp32"}
_SHOWN: Final = 3


@dataclass(slots=True, kw_only=True)
class Losses:
    """Counts of one tensor; mutable, since its thread adds to it block by block.

    Attributes:
        target: number format of the result.
        values: elements that were cast.
        nan, infinite: elements that were NaN or infinite before the cast.
        overflowed: finite elements that became infinite; `largest` is the largest of them, as an absolute value.
        rounded: finite elements whose value changed; `difference` is the largest change.
    """

    target: str = ""
    values: int = 0
    nan: int = 0
    infinite: int = 0
    overflowed: int = 0
    largest: float = 0.0
    rounded: int = 0
    difference: float = 0.0

    def count(self, before: Any, words: Any, dtype: str) -> None:
        """Add elements: `before` as floats, and their bit patterns after the cast to `dtype`."""
        self.target = dtype
        for part in _parts(before):
            self.compare(before[part], decode(words[part], dtype))

    def compare(self, before: Any, after: Any) -> None:
        """Add elements, both as floats."""
        import numpy as np

        with np.errstate(invalid="ignore", over="ignore"):
            change = np.abs(before - after)
        self.values += change.size
        top = change.max(initial=0)
        if not np.isfinite(top):
            top = self._odd(before, after, change)
        if top:
            self.rounded += int(np.count_nonzero(change))
            self.difference = max(self.difference, float(top))

    def _odd(self, before: Any, after: Any, change: Any) -> float:
        """Count non-finite values of either side, zero them in `change`, and return the largest remaining change."""
        import numpy as np

        finite = np.isfinite(before)
        self.nan += int(np.count_nonzero(np.isnan(before)))
        self.infinite += int(np.count_nonzero(np.isinf(before)))
        overflowing = finite & ~np.isfinite(after)
        count = int(np.count_nonzero(overflowing))
        if count:
            self.overflowed += count
            self.largest = max(self.largest, float(np.abs(before[overflowing]).max()))
        change[~finite | overflowing] = 0
        return float(change.max(initial=0))

    def add(self, other: Losses) -> None:
        """Add the counts of more elements."""
        both = total([self, other])
        for name in asdict(both):
            setattr(self, name, getattr(both, name))

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def _parts(values: Any) -> Iterable[Any]:
    """Return indices of parts of about `_STEP` elements, split along the first dimension."""
    if values.ndim == 0 or values.size <= _STEP:
        return [...]
    rows = max(1, _STEP * len(values) // values.size)
    return [slice(start, start + rows) for start in range(0, len(values), rows)]


def total(found: Iterable[Losses]) -> Losses:
    """Return the combined counts of several tensors."""
    every = list(found)
    return Losses(
        target=", ".join(sorted({one.target for one in every if one.values})),
        **{name: sum(getattr(one, name) for one in every) for name in ("values", "nan", "infinite", "overflowed")},
        rounded=sum(one.rounded for one in every),
        largest=max((one.largest for one in every), default=0.0),
        difference=max((one.difference for one in every), default=0.0),
    )


def label(content: Content) -> str:
    """Return the display name of a stored tensor: the logical tensors that it holds."""
    names = list(dict.fromkeys(box.logical for box in content.boxes))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more" if names else content.slot.name


def one_of_each(contents: Sequence[Content], found: Mapping[int, T]) -> dict[str, list[T]]:
    """Return findings in tensors by label; tensors with equal content count once.

    Args:
        contents: stored tensors.
        found: index of a stored tensor to its finding.
    """
    seen: set[object] = set()
    named: dict[str, list[T]] = {}
    for number in sorted(found):
        content = contents[number]
        held = tuple((box.logical, box.logical_at) for box in content.boxes) or number
        if held not in seen:
            seen.add(held)
            named.setdefault(label(content), []).append(found[number])
    return named


def named_losses(contents: Sequence[Content], found: Mapping[int, Losses]) -> dict[str, Losses]:
    """Return the counts of tensors by label, without repeated tensors."""
    return {name: total(parts) for name, parts in one_of_each(contents, found).items()}


def overflows(named: Mapping[str, Losses]) -> list[str]:
    """Return the messages for finite values out of range of the cast's target format; empty if there are none."""
    overflowing = {name: one for name, one in named.items() if one.overflowed}
    if not overflowing:
        return []
    whole = total(overflowing.values())
    limits = ", ".join(
        f"{name} holds up to {LARGEST[name]:.6g}" for name in whole.target.split(", ") if name in LARGEST
    )
    wider = [f"--dtype {word}" for name, word in _WORDS.items() if LARGEST[name] >= whole.largest]
    works = " · ".join([*(wider or ["without --dtype"]), "--allow-overflow (they become infinite)"])
    head = (
        f"{_plural(whole.overflowed, 'finite value')} in {_plural(len(overflowing), 'tensor')} would become infinite:"
        f" {limits}, the largest is {whole.largest:.6g}; works: {works}"
    )
    worst = sorted(overflowing.items(), key=lambda pair: (-pair[1].largest, pair[0]))
    return [
        head,
        *(f"{name}: {one.overflowed} of {one.values} do not fit, largest {one.largest:.6g}" for name, one in worst),
    ]


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Value statistics of a conversion.

    Attributes:
        cast: counts of all cast tensors; None if there are none.
        worst: tensor with the largest difference.
        nan, infinite: tensors with NaN or infinite values, and their counts.
        names: tensors that were cast.
        looked: whether tensors copied without a cast were also checked (verification does so).
    """

    cast: Losses | None = None
    worst: str | None = None
    nan: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    looked: bool = False

    @staticmethod
    def of(named: Mapping[str, Losses]) -> Values:
        """Return the statistics of cast tensors."""
        if not named:
            return Values()
        worst = max(named, key=lambda name: named[name].difference)
        return Values(
            cast=total(named.values()),
            worst=worst if named[worst].difference else None,
            nan={name: one.nan for name, one in named.items() if one.nan},
            infinite={name: one.infinite for name, one in named.items() if one.infinite},
            names=frozenset(named),
        )

    def with_copied(self, nan: Mapping[str, int], infinite: Mapping[str, int]) -> Values:
        """Return the statistics extended by the counts of copied tensors; those of cast tensors stay unchanged."""
        more = [{name: found[name] for name in found if name not in self.names} for found in (nan, infinite)]
        return replace(self, nan={**self.nan, **more[0]}, infinite={**self.infinite, **more[1]}, looked=True)

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        found: dict[str, Any] = {"cast": None, "nan": dict(self.nan), "infinite": dict(self.infinite)}
        if self.cast is not None:
            found["cast"] = {
                "to": self.cast.target,
                "values": self.cast.values,
                "rounded": self.cast.rounded,
                "largest_difference": self.cast.difference,
                "largest_difference_in": self.worst,
                "overflowed": self.cast.overflowed,
            }
        return {**found, "looked_through_copies": self.looked}

    def lines(self) -> list[str]:
        """Return the statistics as human-readable lines."""
        found = []
        if self.cast is not None and self.cast.rounded:
            found.append(f"  rounded  {rounding(self.cast)} ({self.worst})")
        elif self.cast is not None:
            found.append(f"  cast     {self.cast.values:,} values to {self.cast.target}, none was rounded")
        if self.cast is not None and self.cast.overflowed:
            found.append(f"  overflow {_plural(self.cast.overflowed, 'finite value')} became infinite")
        for label, named in (("NaN", self.nan), ("infinite", self.infinite)):
            if named:
                shown = ", ".join(list(named)[:_SHOWN]) + (" …" if len(named) > _SHOWN else "")
                count = _plural(sum(named.values()), "value")
                found.append(f"  {label:8} {count} in {_plural(len(named), 'tensor')}, as in the source: {shown}")
        return found


def rounding(found: Losses) -> str:
    """Return a readable summary of how many values were rounded and by how much."""
    return f"{found.rounded:,} of {found.values:,} values to {found.target}, largest difference {found.difference:.6g}"
