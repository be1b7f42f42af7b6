"""Adapters in Megatron's legacy files: each rank's factors, with or without the base weights."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats.format import Draft, Format, Layout, Target
from launcher.convert.formats.legacy import HOLDS, Stack, grid_found, legacy_draft, matched
from launcher.convert.formats.legacy_read import (
    Files,
    chunks_in,
    dropped_in,
    first_look,
    is_folded,
    iteration_in,
    read_files,
    sizes_of,
)
from launcher.convert.layouts.content import Stored
from launcher.convert.layouts.legacy import Grid, NamingScheme, legacy_tensors
from launcher.convert.layouts.stages import Chunk, Stages
from launcher.convert.logical import Logical
from launcher.convert.lora.logical import B, adapter_logical, base_of
from launcher.convert.lora.stack import (
    ALPHA,
    KEPT,
    AdapterStack,
    every_module,
    found_adapter,
    given_alpha,
    keep_for_export,
)

_MARK: Final = re.compile(r"[._]lora_[aAbB]")
_STATE: Final = "_extra_state"


def legacy_adapters(
    name: str, title: str, stack: AdapterStack, weights: Stack, options: tuple[str, ...] = ()
) -> Format:
    """Return the adapter format of a training stack that saves one file per rank.

    Args:
        name: value of `--format`.
        title: display name.
        stack: how it stores adapters.
        weights: how it stores weights; its dialect also names factors.
        options: names that `--set` accepts besides alpha.
    """
    writing = dataclasses.replace(
        weights,
        arguments=lambda target: {**weights.arguments(_of_model(target)), **stack.arguments(target)},
        along=lambda target, directory: keep_for_export(target, directory),
    )
    return Format(
        name=name,
        title=title,
        kind="mcore",
        recognises=_recognises,
        read=lambda path, logical, layout: _read(stack, weights, path, logical, layout),
        draft=lambda target: _draft(stack, writing, target),
        config=lambda path: path / KEPT if (path / KEPT / "config.json").is_file() else None,
        options=(ALPHA, *options),
        layers=("transformer_engine", "local"),
        holds=HOLDS,
    )


def _of_model(target: Target) -> Target:
    return dataclasses.replace(target, logical=base_of(target.logical))


def _recognises(path: Path) -> bool:
    return path.is_dir() and iteration_in(path) is not None and any(map(_is_factor, first_look(path)[1]))


def _is_factor(name: str) -> bool:
    return _MARK.search(name) is not None and not name.endswith(_STATE)


def _draft(stack: AdapterStack, weights: Stack, target: Target) -> Draft:
    problems = list(stack.refused(target))
    if problems:
        raise ConvertError(problems)
    return legacy_draft(weights, target)


# --- reading ---


def _read(stack: AdapterStack, weights: Stack, path: Path, logical: Logical, layout: Layout) -> tuple[Logical, Stored]:
    base = base_of(logical)
    everything = read_files(path)
    files, others = _factors_only(everything)
    tp, pp, ep = sizes_of(files)
    stages = Stages(pp=pp, vpp=len(files.files[0].chunks), folded=weights.folded(layout) or is_folded(everything, pp))
    chunks = chunks_in(files, stages)
    held, layers = sum(len(chunk.layers) for chunk in chunks), base.model.num_hidden_layers
    if held != layers:
        raise ConvertError(f"{files.directory} has factors of {held} layers, config.json has {layers} layers")
    grid = grid_found(files, layout, tp, ep)
    scheme = weights.found(base, everything.names, files.args)
    scheme = dataclasses.replace(scheme, experts=_experts(files.names))
    arguments = {**files.args, **given_alpha(layout)}
    modules = _modules(base, files.names, chunks, grid, scheme, stack)
    adapter = found_adapter(path, base, modules, _ranks(files, arguments), arguments, shared=stack.shared)
    expected = list(legacy_tensors(adapter, chunks, grid, scheme, vocabulary=None))
    contents, dropped = matched(files, expected, grid, adapter)
    return adapter, Stored(contents=contents, dropped={**others, **dropped, **dict(dropped_in(files))})


def _factors_only(files: Files) -> tuple[Files, dict[str, str]]:
    """Return the files with factors only, and the dropped tensors with the reason."""
    kept, dropped = [], {}
    for file in files.files:
        chunks = tuple({name: slot for name, slot in chunk.items() if _is_factor(name)} for chunk in file.chunks)
        names = (name for chunk in file.chunks for name in chunk if not _is_factor(name))
        dropped.update({f"{file.folder}: {name}": "not a factor of the adapter" for name in names})
        kept.append(dataclasses.replace(file, chunks=chunks))
    return dataclasses.replace(files, files=tuple(kept)), dropped


def _experts(names: Iterable[str]) -> Any:
    fused = any("mlp.experts.weight1_lora" in name or "mlp.experts.weight2_lora" in name for name in names)
    return "fused" if fused else "sequential"


def _ranks(files: Files, arguments: Mapping[str, Any]) -> set[int]:
    """Return the LoRA ranks visible in factor shapes, or else `lora_r`: fused expert factors do not show the rank."""
    found = {
        slot.shape[0]
        for file in files.files
        for chunk in file.chunks
        for name, slot in chunk.items()
        if ".lora_A." in name or name.endswith("weight1_lora_b")
    }
    rank = arguments.get("lora_r")
    return found or ({rank} if isinstance(rank, int) else set())


def _modules(
    base: Logical,
    names: frozenset[str],
    chunks: tuple[Chunk, ...],
    grid: Grid,
    scheme: NamingScheme,
    stack: AdapterStack,
) -> Iterator[str]:
    """Yield the modules whose factors are in the files, by matching the names of a full adapter."""
    full = adapter_logical(base, every_module(base), rank=2, alpha=1, shared=stack.shared)
    for tensor in legacy_tensors(full, chunks, grid, scheme, vocabulary=None):
        if tensor.name in names:
            yield from (box.logical.removesuffix(B) for box in tensor.boxes if box.logical.endswith(B))
