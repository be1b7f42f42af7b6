"""Checkpoints with one folder per rank (`rank_N/…`), as saved and loaded by 1.6 and the legacy classes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from backends.mindformers.checkpoint.chunks import Chunk, part
from backends.mindformers.checkpoint.metadata import Part
from backends.mindformers.checkpoint.ranks import stages_of
from backends.mindformers.checkpoint.strategy import Cut, Strategy, read_strategy, strategy_bytes
from backends.mindformers.checkpoint.tensors import Parameter
from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ConvertError, Damaged
from launcher.convert.containers.records import Slot
from launcher.convert.formats.format import Layout
from launcher.convert.layouts.offers import Undivided, divisors, problem
from launcher.convert.logical import Logical
from launcher.records import dataclass

# Folders that training writes below its output folder (trainer/utils.py, utils/load_checkpoint_utils.py @1.6.0).
CHECKPOINT: Final = "checkpoint"
STRATEGY: Final = "strategy"
# Native argument for the folder of a checkpoint's strategies.
ARGUMENT: Final = "src_strategy_path_or_dir"
_RANK: Final = re.compile(r"rank_(\d+)")
_STEP: Final = re.compile(r"(?P<prefix>.*)-(?P<epoch>\d+)_(?P<step>\d+)")
# Suffix that training appends if files of that name exist (mindspore train/callback/_checkpoint.py @2.7.0,
# _chg_ckpt_file_name_if_same_exist).
_AGAIN: Final = re.compile(r".*rank_\d+_(\d+)")
# Epoch and step of a file without a step in its name: sorts before all others.
_NO_STEP: Final = (-1, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Contents of the folders of all ranks.

    Attributes:
        parts: parts and the location of their bytes.
        notes: choices made between several candidates.
        whole: no strategy was found; every tensor was taken as whole.
    """

    parts: tuple[tuple[Part, Slot], ...]
    notes: tuple[str, ...] = ()
    whole: bool = False


def rank_folders(path: Path) -> dict[int, Path]:
    """Return the folder of each rank in a folder, or in its `checkpoint` folder."""
    for root in (path, path / CHECKPOINT):
        named = {int(_rank.group(1)): file for file in root.glob("rank_*") if (_rank := _RANK.fullmatch(file.name))}
        found = {rank: folder for rank, folder in sorted(named.items()) if folder.is_dir()}
        if found:
            return found
    return {}


def read_ranks(path: Path, folders: Mapping[int, Path], layout: Layout) -> Ranks:
    """Return the parts of parameters in the files of all ranks.

    Raises:
        ConvertError: only MindSpore's *.ckpt files, or no files.
        Damaged: a rank's folder lacks a step of other ranks, or a file contradicts its strategy.
    """
    strategy = _strategy(path, layout)
    files, notes = _files(path, folders)
    parts: list[tuple[Part, Slot]] = []
    for rank, file in files.items():
        for slot in safetensors.read(file).slots:
            cut = None if strategy is None else strategy.of(rank, slot.name)
            parts.append((_part(rank, file, slot, cut, strategy), slot))
    if strategy is not None:
        _complete(path, files, strategy)
    return Ranks(parts=tuple(parts), notes=notes, whole=strategy is None)


def _strategy(path: Path, layout: Layout) -> Strategy | None:
    asked = layout.args.get(ARGUMENT)
    places = [Path(str(asked))] if asked else [path / STRATEGY, path.parent / STRATEGY]
    for place in places:
        files = [place] if place.is_file() else sorted((*place.glob("*.ckpt"), *place.glob("*.json")))
        if files:
            return read_strategy(files)
    if asked:
        raise ConvertError(f"{ARGUMENT}={asked}: no strategy file (*.ckpt, *.json) is there")
    return None


def _files(path: Path, folders: Mapping[int, Path]) -> tuple[dict[int, Path], tuple[str, ...]]:
    """Return the file of each rank for the last step, which must be the same for all ranks."""
    steps = {rank: _steps(folder) for rank, folder in folders.items()}
    empty = [rank for rank, found in steps.items() if not found]
    if len(empty) == len(folders):
        if any(next(folder.glob("*.ckpt"), None) for folder in folders.values()):
            raise ConvertError(
                f"{path}: *.ckpt is MindSpore's own format, which is not read; works: mindspore.ckpt_to_safetensors("
                f"{str(path)!r}, OUT), or load_ckpt_format: safetensors in the training, then this on OUT"
            )
        raise ConvertError(f"{path}: its rank_N folders hold no *.safetensors")
    last = max(step for found in steps.values() for step in found)
    lacking = [rank for rank, found in steps.items() if last not in found]
    if lacking:
        named = "*.safetensors" if last == _NO_STEP else f"file of epoch {last[0]} step {last[1]}"
        raise Damaged(folders[lacking[0]], f"no {named}, which other ranks have")
    notes = []
    several = max(len(found) for found in steps.values())
    if several > 1:
        notes.append(f"{several} steps are there; taken: the last one (epoch {last[0]}, step {last[1]})")
    starts = {rank: _starts(folders[rank], found[last]) for rank, found in steps.items()}
    notes += _again(folders, starts, last)
    return {rank: found[max(found)] for rank, found in starts.items()}, tuple(notes)


def _steps(folder: Path) -> dict[tuple[int, int], list[Path]]:
    found: dict[tuple[int, int], list[Path]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        name = _STEP.fullmatch(file.stem)
        found.setdefault((int(name["epoch"]), int(name["step"])) if name else _NO_STEP, []).append(file)
    return found


def _starts(folder: Path, files: Iterable[Path]) -> dict[int, Path]:
    """Return the files of one step by the number of earlier starts of the training."""
    found: dict[int, Path] = {}
    for file in files:
        name = _STEP.fullmatch(file.stem)
        again = _AGAIN.fullmatch(name["prefix"]) if name else None
        other = found.setdefault(int(again[1]) if again else 0, file)
        if other is not file:
            what = "of one step" if name else "without a step in their names"
            raise Damaged(folder, f"several files {what} ({other.name}, {file.name}); works: one of them there")
    return found


def _again(folders: Mapping[int, Path], starts: Mapping[int, Mapping[int, Path]], step: tuple[int, int]) -> list[str]:
    """Return the notes on ranks with several files of one step, written by a restarted training."""
    rank = max(starts, key=lambda number: len(starts[number]))
    several, taken = len(starts[rank]), max(starts[rank])
    other = next((number for number, found in starts.items() if max(found) != taken), None)
    if several == 1:
        return []
    if other is not None:
        raise Damaged(
            folders[other],
            f"{starts[other][max(starts[other])].name} is of another start of the training than"
            f" {starts[rank][taken].name} of rank {rank}; works: files of one start in all folders",
        )
    return [
        f"{several} files are of epoch {step[0]}, step {step[1]}; taken: the last start's"
        f" (such as {starts[rank][taken].name})"
    ]


def _part(rank: int, file: Path, slot: Slot, cut: Cut | None, strategy: Strategy | None) -> Part:
    at, whole = tuple(0 for _ in slot.shape), slot.shape
    if cut is not None and strategy is not None:
        if len(cut.axes) != len(slot.shape):
            raise Damaged(
                file, f"the strategy has {len(cut.axes)} dimensions", tensor=slot.name, found=str(list(slot.shape))
            )
        place = cut.place(rank % strategy.stage_ranks)
        at = tuple(number * size for number, size in zip(place, slot.shape, strict=True))
        whole = tuple(count * size for count, size in zip(cut.pieces, slot.shape, strict=True))
    return Part(name=slot.name, whole=whole, at=at, shape=slot.shape, file=file.name)


def _complete(path: Path, files: Mapping[int, Path], strategy: Strategy) -> None:
    stages = 1 + max((stage for stage, _ in strategy.cuts), default=0)
    ranks = stages * strategy.stage_ranks
    missing = [rank for rank in range(ranks) if rank not in files]
    if missing:
        raise Damaged(
            path, f"rank_{missing[0]} is missing: the strategy is for {ranks} ranks", found=f"{len(files)} ranks"
        )


def rank_parts(logical: Logical, parameters: Iterable[Parameter], layout: Layout) -> Iterator[Chunk]:
    """Return the contents of each rank's file: its part of every parameter of its stage, replicas included.

    Raises:
        Undivided: a size is not divisible.
    """
    stage, named = stages_of(logical, layout), list(parameters)
    both = any(one.of_experts and one.split is not None for one in named)
    width = layout.tp * layout.ep if both else math.lcm(layout.tp, layout.ep)
    model = logical.model
    # The tied head and MTP layers use a copy of the embedding on their own stage.
    again = layout.pp - 1 if model.tie_word_embeddings or model.num_nextn_predict_layers else 0
    for number in range(layout.pp * width):
        for parameter in named:
            stages = {stage[parameter.place, parameter.layer]} | ({again} if parameter.place == "embedding" else set())
            if number // width in stages:
                yield _own(parameter, cut_of(parameter, layout, width), number, width)


def cut_of(parameter: Parameter, layout: Layout, width: int) -> Cut:
    """Return how a parameter is split over the `width` ranks of a stage: experts by ep, its split axis by tp."""
    axes: list[tuple[int, ...]] = [() for _ in parameter.declared]
    if parameter.of_experts:
        tp = 1 if parameter.split is None else layout.tp
        axes[0] = (1,) if layout.ep > 1 else ()
        devices: tuple[int, ...] = (width // (layout.ep * tp), layout.ep, tp)
    else:
        # LlamaForCausalLM does not split a vocabulary that is not divisible.
        outer = parameter.place in ("embedding", "final")
        uncut = parameter.split is None or (outer and parameter.shape[parameter.split.axis] % layout.tp != 0)
        tp = 1 if uncut else layout.tp
        devices = (width // tp, tp)
    if parameter.split is not None and tp > 1:
        axes[parameter.split.axis] = (0,)
    return Cut(devices=devices, axes=tuple(axes))


def _own(parameter: Parameter, cut: Cut, rank: int, width: int) -> Chunk:
    pieces = cut.pieces
    for axis, (size, count) in enumerate(zip(parameter.declared, pieces, strict=True)):
        if size % count:
            text = f"{parameter.name} {list(parameter.declared)} cannot be divided by {count}"
            raise Undivided(problem(text, "ep" if parameter.of_experts and not axis else "tp", count, divisors(size)))
    local = tuple(size // count for size, count in zip(parameter.declared, pieces, strict=True))
    at = tuple(number * size for number, size in zip(cut.place(rank % width), local, strict=True))
    return part(parameter, *seen(parameter, at, local), rank=rank, declared=local)


def seen(parameter: Parameter, at: tuple[int, ...], shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Convert a part from declared dimensions to those of `boxes`; only the first dimension may be split."""
    if parameter.declared == parameter.shape:
        return at, shape
    rows, declared = parameter.shape[0], parameter.declared[0]
    if any(at[1:]) or shape[1:] != parameter.declared[1:] or shape[0] * rows % declared:
        raise ConvertError(f"{parameter.name}: only its first dimension may be cut, not {list(at)} {list(shape)}")
    return (at[0] * rows // declared, 0), (shape[0] * rows // declared, parameter.shape[1])


def write_strategies(
    folder: Path, logical: Logical, parameters: Iterable[Parameter], layout: Layout, chunks: Iterable[Chunk]
) -> None:
    """Write the strategy file of each rank into a folder."""
    named = {one.name: one for one in parameters}
    of_rank: dict[int, list[Chunk]] = {}
    for chunk in chunks:
        of_rank.setdefault(chunk.rank or 0, []).append(chunk)
    width = len(of_rank) // layout.pp
    folder.mkdir()
    for rank, parts in of_rank.items():
        cuts = {chunk.name: (cut_of(named[chunk.name], layout, width), chunk.declared) for chunk in parts}
        (folder / f"ckpt_strategy_rank_{rank}.ckpt").write_bytes(strategy_bytes(rank // width, cuts))
