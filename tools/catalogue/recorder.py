"""Turns a live argparse parser into catalogue rows, with the place where each argument was declared."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import inspect
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from tools.catalogue.writer import Row

_EXPRESSIONS = {"moe_freq_type": "expr", "la_freq_type": "expr", "no_rope_freq_type": "expr", "tuple_type": "ints"}
_TRUE_FALSE = ["true", "false"]
_CHOICES_OF = {"parse_enable_thinking": [*_TRUE_FALSE, "none"]}
_BOOL_TRAP = "argparse type=bool: any text, even False, means true"


class Recorder:
    """Notes the file, line and class or function of every `add_argument` below the given roots (label → folder)."""

    def __init__(self, roots: Mapping[str, Path]) -> None:
        self.roots = {label: str(path.resolve()) + "/" for label, path in roots.items()}
        self.places: dict[int, tuple[str, str]] = {}
        self._keep: list[argparse.Action] = []

    def install(self) -> None:
        """Watch `add_argument` of every parser and group of this process."""
        plain = argparse._ActionsContainer.add_argument

        def add_argument(container: Any, *args: Any, **kwargs: Any) -> argparse.Action:
            action = plain(container, *args, **kwargs)
            place = self._place(sys._getframe(1))
            if place:
                self.places[id(action)] = place
                self._keep.append(action)
            return action

        argparse._ActionsContainer.add_argument = add_argument  # type: ignore[method-assign, assignment]

    def _place(self, frame: FrameType | None) -> tuple[str, str] | None:
        while frame is not None:
            if frame.f_code.co_name == "build_group" and "attr" in frame.f_locals:
                return self._dataclass_place(frame.f_locals["self"].src_cfg_class, frame.f_locals["attr"].name)
            where = self.shorten(frame.f_code.co_filename)
            if where and frame.f_code.co_name not in ("add_argument", "add_parser_argument"):
                owner = type(frame.f_locals["self"]).__name__ if "self" in frame.f_locals else frame.f_code.co_name
                return f"{where}:{frame.f_lineno}", owner
            frame = frame.f_back
        return None

    def _dataclass_place(self, config: type, name: str) -> tuple[str, str] | None:
        for owner in config.__mro__:
            if name not in getattr(owner, "__annotations__", {}):
                continue
            lines, start = inspect.getsourcelines(owner)
            body = ast.parse(inspect.cleandoc("".join(lines))).body[0]
            assert isinstance(body, ast.ClassDef)
            for node in body.body:
                if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                    where = self.shorten(inspect.getfile(owner)) or inspect.getfile(owner)
                    return f"{where}:{start + node.lineno - 1}", owner.__name__
        return None

    def shorten(self, path: str) -> str:
        """Return `label/path` for a file below one of the roots, else an empty text."""
        path = str(Path(path).resolve())
        for label, root in self.roots.items():
            if path.startswith(root):
                return f"{label}/{path[len(root) :]}"
        return ""

    def rows(self, parser: argparse.ArgumentParser) -> list[Row]:
        """Return one row per option of the finished parser."""
        groups: dict[int, str] = {}
        for group in parser._action_groups:
            for action in group._group_actions:
                groups[id(action)] = group.title or ""
        actions = [
            action for action in parser._actions if action.option_strings and "--help" not in action.option_strings
        ]
        # argparse takes the default of the first option of a destination (parse_known_args).
        defaults: dict[str, Any] = {}
        for action in actions:
            if action.default is not argparse.SUPPRESS:
                defaults.setdefault(action.dest, action.default)
        return [self._row(action, groups.get(id(action), ""), defaults) for action in actions]

    def _row(self, action: argparse.Action, group: str, defaults: Mapping[str, Any]) -> Row:
        source, owner = self.places.get(id(action), ("", ""))
        name, *aliases = [option.lstrip("-") for option in action.option_strings]
        row: Row = {
            "name": name,
            "aliases": aliases,
            "dest": action.dest,
            "action": _action_name(action),
            "group": group,
            "owner": owner,
            "source": source,
            "required": action.required,
        }
        if action.default is not argparse.SUPPRESS:
            row |= self._default(defaults[action.dest])
        row |= _deprecation(action.help or "")
        if row["action"] not in ("store", "append"):
            return row | {"type": "bool"}
        return row | _value_shape(action)

    def _default(self, value: Any) -> Row:
        plain = plain_value(value)
        if isinstance(plain, str):
            for label, root in self.roots.items():
                if root in plain:
                    return {"default_from": plain.replace(root, f"<{label}>/")}
        try:
            json.dumps(plain)
        except TypeError:
            return {"default_from": repr(value)}
        return {"default": plain}


def plain_value(value: Any) -> Any:
    """Return a JSON value for a default or a choice: enum members by name, tuples as lists, paths as text."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    return value


def _deprecation(text: str) -> Row:
    """Return what the help says of the argument's end: "deprecated … use --new-name instead"."""
    reported = re.search(r"\bdeprecated\b", text, re.IGNORECASE)
    if reported is None:
        return {}
    new = re.search(r"\buse\s+[`'\"]*--([\w-]+)", text[reported.start() :], re.IGNORECASE)
    return {"deprecated": True, "renamed_to": new.group(1) if new else None}


def _action_name(action: argparse.Action) -> str:
    names = {
        "_StoreTrueAction": "store_true",
        "_StoreFalseAction": "store_false",
        "_StoreConstAction": "store_const",
        "_AppendAction": "append",
        "BooleanOptionalAction": "boolean_optional",
    }
    return names.get(type(action).__name__, "store")


def _value_shape(action: argparse.Action) -> Row:
    convert = action.type
    name = getattr(convert, "__name__", "")
    row: Row = {"nargs": action.nargs, "type": "str"}
    if convert in (int, float):
        row["type"] = name
    elif convert is bool:
        row |= {"type": "truth", "help": _BOOL_TRAP}
    elif convert is json.loads:
        row["type"] = "json_text"
    elif name in _EXPRESSIONS:
        row["type"] = _EXPRESSIONS[name]
    elif name in _CHOICES_OF:
        row["choices"] = _CHOICES_OF[name]
    if action.choices is not None:
        row["choices"] = [plain_value(choice) for choice in action.choices]
    elif name == "<lambda>" and isinstance(action.default, enum.Enum):
        row["choices"] = [member.name for member in type(action.default)]
    elif names := _names_taken_by(convert):
        row["choices"] = names
    if action.nargs == "?":
        row |= {"optional_value": True, "nargs": None, "const": plain_value(action.const)}
    return row


def _names_taken_by(convert: Any) -> list[str]:
    """Return the names that a type function takes, if it looks members of an enum up: those, and texts of its own."""
    code = getattr(convert, "__code__", None)
    used = [convert.__globals__.get(name) for name in code.co_names] if code is not None else []
    members = [member.name for each in used if isinstance(each, enum.EnumMeta) for member in each]
    constants = [each for each in code.co_consts if isinstance(each, (str, frozenset))] if members else []
    texts = [text for each in constants for text in ([each] if isinstance(each, str) else sorted(map(str, each)))]
    return [name for name in dict.fromkeys([*texts, *members]) if name.isidentifier() and _takes(convert, name)]


def _takes(convert: Any, text: str) -> bool:
    try:
        convert(text)
    except Exception:
        return False
    return True
