"""The differences between a recipe and the script that it was copied from, on the script's own backend."""

import argparse
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.cli.diff_columns import Words, sides
from launcher.compose import compose
from launcher.importing.imported import Imported
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.side_by_side import side_by_side, text
from launcher.job import Job, Value, field_paths, value_at
from launcher.mapping.backend import get_backend
from tools.recipe_sources.reasons import Difference

# The backend whose scripts a project has.
BACKENDS = {"ms-swift": "megatron", "MindSpeed-LLM": "mindspeed", "Megatron-LM": "megatron_lm"}
# Not of a recipe: names, the machine's environment, and what follows from the layout.
_IGNORED = ("name", "parallel.dp")
_ENVIRONMENT = "backend.env."
# Written by presets and groups for the launcher itself.
_NOT_OF_SOURCES = ("model.hub_id", "cluster.executor", "data.paths", "backend.args", "backend.env", *_IGNORED)
ARGUMENT = "backend.args."


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What a source says and what the recipe has otherwise.

    Attributes:
        backend, version: what the source is for.
        says: values of the source that the recipe has, too, by path.
        differs: the others.
    """

    backend: str
    version: str
    says: Mapping[str, Value]
    differs: tuple[Difference, ...]


class NoSource(Exception):
    """The source of a recipe cannot be read here; its message says why."""


def source_text(source: str, folders: Mapping[str, Path]) -> bytes:
    """Return a source's file from the git directory of its project.

    Args:
        source: project, commit or tag, path, and possibly a function, separated by blanks.
        folders: git directory, or checkout, of each project.

    Raises:
        NoSource: the project's folder is not given, or it does not have the commit or the file.
    """
    project, commit, path, *_ = source.split(" ")
    if project not in folders:
        raise NoSource(f"--source {project}=DIR is not given")
    tag = f"v{commit}" if commit[0].isdigit() and "." in commit else commit
    command = ["git", "-C", str(folders[project]), "show", f"{tag}:{path}"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise NoSource(done.stderr.decode().strip())
    return done.stdout


def compared(recipe: str, source: str, content: bytes) -> Compared:
    """Return the comparison of a recipe with its script.

    Args:
        recipe: name of the recipe.
        source: as for `source_text`.
        content: the script.
    """
    options = argparse.Namespace(set=[], partial=True, config_dir=[])
    with tempfile.TemporaryDirectory(prefix="recipe-sources-") as folder:
        script = Path(folder) / Path(source.split(" ")[2]).name
        script.write_bytes(content)
        imported = read_file(script, ImportOptions(backend=BACKENDS[source.split(" ")[0]], partial=True))[0]
        target = (get_backend(imported.backend), imported.version)
        words = Words(jobs=(str(script), f"+recipe={recipe}"), common=(), targets=(target,))
        rows = side_by_side(sides(words, options))
    job = compose([f"+recipe={recipe}"])
    differs = tuple(
        Difference(
            path=row.path,
            source=text(row.effects[0].value),
            recipe=text(row.effects[1].value),
            written=written(job, row.path),
            affects_training=row.affects_training,
        )
        for row in rows
        if row.path not in _IGNORED
        and not row.path.startswith(_ENVIRONMENT)
        and text(row.effects[0].value) != text(row.effects[1].value)
    )
    others = {each.path for each in differs}
    says = {path: value for path, value in _said(imported) if path not in others and written(job, path) == value}
    # What the recipe writes has the same effect there, also where the script leaves it to the backend's default.
    says |= {path: value_at(job, path) for path in written_fields(job) if path not in others}
    return Compared(backend=target[0].name, version=target[1], says=says, differs=differs)


def written(job: Job, path: str) -> Value:
    """Return what a job has at a path, also of `backend.args`."""
    if path.startswith(ARGUMENT):
        return job.backend.args.get(path.removeprefix(ARGUMENT))
    return value_at(job, path)


def _said(imported: Imported) -> Iterator[tuple[str, Value]]:
    paths: dict[str, None] = dict.fromkeys(path for arg in imported.mapped_args for path in arg.fields)
    paths.update(dict.fromkeys(("cluster.nodes", "cluster.devices_per_node")))
    yield from ((path, value_at(imported.job, path)) for path in paths if path not in _IGNORED)
    yield from ((f"{ARGUMENT}{arg.flag}", arg.value) for arg in imported.unmapped)


def written_fields(job: Job) -> Iterator[str]:
    """Yield the fields that a job's recipe writes and a source may have."""
    for path, origin in job.origins.items():
        if origin.kind == "recipe" and path in field_paths() and path not in _NOT_OF_SOURCES:
            yield path


def plain(value: Any) -> Any:
    """Return a value as JSON reads it again."""
    return list(value) if isinstance(value, tuple) else value
