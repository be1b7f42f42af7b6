"""FP8 weights with blockwise scales, as DeepSeek-V3 publishes them: kept between Hugging Face folders, or made anew.

A weight is stored as E4M3 words and one float32 scale for each 128 x 128 block: value = word * scale, scale = the
block's largest value / 448 (DeepSeek-V3 inference/kernel.py weight_dequant, act_quant; the `quantization_config` of its
config.json). Megatron-core's checkpoints cannot hold them: its loader asks for full precision (megatron-core 0.16.1
dist_checkpointing/serialization.py, force_all_tensors_to_non_fp8), and so do the legacy ones and some stacks' own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launcher.convert.casts import BLOCK, decode, dequantised, encode, word
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.transfer import OpenFiles, write
from launcher.convert.errors import ConvertError
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.logical import Logical
from launcher.convert.losses import Losses
from launcher.convert.move import Advance, values
from launcher.convert.plan import Move
from launcher.convert.records import Slot
from launcher.convert.scales import SCALE, unscaled
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
# The family whose layers in FP8 are known without a release that has them so.
_FAMILY: Final = "deepseek_v3"
# Elements quantised at a time, on each thread.
_BAND: Final = 1 << 20
# Linear layers that DeepSeek-V3 publishes in bf16: whom a token goes to, and the projection of its MTP layer.
_PLAIN: Final = ("mlp.router.weight", "eh_proj.weight")


# --- kept as they are ---


def with_scales(logical: Logical, stored: Stored, only: frozenset[str] | None = None) -> tuple[Logical, Stored]:
    """Return model and checkpoint with the scales as tensors of their own: a copy then keeps them, byte by byte.

    `only`: names of the scales to treat so; None: all.
    """
    contents: list[Content] = []
    scales: dict[str, tuple[int, ...]] = {}
    for content in stored.contents:
        scale = content.scale
        if scale is not None and only is not None and scale.name not in only:
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


# --- made anew ---


def quantisable(logical: Logical) -> frozenset[str]:
    """Return the weights that DeepSeek-V3 has in FP8: linear layers, without embedding, output layer and router."""
    return frozenset(
        name
        for instance in logical.instances
        if instance.place != "embedding" and instance.row.kind != "vocabulary" and instance.row.core not in _PLAIN
        for name, shape in zip(instance.logical, instance.shapes, strict=True)
        if len(shape) == 2 and min(shape) > 1 and instance.row.core.endswith(".weight")
    )


def stated(donor: Path | None) -> Mapping[str, Any] | None:
    """Return the `quantization_config` of a folder's config.json; None where there is none.

    Raises:
        ConvertError: it says something else than FP8 with a scale for each 128 x 128 block.
    """
    file = donor / "config.json" if donor is not None else None
    tree = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.is_file() else {}
    found: Mapping[str, Any] | None = tree.get("quantization_config")
    for key in ("quant_method", "weight_block_size") if found is not None else ():
        value = found.get(key) if found is not None else None
        if value != CONFIG[key]:
            raise ConvertError(
                f"--fp8: {file}: quantization_config.{key} is {value!r}, and what would be written has {CONFIG[key]!r};"
                " works: --model, a folder whose config.json says so, or has no quantization_config"
            )
    return found


def to_quantise(logical: Logical, known: Mapping[str, Content], config: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the weights to store in FP8: those that a release of the model has so, or DeepSeek-V3's.

    Args:
        logical: the model.
        known: weights that a release has in FP8.
        config: its `quantization_config`.

    Raises:
        ConvertError: nothing says which layers of this family are to be in FP8.
    """
    family = logical.model.model_type
    if family != _FAMILY and not (known and config):
        raise ConvertError(
            f"--fp8: which layers are stored in FP8 is known of {_FAMILY} only, not of {family}; works: --model, the"
            " model's own release in FP8 (its weights, and config.json with quantization_config)"
        )
    left = tuple((config or {}).get("modules_to_not_convert") or ())
    return frozenset(known) or frozenset(
        name for name in quantisable(logical) if not any(module in name for module in left)
    )


def quantisation(logical: Logical, quantised: frozenset[str]) -> dict[str, Any]:
    """Return the `quantization_config` of a model: DeepSeek-V3's, and which of its linear layers are not in FP8."""
    plain = sorted(name.removesuffix(".weight") for name in quantisable(logical) - quantised)
    return {**CONFIG, **({"modules_to_not_convert": plain} if plain else {})}


def originals(logical: Logical, whole_model: Logical, slots: Sequence[Slot]) -> Mapping[str, Content]:
    """Return weights of another checkpoint of the model that are stored in FP8, by name; nothing if it has none.

    Args:
        logical: the model that is converted; it may lack layers of the other one (MTP).
        whole_model: the other one, as its config.json says.
        slots: tensors of the other one.

    Raises:
        ConvertError: it has weights in FP8, and is not the checkpoint that its config.json says.
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
        source: what the moves take from.
        target: where to; its `scale` is where the scales go.
        moves: where its values come from.
        advance: is told the bytes as they are written.
        original: the same weight in FP8, as it was before training: its blocks are taken as they are where their
            values are still the same, so that what was not trained comes back to the byte.
        losses: where rounded values are counted.
    """
    slot, scale = target.slot, target.scale
    assert scale is not None
    for row, numbers, words, scales in _quantised(files, source, target, moves, original):
        if losses is not None:
            losses.target = slot.dtype
            losses.compare(numbers, dequantised(words, slot.dtype, scales, 0, 0))
        write(files, slot.path, slot.offset + row * slot.shape[1], memoryview(words).cast("B"))
        at = scale.offset + row // BLOCK * scale.shape[1] * itemsize(scale.dtype)
        write(files, scale.path, at, memoryview(scales).cast("B"))
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
    """Return how many words and scales of a weight are not those that its source gives."""
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
    """Yield (first row, values, words, scales) of bands of whole blocks."""
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
    """Say which values have no FP8: they would be 448 times the scale, and so would all others of their block."""
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
    """Put the original's words and scales where a block's values are exactly those that it gives."""
    assert original.scale is not None
    known, own = array(files, original.slot), array(files, original.scale).view("<f4")
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
    """Return (E4M3 words, float32 scales) of a matrix: each 128 x 128 block by its largest value; zeros by 1.

    A block with a number that is none, or infinite, has such a scale, and words without meaning.
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
    # A block of numbers so small that its scale is none: its values are zero to FP8.
    scales = np.where(scales == 0, np.float32(1), scales).astype(np.float32)
    with np.errstate(invalid="ignore"):
        cut /= scales[:, None, :, None]
    return np.ascontiguousarray(e4m3(padded)[:rows, :columns]), scales


def e4m3(numbers: Any) -> Any:
    """Return float32 values as E4M3 words, rounded to nearest even; larger ones than 448 are 448."""
    import numpy as np

    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    sign = (bits >> np.uint32(24)).astype(np.uint8) & np.uint8(0x80)
    size = np.minimum(bits & np.uint32(0x7FFFFFFF), np.float32(LARGEST).view(np.uint32))
    # Normal: 20 bits of the mantissa go, the exponent's bias falls from 127 to 7. Below 2**-6: multiples of 2**-9.
    normal = ((size + np.uint32(0x7FFFF) + ((size >> np.uint32(20)) & np.uint32(1))) >> np.uint32(20)) - np.uint32(960)
    small = np.rint(size.view(np.float32) * np.float32(512)).astype(np.uint32)
    return np.where(size < np.uint32(121 << 23), small, normal).astype(np.uint8) | sign


def check_source(stored: Stored, *, to_hf: bool, title: str, cast_to: str | None) -> list[str]:
    """Return why FP8 weights of a source cannot be read, or kept in a format."""
    problems = unscaled(stored.contents)
    if problems:
        return problems
    scaled = [content.slot for content in stored.contents if content.scale is not None]
    if not scaled or to_hf or cast_to is not None:
        return []
    return [
        f"{len(scaled)} tensors are FP8 with blockwise scales ({scaled[0].name} …), and {title} cannot hold them: what"
        " loads it asks for full precision; works: --dtype bf16, and mcore-to-hf --fp8 blockwise on the way back"
    ]
