"""Versions of MindSpeed-LLM, the Megatron-LM that each is built on, and the arguments of each."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.catalogue.catalogue import Catalogue

# Source: docs/zh/release_notes_llm.md, table 1. Those that a script is tried with, in this order.
CORE = {"26.1.0": "0.12.1", "2.1.0": "0.8.0", "master": "0.12.1"}


@cache
def catalogue(version: str) -> "Catalogue":
    """Return the arguments that a version's entry scripts accept."""
    from launcher.catalogue.catalogue import load

    return load(Path(__file__).parent / "catalogue" / f"{version}.json")
