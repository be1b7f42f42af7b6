"""Adds the parser of a checkout as a version of the backend that it is a fork of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.catalogue.checkout.files import Checkout, CheckoutRefused
from launcher.catalogue.checkout.read import NOTHING, ReadParser, read_parser
from launcher.catalogue.checkout.rows import Row
from launcher.catalogue.user import NAME, OUTSIDE, Fork, ForkDetails, folder, forks, load_fork, write_fork
from launcher.catalogue.versions import FORK
from launcher.mapping.backend import Backend, UnknownVersion, backend_names, forget_forks, get_backend
from launcher.mapping.forks import loaded
from launcher.records import dataclass

# Below this share of arguments that a version has, too, a checkout's parser is not that of a fork of it.
_LEAST_KNOWN = 0.3
_REVISION = re.compile(r"[0-9a-f]{40}")
_KEPT = ("default", "name", "dest")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFork:
    """A fork that was added.

    Attributes:
        alike: share of argument names that fork and version have in common; None: the version was given, or extended.
        rows_dropped: fields that the version has a row for and the fork has not.
        notes: what could not be told from the source.
    """

    fork: Fork
    details: ForkDetails
    catalogue: Catalogue
    alike: float | None
    rows_dropped: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    backend: Backend
    version: str
    parser: ReadParser
    alike: float


def add_fork(
    directory: str | Path, name: str | None = None, like: str | None = None, *, replace: bool = False
) -> AddedFork:
    """Read a checkout's parser and keep it in the user's folder as a version of the backend that it is like.

    Args:
        name: its name; None: that of the folder.
        like: `BACKEND@VERSION` or `BACKEND`; None: the version whose argument names are most like the checkout's.
        replace: a fork of this name that was read from another folder is replaced, too.

    Raises:
        CheckoutRefused: it is no checkout with a parser that is known, the name is taken, or no name.
    """
    checkout = Checkout.open(directory)
    name = _free_of_version(checkout.root.name) if name is None else name
    if not NAME.fullmatch(name):
        works = (f"--name {_free_of_version(name)}",)
        raise CheckoutRefused(f"{name!r} is no name: letters, digits, '.', '-' and '_', at most 64", "--name", works)
    chosen = _chosen(checkout, like)
    backend, version = chosen.backend, chosen.version
    earlier = _earlier(backend, name, checkout, replace=replace)
    fork = Fork(
        backend=backend.name,
        name=name,
        like=version,
        file=folder() / backend.name / f"{version}{FORK}{name}.json",
    )
    base = backend.catalogue(version)
    rows = [_filled(row, base) for row in chosen.parser.rows]
    names, known = set(map(_plain, chosen.parser.names)), set(map(_plain, base.names()))
    details = ForkDetails(
        checkout=str(checkout.root),
        revision=_revision(checkout.root),
        parser=chosen.parser.parser,
        scripts=chosen.parser.scripts,
        new=tuple(sorted(row["name"] for row in rows if _plain(row["name"]) not in known)),
        missing=tuple(sorted(each.name for each in base.arguments if _plain(each.name) not in names)),
    )
    source = {"project": checkout.root.name, "version": name, "made_by": "launch catalogue add"}
    if details.revision:
        source["revision"] = details.revision
    if chosen.parser.outside:
        source[OUTSIDE] = ", ".join(chosen.parser.outside)
    head: dict[str, Any] = {"source": source, "style": base.style}
    if chosen.parser.commands:
        head["commands"] = list(chosen.parser.commands)
    write_fork(fork, head, details, [_compact(row) for row in rows])
    for each in earlier:
        if each.file != fork.file:
            each.file.unlink(missing_ok=True)
    forget_forks()
    added = get_backend(backend.name)
    gaps = set(added.table(fork.version).unsupported) - set(backend.table(version).unsupported)
    return AddedFork(
        fork=fork,
        details=details,
        catalogue=load_fork(fork).catalogue,
        alike=None if like is not None or not chosen.parser.parser else chosen.alike,
        rows_dropped=tuple(sorted(gaps)),
        notes=tuple(_notes(chosen.parser, f"{backend.title} {version}")),
    )


def remove_fork(name: str) -> list[Fork]:
    """Remove the forks of a name, of all backends; returns them, or none if there is no such fork."""
    found = [fork for backend in backend_names() for fork in forks(backend) if name in (fork.name, fork.version)]
    for fork in found:
        fork.file.unlink(missing_ok=True)
    forget_forks()
    return found


def _chosen(checkout: Checkout, like: str | None) -> _Candidate:
    readable = [get_backend(name) for name in backend_names() if get_backend(name).parser_source is not None]
    given, _, version = (like or "").partition("@")
    if like is not None:
        readable = [_named(given, readable)]
        version = _version(readable[0], version)
    candidates: list[_Candidate] = []
    refused: list[CheckoutRefused] = []
    for backend in readable:
        try:
            candidates += _candidates(checkout, backend, version)
        except CheckoutRefused as error:
            refused.append(error)
    if not candidates:
        raise _of_all(refused)
    best = max(candidates, key=lambda each: each.alike)
    official = set(map(_plain, best.backend.catalogue(best.version).names()))
    known = len(official & set(map(_plain, best.parser.names)))
    if like is None and known < _LEAST_KNOWN * len(best.parser.names):
        message = (
            f"only {known} of the {len(best.parser.names)} arguments of its parser are those of the nearest version, "
            f"{best.backend.title} {best.version}"
        )
        raise CheckoutRefused(message, best.parser.parser, (f"--like {best.backend.name}@{best.version}",))
    return best


def _of_all(refused: Sequence[CheckoutRefused]) -> CheckoutRefused:
    """Return the refusal of a checkout that no backend can read: the one that says more than that nothing is there."""
    telling = [each for each in refused if not each.message.startswith(NOTHING)]
    if telling or len(refused) == 1:
        return (telling or refused)[0]
    message = f"{NOTHING}: " + "; or ".join(each.message.removeprefix(f"{NOTHING}: ") for each in refused)
    return CheckoutRefused(message, refused[-1].where, refused[-1].works)


def _candidates(checkout: Checkout, backend: Backend, version: str) -> list[_Candidate]:
    assert backend.parser_source is not None
    source = backend.parser_source()
    if source.extends:  # what it extends is that of a version: each has its own
        versions = [version] if version else _versions(backend)
        parsers = {each: read_parser(checkout, source, _rows(backend, each)) for each in versions}
        return [
            _Candidate(backend=backend, version=each, parser=parser, alike=_alike(parser, backend.catalogue(each)))
            for each, parser in parsers.items()
        ]
    base = version or backend.default_version
    parser = read_parser(checkout, source, _rows(backend, base))
    # What extends a parser that is not in the checkout says nothing of its version.
    versions = [version] if version else [base] if not parser.parser else _versions(backend)
    return [
        _Candidate(backend=backend, version=each, parser=parser, alike=_alike(parser, backend.catalogue(each)))
        for each in versions
    ]


def _rows(backend: Backend, version: str) -> list[Row]:
    return [row_of_argument(each) for each in backend.catalogue(version).arguments]


def _versions(backend: Backend) -> list[str]:
    return [version for version in backend.versions if FORK not in version]


def _alike(parser: ReadParser, catalogue: Catalogue) -> float:
    """Return the share of names that both have, of those that one has."""
    known, own = set(map(_plain, catalogue.names())), set(map(_plain, parser.names))
    return len(known & own) / len(known | own)


def _plain(name: str) -> str:
    """Return a name as forks are compared with versions: some write `_` for `-`."""
    return name.replace("_", "-")


def _named(name: str, readable: Sequence[Backend]) -> Backend:
    found = next((backend for backend in readable if backend.name == name), None)
    if found is not None:
        return found
    works = tuple(f"--like {backend.name}@{backend.default_version}" for backend in readable)
    known = name in backend_names()
    what = (
        f"the parser of a fork of {get_backend(name).title} is not read from its source"
        if known
        else f"no backend {name!r}"
    )
    raise CheckoutRefused(what, "--like", works)


def _version(backend: Backend, version: str) -> str:
    try:
        found = backend.version(version or None)
    except UnknownVersion as error:
        works = tuple(f"--like {backend.name}@{each}" for each in _versions(backend))
        raise CheckoutRefused(str(error), "--like", works) from None
    return found.partition(FORK)[0]


def _earlier(backend: Backend, name: str, checkout: Checkout, *, replace: bool) -> list[Fork]:
    """Return the forks of this name, which are replaced.

    Raises:
        CheckoutRefused: the name is that of a version, or of a fork that is not to be replaced.
    """
    official = {*_versions(backend), *(alias for alias, version in backend.aliases.items() if FORK not in version)}
    if name in official:
        message = f"{name} is a version of {backend.title} already"
        raise CheckoutRefused(message, "--name", (f"--name {name}-ours",))
    found = [fork for fork in forks(backend.name) if fork.name == name]
    for fork in found:
        content = loaded(fork)
        other = "a file that cannot be read" if content is None else content.details.checkout
        if not replace and other != str(checkout.root):
            message = f"{name} is taken: it is the fork read from {other}"
            works = ("--replace", f"--name {name}-2", f"launch catalogue remove {name}")
            raise CheckoutRefused(message, "--name", works)
    return found


def _free_of_version(text: str) -> str:
    """Return a name made of a text: of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64].strip("-._") or "fork"


def _revision(root: Path) -> str:
    """Return the commit of a checkout from its .git folder; empty: unknown. Git is not run."""
    folder_ = root / ".git"
    try:
        if not folder_.is_dir() or folder_.is_symlink():
            return ""
        head = _first_line(folder_ / "HEAD")
        name = head.removeprefix("ref: ")
        if name == head or ".." in name or not re.fullmatch(r"refs/[\w./-]+", name):
            return head if _REVISION.fullmatch(head) else ""
        if (folder_ / name).is_file():
            found = _first_line(folder_ / name)
            return found if _REVISION.fullmatch(found) else ""
        with (folder_ / "packed-refs").open(encoding="utf-8") as stream:
            lines = stream.read(1 << 20).splitlines()
        return next((line[:40] for line in lines if line.endswith(f" {name}") and _REVISION.match(line)), "")
    except (OSError, UnicodeDecodeError):
        return ""


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8") as stream:
        return stream.read(4096).partition("\n")[0].strip()


def row_of_argument(argument: Argument) -> Row:
    """Return an argument as a row of a catalogue file."""
    row: Row = {each.name: getattr(argument, each.name) for each in fields(argument) if each.name != "has_default"}
    if not argument.has_default:
        del row["default"]
    for name in ("aliases", "choices", "commands"):
        if row[name] is not None:
            row[name] = list(row[name])
    return row


def _filled(row: Row, base: Catalogue) -> Row:
    """Return a row with what its source does not tell and the argument of that name in the version it is like does."""
    known = base.get(row["name"]) or base.get(_plain(row["name"]))
    if known is None:
        return row
    row = dict(row)
    if row.get("type") == "any" and row.get("choices") is None:
        row |= {"type": known.type, "choices": None if known.choices is None else list(known.choices)}
    if "default" not in row and known.has_default and row.get("default_from"):
        row["default"] = known.default
        del row["default_from"]
    if "default" in row and row["default"] is None and known.default is None and known.absent is not None:
        row["absent"] = known.absent
    return row


def _compact(row: Row) -> Row:
    usual: dict[str, Any] = {each.name: each.default for each in fields(Argument)}
    empty: tuple[Any, ...] = (None, (), [], {}, "")
    return {
        name: value
        for name, value in row.items()
        if name in _KEPT or not (value in empty or value == usual.get(name, ...))
    }


def _notes(parser: ReadParser, like: str) -> Iterable[str]:
    if parser.extends:
        yield f"{parser.parser}: extends the parsers of other packages, whose arguments are taken to be those of {like}"
    for where, text in parser.unread.items():
        yield f"{where}: an argument whose name only running it gives: {text}"
    for name, where in parser.outside.items():
        yield f"{where}: {name} is not in the checkout; arguments that it adds are unknown"
    for path, why in parser.unreadable.items():
        yield f"{path}: {why}"
