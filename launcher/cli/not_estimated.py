"""A job that cannot be estimated: the findings, each error with what works, as `launch check` offers it."""

from dataclasses import replace

from launcher.cli.refusal import NotDone
from launcher.estimate import CannotEstimate
from launcher.job import Job
from launcher.pipeline import Refused, variants_of
from launcher.rules.fixes import with_fixes
from launcher.rules.variants import Variants


def not_estimated(error: CannotEstimate, job: Job) -> NotDone:
    """Return the refusal of a command that needs an estimate."""
    variants = _variants(job)
    judged = {(each.rule, each.fields): each for each in with_fixes(variants.errors({}), lambda: variants)}
    same = ((each, judged.get((each.rule, each.fields), each)) for each in error.findings)
    return NotDone(findings=[replace(each, fixes=other.fixes, asks=other.asks) for each, other in same], job=job)


def _variants(job: Job) -> Variants:
    try:
        return variants_of(job)
    except Refused:
        return Variants(job)  # without a backend, the rules of all of them apply
