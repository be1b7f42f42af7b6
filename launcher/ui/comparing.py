"""A job on several backends side by side: verdict and arguments of each, and what differs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launcher.compose import ComposeError, compose
from launcher.importing.side_by_side import Side, legend, side_by_side, side_of
from launcher.importing.side_by_side import text as shown
from launcher.job import Job, override_text
from launcher.mapping.backend import Backend, get_backend
from launcher.pipeline import Refused, judge
from launcher.port.port import sent
from launcher.report.origins import origin_words
from launcher.rules.computations import computed_differently

Tree = dict[str, Any]


def compared(words: Sequence[str], names: Sequence[str]) -> Tree:
    """Return a column for each backend, and the fields and arguments in which they differ."""
    try:
        job = compose(words, here=False)
        targets = [_target(job, name) for name in names]
        columns = [_column(job, backend, version) for backend, version in targets]
        sides = [side_of(job, backend.title, job_id="job", target=(backend, version)) for backend, version in targets]
    except (ComposeError, Refused) as error:
        return {"refused": str(error)}
    return {"refused": "", "columns": columns, **_differences(sides)}


def _target(job: Job, name: str) -> tuple[Backend, str]:
    backend = get_backend(name)
    return backend, backend.version(job.backend.version if job.backend.name == name else None)


def _column(job: Job, backend: Backend, version: str) -> Tree:
    if job.backend.name in (None, backend.name):
        moved = dataclasses.replace(job, backend=dataclasses.replace(job.backend, name=backend.name, version=version))
    else:
        moved = sent(job, backend, version).job
    outcome = judge(moved, fixes=False)
    errors = [finding for finding in outcome.findings if finding.severity == "error"]
    return {
        "name": backend.name,
        "title": backend.title,
        "version": outcome.version,
        "errors": [finding.message for finding in errors],
        "warnings": sum(finding.severity == "warning" for finding in outcome.findings),
        "args": [
            [arg.flag, override_text(arg.value), origin_words(arg.origin, arg.where, arg.field), arg.field or ""]
            for arg in outcome.native
        ],
    }


def _differences(sides: Sequence[Side]) -> Tree:
    different = side_by_side(sides)
    rows = [
        {
            "field": row.marked,
            "values": [f"{shown(effect.value)} ({effect.how})" for effect in row.effects],
            "does": row.does,
        }
        for row in different
    ]
    computed = computed_differently([side.meaning.effective for side in sides])
    return {"rows": rows, "legend": legend(different), "computed": [finding.message for finding in computed]}
