"""What a worker process computes for a session, as plain data: the same functions as the verbs of the command line."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launcher.compose import ComposeError, compose
from launcher.estimate import CannotEstimate, estimate
from launcher.job import Job, Origin, fields, override_text, value_at
from launcher.job.finding import Finding
from launcher.pipeline import Outcome, Refused, chosen_backend, judge

Tree = dict[str, Any]


def plan(words: Sequence[str]) -> Tree:
    """Return the verdict on a job: findings without fixes, arguments, estimate, and the values that are not defaults.

    The tree has `mistakes` alone where the words are not a job.
    """
    try:
        job = compose(words, here=False)
        outcome = judge(job, fixes=False) if job.backend.name is not None else None
    except ComposeError as error:
        return {"mistakes": _mistakes(error)}
    except Refused as error:
        return {"mistakes": [_mistake_of(error.finding)]}
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
        "values": _values(shown),
        "layout": _layout(job),
        **estimated(job),
    }


def findings(words: Sequence[str]) -> list[Tree]:
    """Return all findings of a job with their fixes, which take longer than the findings themselves."""
    return [finding.as_tree() for finding in judge(compose(words, here=False)).findings]


def repaired(words: Sequence[str]) -> Tree:
    """Return the overrides with which a job passes all rules, as `launch check --fix`."""
    from launcher.pipeline import variants_of
    from launcher.rules.repair import repair

    found = repair(compose(words, here=False), lambda changed: judge(changed, fixes=False).findings, variants_of, ())
    return {
        "overrides": list(found.overrides),
        "affects_training": list(found.affects_training),
        "ask": list(found.asks),
        "left": [finding.as_tree() for finding in found.left],
    }


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
        {"flag": arg.flag, "value": override_text(arg.value), "field": arg.field or "", "origin": arg.origin}
        | {"where": arg.where}
        for arg in outcome.native
    ]


def _values(job: Job) -> dict[str, Sequence[str]]:
    """Return, by field, value and origin of what is not a default."""
    found: dict[str, Sequence[str]] = {}
    for path, info in fields().items():
        value, origin = value_at(job, path), job.origin(path)
        if value != info.default or origin.kind != "default":
            found[path] = (override_text(value), _place(origin))
    return found


def _place(origin: Origin) -> str:
    return origin.kind if not origin.where or origin.kind == "override" else f"{origin.kind}, {origin.where}"


def _layout(job: Job) -> Tree:
    parallel, cluster = job.parallel, job.cluster
    sizes = {name: getattr(parallel, name) or 1 for name in ("tp", "pp", "vpp", "cp", "ep", "dp")}
    return {
        "nodes": cluster.nodes,
        "devices_per_node": cluster.devices_per_node,
        "hardware": job.hardware.name,
        **sizes,
    }


def _mistakes(error: ComposeError) -> list[Tree]:
    return [
        {
            "rule": each.rule,
            "severity": "error",
            "message": each.what,
            "fields": [each.field] if each.field else [],
            "flags": [],
            "fix": [fix for fix in each.fixes if "=" in fix and " " not in fix and "NAME" not in fix],
            "affects_training": [],
            "ask": [],
            "source": each.where,
        }
        for each in error.mistakes
    ]


def _mistake_of(finding: Finding) -> Tree:
    return dataclasses.replace(finding).as_tree()
