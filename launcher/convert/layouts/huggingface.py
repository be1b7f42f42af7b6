"""Hugging Face checkpoints as a layout: the logical tensors, their copies, and alternative layer names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.layouts.content import Content, Stored, Wanted
from launcher.convert.logical import Logical, prefix_in, with_mtp, with_others, without_mtp
from launcher.convert.mxfp4 import BLOCKS, PACKED, SCALES, beside_fp8, packed_content
from launcher.convert.records import TensorSlice
from launcher.convert.scales import SCALE, unscaled, wrong_scale
from launcher.convert.slices import flipped, rows, stacked, whole
from launcher.families.weights import Spelling
from launcher.nearest import nearest
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    shape: tuple[int, ...]
    boxes: tuple[TensorSlice, ...]
    packed: bool = False


def huggingface_wanted(logical: Logical) -> list[Wanted]:
    """Return the tensors of a Hugging Face checkpoint of the model, one per expert where the family stores them so."""
    fused = dict(_fused(logical))
    inside = {box.logical for meaning in fused.values() for box in meaning.boxes}
    named = {name: name for name in logical.tensors if name not in inside}
    named.update({name: copy.of for name, copy in logical.copies.items() if copy.written})
    found = []
    for name in sorted((*named, *fused), key=_natural):
        meaning = fused.get(name) or _whole(named[name], logical.tensors[named[name]])
        found.append(Wanted(name=name, shape=meaning.shape, boxes=meaning.boxes))
    return found


def _whole(name: str, shape: tuple[int, ...]) -> _Meaning:
    return _Meaning(shape=shape, boxes=(whole(name, shape),))


def _fused(logical: Logical) -> Iterator[tuple[str, _Meaning]]:
    """Yield the tensors that the family stores in another way than one for each canonical name."""
    for spelling in logical.family.spellings:
        for number in _written(logical, spelling):
            meaning = _spelled(logical, prefix_in(logical, number), spelling)
            if meaning is not None:
                yield prefix_in(logical, number) + spelling.stored, meaning


def huggingface_read(logical: Logical, slots: Sequence[Slot]) -> tuple[Logical, Stored]:
    """Return the model without missing layers, and the contents of a Hugging Face checkpoint.

    Raises:
        ConvertError: tensors that the model does not have, or with a wrong shape.
    """
    notes: list[str] = []
    slots = _usually_named(logical, slots)
    logical = _with_others(_as_stored(logical, slots, notes), slots, notes)
    by_name = {slot.name: slot for slot in slots}
    meanings: dict[str, _Meaning] = {}
    for name, spelled in _meanings(logical, by_name):
        # The same name may be spelled in two ways, which shapes tell apart; else it is the first one.
        known, held = meanings.get(name), by_name.get(name)
        if known is None or (held is not None and held.shape == spelled.shape != known.shape):
            meanings[name] = spelled
    contents: list[Content] = []
    problems: list[str] = []
    dropped: dict[str, str] = {}
    for slot in slots:
        meaning = meanings.get(slot.name)
        if meaning is None and slot.name.endswith(SCALE) and slot.name.removesuffix(SCALE) in meanings:
            weight = by_name.get(slot.name.removesuffix(SCALE))
            if weight is not None and weight.dtype == PACKED:
                continue
            problems.extend(wrong_scale(weight, slot) if weight is not None else [_without_weight(slot)])
            continue
        if meaning is None and slot.name.removesuffix(SCALES) + BLOCKS in meanings:
            continue
        if meaning is None:
            reason = _ignored(logical, slot.name)
            if reason is None:
                problems.append(_unknown(logical, slot))
            else:
                dropped[slot.name] = reason
            continue
        if meaning.packed:
            found = packed_content(
                slot, by_name.get(slot.name.removesuffix(BLOCKS) + SCALES), meaning.shape, meaning.boxes
            )
            (problems if isinstance(found, str) else contents).append(found)  # type: ignore[arg-type]
            continue
        fp4 = beside_fp8(slot, by_name.get(slot.name + SCALE), meaning.shape, meaning.boxes)
        if fp4 is not None:
            (problems if isinstance(fp4, str) else contents).append(fp4)  # type: ignore[arg-type]
            continue
        if slot.shape != meaning.shape:
            problems.append(
                f"{slot.path.name}: {slot.name} has shape {list(slot.shape)}, config.json has {list(meaning.shape)}"
            )
            continue
        # Scales that are separate logical tensors are copied unchanged.
        scale = None if slot.name + SCALE in logical.tensors else by_name.get(slot.name + SCALE)
        contents.append(Content(slot=slot, boxes=meaning.boxes, scale=scale))
    problems.extend(unscaled(contents, logical.tensors))
    problems.extend(_missing(logical, contents))
    # Originals before their copies: the first holder of a tensor is the one that is read.
    contents.sort(key=lambda content: content.slot.name in logical.copies)
    if problems:
        raise ConvertError(problems)
    return logical, Stored(contents=tuple(contents), dropped=dropped, notes=tuple(notes))


def _usually_named(logical: Logical, slots: Sequence[Slot]) -> Sequence[Slot]:
    family = logical.family
    if not family.aliases and (family.enclosing is None or not family.enclosing.aliases):
        return slots
    stored: dict[str, str] = {}
    for slot in slots:
        name = family.usual(slot.name)
        if stored.setdefault(name, slot.name) != slot.name:
            raise ConvertError(f"{slot.path}: {stored[name]} and {slot.name} are two names of one tensor")
    return [replace(slot, name=family.usual(slot.name)) for slot in slots]


def _with_others(logical: Logical, slots: Iterable[Slot], notes: list[str]) -> Logical:
    """Add the tensors of the modules beside a language model: a vision tower is copied, whatever it holds."""
    enclosing = logical.family.enclosing
    if enclosing is None:
        return logical
    found = {slot.name: slot.shape for slot in slots if enclosing.other(slot.name) is not None}
    notes += [
        f"the files hold no tensor {prefix}*: the checkpoint has the language model only"
        for prefix in enclosing.others
        if not any(name.startswith(prefix) for name in found)
    ]
    return with_others(logical, found)


def _layer(logical: Logical) -> re.Pattern[str]:
    """Return the pattern of names in layers: their number, and the name inside."""
    return re.compile(re.escape(logical.family.named("model.layers.")) + r"(\d+)\.(.+)")


def _as_stored(logical: Logical, slots: Iterable[Slot], notes: list[str]) -> Logical:
    """Drop MTP layers that the files lack (transformers' DeepSeek-V3); add those that no key of config.json counts."""
    count, names = logical.model.num_nextn_predict_layers, logical.family.mtp_names
    if names is not None:
        inner = re.compile(re.escape(names[1]).replace(r"\{layer\}", r"(\d+)") + ".+")
        held = {int(found[1]) + 1 for slot in slots if (found := inner.fullmatch(slot.name))}
        return _with_as_many(logical, max(held, default=0), notes)
    first = logical.model.num_hidden_layers or 0
    layer = _layer(logical)
    numbers = {int(found[1]) for slot in slots if (found := layer.fullmatch(slot.name))}
    if count and not any(number >= first for number in numbers):
        notes.append(f"config.json has {count} MTP layer(s), the files hold none: converted without")
        return without_mtp(logical)
    return logical


def _with_as_many(logical: Logical, held: int, notes: list[str]) -> Logical:
    count = logical.model.num_nextn_predict_layers
    if held and not count:
        notes.append(f"{held} MTP layer(s), which config.json does not mention: model.num_nextn_predict_layers={held}")
    elif count and not held:
        notes.append(f"{count} MTP layer(s) are asked for, the files hold none: converted without")
    return logical if held == count else with_mtp(logical, held)


def _meanings(logical: Logical, present: Mapping[str, Slot]) -> Iterator[tuple[str, _Meaning]]:
    for name, shape in logical.tensors.items():
        yield name, _whole(name, shape)
    for name, copy in logical.copies.items():
        shape = logical.tensors[copy.of]
        yield name, _whole(copy.of, shape)
    for spelling in logical.family.spellings:
        for number in _layers(logical):
            name = prefix_in(logical, number) + spelling.stored
            if name in present and name not in logical.tensors:
                meaning = _spelled(logical, prefix_in(logical, number), spelling)
                if meaning is not None:
                    yield name, meaning
            packed = replace(spelling, transposed=False) if spelling.mxfp4 and name + BLOCKS in present else None
            meaning = _spelled(logical, prefix_in(logical, number), packed) if packed is not None else None
            if meaning is not None:
                yield name + BLOCKS, replace(meaning, packed=True)


def _written(logical: Logical, spelling: Spelling) -> range:
    """Return the layers that are written in a spelling."""
    if not spelling.written:
        return range(0)
    return _layers(logical) if spelling.in_mtp else range(logical.model.num_hidden_layers or 0)


def _layers(logical: Logical) -> range:
    return range((logical.model.num_hidden_layers or 0) + logical.model.num_nextn_predict_layers)


def _spelled(logical: Logical, prefix: str, spelling: Spelling) -> _Meaning | None:
    """Return the content of a fused tensor: experts as the first dimension, then parts one after the other."""
    per_expert, count = "{expert}" in spelling.parts[0], len(spelling.parts)
    experts = range(logical.model.num_experts or 0) if per_expert else range(1)
    boxes = []
    shape: tuple[int, ...] = ()
    for expert in experts:
        at = 0
        for index, part in enumerate(spelling.parts):
            name = prefix + part.replace("{expert}", str(expert))
            if name not in logical.tensors:
                return None
            shape = logical.tensors[name]
            first, step = (index, count) if spelling.interleaved else (at, 1)
            box = rows(name, shape, 0, shape[0], stored_first=first, step=step)
            box = flipped(box) if spelling.transposed else box
            boxes.append(stacked(box, expert) if per_expert else box)
            at += shape[0]
    inner = (count * shape[0], *shape[1:])
    inner = (*inner[:-2], inner[-1], inner[-2]) if spelling.transposed else inner
    return _Meaning(shape=(len(experts), *inner) if per_expert else inner, boxes=tuple(boxes))


def _ignored(logical: Logical, name: str) -> str | None:
    for pattern, reason in (logical.family.ignored or {}).items():
        if re.fullmatch(pattern, name):
            return reason
    return None


def _unknown(logical: Logical, slot: Slot) -> str:
    layer = _layer(logical).fullmatch(slot.name)
    layers = len(_layers(logical))
    if layer and int(layer[1]) >= layers:
        why = f"config.json has {layers} layers (num_hidden_layers + num_nextn_predict_layers)"
    elif f"model.{slot.name}" in logical.tensors:
        why = f"expected as model.{slot.name} (saved from the class without a head?)"
    else:
        near = nearest(slot.name, logical.tensors, limit=1, cutoff=0.85)
        hint = f"; nearest: {near[0]}" if near else ""
        why = f"a {logical.model.model_type} model of this config.json has no such tensor{hint}"
    return f"{slot.path.name}: {slot.name} {list(slot.shape)}: {why}"


def _missing(logical: Logical, contents: Iterable[Content]) -> list[str]:
    held: dict[str, int] = dict.fromkeys(logical.tensors, 0)
    for content in contents:
        for box in content.boxes:
            held[box.logical] = max(held[box.logical], math.prod(count for _, count in box.logical_at))
    return [
        f"{name} {list(logical.tensors[name])} is missing: the model of config.json has it"
        for name, count in held.items()
        if count == 0
    ]


def _without_weight(scale: Slot) -> str:
    return f"{scale.path.name}: {scale.name} holds scales, and {scale.name.removesuffix(SCALE)} is missing"


def _natural(name: str) -> tuple[int | str, ...]:
    """Sort key in which layer 10 follows layer 9; the embedding comes first and the head last."""
    parts: list[int | str] = []
    for word in name.split("."):
        parts.extend((1, int(word)) if word.isdigit() else (0, word))
    return (_rank(name), *parts)


def _rank(name: str) -> int:
    if ".embed_tokens." in name:
        return 0
    if name.startswith("model.") and ".layers." in name:
        return 1
    return 2
