"""Modules beside the language model (a vision tower) that a training of text alone leaves out of its checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from launcher.convert.containers import safetensors
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.logical import Logical, others_of, with_others
from launcher.convert.slices import whole


def with_others_of(donor: Path | None, logical: Logical, stored: Stored) -> tuple[Logical, Stored]:
    """Return a checkpoint with the other modules' tensors, from the folder of `--model` if it has none itself.

    They are those that the training started from: what it leaves out it does not change. Without them a note says so.

    Args:
        donor: folder of `--model`, or the one kept inside a checkpoint, which has no weights.
        logical: the model; one without other modules is returned as it is.
        stored: the checkpoint's tensors.
    """
    enclosing = logical.family.enclosing
    if enclosing is None or others_of(logical):
        return logical, stored
    prefixes = ", ".join(f"{prefix}*" for prefix in enclosing.others)
    slots = safetensors.read(donor).slots if donor is not None and any(donor.glob("*.safetensors")) else ()
    found = [dataclasses.replace(slot, name=enclosing.usual(slot.name)) for slot in slots]
    found = [slot for slot in found if enclosing.other(slot.name) is not None]
    if not found:
        note = (
            f"the checkpoint has the language model only: no tensor {prefixes} is written, and transformers initialises"
            " them at random; works: --model, the folder of the model with its weights"
        )
        return logical, dataclasses.replace(stored, notes=(*stored.notes, note))
    contents = tuple(Content(slot=slot, boxes=(whole(slot.name, slot.shape),)) for slot in found)
    note = f"the checkpoint has the language model only: {len(found)} tensors {prefixes} are those of {donor}"
    logical = with_others(logical, {slot.name: slot.shape for slot in found})
    return logical, dataclasses.replace(stored, contents=(*stored.contents, *contents), notes=(*stored.notes, note))
