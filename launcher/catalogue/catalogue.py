"""Arguments that one version of a backend accepts, as data: names, types, arity, choices, defaults, with their source.

The files are made by `tools/catalogue` from the backend's own parser; this module only loads, looks up and checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from launcher.budgets import json_value
from launcher.catalogue.versions import version_key
from launcher.list_expression import may_be_list
from launcher.nearest import nearest
from launcher.records import dataclass, record

Value: TypeAlias = Any
"""A native value: what a YAML file or `backend.args.NAME=…` holds, or the text token(s) of a command line."""

TRUE_WORDS = frozenset({"yes", "true", "t", "y", "1"})
FALSE_WORDS = frozenset({"no", "false", "f", "n", "0"})
_FLAG_ACTIONS = frozenset({"store_true", "store_false", "store_const", "help", "version"})
_TUPLES = ("aliases", "choices", "commands")


@record()
class Argument:
    """One argument, key or environment variable that the backend reads.

    `name` is what a user types, without leading dashes and in the backend's own spelling:
    `tensor_model_parallel_size`, `tensor-model-parallel-size`, or the dotted path `parallel_config.model_parallel` of
    a YAML backend. `type` is one of int, float, str, bool, truth (any text, which means true), json (text, JSON or a
    mapping), json_text (JSON only), expr (a number or a Python list expression), ints (`1,2`), list, dict, any, or
    several joined with `|`. `action` is argparse's.
    """

    name: str
    dest: str
    type: str = "str"
    items: str = ""
    """Types of the items of a list, joined with `|`; empty: any."""
    aliases: tuple[str, ...] = ()
    nargs: str | int | None = None
    optional_value: bool = False
    """Whether the bare flag, without a value, means true."""
    nullable: bool = False
    default: Value = None
    has_default: bool = False
    absent: Value = None
    """Effective value without the argument, where the parser does not define it (`default` is then None)."""
    default_from: str | None = None
    """The source expression of a default that is computed at run time (`has_default` is then False)."""
    command_defaults: Mapping[str, Value] = field(default_factory=dict)
    """Defaults of individual commands where they differ from `default`."""
    choices: tuple[Value, ...] | None = None
    action: str = "store"
    const: Value = None
    negation: str | None = None
    """The bare flag that sets this argument to false (`no_packing`), in the commands where its default is true."""
    group: str = ""
    origin: str = ""
    """The project that declares the argument, where a backend's parser is made of several."""
    owner: str = ""
    """The class or function that declares the argument."""
    source: str = ""
    commands: tuple[str, ...] = ()
    """The commands that take the argument; empty: all of the catalogue's."""
    required: bool = False
    deprecated: bool = False
    renamed_to: str | None = None
    since: str | None = None
    help: str = ""

    @property
    def is_flag(self) -> bool:
        """Whether the argument takes no value on the command line (store_true, store_false, store_const)."""
        return self.action in _FLAG_ACTIONS

    @property
    def is_list(self) -> bool:
        """Whether the command line takes several values (`--x 1 2 3`)."""
        return self.nargs in ("+", "*") or isinstance(self.nargs, int)

    def bare_in(self, command: str | None = None) -> bool:
        """Whether `--name` without a value means true in this command.

        HfArgumentParser accepts a bare Optional[bool] only if its default is not None (hf_argparser.py:213).
        """
        return self.optional_value or (self.type == "bool" and self.command_defaults.get(command or "") is not None)

    def default_for(self, command: str | None = None) -> Value:
        """Return the default in this command; None where it has none or computes it at run time."""
        return self.command_defaults.get(command, self.default) if command else self.default

    def without(self, command: str | None = None) -> Value:
        """Return the effective value without the argument in this command; None if unknown."""
        default = self.default_for(command)
        return self.absent if default is None else default

    def is_default(self, value: Value, command: str | None = None) -> bool:
        """Return whether a stored value equals, also in type, the effective value without the argument."""
        default = self.without(command)
        if default is None and not self.has_default:
            return False
        one, other = (list(each) if isinstance(each, tuple) else each for each in (default, value))
        return type(one) is type(other) and bool(one == other)


@record()
class Refused:
    """A condition over the keys of a YAML section under which the backend does not start.

    `refused` is an expression for `launcher.catalogue.conditions`.
    """

    section: str
    refused: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalogue:
    """All arguments of one backend in one version.

    `style` is the parser's: `hf` (dataclasses under HfArgumentParser: `-` and `_` are the same, bools take an optional
    value), `argparse` (as declared), `yaml` (dotted keys), `env` (environment variables). `open_sections` are the YAML
    paths below which the backend accepts unknown keys; "" is the whole file.
    """

    backend: str
    version: str
    style: Literal["hf", "argparse", "yaml", "env"]
    arguments: tuple[Argument, ...]
    source: Mapping[str, str] = field(default_factory=dict)
    abbreviations: bool = False
    """Whether the parser accepts a unique prefix of a name."""
    commands: tuple[str, ...] = ()
    open_sections: tuple[str, ...] = ()
    strict_sections: tuple[str, ...] = ()
    """YAML sections whose unknown keys the backend refuses; those of other sections it ignores, or hands on."""
    strict_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By YAML section, the classes that its `type` can name and that take no other keys than the catalogue's."""
    conditions: tuple[Refused, ...] = ()
    _index: dict[str, Argument] = field(default_factory=dict, repr=False, compare=False)
    _by_dest: dict[str, Argument] = field(default_factory=dict, repr=False, compare=False)
    _near: dict[tuple[str, int], list[str]] = field(default_factory=dict, repr=False, compare=False)
    """Names near to unknown ones: fixes check hundreds of jobs with the same unknown arguments."""

    def __post_init__(self) -> None:
        for argument in self.arguments:
            for name in (argument.name, *argument.aliases):
                self._index.setdefault(self.normalise(name), argument)
            self._by_dest.setdefault(argument.dest, argument)
        for argument in self.arguments:
            if argument.negation:
                self._index.setdefault(self.normalise(argument.negation), argument)

    def __len__(self) -> int:
        return len(self.arguments)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def normalise(self, name: str) -> str:
        """Return the spelling under which this backend's parser looks a name up (leading dashes removed)."""
        name = name.lstrip("-")
        return name.replace("-", "_") if self.style == "hf" else name

    def get(self, name: str) -> Argument | None:
        """Return the argument of that name or alias, or None; `-` equals `_` only if the parser allows it."""
        found = self._index.get(name)
        return self._index.get(self.normalise(name)) if found is None else found

    def of_key(self, key: str) -> Argument | None:
        """Return the argument that a key of `backend.args` names, where underscores may stand for dashes, or None."""
        return self.get(key) or self.get(key.replace("_", "-"))

    def by_dest(self, dest: str) -> Argument | None:
        """Return the first argument that stores into `dest` (`tensor_model_parallel_size` for argparse backends)."""
        return self._by_dest.get(dest)

    def is_negation(self, name: str) -> bool:
        """Whether the name is the `no_X` form of a bool, and not a separate argument."""
        argument = self.get(name)
        return bool(argument and argument.negation and self.normalise(name) == self.normalise(argument.negation))

    def by_prefix(self, prefix: str) -> list[Argument]:
        """Return the arguments that an abbreviated name matches; empty where the parser accepts no abbreviations."""
        if not self.abbreviations:
            return []
        exact = self.get(prefix)
        if exact is not None:
            return [exact]
        start = self.normalise(prefix)
        found = {id(argument): argument for name, argument in self._index.items() if name.startswith(start)}
        return list(found.values())

    def is_open(self, name: str) -> bool:
        """Whether an unknown YAML key at this dotted path reaches the backend without an error."""
        if any(not section or f"{name}.".startswith(section + ".") for section in self.open_sections):
            return True
        parent = name.rpartition(".")[0]
        while self.style == "yaml" and parent:
            # Below a key that takes a mapping (`model.model_config.rope_scaling`), the keys are not checked.
            argument = self.get(parent)
            if argument is not None:
                return _takes(argument.type, {"dict", "any"})
            parent = parent.rpartition(".")[0]
        return False

    def refuses(self, name: str) -> bool:
        """Whether the backend refuses an unknown YAML key at this dotted path; another one has no effect."""
        return "." in name and name.partition(".")[0] in self.strict_sections and not self.is_open(name)

    def names(self) -> Iterable[str]:
        """Yield every name a user may type: names and aliases, without the `no_X` forms."""
        for argument in self.arguments:
            yield argument.name
            yield from argument.aliases

    def suggest(self, name: str, limit: int = 3) -> list[str]:
        """Return the names nearest to a misspelt one, best first; empty when nothing is near.

        A key of a YAML section is compared with those of its section, then with those of others.
        """
        if (name, limit) not in self._near:
            self._near[name, limit] = self._nearest(name, limit)
        return list(self._near[name, limit])

    def _nearest(self, name: str, limit: int) -> list[str]:
        section, _, leaf = name.rpartition(".")
        beside = {each.rpartition(".")[2]: each for each in self.names() if section and each.startswith(f"{section}.")}
        found = [beside[each] for each in suggest(leaf, beside, limit)]
        return found or suggest(leaf, self.names(), limit)

    def check(self, name: str, value: Value, command: str | None = None) -> str | None:
        """Return what is wrong with giving `value` to `name`, or None.

        `value` is a native value (bool, int, list, dict …) or command-line text; a list of text for several values.
        A flag without a value on the command line is given as True. With a `command`, the argument must belong to it.
        """
        argument = self.get(name)
        if argument is None:
            if self.is_open(name):
                return None
            near = self.suggest(name)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            return f"{name} is not an argument of {self.backend} {self.version}{hint}"
        if command and argument.commands and command not in argument.commands:
            return f"{name} is an argument of {', '.join(argument.commands)}, not of {command}"
        return check_value(argument, value, name=name, negated=self.is_negation(name))


def suggest(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Return the nearest of `names`: the same words spelt otherwise, then close spellings, then shared words."""
    wanted = plain(name)
    by_plain: dict[str, str] = {}
    for candidate in names:
        by_plain.setdefault(plain(candidate), candidate)
        by_plain.setdefault(plain(candidate.rpartition(".")[2]), candidate)
    words = set(wanted.split("_"))
    same_words = [each for each in by_plain if set(each.split("_")) == words]
    close = nearest(wanted, by_plain, limit=limit, cutoff=0.75)
    holding = sorted((each for each in by_plain if len(words) > 1 and words < set(each.split("_"))), key=len)
    found = [by_plain[each] for each in [*same_words, *close, *holding]]
    return list(dict.fromkeys(found))[:limit]


def plain(name: str) -> str:
    """Return a name as tables and suggestions compare it."""
    return name.lstrip("-").lower().replace("-", "_")


def check_value(
    argument: Argument, value: Value, *, name: str = "", negated: bool = False, any_choice: bool = False
) -> str | None:
    """Return what is wrong with the value of one argument, or None.

    Args:
        name: of the argument, for the message.
        negated: it is the argument's `no_X` form.
        any_choice: a value outside the argument's choices is fine, if it has the argument's type.
    """
    name = name or argument.name
    if argument.is_flag or negated:
        if isinstance(value, bool) or value is None:
            return None
        return f"{name} is a flag and takes no value, got {_show(value)}"
    if value is None:
        free = argument.nullable or _takes(argument.type, {"any"})
        if free or (argument.has_default and argument.default is None):
            return None
        return f"{name} needs a value ({_kind(argument)})"
    if value is True and argument.optional_value:
        return None
    if not argument.is_list:
        if isinstance(value, (list, tuple)) and not _takes(
            argument.type, {"list", "json", "json_text", "expr", "ints", "any"}
        ):
            return f"{name} takes one value ({_kind(argument)}), got {len(value)}: {_show(value)}"
        return _check_item(argument, value, name, any_choice)
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if argument.nargs == "+" and not items and argument.default != []:
        return f"{name} needs at least one value ({_kind(argument)})"
    if isinstance(argument.nargs, int) and len(items) != argument.nargs:
        return f"{name} takes {argument.nargs} values, got {len(items)}: {_show(value)}"
    return next((found for item in items if (found := _check_item(argument, item, name, any_choice))), None)


def as_parsed(argument: Argument, value: Value) -> Value:
    """Return a valid value as a command-line parser would: numbers from text, text from numbers.

    A list argument given one value holds a list of one, as after `--name value`.
    """
    if argument.is_flag or value is None:
        return value
    if not argument.is_list:
        return _item_as_parsed(argument, value)
    items = value if isinstance(value, (list, tuple)) else (value,)
    return tuple(_item_as_parsed(argument, item) for item in items)


def _item_as_parsed(argument: Argument, value: Value) -> Value:
    kinds = argument.type.split("|")
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return str(value) if kinds == ["str"] else value
    if not isinstance(value, str):
        return value
    for kind, read in (("int", int), ("float", float)):
        if kind in kinds and _parses(read, value):
            number: Value = read(value)
            return number
    return value.lower() in TRUE_WORDS if "bool" in kinds and _is_bool(value) else value


def _takes(kind: str, kinds: set[str]) -> bool:
    return not kinds.isdisjoint(kind.split("|"))


def _check_item(argument: Argument, value: Value, name: str, any_choice: bool) -> str | None:
    if argument.choices is not None and not any_choice:
        # None among the choices of a text can only be a default: a parser does not convert the word to None.
        known = {str(choice) for choice in argument.choices if choice is not None or argument.type != "str"}
        if str(value) not in known:
            near = suggest(str(value), sorted(known), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{name} must be one of {', '.join(sorted(known))}, got {_show(value)}{hint}"
        return None
    if any(_CHECKS[kind](value) for kind in argument.type.split("|")):
        return None
    return f"{name} must be {_kind(argument)}, got {_show(value)}"


def _kind(argument: Argument) -> str:
    if argument.choices is not None:
        return "one of " + ", ".join(str(choice) for choice in argument.choices)
    return " or ".join(_NAMES[kind] for kind in argument.type.split("|"))


def _show(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _is_int(value: Value) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return True
    return isinstance(value, str) and _parses(int, value)


def _is_float(value: Value) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float, str)) and _parses(float, value)


def _is_bool(value: Value) -> bool:
    return isinstance(value, bool) or str(value).lower() in TRUE_WORDS | FALSE_WORDS


def _is_str(value: Value) -> bool:
    return not isinstance(value, (list, tuple, dict))


def _is_json(value: Value) -> bool:
    if not isinstance(value, str):
        return True
    return not value.lstrip().startswith(("{", "[")) or _parses(json_value, value)


def _parses(read: Any, text: Value) -> bool:
    try:
        read(text)
    except (TypeError, ValueError):
        return False
    return True


_CHECKS: dict[str, Callable[[Value], bool]] = {
    "int": _is_int,
    "float": _is_float,
    "bool": _is_bool,
    "str": _is_str,
    "json": _is_json,
    "json_text": lambda value: not isinstance(value, str) or _parses(json_value, value),
    "expr": lambda value: isinstance(value, (list, tuple)) or _is_int(value) or may_be_list(str(value)),
    "ints": lambda value: all(map(_is_int, str(value).strip("([])").split(","))),
    "truth": _is_str,
    "list": lambda value: isinstance(value, (list, tuple)),
    "dict": lambda value: isinstance(value, Mapping),
    "any": lambda value: True,
}
_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "json": "JSON text",
    "json_text": "JSON text",
    "expr": "a number or a list expression",
    "ints": "whole numbers with commas between them",
    "truth": "any text, which means true, even False",
    "list": "a list",
    "dict": "a mapping",
    "any": "any value",
}


def _argument(row: Mapping[str, Any], style: str) -> Argument:
    fields = dict(row)
    if "dest" not in fields:
        fields["dest"] = row["name"].replace("-", "_") if style == "argparse" else row["name"]
    if "default" in fields:
        fields["has_default"] = True
    for key in _TUPLES:
        if fields.get(key) is not None:
            fields[key] = tuple(fields[key])
    return Argument(**fields)


def from_json(data: Mapping[str, Any]) -> Catalogue:
    """Build a catalogue from the content of its file."""
    return Catalogue(
        backend=data["backend"],
        version=data["version"],
        style=data["style"],
        source=data["source"],
        abbreviations=data.get("abbreviations", data["style"] == "hf"),
        commands=tuple(data.get("commands", ())),
        open_sections=tuple(data.get("open_sections", ())),
        strict_sections=tuple(data.get("strict_sections", ())),
        strict_types={section: tuple(names) for section, names in data.get("strict_types", {}).items()},
        conditions=tuple(Refused(**row) for row in data.get("conditions", ())),
        arguments=tuple(_argument(row, data["style"]) for row in data["arguments"]),
    )


def load(path: str | Path) -> Catalogue:
    """Read a catalogue file.

    Raises:
        FileNotFoundError: there is no such file; the message names the versions that exist beside it.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        stems = sorted((found.stem for found in path.parent.glob("*.json")), key=lambda stem: (version_key(stem), stem))
        known = ", ".join(stems) or "none"
        raise FileNotFoundError(f"no catalogue {path.name} in {path.parent}; there are: {known}") from None
    return from_json(json.loads(text))
