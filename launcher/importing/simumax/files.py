"""Recognises SimuMax's input files by their content, and reads strategy, model and system to one job."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launcher.budgets import BeyondBudget, load_json
from launcher.importing.notes import ImportRefused, Note, refuse
from launcher.importing.reading import read_text
from launcher.importing.simumax.rows import DROPPED, NEAREST, UNKNOWN, Row, mistakes, repr_of, unknown
from launcher.importing.simumax.strategy import ASSUMED, Converted, convert
from launcher.importing.simumax.system import System, system_mistakes
from launcher.importing.simumax.table import MODEL, STRATEGY, SYSTEM, FieldRow
from launcher.job import Job, Value, as_tree
from launcher.job.build import build
from launcher.job.file_text import job_file_text
from launcher.mapping.backend import backend_names, get_backend
from launcher.records import dataclass

_TABLES: Final[Mapping[str, Mapping[str, FieldRow]]] = {"strategy": STRATEGY, "model": MODEL, "system": SYSTEM}
# Names that only SimuMax's files have: two of them tell a file from a config.json or a backend's configuration.
_TELLING: Final[Mapping[str, frozenset[str]]] = {
    "strategy": frozenset(name for name in STRATEGY if name not in ("seq_len", "micro_batch_size", "dtype", "fp8")),
    "model": frozenset(("head_num", "kv_head_num", "head_size", "layer_num", "expert_num", "use_swiglu", "topk")),
    "system": frozenset(("accelerator", "networks", "num_per_node", "FC8", "sys_name")),
}
_FEWEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One input file: its name, its kind (`strategy`, `model`, `system`) and its content."""

    path: str
    kind: str
    tree: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a set of SimuMax's files describes.

    Attributes:
        job: the job; of a system file alone only its section `hardware` means something.
        sections: values of the job by path, as they are written to a file.
        rows: what became of every field of every file.
        backend, version: the backend whose run SimuMax describes.
    """

    files: tuple[InputFile, ...]
    job: Job
    sections: Mapping[str, Value]
    rows: tuple[Row, ...]
    backend: str
    version: str

    @property
    def has_job(self) -> bool:
        """Whether there is a strategy and a model, not only a system."""
        return any(file.kind == "strategy" for file in self.files)

    @property
    def hardware(self) -> dict[str, Value]:
        """The figures of the hardware, without their section's name."""
        found = self.sections.items()
        return {path.partition(".")[2]: value for path, value in found if path.startswith("hardware.")}

    @property
    def warnings(self) -> list[str]:
        """One line for each field that is not exactly in the job."""
        lost = [row for row in self.rows if row.status in (DROPPED, NEAREST, UNKNOWN)]
        return [f"{row.file} {row.field}={repr_of(row.value)}: {row.status}: {row.note}" for row in lost]

    def as_tree(self) -> dict[str, Any]:
        """Return the output of `launch import --json`."""
        return {
            "backend": self.backend,
            "version": self.version,
            "job": as_tree(self.job),
            "unmapped": [
                {"flag": f"{row.file}.{row.field}", "value": row.value}
                for row in self.rows
                if row.status in (DROPPED, UNKNOWN)
            ],
            "warnings": self.warnings,
            "problems": [],
            "fields": [row.as_tree() for row in self.rows],
            "hardware": self.hardware,
        }


def simumax_file(path: str, *, alone: bool = True) -> InputFile | None:
    """Return an input file of SimuMax; None: it is something else.

    Args:
        alone: it is the only file, so that it may be of another program.

    Raises:
        ImportRefused: it cannot be read, or is one of several and no JSON.
    """
    if alone and Path(path).suffix != ".json":
        return None
    text = read_text(Path(path))
    try:
        tree = load_json(text, path)
    except (ValueError, BeyondBudget) as error:
        if alone:
            return None
        raise refuse(f"the file is not JSON: {error}", path) from None
    if not isinstance(tree, dict):
        return None
    counts = {kind: len(names & tree.keys()) for kind, names in _TELLING.items()}
    kind = max(counts, key=lambda name: counts[name])
    return InputFile(path=path, kind=kind, tree=tree) if counts[kind] >= _FEWEST else None


def simumax_files(paths: Sequence[str]) -> list[InputFile] | None:
    """Return files given together; None: there is one, and it is not of SimuMax.

    Raises:
        ImportRefused: one of several files is not of SimuMax, or two are of the same kind.
    """
    found = [simumax_file(path, alone=len(paths) == 1) for path in paths]
    if len(paths) == 1 and found[0] is None:
        return None
    works = ("launch import strategy.json model.json system.json",)
    notes = [
        Note(message=f"{path} is not a strategy, model or system file of SimuMax: only those are read together")
        for path, file in zip(paths, found, strict=True)
        if file is None
    ]
    files = [file for file in found if file is not None]
    for kind in _TABLES:
        same = [file.path for file in files if file.kind == kind]
        if len(same) > 1:
            notes.append(Note(message=f"{len(same)} files are a {kind}: {', '.join(same)}", works=works))
    if notes:
        raise ImportRefused(notes)
    return files


def describe(files: Sequence[InputFile], backend: str | None = None) -> Described:
    """Return what files of different kinds describe: a job, or of a system alone its hardware.

    Raises:
        ImportRefused: a file is missing, or its values cannot be those of a run.
    """
    by_kind = {file.kind: file for file in files}
    _check_complete(by_kind)
    _check_values(files)
    system = System(by_kind["system"].tree, by_kind["system"].path) if "system" in by_kind else None
    values: dict[str, Value] = {f"hardware.{name}": value for name, value in system.values.items()} if system else {}
    rows: list[Row] = []
    if "strategy" in by_kind:
        strategy, model = by_kind["strategy"], by_kind["model"]
        made, of_model = convert(strategy.tree, model.tree, system.per_node if system else 8)
        _check_sizes(strategy, model)
        rows += [*_rows(strategy, made, STRATEGY), *_rows(model, of_model, MODEL)]
        fixed = {path: value for path, (value, _) in ASSUMED.items()}
        length = {"model.max_position_embeddings": made.values["batch.seq_length"]}
        values = {**of_model.values, **fixed, **length, **made.values, **values}
    if system is not None:
        rows += system.rows()
    if "hardware.name" in values:
        values["hardware.source"] = f"SimuMax system file {Path(by_kind['system'].path).name}"
        values["hardware.measured"] = f"SimuMax system file {Path(by_kind['system'].path).name}"
    job, problems = build(_nested(values))
    if problems:
        raise ImportRefused([Note(message=f"{each.path}: {each.message}", works=each.works) for each in problems])
    stack = get_backend(backend or _described_backend())
    return Described(
        files=tuple(files),
        job=job,
        sections=values,
        rows=tuple(rows),
        backend=stack.name,
        version=stack.default_version,
    )


def _described_backend() -> str:
    return next((name for name in backend_names() if "simumax" in get_backend(name).described_by), backend_names()[0])


def _check_complete(by_kind: Mapping[str, InputFile]) -> None:
    if [*by_kind] == ["system"]:
        return
    for kind, what in (("strategy", "parallel sizes and batch"), ("model", "the architecture")):
        if kind not in by_kind:
            names = {file.kind: file.path for file in by_kind.values()}
            command = shlex.join(names.get(each, f"{each.upper()}.json") for each in _TABLES)
            works = [f"launch import {command}"]
            if kind == "strategy" and "system" in by_kind:
                works.append(f"launch import {shlex.quote(by_kind['system'].path)} -o hardware.yaml")
            given = " and ".join(f"{file.path} (a {file.kind})" for file in by_kind.values())
            raise refuse(f"the {kind} file is missing: {what}; given: {given}", "", *works)


def _check_values(files: Iterable[InputFile]) -> None:
    notes: list[Note] = []
    for file in files:
        wrong = list(mistakes(file.tree if file.kind != "system" else _flat(file.tree), _TABLES[file.kind], file.path))
        if not wrong and file.kind == "system":
            wrong = list(system_mistakes(file.tree, file.path))
        notes += wrong
    if notes:
        raise ImportRefused(notes)


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a system file that the table names, by path."""
    flat: dict[str, Any] = {}
    for path in SYSTEM:
        node: Any = tree
        for name in path.split("."):
            node = node.get(name) if isinstance(node, dict) else None
        if node is not None:
            flat[path] = node
    return flat


def _check_sizes(strategy: InputFile, model: InputFile) -> None:
    """Refuse sizes that do not divide the devices or experts, as SimuMax does."""
    tree = {name: strategy.tree.get(name, row.default) for name, row in STRATEGY.items()}
    world = int(tree["world_size"])
    notes = []
    for names in (("tp_size", "pp_size", "cp_size"), ("ep_size", "etp_size", "pp_size")):
        product = 1
        for name in names:
            product *= int(tree[name])
        if world % product:
            text = " x ".join(f"{name} {tree[name]}" for name in names)
            most = max(product, world // product * product)
            message = f"field world_size is {world}: not divisible by {text} = {product}"
            notes.append(Note(message=message, where=strategy.path, works=(f"world_size: {most}",)))
    experts, groups = int(model.tree.get("expert_num") or 1), int(tree["ep_size"])
    if experts % groups:
        message = f"field ep_size is {groups}: does not divide expert_num {experts} of {model.path}"
        works = tuple(f"ep_size: {size}" for size in range(groups - 1, 0, -1) if experts % size == 0)[:2]
        notes.append(Note(message=message, where=strategy.path, works=works))
    if notes:
        raise ImportRefused(notes)


def _rows(file: InputFile, made: Converted, table: Mapping[str, FieldRow]) -> list[Row]:
    rows = made.rows(file.kind, file.tree, table)
    extra = [name for name in file.tree if name not in table]
    return [*rows, *(unknown(file.kind, name, file.tree[name], list(table)) for name in extra)]


def _nested(values: Mapping[str, Value]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *sections, leaf = path.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = list(value) if isinstance(value, tuple) else value
    return tree


def job_text(described: Described) -> str:
    """Return the text of the job file (`+job=FILE`), with the hardware in it."""
    names = ", ".join(file.path for file in described.files)
    notes = [f"# not as in SimuMax: {' '.join(line.split())}" for line in described.warnings]
    tree = {"defaults": [{"override /backend": described.backend}], **_nested(described.sections)}
    head = [f"# Imported from {names} (SimuMax).", *notes]
    return "\n".join(head) + "\n" + job_file_text(tree)
