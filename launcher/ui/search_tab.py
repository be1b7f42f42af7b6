"""The tab of the search: start, progress, cancel, and candidates that are applied with a click."""

from collections.abc import Sequence
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update

from launcher.estimate.memory import GIB
from launcher.job import override_text
from launcher.ui.searches import Full, Running, Searches
from launcher.ui.shown import button, labelled
from launcher.ui.tables import table
from launcher.ui.words import refused

NAME = "Search"
_SIZES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")


def layout() -> html.Div:
    """Return the tab."""
    return html.Div(
        [
            html.P("The parallel layout with the least step time that passes every rule and fits, as launch search."),
            html.Div(
                [
                    html.Button("Start search", id="search-start", className="primary"),
                    html.Button("Cancel", id="search-cancel", disabled=True),
                ],
                className="actions",
            ),
            dcc.Store(id="search-id"),
            dcc.Interval(id="search-poll", interval=700, disabled=True),
            html.Div(id="search-progress", role="status"),
            html.Div(id="search-result"),
        ]
    )


def register(app: Dash, searches: Searches) -> None:
    """Register the callbacks."""

    @app.callback(
        Output("search-id", "data"),
        Output("search-progress", "children", allow_duplicate=True),
        Output("search-poll", "disabled", allow_duplicate=True),
        Input("search-start", "n_clicks"),
        State("search-id", "data"),
        State("words", "data"),
        prevent_initial_call=True,
    )
    def start(clicks: int | None, running: str | None, words: list[str] | None) -> Sequence[Any]:
        if not clicks:
            return no_update, no_update, no_update
        if running:
            searches.cancel(running)
        wrong = refused(words or ())
        if not words or wrong:
            return None, "Choose a model, hardware and batch first." if not words else wrong[0].why, True
        try:
            return searches.start(words), "starting …", False
        except Full:
            return None, "The server searches for others; try again in a minute.", True

    @app.callback(
        Output("search-progress", "children"),
        Output("search-result", "children"),
        Output("search-poll", "disabled"),
        Output("search-cancel", "disabled"),
        Output("search-start", "disabled"),
        Input("search-poll", "n_intervals"),
        Input("search-cancel", "n_clicks"),
        Input("search-id", "data"),
        prevent_initial_call=True,
    )
    def poll(_ticks: int | None, _clicks: int | None, name: str | None) -> Sequence[Any]:
        if not name:
            return no_update, no_update, True, True, False
        # A click comes together with a tick that has waited for the answer before: `triggered_id` is one of them.
        if any(each["prop_id"].startswith("search-cancel.") for each in ctx.triggered):
            searches.cancel(name)
        found, before = searches.state(name)
        if found is None:
            return "This search is forgotten: start it again.", no_update, True, True, False
        active = found.state in ("waiting", "running")
        return _progress(found, before), _result(found), not active, not active, active


def _progress(found: Running, before: int) -> Any:
    progress = found.progress
    if found.state == "waiting":
        return f"waiting: {before} before it"
    if found.state == "failed":
        return html.P(["No search: ", found.why])
    done, total = progress.get("done", 0), progress.get("total", 0)
    text = f"{done:,} of {total:,} layouts, {progress.get('estimated', 0):,} estimated" if total else "preparing …"
    if found.state == "running":
        return [html.Progress(value=str(done), max=str(max(total, 1)), **labelled("Search")), f" {text}"]
    why = f" ({found.why})" if found.why else ""
    return f"{'cancelled' if found.state == 'cancelled' else 'done'}{why}: {text}"


def _result(found: Running) -> Any:
    candidates = found.progress.get("candidates", [])
    if candidates:
        rows = [_row(each, number) for number, each in enumerate(candidates, start=1)]
        heads = ("", "", *_SIZES, "micro batch", "recompute", "GiB", "s/step", "MFU")
        return table("Candidates, the fastest first", heads, rows)
    if found.state != "done":
        return None
    counts = [f"{found.progress['too_big']:,} out of memory"] if found.progress["too_big"] else []
    counts += [f"{count:,} by {rule}" for rule, count in list(found.progress["refused"].items())[:6]]
    return html.P(f"No layout fits. Rejected: {', '.join(counts) or 'none'}")


def _row(candidate: dict[str, Any], number: int) -> Sequence[Any]:
    words = [f"{path}={override_text(value)}" for path, value in candidate["overrides"].items()]
    what = " ".join(words) or "the job's own layout"
    return (
        str(number),
        # Before the figures: at the end it is beyond the edge of a window of 1,280 pixels.
        button("Apply", words, f"candidate{number}", title=what[:500], disabled=not words),
        *(str(candidate[name]) for name in _SIZES),
        str(candidate["micro_batch_size"]),
        candidate["recompute"],
        f"{candidate['peak_reserved'] / GIB:.1f}",
        f"{candidate['step_s']:.4g}",
        f"{100 * candidate['mfu']:.1f} %",
    )
