"""A job file's content as overrides, so that an imported job is the page's state like any other."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.compose.overrides import is_text, quote
from launcher.job import fields

# Words that Hydra's grammar takes as text without quotes.
_PLAIN = re.compile(r"[A-Za-z_/][\w./\-]*", re.ASCII)
_TYPED = re.compile(r"(?i)true|false|null|nan|inf|yes|no|on|off")
_GROUP = "override /"
# Mappings whose entries are overrides of their own; of every other one the field is set as a whole.
_BY_ENTRY = ("backend.args", "backend.env")


def overrides_of(tree: Mapping[str, Any]) -> list[str]:
    """Return the overrides with which composition gives the job of a job file's tree."""
    words = []
    for entry in tree.get("defaults", ()):
        words += [f"{group.removeprefix(_GROUP)}={option}" for group, option in entry.items()]
    for path, value in _leaves({key: value for key, value in tree.items() if key not in ("defaults", "schema")}):
        words.append(f"{path}={_text(value, path)}")
    return words


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        path = f"{prefix}{key}"
        # A dot in an argument's own name would be taken for a level: such arguments are one value.
        whole = path in fields() and path not in _BY_ENTRY
        if isinstance(value, Mapping) and value and not whole and not any("." in str(each) for each in value):
            yield from _leaves(value, f"{path}.")
        else:
            yield path, value


def _key(key: Any) -> str:
    return str(key) if _PLAIN.fullmatch(str(key)) else quote(str(key))


def _text(value: Any, path: str = "") -> str:
    """Return a value in Hydra's grammar; a text field takes its text as typed."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_key(key)}:{_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_text, value)) + "]"
    if not isinstance(value, str):
        return str(value)
    as_typed = is_text(path) and value[:1] not in ("", "'", '"', "[", "{") and "${" not in value and value != "null"
    plain = _PLAIN.fullmatch(value) and not _TYPED.fullmatch(value)
    return value if as_typed or plain else quote(value)
