"""Launchers (torchrun, msrun …) and the environment variables that are read, as catalogues."""

from collections.abc import Iterator
from functools import cache

from launcher.catalogue.catalogue import Catalogue, load
from launcher.mapping.backend import backend_names, get_backend
from launcher.records import dataclass

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """A catalogue of a launcher, or of environment variables.

    Attributes:
        name: name of the launcher, or `environment`.
        backend: backend whose folder has the catalogue; for `environment`, the one whose code reads the variables.
    """

    name: str
    backend: str
    catalogue: Catalogue


@cache
def starters() -> tuple[Starter, ...]:
    """Return every catalogue of every installed backend's launchers and environment."""
    return tuple(_starters())


def _starters() -> Iterator[Starter]:
    for backend in backend_names():
        folder = get_backend(backend).launchers
        for path in sorted(folder.glob("*.json")) if folder is not None else ():
            yield Starter(name=path.stem, backend=backend, catalogue=load(path))


def launcher_names() -> tuple[str, ...]:
    """Return the names of launchers that have a catalogue."""
    return tuple(dict.fromkeys(starter.name for starter in starters() if starter.name != ENVIRONMENT))


def variables_of(backend: str) -> Catalogue | None:
    """Return the environment variables that a backend's code reads or sets, or its documentation names."""
    found = (starter for starter in starters() if starter.name == ENVIRONMENT and starter.backend == backend)
    return next((starter.catalogue for starter in found), None)
