"""Records what rules read while jobs are judged, to compare it with what they declare."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from launcher.rules import registry
from launcher.rules.dependency_tracking import NotedMapping, noted, noted_native, reading
from launcher.rules.registry import RULES, Check, RuleContext


@contextmanager
def recorded() -> Iterator[dict[str, set[str]]]:
    """Collect the reads of each rule that is checked inside the context: canonical paths, and `--flag`."""
    found: dict[str, set[str]] = {}
    before = dict(RULES)
    watched = _Watched()
    for id_, rule in before.items():
        RULES[id_] = replace(rule, check=_recording(rule.check, found.setdefault(id_, set()), watched))
    registry._applicable.cache_clear()
    try:
        yield found
    finally:
        RULES.update(before)
        registry._applicable.cache_clear()


class _Watched:
    """Facts that record reads; the rules of one job share them."""

    def __init__(self) -> None:
        self.last: tuple[RuleContext, RuleContext] | None = None

    def of(self, facts: RuleContext) -> RuleContext:
        if self.last is None or self.last[0] is not facts:
            watched = replace(
                facts,
                job=noted(facts.job),
                native=None if facts.native is None else noted_native(facts.native),
                values=NotedMapping(facts.values),
                written=NotedMapping(facts.written),
            )
            self.last = (facts, watched)
        return self.last[1]


def _recording(check: Check, found: set[str], watched: _Watched) -> Check:
    def recording(facts: RuleContext) -> list[registry.Violation]:
        with reading() as reads:
            violations = list(check(watched.of(facts)))
        found.update(reads)
        return violations

    return recording
