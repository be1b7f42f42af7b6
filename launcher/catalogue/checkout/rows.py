"""Recorded `add_argument` calls as rows of a catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher.catalogue.checkout.found import Call, Change
from launcher.catalogue.checkout.values import EnumMember, External, FunctionValue, Unknown, Value, is_plain

Row = dict[str, Any]
"""One argument as it stands in a catalogue file: the fields of `launcher.catalogue.catalogue.Argument`."""
_FLAGS = ("store_true", "store_false", "store_const")
_MAX_HELP = 300
_TYPES = {"int": "int", "float": "float", "str": "str", "bool": "truth", "json.loads": "json_text"}
_TEXT_FUNCTIONS = ("os.path.abspath", "os.path.expanduser", "pathlib.Path", "Path")
# Functions that take yes, no, true, false … for a boolean: distutils' strtobool and its copies.
_BOOL = re.compile(r"str(ing)?_?(to|2)_?bool|_?(parse|boolean|bool)_?(type|string|arg|flag)?$", re.IGNORECASE)


@dataclass(kw_only=True)
class Rows:
    """Rows by option, in the order in which they are added.

    Attributes:
        types: type functions of the stack by name, with the catalogue's type.
        rows: the rows, by their first option without dashes.
        repeated: options that are added a second time, with the place; the first one counts.
        changed: options of arguments that were there before, which the source changes.
    """

    types: Mapping[str, str] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)
    repeated: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    _by_option: dict[str, Row] = field(default_factory=dict)

    def seed(self, rows: Iterable[Row]) -> None:
        """Add rows that are there before the source adds any."""
        for row in rows:
            self._put(row)

    def apply(self, events: Iterable[Call | Change]) -> None:
        """Add and change rows as the source does."""
        for event in events:
            if isinstance(event, Call):
                self._add(event)
            else:
                self._change(event)

    def _put(self, row: Row) -> None:
        self.rows[row["name"]] = row
        for option in (row["name"], *row.get("aliases", ())):
            self._by_option[option] = row

    def _add(self, call: Call) -> None:
        names = [option.lstrip("-") for option in call.options]
        known = next((name for name in names if name in self._by_option), None)
        if known is None:
            self._put(row_of(call, self.types))
        else:
            self.repeated[known] = call.where

    def _change(self, change: Change) -> None:
        if change.what == "default_of_dest":
            rows = [row for row in self.rows.values() if _dest(row) == change.option]
        else:
            row = self._by_option.get(change.option.lstrip("-"))
            rows = [] if row is None else [row]
        for row in rows:
            self.changed[row["name"]] = change.where
            _apply(row, change)


def _dest(row: Row) -> str:
    return str(row.get("dest") or row["name"].replace("-", "_"))


def _apply(row: Row, change: Change) -> None:
    value = plain(change.value)
    if change.what in ("default", "default_of_dest"):
        row.pop("default", None)
        row |= {"default_from": value.text} if isinstance(value, Unknown) else {"default": value}
    elif change.what in ("choice", "choices+") and row.get("choices") is not None:
        row["choices"] = [
            *row["choices"],
            *(value if change.what == "choices+" and isinstance(value, list) else [value]),
        ]
    elif change.what == "choices":
        row["choices"] = value if isinstance(value, list) else None
    elif change.what == "required" and isinstance(value, bool):
        row["required"] = value


def plain(value: Value) -> Value:
    """Return a JSON value: members of an enumeration by name; Unknown where it is none."""
    if isinstance(value, EnumMember):
        return value.name
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        return Unknown() if any(isinstance(item, Unknown) for item in items) else items
    if isinstance(value, Unknown) or is_plain(value):
        return value
    return Unknown(value.name if isinstance(value, External) else "")


def row_of(call: Call, types: Mapping[str, str]) -> Row:
    """Return the row of one `add_argument` call."""
    given = call.kwargs
    names = [option.lstrip("-") for option in call.options]
    long = next((option for option in call.options if option.startswith("--")), call.options[0])
    dest = given.get("dest")
    row: Row = {
        "name": names[0],
        "aliases": names[1:],
        "dest": dest if isinstance(dest, str) else long.lstrip("-").replace("-", "_"),
        "action": _action(given.get("action")),
        "group": call.group,
        "owner": call.owner,
        "source": call.where,
        "required": given.get("required") is True,
        "help": _help(given.get("help")),
    }
    row |= _default(call, row["action"])
    if row["action"] in (*_FLAGS, "boolean_optional"):
        row["type"] = "bool"
        if row["action"] == "boolean_optional":
            row["aliases"] += [f"no-{option.lstrip('-')}" for option in call.options if option.startswith("--")]
        if row["action"] == "store_const":
            const = plain(given.get("const"))
            row["const"] = None if isinstance(const, Unknown) else const
        return row
    return row | _shape(call, types)


def _action(value: Value) -> str:
    if isinstance(value, str):
        return value if value in (*_FLAGS, "append", "help", "version") else "store"
    name = value.last if isinstance(value, External) else ""
    return "boolean_optional" if name == "BooleanOptionalAction" else "store"


def _help(value: Value) -> str:
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return text if len(text) <= _MAX_HELP else text[: _MAX_HELP - 1] + "…"


def _default(call: Call, action: str) -> Row:
    if "default" not in call.kwargs:
        implied = {"store_true": False, "store_false": True}
        return {"default": implied.get(action)}
    value = plain(call.kwargs["default"])
    if isinstance(value, Unknown):
        return {"default_from": call.texts.get("default", "") or value.text or "computed at run time"}
    return {"default": value}


def _shape(call: Call, types: Mapping[str, str]) -> Row:
    given = call.kwargs
    nargs = given.get("nargs")
    row: Row = {"nargs": nargs if isinstance(nargs, (int, str)) else None, "type": "str"}
    row["type"] = _type(given["type"], call.texts.get("type", ""), types) if given.get("type") is not None else "str"
    choices = plain(given.get("choices"))
    if isinstance(choices, list):
        row["choices"] = choices
        if row["type"] == "any":
            row["type"] = "str"
    if row["nargs"] in ("...", "A..."):
        row["nargs"] = "*"
    if row["nargs"] == "?":
        const = plain(given.get("const"))
        row |= {"optional_value": True, "nargs": None, "const": None if isinstance(const, Unknown) else const}
    return row


def _type(value: Value, text: str, types: Mapping[str, str]) -> str:
    """Return the catalogue's type of argparse's `type=`; any where a function of the fork reads the text."""
    name = value.name if isinstance(value, (External, FunctionValue)) else text
    last = name.rpartition(".")[2]
    if name in _TEXT_FUNCTIONS:
        return "str"
    if name in _TYPES or last in _TYPES:
        return _TYPES.get(name) or _TYPES[last]
    if last in types:
        return types[last]
    return "bool" if last != "<lambda>" and _BOOL.match(last) else "any"
