"""Rules on selective recomputation, which `--recompute-activations` turns on, too (arguments.py:430 @core_v0.16.1)."""

from dataclasses import replace

from launcher.rules.registry import Rule

_SELECTIVE, _SWITCH = ("recompute-granularity=selective", "recompute-granularity?"), "recompute-activations"


def by_either(rule: Rule) -> tuple[Rule, Rule]:
    """Return a rule whose condition names selective recomputation, and the same rule for the switch."""
    written = next(each for each in _SELECTIVE if each in rule.when)
    return rule, replace(rule, id=f"{rule.id}-ACTIVATIONS", when=rule.when.replace(written, _SWITCH))
