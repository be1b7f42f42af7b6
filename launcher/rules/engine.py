"""Runs every rule on a job and gives all findings at once, in a stable order, with fixes that pass all rules."""

from collections.abc import Iterable
from importlib import import_module

from launcher.rules.finding import SEVERITIES, Finding
from launcher.rules.registry import Facts, Rule, loaded_rules

_COMMON = ("launcher.rules.required", "launcher.rules.layout", "launcher.rules.training", "launcher.rules.surroundings")


def load(modules: Iterable[str] = ()) -> None:
    """Import the modules that declare rules: those that hold everywhere, and a backend's own."""
    for module in (*_COMMON, *modules):
        import_module(module)


def run(facts: Facts) -> list[Finding]:
    """Return the findings of all loaded rules that apply, errors first, then by rule id."""
    disabled = set(facts.job.rules.disable)
    upstream = facts.job.rules.strict == "upstream"
    findings = [
        _finding(rule, fault.message, fault.fields, fault.flags, upstream)
        for rule in loaded_rules()
        if rule.applies(facts) and rule.id not in disabled
        for fault in rule.check(facts)
    ]
    findings.extend(
        Finding(
            rule="RULES-DISABLED",
            severity="warning",
            message=f"{rule_id} is switched off by rules.disable",
            fields=("rules.disable",),
            source="launch",
        )
        for rule_id in sorted(disabled)
    )
    return ordered(findings)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of their severity, then rule id, then fields."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.rule, finding.fields))


def _finding(rule: Rule, message: str, fields: tuple[str, ...], flags: tuple[str, ...], upstream: bool) -> Finding:
    lowered = rule.stricter and upstream and rule.severity == "error"
    return Finding(
        rule=rule.id,
        severity="warning" if lowered else rule.severity,
        message=message,
        fields=fields,
        flags=flags,
        source=rule.source,
    )
