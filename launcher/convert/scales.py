"""Checks the scales of FP8 weights.

DeepSeek-V3's layout (inference/kernel.py weight_dequant; `quantization_config` of its config.json): value = stored *
scale, one float32 scale for each 128 x 128 block, stored beside the weight as `NAME_scale_inv`. DeepSeek-V4's scales
are powers of two in a format of their own (`scale_fmt`: ue8m0). Without its scale a stored FP8 value is undefined up to
that factor, so a weight without scales is rejected for every target format.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import BLOCK
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.layouts.content import Content
from launcher.convert.spans import array

SCALE: Final = "_scale_inv"
FORMAT: Final = "F8_E4M3"
"""The number format of scaled weights, by safetensors' name."""
E8M0: Final = "F8_E8M0"
"""Powers of two: the exponent plus `E8M0_BIAS`; 255 is NaN."""
E8M0_BIAS: Final = 127
_SHOWN: Final = 3
# Times 448, the largest E4M3 value, this is the largest float32.
_LARGEST_SCALE: Final = 7.5e35


def scale_shape(shape: Iterable[int]) -> tuple[int, ...]:
    """Return the shape of a weight's scales."""
    return tuple(-(-size // BLOCK) for size in shape)


def wrong_scale(weight: Slot, scale: Slot) -> Iterator[str]:
    """Yield why a tensor cannot be the scales of a weight."""
    if weight.dtype != FORMAT:
        yield (
            f"{scale.path.name}: {scale.name} holds scales, and {weight.name} is {weight.dtype}: only {FORMAT} has"
            " scales; works: a folder without this tensor, if the weight is in full precision already"
        )
    elif len(weight.shape) != 2:
        yield f"{scale.path.name}: {scale.name}: blockwise scales of {list(weight.shape)} are read for matrices only"
    elif scale.shape != scale_shape(weight.shape) or scale.dtype not in ("F32", E8M0):
        yield (
            f"{scale.path.name}: {scale.name} is {scale.dtype} {list(scale.shape)}, expected F32"
            f" {list(scale_shape(weight.shape))}: one scale for each {BLOCK} x {BLOCK} block of {weight.name}"
            f" {list(weight.shape)}"
        )


def unscaled(contents: Iterable[Content], known: Iterable[str] = ()) -> list[str]:
    """Return the messages for FP8 weights without scales.

    Args:
        contents: stored tensors.
        known: names of tensors; scales among them are separate tensors, which need not be stored beside their weight.
    """
    names = frozenset(known)
    slots = [
        content.slot
        for content in contents
        if content.boxes
        and content.slot.dtype.startswith("F8")
        and content.scale is None
        and content.slot.name + SCALE not in names
    ]
    if not slots:
        return []
    shown = ", ".join(f"{slot.name} ({slot.dtype})" for slot in slots[:_SHOWN])
    more = f" and {len(slots) - _SHOWN} more" if len(slots) > _SHOWN else ""
    first = slots[0]
    return [
        f"{first.path.name}: FP8 without scales: {shown}{more}; expected {first.name}{SCALE}, F32"
        f" {list(scale_shape(first.shape))}; works: the complete release, or the model in bf16"
    ]


def scale_values(files: OpenFiles, scale: Slot) -> Any:
    """Return a weight's scales as floats.

    Raises:
        ConvertError: a scale is NaN, infinite, or so large that products with it overflow.
    """
    import numpy as np

    found = as_floats(array(files, scale), scale.dtype)
    # The comparison is also False for NaN.
    bad = int(np.count_nonzero(~(np.abs(found) <= _LARGEST_SCALE)))
    if bad:
        raise ConvertError(
            f"{scale.path.name}: {scale.name}: {bad} of {found.size} scales are NaN, infinite or too large to multiply"
            " with: the source is corrupt"
        )
    return found


def as_floats(words: Any, dtype: str) -> Any:
    """Return stored scales as float32: F32, or E8M0, whose powers of two it holds exactly."""
    import numpy as np

    if dtype != E8M0:
        return words.view("<f4")
    exponents = words.astype(np.int32) - E8M0_BIAS
    nan = exponents == E8M0_BIAS + 1
    return np.where(nan, np.float32(np.nan), np.ldexp(np.float32(1), np.where(nan, 0, exponents)))


def other_scheme(folder: Path) -> list[str]:
    """Return how the quantisation scheme in config.json beside scaled weights differs from the supported one."""
    file = folder / "config.json"
    if not file.is_file():
        return []
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return [f"{file} is not JSON"]
    found = tree.get("quantization_config") if isinstance(tree, dict) else None
    stated: Mapping[str, Any] = found if isinstance(found, dict) else {}
    wanted = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    return [
        f"{file}: quantization_config.{key} is {stated[key]!r}; FP8 weights are read with {value!r} only"
        for key, value in wanted.items()
        if stated.get(key, value) != value
    ]
