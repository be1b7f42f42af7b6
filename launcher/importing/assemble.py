"""Builds the job from typed native values: reads the mapping table backwards and passes the rest through."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from launcher.importing.cluster import environment_of
from launcher.importing.config import as_meant
from launcher.importing.imported import Imported, ImportedArg
from launcher.importing.notes import Note
from launcher.job import Job, Value, derive, fields
from launcher.job.cluster import Cluster
from launcher.job.derive import with_values
from launcher.job.secret import job_without_secrets
from launcher.mapping.backend import Backend
from launcher.mapping.engine import ReadBack, fields_of_flags, read_back
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.mapping.native_only_index import native_only_index_of
from launcher.rules.effective import EffectiveValues
from launcher.rules.native import effective_of


def assemble(
    values: Mapping[str, Value],
    backend: Backend,
    version: str,
    *,
    command: str | None = None,
    kept: Iterable[str] = (),
    cluster: Cluster | None = None,
    env: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Imported:
    """Return the job that native values describe.

    Args:
        values: typed values by the catalogue's names, in the order of the command line.
        command: sub-command of the backend's program.
        kept: names to pass through without mapping, because their value is a placeholder of the wrong type.
        env: environment of the command; variables of launchers are dropped.
    """
    read, kept = _read(values, backend, version, command, set(kept))
    args = {flag: value for flag, value in values.items() if flag in kept}
    pseudo = backend.entry.command_argument
    rest = {arg.flag: arg.value for arg in read.unmapped if arg.flag != pseudo or pseudo in values} | args
    without = _without_effect(rest, values, backend, version, command)
    positions = {flag: index for index, flag in enumerate(values)}
    ordered = sorted(
        (flag for flag in rest if flag not in without), key=lambda flag: positions.get(flag, len(positions))
    )
    unmapped = {flag: rest[flag] for flag in ordered}
    choice = dataclasses.replace(
        read.job.backend,
        args={flag: _plain(value) for flag, value in unmapped.items()},
        env=environment_of(env or {}),
    )
    job = dataclasses.replace(read.job, name=name, cluster=cluster or read.job.cluster, backend=choice)
    return Imported(
        backend=backend.name,
        version=version,
        job=derive(job_without_secrets(job)),
        native=NativeArgs(backend=backend.name, version=version, args=_native(values)),
        unmapped=_native(unmapped),
        dropped=without if backend.catalogue(version).style == "yaml" else (),
        mapped_args=tuple(_mapped_args(values, {*unmapped}, {*without}, fields_of_flags(backend.name, version))),
        warnings=(
            *(_kept_note(flag, value) for flag, value in args.items() if isinstance(value, str)),
            *_refused_notes(unmapped, backend.name),
        ),
    )


def _native(values: Mapping[str, Value]) -> tuple[NativeArg, ...]:
    return tuple(NativeArg(flag=flag, value=value) for flag, value in values.items())


def _mapped_args(
    values: Mapping[str, Value], unmapped: set[str], without: set[str], ties: Mapping[str, tuple[str, ...]]
) -> Iterator[ImportedArg]:
    for flag, value in values.items():
        paths = () if flag in unmapped or flag in without else ties.get(flag, ())
        yield ImportedArg(flag=flag, value=value, fields=paths, implied=flag not in unmapped and not paths)


def _without_guesses(
    read: ReadBack, given: Mapping[str, Value], kept: set[str], ties: Mapping[str, tuple[str, ...]]
) -> ReadBack:
    """Reset fields that were inferred from the absence of an argument that is given, but passed through."""
    known = {path for flag in given for path in ties.get(flag, ())}
    guessed = {path for flag in kept for path in ties.get(flag, ()) if path not in known}
    if not guessed:
        return read
    defaults = {path: fields()[path].default for path in guessed}
    return dataclasses.replace(read, job=with_values(read.job, defaults))


def _without_effect(
    rest: Mapping[str, Value], values: Mapping[str, Value], backend: Backend, version: str, command: str | None
) -> tuple[str, ...]:
    """Return arguments that need not be passed through: they equal the backend's default, or nothing reads them.

    Defaults that the table writes explicitly stay: without them the job would have another value.
    """
    catalogue = backend.catalogue(version)
    if catalogue.style == "argparse":  # there, some are read before defaults exist
        return ()
    found = _effective(values, backend, version) if catalogue.style == "yaml" else None
    unread = frozenset[str]() if found is None else found.without_effect()
    known = {flag: argument for flag in rest if (argument := catalogue.get(flag)) is not None}
    default = {flag for flag, argument in known.items() if argument.is_default(rest[flag], command)}
    without = tuple(flag for flag in rest if flag in values and (flag in default or flag in unread))
    if found is None or not without:
        return without
    # A section that exists for one key alone (a callback with its own default) needs that key.
    left = _effective({flag: value for flag, value in values.items() if flag not in without}, backend, version)
    added = found.read_by_name().keys() - values.keys() - left.read_by_name().keys()
    gone = {key.rpartition(".")[0] for key in added}
    return tuple(flag for flag in without if flag.rpartition(".")[0] not in gone)


def _effective(values: Mapping[str, Value], backend: Backend, version: str) -> EffectiveValues:
    native = NativeArgs(backend=backend.name, version=version, args=_native(values))
    return effective_of(Job(), backend, version, native, as_written=True)


def _refused_notes(unmapped: Iterable[str], backend: str) -> Iterator[Note]:
    """Yield notes on arguments that the parser accepts only to reject them."""
    for flag in unmapped:
        row = native_only_index_of(backend).reason(flag)
        if row is not None and row.refused_for:
            yield Note(message=f"--{flag} is refused by its own parser ({row.source})", works=(f"--{row.refused_for}",))


def _kept_note(flag: str, value: Value) -> Note:
    return Note(message=f"--{flag} {value} is kept as it is: {value!r} does not fit the field")


def _read(
    values: Mapping[str, Value], backend: Backend, version: str, command: str | None, kept: set[str]
) -> tuple[ReadBack, set[str]]:
    """Read the mapping backwards; arguments whose value a field rejects are passed through instead."""
    pseudo = backend.entry.command_argument
    catalogue = backend.catalogue(version)
    if catalogue.style == "yaml":
        values = {flag: as_meant(flag, value, catalogue) for flag, value in values.items()}
    while True:
        given = {flag: value for flag, value in values.items() if flag not in kept}
        if pseudo is not None and command:
            given[pseudo] = command
        read = read_back(given, backend, version)
        refused = {warning.split(" ", 1)[0] for warning in read.warnings}
        ties = fields_of_flags(backend.name, version)
        culprits = {flag for flag in given if flag not in kept and refused & set(ties.get(flag, ()))}
        if read.job.checkpoint.save_interval is not None and read.job.checkpoint.save is None:
            # An interval without a folder saves nothing; as a field it would get the launcher's default folder.
            culprits |= {flag for flag in given if "checkpoint.save_interval" in ties.get(flag, ())}
        if not culprits:
            return _without_guesses(read, given, kept, ties), kept
        kept = kept | culprits


def _plain(value: Value) -> Value:
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value
