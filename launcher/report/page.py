"""One page with everything: plotly.js, styles, scripts and data are in it, and nothing is loaded from the network."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from launcher import __version__
from launcher.estimate import Estimate
from launcher.estimate.memory import GIB
from launcher.job import Job, override_text
from launcher.outputs.kinds import MARK
from launcher.plan.shell import one_line
from launcher.records import dataclass
from launcher.report.content import Command, Entry
from launcher.report.figures import Chart, pareto_chart, peak_chart, step_chart
from launcher.search.found import Found
from launcher.search.output import sizes_of

# The fastest layouts of a search, with a command each.
_BEST = 5

EXTRA = "pip install 'launch-llm[report]'"


class Missing(Exception):
    """A library of the extra `report` is not installed; the message says how to install it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search of the first job found."""

    job: Job
    found: Found


def require() -> None:
    """Refuse to begin without the libraries that draw.

    Raises:
        Missing: one of them is not installed.
    """
    from importlib.util import find_spec

    for name in ("jinja2", "plotly"):
        if find_spec(name) is None:
            raise Missing(f"needs {name}")


def page(entries: Sequence[Entry], searched: Searched | None = None, title: str = "") -> str:
    """Return a report as text.

    Args:
        entries: jobs, in the order of the page.
        searched: what a search of the first job found; None: nothing was searched.

    Raises:
        Missing: a library of the extra `report` is not installed.
    """
    answers = {entry.label: entry.answer for entry in entries if entry.answer is not None}
    compared = _compared(answers) if len(entries) > 1 else []
    pareto = pareto_chart(searched.job, searched.found) if searched is not None else None
    return _filled(
        "report.html.j2",
        [*compared, *([pareto] if pareto else []), *(chart for entry in entries for chart in entry.charts)],
        title=title or _title(entries),
        entries=entries,
        compared=compared,
        verdicts=[(entry.label, entry.backend or "–", entry.verdict) for entry in entries],
        differences=[(path, *row) for path, row in _differences(entries)],
        candidates=[] if searched is None else _candidates(entries[0], searched),
        searched=searched,
        pareto=pareto,
    )


def _title(entries: Sequence[Entry]) -> str:
    names = list(dict.fromkeys(entry.job.name or "job" for entry in entries))
    jobs = f", {len(entries)} jobs" if len(entries) > 1 else ""
    return f"{', '.join(names[:3])}{jobs}: training report"


def charts_page(charts: Sequence[Chart], title: str) -> str:
    """Return a page with charts alone; raises as `page`."""
    return _filled("charts.html.j2", charts, title=title)


def _filled(template: str, charts: Sequence[Chart], **values: Any) -> str:
    require()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("launcher.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    text: str = environment.get_template(template).render(
        mark=MARK,
        version=__version__,
        charts=charts,
        style=_file("report.css"),
        script=_file("report.js"),
        plotly=_plotly(),
        data=_json({chart.name: chart.figure for chart in charts}),
        **values,
    )
    return text


def _candidates(entry: Entry, searched: Searched) -> list[Command]:
    """Return the commands of the fastest layouts."""
    found = []
    for candidate in searched.found.best[:_BEST]:
        sizes = ", ".join(f"{name} {size}" for name, size in sizes_of(searched.job, candidate).items())
        # A field is said once: what the candidate has, in place of what the job had.
        kept = [word for word in entry.overrides if word.lstrip("+").partition("=")[0] not in candidate.values]
        words = [*kept, *(f"{path}={override_text(value)}" for path, value in candidate.values.items())]
        does = f"{candidate.step_s:.4g} s, {candidate.peak / GIB:.1f} GiB: {sizes}"
        found.append(Command(does=does, text=f"launch run {one_line(words)}"))
    return found


def _compared(answers: dict[str, Estimate]) -> list[Chart]:
    if not answers:
        return []
    steps = step_chart(answers)
    return [*([steps] if steps is not None else []), peak_chart(answers)]


def _differences(entries: Sequence[Entry]) -> list[tuple[str, list[str]]]:
    """Return the fields that were set to different values: path, and the value in each job."""
    if len(entries) < 2:
        return []
    values = [{path: value for path, value, _ in entry.values} for entry in entries]
    paths = dict.fromkeys(path for each in values for path in each)
    rows = [(path, [each.get(path, "–") for each in values]) for path in paths]
    rows.insert(0, ("backend", [entry.backend or "–" for entry in entries]))
    return [(path, row) for path, row in rows if len(set(row)) > 1]


def _json(tree: Any) -> str:
    """Return plain data as JSON for a script element: no `</script>` in it, whatever the texts are."""
    text = json.dumps(tree, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return resources.files("launcher.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Return plotly.js, packed: 4.8 MB of text are 2 MB in the page, which the browser unpacks."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()
