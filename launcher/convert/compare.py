"""Compares two checkpoints of one model, whatever their formats and layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from launcher.convert.containers.dtypes import nbytes
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.formats import format_in
from launcher.convert.formats.format import Layout
from launcher.convert.fp8 import with_scales
from launcher.convert.layouts.content import Stored
from launcher.convert.logical import Logical, logical_model
from launcher.convert.lora.alone import side_by_side
from launcher.convert.lora.formats import adapter_in
from launcher.convert.lora.logical import different_scales
from launcher.convert.lora.peft import FORMAT as PEFT
from launcher.convert.losses import Losses, total
from launcher.convert.move import thread_count
from launcher.convert.plan import make_plan
from launcher.convert.progress import Progress, size
from launcher.convert.scales import unscaled
from launcher.convert.verify import compare
from launcher.job.model import Model
from launcher.records import dataclass
from launcher.terminal import duration

_SHOWN = 20


Outcome = Literal["equal", "equal_after_rounding", "different"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of comparing two checkpoints.

    Attributes:
        left, right: the checkpoints.
        problems: differences, one sentence each.
        rounded: losses of the cast from one checkpoint's number format to the other's, by logical tensor.
        compared: bytes compared.
        seconds: duration.
    """

    left: str
    right: str
    problems: tuple[str, ...]
    compared: int
    seconds: float
    rounded: Mapping[str, Losses] = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """Whether all values are equal, equal after rounding to the other side's number format, or different."""
        if self.problems:
            return "different"
        return "equal_after_rounding" if any(one.rounded for one in self.rounded.values()) else "equal"

    @property
    def same(self) -> bool:
        """Whether both checkpoints hold the same values."""
        return self.outcome == "equal"

    @property
    def rounding(self) -> dict[str, Any] | None:
        """Return the count and largest size of rounding differences as plain data; None if there are none."""
        found = {name: one for name, one in self.rounded.items() if one.rounded}
        if not found:
            return None
        every = total(self.rounded.values())
        return {
            "to": total(found.values()).target,
            "tensors": len(found),
            "rounded": every.rounded,
            "values": every.values,
            "largest_difference": every.difference,
            "largest_difference_in": max(found, key=lambda name: found[name].difference),
        }

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "ok": self.same,
            "outcome": self.outcome,
            "left": self.left,
            "right": self.right,
            "problems": list(self.problems),
            "rounding": self.rounding,
            "compared_bytes": self.compared,
            "seconds": round(self.seconds, 3),
        }

    def lines(self) -> list[str]:
        """Return the result as human-readable lines."""
        done = f"compared {size(self.compared)} in {duration(self.seconds)}"
        both, cast = f"{self.left} and {self.right}", total(self.rounded.values())
        if self.outcome == "equal":
            how = f"every value, in other number formats ({cast.target})" if cast.values else "every byte"
            return [f"{both} hold the same weights, {how} ({done})"]
        if self.outcome == "equal_after_rounding":
            found = self.rounding or {}
            return [
                f"{both} are equal after rounding to {found['to']}, largest difference"
                f" {found['largest_difference']:.6g} in {found['largest_difference_in']}:"
                f" {found['rounded']:,} of {found['values']:,} values differ ({done})"
            ]
        more = [f"  … and {len(self.problems) - _SHOWN} more"] if len(self.problems) > _SHOWN else []
        shown = [f"  {problem}" for problem in self.problems[:_SHOWN]]
        return [f"{both} are not the same ({done}):", *shown, *more]


def _read_both(left: Path, right: Path, base: Logical) -> tuple[Mapping[str, Any], Stored, Stored, list[str]]:
    """Return the logical tensors, both sides' contents, and other differences; adapters compare to adapters only."""
    adapters = [adapter_in(path) for path in (left, right)]
    if None in adapters and any(adapters):
        raise ConvertError(f"{left if adapters[0] else right} is an adapter, the other one is a model")
    if None in adapters:
        read_as, found = zip(*(format_in(path).read(path, base, Layout()) for path in (left, right)), strict=True)
        # With layers that config.json does not mention.
        base = max((base, *read_as), key=lambda each: len(each.tensors))
        problems = [problem for stored in found for problem in unscaled(stored.contents)]
        if problems:
            raise ConvertError(problems)
        return _with_common_scales(base, found[0], found[1])
    # A training stack's adapter first: it defines which modules share one layer.
    order = sorted((0, 1), key=lambda place: adapters[place] is PEFT)
    logical: Logical = base
    read: dict[int, tuple[Logical, Stored]] = {}
    for place in order:
        form, path = adapters[place], (left, right)[place]
        assert form is not None
        logical, stored = form.read(path, logical, Layout())
        read[place] = logical, stored
    return logical.tensors, read[0][1], read[1][1], different_scales(read[0][0], read[1][0])


def _with_common_scales(
    base: Logical, left: Stored, right: Stored
) -> tuple[Mapping[str, Any], Stored, Stored, list[str]]:
    """If both sides hold a weight in FP8, compare its scales like any other tensor."""
    names = [{content.scale.name for content in each.contents if content.scale is not None} for each in (left, right)]
    common = frozenset(names[0] & names[1])
    logical, ours = with_scales(base, left, common)
    _, theirs = with_scales(base, right, common)
    return logical.tensors, ours, theirs, []


def between(
    left: Path, right: Path, model: Model | None, *, workers: int | None = None, quiet: bool = False
) -> Comparison:
    """Compare two checkpoints.

    Args:
        model: their model; None if both are PEFT adapters, which are compared name by name.

    Raises:
        ConvertError: a checkpoint does not match the model's config.json.
        ContainerError: a file is damaged.
    """
    tensors, ours, theirs, problems = (
        side_by_side(left, right) if model is None else _read_both(left, right, logical_model(model))
    )
    for source, target in ((ours, theirs), (theirs, ours)):
        try:
            held = {box.logical for content in (*source.contents, *target.contents) for box in content.boxes}
            make_plan(source.contents, target.contents, {name: tensors[name] for name in tensors if name in held})
        except ConvertError as error:
            problems.extend(error.problems)
    progress = Progress("comparing", sum(nbytes(content.slot) for content in ours.contents), quiet=quiet)
    rounded, threads = dict[str, Losses](), thread_count(workers)
    with OpenFiles() as files:
        differences = compare(
            ours.contents,
            theirs.contents,
            files=files,
            workers=threads,
            advance=progress.advance,
            rounded=rounded,
        )
    problems.extend(str(difference) for difference in differences)
    seconds = progress.finish()
    return Comparison(
        left=str(left),
        right=str(right),
        problems=tuple(dict.fromkeys(problems)),
        compared=progress.done,
        seconds=seconds,
        rounded=rounded,
    )
