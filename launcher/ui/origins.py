"""Where a value comes from, in the words of the page."""

from pathlib import PurePath

from launcher.compose.search_path import SECTION_GROUPS
from launcher.job import Job, fields, value_at
from launcher.mapping.backend import Backend
from launcher.mapping.engine import fields_of_flags

SCHEMA_DEFAULT, BACKEND_DEFAULT = "schema default", "backend default"
_WORDS = {
    "override": "chosen by you",
    "default": SCHEMA_DEFAULT,
    "derived": "computed",
    "pass-through": "passed through",
}


def origin_words(kind: str, where: str) -> str:
    """Return the origin of a value: its kind, and the file and line for what a file says.

    A file of a section's group (`conf/cluster/local.yaml`) is a preset, whether it was chosen or is the default one.
    """
    if kind == "recipe":
        group = PurePath(where.rpartition(":")[0]).parent.name
        kind = f"{group} preset" if group in SECTION_GROUPS else "recipe"
    elif kind.startswith("rule:"):
        kind, where = f"rule {kind.removeprefix('rule:')}", ""
    else:
        # What was typed is on the page already.
        kind, where = _WORDS.get(kind, kind), where if kind == "derived" else ""
    return f"{kind}, {where}" if where else kind


def left_to_backend(job: Job, backend: Backend, version: str) -> list[str]:
    """Return the fields that are not set and have an argument of the backend, whose default applies."""
    written = {path for paths in fields_of_flags(backend.name, version).values() for path in paths}
    return [path for path in fields() if path in written and value_at(job, path) is None]
