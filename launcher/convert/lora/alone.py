"""Compares two PEFT adapters without their model, tensor by tensor by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers import safetensors
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.lora.adapter import CONFIG, pattern_value, read_config, weights_file
from launcher.convert.lora.peft import FORMAT as PEFT
from launcher.convert.slices import whole

_ENDS: Final = (".lora_A.weight", ".lora_B.weight")
# Other fields of adapter_config.json that change the product.
_SWITCHES: Final = ("use_rslora", "use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "layer_replication")


def are_peft(left: Path, right: Path) -> bool:
    """Return whether both folders hold a PEFT adapter."""
    return PEFT.recognises(left) and PEFT.recognises(right)


def side_by_side(left: Path, right: Path) -> tuple[Mapping[str, tuple[int, ...]], Stored, Stored, list[str]]:
    """Return the tensors of both by name, the contents of each folder, and other differences.

    Raises:
        ConvertError: a folder has no adapter_config.json, or its weights cannot be read.
    """
    stored = [_stored(folder) for folder in (left, right)]
    shapes = [{content.slot.name: content.slot.shape for content in each.contents} for each in stored]
    problems = list(_different(read_config(left), read_config(right), {**shapes[0], **shapes[1]}))
    problems += [
        f"{name}: {list(shape)} and {list(shapes[1][name])}"
        for name, shape in shapes[0].items()
        if shapes[1].get(name, shape) != shape
    ]
    return {**shapes[1], **shapes[0]}, stored[0], stored[1], problems


def _stored(folder: Path) -> Stored:
    slots = safetensors.read(weights_file(folder)).slots
    return Stored(contents=tuple(Content(slot=slot, boxes=(whole(slot.name, slot.shape),)) for slot in slots))


def _different(left: Mapping[str, Any], right: Mapping[str, Any], names: Mapping[str, object]) -> Iterator[str]:
    for key in _SWITCHES:
        if bool(left.get(key)) != bool(right.get(key)):
            yield f"{CONFIG}: {key}: {bool(left.get(key))} and {bool(right.get(key))}"
    reported = set()
    for name in names:
        module = next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), "")
        for patterns, default in (("rank_pattern", "r"), ("alpha_pattern", "lora_alpha")) if module else ():
            values = [pattern_value(config, patterns, default, module) for config in (left, right)]
            if values[0] != values[1] and (default, *values) not in reported:
                reported.add((default, *values))
                yield f"{CONFIG}: {default}: {values[0]} and {values[1]} ({module})"
