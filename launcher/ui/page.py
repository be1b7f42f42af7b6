"""The layout of the page."""

from typing import Any

from dash import dcc, html

from launcher.mapping.examples import filled
from launcher.ui import arguments_tab, backends_tab, export_tab, import_tab, search_tab
from launcher.ui.choices import options, sections
from launcher.ui.shown import labelled

INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
CHOOSERS = {
    "recipe": "Recipe",
    "model": "Model",
    "task": "Task",
    "backend": "Backend",
    "backend.version": "Version",
    "hardware": "Hardware",
}
NUMBERS = {"cluster.nodes": "Nodes", "cluster.devices_per_node": "Devices per node"}
_TABS = (arguments_tab, backends_tab, search_tab, import_tab, export_tab)
# Jobs to begin with.
_EXAMPLES = (
    ("Pretrain Qwen3-30B-A3B", ("+recipe=qwen3_moe", "backend={cuda}", "hardware=h100_80g")),
    (
        "DeepSeek-V3 on 512 Ascend",
        ("+recipe=deepseek_v3", "backend={npu}", "hardware=ascend_910c", "cluster.nodes=32"),
    ),
)


def id_of(key: str) -> str:
    """Return the id of a chooser: dots in ids are Dash's own."""
    return f"choose-{key.replace('.', '__')}"


def layout() -> html.Div:
    """Return the page."""
    return html.Div(
        [
            dcc.Location(id="location", refresh=False),
            *(dcc.Store(id=name) for name in ("words", "history", "asked", "answered", "incoming", "link", "tab")),
            html.Header([html.H1("Launch planner"), _actions()]),
            html.Main([_choosers(), html.Div([_verdict(), _work()], className="columns")]),
        ],
        id="page",
    )


def _actions() -> html.Div:
    return html.Div(
        [
            html.Button("Undo", id="undo", disabled=True),
            html.Button("Start over", id="clear", disabled=True),
            html.Button("Copy link", id="copy"),
            html.Span(id="copied", role="status", className="quiet"),
            html.Span(id="link-note", role="status", className="quiet"),
        ],
        className="actions",
    )


def _choosers() -> html.Section:
    rows = [
        html.Div(
            [
                html.Label(label, htmlFor=id_of(key)),
                dcc.Dropdown(id=id_of(key), options=[] if "." in key else options(key), placeholder="not set"),
            ],
            className="choice",
        )
        for key, label in CHOOSERS.items()
    ]
    rows += [
        html.Div(
            [
                html.Label(label, htmlFor=id_of(key)),
                dcc.Input(id=id_of(key), type="text", inputMode="numeric", autoComplete="off", maxLength=7),
            ],
            className="choice number",
        )
        for key, label in NUMBERS.items()
    ]
    return html.Section(rows, className="choosers", **labelled("What to train, on what"))


def _verdict() -> html.Section:
    return html.Section(
        [
            html.Div(id="verdict", role="status"),
            html.P(id="layout-line", className="quiet"),
            html.H2("Estimate"),
            html.Div(id="estimate"),
            html.H2("Findings"),
            html.Div(id="findings"),
        ],
        className="verdict",
        **labelled("Verdict"),
    )


def _work() -> html.Section:
    panels = {"Fields": _fields(), **{tab.NAME: tab.layout() for tab in _TABS}}
    # Dash's own tabs are no buttons: neither a keyboard nor a screen reader reaches them.
    tabs = [html.Button(name, id={"type": "tab", "name": name}, className="part-tab") for name in panels]
    shown = [html.Div(panel, id={"type": "panel", "name": name}, hidden=True) for name, panel in panels.items()]
    return html.Section(
        [html.Nav(tabs, className="tabs", **labelled("Parts of the planner")), *shown], className="work"
    )


def _fields() -> html.Div:
    names = [{"label": name, "value": name} for name in sections()]
    return html.Div(
        [
            html.Div(
                [
                    html.Div(
                        [
                            html.Label("Section", htmlFor="section"),
                            dcc.Dropdown(names, "parallel", id="section", clearable=False),
                        ],
                        className="choice",
                    ),
                    html.Div(
                        [
                            html.Label("Search all fields", htmlFor="query"),
                            dcc.Input(id="query", type="search", placeholder="name or meaning", autoComplete="off"),
                        ],
                        className="choice",
                    ),
                ],
                className="filters",
            ),
            html.P(id="section-doc", className="quiet"),
            html.Div(id="rows"),
            html.Details(
                [
                    html.Summary("Overrides as text"),
                    html.Label("One a line, as on the command line", htmlFor="text"),
                    dcc.Textarea(id="text", spellCheck=False, rows=8, placeholder="parallel.tp=2"),
                ],
                open=True,
            ),
        ]
    )


def examples() -> Any:
    """Return what an empty page shows: jobs to begin with."""
    from launcher.ui.shown import button

    buttons = [button(label, tuple(map(filled, words)), f"example{at}") for at, (label, words) in enumerate(_EXAMPLES)]
    return html.Div([html.P("Choose a recipe, or a model, a backend and hardware. Or begin with:"), *buttons])
