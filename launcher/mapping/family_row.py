"""What a backend calls a model family, and since when it trains it: one row a family in the backend's package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from launcher.catalogue.versions import in_range, version_key
from launcher.job import Job, Value
from launcher.mapping.rows import Row, Unsupported
from launcher.records import dataclass

FAMILY = "model.model_type"
# First and last version of a range, and a name in it; None: open.
Named = tuple[str | None, str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyRow:
    """A backend's row of one family; backends add what else they say of it.

    Attributes:
        model_type: the family, named as its file in `launcher/families/architectures`.
        names: what the backend calls it in a range of versions; empty: no version trains it.
        cannot: why the versions outside of `names` do not train it.
        no_weights: why no checkpoint of the family is converted for the backend, although it trains it; "": it is.
        weights_since: first version whose arrangement of the weights is known; None: all.
        source: upstream file that says so.
    """

    model_type: str
    names: tuple[Named, ...] = ()
    cannot: str = ""
    no_weights: str = ""
    weights_since: str | None = None
    source: str

    def name(self, version: str) -> str | None:
        """Return what a version calls the family; None if it does not train it."""
        return name_in(self.names, version)

    def trains(self, version: str) -> bool:
        """Return whether a version trains the family, by whichever of its classes."""
        return self.name(version) is not None

    def unconverted(self, version: str) -> str:
        """Return why no weights of the family are converted for a version that trains it; empty if they are."""
        if self.no_weights or in_range(version, self.weights_since, None):
            return self.no_weights
        return f"how {version} stores them is not known, {self.weights_since} and later are"


def name_in(names: Iterable[Named], version: str) -> str | None:
    """Return the name in the range of a version, or None."""
    return next((name for since, until, name in names if in_range(version, since, until)), None)


def later(row: FamilyRow, version: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the override of the first of the versions after this one that trains a family; none: empty."""
    trained = [each for each in versions if row.name(each) is not None and version_key(each) > version_key(version)]
    return (f"backend.version={min(trained, key=version_key)}",) if trained else ()


def refusal(rows: Mapping[str, FamilyRow], version: str, versions: Iterable[str], note: str = "") -> Row:
    """Return the row of a mapping table that refuses the families that a version does not train."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        row = rows.get(job.model.model_type or "")
        if row is not None and row.name(version) is None:
            raise Unsupported(FAMILY, row.cannot, later(row, version, versions))
        return ()

    return Row(fields=(FAMILY,), flags=(), emit=emit, note=note)


R = TypeVar("R", bound=FamilyRow)


def by_family(*rows: R) -> Mapping[str, R]:
    """Return rows by model_type."""
    found = {row.model_type: row for row in rows}
    assert len(found) == len(rows)
    return found
