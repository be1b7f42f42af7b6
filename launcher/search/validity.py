"""Which points all rules of a backend accept, cached by the values that the rules read.

A refusal comes with the fields that decided it. Every other point with the same values there is refused for the same
reason, so a few dozen answers settle hundreds of thousands of points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from launcher.job import Job, Value
from launcher.job.finding import Finding
from launcher.rules.variants import Variants

# What a derived value follows from: whoever reads it reads these.
_BEHIND = {"parallel.dp": ("parallel.tp", "parallel.pp", "parallel.cp")}


class ValidityCache:
    """The verdicts on points around one job of every backend that is asked; all must accept.

    Attributes:
        refusals: points refused, by rule.
        asked: points that the rule engine looked at.
    """

    def __init__(self, *backends: Variants) -> None:
        self._backends = backends
        self._known: dict[tuple[str, ...], dict[tuple[Value, ...], str]] = {}
        self.refusals: Counter[str] = Counter()
        self.examples: dict[str, Finding] = {}
        self.asked = 0

    @property
    def job(self) -> Job:
        """The job around which points are judged."""
        return self._backends[0].job

    def accepts(self, values: Mapping[str, Value], weight: int = 1) -> bool:
        """Tell whether the job with these values has no error.

        Args:
            weight: points that the answer settles, for the count of refusals.
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
        self._count(rule, weight)
        return False

    def _count(self, rule: str, weight: int) -> None:
        if weight:
            self.refusals[rule] += weight

    def knows(self, values: Mapping[str, Value], weight: int = 1) -> bool:
        """Tell whether the job with these values is refused for what is known already; False says nothing."""
        rule = self._remembered(values)
        if rule is not None:
            self._count(rule, weight)
        return rule is not None

    def _remembered(self, values: Mapping[str, Value]) -> str | None:
        for fields, refused in self._known.items():
            rule = refused.get(tuple(values.get(field) for field in fields))
            if rule is not None:
                return rule
        return None

    def _remember(self, values: Mapping[str, Value], reads: frozenset[str], rule: str) -> None:
        behind = {field for path in reads for field in _BEHIND.get(path, (path,))}
        fields = tuple(sorted(field for field in values if field in behind))
        self._known.setdefault(fields, {})[tuple(values[field] for field in fields)] = rule
