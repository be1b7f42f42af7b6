"""What a stream can show: colours and redrawn lines only on a terminal that understands and wants them."""

import os
from typing import TextIO


def has_colour(stream: TextIO) -> bool:
    """Tell whether to colour text (https://no-color.org: any value but the empty one says no)."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def can_redraw(stream: TextIO) -> bool:
    """Tell whether a line can be drawn over: a terminal, and not one that knows no control sequences."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"
