"""Callbacks of the page's own state: words, verdict, findings and fields."""

from collections.abc import Sequence
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from launcher.job import FieldInfo
from launcher.ui import page, shown
from launcher.ui.asking import answer
from launcher.ui.choices import is_switch, kind, matching, sections, versions
from launcher.ui.pool import Busy, Pool, Stopped
from launcher.ui.words import refused

# Rows of fields at once; a person narrows the search before.
_MOST_ROWS = 60
_CHOSEN = (*page.CHOOSERS, *page.NUMBERS)
# The field that says what a chooser's group has set.
_FIELD_OF = {"model": "model.hub_id", "task": "task.type", "backend": "backend.name", "hardware": "hardware.name"}


def register(app: Dash, pool: Pool) -> None:
    """Register the callbacks."""
    _register_words(app)
    _register_answers(app, pool)
    _register_fields(app, pool)


def _register_words(app: Dash) -> None:
    choosers = [page.id_of(key) for key in _CHOSEN]
    field: dict[str, Any] = {"type": "field", "path": ALL}
    app.clientside_callback(
        ClientsideFunction("planner", "edit"),
        Output("words", "data"),
        Output("history", "data"),
        *(Output(each, "value") for each in choosers),
        Output(field, "value"),
        Output("text", "value"),
        Output("undo", "disabled"),
        Output("clear", "disabled"),
        *(Input(each, "value") for each in choosers),
        Input(field, "value"),
        Input({"type": "apply", "words": ALL, "at": ALL}, "n_clicks"),
        Input("text", "value"),
        Input("undo", "n_clicks"),
        Input("clear", "n_clicks"),
        Input("incoming", "data"),
        Input("location", "hash"),
        State(field, "id"),
        State("words", "data"),
        State("history", "data"),
        *(State(page.id_of(key), "options") for key in page.CHOOSERS),
    )
    app.clientside_callback(
        ClientsideFunction("planner", "tab"),
        Output("tab", "data"),
        Output({"type": "panel", "name": ALL}, "hidden"),
        Output({"type": "tab", "name": ALL}, "className"),
        Output({"type": "tab", "name": ALL}, "aria-current"),
        Input({"type": "tab", "name": ALL}, "n_clicks"),
        Input("incoming", "data"),
        State({"type": "tab", "name": ALL}, "id"),
    )
    app.clientside_callback(ClientsideFunction("planner", "ask"), Output("asked", "data"), Input("words", "data"))
    app.clientside_callback(
        ClientsideFunction("planner", "link"),
        Output("link", "data"),
        Output("link-note", "children"),
        Input("words", "data"),
    )
    app.clientside_callback(
        ClientsideFunction("planner", "copy"),
        Output("copied", "children"),
        Input("copy", "n_clicks"),
        State("link", "data"),
    )


def _register_answers(app: Dash, pool: Pool) -> None:
    placeholders = [Output(page.id_of(key), "placeholder") for key in _CHOSEN]

    @app.callback(
        Output("verdict", "children"),
        Output("layout-line", "children"),
        Output("estimate", "children"),
        Output("findings", "children"),
        Output("answered", "data"),
        Output(page.id_of("backend.version"), "options"),
        *placeholders,
        Input("asked", "data"),
    )
    def live(words: list[str] | None) -> Sequence[Any]:
        if not words:
            empty = ["not set"] * len(_CHOSEN)
            return [page.examples(), "", None, None, None, [], *empty]
        found = answer(pool, words)
        pending = bool(found.get("can_fix"))
        backend = found.get("backend") or {}
        return [
            shown.verdict(found),
            shown.layout_line(found),
            shown.estimate(found),
            shown.findings(found["mistakes"] or found["findings"], pending=pending),
            {"words": words, "can_fix": pending, "ok": not found["mistakes"], "name": found.get("name")},
            versions(backend.get("name")),
            *(_placeholder(found, key) for key in _CHOSEN),
        ]

    @app.callback(
        Output("findings", "children", allow_duplicate=True), Input("answered", "data"), prevent_initial_call=True
    )
    def fixes(answered: dict[str, Any] | None) -> Any:
        if not answered or not answered["can_fix"] or refused(answered["words"]):
            return no_update
        try:
            return shown.findings(pool.answer("answers.findings", answered["words"]))
        except (Busy, Stopped):
            return no_update


def _placeholder(found: dict[str, Any], key: str) -> str:
    """Return the value of a chooser that a file or a default decides, and which of these it is."""
    if key == "backend.version" and found.get("backend"):
        return f"{found['backend']['version']} (default)"
    value = found.get("values", {}).get(_FIELD_OF.get(key, key))
    if not value or not value[0]:
        return "not set"
    origin = value[1].partition(",")[0]
    # The chooser's label says of what it is a preset, and has room for a word.
    return f"{value[0]} ({'preset' if origin.endswith(' preset') else origin})"


def _register_fields(app: Dash, pool: Pool) -> None:
    @app.callback(
        Output("rows", "children"),
        Output("section-doc", "children"),
        Input("section", "value"),
        Input("query", "value"),
    )
    def rows(section: str | None, query: str | None) -> tuple[Any, str]:
        found = matching(section, (query or "")[:100])
        doc = sections()[section].doc if section in sections() and not query else f"{len(found)} fields"
        more = len(found) - _MOST_ROWS
        cut = [html.P(f"… and {more} more: search for a name or meaning", className="quiet")] if more > 0 else []
        return [*map(_row, found[:_MOST_ROWS]), *cut], doc

    @app.callback(
        Output({"type": "note", "path": ALL}, "children"),
        Input("answered", "data"),
        State({"type": "note", "path": ALL}, "id"),
    )
    def notes(answered: dict[str, Any] | None, ids: list[dict[str, str]]) -> list[str]:
        if not answered:
            return [""] * len(ids)
        values = answer(pool, answered["words"]).get("values", {})
        return [_note(values.get(each["path"])) for each in ids]


def _note(value: Sequence[str] | None) -> str:
    if not value:
        return ""
    return f"= {value[0]}  ({value[1]})" if value[0] else value[1]


def _row(info: FieldInfo) -> html.Div:
    meta = info.meta
    own = {"type": "field", "path": info.path}
    default = "" if info.default in (None, (), {}) else f"default {str(info.default).lower()}"
    choices = f"one of {', '.join(meta.choices)}" if meta.choices else kind(info)
    details = " · ".join(filter(None, (choices, meta.unit, default, "changes training" * meta.affects_training)))
    listed = [] if not (meta.choices or is_switch(info)) else [html.Datalist(_suggestions(info), id=f"of-{info.path}")]
    return html.Div(
        [
            html.Label(info.path, htmlFor=_html_id(own)),
            dcc.Input(
                id=own,
                type="text",
                autoComplete="off",
                spellCheck=False,
                list=f"of-{info.path}" if listed else None,
                placeholder="not set",
            ),
            html.Span(id={"type": "note", "path": info.path}, className="note"),
            html.P([meta.doc, html.Span(f" {details}", className="quiet")], className="doc"),
            *listed,
        ],
        className="field",
    )


def _html_id(own: dict[str, str]) -> str:
    """Return the id that Dash gives to the element of a pattern-matching id."""
    import json

    return json.dumps(own, sort_keys=True, separators=(",", ":"))


def _suggestions(info: FieldInfo) -> list[html.Option]:
    choices = ("true", "false") if is_switch(info) else info.meta.choices
    return [html.Option(value=each) for each in choices]
