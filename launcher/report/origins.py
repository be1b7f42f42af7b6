"""Where a value comes from, in the words of `dry-run`, `explain`, the report, notebooks and the planner."""

import re
from pathlib import PurePath

from launcher.compose.search_path import SECTION_GROUPS
from launcher.job import Job, fields, value_at
from launcher.mapping.backend import Backend
from launcher.mapping.engine import fields_of_flags

SCHEMA_DEFAULT, BACKEND_DEFAULT, BY_BACKEND = "schema default", "backend default", "set by the backend"
_RULE = "rule"
# By kind: the origin's name, and what a sentence adds to it.
_KINDS = {
    "override": ("chosen by you", "on the command line"),
    "recipe": ("recipe", ""),
    "default": (SCHEMA_DEFAULT, "written so that every backend trains the same"),
    "derived": ("computed", "from other fields"),
    "pass-through": ("passed through", "as it is (backend.args)"),
}
# Kinds whose place is more than what the user sees anyway.
_PLACED = ("recipe", "derived")
# A file, before its line or the model that it was read as.
_FILE = re.compile(r"(?P<file>.*?)(:\d+|, as .*)?")


def origin_parts(kind: str, where: str) -> tuple[str, str]:
    """Return the name of an origin, and its place: file and line, what was typed, or the id of a rule.

    A file of a section's group (`conf/cluster/local.yaml`) is a preset, whether it was chosen or is the default one.
    """
    if kind.startswith(f"{_RULE}:"):
        return _RULE, kind.partition(":")[2]
    name = _KINDS[kind][0] if kind in _KINDS else kind
    if kind == "recipe":
        found = _FILE.fullmatch(where)
        group = PurePath(found["file"] if found else where).parent.name
        name = f"{group} preset" if group in SECTION_GROUPS else name
    return name, where


def origin_words(kind: str, where: str, field: str | None = None) -> str:
    """Return an origin in a few words: its name, and the file and line for what a file says.

    Args:
        field: that of an argument; what was typed for another field, which the argument also expresses, is named.
    """
    name, place = origin_parts(kind, where)
    if name == _RULE:
        return f"{name} {place}"
    of_other = kind == "override" and field is not None and place.partition("=")[0].lstrip("+") != field
    return f"{name}, {place}" if place and (kind in _PLACED or of_other) else name


def origin_sentence(kind: str, where: str) -> str:
    """Return what an origin means; its place is another line."""
    name, _ = origin_parts(kind, where)
    more = _KINDS[kind][1] if kind in _KINDS else ""
    return f"{name}, {more}" if more else name


def left_to_backend(job: Job, backend: Backend, version: str) -> list[str]:
    """Return the fields that are not set and have an argument of the backend, whose default applies."""
    written = {path for paths in fields_of_flags(backend.name, version).values() for path in paths}
    return [path for path in fields() if path in written and value_at(job, path) is None]
