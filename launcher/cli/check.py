"""`launch check`: every rule, before a single process starts."""

import sys

from launcher.cli.options import composed, guarded, parse, parser, print_json
from launcher.pipeline import judge
from launcher.report.findings import print_findings


def main(words: list[str]) -> int:
    """Check a job; exit 0 without errors, 1 with errors, 2 for a wrong command line."""
    made = parser(
        "check",
        "Apply every rule to a job and show all findings at once.",
        "launch check +recipe=qwen3_moe backend=mindspeed",
    )
    options = parse(made, words)

    def body() -> int:
        job = composed(options)
        outcome = judge(job)
        if options.json:
            print_json({"ok": outcome.ok, "findings": [finding.as_tree() for finding in outcome.findings]})
        else:
            print_findings(outcome.findings, outcome.job, sys.stdout)
            errors = sum(finding.severity == "error" for finding in outcome.findings)
            verdict = f"{errors} error{'s' if errors != 1 else ''}" if errors else "ok"
            print(f"{job.name or 'job'} on {outcome.backend.title} {outcome.version}: {verdict}")
        return 0 if outcome.ok else 1

    return guarded(body, as_json=options.json)
