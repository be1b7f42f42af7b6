"""Files to download: the script that starts the job, the job itself, its findings; as the command line writes them."""

import json
from collections.abc import Sequence

from launcher.compose import compose
from launcher.importing.job_file import whole_job_yaml
from launcher.pipeline import judge


class NoFile(Exception):
    """The job has no such file, with the reason."""


def script(words: Sequence[str]) -> str:
    """Return the script of `launch dry-run --format shell`; a refused job has none, so that none is run."""
    from launcher.plan.shell import script as text
    from launcher.runtime import planned

    outcome = judge(compose(words, here=False), fixes=False)
    if not outcome.ok:
        raise NoFile("a refused job has no script: settle its errors first")
    return text(planned(outcome))


def job(words: Sequence[str]) -> str:
    """Return the job file of `launch dry-run --format yaml`, for `+job=FILE`."""
    return whole_job_yaml(compose(words, here=False))


def report(words: Sequence[str]) -> str:
    """Return the page of `launch report`; a refused job is drawn too.

    Raises:
        NoFile: the extra `report` is not installed.
    """
    from launcher.report.content import entry_of
    from launcher.report.page import EXTRA, Missing, page, require

    try:
        require()
    except Missing as error:
        raise NoFile(f"{error}: {EXTRA}") from None
    made = compose(words, here=False)
    return page([entry_of(made, made.name or "job", words)])


def findings(words: Sequence[str]) -> str:
    """Return the findings of `launch check --json`."""
    outcome = judge(compose(words, here=False))
    tree = {"ok": outcome.ok, "findings": [finding.as_tree() for finding in outcome.findings]}
    return json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
