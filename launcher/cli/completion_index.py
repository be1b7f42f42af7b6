"""Makes the index that completion reads, from the verbs' own parsers, the fields and the catalogues."""

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from launcher.cli.dispatch import VERBS
from launcher.cli.listed import GROUPS as LISTS
from launcher.cli.listed import sentence
from launcher.cli.options import parser_of
from launcher.completion.index import Index, write
from launcher.completion.shells import INSTALL as SHELLS
from launcher.compose.search_path import GROUPS, PLUGIN_GROUPS, WHOLE_JOB_GROUPS, search_path
from launcher.job import override_text
from launcher.mapping.backend import backend_names, get_backend
from launcher.plan.executor import executor_names
from launcher.plugins import BrokenPlugin
from launcher.schema.document import document
from launcher.schema.field_table import FieldRow, field_table

_WHOLE = {"recipe": "a whole job", "job": "a job file", "strategy": "values over a recipe"}
# What options and positionals take, by their placeholder in the help.
_TAKES = {
    "OVERRIDE": "override",
    "ID": "run",
    "BACKEND": "backend",
    "B": "backend",
    "B[@V]": "backend",
    "A,B": "backend",
    "A,B[,C]": "backend",
    "V": "version",
    "DIR": "dir",
}
# Positionals and options with a placeholder of another meaning.
_TAKES_IN = {
    "explain NAME": "name",
    "convert verify A": "dir",
    "convert verify B": "dir",
    "convert hf-to-mcore --backend": "backend",
    "convert reshard --backend": "backend",
}
# Verbs whose overrides may also be files.
_FILES_TOO = ("check", "diff")


def make_all() -> None:
    """Make the index, and the parts of it that most command lines need."""
    for name, backend in make()["backends"].items():
        make_part(f"{name}@{backend['default']}")
    make_part("rules")


def make() -> Index:
    """Make the index and write it to the cache folder."""
    index = {
        "verbs": {name: _verb(name) for name in VERBS},
        "groups": {group: _group(group) for group in GROUPS},
        "fields": {row.path: _field(row) for row in field_table()},
        "sections": _sections(),
        "backends": _backends(),
        "executors": list(executor_names()),
    }
    write(index)
    return index


def make_part(name: str) -> Index:
    """Make a part of the index, and write it to the cache folder: `rules`, or the arguments of `BACKEND@VERSION`."""
    if name == "rules":
        part: Index = {"rules": {each.name: each.what for each in LISTS["rules"](search_path())}}
        write(part, name)
        return part
    backend, _, version = name.partition("@")
    catalogue = get_backend(backend).catalogue(version)
    kinds = {"bool": "boolean", "int": "integer", "float": "number"}
    arguments = {
        argument.name: {
            "doc": argument.help or f"{argument.type} of {backend}",
            "kind": kinds.get(argument.type, "text"),
            "list": argument.is_list,
            "nullable": False,
            "choices": [str(choice) for choice in argument.choices or () if choice is not None],
            "default": str(argument.default),
            "unit": "",
        }
        for argument in catalogue.arguments
    }
    part = {"arguments": arguments}
    write(part, name)
    return part


def _verb(name: str) -> Index:
    module = import_module(VERBS[name].module)
    inner: Mapping[str, str] = getattr(module, "SUBVERBS", {})
    if inner:
        verbs = {each: _of_parser(f"{name} {each}", doc, module.main, [each]) for each, doc in inner.items()}
        return {"doc": VERBS[name].doc, "verbs": verbs, "options": [], "positionals": []}
    return _of_parser(name, VERBS[name].doc, module.main, [])


def _of_parser(name: str, doc: str, main: Callable[[list[str]], int], words: list[str]) -> Index:
    options, positionals = [], []
    for action in parser_of(main, words)._actions:
        entry = _taken(name, action)
        if action.option_strings:
            options.append({"names": list(action.option_strings), **entry})
        else:
            positionals.append({**entry, "many": action.nargs in ("*", "+")})
    return {"doc": doc, "options": options, "positionals": positionals}


def _taken(verb: str, action: argparse.Action) -> Index:
    """Return what an option or a positional takes; "": nothing."""
    metavar = str(action.metavar or "")
    choices = [str(choice) for choice in action.choices or _CHOICES.get(f"{verb} {metavar}", list)()]
    takes = (
        ""
        if action.nargs == 0
        else _TAKES_IN.get(f"{verb} {(*action.option_strings, metavar)[0]}") or _TAKES.get(metavar, "text")
    )
    if takes == "text" and any(part in metavar for part in ("FILE", "FOLDER", "JOB.yaml")):
        takes = "file"
    also = "file" if takes == "override" and verb in _FILES_TOO else ""
    return {"doc": action.help or "", "takes": takes, "choices": choices, "also": also}


def _section_names() -> list[str]:
    return [name for name, each in document()["$defs"].items() if "properties" in each]


_CHOICES: Mapping[str, Callable[[], list[str]]] = {
    "list GROUP": lambda: list(LISTS),
    "schema SECTION": _section_names,
    "completion SHELL": lambda: list(SHELLS),
}


def _group(group: str) -> Index:
    places = search_path()
    options = {}
    for name in places.options(group):
        path = places.find(group, name)
        options[name] = sentence(path) if path is not None else ""
    if group in PLUGIN_GROUPS and group == "backend":
        options = {name: _title(name) for name in options}
    whole = group in WHOLE_JOB_GROUPS
    doc = _WHOLE[group] if whole else f"section {group} from a file"
    return {"sign": "+" if whole else "", "doc": doc, "options": options}


def _title(name: str) -> str:
    try:
        return get_backend(name).title
    except BrokenPlugin:
        return ""


def _field(row: FieldRow) -> Index:
    return {
        "doc": row.meaning,
        "kind": row.kind,
        "list": row.is_list,
        "nullable": row.nullable,
        "choices": list(row.choices),
        "default": override_text(row.default),
        "unit": row.unit,
    }


def _sections() -> dict[str, str]:
    schema: dict[str, Any] = document()
    names = dict.fromkeys(row.path.partition(".")[0] for row in field_table() if "." in row.path)
    return {name: schema["$defs"][name].get("description", "") for name in names}


def _backends() -> dict[str, Index]:
    found = {}
    for name in backend_names():
        try:
            backend = get_backend(name)
        except BrokenPlugin:
            continue  # every verb reports it; here only its names are missing
        versions = list(backend.versions)
        found[name] = {
            "name": name,
            "title": backend.title,
            "versions": versions,
            "default": backend.version(None),
        }
    return found


if __name__ == "__main__":
    make_all()
