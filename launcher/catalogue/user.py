"""Catalogues that users add: forks of a backend's versions, one file each in the user's configuration folder.

A fork named `ours` of version 0.16.1 is the version `0.16.1+ours`: what holds for a version (`since`, `until`) holds
for its forks, and a job file that names one shows on any machine what it is a fork of.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.catalogue.versions import FORK
from launcher.records import dataclass

if TYPE_CHECKING:
    from launcher.catalogue.catalogue import Catalogue

VARIABLE = "LAUNCH_CATALOGUES"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
# Key of a catalogue's `source`: functions of other packages that add arguments which are not in the catalogue.
OUTSIDE = "outside"
_MAX_FILE = 16 << 20


class BrokenFork(Exception):
    """A file of a fork that cannot be used; the message names it and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A fork of a backend's version.

    Attributes:
        like: the version whose mapping and rules it has.
        file: its file.
    """

    backend: str
    name: str
    like: str
    file: Path

    @property
    def version(self) -> str:
        """The version by which jobs name it."""
        return f"{self.like}{FORK}{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkDetails:
    """What the file of a fork holds beside its arguments.

    Attributes:
        checkout: the folder that it was read from.
        revision: commit of the checkout, if known.
        parser: `file:function` of its parser; empty: it extends the version that it is like.
        scripts: its scripts that train.
        new: arguments that the version it is like does not have.
        missing: arguments of that version that it does not have.
    """

    checkout: str = ""
    revision: str = ""
    parser: str = ""
    scripts: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFork:
    """A fork's arguments and details."""

    catalogue: Catalogue
    details: ForkDetails = field(default_factory=ForkDetails)


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's catalogues: LAUNCH_CATALOGUES, or the one in the XDG config folder."""
    if environ.get(VARIABLE):
        return Path(environ[VARIABLE]).expanduser()
    config = environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "launch" / "catalogues"


def forks(backend: str) -> tuple[Fork, ...]:
    """Return the forks of a backend that this user added, in order of their names."""
    place = folder() / backend
    try:
        names = [entry.name for entry in os.scandir(place) if entry.name.endswith(".json")]
    except OSError:
        return ()
    found = []
    for file in sorted(names):
        like, plus, name = file.removesuffix(".json").partition(FORK)
        if plus and like and NAME.fullmatch(name):
            found.append(Fork(backend=backend, name=name, like=like, file=place / file))
    return tuple(sorted(found, key=lambda fork: fork.name))


def load_fork(fork: Fork) -> LoadedFork:
    """Return the content of a fork's file.

    Raises:
        BrokenFork: it cannot be read, or is none.
    """
    from launcher.catalogue.catalogue import from_json  # few users have a fork

    try:
        if fork.file.stat().st_size > _MAX_FILE:
            raise ValueError(f"larger than {_MAX_FILE >> 20} MiB")
        data = json.loads(fork.file.read_text(encoding="utf-8"))
        details = data["fork"]
        catalogue = from_json({**data, "backend": fork.backend, "version": fork.version})
        return LoadedFork(
            catalogue=catalogue,
            details=ForkDetails(
                checkout=str(details["checkout"]),
                revision=str(details["revision"]),
                parser=str(details["parser"]),
                scripts=tuple(map(str, details["scripts"])),
                new=tuple(map(str, details["new"])),
                missing=tuple(map(str, details["missing"])),
            ),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        raise BrokenFork(f"{fork.file} is no catalogue of a fork ({what})") from None


def write_fork(fork: Fork, head: Mapping[str, Any], details: ForkDetails, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the file of a fork, in one step; an earlier one is replaced.

    Raises:
        OSError: the folder cannot be written.
    """
    fork.file.parent.mkdir(parents=True, exist_ok=True)
    fields = ("checkout", "revision", "parser", "scripts", "new", "missing")
    content = {
        **head,
        "fork": {"name": fork.name, "like": fork.like, **{name: getattr(details, name) for name in fields}},
        "arguments": list(rows),
    }
    import tempfile  # it reads random numbers from the system; most commands write no catalogue

    descriptor, temporary = tempfile.mkstemp(dir=fork.file.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(content, stream, ensure_ascii=False, indent=1)
        os.replace(temporary, fork.file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
