"""Megatron's legacy checkpoints on disk: one torch.save file per rank, with arguments and a tracker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.convert.containers import torch_file
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot, TensorSpec, namespace
from launcher.convert.containers.tracker import TRACKER, write_tracker
from launcher.convert.formats.arguments import megatron_arguments
from launcher.convert.formats.format import Draft, Format, Layout, Target, below, vocabulary_of
from launcher.convert.formats.huggingface import CONFIGURATION, copy_along
from launcher.convert.formats.legacy_read import (
    FILE,
    Files,
    RankFile,
    chunks_in,
    dropped_in,
    is_folded,
    iteration_in,
    read_files,
    sizes_of,
)
from launcher.convert.layouts.content import Content, Stored, Wanted
from launcher.convert.layouts.core import undivided
from launcher.convert.layouts.legacy import Grid, NamingScheme, RankTensor, check_experts, legacy_tensors
from launcher.convert.layouts.offers import Undivided
from launcher.convert.layouts.stages import Stages, place_layers
from launcher.convert.layouts.torch_dist import has_state
from launcher.convert.logical import Logical, without_mtp
from launcher.records import dataclass

# Folder of the checkpoint with config.json and the tokenizer, so that the reverse conversion needs nothing else.
CONFIG = "huggingface"
ITERATION = 1
_COMPUTED = {
    "inv_freq": "computed from config.json, not a weight",
    "_extra_state": "state of FP8 scaling, not a weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """How one training stack uses the format.

    Attributes:
        scheme: maps model and layout to the names and merges to write.
        found: maps model, names and arguments of a checkpoint to the names and merges it was written with.
        folded: whether a layout runs a V-shaped pipeline.
        arguments: maps a target to additional attributes of `args`.
        states: write the empty `_extra_state` entries that Transformer Engine's modules expect.
        along: writes additional files for the reverse conversion.
    """

    scheme: Callable[[Logical, Layout], NamingScheme]
    found: Callable[[Logical, frozenset[str], Mapping[str, Any]], NamingScheme]
    folded: Callable[[Layout], bool] = lambda layout: False
    arguments: Callable[[Target], Mapping[str, Any]] = lambda target: {}
    states: bool = True
    along: Callable[[Target, Path], None] = lambda target, directory: copy_along(
        target.donor, directory / CONFIG, target
    )


# Megatron-LM training/checkpointing.py: get_checkpoint_name, get_distributed_optimizer_checkpoint_name.
_RANKS = below("mp_rank_*", (FILE, "distrib_optim.pt"))
HOLDS = (
    TRACKER,
    *_RANKS,
    *(pattern for folder in ("iter_*", "release") for pattern in below(folder, _RANKS)),
    *below(CONFIG, CONFIGURATION),
)


def holds_legacy(path: Path) -> bool:
    """Return whether a folder holds a legacy checkpoint; checks names only."""
    return iteration_in(path) is not None


def legacy_format(
    name: str,
    title: str,
    stack: Stack,
    recognises: Callable[[Path], bool] = holds_legacy,
    options: tuple[str, ...] = (),
) -> Format:
    """Return the format of one training stack."""
    return Format(
        name=name,
        title=title,
        kind="mcore",
        recognises=recognises,
        read=lambda path, logical, layout: _read(stack, path, logical, layout),
        draft=lambda target: legacy_draft(stack, target),
        config=_config,
        options=options,
        layers=("transformer_engine", "local"),
        holds=HOLDS,
        checkpoint_format="torch",
    )


def _config(path: Path) -> Path | None:
    folder = path / CONFIG
    return folder if (folder / "config.json").is_file() else None


# --- reading ---


def _read(stack: Stack, path: Path, logical: Logical, layout: Layout) -> tuple[Logical, Stored]:
    files = read_files(path)
    names, notes = files.names, []
    if logical.model.num_nextn_predict_layers and not any(name.startswith("mtp.") for name in names):
        notes.append("config.json has MTP layers, the checkpoint has none: converted without")
        logical = without_mtp(logical)
    tp, pp, ep = sizes_of(files)
    stages = Stages(pp=pp, vpp=len(files.files[0].chunks), folded=stack.folded(layout) or is_folded(files, pp))
    chunks = chunks_in(files, stages)
    held, layers = sum(len(chunk.layers) for chunk in chunks), logical.model.num_hidden_layers
    if held != layers:
        raise ConvertError(f"{files.directory} holds {held} layers, config.json has {layers}")
    grid = grid_found(files, layout, tp, ep)
    scheme = stack.found(logical, names, files.args)
    vocabulary = _vocabulary(files, logical, tp)
    expected = legacy_tensors(logical, chunks, grid, scheme, vocabulary=vocabulary)
    contents, dropped = matched(files, list(expected), grid, logical)
    return logical, Stored(contents=contents, dropped={**dropped, **dict(dropped_in(files))}, notes=tuple(notes))


def grid_found(files: Files, layout: Layout, tp: int, ep: int) -> Grid:
    """Return the ranks of a pipeline stage for which a checkpoint was written."""
    args = files.args
    etp = args.get("expert_tensor_parallel_size") or layout.etp or tp
    over_tp = bool(args.get("moe_tp_extend_ep", layout.experts_over_tp))
    return Grid(tp=tp, ep=ep, etp=int(etp), over_tp=over_tp)


def _vocabulary(files: Files, logical: Logical, tp: int) -> int:
    slots = [
        chunk["embedding.word_embeddings.weight"]
        for chunk in files.files[0].chunks[:1]
        if chunk and "embedding.word_embeddings.weight" in chunk
    ]
    if not slots:
        raise ConvertError(f"{files.files[0].folder}: embedding.word_embeddings.weight is missing")
    rows = slots[0].shape[0] * tp
    if rows < (logical.model.vocab_size or 0):
        raise ConvertError(
            f"embedding.word_embeddings.weight has {rows} rows, config.json has vocab_size {logical.model.vocab_size}"
        )
    return rows


def matched(
    files: Files, expected: list[RankTensor], grid: Grid, logical: Logical
) -> tuple[tuple[Content, ...], dict[str, str]]:
    """Match the tensors of all files with the expected ones; return their contents, and dropped tensors with reasons.

    Raises:
        ConvertError: ranks, tensors or shapes are not as expected.
    """
    ranks = {(file.tp, file.stage, file.ep): file for file in files.files}
    known: dict[tuple[int, int, int, int], dict[str, RankTensor]] = {}
    for tensor in expected:
        key = (tensor.tp, tensor.stage, tensor.ep, tensor.virtual)
        known.setdefault(key, {})[tensor.name] = tensor
    contents: list[Content] = []
    dropped: dict[str, str] = {}
    problems = [
        f"{_folder(tp, stage, ep, files)}/{FILE} is missing: tp {grid.tp}, ep {grid.ep}, etp {grid.etp}"
        for tp, stage, ep in dict.fromkeys(key[:3] for key in known)
        if (tp, stage, ep) not in ranks
    ]
    of_grid = {key[:3] for key in known}
    for rank, file in ranks.items():
        if rank not in of_grid and (rank[0], rank[2]) not in grid.ranks():
            # MindSpeed-LLM's converter of DeepSeek-V4 writes every pair, also those that no rank has.
            dropped[file.folder] = f"no rank of tp {grid.tp}, ep {grid.ep}, etp {grid.etp} reads it"
            continue
        for virtual, chunk in enumerate(file.chunks):
            wanted = known.get((*rank, virtual), {})
            problems += _match(file, chunk, wanted, contents, dropped, logical)
    if problems:
        raise ConvertError(problems)
    return tuple(contents), dropped


def _match(
    file: RankFile,
    chunk: Mapping[str, Slot],
    wanted: Mapping[str, RankTensor],
    contents: list[Content],
    dropped: dict[str, str],
    logical: Logical,
) -> list[str]:
    problems = []
    for name, slot in chunk.items():
        tensor = wanted.get(name)
        where = f"{file.folder}: {name}"
        if tensor is None:
            reason = next((why for end, why in _COMPUTED.items() if name.endswith(end)), None)
            if reason is None:
                problems.append(
                    f"{where} {list(slot.shape)}: a {logical.model.model_type} model has no such tensor there"
                )
            else:
                dropped[where] = reason
        elif slot.shape != tensor.shape:
            problems.append(f"{where} has shape {list(slot.shape)}, expected {list(tensor.shape)}")
        else:
            viewed = replace(slot, name=where, shape=tensor.view)
            contents.append(Content(slot=viewed, boxes=tensor.boxes, fill=tensor.fill))
    problems.extend(
        f"{file.folder}: {name} {list(tensor.shape)} is missing" for name, tensor in wanted.items() if name not in chunk
    )
    return problems


def _folder(tp: int, stage: int, ep: int, files: Files) -> str:
    return rank_folder(tp, stage, ep, pp=len({file.stage for file in files.files}), ep_size=2 if ep else 1)


def rank_folder(tp: int, stage: int, ep: int, *, pp: int, ep_size: int) -> str:
    """Return the folder of a rank: Megatron-LM core_v0.16.1 training/checkpointing.py get_checkpoint_name."""
    middle = f"_{stage:03d}" if pp > 1 else ""
    return f"mp_rank_{tp:02d}{middle}" + (f"_{ep:03d}" if ep_size > 1 else "")


# --- writing ---


def legacy_draft(stack: Stack, target: Target) -> Draft:
    """Return the planned checkpoint for a training stack.

    Raises:
        ConvertError: the model cannot be split according to the layout.
    """
    layout, logical = target.layout, target.logical
    scheme = stack.scheme(logical, layout)
    check_experts(logical, scheme)
    stages = Stages(
        pp=layout.pp,
        vpp=_chunks(stack, layout),
        first=layout.first_stage_layers,
        last=layout.last_stage_layers,
        layout=layout.layout,
        noop=layout.noop_layers,
        account_for_embedding=layout.account_for_embedding,
        account_for_loss=layout.account_for_loss,
        folded=stack.folded(layout),
    )
    model = logical.model
    chunks = place_layers(
        stages,
        model.num_hidden_layers or 0,
        model.num_nextn_predict_layers,
        norm_with_head=scheme.norm_with_head,
    )
    grid = Grid(tp=layout.tp, ep=layout.ep, etp=layout.etp or layout.tp, over_tp=layout.experts_over_tp)
    vocabulary = vocabulary_of(logical, layout)
    problems = list(undivided(model, vocabulary, layout.tp))
    if problems:
        raise Undivided(*problems)
    tensors = list(legacy_tensors(logical, chunks, grid, scheme, vocabulary=vocabulary))
    wanted = tuple(_wanted(tensor, layout) for tensor in tensors)
    dtypes = target.dtypes_of([(tensor.name, each) for tensor, each in zip(tensors, wanted, strict=True)])

    def create(directory: Path) -> list[Slot]:
        return _create(directory, target, grid, tensors, dtypes, stack)

    return Draft(wanted=wanted, dtypes=dtypes, create=create, files=3 + len(grid.ranks()) * layout.pp)


def _chunks(stack: Stack, layout: Layout) -> int:
    return 2 if stack.folded(layout) else layout.vpp or 1


def _path(tensor: RankTensor, layout: Layout) -> str:
    return rank_folder(tensor.tp, tensor.stage, tensor.ep, pp=layout.pp, ep_size=layout.ep)


def _wanted(tensor: RankTensor, layout: Layout) -> Wanted:
    name = f"{_path(tensor, layout)}: {tensor.name}"
    return Wanted(name=name, shape=tensor.view, boxes=tensor.boxes, fill=tensor.fill)


def _create(
    directory: Path,
    target: Target,
    grid: Grid,
    tensors: list[RankTensor],
    dtypes: tuple[str, ...],
    stack: Stack,
) -> list[Slot]:
    layout = target.layout
    chunks = _chunks(stack, layout)
    keys = [f"model{index}" for index in range(chunks)] if chunks > 1 else ["model"]
    args = {**megatron_arguments(target, ITERATION).attributes, "ckpt_format": "torch", **stack.arguments(target)}
    # Also for a stage without tensors (no-op layers alone): its ranks load a file, too.
    ranks = [(tp, stage, ep) for stage in range(layout.pp) for tp, ep in grid.ranks()]
    files = {rank_folder(*rank, pp=layout.pp, ep_size=layout.ep): _top(keys, args) for rank in ranks}
    for index, (tensor, dtype) in enumerate(zip(tensors, dtypes, strict=True)):
        top = files[_path(tensor, layout)]
        # The index among all tensors is used as the name, to sort the slots afterwards.
        top[keys[tensor.virtual]][tensor.name] = TensorSpec(name=str(index), shape=tensor.shape, dtype=dtype)
    stack.along(target, directory)
    found: dict[int, Slot] = {}
    for folder, top in files.items():
        if stack.states:
            _add_states(top, keys)
        path = directory / f"iter_{ITERATION:07d}" / folder / FILE
        path.parent.mkdir(parents=True)
        for slot in torch_file.create(path, top):
            found[int(slot.name)] = slot
    write_tracker(directory, ITERATION)
    return [replace(found[index], name=tensor.name, shape=tensor.view) for index, tensor in enumerate(tensors)]


def _top(keys: list[str], args: Mapping[str, Any]) -> dict[str, Any]:
    models: dict[str, dict[str, Any]] = {key: {} for key in keys}
    return {"args": namespace(**args), "checkpoint_version": 3.0, "iteration": ITERATION, **models}


def _add_states(top: dict[str, Any], keys: list[str]) -> None:
    for key in keys:
        model = top[key]
        if not any(name.endswith(".layer_norm_weight") for name in model):
            continue
        for name in list(model):
            module = name.rpartition(".")[0]
            if has_state(module, name, "transformer_engine"):
                model.setdefault(f"{module}._extra_state", None)


# --- Megatron-LM itself ---


def _scheme(_logical: Logical, layout: Layout) -> NamingScheme:
    naming = layout.naming or "transformer_engine"
    if not layout.grouped_experts:
        return NamingScheme(naming=naming, experts="sequential")
    return NamingScheme(naming=naming, experts="fused" if naming == "local" else "grouped")


def scheme_of(names: frozenset[str]) -> NamingScheme:
    """Return the layer implementation of a checkpoint's names, and how it stores experts."""
    engine = any(name.endswith(".layer_norm_weight") for name in names)
    fused = any(name.endswith("mlp.experts.weight1") for name in names)
    grouped = any("mlp.experts.linear_fc1.weight" in name for name in names)
    return NamingScheme(
        naming="transformer_engine" if engine else "local",
        experts="fused" if fused else "grouped" if grouped else "sequential",
    )


FORMAT = legacy_format(
    "legacy",
    "Megatron-LM legacy (torch)",
    Stack(scheme=_scheme, found=lambda logical, names, args: scheme_of(names)),
)
"""The format of Megatron-LM and megatron-core: `--ckpt-format torch`."""
