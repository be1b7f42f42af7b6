"""Shipped presets of the config group `model`, found by the name of a model on a hub."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from launcher.compose.search_path import shipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A model of the shipped config group `model`: its option name and its fields."""

    name: str
    fields: Mapping[str, Any]


@cache
def _presets() -> Mapping[str, Path]:
    """Return the shipped presets by hub id, read from their `hub_id` line."""
    found: dict[str, Path] = {}
    for path in sorted(shipped("conf").joinpath("model").glob("*.yaml")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("hub_id:"):
                found.setdefault(line.partition(":")[2].strip(), path)
                break
    return found


def preset_named(hub_id: str) -> Preset | None:
    """Return the preset of exactly this model, or None."""
    path = _presets().get(hub_id)
    return None if path is None else _read(path)


# Parts of a name that do not change the sizes: further training, storage format.
_SUFFIXES = re.compile(r"^meta-|(-(base|instruct|it|pt|thinking|chat|hf|fp8|bf16|\d{4}|mcore))+$")


def named_like(name: str) -> Preset | None:
    """Return the preset of the same name, ignoring suffixes for training and storage format; None: there is none.

    >>> named_like("Qwen/Qwen3-30B-A3B-Instruct-2507").name
    'qwen3_30b_a3b'
    """
    exact = _presets().get(name)
    wanted = _stem(name)
    found = [path for hub_id, path in _presets().items() if _stem(hub_id) == wanted] if wanted else []
    return _read(exact or found[0]) if exact or found else None


def _stem(name: str) -> str:
    return _SUFFIXES.sub("", name.rstrip("/").rsplit("/", 1)[-1].lower())


@cache
def _read(path: Path) -> Preset:
    import yaml

    return Preset(name=path.stem, fields=yaml.safe_load(path.read_text(encoding="utf-8")))
