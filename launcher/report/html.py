"""Objects as HTML for notebooks: plain tables that take the notebook's own colours, without scripts or other files."""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape

from launcher.estimate.memory import GIB
from launcher.estimate.result import Estimate
from launcher.job import Job, fields, override_text, value_at
from launcher.job.finding import Finding, Findings
from launcher.job.schema import USER_ORIGINS
from launcher.job.secret import redacted
from launcher.report.figures.memory import PARTS
from launcher.report.origins import origin_words
from launcher.runs import Run
from launcher.search.found import SearchResult
from launcher.search.output import recompute_of, sizes_of
from launcher.terminal import counted

# Grey of half opacity is visible on white and on black; text keeps the colour of the page.
_LINE = "1px solid rgba(128,128,128,.5)"
_MARKS = {"error": "#d1242f", "warning": "#bf8700", "change": "#0969da"}
# Rows of a table; a job with 1,000 stages shall not fill the notebook.
_MOST = 32


@singledispatch
def as_html(shown: object) -> str:
    """Return an object as one HTML element."""
    raise TypeError(f"no HTML for {type(shown).__name__}")


@as_html.register
def _job(job: Job) -> str:
    own = [path for path in fields() if job.origin(path).kind in USER_ORIGINS]
    rows = [(_text(path), _text(_value(job, path), path), _text(_origin(job, path))) for path in own]
    from launcher.rules.passthrough import with_passthrough

    job = with_passthrough(job)
    model, parallel = job.model, job.parallel
    head = [
        (
            "model",
            f"{model.hub_id or model.path or model.model_type or 'not chosen'}, {model.num_hidden_layers} layers",
        ),
        ("backend", f"{job.backend.name or 'not chosen'} {job.backend.version or ''}"),
        (
            "devices",
            f"{job.cluster.nodes} × {job.cluster.devices_per_node} {job.hardware.name or 'devices'}: "
            f"tp {parallel.tp}, pp {parallel.pp}, cp {parallel.cp}, ep {parallel.ep}, dp {parallel.dp}",
        ),
        ("batch", f"{job.batch.global_batch_size} × {job.batch.seq_length} tokens"),
    ]
    table = _table(("field", "value", "set by"), rows, len(rows))
    body = _table((), [(_text(name), _text(text)) for name, text in head])
    return _framed(
        f"job {job.name or ''}", f"{body}<details><summary>{len(rows)} values set</summary>{table}</details>"
    )


@as_html.register
def _findings(findings: Findings) -> str:
    counts = [(sum(each.severity == severity for each in findings), severity) for severity in _MARKS]
    title = ", ".join(counted(count, severity) for count, severity in counts if count)
    return _framed(title or "no findings: the job passes every rule", "".join(map(_paragraph, findings)))


@as_html.register
def _finding(finding: Finding) -> str:
    return _framed("", _paragraph(finding))


@as_html.register
def _estimate(answer: Estimate) -> str:
    used = (answer.fullest.peak_reserved + answer.outside) / GIB
    of = "" if answer.capacity is None else f" of {answer.capacity / GIB:g}"
    verdict = {True: "fits", False: "does not fit", None: "memory of the device unknown"}[answer.fits]
    title = f"{verdict}: {used:.1f}{of} GiB on stage {answer.fullest.stage}"
    if answer.time is not None:
        title += f" · {answer.time.step_s:.4g} s/step · {answer.tokens_per_s_per_device or 0:,.0f} tokens/s per device"
        title += f" · MFU {100 * (answer.mfu or 0):.1f} %"
    largest = max(answer.capacity or 0, *(stage.peak_reserved + answer.outside for stage in answer.stages))
    rows = [
        (str(stage.stage), *(f"{getattr(stage, part) / GIB:.2f}" for part in (*PARTS, "peak_reserved")), bar)
        for stage, bar in ((stage, _bar([getattr(stage, part) for part in PARTS], largest)) for stage in answer.stages)
    ]
    assumed = "".join(f"<li>{_text(line)}</li>" for line in answer.missing)
    more = f"<details><summary>{len(answer.missing)} figures assumed</summary><ul>{assumed}</ul></details>"
    head = ("stage", *PARTS, "peak GiB", "")
    return _framed(title, _table(head, rows) + (more if answer.missing else ""))


@as_html.register
def _search(result: SearchResult) -> str:
    found = result.found
    state = "" if found.complete else f"stopped after {found.settled:,} of "
    title = f"{state}{found.points:,} points, {found.estimates:,} estimated, {found.seconds:.1f} s"
    rows = [
        (
            *map(str, sizes_of(result.job, each).values()),
            str(each.point["batch.micro_batch_size"]),
            _text(recompute_of(each)),
            f"{each.peak / GIB:.1f}",
            f"{each.step_s:.4g}",
            f"{100 * each.mfu:.1f} %",
        )
        for each in found.best
    ]
    head = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "mbs", "recompute", "GiB", "s/step", "MFU")
    return _framed(title, _table(head, rows) if rows else "<p>no layout fits</p>")


@as_html.register
def _run(run: Run) -> str:
    return _framed(f"run {run.id}", _table((), [("folder", _text(run.folder))]))


def _paragraph(finding: Finding) -> str:
    mark = f"border-left:4px solid {_MARKS[finding.severity]};padding-left:.6em;margin:.5em 0"
    where = ", ".join((*finding.fields, *(f"--{flag}" for flag in finding.flags)))
    lines = [f"<strong>{_text(finding.severity)}</strong> <code>{_text(finding.rule)}</code> {_text(where)}"]
    lines.append(_text(finding.message) + (f" <small>[{_text(finding.source)}]</small>" if finding.source else ""))
    if finding.fixes:
        works = " · ".join(f"<code>{_text(fix)}</code>" for fix in finding.fixes)
        lines.append(f"works: {works}")
    if finding.asks:
        lines.append(f"specify: <code>{_text(' '.join(finding.asks))}</code>")
    if finding.not_offered:
        lines.append(_text(finding.not_offered))
    return f'<div style="{mark}">{"<br>".join(lines)}</div>'


def _value(job: Job, path: str) -> str:
    return override_text(value_at(job, path))


def _origin(job: Job, path: str) -> str:
    origin = job.origin(path)
    return origin_words(origin.kind, origin.where)


def _text(value: object, name: str = "") -> str:
    """Return a text escaped, and without secrets."""
    return escape(redacted(str(value), name))


def _bar(parts: Sequence[int], largest: int) -> str:
    boxes = "".join(
        f'<span title="{name}" style="display:inline-block;height:1em;width:{12 * size / largest:.2f}em;'
        f'background:{colour}"></span>'
        for (name, colour), size in zip(PARTS.items(), parts, strict=True)
    )
    return f'<span aria-hidden="true" style="white-space:nowrap">{boxes}</span>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], most: int = _MOST) -> str:
    """Return a table; the cells are HTML."""
    shown = list(rows)
    cut = len(shown) - most
    cell = f'style="text-align:left;padding:.1em .6em;border-bottom:{_LINE}"'
    titles = "".join(f'<th scope="col" {cell}>{name}</th>' for name in head)
    body = "".join(f"<tr>{''.join(f'<td {cell}>{each}</td>' for each in row)}</tr>" for row in shown[:most])
    more = f"<p>… and {cut} more</p>" if cut > 0 else ""
    top = f"<thead><tr>{titles}</tr></thead>" if head else ""
    return f'<table style="border-collapse:collapse;margin:.3em 0">{top}<tbody>{body}</tbody></table>{more}'


def _framed(title: str, body: str) -> str:
    top = f"<strong>{_text(title)}</strong>" if title else ""
    return f'<div style="border:{_LINE};border-radius:4px;padding:.5em .8em;overflow-x:auto">{top}{body}</div>'
