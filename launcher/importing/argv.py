"""Parses command-line arguments into typed native values, as the backend's parser (argparse, HfArgumentParser) does."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from launcher.budgets import json_value
from launcher.catalogue.catalogue import FALSE_WORDS, TRUE_WORDS, Argument, Catalogue
from launcher.importing.shell.placeholders import has_output, is_open, only, shown
from launcher.job import Value
from launcher.list_expression import may_be_list
from launcher.records import dataclass

# What argparse takes for a value and not for an option (ArgumentParser._negative_number_matcher): no -1e-5, no -inf.
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A parsed command line.

    Attributes:
        values: typed values by the catalogue's name; bare switches are True.
        unknown: options that this version does not have, with their values.
        ambiguous: unknown options that abbreviate several others, with the message.
        positional: arguments that belong to no option.
        problems: (option, error).
        warnings: (option, warning).
        lenient: (option, warning) on a value that is read although the parser itself rejects it.
        open: options whose values the script leaves unset, with their values as typed.
        computed: those of them whose values are computed, or printed, in a way that is not followed.
        unknown_output: `$(…)` in place of arguments, whose output is unknown: it may be any number of arguments.
        loose: options with a valid value in a spelling that this version's parser rejects.
        foreign: keys of a file that this version has no entry point for.
    """

    values: dict[str, Value] = field(default_factory=dict)
    unknown: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ambiguous: dict[str, str] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[tuple[str, str]] = field(default_factory=list)
    lenient: list[tuple[str, str]] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)
    computed: set[str] = field(default_factory=set)
    unknown_output: list[str] = field(default_factory=list)
    loose: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)


def parse_argv(argv: Sequence[str], catalogue: Catalogue, command: str | None = None) -> Parsed:
    """Parse arguments as the parser of this catalogue does; errors are collected, not raised."""
    parsed = Parsed()
    at = 0
    while at < len(argv):
        arg = argv[at]
        at += 1
        if not _is_option(arg, catalogue):
            if not _drop_open(arg, parsed):
                parsed.positional.append(shown(arg))
            continue
        if arg == "--":
            parsed.positional.extend(shown(rest) for rest in argv[at - 1 :])
            break
        name, equals, attached = arg.partition("=")
        values, at = ([attached], at) if equals else _following(argv, at, catalogue)
        _option(shown(name), values, bool(equals), catalogue, command, parsed)
    return parsed


def _is_option(arg: str, catalogue: Catalogue) -> bool:
    """Return whether argparse treats an argument as an option (ArgumentParser._parse_optional)."""
    if len(arg) < 2 or not arg.startswith("-"):
        return False
    if " " in arg:
        name, equals, _ = arg.partition("=")
        return bool(equals) and resolve(shown(name), catalogue) is not None  # an ambiguous one is refused
    return not _NEGATIVE.fullmatch(arg)


def _following(argv: Sequence[str], at: int, catalogue: Catalogue) -> tuple[list[str], int]:
    end = at
    while end < len(argv) and not _is_option(argv[end], catalogue):
        end += 1
    return list(argv[at:end]), end


def _drop_open(arg: str, parsed: Parsed) -> bool:
    """Drop an argument that is only an unset variable, as bash does; record one of unknown output as unread."""
    if not only(arg):
        return False
    if has_output(arg):
        parsed.unknown_output.append(shown(arg))
        return True
    parsed.warnings.append((shown(arg), "is not set: replaced by nothing"))
    return True


def resolve(name: str, catalogue: Catalogue) -> Argument | str | None:
    """Return the argument of an option; a message for an ambiguous prefix; None if there is none."""
    if catalogue.style == "hf" and "-" in name.lstrip("-") and "_" in name:
        return None  # HfArgumentParser knows a_b_c and a-b-c, not a_b-c
    argument = catalogue.get(name)
    if argument is not None:
        return argument
    found = catalogue.by_prefix(name.lstrip("-"))
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        return f"is ambiguous: {', '.join(sorted(each.name for each in found)[:4])}"
    return None


def _option(
    name: str, values: list[str], attached: bool, catalogue: Catalogue, command: str | None, parsed: Parsed
) -> None:
    argument = resolve(name, catalogue)
    negated = False
    if isinstance(argument, Argument) and argument.action == "boolean_optional":
        negated = name.lstrip("-").startswith("no-") and not argument.name.startswith("no-")
    if argument is None and name.startswith("--no-"):
        base = catalogue.get(name[5:])
        argument, negated = (base, True) if base is not None and base.action == "boolean_optional" else (None, False)
    if isinstance(argument, str):
        parsed.ambiguous[name.lstrip("-")] = argument
    if not isinstance(argument, Argument):
        _unknown(name, values, parsed)
        return
    negated = negated or _is_negation(name, argument, catalogue)
    count = _arity(argument, values, attached, negated, command)
    values, count = _one_text(name, argument, values, count, parsed)
    for arg in values[count:]:
        if not _drop_open(arg, parsed):
            parsed.positional.append(shown(arg))
    _store(name, argument, values[:count], negated, command, parsed)


def _is_negation(name: str, argument: Argument, catalogue: Catalogue) -> bool:
    """Return whether a name, or what it abbreviates, is the argument's `no_X` form."""
    if argument.negation is None:
        return False
    start = catalogue.normalise(name)
    return catalogue.normalise(argument.negation).startswith(start) and not argument.name.startswith(start)


def _unknown(name: str, values: list[str], parsed: Parsed) -> None:
    parsed.unknown[name.lstrip("-")] = tuple(shown(value) for value in values)


def _one_text(name: str, argument: Argument, values: list[str], count: int, parsed: Parsed) -> tuple[list[str], int]:
    """Join the words of an unquoted placeholder such as `your tokenizer path` into one value."""
    is_text = argument.type == "str" and argument.choices is None
    is_sentence = (count == 1 and argument.nargs is None) or (count > 1 and argument.is_list and values[0] == "your")
    if not is_sentence or not is_text or len(values) < 2 or any(only(arg) for arg in values[1:]):
        return values, count
    text = " ".join(values)
    parsed.lenient.append((name, f"has blanks in its value {shown(text)!r}: taken as one text; a shell would split it"))
    return [text], 1


def _arity(argument: Argument, values: list[str], attached: bool, negated: bool, command: str | None) -> int:
    """Return how many of the arguments after an option are its values."""
    if attached:
        return 1
    if argument.is_flag or negated or argument.action == "boolean_optional":
        return 0
    if argument.nargs in ("+", "*"):
        return len(values)
    if isinstance(argument.nargs, int):
        return min(argument.nargs, len(values))
    if argument.nargs == "?" or argument.optional_value or argument.bare_in(command):
        # The value of a switch is optional; the next argument is its value only if it is a valid one.
        return 1 if values and (argument.type != "bool" or _as_bool(values[0]) is not None or is_open(values[0])) else 0
    return min(1, len(values))


def _store(name: str, argument: Argument, args: list[str], negated: bool, command: str | None, parsed: Parsed) -> None:
    typed = [shown(arg) for arg in args]
    if any(is_open(arg) for arg in args):
        parsed.open[argument.name] = " ".join(typed)
    if any(has_output(arg) for arg in args):
        parsed.computed.add(argument.name)
    value = _value(name, argument, args, negated, command, parsed)
    if value is None:
        return
    key = argument.name
    if argument.action == "append":
        value = (*parsed.values.get(key, ()), value)
    elif key in parsed.values and parsed.values[key] != value:
        parsed.warnings.append(
            (name, f"is given twice ({_show(parsed.values[key])}, {_show(value)}): the last one is used")
        )
    parsed.values.pop(key, None)
    parsed.values[key] = value


def _value(name: str, argument: Argument, args: list[str], negated: bool, command: str | None, parsed: Parsed) -> Value:
    typed = [shown(arg) for arg in args]
    if argument.is_flag:
        if typed:
            parsed.problems.append((name, f"takes no value, got {typed[0]!r}"))
        return True
    if (negated or argument.action == "boolean_optional") and typed:
        parsed.problems.append((name, f"takes no value, got {typed[0]!r}"))
    if negated:
        return False
    if argument.action == "boolean_optional":
        return True
    if not typed and (argument.nargs == "?" or argument.optional_value or argument.bare_in(command)):
        return argument.const if argument.const is not None else True
    if not typed and argument.nargs != "*":
        parsed.problems.append((name, "needs a value"))
        return None
    if argument.is_list:
        if isinstance(argument.nargs, int) and len(typed) != argument.nargs:
            parsed.problems.append((name, f"takes {argument.nargs} values, got {len(typed)}"))
        return tuple(_typed(name, argument, arg, is_open(raw), parsed) for arg, raw in zip(typed, args, strict=True))
    return _typed(name, argument, typed[0], is_open(args[0]), parsed)


def _typed(name: str, argument: Argument, arg: str, is_placeholder: bool, parsed: Parsed) -> Value:
    value = typed_value(arg, argument)
    number = _as_whole_number(arg) if value is None and argument.type == "int" and argument.choices is None else None
    if number is not None:
        parsed.loose.add(name)
        parsed.lenient.append((name, f"{arg} is read as {number}: its parser accepts digits only"))
        return number
    if value is None:
        if not is_placeholder:
            from launcher.catalogue.catalogue import check_value

            parsed.problems.append((name, check_value(argument, arg, name=name.lstrip("-")) or f"cannot be {arg!r}"))
        return arg
    return value


def typed_value(arg: str, argument: Argument) -> Value:
    """Return the typed value of one command-line argument; None if it does not fit the argument."""
    for kind in argument.type.split("|"):
        value = _CONVERT.get(kind, _as_text)(arg)
        if value is not None:
            # A parser compares with the text: no text is the choice None.
            known = {str(choice) for choice in argument.choices or () if choice is not None or argument.type != "str"}
            if argument.choices is not None and str(value) not in known:
                return None
            return value
    return None


def _as_whole_number(arg: str) -> int | None:
    """Return the integer value of `1000000.0` or `1e6`; an older parser read such a number as a float."""
    value = _as_float(arg)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else None


def _as_int(arg: str) -> Value:
    try:
        return int(arg)
    except ValueError:
        return None


def _as_float(arg: str) -> Value:
    try:
        return float(arg)
    except ValueError:
        return None


def _as_bool(arg: str) -> Value:
    lowered = arg.lower()
    return True if lowered in TRUE_WORDS else False if lowered in FALSE_WORDS else None


def _as_json(arg: str) -> Value:
    """Parse JSON mappings and lists, so that `{"a": 1}` compares by content, not spaces; other values stay text."""
    if arg[:1] not in "{[":
        return arg
    try:
        found = json_value(arg)
    except ValueError:
        return arg
    return found if isinstance(found, (dict, list)) else arg


def _as_json_text(arg: str) -> Value:
    """Return what json.loads does not refuse."""
    try:
        json_value(arg)
    except ValueError:
        return None
    return _as_json(arg)


def _as_expression(arg: str) -> Value:
    """Return a list expression as it is; another value is a whole number (Megatron-LM's moe_freq_type)."""
    return (arg if may_be_list(arg) else None) if "[" in arg else _as_int(arg)


def _as_ints(arg: str) -> Value:
    """Return `1,2` and `(1,2)` as they are (Megatron-LM's tuple_type)."""
    return None if any(_as_int(part) is None for part in arg.strip("()").split(",")) else arg


def _as_text(arg: str) -> Value:
    return arg


_CONVERT: Mapping[str, Callable[[str], Value]] = {
    "int": _as_int,
    "float": _as_float,
    "bool": _as_bool,
    "json": _as_json,
    "json_text": _as_json_text,
    "dict": _as_json,
    "expr": _as_expression,
    "ints": _as_ints,
    "truth": bool,
}


def _show(value: Value) -> str:
    return " ".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
