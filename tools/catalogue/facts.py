"""Facts of a backend that hold for a range of its versions, and which of them a new version leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launcher.catalogue.requirements import Needed
from launcher.catalogue.versions import in_range
from launcher.mapping.backend import Backend
from launcher.mapping.family_row import FamilyRow
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from tools.catalogue.evidence import Tree, Trees


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One record with a range of versions.

    Attributes:
        name: kind and identity (`rule MLM-GDN-CP`), as `settled.json` names it.
        holds: version to what it says there; "": it does not hold.
        source: upstream's file and line.
    """

    name: str
    holds: Callable[[str], str]
    source: str


def facts(backend: Backend) -> Iterator[Fact]:
    """Yield the rules, families, packages, computations, figures and unbuildable models of a backend."""
    load(backend.rules)
    for rule in RULES.values():
        if backend.name in rule.backends:
            range_ = rule.versions.get(backend.name, (rule.since, rule.until))
            yield Fact(name=f"rule {rule.id}", holds=_between(*range_), source=rule.source)
    for model_type, row in backend.families().items():
        yield Fact(name=f"family {model_type}", holds=_called(row), source=row.source)
    packages: dict[str, list[Needed]] = {}
    for each in backend.support:
        packages.setdefault(" on ".join((each.name, *each.devices)), []).append(each)
    for name, rows in packages.items():
        yield Fact(name=f"package {name}", holds=_wanted(rows), source="")
    for number, one in enumerate(backend.computations()):
        if backend.name in one.versions:
            name = f"computation {one.topic} {one.way or one.rule} {number}"
            yield Fact(name=name, holds=_between(*one.versions[backend.name]), source=one.source)
    for number, figure in enumerate(backend.profile()):
        yield Fact(
            name=f"figure {figure.name} {number}", holds=_between(figure.since, figure.until), source=figure.source
        )
    for number, kind in enumerate(backend.unbuildable()):
        name = f"unbuildable {kind.id or number}"
        yield Fact(name=name, holds=_between(kind.since, kind.until), source=kind.source)


def _between(since: str | None, until: str | None) -> Callable[[str], str]:
    return lambda version: "holds" if in_range(version, since, until) else ""


def _called(row: FamilyRow) -> Callable[[str], str]:
    return lambda version: row.name(version) or ""


def _wanted(rows: list[Needed]) -> Callable[[str], str]:
    def holds(version: str) -> str:
        found = [row for row in rows if in_range(version, row.since, row.until)]
        return "; ".join(f"{row.wanted or 'any'} (tested {row.tested or 'unknown'})" for row in found)

    return holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """A fact that the neighbours of a version do not agree on, with what the version's own source says.

    Attributes:
        fact: the record.
        before, here, after: what it says at the version before, at this one by its bounds, and at the one after.
        evidence: whether the source has the lines that the record names; None: they are not of this project, or
            only some of them are there.
    """

    fact: Fact
    before: str
    here: str
    after: str
    evidence: bool | None

    @property
    def is_decided(self) -> bool:
        """Whether the source says the same as the bounds."""
        return self.evidence is not None and self.evidence == bool(self.here)


def open_facts(
    backend: Backend, version: str, around: tuple[str | None, str | None], tree: Tree | Trees | None
) -> list[Open]:
    """Return the facts whose bounds lie between two neighbours, or that the older one has and the source has not."""
    before, after = around
    found = []
    for fact in facts(backend):
        said = tuple(None if each is None else fact.holds(each) for each in (before, version, after))
        if before is None or after is None or said[0] == said[2]:
            continue
        seen = None if tree is None else tree.evidence(fact.source).holds
        found.append(Open(fact=fact, before=said[0] or "", here=said[1] or "", after=said[2] or "", evidence=seen))
    return found


def moved_facts(backend: Backend, version: str, tree: Tree | Trees) -> list[str]:
    """Return the rules that hold at a version by their bounds, of whose source lines its checkout has none."""
    return [
        fact.name
        for fact in facts(backend)
        if fact.name.startswith("rule ")
        and fact.holds(version)
        and (seen := tree.evidence(fact.source)).known
        and not seen.found
    ]
