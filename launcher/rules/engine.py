"""Runs every rule on a job and returns all findings at once, in a stable order, with fixes that pass all rules."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from launcher.job.finding import SEVERITIES, Finding, Fix
from launcher.mapping.native import NativeArg
from launcher.nearest import nearest
from launcher.rules.bounds import refused_sizes
from launcher.rules.data_files import ID as DATA_FILE
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
    "launcher.rules.number_formats",
    "launcher.rules.training",
    "launcher.rules.resources",
    "launcher.rules.cluster",
    "launcher.rules.syntax",
    "launcher.rules.injection",
    "launcher.rules.sanity_checks",
    "launcher.rules.sanity_checks_run",
    "launcher.rules.trackers",
)


def load(modules: Iterable[str] = ()) -> None:
    """Import the modules that declare rules: the common ones and those of a backend."""
    for module in (*_COMMON, *modules):
        import_module(module)


def run(context: RuleContext, *, errors_only: bool = False, errors: Sequence[Finding] | None = None) -> list[Finding]:
    """Return the findings of all loaded rules that apply, errors first, then by rule id.

    Args:
        errors_only: skip rules that never report errors.
        errors: what `errors_only` returned for this context; those rules are not run again.
    """
    findings = [*(errors or ())]
    for rule in applicable_rules(context):
        if rule.reports and (errors is None if rule.severity == "error" else not errors_only):
            findings.extend(findings_of(rule, context))
    if not errors_only:
        findings += _changes(context)
        findings += _disabled(context)
    return ordered(findings)


def _disabled(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding for each rule that the job disables."""
    for rule_id in sorted(set(context.job.rules.disable)):
        yield Finding(
            rule="RULES-DISABLED",
            severity="warning",
            message=_switched_off(rule_id),
            fields=("rules.disable",),
            source="launch",
        )


def _switched_off(rule_id: str) -> str:
    if rule_id in RULES:
        if RULES[rule_id].mandatory:
            return f"rules.disable: {rule_id} always applies: without it a value could run as a command"
        return f"{rule_id} is disabled by rules.disable"
    if rule_id == DATA_FILE:
        return f"{rule_id} is disabled by rules.disable"
    near = nearest(rule_id, RULES)
    return f"rules.disable: this backend has no rule {rule_id}" + (
        f"; did you mean {' or '.join(near)}?" if near else ""
    )


def _changes(context: RuleContext) -> Iterator[Finding]:
    """Yield the findings of rules that set values, once per rule."""
    messages = {change.rule: change.message for change in effective_values(context).changes if change.message}
    for id_, message in messages.items():
        rule = RULES[id_]
        if id_ not in context.job.rules.disable and not (id_ in LIFTED and is_lifted(rule, context)):
            yield _finding(rule, Violation(message=message, fields=rule.fields, flags=flags_of(rule)), context)


def findings_of(rule: Rule, context: RuleContext) -> Iterator[Finding]:
    """Yield the findings of one rule, unless the job disables it or the backend lifts it."""
    is_disabled = rule.id in context.job.rules.disable and not rule.mandatory
    if is_disabled or (rule.id in LIFTED and is_lifted(rule, context)):
        return
    try:
        violations = list(rule.check(context))
    except (ArithmeticError, TypeError, ValueError, LookupError):
        sizes = refused_sizes(context)
        if not sizes:
            raise
        # The rule divides by a size that ARG-BOUND refuses; where the job disables ARG-BOUND, this rule refuses it.
        disabled = "ARG-BOUND" in context.job.rules.disable
        violations = [
            Violation(message=f"cannot be checked: {flag}: {why}", fields=(path,), flags=(flag,))
            for path, (flag, why) in (sizes if disabled else {}).items()
        ]
    for violation in violations:
        yield _finding(rule, violation, context)


def without_duplicates(findings: Iterable[Finding]) -> list[Finding]:
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


def _finding(rule: Rule, violation: Violation, context: RuleContext) -> Finding:
    severity, message = rule.severity, violation.message
    reason = lowered(rule, context) if rule.id in LOWERED else ""
    if reason:
        severity, message = "warning", f"{message} ({context.version} accepts it: {reason})"
    elif rule.is_stricter(context.version):
        if context.job.rules.strict == "upstream" and severity == "error":
            severity = "warning"
        if context.version is not None:
            message += f" (stricter than {context.version}{': ' if rule.reason else ''}{rule.reason})"
    return Finding(
        rule=rule.id,
        severity=severity,
        message=message,
        fields=_fields(violation, context),
        flags=violation.flags,
        fixes=tuple(Fix(overrides=(works,) if isinstance(works, str) else works) for works in violation.works),
        asks=violation.asks,
        source=rule.source,
    )


def _fields(violation: Violation, context: RuleContext) -> tuple[str, ...]:
    """Return the canonical fields of a violation, and the paths of its pass-through arguments."""
    named = violation.fields or context.fields_of(violation.flags)
    written = [name for name in violation.flags if _is_passthrough(context.written.get(name))]
    passthrough = [f"backend.args.{context.key(name)}" for name in written]
    paths = [f"backend.args.{context.passthrough[path]}" if path in context.passthrough else path for path in named]
    return tuple(dict.fromkeys((*paths, *passthrough)))


def _is_passthrough(argument: NativeArg | None) -> bool:
    return argument is not None and argument.origin == "pass-through"
