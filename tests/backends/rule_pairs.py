"""Which rules can give a finding, so that they have a command line that breaks them."""

from collections.abc import Set

from launcher.rules.registry import Rule


def check_pairs(rules: Set[str], pairs: Set[str], table: str) -> None:
    """Fail if a rule has no pair in a table, or a pair no rule; the message names both."""
    missing, unknown = sorted(rules - pairs), sorted(pairs - rules)
    assert not missing, f"{table} needs the smallest job that breaks {', '.join(missing)} and the nearest that passes"
    assert not unknown, f"{table} has pairs of unknown rules: {', '.join(unknown)}"


def can_be_found(rule: Rule, *, switches: bool = True) -> bool:
    """Return whether a rule can give a finding: a `change` of what is not written, or of spelling only, cannot.

    Args:
        switches: true and false are bare switches: one that is written is on already, so switching it on changes
            nothing that is written.
    """
    if not rule.sets or rule.reports_unwritten:
        return rule.reports or bool(rule.sets)
    absent = set(rule.when.split(" & "))
    return rule.reports_written and any(
        not (switches and value is True) and absent.isdisjoint((f"!{flag}?", f"{flag}=None"))
        for flag, value in rule.sets.items()
    )
