"""Versions of MindSpeed-LLM, the Megatron-LM that each is built on, and the arguments of each."""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.catalogue.registered import registered
from launcher.catalogue.versions import version_key

if TYPE_CHECKING:
    from launcher.catalogue.catalogue import Catalogue

REGISTERED = registered(Path(__file__).parent / "versions.json")
# Source: docs/zh/release_notes_llm.md, table 1.
CORE = REGISTERED.core


@cache
def catalogue(version: str) -> "Catalogue":
    """Return the arguments that a version's entry scripts accept."""
    from launcher.catalogue.catalogue import load

    return load(Path(__file__).parent / "catalogue" / f"{version}.json")


def accepts(version: str, *names: str) -> bool:
    """Return whether a version's entry scripts accept all of these arguments."""
    known = catalogue(version)
    return all(known.get(name) is not None for name in names)


def choices(version: str, name: str) -> tuple[str, ...]:
    """Return the values that a version accepts for an argument; none where it has no choices or no such argument."""
    argument = catalogue(version).get(name)
    return tuple(map(str, (argument.choices or ()) if argument is not None else ()))


def came_with(version: str, names: Collection[str]) -> str | None:
    """Return the first registered version after this one that accepts the arguments; None: none does."""
    later = [each for each in REGISTERED.names if version_key(each) > version_key(version)]
    return min((each for each in later if accepts(each, *names)), key=version_key, default=None)


def deprecated_names(version: str) -> Mapping[str, str]:
    """Return the names that DeprecatedArgsFeature copies to others, each with the other; none in 2.1.0."""
    arguments = catalogue(version).arguments
    return {each.name: each.renamed_to for each in arguments if each.renamed_to and each.group == "deprecated_args"}
