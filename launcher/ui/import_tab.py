"""The tab of imports: a script or configuration is read, reported, ported and made the page's job."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from launcher.mapping.backend import backend_names, get_backend
from launcher.ui.pool import Busy, Pool, Stopped
from launcher.ui.tables import code, table

NAME = "Import"
# Characters of a script, as for an upload.
LONGEST_SCRIPT = 2 * 2**20
_KINDS = {".sh": "bash script", ".yaml": "YAML", ".json": "JSON", ".txt": "arguments"}
_SECONDS = 30.0


def layout() -> html.Div:
    """Return the tab."""
    backends = [{"label": get_backend(name).title, "value": name} for name in backend_names()]
    upload = dcc.Upload(html.Button("Upload a file"), id="upload", multiple=False)
    kinds = [{"label": text, "value": ending} for ending, text in _KINDS.items()]
    kind = dcc.Dropdown(kinds, ".sh", id="script-kind", clearable=False, searchable=False)
    return html.Div(
        [
            html.P("Paste a training script, a YAML or JSON configuration, or upload it. It is read, never run."),
            html.Div([upload, html.Span(id="upload-note", role="status")], className="actions"),
            dcc.Store(id="upload-name"),
            html.Label("Script", htmlFor="script"),
            dcc.Textarea(id="script", rows=10, spellCheck=False, placeholder="torchrun … pretrain_gpt.py …"),
            html.Div(
                [
                    html.Div([html.Label("It is a", htmlFor="script-kind"), kind], className="choice"),
                    html.Div(
                        [
                            html.Label("Backend of the script", htmlFor="script-backend"),
                            dcc.Dropdown(backends, id="script-backend", placeholder="recognised"),
                        ],
                        className="choice",
                    ),
                    html.Div(
                        [
                            html.Label("Port to", htmlFor="port-to"),
                            dcc.Dropdown(backends, id="port-to", placeholder="stay"),
                        ],
                        className="choice",
                    ),
                ],
                className="filters three",
            ),
            html.Div(
                [
                    html.Button("Read it", id="read", className="primary"),
                    html.Button("Make it the job", id="adopt", disabled=True),
                ],
                className="actions",
            ),
            dcc.Store(id="read-words"),
            dcc.Loading(html.Div(id="import-report"), delay_show=400, custom_spinner=html.P("Reading …")),
        ]
    )


def register(app: Dash, pool: Pool, uploads: str) -> None:
    """Register the callbacks."""
    app.clientside_callback(
        ClientsideFunction("planner", "uploaded"),
        Output("script", "value"),
        Output("upload-name", "data"),
        Output("upload-note", "children"),
        Output("script-kind", "value"),
        Input("upload", "contents"),
        State("upload", "filename"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("import-report", "children"),
        Output("read-words", "data"),
        Output("adopt", "disabled"),
        Input("read", "n_clicks"),
        State("script", "value"),
        State("script-kind", "value"),
        State("script-backend", "value"),
        State("port-to", "value"),
        prevent_initial_call=True,
    )
    def report(clicks: int | None, text: str | None, ending: str, backend: str | None, target: str | None) -> Any:
        if not clicks:
            return no_update, no_update, no_update
        refused = refusal(text, ending, backend, target)
        if refused:
            return html.P(refused, className="refused"), None, True
        try:
            found = _read(pool, uploads, text or "", ending, backend, target)
        except Busy:
            return html.P("The server is busy; try again in a moment."), None, True
        except Stopped as error:
            return html.P(f"It cannot be read: {error}."), None, True
        if found["refused"]:
            return (
                html.Div([html.H3("Not imported"), html.Ul([html.Li(each) for each in found["refused"]])]),
                None,
                True,
            )
        return _report(found), found["words"], False

    app.clientside_callback(
        ClientsideFunction("planner", "adopt"),
        Output("incoming", "data"),
        Input("adopt", "n_clicks"),
        State("read-words", "data"),
        prevent_initial_call=True,
    )


def refusal(text: str | None, ending: str, backend: str | None, target: str | None) -> str:
    """Return why a script is not read; empty: it is."""
    if not text or not text.strip():
        return "Paste a script or upload a file first."
    if len(text) > LONGEST_SCRIPT or len(text.encode("utf-8", "surrogatepass")) > LONGEST_SCRIPT:
        return f"It has {len(text) / 2**20:.1f} MiB; a script or configuration has at most 2 MiB."
    if ending not in _KINDS or any(name not in (None, *backend_names()) for name in (backend, target)):
        return "There is no such kind of file or backend."
    return ""


def _read(pool: Pool, uploads: str, text: str, ending: str, backend: str | None, target: str | None) -> dict[str, Any]:
    """Read a script in a worker, from a file that exists only meanwhile."""
    folder = tempfile.mkdtemp(dir=uploads)
    file = Path(folder, f"script{ending}")
    try:
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        name = f"script{ending}"
        asked = [str(file), name, backend or None]
        if target:
            found = pool.compute("imports.ported_to", *asked, target, seconds=_SECONDS)
        else:
            found = pool.compute("imports.read", *asked, seconds=_SECONDS)
    finally:
        file.unlink(missing_ok=True)
        os.rmdir(folder)
    assert isinstance(found, dict)
    return found


def _report(found: dict[str, Any]) -> html.Div:
    title = get_backend(found["backend"]).title
    head = f"{title} {found['version']}: {found['program'] or 'arguments'}"
    target = found.get("target")
    if target:
        head += f", ported to {get_backend(target).title} {found['target_version']}"
    counts: dict[str, int] = {}
    for each in found["args"]:
        counts[each["fate"]] = counts.get(each["fate"], 0) + 1
    parts: list[Any] = [html.H3(head), html.P(", ".join(f"{number} {fate}" for fate, number in counts.items()))]
    for text, lines in (("Notes", found["notes"]), ("Not held by the page (launch import -o keeps it)", found["lost"])):
        if lines:
            parts += [html.H3(text), html.Ul([html.Li(each) for each in lines[:40]])]
    errors: Sequence[Any] = [each for each in found["findings"] if each["severity"] == "error"]
    if found["findings"]:
        parts += [html.H3(f"Findings there ({len(errors)} errors)"), _findings(found["findings"])]
    rows = [
        (code(each["flag"]), code(each["value"]), each["fate"], code(each["becomes"]), each["why"], each["where"])
        for each in found["args"]
    ]
    heads = ("argument", "value", "", "becomes", "why", "where")
    return html.Div([*parts, table(f"{len(rows)} arguments of the script", heads, rows)])


def _findings(found: Sequence[dict[str, Any]]) -> html.Ul:
    rows = [
        html.Li(
            [html.Span(each["severity"], className=f"badge {each['severity']}"), f" {each['rule']}: {each['message']}"]
        )
        for each in found
    ]
    return html.Ul(rows, className="plain")
