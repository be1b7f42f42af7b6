"""Capabilities of an output stream (colours, redrawn lines), and durations, numbers and lists of things as text."""

import os
import re
from collections.abc import Sequence
from typing import TextIO

# Colours, and control characters other than tab, line feed and carriage return, which redraws a line of progress.
_COLOUR_OR_CONTROL = re.compile(r"\x1b\[[\d;]*m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def has_colour(stream: TextIO) -> bool:
    """Return whether to colour text (https://no-color.org: any non-empty value disables colours)."""
    return can_redraw(stream) and not os.environ.get("NO_COLOR")


def can_redraw(stream: TextIO) -> bool:
    """Return whether a line can be redrawn: the stream is a terminal that supports control sequences."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def harmless(text: str) -> str:
    """Return text of a file for a terminal: colours are kept, other control characters are written as \\x1b.

    A terminal would obey them: set its title, fill the clipboard, move the cursor to what is already shown.
    """
    return _COLOUR_OR_CONTROL.sub(lambda found: found[0] if len(found[0]) > 1 else ascii(found[0])[1:-1], text)


def duration(seconds: float) -> str:
    """Return a duration for people: 42 s, 3 min 05 s, 2 h 10 min, 3 d 4 h."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < 172800:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 device, 8 devices."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def parameters(number: int) -> str:
    """Return a number of parameters: 30.53 B, 0.87 M."""
    return f"{number / 1e9:.2f} B" if number >= 1e8 else f"{number / 1e6:.2f} M"


def with_verb(names: Sequence[str], one: str, several: str) -> str:
    """Return names as the subject of a verb: a has, a, b have."""
    return f"{', '.join(names)} {one if len(names) == 1 else several}"


def machines(nodes: int, devices: int) -> str:
    """Return the size of a cluster: 2 nodes x 8 devices."""
    return f"{counted(nodes, 'node')} x {counted(devices, 'device')}"
