"""Records what rules read while jobs are judged, to compare it with what they declare."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from launcher.rules import registry
from launcher.rules.dependency_tracking import TrackedMapping, reading, tracked, tracked_native
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

    def of(self, context: RuleContext) -> RuleContext:
        if self.last is None or self.last[0] is not context:
            watched = replace(
                context,
                job=tracked(context.job),
                native=None if context.native is None else tracked_native(context.native),
                values=TrackedMapping(context.values),
                written=TrackedMapping(context.written),
            )
            self.last = (context, watched)
        return self.last[1]


def _recording(check: Check, found: set[str], watched: _Watched) -> Check:
    def recording(context: RuleContext) -> list[registry.Violation]:
        with reading() as reads:
            violations = list(check(watched.of(context)))
        found.update(reads)
        return violations

    return recording
