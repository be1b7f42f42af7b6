"""Keeps `${oc.env:NAME}` as a reference if the started process can read NAME, so that no output has its value."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from launcher.job.secret import find, is_read_by_launcher, looks_random, variable_of

_FREE = ("backend.env.", "imported.env.", "cluster.setup")
_REFERENCE = r"(?<!\\)\$\{\s*oc\.env\s*:\s*(?P<name>[A-Z][A-Z0-9_]*)\s*(?:,[^{}]*)?\}"
_NO_TEXT = r"(?i)[-\d.,:]+(?:[eE][-+]?\d+)?|true|false|null|none|"


@contextmanager
def secrets_unread() -> Iterator[None]:
    """Make OmegaConf resolve secret environment variables to `${NAME}` instead of their value."""
    from omegaconf import OmegaConf
    from omegaconf.resolvers import oc

    def env(key: str, *default: Any) -> str | None:
        value = os.environ.get(key)
        name = variable_of(key)
        if find(value if value is not None else "" if default else "unset-1", key):
            return f"${{{name}}}"
        return oc.env(key, *default)

    OmegaConf.register_new_resolver("oc.env", env, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def with_references(resolved: Any, written: Any, path: str = "") -> Any:
    """Return a tree with `${NAME}` where a process reads the text, or the variable's value looks like a secret.

    Args:
        resolved: plain data with resolved interpolations.
        written: the same data, unresolved.
    """
    if isinstance(resolved, Mapping) and isinstance(written, Mapping):
        prefix = f"{path}." if path else ""
        return {key: with_references(value, written.get(key), f"{prefix}{key}") for key, value in resolved.items()}
    if isinstance(resolved, list) and isinstance(written, list) and len(resolved) == len(written):
        return [with_references(*pair, path) for pair in zip(resolved, written, strict=True)]
    if isinstance(resolved, str) and isinstance(written, str) and "oc.env" in written:
        names = [match["name"] for match in re.finditer(_REFERENCE, written)]
        if names and "${" not in re.sub(_REFERENCE, "", written) and all(_is_kept(name, path) for name in names):
            return re.sub(_REFERENCE, r"${\g<name>}", written)
    return resolved


def _is_kept(name: str, path: str) -> bool:
    value = os.environ.get(name)
    if value is None:
        return False  # its default applies
    free = path.startswith(_FREE) and re.fullmatch(_NO_TEXT, value) is None
    return free or (not is_read_by_launcher(path) and looks_random(value))
