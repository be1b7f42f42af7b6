"""Keys and values of a `TrainConfig`: what MindFormers' pynative trainer refuses of it, and what it does not read.

Its dataclasses refuse unknown keys except in open sections, values of another type (pynative/config/utils.py:22
@2.1.0) and those under which `__post_init__` raises; the trainer refuses the names of classes and methods that it
does not have. All of it stands in the catalogue of the entry point, `VERSION-pynative.json`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue, Refused, load, suggest
from launcher.catalogue.conditions import holds, keys_of, requirement
from launcher.catalogue.versions import in_range
from launcher.mapping.backend import FileNote

PYNATIVE_SINCE = "1.9"
_FOLDER = Path(__file__).parent / "catalogue"
_CALLBACKS = "callbacks"
_OPTIMIZER = "optimizer"
_OWNER = "Config"  # ending of the dataclasses, whose types are checked
_SHORT = 8  # keys of a section that are all named
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "list": "a list",
    "dict": "a mapping",
    "any": "any value",
}


@cache
def pynative_catalogue(version: str) -> Catalogue | None:
    """Return what the pynative trainer of a version takes; None: it has none.

    A version without a catalogue of this entry point (a fork's) is read by the newest one.
    """
    if not in_range(version, PYNATIVE_SINCE, None):
        return None
    path = _FOLDER / f"{version}-pynative.json"
    return load(path if path.is_file() else max(_FOLDER.glob("*-pynative.json")))


def typed(node: Mapping[str, Any], catalogue: Catalogue, prefix: str = "") -> dict[str, Any]:
    """Return a configuration without the values whose type `key_notes` refuses."""
    kept: dict[str, Any] = {}
    for name, value in node.items():
        path = f"{prefix}{name}"
        argument = catalogue.get(path)
        if path in _sections(catalogue):
            if isinstance(value, Mapping):
                kept[name] = typed(value, catalogue, f"{path}.")
        elif argument is None or not argument.owner.endswith(_OWNER) or not _wrong_type(argument, value):
            kept[name] = value
    return kept


def key_notes(tree: Mapping[str, Any], catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    """Yield what a version refuses or ignores of the sections of a `TrainConfig`, callbacks aside."""
    found = [*_in_section(tree, "", catalogue, version), *_missing(tree, catalogue, version)]
    yield from found
    wrong = {note.key for note in found}
    for section, values in _given(tree, catalogue):
        yield from condition_notes(section, values, catalogue, version, wrong=wrong)


def unwritten_notes(static: Iterable[str], catalogue: Catalogue, version: str, noted: set[str]) -> Iterator[FileNote]:
    """Yield the keys that the pynative trainer reads and the static graph's file, which is written, does not have.

    Args:
        static: keys of that file.
        noted: keys of which something else is said already.
    """
    path = _FOLDER / f"{version}.json"
    written = _static_catalogue(path if path.is_file() else max(_FOLDER.glob("[0-9]*[0-9].json")))
    for key in static:
        if key in catalogue and key not in written and not written.is_open(key) and key not in noted:
            yield FileNote(key=key, text="has no counterpart in the static graph's file, which is written: dropped")


@cache
def _static_catalogue(path: Path) -> Catalogue:
    return load(path)


@cache
def _sections(catalogue: Catalogue) -> frozenset[str]:
    parts = (name.split(".")[:-1] for name in catalogue.names())
    return frozenset(".".join(each[:size]) for each in parts for size in range(1, len(each) + 1))


def _in_section(node: Mapping[str, Any], prefix: str, catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    for name, value in node.items():
        path = f"{prefix}{name}"
        argument = catalogue.get(path)
        if path == _CALLBACKS:
            continue
        if path in _sections(catalogue):
            if isinstance(value, Mapping):
                yield from _in_section(value, f"{path}.", catalogue, version)
            elif value is not None or argument is None or not argument.nullable:
                yield FileNote(key=path, text=f"must be a section with keys, not {value!r}"[:200], refused=True)
        elif argument is None:
            yield from _unknown(path, prefix.rstrip("."), catalogue, version)
        elif argument.owner.endswith(_OWNER):
            if why := _why_not(argument, value):
                yield FileNote(key=path, text=why, refused=True)
        elif (kind := node.get("type", "")) and kind not in argument.owner.split(", "):
            yield FileNote(key=path, text=f"is a parameter of {argument.owner}, which {kind} ignores: dropped")


def _unknown(path: str, section: str, catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    own = [name.rpartition(".")[2] for name in catalogue.names() if name.rpartition(".")[0] == section]
    own += [] if section else [each for each in _sections(catalogue) if "." not in each]
    near = suggest(path.rpartition(".")[2], own, 1)
    hint = f" (did you mean {near[0]}?)" if near else f", which has {', '.join(own)}" if len(own) <= _SHORT else ""
    if section and section not in catalogue.open_sections:
        yield FileNote(key=path, text=f"is no key of {section} in MindFormers {version}{hint}", refused=True)
    elif section in ("", _OPTIMIZER):  # the keys of other open sections are checked as the static graph's
        yield FileNote(key=path, text=f"is read by nothing in the pynative trainer of {version}{hint}: dropped")


def _why_not(argument: Argument, value: Any) -> str:
    """Return why the configuration refuses a value; empty: it takes it."""
    return _wrong_type(argument, value) or _not_among(argument.choices or (), value)


def _wrong_type(argument: Argument, value: Any) -> str:
    if value is None:
        return "" if argument.nullable else f"must be {_kinds(argument.type)}, not null"
    if not _is_of(argument.type, value):
        number = _number(value) if "float" in argument.type else None
        hint = "" if number is None else f": YAML reads it as text, write {_yaml_number(number)}"
        return f"must be {_kinds(argument.type)}, not {_shown(value)}{hint}"
    if isinstance(value, list) and argument.items:
        wrong = [item for item in value if not _is_of(argument.items, item)]
        if wrong:
            return f"must be a list whose items are {_kinds(argument.items)}, not {_shown(wrong[0])}"
    return ""


def _is_of(kinds: str, value: Any) -> bool:
    checks: Mapping[str, bool] = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, (int, float)) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "str": isinstance(value, str),
        "list": isinstance(value, list),
        "dict": isinstance(value, Mapping),
        "any": True,
    }
    return any(checks[kind] for kind in kinds.split("|"))


def _number(value: Any) -> float | None:
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _yaml_number(number: float) -> str:
    """Return a number as YAML 1.1 reads it: with a point before the exponent."""
    mantissa, sign, exponent = repr(number).partition("e")
    return f"{mantissa}{'' if '.' in mantissa else '.0'}{sign}{exponent}" if sign else mantissa


def _kinds(kinds: str) -> str:
    names = [kind for kind in kinds.split("|") if kind != "int" or "float" not in kinds]
    return " or ".join(_WORDS[kind] for kind in names)


def _not_among(choices: tuple[Any, ...], value: Any) -> str:
    if value is None or value in choices or not choices:
        return ""
    words = f"one of {', '.join(str(each) for each in choices)}"
    return f"must be {words}, not {_shown(value)}{_near(words, value)}"


def _shown(value: Any) -> str:
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, (bool, type(None))) else None
    return text or repr(value)[:80]


def _missing(tree: Mapping[str, Any], catalogue: Catalogue, version: str) -> Iterator[FileNote]:
    given = dict(_given(tree, catalogue))
    for argument in catalogue.arguments:
        section, _, name = argument.name.rpartition(".")
        # A section that may be null is not read without being written.
        is_read = section in given or not _is_optional(section, catalogue)
        if argument.required and is_read and name not in given.get(section, {}):
            text = f"is missing, and MindFormers {version} has no default for it"
            yield FileNote(key=argument.name, text=text, refused=True)


def _is_optional(section: str, catalogue: Catalogue) -> bool:
    argument = catalogue.get(section)
    return argument is not None and argument.nullable


def _given(tree: Mapping[str, Any], catalogue: Catalogue) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the sections of a file and what is written in each."""
    for section in sorted(_sections(catalogue)):
        node: Any = tree
        for part in section.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if isinstance(node, Mapping) and section.partition(".")[0] != _CALLBACKS:
            yield section, node


def condition_notes(
    section: str, values: Mapping[str, Any], catalogue: Catalogue, version: str, *, wrong: set[str] | None = None
) -> Iterator[FileNote]:
    """Yield the conditions of a section under which the version raises.

    Args:
        values: the section as written; its other keys have their defaults.
        wrong: keys whose values are refused already, paths.
    """
    for each in catalogue.conditions:
        keys = keys_of(each.refused) if each.section == section else ()
        paths = [f"{section}.{key}" for key in keys]
        arguments = [catalogue.get(path) for path in paths]
        if not keys or (wrong or set()).intersection(paths):
            continue
        used = {key: values.get(key, arg.default if arg else None) for key, arg in zip(keys, arguments, strict=True)}
        if not holds(each.refused, used):
            continue
        decisive, words = requirement(each.refused, used)
        key = decisive or next((name for name in reversed(keys) if name in values), keys[0])
        others = ", ".join(f"{name} {_shown(value)}" for name, value in used.items() if name != key)
        text = (
            f"must be {words}, not {_shown(used[key])}{_near(words, used[key])}" if words else _refused(each, used[key])
        )
        yield FileNote(key=f"{section}.{key}", text=text + (f" (with {others})" if others else ""), refused=True)


def _refused(condition: Refused, value: Any) -> str:
    return f"{_shown(value)} is refused: {condition.refused}"


def _near(words: str, value: Any) -> str:
    _, is_choice, choices = words.partition("one of ")
    near = suggest(str(value), choices.split(", "), 1) if is_choice else []
    return f"; did you mean {near[0]}?" if near else ""
