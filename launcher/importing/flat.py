"""Flat settings of a backend that reads a file as its command line, and the `args.json` that a run writes."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.importing.config import arguments_of
from launcher.importing.notes import Note, refuse
from launcher.importing.stored import OF_DUMP, as_typed, fits
from launcher.mapping.backend import Backend
from launcher.records import dataclass

_NOTHING: tuple[Any, ...] = (None, [], {}, "{}", "")
# Arguments of the transformers Trainer, which the same project starts with files of the same form.
_OF_TRANSFORMERS = ("per_device_train_batch_size", "per_device_eval_batch_size", "learning_rate", "deepspeed")
# Values of the process that wrote the file.
_OF_PROCESS = ("rank", "local_rank", "local_world_size", "global_world_size", "world_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """Settings as command-line arguments; a dump also determines the version and the number of devices."""

    argv: tuple[str, ...]
    version: str | None = None
    world_size: int | None = None
    notes: list[Note] = field(default_factory=list)


def flat_settings(tree: Mapping[str, Any], backend: Backend, where: str) -> Flat:
    """Return settings as arguments; empty values are dropped, as are the defaults of a dump."""
    catalogues = {version: backend.catalogue(version) for version in backend.versions}
    _refuse_others(tree, catalogues.values(), backend, where)
    known = {version: sum(name in catalogue for name in tree) for version, catalogue in catalogues.items()}
    version = max(known, key=lambda each: known[each] / (len(tree) + len(catalogues[each]) - known[each]))
    if known[version] > OF_DUMP * len(catalogues[version]):
        return _of_dump(tree, catalogues[version], backend, where)
    empty = [name for name, value in tree.items() if value is None]
    given = {name: value for name, value in tree.items() if value is not None}
    notes = [Note(message=f"without a value, dropped: {', '.join(empty)}", where=where)] if empty else []
    return Flat(argv=arguments_of(given), notes=notes)


def _refuse_others(tree: Mapping[str, Any], catalogues: Iterable[Catalogue], backend: Backend, where: str) -> None:
    """Reject files of other programs of the same project that share argument names with this one."""
    known = {name for catalogue in catalogues for name in catalogue.names()}
    roles = [name for name, value in tree.items() if name not in known and isinstance(value, Mapping) and value]
    if any(key in known for name in roles for key in tree[name]):
        message = f"{', '.join(roles)} have separate arguments: a file of several programs; import reads one training"
        raise refuse(message, where)
    foreign = [name for name in _OF_TRANSFORMERS if name in tree and name not in known]
    if foreign:
        message = f"{', '.join(foreign)}: arguments of transformers' trainer, not of {backend.title}"
        raise refuse(message, where, f"--backend {backend.name} --partial")


def _of_dump(tree: Mapping[str, Any], catalogue: Catalogue, backend: Backend, where: str) -> Flat:
    argv: list[str] = []
    without: list[str] = []
    for name, value in tree.items():
        argument = catalogue.get(name) if name in catalogue else None
        if any(value is nothing or value == nothing for nothing in _NOTHING):
            continue
        if argument is None or name in _OF_PROCESS:
            without += [name] if name not in _OF_PROCESS else []
            continue
        if argument.is_default(value):
            continue
        items = [as_typed(argument, item) for item in value] if isinstance(value, list) else [value]
        typed = arguments_of({name: items if isinstance(value, list) else _typed(argument, items[0])})
        if fits(list(typed), argument):
            argv += typed
        else:
            without.append(name)
    message = f"arguments as {backend.title} {catalogue.version} stored them: defaults are dropped"
    notes = [Note(message=message, where=where)]
    if without:
        message = f"{len(without)} values that it computed, or takes from elsewhere, are dropped: {', '.join(without)}"
        notes.append(Note(message=message, where=where))
    sizes = (tree.get(name) for name in ("global_world_size", "world_size"))
    world_size = next((size for size in sizes if isinstance(size, int) and size > 0), None)
    return Flat(argv=tuple(argv), version=catalogue.version, world_size=world_size, notes=notes)


def _typed(argument: Argument, value: Any) -> Any:
    return value if isinstance(value, (bool, dict)) else as_typed(argument, value)
