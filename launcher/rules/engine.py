"""Runs every rule on a job and returns all findings at once, in a stable order, with fixes that pass all rules."""

from collections.abc import Iterable, Iterator
from importlib import import_module

from launcher.job.finding import SEVERITIES, Finding, Fix
from launcher.mapping.native import NativeArg
from launcher.nearest import nearest
from launcher.rules.bounds import refused_sizes
from launcher.rules.effective import effective_values
from launcher.rules.registry import (
    LIFTED,
    LOWERED,
    RULES,
    Rule,
    RuleContext,
    Violation,
    applicable_rules,
    is_lifted,
    lowered,
)
from launcher.rules.table import flags_of

_COMMON = (
    "launcher.rules.bounds",
    "launcher.rules.required",
    "launcher.rules.layout",
    "launcher.rules.training",
    "launcher.rules.resources",
    "launcher.rules.cluster",
    "launcher.rules.syntax",
    "launcher.rules.injection",
    "launcher.rules.sanity_checks",
    "launcher.rules.sanity_checks_run",
)


def load(modules: Iterable[str] = ()) -> None:
    """Import the modules that declare rules: the common ones and those of a backend."""
    for module in (*_COMMON, *modules):
        import_module(module)


def run(facts: RuleContext, *, errors_only: bool = False) -> list[Finding]:
    """Return the findings of all loaded rules that apply, errors first, then by rule id.

    Args:
        errors_only: skip rules that never report errors.
    """
    disabled = set(facts.job.rules.disable)
    findings = [
        finding
        for rule in applicable_rules(facts)
        if not rule.sets and (rule.severity == "error" or not errors_only)
        for finding in findings_of(rule, facts)
    ]
    if not errors_only:
        findings.extend(_changes(facts))
    findings.extend(
        Finding(
            rule="RULES-DISABLED",
            severity="warning",
            message=_switched_off(rule_id),
            fields=("rules.disable",),
            source="launch",
        )
        for rule_id in sorted(disabled)
    )
    return ordered(findings)


def _switched_off(rule_id: str) -> str:
    if rule_id in RULES:
        if RULES[rule_id].mandatory:
            return f"rules.disable: {rule_id} always applies: without it a value could run as a command"
        return f"{rule_id} is switched off by rules.disable"
    near = nearest(rule_id, RULES)
    return f"rules.disable: no rule of this backend is called {rule_id}" + (
        f"; near: {', '.join(near)}" if near else ""
    )


def _changes(facts: RuleContext) -> Iterator[Finding]:
    """Yield the findings of rules that set values, once per rule."""
    told = {change.rule: change.message for change in effective_values(facts).changes if change.message}
    for id_, message in told.items():
        rule = RULES[id_]
        if id_ not in facts.job.rules.disable and not (id_ in LIFTED and is_lifted(rule, facts)):
            yield _finding(rule, Violation(message=message, fields=rule.fields, flags=flags_of(rule)), facts)


def findings_of(rule: Rule, facts: RuleContext) -> Iterator[Finding]:
    """Yield the findings of one rule, unless the job disables it or the backend lifts it."""
    is_disabled = rule.id in facts.job.rules.disable and not rule.mandatory
    if is_disabled or (rule.id in LIFTED and is_lifted(rule, facts)):
        return
    try:
        faults = list(rule.check(facts))
    except (ArithmeticError, TypeError, ValueError, LookupError):
        sizes = refused_sizes(facts)
        if not sizes:
            raise
        # The rule divides by a size that ARG-BOUND refuses; where the job disables ARG-BOUND, this rule refuses it.
        disabled = "ARG-BOUND" in facts.job.rules.disable
        faults = [
            Violation(message=f"cannot be checked: {flag}: {why}", fields=(path,), flags=(flag,))
            for path, (flag, why) in (sizes if disabled else {}).items()
        ]
    for fault in faults:
        yield _finding(rule, fault, facts)


def without_echoes(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without those of the translation that duplicate the finding of a rule."""
    found = list(findings)
    errors = (RULES.get(finding.rule) for finding in found if finding.severity == "error")
    covered = {path for rule in errors if rule is not None for path in rule.covers}
    return [
        finding for finding in found if finding.rule != "MAP-UNSUPPORTED" or not covered.intersection(finding.fields)
    ]


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of their severity, then rule id, then fields."""
    return sorted(findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.rule, finding.fields))


def _finding(rule: Rule, fault: Violation, facts: RuleContext) -> Finding:
    severity, message = rule.severity, fault.message
    reason = lowered(rule, facts) if rule.id in LOWERED else ""
    if reason:
        severity, message = "warning", f"{message} ({facts.version} runs: {reason})"
    elif rule.is_stricter(facts.version):
        if facts.job.rules.strict == "upstream" and severity == "error":
            severity = "warning"
        if facts.version is not None:
            message += f" (stricter than {facts.version}{': ' if rule.reason else ''}{rule.reason})"
    return Finding(
        rule=rule.id,
        severity=severity,
        message=message,
        fields=_fields(fault, facts),
        flags=fault.flags,
        fixes=tuple(Fix(overrides=(works,)) for works in fault.works),
        source=rule.source,
    )


def _fields(fault: Violation, facts: RuleContext) -> tuple[str, ...]:
    """Return the canonical fields of a violation, and the paths of its pass-through arguments."""
    named = fault.fields or facts.fields_of(fault.flags)
    passed = [f"backend.args.{name}" for name in fault.flags if _is_passed(facts.written.get(name))]
    said = [f"backend.args.{facts.passed[path]}" if path in facts.passed else path for path in named]
    return tuple(dict.fromkeys((*said, *passed)))


def _is_passed(argument: NativeArg | None) -> bool:
    return argument is not None and argument.origin == "pass-through"
