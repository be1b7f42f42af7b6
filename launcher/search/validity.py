"""Caches which points all rules of a backend accept, by the values that the rules read.

A rejection names the fields that it depends on. Every other point with the same values there is rejected by the same
rule, so a few dozen evaluations decide hundreds of thousands of points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from launcher.job import Job, Value
from launcher.job.finding import Finding
from launcher.rules.variants import Variants

# Fields from which a derived field is computed: a rule that reads it depends on these.
_BEHIND = {"parallel.dp": ("parallel.tp", "parallel.pp", "parallel.cp")}


class ValidityCache:
    """Validity of points around one job; the rules of all given backends must accept.

    Attributes:
        refusals: points rejected, by rule.
        asked: points that the rule engine evaluated.
    """

    def __init__(self, *backends: Variants) -> None:
        self._backends = backends
        self._known: dict[tuple[str, ...], dict[tuple[Value, ...], str]] = {}
        self.refusals: Counter[str] = Counter()
        self.examples: dict[str, Finding] = {}
        self.asked = 0

    @property
    def judges(self) -> tuple[Variants, ...]:
        """The checks that must all accept."""
        return self._backends

    @property
    def job(self) -> Job:
        """The job whose values the points replace."""
        return self._backends[0].job

    def accepts(self, values: Mapping[str, Value], weight: int = 1) -> bool:
        """Return whether the job with these values has no error.

        Args:
            weight: points that the result decides, for the count of rejections.
        """
        if self.knows(values, weight):
            return False
        self.asked += 1
        refusal = next(filter(None, (variants.refused(values) for variants in self._backends)), None)
        if refusal is None:
            return True
        rule = refusal.finding.rule
        self.examples.setdefault(rule, refusal.finding)
        if refusal.reads is not None:
            self._remember(values, refusal.reads, rule)
        # A rejection that is not remembered is not counted again where its point is looked up.
        self._count(rule, weight or int(refusal.reads is None))
        return False

    def _count(self, rule: str, weight: int) -> None:
        if weight:
            self.refusals[rule] += weight

    def knows(self, values: Mapping[str, Value], weight: int = 1) -> bool:
        """Return whether a cached rejection applies to the job with these values; False is inconclusive."""
        found = self._remembered(values)
        if found is not None:
            self._count(found[0], weight)
        return found is not None

    def knows_all_with(self, values: Mapping[str, Value], weight: int) -> bool:
        """Return whether every point that has these values is rejected; False is inconclusive."""
        for fields, refused in self._known.items():
            if values.keys() >= set(fields):
                rule = refused.get(tuple(map(values.__getitem__, fields)))
                if rule is not None:
                    self._count(rule, weight)
                    return True
        return False

    def depends(self, values: Mapping[str, Value], paths: frozenset[str]) -> bool:
        """Return whether a rejected point may be accepted with other values of some paths."""
        found = self._remembered(values)
        return found is None or not paths.isdisjoint(found[1])

    def _remembered(self, values: Mapping[str, Value]) -> tuple[str, tuple[str, ...]] | None:
        """Return the rule that is known to reject a point, and the fields that decide it."""
        for fields, refused in self._known.items():
            rule = refused.get(tuple(map(values.get, fields)))
            if rule is not None:
                return rule, fields
        return None

    def _remember(self, values: Mapping[str, Value], reads: frozenset[str], rule: str) -> None:
        behind = {field for path in reads for field in _BEHIND.get(path, (path,))}
        fields = tuple(sorted(field for field in values if field in behind))
        self._known.setdefault(fields, {})[tuple(values[field] for field in fields)] = rule
