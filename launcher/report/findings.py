"""Formats findings: what is wrong, where it was set, why, and what would work."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from launcher.job import Job, fields, override_text, value_at
from launcher.job.finding import SEVERITIES, Finding, Fix
from launcher.mapping.family_row import FAMILY
from launcher.report.text_page import Page, page_of
from launcher.rules.other_backends import refuses_model
from launcher.syntax import escaped, shortened
from launcher.terminal import counted

_PASSED = "backend.args."
_PLAIN = Page()
# Up to this many unknown arguments of a recipe have a paragraph each.
_FEW = 3
# Lines of a screen: findings beyond them are counted.
_SCREEN = 40


def print_findings(findings: Sequence[Finding], job: Job | None = None, stream: TextIO | None = None) -> None:
    """Print findings to a stream (default: standard error), one short paragraph each.

    A family that the backend does not train is one paragraph, with the names of its fields that the backend lacks;
    so are many arguments of a recipe that the backend does not know, and findings that say the same of several fields.
    Findings are shown as far as one screen goes, the first one whole; those beyond it are counted.
    """
    out = stream or sys.stderr
    page = page_of(out)
    family, follow = _of_family(findings, job)
    shown = 0
    left: list[Finding] = []
    for finding in _alike_together([each for each in _arguments_together(findings, job) if each not in follow]):
        lines = format_finding(finding, job, page).split("\n")
        if finding is family and any(each.fields != (FAMILY,) for each in follow):
            names = ", ".join(path for each in follow for path in each.fields if path != FAMILY)
            lines += page.wrap(f"nor, of this model: {names} (--json has the reason of each)", "  ")
        # Not as wrapped: a narrow terminal says what a wide one does.
        height = format_finding(finding, job).count("\n") + 1
        is_hidden = any(each.severity == "error" for each in left)
        if shown and (shown + height > _SCREEN or is_hidden):
            left.append(finding)
            continue
        shown += height
        print("\n".join(lines), file=out)
    if left:
        print("\n".join(page.wrap(_left(left), "", "  ")), file=out)


def _left(findings: Sequence[Finding]) -> str:
    """Return the line on findings for which a screen has no place."""
    counts = [(name, [each.rule for each in findings if each.severity == name]) for name in SEVERITIES]
    parts = [f"{counted(len(rules), name)} ({', '.join(dict.fromkeys(rules))})" for name, rules in counts if rules]
    return f"… and {', '.join(parts)}: --json has all"


def _alike_together(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return findings that differ in nothing but their fields as one."""
    fields_of: dict[Finding, list[str]] = {}
    for each in findings:
        fields_of.setdefault(replace(each, fields=(), flags=()), []).extend(each.fields)
    done: set[Finding] = set()
    merged = []
    for each in findings:
        same = replace(each, fields=(), flags=())
        if same not in done:
            done.add(same)
            paths = tuple(dict.fromkeys(fields_of[same]))
            merged.append(each if paths == each.fields else replace(each, fields=paths))
    return merged


def _arguments_together(findings: Sequence[Finding], job: Job | None) -> Sequence[Finding]:
    """Return the findings with many unknown arguments of a recipe as one: those that leaving out settles."""
    same = [each for each in findings if job is not None and _is_plain_argument(each, job)]
    if len(same) <= _FEW:
        return findings
    message = f"none of these {len(same)} is an {same[0].message.partition(' is not an ')[2]}"
    fix = Fix(
        overrides=tuple(override for each in same for override in each.fixes[0].overrides),
        affects_training=any(each.fixes[0].affects_training for each in same),
    )
    paths = tuple(path for each in same for path in each.fields)
    merged = replace(same[0], message=message, fields=paths, fixes=(fix,))
    return [merged if each is same[0] else each for each in findings if each is same[0] or each not in same]


def _is_plain_argument(finding: Finding, job: Job) -> bool:
    return (
        finding.rule == "ARG-UNKNOWN"
        and [each.overrides for each in finding.fixes] == [tuple(f"{path}=null" for path in finding.fields)]
        and "; did you mean" not in finding.message
        and all(job.origin(path).kind == "recipe" for path in finding.fields)
    )


def headline(name: str, what: str, findings: Sequence[Finding], page: Page) -> list[str]:
    """Return the first lines of a screen: what was checked, and the verdict.

    Args:
        name: of the job or file, which is emphasized.
        what: the rest of the title.
    """
    plain, name = _verdict(findings, _PLAIN), shortened(name)
    lines = page.join([*f"{name}{what}:".split(" "), plain], "", "  ", sign=" ")
    lines[-1] = lines[-1].removesuffix(plain) + _verdict(findings, page)
    return [lines[0].replace(name, page.paint(name, "bold"), 1), *lines[1:]]


def _verdict(findings: Sequence[Finding], page: Page) -> str:
    """Return the answer in a few words: ok, or refused, with the numbers of errors and warnings."""
    errors, warnings = (sum(finding.severity == each for finding in findings) for each in ("error", "warning"))
    text = page.paint(f"refused, {counted(errors, 'error')}", "error") if errors else page.paint("ok", "ok")
    return f"{text}, {page.paint(counted(warnings, 'warning'), 'warning')}" if warnings else text


def _of_family(findings: Sequence[Finding], job: Job | None) -> tuple[Finding | None, list[Finding]]:
    """Return the error that refuses the job's family, and those about its fields that the user did not write."""
    refused = [each for each in findings if job is not None and refuses_model(each, job)]
    # A converter of weights may refuse the family as well, with the list of all that it knows.
    of_family = (each for each in refused if each.fields == (FAMILY,))
    family = min(of_family, key=lambda each: (-len(each.fixes), len(each.message)), default=None)
    return family, [each for each in refused if each is not family] if family is not None else []


def format_finding(finding: Finding, job: Job | None = None, page: Page = _PLAIN) -> str:
    """Return one finding as text: severity, rule, where the values were set, the reason with its source, the fixes."""
    places = [shortened(escaped(_place(path, job))) for path in finding.fields]
    head = f"{finding.severity} {finding.rule}"
    lines = page.join(places, f"{head}  ", "  ", sign=", ") if places else [head]
    # Coloured after wrapping: control sequences take no columns.
    lines[0] = lines[0].replace(finding.severity, page.paint(finding.severity, finding.severity), 1)
    source = f"  [{finding.source}]" if finding.source else ""
    for line in f"{finding.message}{source}".split("\n"):
        lines += page.wrap(shortened(escaped(line)), "  ")
    if finding.fixes:
        lines += page.join((escaped(fix.shown) for fix in finding.fixes), "  works: ", "    ")
    if finding.asks:
        lines += page.join(map(escaped, finding.asks), "  specify: ", "    ", sign=" ")
    if finding.not_offered:
        lines += page.wrap(escaped(finding.not_offered), "  ")
    return "\n".join(lines)


def _place(path: str, job: Job | None) -> str:
    if job is None:
        return path
    origin = job.origin(path)
    text = path
    if path in fields():
        value = value_at(job, path)
        if value not in (None, ()) and not isinstance(value, Mapping):
            text = f"{path}={override_text(value)}"
    elif path.removeprefix(_PASSED) in job.backend.passthrough:
        text = f"{path}={override_text(job.backend.passthrough[path.removeprefix(_PASSED)])}"
    if origin.kind == "override":
        return f"{text} (command line)"
    return f"{text} ({origin.where})" if origin.where else text
