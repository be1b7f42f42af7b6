"""JSON Schema of `backend.args`: the arguments of one backend version, from its catalogue."""

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any

from launcher.catalogue.catalogue import FALSE_WORDS, TRUE_WORDS, Argument, Catalogue
from launcher.catalogue.cli_syntax import default_text
from launcher.schema.document import Schema

_INTEGER = {"type": "string", "pattern": r"^\s*[-+]?\d+(_\d+)*\s*$"}
_NUMBER = {"type": "string", "pattern": r"^\s*[-+]?(\d|\.\d|inf|nan|Inf|NaN)"}
_REFERENCE = {"$ref": "#/$defs/interpolation"}
# What a value of each type of the catalogue may be in YAML; a parser reads numbers and booleans from text, too.
_KINDS: Mapping[str, list[Schema]] = {
    "int": [{"type": "integer"}, _INTEGER],
    "float": [{"type": "number"}, _NUMBER],
    "bool": [{"type": "boolean"}, {"enum": [0, 1]}],
    "str": [{"type": ["string", "number", "boolean"]}],
    "truth": [{"type": ["string", "number", "boolean"]}],
    "list": [{"type": "array"}],
    "dict": [{"type": "object"}],
    "expr": [{"type": ["array", "integer"]}, {"type": "string", "pattern": r"\[|^\s*[-+]?\d+\s*$"}],
    "ints": [{"type": ["string", "integer", "array"]}],
}


def with_native_args(schema: Schema, catalogue: Catalogue) -> Schema:
    """Return the schema of jobs of one backend version, whose `backend.args` are typed."""
    made = copy.deepcopy(schema)
    backend = made["$defs"]["backend"]["properties"]
    backend["name"] = {**backend["name"], **_only(catalogue.backend)}
    backend["version"] = {**backend["version"], **_only(catalogue.version)}
    backend["args"] = {"$ref": "#/$defs/backend.args"}
    made["$defs"]["backend.args"] = {
        "description": f"Native arguments of {catalogue.backend} {catalogue.version}.",
        **args_schema(catalogue),
    }
    made["title"] = f"{made['title']} on {catalogue.backend} {catalogue.version}"
    return made


def _only(name: str) -> Schema:
    # A field's own alternatives go: `type` and `enum` beside each other must both hold.
    return {"enum": [name, None]}


def args_schema(catalogue: Catalogue) -> Schema:
    """Return the schema of the arguments of a catalogue: nested or with dots for the keys of a YAML file."""
    properties = {name: _argument(argument, catalogue, name) for name, argument in _named(catalogue)}
    schema: Schema = {"type": "object", "properties": properties}
    if catalogue.style == "yaml":
        nested: Schema = {"type": "object", "properties": {}}
        for name, each in properties.items():
            _place(nested, name.split("."), each)
        _close(nested, catalogue, "")
        schema["properties"] = {**nested["properties"], **properties}
        return {**schema, **({} if _open(catalogue, "") else {"additionalProperties": False})}
    others = _other_spelling(properties, catalogue)
    return {**schema, **others, "additionalProperties": False}


def _named(catalogue: Catalogue) -> Iterable[tuple[str, Argument]]:
    for argument in catalogue.arguments:
        negation = (argument.negation,) if argument.negation else ()
        for name in (argument.name, *argument.aliases, *negation):
            yield name.lstrip("-"), argument


def _other_spelling(names: Iterable[str], catalogue: Catalogue) -> Schema:
    """Return the pattern of names with the other word separator, which are accepted as well."""
    one, other = ("_", "-") if catalogue.style == "hf" else ("-", "_")
    spelt = sorted(re.escape(name.replace(one, other)).replace(r"\-", "-") for name in names if one in name)
    return {"patternProperties": {f"^({'|'.join(spelt)})$": {}}} if spelt else {}


def _argument(argument: Argument, catalogue: Catalogue, name: str) -> Schema:
    default = default_text(argument)
    notes = [argument.help, f"Default: {default}." if default != "unknown" else "", argument.source]
    about: Schema = {"description": " ".join(note for note in notes if note)}
    if argument.deprecated or argument.renamed_to:
        note = f"Renamed to {argument.renamed_to}." if argument.renamed_to else "Deprecated."
        about |= {"deprecated": True, "deprecationMessage": note}
    if argument.is_flag or catalogue.is_negation(name):
        return {**about, "anyOf": [{"type": ["boolean", "null"]}, _REFERENCE]}
    item = _item(argument)
    if item is None:
        return about
    if not argument.is_list:
        return {**about, "anyOf": [*item, {"type": "null"}, _REFERENCE]}
    items: Schema = {"type": "array", "items": {"anyOf": [*item, _REFERENCE]}}
    if isinstance(argument.nargs, int):
        items |= {"minItems": argument.nargs, "maxItems": argument.nargs}
    single = item if argument.nargs in ("+", "*", 1) else []
    return {**about, "anyOf": [items, *single, {"type": "null"}, _REFERENCE]}


def _item(argument: Argument) -> list[Schema] | None:
    """Return the alternatives of one value; None: any value."""
    if argument.choices is not None:
        kinds = [choice for choice in argument.choices if choice is not None]
        words = [text for choice in kinds for text in _spellings(choice)]
        return [{"enum": list(dict.fromkeys(words))}]
    kinds = argument.type.split("|")
    if any(kind not in _KINDS for kind in kinds):
        return None
    found = [each for kind in kinds for each in _KINDS[kind]]
    if "bool" in kinds:
        words = sorted(TRUE_WORDS | FALSE_WORDS)
        found.append({"type": "string", "pattern": _any_case(words)})
    return [*found, *([{"const": True}] if argument.optional_value else [])]


def _any_case(words: Iterable[str]) -> str:
    """Return a pattern of words in any case; JSON Schema's regular expressions have no flags."""
    spelt = ("".join(f"[{char}{char.upper()}]" if char.isalpha() else char for char in word) for word in words)
    return f"^({'|'.join(spelt)})$"


def _spellings(choice: Any) -> tuple[Any, ...]:
    return (choice,) if isinstance(choice, str) else (choice, str(choice))


def _place(tree: Schema, parts: list[str], value: Schema) -> None:
    """Place the schema of a dotted key into a tree of sections; a key that also takes a mapping stays what it is."""
    for part in parts[:-1]:
        node = tree["properties"].setdefault(part, {"type": "object", "properties": {}})
        if "properties" not in node:
            return
        tree = node
    tree["properties"].setdefault(parts[-1], value)


def _close(node: Schema, catalogue: Catalogue, path: str) -> None:
    for name, inner in node["properties"].items():
        if "properties" in inner:
            own = f"{path}.{name}".lstrip(".")
            if not _open(catalogue, own):
                inner["additionalProperties"] = False
            _close(inner, catalogue, own)


def _open(catalogue: Catalogue, path: str) -> bool:
    """Return whether the backend takes unknown keys directly below a section."""
    return catalogue.is_open(f"{path}.unknown".lstrip("."))
