"""Verifies a written checkpoint: reads it back, plans the reverse conversion, compares every byte with the source."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.fp8 import differing
from launcher.convert.layouts.content import Content
from launcher.convert.losses import one_of_each
from launcher.convert.move import Advance, in_parallel
from launcher.convert.plan import make_plan
from launcher.convert.progress import Progress
from launcher.convert.verify import Digest, Written, compare, padding_is_zero
from launcher.records import dataclass

if TYPE_CHECKING:
    from launcher.convert.conversion import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of a verification.

    Attributes:
        problems: differences, one sentence each; empty if every byte is correct.
        compared: bytes compared.
        seconds: duration.
        digests: XXH3 (128 bits) of each tensor of the target, by file and name.
        nan, infinite: target tensors with NaN or infinite values by label, and their counts.
    """

    problems: tuple[str, ...]
    compared: int
    seconds: float
    digests: Mapping[str, str] = field(default_factory=dict)
    nan: Mapping[str, int] = field(default_factory=dict)
    infinite: Mapping[str, int] = field(default_factory=dict)


def prove(
    prepared: Prepared, folder: Path, files: OpenFiles, written: Mapping[tuple[Path, int], Written], *, quiet: bool
) -> Proof:
    """Read the written checkpoint from scratch, and compare it with the source.

    First plans the reverse conversion, which reports everything that is missing in the target.

    Args:
        prepared: the conversion.
        folder: the written checkpoint.
        files: open files.
        written: digests of tensors, taken from the source's bytes as they were written, by file and position.
        quiet: show no progress.
    """
    asked, started = prepared.asked, time.monotonic()
    logical, stored = asked.target_format.read(folder, prepared.logical, asked.layout)
    problems: list[str] = []
    try:
        make_plan(stored.contents, prepared.stored.contents, logical.tensors)
    except ConvertError as error:
        problems.extend(error.problems)
    progress = Progress("verifying", prepared.bytes_read, quiet=quiet)
    names = {wanted.name for wanted in prepared.draft.wanted if wanted.scale is not None}
    # Those that were quantised last: they are compared in another way.
    contents = sorted(stored.contents, key=lambda content: content.slot.name in names)
    plain = sum(content.slot.name not in names for content in contents)
    digests = [Digest(content.slot.dtype) for content in contents]
    check = partial(compare, files=files, workers=asked.threads, advance=progress.advance, written=written)
    differences = check(prepared.stored.contents, contents[:plain], digests=digests[:plain])
    check((), contents[plain:], digests=digests[plain:])
    problems.extend(str(difference) for difference in differences)
    problems.extend(_wrongly_quantised(prepared, contents, files, progress.advance))
    problems.extend(
        f"{content.slot.name}: its padding is not zero" for content in contents if not padding_is_zero(files, content)
    )
    progress.finish()
    odd = {number: (one.nan, one.infinite) for number, one in enumerate(digests) if one.nan or one.infinite}
    named = one_of_each(contents, odd)
    labels = [f"{content.slot.path.relative_to(folder)}:{content.slot.name}" for content in contents]
    return Proof(
        problems=tuple(problems),
        compared=progress.done,
        seconds=time.monotonic() - started,
        digests=dict(sorted(zip(labels, map(str, digests), strict=True))),
        nan={name: count for name, parts in named.items() if (count := sum(nan for nan, _ in parts))},
        infinite={name: count for name, parts in named.items() if (count := sum(each for _, each in parts))},
    )


def _wrongly_quantised(prepared: Prepared, found: Sequence[Content], files: OpenFiles, advance: Advance) -> list[str]:
    """Quantise FP8 tensors again, and compare values and scales."""
    by_name = {content.slot.name: content for content in found}
    problems: list[str] = []

    def run(number: int, name: str) -> None:
        content = by_name.get(name)
        if content is None or content.scale is None:
            problems.append(f"{name}: no FP8 tensor with its scales")
            return
        moves = prepared.plan.moves[number]
        wrong = differing(files, prepared.stored.contents, content, moves, advance, prepared.original(number))
        if wrong:
            problems.append(f"{name}: {wrong} words and scales are not those of its source")

    wanted = [(number, one.name) for number, one in enumerate(prepared.draft.wanted) if one.scale is not None]
    in_parallel([lambda pair=pair: run(*pair) for pair in wanted], prepared.asked.threads)  # type: ignore[misc]
    return sorted(problems)
