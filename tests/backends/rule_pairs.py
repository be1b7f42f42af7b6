"""Which rules can give a finding, so that they have a command line that breaks them."""

from launcher.rules.registry import Rule


def can_be_found(rule: Rule, *, switches: bool = True) -> bool:
    """Return whether a rule can give a finding: a `change` of what is not written, or of spelling only, cannot.

    Args:
        switches: true and false are bare switches: one that is written is on already, so switching it on changes
            nothing that is written.
    """
    if not rule.sets or rule.tells_unwritten:
        return True
    absent = set(rule.when.split(" & "))
    return rule.tells_written and any(
        not (switches and value is True) and absent.isdisjoint((f"!{flag}?", f"{flag}=None"))
        for flag, value in rule.sets.items()
    )
