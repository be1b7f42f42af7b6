"""Tables of the page: scrollable, with a caption for screen readers."""

from collections.abc import Sequence
from typing import Any

from dash import html


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], *, most: int = 400) -> html.Div:
    """Return a table; of more than `most` rows the first, and how many are left out."""
    head = html.Thead(html.Tr([html.Th(name, scope="col") for name in heads]))
    body = html.Tbody([html.Tr([html.Td(cell) for cell in row]) for row in rows[:most]])
    more = [html.P(f"… and {len(rows) - most:,} more", className="quiet")] if len(rows) > most else []
    # A scrolling part must be reachable by keyboard.
    return html.Div([html.Table([html.Caption(caption), head, body]), *more], className="scroll", tabIndex=0)


def code(text: str) -> html.Code:
    """Return text as code; long values are cut, whole as a tooltip."""
    return html.Code(text) if len(text) <= 80 else html.Code(f"{text[:79]}…", title=text[:2000])
