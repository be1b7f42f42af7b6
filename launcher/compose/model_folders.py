"""Values to offer for a model.path that holds no model: folders near it that do, or the name on a hub."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from launcher.budgets import BeyondBudget
from launcher.compose.presets import preset_named
from launcher.job import override_text
from launcher.nearest import nearest

CONFIG = "config.json"
# Below the typed folder: itself of a collection, or of the cache of huggingface_hub (models--ORG--NAME/snapshots/HASH).
_INSIDE = (f"*/{CONFIG}", f"snapshots/*/{CONFIG}")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_MOST = 3
_LOOKED_AT = 1000


def offered_models(typed: str) -> tuple[str, ...]:
    """Return overrides that name a model where a folder has no config.json, nearest first; none: nothing is near."""
    hub_id = (f"model.hub_id={typed}",) if _HUB_ID.fullmatch(typed) and preset_named(typed) is not None else ()
    path = Path(typed).expanduser()
    try:
        folders = [*_inside(path), *_beside(path)]
    except OSError:
        folders = []
    readable = (folder for folder in dict.fromkeys(folders) if _is_model(folder))
    paths = (shlex.quote(f"model.path={override_text(str(folder))}") for folder in readable)
    return (*hub_id, *paths)[:_MOST]


def _is_model(folder: Path) -> bool:
    from launcher.families.config_json import read_config
    from launcher.families.source import ModelConfigError

    try:
        read_config(folder / CONFIG)
    except (ModelConfigError, BeyondBudget, ValueError, OSError):
        return False
    return True


def _inside(path: Path) -> Iterator[Path]:
    for pattern in _INSIDE if path.is_dir() else ():
        yield from sorted(file.parent for file in _some(path, pattern))


def _beside(path: Path) -> Iterator[Path]:
    """Yield folders of a similar name, and the folder of a file that is not the model's configuration."""
    if path.is_file() and (path.parent / CONFIG).is_file():
        yield path.parent
    if path.exists() or not path.parent.is_dir():
        return
    named = {file.parent.name: file.parent for file in _some(path.parent, f"*/{CONFIG}")}
    yield from (named[name] for name in nearest(path.name, named))


def _some(folder: Path, pattern: str) -> list[Path]:
    return [file for file, _ in zip(folder.glob(pattern), range(_LOOKED_AT), strict=False)]
