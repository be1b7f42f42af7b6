"""What a worker process computes for a session, as plain data: the same functions as the verbs of the command line."""

from collections.abc import Sequence
from typing import Any

from launcher.compose import ComposeError, compose
from launcher.estimate import CannotEstimate, estimate
from launcher.job import Job, fields, override_text, value_at
from launcher.job.finding import Finding, Fix
from launcher.pipeline import Outcome, Refused, chosen_backend, judge, repair_of
from launcher.report.origins import BACKEND_DEFAULT, SCHEMA_DEFAULT, left_to_backend, origin_words
from launcher.rules.passthrough import with_passthrough

Tree = dict[str, Any]


def plan(words: Sequence[str]) -> Tree:
    """Return the verdict on a job: findings without fixes, arguments, estimate, and values with their origins.

    The tree has `mistakes` alone where the words are not a job.
    """
    try:
        job = compose(words, here=False)
        outcome = judge(job, fixes=False) if job.backend.name is not None else None
    except ComposeError as error:
        return {"mistakes": _mistakes(error)}
    except Refused as error:
        return {"mistakes": [error.finding.as_tree()]}
    shown = job if outcome is None else outcome.job
    findings = list(_unchosen(job)) if outcome is None else list(outcome.findings)
    return {
        "mistakes": [],
        "name": job.name,
        "backend": None if outcome is None else _backend(outcome),
        "findings": [finding.as_tree() for finding in findings],
        "ok": all(finding.severity != "error" for finding in findings),
        "can_fix": any(finding.severity == "error" for finding in findings),
        "args": [] if outcome is None else _args(outcome),
        "values": _values(shown, outcome),
        "layout": _layout(job),
        **estimated(job),
    }


def findings(words: Sequence[str]) -> list[Tree]:
    """Return all findings of a job with their fixes, which take longer than the findings themselves."""
    return [finding.as_tree() for finding in judge(compose(words, here=False)).findings]


def repaired(words: Sequence[str]) -> Tree:
    """Return the overrides with which a job passes all rules, as `launch check --fix`."""
    return repair_of(compose(words, here=False)).as_answer()


def estimated(job: Job) -> Tree:
    """Return the estimate of a job as `launch estimate --json`, or why there is none."""
    try:
        answer = estimate(job)
    except CannotEstimate as error:
        return {"estimate": None, "no_estimate": [finding.message for finding in error.findings]}
    return {"estimate": answer.as_tree(), "no_estimate": []}


def _unchosen(job: Job) -> Sequence[Finding]:
    try:
        chosen_backend(job)
    except Refused as error:
        return [error.finding]
    return []


def _backend(outcome: Outcome) -> Tree:
    return {"name": outcome.backend.name, "title": outcome.backend.title, "version": outcome.version}


def _args(outcome: Outcome) -> list[Tree]:
    return [
        {"flag": arg.flag, "value": override_text(arg.value), "field": arg.field or "", "kind": arg.origin}
        | {"origin": origin_words(arg.origin, arg.where, arg.field)}
        for arg in outcome.native
    ]


def _values(job: Job, outcome: Outcome | None) -> dict[str, Sequence[str]]:
    """Return value and origin by field; no value where the backend's default applies."""
    found: dict[str, Sequence[str]] = {}
    for path, info in fields().items():
        value, origin = value_at(job, path), job.origin(path)
        if origin.kind not in ("default", "derived") or (origin.kind == "derived" and value is not None):
            found[path] = (override_text(value), origin_words(origin.kind, origin.where))
        elif value not in (None, (), {}):
            # The version is the backend's default one.
            found[path] = (override_text(value), SCHEMA_DEFAULT if value == info.default else BACKEND_DEFAULT)
    if outcome is not None:
        unset = left_to_backend(job, outcome.backend, outcome.version)
        found.update({path: ("", BACKEND_DEFAULT) for path in unset if path not in found})
    return found


def _layout(job: Job) -> Tree:
    """Return what lies on which devices; there is no `dp` where the sizes do not divide the devices."""
    parallel, cluster = with_passthrough(job).parallel, job.cluster
    sizes = {name: getattr(parallel, name) or 1 for name in ("tp", "pp", "vpp", "cp", "ep")}
    return {
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "hardware": job.hardware.name,
        "dp": parallel.dp,
        **sizes,
    }


def _mistakes(error: ComposeError) -> list[Tree]:
    return [
        Finding(
            rule=each.rule,
            severity="error",
            message=each.what,
            fields=(each.field,) if each.field else (),
            fixes=tuple(Fix(overrides=(fix,)) for fix in each.fixes if _is_override(fix)),
            source=each.where,
        ).as_tree()
        for each in error.mistakes
    ]


def _is_override(text: str) -> bool:
    """Return whether a fix can be applied as it is: one override without a placeholder."""
    return "=" in text and " " not in text and "NAME" not in text
