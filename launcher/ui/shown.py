"""The panels of the page: verdict, estimate, findings, arguments; plain data in, components out."""

from collections.abc import Mapping, Sequence
from typing import Any

from dash import html

from launcher.estimate.memory import GIB
from launcher.estimate.result import MEMORY_PARTS
from launcher.job.finding import Finding, Fix
from launcher.terminal import counted, parameters

Tree = Mapping[str, Any]
_MOST_STAGES = 16


def labelled(text: str) -> dict[str, Any]:
    """Return the argument that names a part of the page for a screen reader; Dash takes it by this name only."""
    return {"aria-label": text}


def button(label: str, words: Sequence[str], at: str, **more: Any) -> html.Button:
    """Return a button that sets overrides; `at` tells equal buttons apart."""
    return html.Button(label, id={"type": "apply", "words": "\n".join(words), "at": at}, className="fix", **more)


def verdict(answer: Tree) -> Any:
    """Return the answer in one line: whether the job passes, and what it is."""
    if answer["mistakes"]:
        return html.P([_badge("error", "Not a job yet"), f" {counted(len(answer['mistakes']), 'mistake')}"])
    errors = sum(each["severity"] == "error" for each in answer["findings"])
    warnings = sum(each["severity"] == "warning" for each in answer["findings"])
    backend = answer["backend"]
    where = f"on {backend['title']} {backend['version']}" if backend else ""
    about = ", ".join(counted(number, what) for number, what in ((errors, "error"), (warnings, "warning")) if number)
    head = _badge("error", "Refused") if errors else _badge("ok", "Passes all rules")
    return html.P([head, f" {answer['name'] or 'job'} {where}", f": {about}" if about else ""])


def _badge(kind: str, text: str) -> html.Span:
    return html.Span(text, className=f"badge {kind}")


def layout_line(answer: Tree) -> str:
    """Return what lies on which devices, in one line."""
    if answer["mistakes"]:
        return ""
    at = answer["layout"]
    if at["nodes"] is None or at["devices_per_node"] is None:
        return ""
    named = ("dp", "tp", "pp", "cp")
    sizes = " × ".join(f"{name} {at[name]}" for name in named if at[name] and (at[name] > 1 or name == "dp"))
    more = "".join(f", {name} {at[name]}" for name in ("ep", "vpp") if at[name] > 1)
    device = at["hardware"] or "device"
    divides = "" if at["dp"] else ", which do not divide the devices"
    return f"{at['nodes']} × {at['devices_per_node']} {device}: {sizes}{more}{divides}"


def estimate(answer: Tree) -> Any:
    """Return memory per stage and the time of a step."""
    if answer["mistakes"]:
        return None
    found = answer["estimate"]
    if found is None:
        reasons = answer["no_estimate"]
        return html.Div([html.P("No estimate yet:"), html.Ul([html.Li(each) for each in reasons[:4]])])
    return html.Div([_figures(found), _stages(found), *_changes(found), *_assumed(found)])


def _figures(found: Tree) -> html.Dl:
    memory, time = found["memory"], found["time"]
    fullest = max(memory["per_stage"], key=lambda stage: stage["peak_reserved"])
    used = (fullest["peak_reserved"] + memory["outside"]) / GIB
    of = f" of {memory['capacity'] / GIB:g}" if memory["capacity"] else ""
    fits = {True: "fits", False: "does not fit", None: "memory"}[found["fits"]]
    rows: list[tuple[str, str, str]] = [
        (fits, f"{used:.1f}{of} GiB", "no" if found["fits"] is False else "yes" if found["fits"] else "")
    ]
    if time is not None:
        rows += [
            ("step", f"{time['step_s']:.3g} s", ""),
            ("tokens/s per device", f"{found['tokens_per_s_per_device'] or 0:,.0f}", ""),
            ("MFU", f"{100 * (found['mfu'] or 0):.1f} %", ""),
            ("bubble", f"{100 * time['bubble_s'] / time['step_s']:.0f} %", ""),
        ]
    rows.append(("parameters", parameters(found["parameters"]["total"]), ""))
    return html.Dl(
        [html.Div([html.Dt(name), html.Dd(value)], className=f"figure {kind}") for name, value, kind in rows],
        className="figures",
    )


def _stages(found: Tree) -> html.Figure:
    memory = found["memory"]
    stages, capacity = memory["per_stage"], memory["capacity"]
    scale = max([capacity or 0, *(stage["peak_reserved"] + memory["outside"] for stage in stages)])
    rows = []
    for first, last in _folded(stages):
        name = f"stage {first['stage']}" + (f"–{last['stage']}" if last is not first else "")
        total = (first["peak_reserved"] + memory["outside"]) / GIB
        parts = [
            html.Span(
                className=f"part {part}",
                style={"width": f"{100 * first[part] / scale:.2f}%"},
                title=f"{part} {first[part] / GIB:.2f} GiB",
            )
            for part in MEMORY_PARTS
        ]
        limit = [html.Span(className="limit", style={"left": f"{100 * capacity / scale:.2f}%"})] if capacity else []
        bar = html.Span([*parts, *limit], className="bar")
        texts = html.Span(name, className="stage"), html.Span(f"{total:.1f} GiB", className="total")
        rows.append(html.Div([texts[0], bar, texts[1]], className="stage-row"))
    key = html.Figcaption(
        [html.Span([html.I(className=f"swatch {part}"), part], className="key") for part in MEMORY_PARTS]
    )
    return html.Figure([*rows, key], className="stages", **labelled("Memory of each pipeline stage"))


def _folded(stages: Sequence[Tree]) -> list[tuple[Tree, Tree]]:
    """Return runs of stages with equal figures as their first and last one."""
    runs: list[tuple[Tree, Tree]] = []
    for stage in stages:
        if runs and all(stage[part] == runs[-1][0][part] for part in (*MEMORY_PARTS, "peak_reserved")):
            runs[-1] = runs[-1][0], stage
        else:
            runs.append((stage, stage))
    half = _MOST_STAGES // 2
    return runs if len(runs) <= _MOST_STAGES else [*runs[:half], *runs[-half:]]


def _changes(found: Tree) -> list[Any]:
    if not found["changes"]:
        return []
    rows = []
    for number, change in enumerate(found["changes"]):
        seconds = f", {change['step_s']:.3g} s/step" if change["step_s"] is not None else ""
        about = f" {change['peak_reserved'] / GIB:.1f} GiB{seconds}"
        rows.append(html.Li([button(" ".join(change["overrides"]), change["overrides"], f"fit{number}"), about]))
    return [html.H3("Makes it fit, the fastest first"), html.Ul(rows, className="fixes")]


def _assumed(found: Tree) -> list[Any]:
    if not found["missing"]:
        return []
    summary = html.Summary(f"{len(found['missing'])} assumptions")
    return [html.Details([summary, html.Ul([html.Li(each) for each in found["missing"]])])]


def findings(found: Sequence[Tree], *, pending: bool = False) -> Any:
    """Return the findings, errors first, with a button for each fix.

    Args:
        pending: fixes are being computed.
    """
    if not found:
        return html.P("No findings.", className="quiet")
    return html.Ol([_finding(each, number, pending) for number, each in enumerate(found)], className="findings")


def _finding(finding: Tree, number: int, pending: bool) -> html.Li:
    head = [_badge(finding["severity"], finding["severity"]), html.Code(finding["rule"])]
    head += [html.Code(path, className="path") for path in finding["fields"][:4]]
    rows: list[Any] = [html.Div(head, className="head"), html.P(finding["message"])]
    fixes = []
    for at, fix in enumerate(finding["fix"]):
        label = f"{fix} (changes training)" if fix in finding["affects_training"] else fix
        fixes.append(button(label, Fix.from_text(fix).overrides, f"finding{number}.{at}", title="Apply this change"))
    if fixes:
        rows.append(html.Div(["works: ", *fixes], className="fixes"))
    elif pending and finding["severity"] == "error":
        rows.append(html.Div("looking for what works …", className="quiet"))
    if finding["ask"]:
        rows.append(html.Div(["set: ", html.Code(" ".join(finding["ask"]))], className="fixes"))
    if not pending and (missing := Finding.from_tree(finding).not_offered):
        rows.append(html.Div(missing, className="quiet"))
    if finding["source"]:
        rows.append(html.Div(finding["source"], className="source"))
    return html.Li(rows, className=finding["severity"])
