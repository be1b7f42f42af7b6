"""Composes simple command lines without Hydra, whose startup alone takes longer than all rules together.

Anything else (a sweep, an interpolation, a user file, a nested list …) is left to Hydra. The results must be equal:
tests/compose/test_plain.py compares them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from launcher.compose.overrides import Override, kind_of
from launcher.compose.search_path import SECTION_GROUPS, SearchPath, shipped
from launcher.job import fields


class _NotPlain(Exception):
    """Input that only Hydra can parse."""


# Errors of files that are left to Hydra, including tags that do not fit their value and circular aliases.
_UNREAD = (_NotPlain, yaml.YAMLError, OSError, ValueError, KeyError, RecursionError)


def composed(overrides: list[Override], places: SearchPath) -> tuple[dict[str, Any], list[tuple[str, Path]]] | None:
    """Return the merged tree and its source files, as Hydra would; None if an override or file is not plain."""
    try:
        options = _options(overrides)
        values = [(override.key, _value(override)) for override in overrides if not override.is_group]
        return _merged(options, values, places)
    except _UNREAD:
        return None


def read(path: Path) -> dict[str, Any] | None:
    """Return a YAML file as OmegaConf would read it; None if it is not plain."""
    try:
        return _file(path)[1]
    except _UNREAD:
        return None


def _merged(
    options: dict[str, str], values: list[tuple[str, Any]], places: SearchPath
) -> tuple[dict[str, Any], list[tuple[str, Path]]]:
    if places.roots != (shipped("conf"),) or [mount.folder for mount in places.mounts] != [shipped("recipes")]:
        raise _NotPlain
    whole: dict[str, Any] = {}
    chosen: dict[str, str | None] = {}
    files = [("", shipped("conf") / "config.yaml")]
    recipe = options.pop("recipe", None)
    if recipe is not None:
        header, whole = _file(_found(places, "recipe", recipe))
        if header not in (None, "_global_"):
            raise _NotPlain
        chosen.update(_choices(whole.pop("defaults", []), prefix="override /"))
    header, root = _file(files[0][1])
    defaults = root.pop("defaults", [])
    if header is not None or root or not defaults or defaults[0] != "_self_":
        raise _NotPlain
    tree: dict[str, Any] = {}
    usual = _choices([entry for entry in defaults[1:] if not _of_hydra(entry)], prefix="")
    if not set(chosen) | set(options) <= set(usual):
        raise _NotPlain
    for group, option in {**usual, **chosen, **options}.items():
        if option is not None:
            files.append((group, _found(places, group, option)))
            header, section = _file(files[-1][1])
            if header is not None or "defaults" in section:
                raise _NotPlain
            tree[group] = section
    if recipe is not None:
        files.append(("recipe", _found(places, "recipe", recipe)))
    _merge(tree, whole)
    for key, value in values:
        _set(tree, key, value)
    return tree, files


# -- overrides
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_INT = re.compile(r"-?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TEXT = re.compile(r"[A-Za-z0-9_./~:@%+=,-]([A-Za-z0-9_./~:@%+=, -]*[A-Za-z0-9_./~:@%+=,-])?")
_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_OTHER_NUMBERS = ("nan", "inf")


def _options(overrides: list[Override]) -> dict[str, str]:
    """Return the group options that the overrides select, in order, including the recipe."""
    keys = [override.key for override in overrides]
    if len(set(keys)) != len(keys):
        raise _NotPlain
    options: dict[str, str] = {}
    for override in overrides:
        if override.is_group:
            allowed = ("", "+") if override.key == "recipe" else ("",)
            if override.key not in (*SECTION_GROUPS, "recipe") or override.sign not in allowed:
                raise _NotPlain
            if not _OPTION.fullmatch(override.value or "") or (override.value or "").lower() in _WORDS:
                raise _NotPlain
            options[override.key] = override.value or ""
    return options


def _value(override: Override) -> Any:
    """Return the value of a field's override, as Hydra would parse the output of `for_hydra`."""
    key, text = override.key, override.value or ""
    free = key.startswith(("backend.args.", "backend.env."))
    if not _KEY.fullmatch(key) or not (key in fields() or (free and key.count(".") == 2)):
        raise _NotPlain
    kind = kind_of(key)
    if kind is str:
        if text == "null":
            return None
        if not _TEXT.fullmatch(text):
            raise _NotPlain
        return text
    if kind is tuple and text.startswith("[") and text.endswith("]"):
        inner = text[1:-1]
        return [_primitive(part) for part in inner.split(",")] if inner else []
    if kind is tuple and "," in text:
        return [int(part) if _INT.fullmatch(part) and part.isdigit() else _listed(part) for part in text.split(",")]
    return _primitive(text)


def _listed(part: str) -> str:
    if not _TEXT.fullmatch(part):
        raise _NotPlain
    return part


def _primitive(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NAME.fullmatch(text) and text.lower() not in _OTHER_NUMBERS:
        return text
    raise _NotPlain


# -- lists of defaults
def _choices(entries: Any, *, prefix: str) -> dict[str, str | None]:
    """Return group and option of entries of a defaults list such as `- override /model: qwen3_8b`."""
    if not isinstance(entries, list):
        raise _NotPlain
    choices: dict[str, str | None] = {}
    for entry in entries:
        if not isinstance(entry, dict) or len(entry) != 1:
            raise _NotPlain
        ((name, option),) = entry.items()
        group = name.removeprefix(prefix)
        if not name.startswith(prefix) or group not in SECTION_GROUPS or group in choices:
            raise _NotPlain
        if option is not None and not (isinstance(option, str) and _OPTION.fullmatch(option)):
            raise _NotPlain
        choices[group] = option
    return choices


def _of_hydra(entry: Any) -> bool:
    return isinstance(entry, dict) and all(str(name).startswith("override hydra/") for name in entry)


def _found(places: SearchPath, group: str, option: str) -> Path:
    path = places.find(group, option)
    if path is None:
        raise _NotPlain
    return path


# -- merging of mappings and values
def _merge(tree: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        old = tree.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif key in tree and isinstance(value, dict) != isinstance(old, dict):
            raise _NotPlain
        else:
            tree[key] = value


def _set(tree: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise _NotPlain
    if isinstance(tree.get(last), dict):
        raise _NotPlain
    tree[last] = value


# -- files
_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)\s*$")


def _file(path: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the package that a file's header names, and its content."""
    text = path.read_text(encoding="utf-8")
    if "@package" in text.partition("\n")[2] or "${" in text or "???" in text:
        raise _NotPlain
    first = text.partition("\n")[0]
    match = _PACKAGE.match(first)
    if "@package" in first and match is None:
        raise _NotPlain
    content = yaml.load(text, Loader=_loader())
    if content is None:
        content = {}
    if not isinstance(content, dict) or not all(_is_plain(each) for each in _leaves(content)):
        raise _NotPlain
    return match[1] if match else None, content


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for key, value in node.items():
            if not isinstance(key, str):
                raise _NotPlain
            yield from _leaves(value)
    elif isinstance(node, list):
        for value in node:
            yield from _leaves(value)
    else:
        yield node


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return not _STRANGE_NUMBER.fullmatch(value)
    return value is None or isinstance(value, bool | int | float)


def _loader() -> Any:
    """Return a loader that reads scalars as OmegaConf's does: 1e-5 is a number, 2026-01-01 is text."""
    if not _LOADERS:
        _LOADERS.append(_made())
    return _LOADERS[0]


_LOADERS: list[Any] = []
# Numbers whose exponent has no sign, or without a decimal point: text in YAML 1.1, numbers in OmegaConf.
_EXPONENT = re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
_STRANGE_NUMBER = re.compile(r"[-+]?[0-9][0-9.]*_[-+0-9._]*[eE][-+0-9_]*")


def _made() -> Any:
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            if not isinstance(node, yaml.MappingNode):
                raise _NotPlain
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            if len(set(names)) != len(node.value):
                raise _NotPlain
            return super().construct_mapping(node, deep=deep)

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != "tag:yaml.org,2002:timestamp"]
        for first, known in Loader.yaml_implicit_resolvers.items()
    }
    return Loader
