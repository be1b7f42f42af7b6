"""MXFP4 weights: 4-bit values in blocks of 32 with one scale each; read, never written.

gpt-oss: `NAME_blocks` has 16 bytes for each block, the first value of two in the lower half of its byte; `NAME_scales`
has the block's power of two, plus 127. Source: transformers 5.24.0 integrations/mxfp4.py:41 (FP4_VALUES), :229
(_convert_moe_packed_tensors), whose result is transposed afterwards: here it is read as it is stored.

Experts of DeepSeek-V4 beside weights in FP8: the same bytes as I8 under the weight's own name, without a dimension for
blocks, and scales as F8_E8M0. Source: transformers 5.24.0 integrations/finegrained_fp8.py:1121 (_unpack_fp4).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers.dtypes import MXFP4
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.layouts.content import Content
from launcher.convert.plan import Move
from launcher.convert.records import TensorSlice
from launcher.convert.scales import E8M0, E8M0_BIAS
from launcher.convert.slices import narrowed
from launcher.convert.spans import array, forget_slot

BLOCKS: Final = "_blocks"
SCALES: Final = "_scales"
PACKED: Final = "I8"
"""Number format that safetensors gives to pairs of 4-bit values under the weight's own name."""
_BLOCK: Final = 32
_BYTES: Final = 16
# Six, the largest value, times two to this power is the last product that float32 and bf16 hold. 255 is NaN (E8M0).
_LARGEST: Final = 125
_VALUES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def packed_content(
    blocks: Slot, scales: Slot | None, shape: tuple[int, ...], boxes: tuple[TensorSlice, ...]
) -> Content | str:
    """Return the content of a tensor in MXFP4, or why it cannot be read.

    Args:
        blocks, scales: its two stored tensors.
        shape: shape of its values.
        boxes: what they are.
    """
    if scales is None:
        return f"{blocks.path.name}: {blocks.name} (MXFP4) has no {blocks.name.removesuffix(BLOCKS)}{SCALES}"
    if shape[-1] % _BLOCK:
        return f"{blocks.path.name}: {blocks.name}: {shape[-1]} columns are not divisible by blocks of {_BLOCK}"
    wanted = (*shape[:-1], shape[-1] // _BLOCK)
    for slot, expected in ((blocks, (*wanted, _BYTES)), (scales, wanted)):
        if slot.shape != expected or slot.dtype != "U8":
            return (
                f"{slot.path.name}: {slot.name} is {slot.dtype} {list(slot.shape)}, expected U8 {list(expected)}:"
                f" MXFP4 of {list(shape)}"
            )
    return Content(slot=dataclasses.replace(blocks, dtype=MXFP4), boxes=boxes, scale=scales)


def beside_fp8(
    weight: Slot, scale: Slot | None, shape: tuple[int, ...], boxes: tuple[TensorSlice, ...]
) -> Content | str | None:
    """Return the content of a weight of two dimensions in MXFP4 under its own name, or why it cannot be read.

    None: it is not stored so.
    """
    if weight.dtype != PACKED or len(shape) != 2 or weight.shape != (shape[0], shape[1] // 2):
        return None
    rows, columns = shape
    if columns % _BLOCK:
        return f"{weight.path.name}: {weight.name}: {columns} columns are not divisible by blocks of {_BLOCK}"
    wanted = (rows, columns // _BLOCK)
    if scale is None:
        return f"{weight.path.name}: {weight.name} (MXFP4) has no scales, {E8M0} {list(wanted)}"
    if (scale.shape, scale.dtype) != (wanted, E8M0):
        return (
            f"{scale.path.name}: {scale.name} is {scale.dtype} {list(scale.shape)}, expected {E8M0} {list(wanted)}:"
            f" MXFP4 of {list(shape)}"
        )
    viewed = dataclasses.replace(weight, shape=(*wanted, _BYTES), dtype=MXFP4)
    return Content(slot=viewed, boxes=boxes, scale=scale)


def other_method(folder: Path) -> list[str]:
    """Return how `quantization_config` of a folder contradicts weights in MXFP4."""
    file = folder / "config.json"
    tree: Any = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    stated: Mapping[str, Any] = tree.get("quantization_config") or {}
    method = stated.get("quant_method", "mxfp4")
    return [] if method == "mxfp4" else [f"{file}: quantization_config.quant_method is {method!r}, weights are MXFP4"]


def note(count: int) -> str:
    """Return what the report says of weights in MXFP4."""
    return f"{count} tensors in MXFP4 (blocks of {_BLOCK} values with a scale) are read as their values, in bf16: exact"


def unpacked(files: OpenFiles, content: Content, move: Move) -> Any:
    """Return a move's source block as float32 values, in the logical tensor's orientation.

    Raises:
        ConvertError: a scale is NaN or too large.
    """
    import numpy as np

    assert content.scale is not None
    box = move.source_box
    runs = list(narrowed(box, move.region))
    columns = runs[-1]
    first, last = columns.start // _BLOCK, -(-(columns.start + columns.count) // _BLOCK)
    leading = tuple(slice(run.start, run.start + (run.count - 1) * run.step + 1, run.step) for run in runs[:-1])
    words = array(files, content.slot)[(*leading, slice(first, last))]
    exponents = array(files, content.scale)[(*leading, slice(first, last))].astype(np.int32) - E8M0_BIAS
    bad = int(np.count_nonzero(exponents > _LARGEST))
    if bad:
        raise ConvertError(
            f"{content.scale.path.name}: {content.scale.name}: {bad} of {exponents.size} scales are NaN or too large to"
            " multiply with: the source is corrupt"
        )
    values = _pairs()[words].reshape(*words.shape[:-1], _BLOCK)
    values *= np.ldexp(np.float32(1), exponents)[..., None]
    flat = values.reshape(*words.shape[:-2], -1)
    start = columns.start - first * _BLOCK
    forget_slot(files, content.scale)
    dims = len(box.logical_at)
    found = flat[..., start : start + columns.count].reshape(tuple(run.count for run in runs[-dims:]))
    return found.swapaxes(-1, -2) if box.transposed else found


@cache
def _pairs() -> Any:
    """Return the two values of each byte: [256, 2] float32."""
    import numpy as np

    values = np.array([*_VALUES, *(-value for value in _VALUES)], np.float32)
    codes = np.arange(256)
    return np.stack([values[codes & 15], values[codes >> 4]], axis=-1)
