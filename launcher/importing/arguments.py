"""Types the arguments of a command and notes what is wrong with them."""

import re
from collections.abc import Iterator, Mapping, Sequence

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.importing.argv import typed_value
from launcher.importing.locations import SourceLocations
from launcher.importing.notes import Note
from launcher.importing.shell.placeholders import INHERITED
from launcher.importing.unknown_options import UnknownOption, unknown_notes
from launcher.importing.versions import Match, value_of_args
from launcher.job import Value, override_text
from launcher.job.secret import Variables, by_reference
from launcher.mapping.backend import Backend
from launcher.mapping.renames import find_renamed

_MAX_SHOWN_VALUES = 5
_TOKEN = re.compile(r"_(token|tag|tokens)$")
# Placeholders in examples for a user's own value: "your path", my_model, /path/to/x, <name>.
# In a sentence ("put your answer in <answer></answer>") they are plain words.
_BLANK = re.compile(
    r"(?:^|[/_.:=-])(?:your[_ -]|my[_-])\w|^/?path[/_]to\b|/path/to/|<[A-Za-z][^>]*>(?!.*</)|\bxxx+\b|\bTODO\b",
    re.IGNORECASE,
)


def values_of(match: Match, locations: SourceLocations) -> tuple[dict[str, Value], list[Note], list[Note]]:
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
            warnings.append(_placeholder_note(flag, typed, locations, is_output=flag in parsed.computed))
    return values, problems, warnings


def _is_refused(option: str, catalogue: Catalogue) -> bool:
    """Return whether the backend refuses an unknown option; a configuration file may hold keys that nothing reads."""
    return catalogue.style != "yaml" or catalogue.refuses(option)


def of_other_commands(
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


def _placeholder_note(flag: str, typed: str, locations: SourceLocations, *, is_output: bool) -> Note:
    names = re.findall(r"\$\{?([A-Za-z_]\w*|\d+)", typed)
    why = "its value is known only where the script runs" if is_output else "the script does not set its value"
    if typed.startswith("$((") and not re.search(r"\$\((?!\()|`", typed):
        names, why = re.findall(r"(?<!\w)[A-Za-z_]\w*", typed), "a variable in it is not known"
    elif typed.startswith("$("):
        names = []
    return Note(
        message=f"--{flag} {typed} is kept as it is: {why}",
        where=locations.of(flag),
        works=tuple(f"--set {name}=VALUE" for name in dict.fromkeys(names)),
    )
