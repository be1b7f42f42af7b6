"""The tab of backends: one job on several, side by side."""

from collections.abc import Sequence
from typing import Any

from dash import Dash, Input, Output, dcc, html, no_update

from launcher.mapping.backend import backend_names, get_backend
from launcher.terminal import counted
from launcher.ui.pool import Busy, Pool, Stopped
from launcher.ui.tables import code, table

NAME = "Backends"


def layout() -> html.Div:
    """Return the tab."""
    names = [{"label": get_backend(name).title, "value": name} for name in backend_names()]
    chosen = dcc.Dropdown(names, [each["value"] for each in names[:2]], id="compared", multi=True, searchable=False)
    return html.Div(
        [
            html.Div([html.Label("Backends to compare", htmlFor="compared"), chosen], className="choice"),
            dcc.Loading(html.Div(id="comparison"), delay_show=400, custom_spinner=html.P("Comparing …")),
        ]
    )


def register(app: Dash, pool: Pool) -> None:
    """Register the callback."""

    @app.callback(
        Output("comparison", "children"), Input("answered", "data"), Input("tab", "data"), Input("compared", "value")
    )
    def comparison(answered: dict[str, Any] | None, tab: str, names: list[str] | None) -> Any:
        if tab != NAME:
            return no_update
        chosen = [name for name in backend_names() if name in (names or ())]
        if not answered or not answered["ok"]:
            return html.P("The job has mistakes: settle them first.", className="quiet")
        if len(chosen) < 2:
            return html.P("Choose two or more.", className="quiet")
        try:
            found = pool.answer("comparing.compared", answered["words"], chosen)
        except Busy:
            return html.P("The server is busy; choose again in a moment.")
        except Stopped as error:
            return html.P(f"No comparison: {error}.")
        return html.P(found["refused"]) if found["refused"] else _shown(found)


def _shown(found: dict[str, Any]) -> html.Div:
    columns, rows = found["columns"], found["rows"]
    heads = [f"{each['title']} {each['version']}" for each in columns]
    verdicts = [html.Div([html.H3(head), *_verdict(each)]) for head, each in zip(heads, columns, strict=True)]
    parts: list[Any] = [html.Div(verdicts, className="side")]
    if rows:
        cells = [(_field(row), *map(code, row["values"])) for row in rows]
        parts.append(table("; ".join([counted(len(rows), "difference"), *found["legend"]]), ("field", *heads), cells))
    else:
        parts.append(html.P("No differences in what is trained."))
    parts += [html.P(each) for each in found["computed"]]
    parts.append(html.Details([html.Summary("All arguments, by field"), _arguments(columns, heads)]))
    return html.Div(parts)


def _verdict(column: dict[str, Any]) -> Sequence[Any]:
    errors = column["errors"]
    if not errors:
        warnings = column["warnings"]
        more = f", {counted(warnings, 'warning')}" if warnings else ""
        return [html.Span("passes", className="badge ok"), f" {counted(len(column['args']), 'argument')}{more}"]
    return [
        html.Span(f"{len(errors)} refused", className="badge error"),
        html.Ul([html.Li(each) for each in errors[:5]]),
    ]


def _field(row: dict[str, Any]) -> Any:
    name = html.Code(row["field"])
    return html.Span([name, html.Br(), row["does"]] if row["does"] else name)


def _arguments(columns: Sequence[dict[str, Any]], heads: Sequence[str]) -> html.Div:
    """Return all arguments of all backends, those of one field in one row."""
    by_field: dict[str, list[list[str]]] = {}
    for number, column in enumerate(columns):
        for flag, value, origin, field in column["args"]:
            row = by_field.setdefault(field or flag, [[] for _ in columns])
            row[number].append(f"{flag}={value}  ({origin})")
    rows = [
        (code(name), *(html.Span([html.Div(code(text)) for text in cell]) for cell in cells))
        for name, cells in by_field.items()
    ]
    return table("Arguments by field", ("field", *heads), rows)
