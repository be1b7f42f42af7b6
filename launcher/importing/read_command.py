"""Imports a job from a training command: backend and version, arguments, cluster and environment."""

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from launcher.catalogue.catalogue import Catalogue
from launcher.importing.arguments import of_other_commands, values_of
from launcher.importing.argv import Parsed, typed_value
from launcher.importing.assemble import assemble
from launcher.importing.cluster import cluster_of, fitting, secrets_of
from launcher.importing.config import Configuration, configuration
from launcher.importing.exact import exact
from launcher.importing.imported import Imported, with_source
from launcher.importing.invocation import Invocation, renamed_script_note
from launcher.importing.locations import SourceLocations
from launcher.importing.notes import ImportRefused, Note
from launcher.importing.refused import with_refused
from launcher.importing.versions import Match, best
from launcher.job import Value
from launcher.job.cluster import Cluster
from launcher.job.secret import redacted
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.records import dataclass

# Up to this many argument names may match by chance in a command of another backend.
_FEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import.

    Attributes:
        backend, version: override detection.
        partial: return what can be read in spite of problems.
        world_size: number of devices, if known from another source.
        folder: searched for configuration files, besides the working directory.
        sources: text of the input by file, to find the line of an argument.
        name: of the job, where the script gives none.
        warnings: notes on the input collected so far.
        reproducible: the job gives the same arguments again; False: it is only judged as written, in half the time.
    """

    backend: str | None = None
    version: str | None = None
    partial: bool = False
    world_size: int | None = None
    folder: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    warnings: Sequence[Note] = ()
    reproducible: bool = True


_KEPT = " is kept as it is"
# Options listed in a note.
_MAX_SHOWN_OPTIONS = 4


def read_command(invocation: Invocation, options: ImportOptions, settings: Configuration | None = None) -> Imported:
    """Return the job of one command.

    Args:
        settings: content of its configuration files, if already read.

    Raises:
        ImportRefused: arguments that no version has, an ambiguous backend, invalid values; unless `partial`.
    """
    settings = settings or configuration(invocation, options.folder)
    match = _chosen(invocation, settings, options)
    _refuse_ambiguous_program(match, invocation, options)
    locations = SourceLocations(options.sources, invocation.where)
    values, problems, warnings = values_of(match, locations)
    warnings += of_other_commands(values, invocation.command, match, locations)
    _refuse_other_uses(values, match, locations)
    renamed = renamed_script_note(invocation, match.backend, match.version)
    warnings = [*options.warnings, *([] if renamed is None else [renamed]), *warnings, *settings.warnings]
    if problems and not options.partial:
        raise ImportRefused(problems, partial=True)
    backend = match.backend
    slurm_sets = invocation.slurm.own_variables()  # a job of other sizes would have the old ones
    env = {**settings.env, **invocation.env}
    env = {name: value for name, value in env.items() if slurm_sets.get(name) != value}
    found = cluster_of(
        invocation.cluster,
        env,
        from_environment=backend.entry.environment_cluster,
        where=invocation.where,
        world_size=options.world_size,
    )
    found.cluster = invocation.slurm.put(found.cluster)
    command = invocation.command or None
    kept = {flag for flag, value in values.items() if _is_invalid(value, flag, match)}

    def on(cluster: Cluster) -> Callable[[set[str]], Imported]:
        return lambda kept: assemble(
            values,
            backend,
            match.version,
            command=command,
            kept=kept,
            cluster=cluster,
            env=env,
            name=invocation.slurm.name or options.name,
        )

    cluster = found if found.is_specified else fitting(found, on(found.cluster)(kept).job, invocation.where)
    slurm = invocation.slurm.notes(invocation.where)
    excluded = _other_version(match, invocation.where)
    make = on(cluster.cluster)
    imported = exact(make, kept) if options.reproducible else make(kept)
    imported = with_source(dataclasses.replace(imported, program=redacted(invocation.program)))
    imported = with_refused(imported) if options.reproducible else imported
    return dataclasses.replace(
        imported,
        warnings=(
            *excluded,
            *warnings,
            *secrets_of(env, locations.of_variable),
            *slurm,
            *invocation.remarks,
            *cluster.warnings,
            *_unsaid(imported.warnings, warnings),
            *_dropped_notes(imported),
        ),
        mapped_args=tuple(dataclasses.replace(each, where=locations.of(each.flag)) for each in imported.mapped_args),
        where=invocation.where,
        devices_specified=found.is_specified,
        problems=tuple(problems),
        other_version=excluded[0].message if excluded else "",
    )


def _unsaid(notes: Sequence[Note], said: Sequence[Note]) -> Iterator[Note]:
    """Yield the notes on arguments that are kept as they are, without those that have such a note with its place."""
    about = [note.message.partition(_KEPT) for note in said]
    known = {argument for argument, kept, _ in about if kept}
    yield from (note for note in notes if note.message.partition(_KEPT)[0] not in known)


def _dropped_notes(imported: Imported) -> Iterator[Note]:
    """Yield a note on the keys of a file that its job does not have."""
    flags = [flag for flag in imported.dropped if flag not in imported.exact]
    if flags:
        shown = ", ".join(flags[:6]) + (", …" if len(flags) > 6 else "")
        why = "as they equal the default or training does not read them"
        yield Note(message=f"{len(flags)} keys are dropped, {why}: {shown}")


def _other_version(match: Match, where: str) -> tuple[Note, ...]:
    """Return a note if the detected version is not the backend's default."""
    default = match.default
    if default is None:
        return ()
    dashes = "" if match.backend.catalogue(match.version).style == "yaml" else "--"
    names = [f"{dashes}{name}" for name in default.refused]
    shown = ", ".join(names[:_MAX_SHOWN_OPTIONS]) + (", …" if len(names) > _MAX_SHOWN_OPTIONS else "")
    message = (
        f"read as {match.backend.title} {match.version}, which accepts more of it: {default.version} refuses {shown}"
    )
    return (Note(message=message, where=where, works=(f"--backend-version {default.version}",)),)


def _refuse_ambiguous_program(match: Match, invocation: Invocation, options: ImportOptions) -> None:
    """Reject a program name that two backends share, if only one is importable and the command has no sign of it."""
    if options.backend is not None or _marker_count(match.backend, invocation, options):
        return
    for name in backend_names():
        backend = get_backend(name)
        if name != match.backend.name and invocation.program in backend.entry.excluded:
            message = f"{invocation.program} of {backend.title}: {backend.entry.excluded[invocation.program]}"
            works = (f"--backend {match.backend.name}",)
            raise ImportRefused([Note(message=message, where=invocation.where, works=works)])


def _refuse_other_uses(values: Mapping[str, Value], match: Match, locations: SourceLocations) -> None:
    for flag, training in match.backend.entry.only.items():
        if flag in values and values[flag] not in training:
            works = tuple(f"{flag}: {value}" for value in training)
            raise ImportRefused(
                [Note(message=f"{flag} {values[flag]} is not training", where=locations.of(flag), works=works)]
            )
    for flag, patterns in match.backend.entry.other_models.items():
        value = str(values.get(flag, ""))
        if any(fnmatch.fnmatchcase(value, pattern) for pattern in patterns):
            message = f"{flag} {value}: it trains another kind of model than this launcher describes"
            raise ImportRefused([Note(message=message, where=locations.of(flag))])


def _is_invalid(value: Value, flag: str, match: Match) -> bool:
    """Return whether a value is text of the wrong type for the argument: unset or invalid."""
    argument = match.backend.catalogue(match.version).get(flag)
    items = value if isinstance(value, tuple) else (value,)
    return argument is not None and any(isinstance(item, str) and typed_value(item, argument) is None for item in items)


# -- backend and version


def _chosen(invocation: Invocation, settings: Configuration, options: ImportOptions) -> Match:
    if options.backend and invocation.program and options.backend not in invocation.backends:
        matches = [_match(get_backend(name), invocation, settings, options) for name in invocation.backends]
        raise _wrong_backend(invocation, options.backend, matches)
    names = (options.backend,) if options.backend else invocation.backends
    if options.version is not None and not options.backend:
        version = options.version
        names = tuple(name for name in names if get_backend(name).has_version(version)) or names
    matches = [_match(get_backend(name), invocation, settings, options) for name in names]
    # If one backend extends the other, the one with the smaller parser is the plain one.
    base = min(matches, key=lambda match: len(match.backend.catalogue(match.backend.default_version)))
    matches = [match for match in matches if match is base or _needs_extension(match, base, invocation, options)]
    least = min(match.mismatches for match in matches)
    fitting = [match for match in matches if match.mismatches == least]
    if len(fitting) == 1:
        return fitting[0]
    markers = {match.backend.name: _marker_count(match.backend, invocation, options) for match in fitting}
    most = max(markers.values())
    likely = [match for match in fitting if markers[match.backend.name] == most]
    if len(likely) == 1:
        return likely[0]
    if invocation.program and base in likely:
        return base
    raise ImportRefused(
        [
            Note(
                message=f"these arguments fit {' and '.join(match.backend.title for match in likely)} equally well",
                where=invocation.where,
                works=tuple(f"--backend {match.backend.name}" for match in likely),
            )
        ]
    )


def _wrong_backend(invocation: Invocation, backend: str, matches: Sequence[Match]) -> ImportRefused:
    """Return the refusal of a backend that has no such program; those whose arguments these are, are offered."""
    titles = " and ".join(get_backend(name).title for name in invocation.backends)
    own = get_backend(backend).title
    message = f"{invocation.program} is a program of {titles}, not of {own}; --to ports it to {own}"
    least = min(match.mismatches for match in matches)
    fitting = (match.backend.name for match in matches if match.mismatches == least)
    works = (*(f"--backend {name}" for name in fitting), f"--to {backend}")
    return ImportRefused([Note(message=message, where=invocation.where, works=works)])


def _needs_extension(match: Match, base: Match, invocation: Invocation, options: ImportOptions) -> bool:
    """Return whether a command is for a backend that extends the plain one, and not only for its older parser."""
    better = base.mismatches - match.mismatches
    if (
        not invocation.program
        or match.mismatches == 0
        or better <= 0
        or _marker_count(match.backend, invocation, options)
    ):
        return True
    catalogue = match.backend.catalogue(match.version)
    usual = Counter(argument.origin for argument in catalogue.arguments).most_common(1)[0][0]
    # Arguments of both parsers decide nothing, even if the extension redeclares them.
    base_catalogue = base.backend.catalogue(base.version)
    arguments = [argument for argument in map(catalogue.get, match.parsed.values) if argument is not None]
    specific = sum(argument.origin != usual and base_catalogue.get(argument.name) is None for argument in arguments)
    return specific > better / 2 and (specific > _FEW or not _marker_count(base.backend, invocation, options))


def _match(backend: Backend, invocation: Invocation, settings: Configuration, options: ImportOptions) -> Match:
    version = backend.version(options.version) if options.version else None
    command = invocation.command or None

    def read(catalogue: Catalogue) -> Parsed:
        return settings.read(invocation, catalogue, command if command in catalogue.commands else None)

    return best(backend, version, read)


def _marker_count(backend: Backend, invocation: Invocation, options: ImportOptions) -> int:
    texts = [*invocation.env, *options.sources.values(), *options.sources]
    return sum(any(marker in text for text in texts) for marker in backend.entry.markers)


__all__ = ["ImportOptions", "read_command"]
