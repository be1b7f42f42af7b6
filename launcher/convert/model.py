"""Reads the architecture of a checkpoint from its config.json or one given by the user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from launcher.budgets import BeyondBudget, load_json, read_limited
from launcher.convert.containers.errors import ConvertError
from launcher.convert.formats import known_formats
from launcher.convert.unfinished import refuse_unfinished
from launcher.job.build import build_section
from launcher.job.model import Model


def model_in(folder: Path) -> Model:
    """Return the architecture described by the config.json of a folder (or by the file itself).

    Raises:
        ConvertError: the file is missing, not JSON, or describes an unsupported model.
    """
    from launcher.families.config_json import model_from_config
    from launcher.families.source import ModelConfigError

    file = folder if folder.suffix == ".json" else folder / "config.json"
    refuse_unfinished(file.parent)
    if not file.is_file():
        raise ConvertError(f"{file}: no such file; works: a folder of a Hugging Face model, with its config.json")
    try:
        tree: Mapping[str, Any] = load_json(read_limited(file, "config bytes").decode("utf-8"), str(file))
        values = model_from_config(tree, str(file))
    except BeyondBudget as error:
        raise ConvertError(str(error)) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ConvertError(f"{file} is not JSON: {error}") from None
    except ModelConfigError as error:
        raise ConvertError([f"{error.where}: {problem}" for problem in error.problems]) from None
    model, problems = build_section(Model, values, "model.")
    if problems:
        raise ConvertError([f"{file}: {problem.path} {problem.message}" for problem in problems])
    return model


def config_folder(folders: Iterable[Path | None], works: str = "--model DIR, +recipe=NAME") -> Path:
    """Return the first folder with a config.json: a model's folder, or the one kept inside a checkpoint.

    Args:
        works: options that name the model instead, for the message.

    Raises:
        ConvertError: none of the folders has one.
    """
    tried = list(dict.fromkeys(folder for folder in folders if folder is not None))
    found = next(filter(None, map(_config_of, tried)), None)
    if found is not None:
        return found
    shown = ", ".join(str(folder) for folder in tried)
    raise ConvertError(f"{shown}: no config.json there, which the sizes of the model need; works: {works}")


def has_config(folder: Path | None) -> bool:
    """Return whether a folder, or a checkpoint in it, has a config.json."""
    return folder is not None and _config_of(folder) is not None


def _config_of(folder: Path) -> Path | None:
    if (folder / "config.json").is_file():
        return folder
    return next(filter(None, (known.config(folder) for known in known_formats())), None)
