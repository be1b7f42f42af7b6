"""Reads a legacy checkpoint's files, tensor names and arguments, and derives the layout from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from launcher.convert.containers import torch_file
from launcher.convert.containers.errors import ConvertError, Damaged
from launcher.convert.containers.records import Inert, Slot
from launcher.convert.containers.tracker import TRACKER, read_tracker
from launcher.convert.layouts.stages import Chunk, Stages, chunk_order
from launcher.records import dataclass

FILE = "model_optim_rng.pt"
_FOLDER = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_LAYER = re.compile(r"decoder\.layers\.(\d+)\.")
_MODEL = re.compile(r"model(\d*)")
# Classes that every training framework stores besides weights; backends declare their own.
_ALLOWED = ("transformers.",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """One rank's file: its rank, its arguments, and the tensors of each of its model chunks by name."""

    folder: str
    tp: int
    stage: int
    ep: int
    args: Mapping[str, Any]
    chunks: tuple[Mapping[str, Slot], ...]
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """All files of one iteration, sorted by rank."""

    directory: Path
    files: tuple[RankFile, ...]

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments stored by the first rank."""
        return self.files[0].args

    @property
    def names(self) -> frozenset[str]:
        """The names of all tensors."""
        return frozenset(name for file in self.files for chunk in file.chunks for name in chunk)


def iteration_in(path: Path) -> Path | None:
    """Return the parent folder of mp_rank_*: `path` itself, the one its tracker names, or the last iteration.

    Damaged if the tracker names none that is there: another iteration has other weights.
    """
    if _ranks(path):
        return path
    found = [folder for folder in (*sorted(path.glob("iter_*"), reverse=True), path / "release") if _ranks(folder)]
    tracker = path / TRACKER
    if not found or not tracker.is_file():
        return found[0] if found else None
    word = read_tracker(tracker)
    named = path / (word if word == "release" else f"iter_{word:07d}")
    if not named.is_dir():
        works = f"--checkpoint {found[0]}"
        raise Damaged(tracker, f"names {word}, but {named.name} is missing", works=works)
    return named if named in found else None


def _ranks(path: Path) -> list[Path]:
    found = [file.parent for file in path.glob(f"mp_rank_*/{FILE}")]
    return sorted(folder for folder in found if _FOLDER.fullmatch(folder.name))


def first_look(path: Path) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the arguments of a checkpoint and the names of its last rank's tensors."""
    directory = iteration_in(path)
    if directory is None:
        return {}, frozenset()
    structure = _structure(_ranks(directory)[-1])
    return _arguments(structure), frozenset(_names(structure))


def read_files(path: Path) -> Files:
    """Read the tensor names of all files; reads no tensor data.

    Raises:
        ConvertError: a file holds no model, or ranks are missing.
    """
    directory = iteration_in(path)
    if directory is None:
        raise ConvertError(f"{path}: no mp_rank_*/{FILE} there")
    structures = {folder: _structure(folder) for folder in _ranks(directory)}
    args = _arguments(next(iter(structures.values())))
    staged = _has_stages(args, structures.values())
    files = [_rank_file(folder, structure, args, staged) for folder, structure in structures.items()]
    return Files(directory=directory, files=tuple(sorted(files, key=lambda file: (file.stage, file.ep, file.tp))))


@cache
def _allowed() -> tuple[str, ...]:
    from launcher.mapping.backend import backend_names, get_backend

    return (*_ALLOWED, *(prefix for name in backend_names() for prefix in get_backend(name).stored_classes))


def _structure(folder: Path) -> dict[Any, Any]:
    structure = torch_file.read(folder / FILE, allow=_allowed())
    if not isinstance(structure, dict):
        raise Damaged(folder / FILE, "not a checkpoint of Megatron", expected="a dictionary")
    return structure


def _has_stages(args: Mapping[str, Any], structures: Iterable[dict[Any, Any]]) -> bool:
    """Return whether there are several stages; without arguments, whether some file lacks the final norm."""
    given = args.get("pipeline_model_parallel_size")
    if isinstance(given, int):
        return given > 1
    return not all(any(_ends(name) for name in _names(structure)) for structure in structures)


def _names(structure: dict[Any, Any]) -> set[str]:
    models = (model for key, model in structure.items() if _MODEL.fullmatch(str(key)) and isinstance(model, dict))
    return {str(name) for model in models for name in model}


def _ends(name: str) -> bool:
    """Return whether a name is the final norm's: with MTP layers, some stacks keep it outside of the decoder."""
    return name in ("decoder.final_layernorm.weight", "final_layernorm.weight")


def _arguments(structure: Any) -> Mapping[str, Any]:
    found = structure.get("args") if isinstance(structure, dict) else None
    return found.attributes if isinstance(found, Inert) else {}


def _rank_file(folder: Path, structure: dict[Any, Any], args: Mapping[str, Any], staged: bool) -> RankFile:
    match = _FOLDER.fullmatch(folder.name)
    assert match is not None
    numbers = [int(part) for part in match.groups() if part is not None]
    stage = ep = 0
    if len(numbers) == 3:
        _, stage, ep = numbers
    elif len(numbers) == 2:
        # mp_rank_TT_PPP with stages, mp_rank_TT_EEE with expert ranks and one stage.
        if staged:
            stage = numbers[1]
        else:
            ep = numbers[1]
    keys = sorted((int(match[1] or 0), key) for key in structure if (match := _MODEL.fullmatch(str(key))))
    if not keys:
        found = ", ".join(str(key) for key in structure)
        raise ConvertError(f"{folder.name}/{FILE}: no model in it (found: {found}); expected model or model0, model1 …")
    chunks = []
    for _, key in keys:
        model = structure[key]
        if not isinstance(model, dict):
            raise ConvertError(f"{folder.name}/{FILE}: {key} is not a dictionary of tensors")
        chunks.append({str(name): slot for name, slot in model.items() if isinstance(slot, Slot)})
    others = tuple(str(key) for key in structure if not _MODEL.fullmatch(str(key)))
    return RankFile(
        folder=folder.name, tp=numbers[0], stage=stage, ep=ep, args=args, chunks=tuple(chunks), others=others
    )


def sizes_of(files: Files) -> tuple[int, int, int]:
    """Return (tp, pp, ep) of a checkpoint.

    Raises:
        ConvertError: files of ranks are missing according to its arguments.
    """
    found = [1 + max(getattr(file, name) for file in files.files) for name in ("tp", "stage", "ep")]
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
    for place, name in enumerate(names):
        given = files.args.get(name)
        if isinstance(given, int) and given > found[place]:
            raise ConvertError(
                f"{files.directory}: files of {found[place]} ranks, its arguments have {name} {given}: missing ranks"
            )
    return found[0], found[1], found[2]


def chunks_in(files: Files, stages: Stages) -> tuple[Chunk, ...]:
    """Return the chunks of a checkpoint; their layers follow from the stored layer numbers, in the model's order."""
    counts = {len(file.chunks) for file in files.files}
    if counts != {stages.vpp}:
        raise ConvertError(f"{files.directory}: ranks hold different numbers of model chunks: {sorted(counts)}")
    chunks, number = [], 0
    for index, (stage, virtual) in enumerate(chunk_order(stages)):
        names = {name for file in files.files if file.stage == stage for name in file.chunks[virtual]}
        held = sorted({int(match[1]) for name in names if (match := _LAYER.match(name))})
        chunks.append(
            Chunk(
                stage=stage,
                virtual=virtual,
                layers=tuple((local, number + place) for place, local in enumerate(held)),
                first=index == 0,
                mtp=any(name.startswith("mtp.") for name in names),
                norm=any(_ends(name) for name in names),
                head="output_layer.weight" in names,
            )
        )
        number += len(held)
    return tuple(chunks)


def is_folded(files: Files, pp: int) -> bool:
    """Return whether the model ends on the first stage: two chunks per stage, in a V-shaped pipeline."""
    ends = [file.stage for file in files.files if any(_ends(name) for name in file.chunks[-1])]
    return pp > 1 and len(files.files[0].chunks) == 2 and bool(ends) and max(ends) == 0


def dropped_in(files: Files) -> Iterator[tuple[str, str]]:
    """Yield other entries of the files, with the reason why they are not converted."""
    reasons = {"optimizer": "optimizer state, not a weight", "rng_state": "random state, not a weight"}
    for file in files.files:
        for key in file.others:
            if key in reasons:
                yield f"{file.folder}/{key}", reasons[key]
