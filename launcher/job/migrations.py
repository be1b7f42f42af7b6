"""Schema versions of the files that Launch writes and reads again, and how older files become current ones.

A file has its version in `schema: N`; one without is of version 0, as files were written before 2026-11-23. The
current version is the number of migrations. A name, once renamed, is never used for anything else.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from launcher.records import dataclass

KEY = "schema"


class WrongSchema(Exception):
    """A file of a newer version of Launch, or one whose version is no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """What makes a file of one version one of the next.

    Attributes:
        why: what changed.
        renames: old dotted path to the new one.
        change: what renames cannot say: the file's tree to a new one, after the renames.
    """

    why: str
    renames: Mapping[str, str] = field(default_factory=dict)
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda tree: tree


# Job files (`+job=`, `+strategy=`, `+recipe=`): written by import, port, search, balance, check --fix and dry-run.
JOB_FILES: tuple[Migration, ...] = (
    Migration(why="files contain their version"),
    Migration(
        why="where router weights are applied belongs to the architecture, as Llama 4's config.json decides it",
        renames={"moe.apply_probs_on_input": "model.apply_probs_on_input"},
    ),
)
# run/run.json, and run/plan.json, run/job.json beside it, which are written only.
RUN_RECORDS: tuple[Migration, ...] = (Migration(why="records contain their version"),)


def versioned(tree: Mapping[str, Any], migrations: tuple[Migration, ...]) -> dict[str, Any]:
    """Return the content of a file with the current version, first."""
    return {KEY: len(migrations), **tree}


def check_schema(value: Any, migrations: tuple[Migration, ...], where: str) -> int:
    """Return the version of a file.

    Raises:
        WrongSchema: this program cannot read it.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise WrongSchema(f"{where}: {KEY} is a number that launch writes, from 0 to {len(migrations)}, not {value!r}")
    if value > len(migrations):
        raise WrongSchema(
            f"{where} is of schema {value}, written by a newer version of Launch; this one reads up to schema "
            f"{len(migrations)}: pip install -U launch-llm"
        )
    return value


def migrated(tree: Mapping[str, Any], migrations: tuple[Migration, ...], where: str) -> dict[str, Any]:
    """Return the content of a file as the current version writes it, without its version.

    Raises:
        WrongSchema: this program cannot read it.
    """
    found = {name: value for name, value in tree.items() if name != KEY}
    for migration in migrations[check_schema(tree.get(KEY, 0), migrations, where) :]:
        for old, new in migration.renames.items():
            found = _moved(found, old.split("."), new.split("."))
        found = migration.change(found)
    return found


def current_path(path: str, migrations: tuple[Migration, ...]) -> str:
    """Return today's name of a path that any version wrote, or of one below it."""
    for migration in migrations:
        for old, new in migration.renames.items():
            if path == old or path.startswith(f"{old}."):
                path = new + path.removeprefix(old)
    return path


def _moved(tree: dict[str, Any], old: list[str], new: list[str]) -> dict[str, Any]:
    """Return a tree with one value at another path; as it is, if it does not have the value."""
    if not _has(tree, old):
        return tree
    without, value = _removed(tree, old)
    return _placed(without, new, value)


def _has(tree: Any, path: list[str]) -> bool:
    return isinstance(tree, dict) and path[0] in tree and (len(path) == 1 or _has(tree[path[0]], path[1:]))


def _removed(tree: dict[str, Any], path: list[str]) -> tuple[dict[str, Any], Any]:
    name, *rest = path
    if not rest:
        return {key: value for key, value in tree.items() if key != name}, tree[name]
    inner, value = _removed(tree[name], rest)
    return {key: inner if key == name else each for key, each in tree.items() if key != name or inner}, value


def _placed(tree: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    name, *rest = path
    if not rest:
        return {**tree, name: value}
    inner = tree.get(name)
    return {**tree, name: _placed(inner if isinstance(inner, dict) else {}, rest, value)}
