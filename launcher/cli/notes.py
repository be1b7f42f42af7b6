"""Formats remarks about an imported file for a terminal."""

import sys
from typing import TextIO

from launcher.importing.notes import ImportRefused, Note
from launcher.report.text_page import page_of

MOST_NOTES = 20
_LONGEST = 400  # characters of a remark


def print_note(kind: str, note: Note, stream: TextIO | None = None) -> None:
    """Print a remark with its location and alternatives (default: to standard error)."""
    out = stream or sys.stderr
    page = page_of(out)
    first, *rest = page.wrapped(_note_lines(kind, note))
    print("\n".join([first.replace(kind, page.paint(kind, kind), 1), *rest]), file=out)


def print_remark(verb: str, text: str) -> None:
    """Print a remark of a verb about its options or files to standard error."""
    print("\n".join(page_of(sys.stderr).wrap(printable(f"launch {verb}: {text}"), "", "  ")), file=sys.stderr)


def _note_lines(kind: str, note: Note) -> list[str]:
    place = f"  ({note.where})" if note.where else ""
    lines = [printable(f"{kind}  {shortened(note.message, _LONGEST)}{place}")]
    lines += [printable(f"    {shortened(detail, _LONGEST)}") for detail in note.details]
    return [*lines, printable(f"  works: {' · '.join(note.works)}")] if note.works else lines


def printable(text: str) -> str:
    """Return a text on one line, with control characters escaped, since they could affect the terminal."""
    return text if text.isprintable() else "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shortened(text: str, longest: int) -> str:
    """Return a text with `…` in place of its middle if it is longer."""
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def refusal_lines(error: ImportRefused, *, with_partial: bool) -> tuple[str, ...]:
    """Return every reason of a refusal as text.

    Args:
        with_partial: the verb has `--partial`, which imports what can be read.
    """
    lines = [line for note in error.notes[:MOST_NOTES] for line in _note_lines("error", note)]
    if len(error.notes) > MOST_NOTES:
        lines.append(f"error  and {len(error.notes) - MOST_NOTES} more; --json lists all")
    if error.partial:
        lines.append(f"nothing is imported{'; --partial imports the rest' if with_partial else ''}")
    return tuple(lines)
