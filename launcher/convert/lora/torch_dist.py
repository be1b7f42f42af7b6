"""Adapters as megatron-core's `torch_dist` checkpoints: factors named after their layers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers import torch_dist
from launcher.convert.containers.dtypes import itemsize
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Inert, Slot, TensorSpec
from launcher.convert.containers.tracker import write_tracker
from launcher.convert.formats.arguments import megatron_arguments
from launcher.convert.formats.format import Draft, Format, Layout, Target
from launcher.convert.formats.torch_dist import HOLDS
from launcher.convert.layouts.content import Stored, Wanted
from launcher.convert.layouts.core import CoreTensor, Respell
from launcher.convert.layouts.offers import Undivided, divisors, problem
from launcher.convert.layouts.torch_dist import (
    Chunk,
    Found,
    extra_states,
    is_stacked,
    other_state,
    torch_dist_chunks,
    torch_dist_read,
)
from launcher.convert.logical import Logical
from launcher.convert.lora.logical import AdapterLogical, B, adapter_logical, base_of
from launcher.convert.lora.stack import (
    ALPHA,
    KEPT,
    AdapterStack,
    adapter_of,
    every_module,
    found_adapter,
    given_alpha,
    keep_for_export,
)
from launcher.convert.slices import Split, moved, shard

_ITERATION: Final = 1
_FILE: Final = 5 * 10**9
_MARK: Final = ".lora_"
# Extra state that transformer-engine 2 stores for a layer without FP8 (module/base.py get_extra_state).
_EMPTY: Final = TensorSpec(name="_extra_state", shape=(0,), dtype="U8")
_CONTENT_METADATA: Final = {"singleton_local_shards": False}


def torch_dist_adapters(name: str, title: str, stack: AdapterStack) -> Format:
    """Return the adapter format of a training stack that saves with megatron-core's dist_checkpointing."""
    return Format(
        name=name,
        title=title,
        kind="mcore",
        recognises=_recognises,
        read=_read,
        draft=lambda target: _draft(stack, target),
        config=lambda path: path / KEPT if (path / KEPT / "config.json").is_file() else None,
        options=(ALPHA,),
        layers=("transformer_engine",),
        holds=HOLDS,
    )


def _recognises(path: Path) -> bool:
    folders = (path, *path.glob("iter_*"), *path.glob("release")) if path.is_dir() else ()
    return any(_MARK.encode() in (folder / ".metadata").read_bytes() for folder in folders if _has(folder))


def _has(folder: Path) -> bool:
    return (folder / ".metadata").is_file()


# --- the order of gate and up ---


def in_rank_order(tp: int) -> Respell:
    """Return a respelling that orders B of a gated layer as `tp` ranks store it.

    Weights of `linear_fc1` are stored as all gates, then all ups, for any tp. Their factor B is not: megatron-core
    treats it as a plain column-parallel layer, and concatenates the ranks' parts, each with its gate and its up
    (megatron-core 0.16.1 transformer/mlp.py sharded_state_dict swaps `linear_fc1.weight` only). Such a checkpoint is
    valid for one tp only; experts' factors are not split.
    """
    return partial(_in_rank_order, tp=tp)


def _in_rank_order(_logical: Logical, tensors: Iterable[CoreTensor], *, tp: int) -> Iterator[CoreTensor]:
    for tensor in tensors:
        gated = tensor.split == Split(axis=0, parts=2) and tensor.expert is None
        if not gated or tp == 1:
            yield tensor
            continue
        boxes, piece = [], tensor.shape[0] // tp
        if tensor.shape[0] % (2 * tp):
            name = f"{tensor.prefix.format(layer=tensor.layer)}{tensor.name}"
            text = f"{name}: {tensor.shape[0]} cannot be split into 2 x {tp} parts"
            raise Undivided(problem(text, "tp", tp, divisors(tensor.shape[0] // 2)))
        for rank in range(tp):
            own, _ = shard(tensor.boxes, tensor.shape, Split(axis=0, parts=2), rank, tp)
            boxes += [moved(box, 0, rank * piece) for box in own]
        yield dataclasses.replace(tensor, boxes=tuple(boxes))


# --- reading ---


def _read(path: Path, logical: Logical, layout: Layout) -> tuple[Logical, Stored]:
    checkpoint = torch_dist.read(path, wanted=lambda key: _MARK in key and other_state(key) is None)
    base = base_of(logical)
    arguments = {**_stored_arguments(path), **_arguments(checkpoint.common), **given_alpha(layout)}
    found = [
        Found(key=chunk.key, whole=chunk.global_shape, at=chunk.at, slot=chunk.slot) for chunk in checkpoint.chunks
    ]
    if not found:
        raise ConvertError(f"{path}: no factors there")
    order = in_rank_order(int(arguments.get("tensor_model_parallel_size") or 1))
    ranks = {chunk.whole[-2] if f"{_MARK}A." in chunk.key else chunk.whole[-1] for chunk in found}
    adapter = found_adapter(path, base, _modules(base, {chunk.key for chunk in found}), ranks, arguments)
    named, stored = torch_dist_read(adapter, found, order)
    reason = "not a factor of the adapter"
    skipped = {key: other_state(key) or reason for key in checkpoint.skipped}
    return named, dataclasses.replace(stored, dropped=skipped)


def _arguments(common: Any) -> Mapping[str, Any]:
    found = common.get("args") if isinstance(common, dict) else None
    return found.attributes if isinstance(found, Inert) else {}


def _stored_arguments(path: Path) -> Mapping[str, Any]:
    """Return args.json beside a checkpoint, a fallback for arguments missing in the checkpoint."""
    file = path / "args.json"
    try:
        tree = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def _modules(base: Logical, keys: set[str]) -> Iterator[str]:
    """Yield the modules whose factors are in a checkpoint, by matching the keys of a full adapter."""
    full = adapter_logical(base, every_module(base), rank=2, alpha=1)
    stack = is_stacked(base, keys)
    for chunk in torch_dist_chunks(full, naming="transformer_engine", vocabulary=None, stack=stack):
        if chunk.key in keys:
            yield from (box.logical.removesuffix(B) for box in chunk.boxes if box.logical.endswith(B))


# --- writing ---


def _draft(stack: AdapterStack, target: Target) -> Draft:
    problems = list(stack.refused(target))
    if problems:
        raise ConvertError(problems)
    order = in_rank_order(target.layout.tp)
    chunks = list(
        torch_dist_chunks(
            target.logical,
            naming="transformer_engine",
            vocabulary=None,
            stack=target.layout.stack,
            respell=order,
        )
    )
    wanted = tuple(Wanted(name=chunk.key, shape=chunk.shape, boxes=chunk.boxes) for chunk in chunks)
    dtypes = tuple(target.dtype(tensor) for tensor in wanted)

    def create(directory: Path) -> list[Slot]:
        return _create(directory, stack, target, chunks, dtypes)

    total = sum(math.prod(tensor.shape) * itemsize(dtype) for tensor, dtype in zip(wanted, dtypes, strict=True))
    notes = _notes(target)
    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=6 + total // _FILE, notes=notes)


def _notes(target: Target) -> tuple[str, ...]:
    gated = any(instance.row.kind == "gate_up" and instance.expert is None for instance in target.logical.instances)
    if target.layout.tp == 1 or not gated:
        return ()
    return (f"for tensor parallelism of {target.layout.tp} only: lora_B of linear_fc1 is in the order of its ranks",)


def _create(
    directory: Path, stack: AdapterStack, target: Target, chunks: list[Chunk], dtypes: tuple[str, ...]
) -> list[Slot]:
    specs = [
        torch_dist.ChunkSpec(key=chunk.key, global_shape=chunk.whole, at=chunk.at, shape=chunk.shape, dtype=dtype)
        for chunk, dtype in zip(chunks, dtypes, strict=True)
    ]
    states = extra_states(target.logical, naming="transformer_engine", stack=target.layout.stack)
    objects = [torch_dist.ObjectSpec(key=key, value=_EMPTY) for key in states if _MARK in key]
    keep_for_export(target, directory)
    for name, text in stack.files(target).items():
        (directory / name).write_text(text, encoding="utf-8")
    folder = directory / f"iter_{_ITERATION:07d}"
    folder.mkdir()
    slots: list[Slot] = torch_dist.create(
        folder,
        specs,
        objects=objects,
        common=_common(stack, target),
        content_metadata=_CONTENT_METADATA,
        file_bytes=_FILE,
    )
    write_tracker(directory, _ITERATION)
    return slots


def _common(stack: AdapterStack, target: Target) -> dict[str, Any]:
    adapter = adapter_of(target)
    model = dataclasses.replace(target, logical=adapter.base, dtypes=_model_dtypes(target, adapter))
    known = megatron_arguments(model, _ITERATION)
    arguments = {**known.attributes, **stack.arguments(target)}
    return {
        "args": dataclasses.replace(known, state=arguments),
        "checkpoint_version": 3.0,
        "iteration": _ITERATION,
    }


def _model_dtypes(target: Target, adapter: AdapterLogical) -> dict[str, str]:
    """Return the factors' number format for all model tensors, since `params_dtype` needs one."""
    dtype = next(iter(target.dtypes.values()))
    return dict.fromkeys(adapter.base.tensors, dtype)
