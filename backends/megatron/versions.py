"""Versions of ms-swift, the options of each, and what options are called in other versions."""

import json
from functools import cache
from pathlib import Path

from launcher.catalogue.catalogue import Argument, Catalogue, load
from launcher.catalogue.registered import registered

REGISTERED = registered(Path(__file__).parent / "versions.json")
RENAMES = Path(__file__).parent / "renames.json"


@cache
def catalogue(version: str) -> Catalogue:
    """Return the arguments that `megatron sft|pt|rlhf|export` of this version accepts."""
    return load(Path(__file__).parent / "catalogue" / f"{version}.json")


def find_option(name: str, version: str) -> tuple[Argument, bool] | None:
    """Return the option that a version has under a name or its later one, and whether it means the opposite."""
    options = catalogue(version)
    found = options.get(name)
    if found is not None:
        return found, options.is_negation(name)
    later, inverted = _later_names().get(name, ("", False))
    option = options.get(later)
    return None if option is None else (option, inverted)


@cache
def _later_names() -> dict[str, tuple[str, bool]]:
    names = json.loads(RENAMES.read_text(encoding="utf-8"))["names"]
    return {each["old"]: (each["new"], each["kind"] == "inverted") for each in names if each["kind"] in _KINDS}


_KINDS = ("rename", "inverted")
