"""Jobs that a verb answers although `launch check` refuses them: one line for people, rule ids for programs."""

from collections.abc import Iterable, Mapping

from launcher.cli.notes import print_remark
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.pipeline import Refused, judge

# Rules that are named in the line; the others are counted.
_FEW = 4


def refused_by(job: Job) -> list[str]:
    """Return the ids of the rules with which `launch check` refuses a job; none where it has no backend yet."""
    try:
        return error_rules(judge(job, fixes=False).findings)
    except Refused:
        return []


def error_rules(findings: Iterable[Finding]) -> list[str]:
    """Return the ids of the errors, each once."""
    return list(dict.fromkeys(each.rule for each in findings if each.severity == "error"))


def note_refused(verb: str, jobs: Mapping[str, list[str]]) -> None:
    """Print one line on those that `launch check` refuses.

    Args:
        jobs: by what they are called, the rules that refuse them.
    """
    refused = [f"{name} ({_few(rules)})" for name, rules in jobs.items() if rules]
    if refused:
        print_remark(verb, f"launch check refuses {', '.join(refused)}")


def _few(rules: list[str]) -> str:
    more = f" and {len(rules) - _FEW} more" if len(rules) > _FEW else ""
    return f"{', '.join(rules[:_FEW])}{more}"
