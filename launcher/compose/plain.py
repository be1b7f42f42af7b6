"""Merges shipped files and values that need nothing of Hydra, whose import takes longer than converting 1 GB.

That is a section's file by its name (`backend=NAME`, without a recipe) and a field's whole number, truth value, null or
text in quotes. For anything else the answer is None, and Hydra is asked: it alone reads defaults lists, interpolations
and the rest of its grammar. Tests hold both to the same trees.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launcher.compose.overrides import Override
from launcher.compose.search_path import SECTION_GROUPS, SearchPath, shipped
from launcher.job import fields

_OPTION: Final = re.compile(r"[a-z]\w*", re.ASCII)
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)")
_QUOTED: Final = re.compile(r"'([^'\\$\x00-\x1f]*)'")
_WORDS: Final = {"true": True, "false": False, "null": None}
# What Hydra and OmegaConf read otherwise than as it is written.
_MARKS: Final = ("${", "???", "@package")


def plain_files(
    groups: Sequence[Override], places: SearchPath
) -> tuple[dict[str, Any], tuple[tuple[str, Path], ...]] | None:
    """Return the merged tree of chosen options and the files it is from, as (group, path); None: ask Hydra."""
    chosen = {override.key: override.value or "" for override in groups}
    if len(chosen) < len(groups) or not chosen.keys() <= set(SECTION_GROUPS) or places.has_user_folders:
        return None
    root = shipped("conf") / "config.yaml"
    tree: dict[str, Any] = {}
    files: list[tuple[str, Path]] = []
    for group, default in _defaults(root):
        option = chosen.get(group, default)
        if option is None:
            continue
        path = places.find(group, option) if _OPTION.fullmatch(option) and option not in _WORDS else None
        section = None if path is None else _section(path)
        if path is None or section is None:
            return None
        tree[group] = section
        files.append((group, path))
    return tree, (("", root), *reversed(files))  # Hydra's order


def _defaults(root: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the groups of the defaults list, each with its option."""
    for entry in _read(root)["defaults"]:
        if isinstance(entry, Mapping):
            yield from ((group, option) for group, option in entry.items() if not group.startswith("override "))


def _section(path: Path) -> Mapping[str, Any] | None:
    """Return the fields of a section's file; None for a file that only Hydra can read."""
    found = None if any(mark in path.read_text(encoding="utf-8") for mark in _MARKS) else _read(path)
    return found if isinstance(found, Mapping) and "defaults" not in found else None


def _read(path: Path) -> Any:
    import yaml

    return yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def plain_value(word: str) -> tuple[list[str], Any] | None:
    """Return the path and the value of an override as written for Hydra (`++key=value`); None: ask Hydra."""
    key, _, text = word.removeprefix("++").partition("=")
    if key not in fields():
        return None
    quoted = _QUOTED.fullmatch(text)
    if quoted is not None:
        return key.split("."), quoted[1]
    if _INTEGER.fullmatch(text):
        return key.split("."), int(text)
    return (key.split("."), _WORDS[text]) if text in _WORDS else None
