"""Which rules can give a finding, so that they have a command line that breaks them."""

from launcher.rules.registry import Rule


def can_be_found(rule: Rule) -> bool:
    """Return whether a rule can give a finding: a `change` that only fills in what is not written cannot.

    A switch that is written is on already, so switching it on changes nothing that is written.
    """
    absent = set(rule.when.split(" & "))
    return (
        not rule.sets
        or rule.tells_unwritten
        or any(value is not True and f"!{flag}?" not in absent for flag, value in rule.sets.items())
    )
