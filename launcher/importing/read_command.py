"""Imports a job from a training command: backend and version, arguments, cluster and environment."""

import dataclasses
import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.importing.argv import Parsed, typed_value
from launcher.importing.assemble import assemble
from launcher.importing.cluster import cluster_of, fitting, secrets_of
from launcher.importing.config import Configuration, configuration
from launcher.importing.exact import exact
from launcher.importing.imported import Imported, with_source
from launcher.importing.invocation import Invocation, renamed_script_note
from launcher.importing.notes import ImportRefused, Note
from launcher.importing.reading import line_of_key
from launcher.importing.refused import with_refused
from launcher.importing.shell.placeholders import INHERITED
from launcher.importing.unknown_options import UnknownOption, unknown_notes
from launcher.importing.versions import Match, best, value_of_args
from launcher.job import Value, override_text
from launcher.job.cluster import Cluster
from launcher.job.secret import Variables, by_reference, redacted
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.renames import find_renamed
from launcher.records import dataclass

# Up to this many argument names may match by chance in a command of another backend.
_FEW = 2
_MAX_SHOWN_VALUES = 5
_TOKEN = re.compile(r"_(token|tag|tokens)$")
# Placeholders in examples for a user's own value: "your path", my_model, /path/to/x, <name>.
# In a sentence ("put your answer in <answer></answer>") they are plain words.
_BLANK = re.compile(
    r"(?:^|[/_.:=-])(?:your|my)[_ -]\w|^/?path[/_]to\b|/path/to/|<[A-Za-z][^>]*>(?!.*</)|\bxxx+\b|\bTODO\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of an import.

    Attributes:
        backend, version: override detection.
        partial: return what can be read in spite of problems.
        world_size: number of devices, if known from another source.
        folder: searched for configuration files, besides the working directory.
        sources: text of the input by file, to find the line of an argument.
        markers: text searched for signs of a backend.
        files: content of files that the script itself writes.
        warnings: notes on the input collected so far.
        reproducible: the job gives the same arguments again; False: it is only judged as written, in half the time.
    """

    backend: str | None = None
    version: str | None = None
    partial: bool = False
    world_size: int | None = None
    folder: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    warnings: Sequence[Note] = ()
    reproducible: bool = True


# Options listed in a note.
_MAX_SHOWN_OPTIONS = 4


def read_command(invocation: Invocation, options: ImportOptions, settings: Configuration | None = None) -> Imported:
    """Return the job of one command.

    Args:
        settings: content of its configuration files, if already read.

    Raises:
        ImportRefused: arguments that no version has, an ambiguous backend, invalid values; unless `partial`.
    """
    settings = settings or configuration(invocation, options.folder, options.files)
    match = _chosen(invocation, settings, options)
    _refuse_ambiguous_program(match, invocation, options)
    locations = SourceLocations(options.sources, invocation.where)
    values, problems, warnings = _values(match, locations)
    warnings += _of_other_commands(values, invocation.command, match, locations)
    _refuse_other_uses(values, match, locations)
    renamed = renamed_script_note(invocation, match.backend, match.version)
    warnings = [*options.warnings, *([] if renamed is None else [renamed]), *warnings, *settings.warnings]
    if problems and not options.partial:
        raise ImportRefused(problems, partial=True)
    backend = match.backend
    env = {**settings.env, **invocation.env}
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
            *cluster.warnings,
            *imported.warnings,
            *_dropped_notes(imported),
        ),
        mapped_args=tuple(dataclasses.replace(each, where=locations.of(each.flag)) for each in imported.mapped_args),
        where=invocation.where,
        devices_specified=found.is_specified,
        problems=tuple(problems),
        other_version=excluded[0].message if excluded else "",
    )


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


def _refuse_other_uses(values: Mapping[str, Value], match: Match, locations: "SourceLocations") -> None:
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


# -- arguments


class SourceLocations:
    """Finds the line of an argument in the text of the input."""

    def __init__(self, sources: Mapping[str, str], default: str) -> None:
        self.sources, self.default = sources, default

    def of(self, flag: str) -> str:
        """Return `file:line` of the last occurrence of the argument."""
        spelled = re.escape(flag).replace("_", "[-_]").replace("\\-", "[-_]")
        pattern = re.compile(rf"(?<![\w-])-{{0,2}}{spelled}(?![\w-])")
        for file, text in self.sources.items():
            found = [match.start() for match in pattern.finditer(text)]
            if found:
                return f"{file}:{text.count(chr(10), 0, found[-1]) + 1}"
            if file.endswith((".yaml", ".yml")) and (line := line_of_key(text, flag)):
                return f"{file}:{line}"
        return self.default

    def of_variable(self, name: str) -> str:
        """Return `file:line` of the last place where an environment variable is set."""
        pattern = re.compile(rf"(?<![\w-]){re.escape(name)}(?:=|[\"']?:)")
        for file, text in self.sources.items():
            found = [match.start() for match in pattern.finditer(text)]
            if found:
                return f"{file}:{text.count(chr(10), 0, found[-1]) + 1}"
        return self.default

    def hint(self, where: str, text: str) -> tuple[str, ...]:
        """Return a hint for a value that is missing because a backslash at the end of a line is missing."""
        file, _, number = where.rpartition(":")
        lines = self.sources.get(file, "").splitlines()
        if "needs a value" not in text or not number.isdigit() or int(number) >= len(lines):
            return ()
        line, following = lines[int(number) - 1].rstrip(), lines[int(number)].strip()
        ends = following.startswith(("#", "--")) or not following or line.endswith("\\")
        return () if ends else ("a backslash at the end of the line, before the line with the value",)


def _values(match: Match, locations: SourceLocations) -> tuple[dict[str, Value], list[Note], list[Note]]:
    """Return the typed values, errors and warnings."""
    parsed, backend, version = match.parsed, match.backend, match.version
    variables = Variables()
    values = {flag: by_reference(flag, value, variables) for flag, value in parsed.values.items()}
    catalogue = backend.catalogue(version)
    dashes = "" if catalogue.style == "yaml" else "--"
    problems = [
        Note(message=_deprecation(option, text, dashes), where=where, works=locations.hint(where, text))
        for option, text in parsed.problems
        for where in (locations.of(option.lstrip("-")),)
    ]
    warnings = [
        Note(message=f"{option} {text}", where=locations.of(option.lstrip("-$"))) for option, text in parsed.warnings
    ]
    warnings += [
        Note(message=f"{option} {text}", where=locations.of(option.lstrip("-")), rule="ARG-VALUE")
        for option, text in parsed.lenient
    ]
    unknown: list[UnknownOption] = []
    for option, typed_values in parsed.unknown.items():
        known = find_renamed(option, backend, version)
        where = locations.of(option)
        if option in parsed.ambiguous and not known.message:
            problems.append(Note(message=_deprecation(f"--{option}", parsed.ambiguous[option]), where=where))
            continue
        what = f"{dashes}{option} is not an argument of {backend.title} {version}"
        message = f"{what}: {known.message}" if known.message else what
        if known.name is not None and known.name in values:
            message += ", which is given, too: keep one"
        value = by_reference(option, _as_in_other_version(option, value_of_args(typed_values), backend), variables)
        if known.name is not None and known.convert is not None and known.name not in values:
            argument = catalogue.get(known.name)
            typed = value if argument is None else _typed(value, argument)
            if typed is not None:
                values[known.name] = known.convert(typed)
                rule = "ARG-UNKNOWN" if _is_refused(option, catalogue) else ""
                warnings.append(Note(message=message, where=where, rule=rule))
                continue
        if value in known.implied:
            warnings.append(Note(message=f"{message}: dropped", where=where))
            continue
        if any(name.startswith(f"{option}.") for name in catalogue.names()):
            message = f"{option} is a section of {backend.title} {version}, not a value ({override_text(value)})"
            problems.append(Note(message=message, where=where, works=("remove it",)))
            continue
        if not _is_refused(option, catalogue):
            message = f"{option} is not read by {backend.title} {version}: dropped"
            warnings.append(Note(message=message, where=where, works=_near_keys(option, catalogue)[:1]))
            continue
        if dashes:
            unknown.append(UnknownOption(option=option, value=value, message=message, where=where, found=known))
        else:
            problems.append(Note(message=message, where=where, works=_near_keys(option, catalogue)))
        values[option] = value
    problems += unknown_notes(unknown, backend, version)
    problems += [_unread_note(typed, locations) for typed in dict.fromkeys(parsed.unknown_output)]
    problems += _unassigned(parsed.positional, locations)
    for flag, value in values.items():
        if values[flag] != parsed.values.get(flag, values[flag]):
            warnings.append(_secret_note(flag, locations))
        elif flag not in parsed.open and flag in parsed.values and _is_blank(flag, value):
            message = f"--{flag} {' '.join(_texts(value))!r} is a placeholder: kept as it is"
            warnings = [note for note in warnings if f"{flag} has blanks in its value" not in note.message]
            warnings.append(Note(message=message, where=locations.of(flag)))
    for flag, typed in parsed.open.items():
        if not _inherited(typed):
            warnings.append(_placeholder_note(flag, typed, locations))
    return values, problems, warnings


def _is_refused(option: str, catalogue: Catalogue) -> bool:
    """Return whether the backend refuses an unknown option; a configuration file may hold keys that nothing reads."""
    return catalogue.style != "yaml" or catalogue.refuses(option)


def _of_other_commands(
    values: Mapping[str, Value], command: str, match: Match, locations: SourceLocations
) -> Iterator[Note]:
    """Yield notes on arguments that only other sub-commands of the program take."""
    catalogue = match.backend.catalogue(match.version)
    for flag in values:
        argument = catalogue.get(flag)
        if command and argument is not None and argument.commands and command not in argument.commands:
            message = f"--{flag} is an argument of {', '.join(argument.commands)}, not of {command}"
            yield Note(message=message, where=locations.of(flag), works=("remove it",), rule="ARG-UNKNOWN")


def _unread_note(typed: str, locations: SourceLocations) -> Note:
    message = f"{typed} may be any number of arguments, unknown without running it"
    return Note(message=message, where=locations.of(typed), works=("the arguments themselves in its place",))


def _near_keys(key: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Return keys like one of a file: in the same section, or with the same last part where one has no section."""
    section, _, leaf = key.rpartition(".")
    pairs = ((name, *name.rpartition(".")[::2]) for name in catalogue.suggest(key))
    return tuple(
        name for name, renamed, last in pairs if renamed == section or (last == leaf and not (renamed and section))
    )


def _unassigned(values: Sequence[str], locations: SourceLocations) -> list[Note]:
    """Return notes on values that belong to no argument: individually if they are few."""
    if not values:
        return []
    shown = ", ".join(repr(value) for value in values[:_MAX_SHOWN_VALUES]) + (
        " …" if len(values) > _MAX_SHOWN_VALUES else ""
    )
    some = (
        f"{shown}: {len(values)} values belong to no argument" if len(values) > 1 else f"{shown} belongs to no argument"
    )
    comment = "no blank and no comment after the backslash that continues a line"
    works = (
        comment
        if {"#", "\\"} & set(values) or not all(map(str.strip, values))
        else "remove it"
        if len(values) == 1
        else "remove them"
    )
    return [Note(message=some, where=locations.default, works=(works,))]


def _typed(value: Value, argument: Argument) -> Value:
    """Return the value of a renamed argument in the new one's type; None if it does not fit."""
    if isinstance(value, str):
        value = typed_value(value, argument)
        return (value,) if argument.is_list and value is not None else value
    if isinstance(value, tuple):
        items = tuple(typed_value(item, argument) if isinstance(item, str) else item for item in value)
        return None if None in items or not argument.is_list else items
    return value


def _as_in_other_version(option: str, value: Value, backend: Backend) -> Value:
    """Return the value of an option that this version lacks, with the type that it has in another version."""
    having = (backend.catalogue(version).get(option) for version in backend.versions)
    argument = next((argument for argument in having if argument is not None), None)
    typed = typed_value(value, argument) if argument is not None and isinstance(value, str) else None
    return value if typed is None else typed


def _is_blank(flag: str, value: Value) -> bool:
    """Return whether a value is a placeholder for the user's own; `<s>` and `<unk>` are tokens of a tokenizer."""
    return not _TOKEN.search(flag) and _BLANK.search(" ".join(_texts(value))) is not None


def _secret_note(flag: str, locations: SourceLocations) -> Note:
    works = ("export what it names where the job starts",)
    return Note(
        message=f"{flag} is a secret: the job refers to it, its value is dropped", where=locations.of(flag), works=works
    )


def _inherited(typed: str) -> bool:
    """Return whether all unset parts of a value are variables that every shell sets."""
    found = re.findall(r"\$\{?(\w+|\()", typed)
    return bool(found) and all(name in INHERITED for name in found)


def _texts(value: Value) -> list[str]:
    return [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, str)]


def _deprecation(option: str, text: str, dashes: str = "--") -> str:
    name = option.lstrip("-")
    return f"{dashes}{text}" if text.startswith(name) else f"{dashes}{name} {text}"


def _placeholder_note(flag: str, typed: str, locations: SourceLocations) -> Note:
    names = [name for name in re.findall(r"\$\{?([A-Za-z_]\w*|\d+)", typed) if not typed.startswith("$(")]
    return Note(
        message=f"--{flag} {typed} is kept as it is: the script does not set its value",
        where=locations.of(flag),
        works=tuple(f"--set {name}=VALUE" for name in dict.fromkeys(names)),
    )


__all__ = ["ImportOptions", "read_command"]
