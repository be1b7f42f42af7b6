"""Results of a resumable command: a file that holds for one state of the sources and is replaced atomically."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent


def state_file(name: str) -> Path:
    """Return where a command keeps its results: beside the environments of the slow tests."""
    folder = os.environ.get("LAUNCH_TEST_ENVIRONMENTS", Path.home() / ".cache" / "launch-tests")
    return Path(folder) / f"{name}.json"


def digest(*paths: str) -> str:
    """Return what identifies the sources: the content of every file that git tracks except docs.

    Args:
        paths: only these files and folders; none: all.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--", *paths]
    listed = subprocess.run(command, capture_output=True, check=True).stdout
    found = hashlib.sha256()
    for name in listed.decode().split("\0"):
        path = ROOT / name
        if name and not name.startswith("docs/") and path.suffix != ".md" and path.is_file():
            found.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def commit() -> str:
    """Return the commit of the sources, and whether the program, its tests or tools have changes."""

    def git(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)

    changed = git("diff", "--quiet", "HEAD", "--", "launcher", "backends", "tests", "tools").returncode
    return git("rev-parse", "--short=8", "HEAD").stdout.strip() + (" and changes" if changed else "")


def load(file: Path, sources: str, result: Callable[[Any], T]) -> dict[str, T]:
    """Return the results of these sources by key; none if the file is absent, damaged or of other sources.

    Args:
        sources: what `digest` returned.
        result: makes a result of what `save` wrote for it: a dataclass is a dict, a tuple a list.
    """
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return {key: result(each) for key, each in tree["results"].items()} if tree["sources"] == sources else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def save(file: Path, sources: str, known: Mapping[str, Any]) -> None:
    """Write results, dataclasses or JSON values; a stop at any moment leaves the old file or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    results = {key: asdict(each) if is_dataclass(each) else each for key, each in known.items()}  # type: ignore[arg-type]
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps({"sources": sources, "results": results}), encoding="utf-8")
    beside.replace(file)
