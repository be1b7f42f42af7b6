"""FP8 weights with blockwise scales, as in DeepSeek-V3: copied between Hugging Face folders, or quantised again.

A weight is stored as E4M3 values and one float32 scale for each 128 x 128 block: value = stored * scale, scale = the
block's largest value / 448 (DeepSeek-V3 inference/kernel.py weight_dequant, act_quant; the `quantization_config` of its
config.json). Megatron-core's checkpoints cannot hold them: its loader requires full precision (megatron-core 0.16.1
dist_checkpointing/serialization.py, force_all_tensors_to_non_fp8), as do the legacy formats and some stacks' own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import BLOCK, decode, dequantised, encode, word
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.containers.transfer import OpenFiles, write
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.logical import Logical
from launcher.convert.losses import Losses
from launcher.convert.move import Advance, values
from launcher.convert.plan import Move
from launcher.convert.scales import SCALE, as_floats, unscaled
from launcher.convert.slices import whole
from launcher.convert.spans import array, block, forget_slot, within

_LARGEST_F32: Final = 3.4028234663852886e38
LARGEST: Final = 448.0
"""The largest value of E4M3."""
CONFIG: Final = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [BLOCK, BLOCK],
}
"""`quantization_config` of DeepSeek-V3's own config.json."""
# The family whose FP8 layers are known without an FP8 release at hand.
_FAMILY: Final = "deepseek_v3"
# Elements quantised at a time, on each thread.
_BAND: Final = 1 << 20
# Linear layers that DeepSeek-V3 publishes in bf16: the router, and the projection of the MTP layer.
_PLAIN: Final = ("mlp.router.weight", "eh_proj.weight")


# --- FP8 kept unchanged ---


def with_scales(logical: Logical, stored: Stored, only: frozenset[str] | None = None) -> tuple[Logical, Stored]:
    """Return model and checkpoint with the scales as separate tensors, so that they are copied byte by byte.

    `only`: names of the scales to treat this way; None for all.
    """
    contents: list[Content] = []
    scales: dict[str, tuple[int, ...]] = {}
    for content in stored.contents:
        scale = content.scale
        if content.packed or (scale is not None and only is not None and scale.name not in only):
            contents.append(content)
            continue
        contents.append(dataclasses.replace(content, scale=None))
        if scale is not None and scale.name not in scales:
            scales[scale.name] = scale.shape
            contents.append(Content(slot=scale, boxes=(whole(scale.name, scale.shape),)))
    if not scales:
        return logical, stored
    widened = dataclasses.replace(logical, tensors={**logical.tensors, **scales})
    return widened, dataclasses.replace(stored, contents=tuple(contents))


# --- quantised again ---


def quantisable(logical: Logical) -> frozenset[str]:
    """Return the weights that DeepSeek-V3 stores in FP8: linear layers except embedding, output layer and router."""
    return frozenset(
        name
        for instance in logical.instances
        if instance.place not in ("embedding", "other")
        and instance.row.kind != "vocabulary"
        and instance.row.core not in _PLAIN
        for name, shape in zip(instance.logical, instance.shapes, strict=True)
        if len(shape) == 2 and min(shape) > 1 and instance.row.core.endswith(".weight")
    )


def stated(donor: Path | None) -> Mapping[str, Any] | None:
    """Return the `quantization_config` of a folder's config.json; None if there is none.

    Raises:
        ConvertError: it is not FP8 with a scale for each 128 x 128 block.
    """
    file = donor / "config.json" if donor is not None else None
    tree = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else {}
    found: Mapping[str, Any] | None = tree.get("quantization_config")
    if found is not None and found.get("scale_fmt", "float") != "float":
        raise ConvertError(
            f"--fp8: {file}: quantization_config.scale_fmt is {found['scale_fmt']!r}: FP8 weights with such scales are"
            " read, and written with float32 scales only; works: without --fp8"
        )
    for key in ("quant_method", "weight_block_size") if found is not None else ():
        value = found.get(key) if found is not None else None
        if value != CONFIG[key]:
            raise ConvertError(
                f"--fp8: {file}: quantization_config.{key} is {value!r}, and what would be written has {CONFIG[key]!r};"
                " works: --model, a folder whose config.json says so, or has no quantization_config"
            )
    return found


def to_quantise(logical: Logical, known: Mapping[str, Content], config: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the weights to store in FP8: those of a release of the model, or DeepSeek-V3's.

    Args:
        logical: the model.
        known: weights that a release stores in FP8.
        config: its `quantization_config`.

    Raises:
        ConvertError: it is unknown which layers of this family to store in FP8.
    """
    family = logical.model.model_type
    if family != _FAMILY and not (known and config):
        raise ConvertError(
            f"--fp8: the layers stored in FP8 are known for {_FAMILY} only, not for {family}; works: --model, the"
            " model's own release in FP8 (its weights, and config.json with quantization_config)"
        )
    left = tuple((config or {}).get("modules_to_not_convert") or ())
    return frozenset(known) or frozenset(
        name for name in quantisable(logical) if not any(module in name for module in left)
    )


def quantisation(logical: Logical, quantised: frozenset[str]) -> dict[str, Any]:
    """Return the `quantization_config` of a model: DeepSeek-V3's, and the linear layers that are not in FP8."""
    plain = sorted(name.removesuffix(".weight") for name in quantisable(logical) - quantised)
    return {**CONFIG, **({"modules_to_not_convert": plain} if plain else {})}


def originals(logical: Logical, whole_model: Logical, slots: Sequence[Slot]) -> Mapping[str, Content]:
    """Return the FP8 weights of another checkpoint of the model, by name; empty if it has none.

    Args:
        logical: the model to convert; it may lack layers of the other checkpoint (MTP).
        whole_model: the model of the other checkpoint's config.json.
        slots: tensors of the other checkpoint.

    Raises:
        ConvertError: it has FP8 weights, but does not match its config.json.
    """
    from launcher.convert.layouts.huggingface import huggingface_read

    if not any(slot.name.endswith(SCALE) for slot in slots):
        return {}
    try:
        _, stored = huggingface_read(whole_model, slots)
    except ConvertError as error:
        why = "--fp8: --model has weights in FP8, but cannot be read; works: a folder without weights, or a whole model"
        raise ConvertError([why, *error.problems]) from None
    return {
        content.boxes[0].logical: content
        for content in stored.contents
        if content.scale is not None and len(content.boxes) == 1 and content.boxes[0].logical in logical.tensors
    }


def quantise(
    files: OpenFiles,
    source: Sequence[Content],
    target: Content,
    moves: Sequence[Move],
    advance: Advance,
    original: Content | None = None,
    losses: Losses | None = None,
) -> None:
    """Write one weight in FP8, and its scales.

    Args:
        files: open files.
        source: contents that the moves read.
        target: the weight to write; its `scale` is the slot of the scales.
        moves: the moves that fill the weight.
        advance: callback with the number of bytes written.
        original: the same weight in FP8 before training; blocks with unchanged values are copied from it, so that
            untrained blocks stay identical to the byte.
        losses: counts of rounded values, updated in place.
    """
    slot, scale = target.slot, target.scale
    assert scale is not None
    for row, numbers, words, scales in _quantised(files, source, target, moves, original):
        if losses is not None:
            losses.target = slot.dtype
            losses.compare(numbers, dequantised(words, slot.dtype, scales, 0, 0))
        write(files, slot.path, slot.offset + row * slot.shape[1], [memoryview(words).cast("B")])
        at = scale.offset + row // BLOCK * scale.shape[1] * itemsize(scale.dtype)
        write(files, scale.path, at, [memoryview(scales).cast("B")])
        advance(words.size + scales.nbytes)
    _forget(files, source, moves, original)


def differing(
    files: OpenFiles,
    source: Sequence[Content],
    target: Content,
    moves: Sequence[Move],
    advance: Advance,
    original: Content | None = None,
) -> int:
    """Return how many FP8 values and scales of a weight differ from quantising its source."""
    import numpy as np

    assert target.scale is not None
    found, known = array(files, target.slot), array(files, target.scale)
    wrong = 0
    for row, _, words, scales in _quantised(files, source, target, moves, original):
        wrong += int(np.count_nonzero(found[row : row + len(words)] != words))
        first = row // BLOCK
        wrong += int(np.count_nonzero(known[first : first + len(scales)] != scales.view(known.dtype)))
        advance(words.size)
    forget_slot(files, target.slot)
    _forget(files, source, moves, original)
    return wrong


def _forget(files: OpenFiles, source: Sequence[Content], moves: Sequence[Move], original: Content | None) -> None:
    for number in {move.source for move in moves}:
        forget_slot(files, source[number].slot)
    if original is not None:
        forget_slot(files, original.slot)


def _quantised(
    files: OpenFiles, source: Sequence[Content], target: Content, moves: Sequence[Move], original: Content | None
) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield (first row, values, FP8 values, scales) of bands of whole blocks."""
    import numpy as np

    rows, columns = target.slot.shape
    dtype = source[moves[0].source].slot.dtype
    step = max(1, _BAND // (BLOCK * columns)) * BLOCK
    for row in range(0, rows, step):
        count = min(step, rows - row)
        words: Any = np.zeros((count, columns), word(itemsize(dtype)))
        for move in moves:
            found = within(move, (row, 0), (count, columns))
            if found is not None:
                box, part = found
                block(words, box, box.stored_at)[...] = values(files, source[part.source], part, dtype)
        numbers = decode(words, dtype)
        quantised, scales = quantised_block(numbers)
        if not np.isfinite(scales).all():
            raise ConvertError(_no_number(target.slot.name, numbers, row))
        if original is not None:
            _keep_equal(files, original, row, words, dtype, quantised, scales)
        yield row, numbers, quantised, scales


def _no_number(name: str, numbers: Any, row: int) -> str:
    """Return the message for values without an FP8 form; their scale would invalidate all values of the block."""
    import numpy as np

    count = int(np.count_nonzero(np.isnan(numbers)))
    with np.errstate(invalid="ignore"):
        beyond = np.abs(numbers) > np.float32(_LARGEST_F32)
    largest = float(np.abs(numbers[beyond]).max()) if beyond.any() else 0.0
    return (
        f"{name}: not a number or infinite in rows {row} to {row + len(numbers)}: {count} NaN,"
        f" {int(np.count_nonzero(beyond))} beyond float32{f' (largest {largest:.6g})' if largest else ''}: no FP8"
    )


def _keep_equal(
    files: OpenFiles, original: Content, row: int, words: Any, dtype: str, quantised: Any, scales: Any
) -> None:
    """Use the original's FP8 values and scale for each block whose values equal the dequantised original."""
    assert original.scale is not None
    known, own = array(files, original.slot), as_floats(array(files, original.scale), original.scale.dtype)
    band = known[row : row + len(words)]
    same = encode(dequantised(band, original.slot.dtype, own, row, 0), dtype) == words
    for i, j in _blocks(scales.shape):
        at = slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK)
        if same[at].all():
            quantised[at] = band[at]
            scales[i, j] = own[row // BLOCK + i, j]


def _blocks(shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(shape[0]) for j in range(shape[1]))


def quantised_block(numbers: Any) -> tuple[Any, Any]:
    """Return (E4M3 values, float32 scales) of a matrix: each 128 x 128 block by its largest value; zeros by 1.

    A block with a NaN or infinite value gets a NaN or infinite scale and undefined E4M3 values.
    """
    import numpy as np

    rows, columns = numbers.shape
    whole_rows, whole_columns = (-(-size // BLOCK) * BLOCK for size in (rows, columns))
    padded = np.zeros((whole_rows, whole_columns), np.float32)
    with np.errstate(over="ignore"):
        padded[:rows, :columns] = numbers
    cut = padded.reshape(whole_rows // BLOCK, BLOCK, whole_columns // BLOCK, BLOCK)
    largest = np.abs(cut).max(axis=(1, 3))
    scales = np.where(largest == 0, np.float32(1), largest / np.float32(LARGEST))
    # The scale of a block of tiny values underflows to zero: its values become zero in FP8.
    scales = np.where(scales == 0, np.float32(1), scales).astype(np.float32)
    with np.errstate(invalid="ignore"):
        cut /= scales[:, None, :, None]
    return np.ascontiguousarray(e4m3(padded)[:rows, :columns]), scales


def e4m3(numbers: Any) -> Any:
    """Return float32 values as E4M3, rounded to nearest even and saturated at 448."""
    import numpy as np

    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    sign = (bits >> np.uint32(24)).astype(np.uint8) & np.uint8(0x80)
    size = np.minimum(bits & np.uint32(0x7FFFFFFF), np.float32(LARGEST).view(np.uint32))
    # Normal: drops 20 mantissa bits, exponent bias changes from 127 to 7. Below 2**-6: multiples of 2**-9.
    normal = ((size + np.uint32(0x7FFFF) + ((size >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)) - np.uint32(960)
    small = np.rint(size.view(np.float32) * np.float32(512)).astype(np.uint32)
    return np.where(size < np.uint32(121 << 23), small, normal).astype(np.uint8) | sign


def check_source(stored: Stored, *, to_hf: bool, title: str, cast_to: str | None) -> list[str]:
    """Return why the FP8 weights of a source cannot be read or stored in a format."""
    problems = unscaled(stored.contents)
    if problems:
        return problems
    scaled = [content.slot for content in stored.contents if content.scale is not None and not content.packed]
    if not scaled or to_hf or cast_to is not None:
        return []
    return [
        f"{len(scaled)} tensors are FP8 with blockwise scales ({scaled[0].name} …), and {title} cannot hold them: what"
        " loads it asks for full precision; works: --dtype bf16, and mcore-to-hf --fp8 blockwise on the way back"
    ]
