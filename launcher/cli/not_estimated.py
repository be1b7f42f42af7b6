"""A job that cannot be estimated: the findings, each error with what works, tried by the estimate."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from launcher.cli.refusal import NotDone
from launcher.estimate import CannotEstimate
from launcher.estimate.as_run import as_run
from launcher.estimate.check import problems
from launcher.job import Job, fields, value_at, with_values
from launcher.job.finding import Finding, Fix
from launcher.pipeline import Refused, variants_of
from launcher.rules.changes import changes_of, fix_of
from launcher.rules.fixes import with_fixes
from launcher.rules.variants import Variants

_OF_THE_USER = ("batch.", "cluster.", "model.", "tokenizer.")


def not_estimated(error: CannotEstimate, job: Job) -> NotDone:
    """Return the refusal of a command that needs an estimate."""
    return NotDone(findings=with_offers(error.findings, job), job=job)


def with_offers(findings: Sequence[Finding], job: Job) -> list[Finding]:
    """Return the findings with what works: as `launch check` offers it, as the rule says, or a field's default.

    Only what leaves the estimate without this error is offered.
    """
    variants = _variants(job)
    judged = {(each.rule, each.fields): each for each in with_fixes(variants.errors({}), lambda: variants)}
    return [_with_offer(each, judged.get((each.rule, each.fields), each), job) for each in findings]


def _with_offer(finding: Finding, judged: Finding, job: Job) -> Finding:
    for fixes in (judged.fixes, finding.fixes, tuple(_defaults(finding, job))):
        working = tuple(fix for fix in fixes if _settles(fix, finding, job))
        if working:
            return replace(finding, fixes=working, asks=judged.asks)
    return replace(finding, fixes=(), asks=judged.asks or finding.asks)


def _defaults(finding: Finding, job: Job) -> Iterator[Fix]:
    """Yield the default of each field of an error of the estimate; what is trained, and on what, is the user's."""
    if all(each.rule != finding.rule for each in problems(as_run(job)[0])):
        return
    for path in finding.fields:
        if path in fields() and not path.startswith(_OF_THE_USER) and value_at(job, path) != fields()[path].default:
            yield fix_of(((path, fields()[path].default),), job.backend.name)


def _settles(fix: Fix, finding: Finding, job: Job) -> bool:
    """Return whether the job with a fix is estimated without this error; what is no field is taken as it is."""
    changes = changes_of(fix)
    if changes is None or not fields().keys() >= changes.keys():
        return True
    return all(each.rule != finding.rule for each in problems(as_run(with_values(job, changes))[0]))


def _variants(job: Job) -> Variants:
    try:
        return variants_of(job)
    except Refused:
        return Variants(job)  # without a backend, the rules of all of them apply
