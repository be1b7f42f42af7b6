"""The tab of exports: the command, the script, the job file, the findings, the report."""

import shlex
from collections.abc import Sequence
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from launcher.ui.pool import Busy, Pool, Stopped
from launcher.ui.words import refused

NAME = "Export"
_FILES = {
    "script": ("Script (.sh)", "starts the job without this program", "sh"),
    "job": ("Job (.yaml)", "for launch run +job=FILE", "yaml"),
    "findings": ("Findings (.json)", "as launch check --json", "json"),
    "report": ("Report (.html)", "one page to pass on, as launch report", "html"),
}


def layout() -> html.Div:
    """Return the tab."""
    rows = [
        html.Li([html.Button(label, id=f"get-{name}"), html.Span(f" {about}", className="quiet")])
        for name, (label, about, _) in _FILES.items()
    ]
    return html.Div(
        [
            html.Ul(rows, className="plain"),
            dcc.Download(id="download"),
            html.P(id="download-note", role="status"),
            html.H3("On the command line"),
            html.Pre(id="command", tabIndex=0),
        ]
    )


def register(app: Dash, pool: Pool) -> None:
    """Register the callbacks."""

    @app.callback(
        Output("download", "data"),
        Output("download-note", "children"),
        *(Input(f"get-{name}", "n_clicks") for name in _FILES),
        State("words", "data"),
        State("answered", "data"),
        prevent_initial_call=True,
    )
    def download(*args: Any) -> Sequence[Any]:
        words, answered = args[-2] or [], args[-1] or {}
        name = str(ctx.triggered_id).removeprefix("get-")
        if name not in _FILES or not any(args[:-2]):
            return no_update, no_update
        if not words or refused(words):
            return no_update, "There is no job yet."
        try:
            # A report has 2 MB: too many to keep.
            ask = pool.compute if name == "report" else pool.answer
            text = ask(f"exports.{name}", words)
        except Busy:
            return no_update, "The server is busy; try again in a moment."
        except Stopped as error:
            return no_update, f"No file: {error}."
        file = f"{answered.get('name') or 'job'}.{_FILES[name][2]}"
        return {"content": text, "filename": file, "type": "text/plain"}, f"{file} is downloaded."

    @app.callback(Output("command", "children"), Input("answered", "data"), Input("tab", "data"))
    def command(answered: dict[str, Any] | None, tab: str) -> Any:
        if tab != NAME:
            return no_update
        words = (answered or {}).get("words") or []
        return " \\\n  ".join(["launch dry-run", *map(shlex.quote, words)])
