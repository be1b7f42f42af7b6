"""Rewrites an adapter into a form that training stacks support: the same products of factors, at a higher rank.

A stack has one A for queries, keys and values (and for gate and up), one rank and one alpha for all layers, and factors
in every layer of a name. Adapters of other tools often differ. The products B @ A stay exactly the same if the
different A are stacked vertically, each B is placed in the columns of its own A, and the rest is zero.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import decode, encode, word
from launcher.convert.containers import safetensors
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import TensorSpec
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.logical import Logical
from launcher.convert.lora.adapter import CONFIG, WEIGHTS
from launcher.convert.lora.held import factor_words
from launcher.convert.lora.logical import A, B, Shared, adaptable, covered, without_unused_mtp
from launcher.convert.lora.logical import groups as modules_together
from launcher.convert.lora.peft import Survey, hf_targets, obstacles, same_factor, survey
from launcher.records import dataclass

_PREFIX: Final = "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Modules fused into one layer of a stack.

    Attributes:
        shapes: module to the shape of its weight.
        stacked: modules whose A are stacked, in order; the others have an equal A or no factors.
        at: module to the index of its A in `stacked`.
    """

    shapes: dict[str, tuple[int, ...]]
    stacked: tuple[str, ...]
    at: dict[str, int]


@contextmanager
def check_or_rewrite(
    folder: Path, base: Logical, rewritten: Path | None, *, shared: Shared = (), by_rank: bool = False
) -> Iterator[Path]:
    """Yield the folder of an adapter that a training stack supports: the given one, or a temporary equivalent.

    Args:
        folder: the PEFT adapter.
        base: its model.
        rewritten: path beside which an equivalent may be written to a temporary folder; None to forbid rewriting.
        shared: modules that the stack fuses into one layer.
        by_rank: the stack always scales by alpha / rank.

    Raises:
        ConvertError: it needs a rewrite and `rewritten` is None, or no exact rewrite exists.
    """
    found = survey(folder, base)
    groups = list(_groups(found, shared))
    _, missing = covered(without_unused_mtp(base, found.modules), found.modules)
    problems = obstacles(found, [tuple(group.shapes) for group in groups], missing)
    rank = max((_rank(found, group) for group in groups), default=0)
    if by_rank and found.rslora and not problems and _by_rank(found, rank).is_integer():
        problems = ["use_rslora: the stack always multiplies by alpha / rank"]
    if not problems:
        yield folder
        return
    if rewritten is None:
        raise ConvertError([*problems, f"works: --rewrite (an equal adapter of rank {rank}), or launch convert merge"])
    rewritten.parent.mkdir(parents=True, exist_ok=True)
    # A separate folder: the content of `rewritten` belongs to the user.
    own = Path(tempfile.mkdtemp(prefix=f".{rewritten.name}.", dir=rewritten.parent))
    try:
        _write(found, groups, own)
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _groups(found: Survey, shared: Shared) -> Iterator[_Group]:
    """Yield all stack layers of each name that has factors anywhere, including layers without any."""
    base = without_unused_mtp(found.base, found.modules)
    held = set(found.modules)
    layers = {part: instance for instance, parts in adaptable(base) for part in parts}
    used = {layers[module].row.core for module in held}
    for parts in modules_together(base, shared):
        if not any(layers[part].row.core in used for part in parts):
            continue
        stacked: list[str] = []
        at: dict[str, int] = {}
        for part in parts:
            if part not in held:
                continue
            equal = next(
                (place for place, other in enumerate(stacked) if same_factor(found, other + A, part + A)), None
            )
            at[part] = len(stacked) if equal is None else equal
            if equal is None:
                stacked.append(part)
        yield _Group(shapes={part: base.tensors[f"{part}.weight"] for part in parts}, stacked=tuple(stacked), at=at)


def _rank(found: Survey, group: _Group) -> int:
    return sum(found.scales[module][0] for module in group.stacked)


def _by_rank(found: Survey, rank: int) -> float:
    """Return the alpha that divided by the rank is the scale of all modules."""
    return max(map(found.scale, found.modules)) * rank


def _write(found: Survey, groups: Sequence[_Group], folder: Path) -> None:
    rank = max(_rank(found, group) for group in groups)
    scale = max(found.scale(module) for module in found.modules)
    _refuse_rounding(found, scale)
    (folder / CONFIG).write_text(json.dumps(_config(found, groups, rank, scale), indent=2) + "\n", encoding="utf-8")
    dtype = next(iter(found.factors.values())).slot.dtype
    specs = []
    for group in groups:
        for module, (rows, columns) in group.shapes.items():
            specs += [
                TensorSpec(name=f"{_PREFIX}{module}{A}", shape=(rank, columns), dtype=dtype),
                TensorSpec(name=f"{_PREFIX}{module}{B}", shape=(rows, rank), dtype=dtype),
            ]
    slots = safetensors.create_file(folder / WEIGHTS, sorted(specs, key=lambda spec: spec.name))
    places = {slot.name.removeprefix(_PREFIX): slot for slot in slots}
    descriptor = os.open(folder / WEIGHTS, os.O_RDWR)
    try:
        with OpenFiles() as files:
            for group in groups:
                for name, values in _factors(files, found, group, rank, scale, dtype):
                    os.pwrite(descriptor, values.tobytes(), places[name].offset)
    finally:
        os.close(descriptor)


def _factors(
    files: OpenFiles, found: Survey, group: _Group, rank: int, scale: float, dtype: str
) -> Iterator[tuple[str, Any]]:
    """Yield all rewritten factors of a group, as bit patterns."""
    import numpy as np

    kind = word(itemsize(dtype))
    columns = next(iter(group.shapes.values()))[1]
    a: Any = np.zeros((rank, columns), kind)
    starts, used = [], 0
    for module in group.stacked:
        own = found.scales[module][0]
        a[used : used + own] = _words(files, found, module + A, dtype)
        starts.append(used)
        used += own
    for module, (rows, _) in group.shapes.items():
        b: Any = np.zeros((rows, rank), kind)
        if module in group.at:
            start = starts[group.at[module]]
            own = found.scales[module][0]
            words = _words(files, found, module + B, dtype)
            b[:, start : start + own] = _scaled(words, found.scale(module) / scale, dtype, module)
        yield module + A, a
        yield module + B, b


def _words(files: OpenFiles, found: Survey, name: str, dtype: str) -> Any:
    held = found.factors[name]
    if held.slot.dtype != dtype:
        raise ConvertError(f"{found.folder / WEIGHTS}: {name} is {held.slot.dtype}, others are {dtype}")
    return factor_words(files, held)


def _scaled(words: Any, factor: float, dtype: str, module: str) -> Any:
    """Scale by a power of two; ConvertError if a value underflows, since the result would be inexact."""
    import numpy as np

    if factor == 1:
        return words
    values = decode(np.ascontiguousarray(words), dtype)
    found = encode(values * np.float32(factor), dtype)
    if not np.array_equal(decode(found, dtype) / np.float32(factor), values, equal_nan=True):
        raise ConvertError(
            f"{module}{B}: numbers so small that {dtype} cannot hold them times {factor:g}, so one alpha for all would"
            " round; works: launch convert merge"
        )
    return found


def _refuse_rounding(found: Survey, scale: float) -> None:
    """Raise ConvertError unless scales differ by powers of two only, which scaling B absorbs without rounding."""
    for module in found.modules:
        fraction, _ = math.frexp(found.scale(module) / scale)
        if abs(fraction - 0.5) > 1e-12:
            raise ConvertError(
                f"{module} is scaled by {found.scale(module):g}, others by {scale:g}: not a power of two apart,"
                " so one alpha for all would round; works: launch convert merge"
            )


def _config(found: Survey, groups: Sequence[_Group], rank: int, scale: float) -> dict[str, Any]:
    """Return the adapter's configuration, updated for the rewrite."""
    rslora = found.rslora and not (scale * rank).is_integer() and (scale * math.sqrt(rank)).is_integer()
    alpha = scale * (math.sqrt(rank) if rslora else rank)
    base = without_unused_mtp(found.base, found.modules)
    tree = {
        **found.config,
        "r": rank,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "use_rslora": rslora,
        "rank_pattern": {},
        "alpha_pattern": {},
        "target_modules": hf_targets(base, (module for group in groups for module in group.shapes)),
    }
    for name in ("target_parameters", "layers_to_transform", "layers_pattern", "exclude_modules"):
        if name in tree:
            tree[name] = None
    return tree
