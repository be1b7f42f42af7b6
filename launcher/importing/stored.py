"""Settings by argument destination (`--yaml-cfg`, a dump of `args`), converted to command-line arguments."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.importing.argv import typed_value
from launcher.importing.notes import Note, refuse
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.records import dataclass

_FEWEST, _SHARE, _DUMP_SHARE = 5, 0.7, 0.5
# Up to this many arguments that only an extension of a parser adds may occur in a file by chance.
_CHANCE = 2
# Line of Megatron's argument dump at startup: `  hidden_size ........ 4096`, often after a rank or a time.
_PRINTED = re.compile(r"(?:^|[\s\]:|])([a-z]\w*) (\.*) (.*?)\s*$")
_END, _LEAST_PRINTED = "end of arguments", 20
# Dots pad a name to 48 characters: long names have few or none.
_FEWEST_DOTS, _LONG_NAME = 3, 44
# `torch.bfloat16`, `AttnBackend.flash`, `<AttnBackend.flash: 1>`: parsed values of a choice.
_OF_TYPE = re.compile(r"<?(?:[A-Za-z_]\w*\.)+(\w+)(?:: [^>]*>)?")
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8"}
# A list written as text: `"[0, 4]"`.
_BETWEEN = re.compile(r"^\[|\]$|,(?= )")
# A file with more than this share of all arguments is a parser's dump, with defaults and computed values.
OF_DUMP = 0.4
# Above this number, unknown names are reported in one note.
_MANY = 12
# Values without effect if no argument takes them.
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})


def likely_backends(tree: Mapping[str, Any], rival: float, *, is_dump: bool = False) -> tuple[str, ...]:
    """Return the backends whose parser stores most of these names, at any depth; none if no backend matches.

    Args:
        rival: share of the keys known to a backend that reads such files itself.
    """
    names = [name for name, _ in _leaves(tree)]
    if len(names) < _FEWEST:
        return ()
    shares: dict[str, float] = {}
    specific: dict[str, int] = {}
    for backend in map(get_backend, backend_names()):
        catalogue = backend.catalogue(backend.default_version)
        if catalogue.style == "argparse":
            known = [_argument(_renamed(name, None, backend)[0], catalogue) for name in names]
            specific[backend.name] = _specific_count(
                [argument for argument in known if argument is not None], catalogue
            )
            shares[backend.name] = sum(argument is not None for argument in known) / len(names)
    best = max(shares.values(), default=0.0)
    if best <= max(_DUMP_SHARE if is_dump else _SHARE, rival):
        return ()
    # An extension of the plain parser knows more names by chance: only those that it adds itself count for it.
    candidates = {name: share for name, share in shares.items() if specific[name] > _CHANCE or len(shares) == 1}
    plain = min(shares, key=lambda name: len(get_backend(name).catalogue(get_backend(name).default_version)))
    likely = {name: share for name, share in shares.items() if name == plain or name in candidates}
    best = max(likely.values())
    return tuple(name for name, share in likely.items() if share == best)


def _specific_count(known: list[Argument], catalogue: Catalogue) -> int:
    """Return how many of the arguments a backend adds to the parser that it extends."""
    usual = Counter(argument.origin for argument in catalogue.arguments).most_common(1)[0][0]
    return sum(argument.origin != usual for argument in known)


def arguments_of_stored(
    tree: Mapping[str, Any], backend: Backend, where: str, *, is_dump: bool = False
) -> tuple[tuple[str, ...], list[Note]]:
    """Return nested settings as command-line arguments, and notes on those that no argument takes.

    Args:
        is_dump: values are those of a parser; values that no argument accepts were computed.
    """
    catalogue = backend.catalogue(backend.default_version)
    argv: list[str] = []
    unknown: list[tuple[str, str]] = []
    leaves = list(_leaves(tree))
    _refuse_roles(tree, backend, catalogue, where)
    with_defaults = is_dump or len(leaves) > len(catalogue.arguments) * OF_DUMP
    for name, given in leaves:
        key, value = _renamed(name, given, backend)
        argument = _argument(key, catalogue) if key else None
        if argument is not None and value is not None:
            if with_defaults and _is_every_default(argument, value, backend):
                continue
            converted = _as_argv(argument, value, is_option=key.replace("_", "-") == argument.name)
            if is_dump and not fits(converted, argument):
                unknown.append((name, key))
            else:
                argv += converted
        elif argument is None and key and value not in _NOTHING:
            unknown.append((name, key))
    return tuple(argv), _dropped(unknown, catalogue, backend, where)


def _refuse_roles(tree: Mapping[str, Any], backend: Backend, catalogue: Catalogue, where: str) -> None:
    """Reject sections with different values for one argument: each configures a separate model, as in RL."""
    seen: dict[str, list[tuple[str, Any]]] = {}
    for section, name, value in _places(tree):
        key, _ = _renamed(name, value, backend)
        if value is None or not key or _argument(key, catalogue) is None:
            continue
        for other, before in seen.get(name, ()):
            if before != value and not section.startswith(other) and not other.startswith(section):
                text = f"{other}{name} is {before}, {section}{name} is {value}"
                raise refuse(f"{text}: its sections configure several models; import reads one training", where)
        seen.setdefault(name, []).append((section, value))


def _places(tree: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _places(value, f"{section}{name}.")
        else:
            yield section, str(name), value


def _dropped(unknown: list[tuple[str, str]], catalogue: Catalogue, backend: Backend, where: str) -> list[Note]:
    text = f"unknown to {backend.title}: dropped"
    if len(unknown) > _MANY:
        names = ", ".join(name for name, _ in unknown)
        return [Note(message=f"{len(unknown)} names are {text}: {names}", where=where)]
    return [
        Note(message=f"{name} is {text}", where=where, works=tuple(catalogue.suggest(key)[:1])) for name, key in unknown
    ]


def fits(argv: list[str], argument: Argument) -> bool:
    """Return whether a parser accepts the arguments; computed values or those of another parser may fail."""
    if argument.is_flag:
        return len(argv) <= 1
    return all(typed_value(arg, argument) is not None for arg in argv[1:])


def _is_every_default(argument: Argument, value: Any, backend: Backend) -> bool:
    """Return whether a value in a dump is the default of every version's parser."""
    known = (backend.catalogue(version).by_dest(argument.dest) for version in backend.versions)
    return all(each.is_default(value) for each in known if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """Arguments dumped in a log, and the log up to their end."""

    values: dict[str, Any]
    text: str


def dumped(text: str) -> Dump | None:
    """Return the first dump of arguments as `name ..... value` in a log; None if there is none."""
    pairs: dict[str, Any] = {}
    length = 0
    for line in text.splitlines(keepends=True) if "....." in text else ():
        length += len(line)
        if _END in line and pairs:
            break
        found = _PRINTED.search(line) if " ." in line or len(pairs) >= _LEAST_PRINTED else None
        if found is None or (len(found[2]) < _FEWEST_DOTS and len(found[1]) < _LONG_NAME):
            continue
        pairs.setdefault(found[1], _literal(found[3]))
    return Dump(values=pairs, text=text[:length]) if len(pairs) >= _LEAST_PRINTED else None


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text) if len(text) < 10_000 else text
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _leaves(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield str(name), value


def _renamed(name: str, value: Any, backend: Backend) -> tuple[str, Any]:
    """Return name and value in the parser's spelling, where the file uses another."""
    stored = backend.entry.stored
    if f"{name}={value}" in stored:
        return stored[f"{name}={value}"], True
    return stored.get(name, name), value


def _argument(name: str, catalogue: Catalogue) -> Argument | None:
    return catalogue.get(name.replace("_", "-")) or catalogue.by_dest(name)


def _as_argv(argument: Argument, value: Any, *, is_option: bool) -> list[str]:
    """Return the arguments that store a value; a bare switch may store true or, under another name, false."""
    option = f"--{argument.name}"
    if argument.is_flag and value in (0, 1):
        value = bool(value)
    if argument.is_flag and isinstance(value, bool):
        return [option] if value == (is_option or argument.action != "store_false") else []
    if argument.action == "boolean_optional" and isinstance(value, bool):
        return [option if value else f"--no-{argument.name}"]
    if argument.is_list:
        given = value if isinstance(value, list) else _BETWEEN.sub(" ", str(value)).split()
        items = [as_typed(argument, item) for item in given]
        return [option, *items] if items else []
    return [option, as_typed(argument, value)]


def as_typed(argument: Argument, value: Any) -> str:
    """Return a value as typed on a command line: a dump holds the parsed value."""
    text = str(int(value)) if argument.type == "int" and isinstance(value, float) and value.is_integer() else str(value)
    match = _OF_TYPE.fullmatch(text)
    if match is None:
        return text
    names = (match[1], _DTYPES.get(match[1], text))
    return next((name for name in names if name in (argument.choices or ())), text)
