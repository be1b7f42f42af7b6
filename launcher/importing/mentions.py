"""Whether a file that cannot be read mentions a training: then it is an error, and else a file of something else."""

import re
from functools import cache
from pathlib import Path

from launcher.importing.invocation import entries
from launcher.importing.notes import ImportRefused
from launcher.importing.reading import parse_json, read_text
from launcher.job import Job
from launcher.syntax import PACKAGE

# At the left margin of a YAML or JSON file that does not parse: its keys.
_KEYS = re.compile(r'^(?:  )?["\']?([A-Za-z_][\w.-]*)["\']?\s*:', re.MULTILINE)
_STRUCTURED = (".yaml", ".yml", ".json")
_FEWEST = 2
_LARGEST = 1 << 20


def mentions_training(path: Path) -> bool:
    """Return whether a file names a backend's entry point, or has keys of its configuration or of a job of Launch."""
    try:
        with path.open("rb") as stream:
            text = stream.read(_LARGEST).decode("utf-8", errors="replace")
    except OSError:
        return True
    if path.suffix in _STRUCTURED:
        if PACKAGE in text:
            return True
        keys = set(_KEYS.findall(text))
        return len(keys & _config_keys()) >= max(_FEWEST, len(keys) // 4)
    return bool(_entry_points().search(text))


@cache
def _entry_points() -> re.Pattern[str]:
    names: set[str] = set()
    for _, entry in entries():
        names |= {f"{program} {command}" for program, commands in entry.programs.items() for command in commands}
        names |= {script.rpartition("/")[2] for script in entry.scripts}
    return re.compile("|".join(rf"(?<![\w-]){re.escape(name)}\b" for name in sorted(names)))


@cache
def _config_keys() -> frozenset[str]:
    """Return the sections of a job, and names of arguments and sections of every backend's default version."""
    found: set[str] = set(Job.__dataclass_fields__)
    for backend, _ in entries():
        names = backend.catalogue(backend.default_version).names()
        found |= {name for each in names for name in (each, each.partition(".")[0])}
    return frozenset(found)


def is_model_config(path: Path) -> bool:
    """Return whether a file is a model's config.json, whose keys are arguments of older backends, too."""
    if path.suffix != ".json":
        return False
    try:
        tree = parse_json(read_text(path), str(path))
    except ImportRefused:
        return False
    return isinstance(tree, dict) and bool({"architectures", "transformers_version"} & set(tree))
