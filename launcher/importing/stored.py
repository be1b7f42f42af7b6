"""Settings by the names under which a parser stores its arguments (`--yaml-cfg`, a dump of `args`), as its words."""

from collections.abc import Iterator, Mapping
from typing import Any

from launcher.importing.notes import Note
from launcher.translate.backend import Backend, backend_names, get_backend
from launcher.translate.catalogue import Argument, Catalogue

_FEWEST, _SHARE = 5, 0.7
# What says nothing where nobody reads it.
_NOTHING: tuple[Any, ...] = (None, False, "", [], {})


def likely_backends(tree: Mapping[str, Any], rival: float) -> tuple[str, ...]:
    """Return the backends whose parser stores most of these names, at any depth; none if they are something else.

    Args:
        rival: share of the keys that a backend knows which reads such files itself.
    """
    names = [name for name, _ in _leaves(tree)]
    if len(names) < _FEWEST:
        return ()
    shares: dict[str, float] = {}
    for backend in map(get_backend, backend_names()):
        catalogue = backend.catalogue(backend.versions[0])
        if catalogue.style == "argparse":
            known = [name for name in names if _argument(_renamed(name, None, backend)[0], catalogue) is not None]
            shares[backend.name] = len(known) / len(names)
    best = max(shares.values(), default=0.0)
    return tuple(name for name, share in shares.items() if share == best) if best > max(_SHARE, rival) else ()


def words_of_stored(tree: Mapping[str, Any], backend: Backend, where: str) -> tuple[tuple[str, ...], list[Note]]:
    """Return nested settings as the words of a command line, and remarks on those that no argument takes."""
    catalogue = backend.catalogue(backend.versions[0])
    words: list[str] = []
    notes: list[Note] = []
    for name, given in _leaves(tree):
        key, value = _renamed(name, given, backend)
        argument = _argument(key, catalogue) if key else None
        if argument is not None and value is not None:
            words += _words(argument, value, is_option=key.replace("_", "-") == argument.name)
        elif argument is None and key and value not in _NOTHING:
            message = f"{name} is stored by no argument of {backend.title}: left out"
            notes.append(Note(message=message, where=where, works=tuple(catalogue.suggest(key)[:1])))
    return tuple(words), notes


def _leaves(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value)
        else:
            yield str(name), value


def _renamed(name: str, value: Any, backend: Backend) -> tuple[str, Any]:
    """Return name and value as the parser has them, where the file calls them otherwise."""
    stored = backend.entry.stored
    if f"{name}={value}" in stored:
        return stored[f"{name}={value}"], True
    return stored.get(name, name), value


def _argument(name: str, catalogue: Catalogue) -> Argument | None:
    return catalogue.get(name.replace("_", "-")) or catalogue.by_dest(name)


def _words(argument: Argument, value: Any, *, is_option: bool) -> list[str]:
    """Return the words that store a value; a bare switch may store true or, under another name, false."""
    option = f"--{argument.name}"
    if argument.is_flag and isinstance(value, bool):
        return [option] if value == (is_option or argument.action != "store_false") else []
    if argument.action == "boolean_optional" and isinstance(value, bool):
        return [option if value else f"--no-{argument.name}"]
    if argument.is_list:
        return [option, *map(str, value if isinstance(value, list) else str(value).split())]
    return [option, str(value)]
