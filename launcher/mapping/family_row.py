"""What a backend calls a model family, and since when it trains it: one row a family in the backend's package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from launcher.catalogue.versions import in_range

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

    def unconverted(self, version: str) -> str:
        """Return why no weights of the family are converted for a version that trains it; empty if they are."""
        if self.no_weights or in_range(version, self.weights_since, None):
            return self.no_weights
        return f"how {version} stores them is not known, {self.weights_since} and later are"


def name_in(names: Iterable[Named], version: str) -> str | None:
    """Return the name in the range of a version, or None."""
    return next((name for since, until, name in names if in_range(version, since, until)), None)


R = TypeVar("R", bound=FamilyRow)


def by_family(*rows: R) -> Mapping[str, R]:
    """Return rows by model_type."""
    found = {row.model_type: row for row in rows}
    assert len(found) == len(rows)
    return found
