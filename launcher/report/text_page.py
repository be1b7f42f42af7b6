"""Text for a terminal: its width, lines that are wrapped to it, and colours by meaning.

Not rich: importing its console takes 20 to 45 ms of CPU in each command, and wrapping at blanks is all that is needed.
"""

import os
import shutil
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

from launcher.records import dataclass
from launcher.terminal import harmless, has_colour

# Narrower terminals are written as if they had this width.
_NARROWEST = 40
_CODES = {"error": "31", "warning": "33", "change": "36", "note": "36", "ok": "32", "dim": "2", "bold": "1"}
_JOINT = "\u00a0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where text is written.

    Attributes:
        width: columns; None: lines are not wrapped (a pipe or file, which programs such as grep read by lines).
        colour: whether text is coloured.
    """

    width: int | None = None
    colour: bool = False

    def paint(self, text: str, meaning: str) -> str:
        """Return a text in the colour of a meaning: error, warning, change, note, ok, dim or bold."""
        return f"\x1b[{_CODES[meaning]}m{text}\x1b[0m" if self.colour and text else text

    def wrap(self, text: str, first: str = "", rest: str | None = None) -> list[str]:
        """Return a text as lines.

        Args:
            first: put before the first line.
            rest: put before the others; None: blanks, as wide as `first`.
        """
        rest = " " * cells(first) if rest is None else rest
        if self.width is None:
            return [f"{first}{text}".rstrip()]
        lines, line, used = [], first, cells(first)
        at_start = True
        for word in text.split(" "):
            size = cells(word)
            too_wide = used + size + (not at_start) > self.width
            if too_wide and (not at_start or (line == first and first.strip() and cells(rest) + size <= self.width)):
                lines.append(line.rstrip())
                line, used, at_start = rest, cells(rest), True
            line += word if at_start else f" {word}"
            used += size + (not at_start)
            at_start = False
        return [each.replace(_JOINT, " ") for each in (*lines, line.rstrip())]

    def join(self, items: Iterable[str], first: str = "", rest: str | None = None, *, sign: str = " · ") -> list[str]:
        """Return items as lines that break between items only."""
        room = 0 if self.width is None else self.width - cells(first if rest is None else rest)
        text = sign.join(item.replace(" ", _JOINT) if cells(item) <= room else item for item in items)
        return [line.replace(_JOINT, " ") for line in self.wrap(text, first, rest)]

    def clip(self, text: str) -> str:
        """Return a text cut to one line; its end then is `…`."""
        if self.width is None or cells(text) <= self.width:
            return text
        while cells(text) >= self.width:
            text = text[: min(len(text) - 1, self.width)]
        return f"{text.rstrip()}…"

    def wrapped(self, lines: Iterable[str]) -> list[str]:
        """Return lines wrapped as their blanks indent them; those of alternatives (works: a · b) between these."""
        found: list[str] = []
        for line in lines:
            text = line.lstrip(" ")
            indent = line[: len(line) - len(text)]
            head, sign, rest = text.partition("works: ")
            if sign and not head:
                found += self.join(rest.split(" · "), f"{indent}works: ", f"{indent}  ")
            else:
                found += self.wrap(text, indent, f"{indent}  ")
        return found

    def pairs(self, rows: Sequence[tuple[str, str]], indent: str = "  ", *, widest: int | None = None) -> list[str]:
        """Return rows of two columns; the second is wrapped in its column, or below a name that leaves no room for it.

        Args:
            widest: wider names do not widen their column; None: 44 characters, at most half a page.
        """
        if widest is None:
            widest = 44 if self.width is None else max(16, min(44, self.width // 2))
        column = max((cells(name) for name, _ in rows if cells(name) <= widest), default=0)
        lines = []
        for name, value in rows:
            head = f"{indent}{name}{' ' * (column - cells(name))}  "
            rest = " " * (len(indent) + column + 2)
            if self.width is not None and max(map(cells, value.split(" "))) > self.width - len(rest):
                rest = f"{indent}    "
            lines += self.wrap(value, head, rest)
        return lines


def page_of(stream: TextIO) -> Page:
    """Return the page of a stream: COLUMNS if it is set, else the terminal's width."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given):
        width: int | None = int(given)
    else:
        width = shutil.get_terminal_size().columns if stream.isatty() else None
    return Page(width=None if width is None else max(_NARROWEST, width), colour=has_colour(stream))


def print_lines(lines: Iterable[str], stream: TextIO) -> None:
    """Print lines, wrapped to the page of a stream."""
    shown = map(harmless, lines) if stream.isatty() else lines
    print("\n".join(page_of(stream).wrapped(shown)), file=stream, flush=True)


def redraw(text: str, stream: TextIO) -> None:
    """Write a line of progress over the one before; what a terminal has no columns for is left out, as it would scroll.

    Args:
        stream: a terminal on which lines can be redrawn (`can_redraw`).
    """
    columns = page_of(stream).width or len(text)
    stream.write(f"\r\x1b[K{text[: columns - 1]}")
    stream.flush()


def cells(text: str) -> int:
    """Return the columns that a text takes in a terminal: two for wide (East Asian) characters."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )
