"""Capabilities of an output stream: colours and redrawn lines, only on terminals that support them."""

import os
from typing import TextIO


def has_colour(stream: TextIO) -> bool:
    """Return whether to colour text (https://no-color.org: any non-empty value disables colours)."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def can_redraw(stream: TextIO) -> bool:
    """Return whether a line can be redrawn: the stream is a terminal that supports control sequences."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
