"""Saves and resumes a search: its progress and results in a state file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from launcher.job import Job, as_tree
from launcher.outputs.files import write_output
from launcher.outputs.kinds import Kind
from launcher.search.found import Candidate, Found

STATE = Kind(
    title="the state of a search", recognises=lambda path: path.read_bytes()[:12] == b'{"search": "', edited=False
)


class OtherSearch(ValueError):
    """The file is the state of another search, or not a state file."""


def digest(job: Job, backends: tuple[str, ...]) -> str:
    """Return a hash that identifies a search: of the whole job and its backends."""
    return hashlib.sha256(json.dumps([as_tree(job), backends], sort_keys=True, default=str).encode()).hexdigest()


def save(path: Path, mark: str, done: int, found: Found) -> None:
    """Write the progress of a search; overwrites only a state file.

    Raises:
        OutputRefused: another file exists at this path.
    """
    write_output(path, json.dumps({"search": mark, "done": done, "found": dataclasses.asdict(found)}), STATE)


def load(path: Path, mark: str) -> tuple[int, Found] | None:
    """Return layouts done and results; None: the file does not exist.

    Raises:
        OtherSearch: the file is the state of another search.
    """
    if not path.exists():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        found = Found(**{name: _value(name, value) for name, value in tree["found"].items()})
        done, same = int(tree["done"]), tree["search"] == mark
    except (ValueError, KeyError, TypeError) as error:
        raise OtherSearch(f"{path}: not the state of a search ({type(error).__name__})") from None
    if not same:
        raise OtherSearch(f"{path}: the state of another search (other job, backend or options); name another file")
    return done, found


def _value(name: str, value: Any) -> Any:
    return [_candidate(each) for each in value] if name in ("best", "fitting", "nearest") else value


def _candidate(tree: dict[str, Any]) -> Candidate:
    for name in ("values", "point"):
        tree[name] = {path: tuple(v) if isinstance(v, list) else v for path, v in tree[name].items()}
    return Candidate(**tree)
