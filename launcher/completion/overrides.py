"""Completion of Hydra overrides: groups and their options, fields and their values, native arguments."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from launcher.completion import files
from launcher.completion.index import Index, shipped

Candidate = tuple[str, str]
_ARGS = "backend.args."
# Last parts of the names of text fields that hold a path.
_PATHS = (
    "path",
    "paths",
    "dir",
    "file",
    "folder",
    "load",
    "save",
    "fallback",
    "model",
    "config",
    "strategy",
    "results",
)
_TRUTH = ("true", "false")


def override_candidates(
    index: Index, words: Sequence[str], prefix: str, part: Callable[[str], Index]
) -> Iterator[Candidate]:
    """Yield the overrides that complete a word: keys up to `=`, then values."""
    sign = next((mark for mark in ("++", "+", "~") if prefix.startswith(mark)), "")
    if sign == "~" and prefix.startswith("~/"):
        return
    key, equals, typed = prefix[len(sign) :].partition("=")
    if not equals:
        yield from _keys(index, words, sign, key, part)
        return
    before = f"{sign}{key}="
    # A value that Hydra reads as quoted: the quote stays, and what follows is completed.
    quote = typed[0] if typed[:1] in ("'", '"') else ""
    found = _values(index, words, key, typed[len(quote) :], part)
    yield from ((before + quote + text, doc) for text, doc in found)


def _keys(
    index: Index, words: Sequence[str], sign: str, typed: str, part: Callable[[str], Index]
) -> Iterator[Candidate]:
    end = "" if sign == "~" else "="
    for group, each in index["groups"].items():
        if sign in ("+", "~") or each["sign"] == sign:
            yield f"{sign}{group}{end}", each["doc"]
        elif not typed and not sign:
            yield f"{each['sign']}{group}{end}", each["doc"]
    if typed.startswith(_ARGS):
        arguments = _arguments(index, words, part)
        yield from ((f"{sign}{_ARGS}{name}{end}", each["doc"]) for name, each in arguments.items())
    elif typed or sign == "++":
        yield from ((f"{sign}{path}{end}", _about(field)) for path, field in index["fields"].items())
        yield f"{sign}{_ARGS}", "native arguments of the backend"
        yield f"{sign}backend.env.", "environment variables of every node"
    else:
        yield from ((f"{sign}{section}.", doc) for section, doc in index["sections"].items())


def _about(field: Index) -> str:
    unit = f" ({field['unit']})" if field["unit"] else ""
    return f"{field['doc']}{unit}"


def _values(
    index: Index, words: Sequence[str], key: str, typed: str, part: Callable[[str], Index]
) -> Iterator[Candidate]:
    if key in index["groups"]:
        yield from _options(index, words, key, typed)
        return
    field = index["fields"].get(key)
    if key.startswith(_ARGS):
        field = _arguments(index, words, part).get(key.removeprefix(_ARGS))
    if field is None:
        return
    named = _names(index, words, key, part)
    if field["list"]:
        inner, last = _in_list(typed)
        found = [*named, *((text, "") for text in _fixed(field) if text != "null")] or list(_paths(key, last))
        yield from ((inner + text, doc) for text, doc in found)
        return
    yield from named
    yield from ((text, "default" if text == field["default"] else "") for text in _fixed(field))
    if field["kind"] == "text" and not field["choices"] and not named:
        yield from _paths(key, typed)


def _fixed(field: Index) -> list[str]:
    """Return the values of a field that can be listed."""
    found = list(field["choices"] or (_TRUTH if field["kind"] == "boolean" else ()))
    return [*found, "null"] if field["nullable"] and found else found


def _in_list(typed: str) -> tuple[str, str]:
    """Return the part of a list before its last value, and what is typed of that: `[a,b` is `[a,` and `b`."""
    at = max(typed.rfind(","), 0 if typed.startswith("[") else -1) + 1
    while at < len(typed) and typed[at] in " '\"":
        at += 1
    return typed[:at], typed[at:]


def _paths(key: str, typed: str) -> Iterator[Candidate]:
    """Yield paths for fields that hold one, and for anything that is typed as one."""
    last = key.rpartition(".")[2]
    if typed.startswith(("/", "./", "../", "~/")) or last.split("_")[-1] in _PATHS:
        yield from files.paths(typed)


def _names(index: Index, words: Sequence[str], key: str, part: Callable[[str], Index]) -> list[Candidate]:
    """Return the values of fields whose names other parts of the program define."""
    if key == "backend.name":
        return [(name, each["title"]) for name, each in index["backends"].items()]
    if key == "backend.version":
        return [(version, each["title"]) for each in _backends(index, words) for version in each["versions"]]
    if key == "cluster.executor":
        return [(name, "") for name in index["executors"]]
    if key == "rules.disable":
        return list(part("rules")["rules"].items())
    return []


def _options(index: Index, words: Sequence[str], group: str, typed: str) -> Iterator[Candidate]:
    """Yield the options of a group: of the user's folders on the command line, the shipped ones, and files."""
    conf, recipes = shipped()
    own = [os.path.expanduser(folder) for folder in config_dirs(words)]
    folders = [os.path.join(root, group) for root in (*own, conf)]
    if group == "recipe":
        folders = [path for root in own for path in (root, os.path.join(root, "recipes"))] + [recipes]
    docs = index["groups"][group]["options"]
    before = typed[: typed.rfind(",") + 1]
    for name in dict.fromkeys([*files.options(folders), *docs]):
        yield before + name, docs.get(name, "")
    yield from files.paths(typed, suffixes=files.YAML)


def config_dirs(words: Sequence[str]) -> Iterator[str]:
    """Yield the folders that `--config-dir` names before the cursor."""
    for at, word in enumerate(words):
        if word == "--config-dir" and at + 1 < len(words):
            yield words[at + 1]
        elif word.startswith("--config-dir="):
            yield word.partition("=")[2]


def _backends(index: Index, words: Iterable[str]) -> list[Index]:
    """Return the backend that the command line chooses; all of them where it chooses none."""
    for word in words:
        key, _, value = word.partition("=")
        if key.lstrip("+") in ("backend", "backend.name") and value in index["backends"]:
            return [index["backends"][value]]
    return list(index["backends"].values())


def _arguments(index: Index, words: Sequence[str], part: Callable[[str], Index]) -> Index:
    """Return the native arguments of the backend and version on the command line."""
    wanted = next((word.partition("=")[2] for word in words if word.startswith("backend.version=")), "")
    found: Index = {}
    for backend in _backends(index, words):
        version = wanted if wanted in backend["versions"] else backend["default"]
        found = {**part(f"{backend['name']}@{version}")["arguments"], **found}
    return found
