"""The tab of native arguments: what the backend would get, and why."""

from typing import Any

from dash import Dash, Input, Output, dcc, html, no_update

from launcher.ui.asking import answer
from launcher.ui.pool import Pool
from launcher.ui.tables import code, table

NAME = "Arguments"
_ORIGINS = ("all", "not a schema default")


def layout() -> html.Div:
    """Return the tab."""
    search = dcc.Input(id="argument-query", type="search", placeholder="name, value, field", autoComplete="off")
    origin = dcc.Dropdown(list(_ORIGINS), "all", id="argument-origin", clearable=False, searchable=False)
    return html.Div(
        [
            html.Div(
                [
                    html.Div([html.Label("Search arguments", htmlFor="argument-query"), search], className="choice"),
                    html.Div([html.Label("Show", htmlFor="argument-origin"), origin], className="choice"),
                ],
                className="filters",
            ),
            html.Div(id="arguments"),
        ]
    )


def register(app: Dash, pool: Pool) -> None:
    """Register the callback."""

    @app.callback(
        Output("arguments", "children"),
        Input("answered", "data"),
        Input("tab", "data"),
        Input("argument-query", "value"),
        Input("argument-origin", "value"),
    )
    def arguments(answered: dict[str, Any] | None, tab: str, query: str | None, origin: str) -> Any:
        if tab != NAME:
            return no_update
        found = answer(pool, answered["words"])["args"] if answered and answered["ok"] else []
        if not found:
            return html.P("Choose a backend first.", className="quiet")
        text = (query or "").lower()[:100].split()
        shown = [
            each
            for each in found
            if (origin == "all" or each["kind"] != "default")
            and all(word in f"{each['flag']} {each['value']} {each['field']}".lower() for word in text)
        ]
        rows = [(code(each["flag"]), code(each["value"]), code(each["field"]), each["origin"]) for each in shown]
        caption = f"{len(shown)} of {len(found)} arguments"
        return table(caption, ("argument", "value", "field", "origin"), rows)
