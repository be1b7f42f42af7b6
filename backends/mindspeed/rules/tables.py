"""Row factories and source prefixes of MindSpeed-LLM's rule tables."""

from collections.abc import Mapping

from launcher.rules.registry import Rule, Setting
from launcher.rules.table import never

MINDSPEED = ("mindspeed",)
SINCE = "2.2"
DEPRECATED_IN = "26.1.0"
"""A version with the deprecated names, which are the same since 2.2.0."""
OLD = "2.1.0"
FEATURES = "MindSpeed 26.1.0 features_manager"
LLM = "MindSpeed-LLM 26.1.0 features_manager"
OLD_ARGUMENTS = "MindSpeed-LLM 2.1.0 training/arguments.py"


def excludes(
    prefix: str, flag: str, others: tuple[str, ...], what: str, source: str, since: str | None = None
) -> tuple[Rule, ...]:
    """Return rows for one argument that excludes each of the others."""
    doc = f"{what} cannot be combined with"
    return tuple(
        never(f"{prefix}-{other.upper()}", f"{flag} & {other}", f"{doc} {other}.", source, since=since)
        for other in others
    )


def changes(
    id: str,
    when: str,
    message: str,
    doc: str,
    source: str,
    severity: str = "change",
    sets: Mapping[str, Setting] | None = None,
    phase: str = "config",
    since: str | None = None,
) -> Rule:
    """Return a row of a silent change, with what it sets where that is an argument, or of a warning."""
    return Rule(
        id=id,
        when=when,
        doc=doc,
        source=source,
        severity=severity,
        message=message,
        sets=sets or {},
        reports_unwritten=bool(sets),
        phase=phase if sets else "",
        since=since,
    )
