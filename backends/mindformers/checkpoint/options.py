"""The options of MindFormers' format (`--set NAME=VALUE`), and the MindFormers version of a layout."""

from __future__ import annotations

from typing import Final

from launcher.convert.errors import WrongWord
from launcher.convert.formats.format import Layout

_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


def truth(name: str, value: object) -> bool:
    """Return an option as a boolean.

    Raises:
        WrongWord: the value is neither true nor false.
    """
    found = _TRUTH.get(str(value).lower())
    if found is None:
        raise WrongWord(f"--set {name}={value}: works: {name}=true, {name}=false")
    return found


def check_version(layout: Layout) -> None:
    """Raise WrongWord for `--set version=` of a version that is not known."""
    from launcher.mapping.backend import UnknownVersion, get_backend

    asked = layout.options.get("version")
    try:
        get_backend("mindformers").version(asked)
    except UnknownVersion:
        known = ", ".join(f"version={version}" for version in get_backend("mindformers").versions)
        raise WrongWord(f"--set version={asked}: MindFormers has no such version; works: {known}") from None


def is_old(layout: Layout) -> bool:
    """Return whether the layout is for MindFormers 1.6."""
    return (layout.options.get("version") or layout.version or "").startswith("1.6")


def per_rank(layout: Layout) -> bool:
    """Return whether to write one file per rank."""
    return truth("per_rank", layout.options.get("per_rank", "false"))
