"""LoRA factors of MindFormers: parameters of its checkpoints, next to the weights they belong to.

Its training loads one checkpoint, in which factors stand beside the weights, and saves both. Written is the file with
the factors alone. Source @1.8.0: parallel_core/training_graph/tensor_parallel/lora_layers.py (lora_A, lora_B),
pet/tuners/lora_adapter.py (the layers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from backends.mindformers.checkpoint.disk import CONFIG
from backends.mindformers.checkpoint.found import checkpoint_folder, found_in, recognises
from backends.mindformers.checkpoint.meaning import content_of
from backends.mindformers.checkpoint.tensors import OPTIONS, Arrangement, arrangement_of, factors
from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ContainerError, ConvertError
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.formats.format import Draft, Format, Layout, Target, below
from launcher.convert.formats.huggingface import CONFIGURATION
from launcher.convert.layouts.content import Stored, Wanted
from launcher.convert.logical import Logical
from launcher.convert.lora.logical import AdapterLogical, B, adapter_logical, base_of
from launcher.convert.lora.stack import ALPHA, adapter_of, every_module, found_adapter, given_alpha, keep_for_export

BY_RANK: Final = True
"""Factors are always scaled by alpha / rank."""
IN_CHECKPOINT: Final = True
"""Training starts from a checkpoint that holds weights and factors: the adapter's file belongs to the weights'."""
FILE: Final = "adapter.safetensors"
_FACTOR: Final = re.compile(r"(decoder|mtp)\..*\.lora_[AB]\.weight")
_NOT_ADAPTED: Final = re.compile(r".*(\.experts\..*|\.mlp\.gate)")


def _recognises(path: Path) -> bool:
    if not recognises(path):
        return False
    first = next(iter(sorted(checkpoint_folder(path).rglob("*.safetensors"))), None)
    try:
        return first is not None and any(_FACTOR.fullmatch(slot.name) for slot in safetensors.read(first).slots)
    except ContainerError:
        return False


def _without_alpha(layout: Layout) -> Layout:
    return replace(layout, options={name: value for name, value in layout.options.items() if name != ALPHA})


def _read(path: Path, logical: Logical, layout: Layout) -> tuple[Logical, Stored]:
    base, own = base_of(logical), _without_alpha(layout)
    found, arrangement = found_in(path, own), arrangement_of(own)
    held = {parts.part.name: parts for parts in found.parts if _FACTOR.fullmatch(parts.part.name)}
    arguments: dict[str, Any] = {}
    if "lora_alpha" in found.record:
        arguments["lora_alpha"] = float(found.record["lora_alpha"])
    ranks = {parts.part.whole[0] for name, parts in held.items() if name.endswith("lora_A.weight")}
    modules = list(_modules(base, set(held), arrangement))
    adapter = found_adapter(path, base, modules, ranks, {**arguments, **given_alpha(layout)})
    known = {one.name: one for one in factors(adapter, arrangement)}
    problems = [f"{name}: no factor of a layer of this model" for name in held if name not in known]
    problems += [f"{name} is missing: other factors of its layer are there" for name in known if name not in held]
    problems += [
        f"{name} {list(held[name].part.whole)}: config.json says {list(one.shape)}"
        for name, one in known.items()
        if name in held and held[name].part.whole != one.shape
    ]
    if problems:
        raise ConvertError(problems)
    contents = tuple(content_of(held[name], known[name]) for name in known)
    others = {parts.part.name: "not a factor of the adapter" for parts in found.parts if parts.part.name not in held}
    return adapter, Stored(contents=contents, dropped=others, notes=tuple(found.notes))


def _modules(base: Logical, names: set[str], arrangement: Arrangement) -> Iterator[str]:
    """Yield the modules whose factors are in a checkpoint, by matching the names of a full adapter."""
    every = [name for name in every_module(base) if not _NOT_ADAPTED.fullmatch(name)]
    for one in factors(adapter_logical(base, every, rank=2, alpha=1), arrangement):
        if one.name in names:
            yield from dict.fromkeys(box.logical.removesuffix(B) for box in one.boxes if box.logical.endswith(B))


def _draft(target: Target) -> Draft:
    adapter, arrangement = adapter_of(target), arrangement_of(_without_alpha(target.layout))
    problems = list(_refused(adapter, arrangement, legacy=bool(target.layout.legacy)))
    if problems:
        raise ConvertError(problems)
    named = list(factors(adapter, arrangement))
    wanted = tuple(Wanted(name=one.name, shape=one.shape, boxes=one.boxes) for one in named)
    dtypes = tuple(target.dtype(tensor) for tensor in wanted)

    def create(directory: Path) -> list[Slot]:
        keep_for_export(target, directory)
        specs = [
            TensorSpec(name=one.name, shape=one.shape, dtype=each) for one, each in zip(named, dtypes, strict=True)
        ]
        metadata = {"format": "ms", "lora_alpha": str(adapter.alpha)}
        return list(safetensors.create_file(directory / FILE, specs, metadata=metadata))

    note = f"copy {FILE} beside the files of the weights: MindFormers loads one checkpoint with both"
    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=6, notes=(note,))


def _refused(adapter: AdapterLogical, arrangement: Arrangement, *, legacy: bool) -> Iterator[str]:
    if legacy:
        yield "model.legacy: the factors of its older classes (mindpet) have other names; works: model.legacy=false"
    if adapter.rslora:
        yield "use_rslora: MindFormers always multiplies by alpha / rank; works: launch convert merge"
    if arrangement.mla_concat:
        yield "kernels.qkv_concat: factors of its concatenated projections are unknown; works: kernels.qkv_concat=false"
    strange = [name for name in adapter.modules if _NOT_ADAPTED.fullmatch(name)]
    if strange:
        yield f"{strange[0]}: MindFormers adapts neither experts nor routers; works: launch convert merge"


def _config(path: Path) -> Path | None:
    found = (folder / CONFIG for folder in (path, checkpoint_folder(path).parent))
    return next((folder for folder in found if (folder / "config.json").is_file()), None)


FORMAT = Format(
    name="mindformers_adapter",
    title="MindFormers LoRA (safetensors)",
    kind="mcore",
    recognises=_recognises,
    read=_read,
    draft=_draft,
    config=_config,
    options=(ALPHA, *(name for name in OPTIONS if name != "per_rank")),
    holds=(FILE, *below(CONFIG, (*CONFIGURATION, "adapter_config.json"))),
)
