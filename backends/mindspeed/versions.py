"""Versions of MindSpeed-LLM, the Megatron-LM that each is built on, and the arguments of each."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.catalogue.registered import registered

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


def deprecated_names(version: str) -> Mapping[str, str]:
    """Return the names that DeprecatedArgsFeature copies to others, each with the other; none before 26.1.0."""
    arguments = catalogue(version).arguments
    return {each.name: each.renamed_to for each in arguments if each.renamed_to and each.group == "deprecated_args"}
