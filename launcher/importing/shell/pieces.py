"""Parts of a word after expansion, and bash's word splitting."""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a word. `splits`: white space in it separates words; `breaks`: a new word begins before it."""

    text: str
    splits: bool = False
    breaks: bool = False


def assembled(pieces: list[Piece], *, quoted: bool, ifs: str | None = None) -> list[str]:
    """Return the words that pieces form; an unquoted empty word is dropped.

    Args:
        ifs: separator characters; None: white space.
    """
    if ifs is not None:
        pieces = [each for piece in pieces for each in _separated(piece, ifs)]
    words: list[str] = []
    current: str | None = "" if quoted else None
    for piece in pieces:
        if piece.breaks:
            words += [] if current is None else [current]
            current = None
        if not piece.splits:
            current = (current or "") + piece.text
            continue
        parts = piece.text.split()
        if not piece.text:
            continue
        if piece.text[0].isspace() and current is not None:
            words.append(current)
            current = None
        for index, part in enumerate(parts):
            if index:
                words += [] if current is None else [current]
                current = None
            current = (current or "") + part
        if piece.text[-1].isspace() and current is not None:
            words.append(current)
            current = None
    return words if current is None else [*words, current]


def _separated(piece: Piece, ifs: str) -> Iterator[Piece]:
    """Yield a piece that splits at characters other than white space as pieces that do not split."""
    if not piece.splits or not piece.text:
        yield piece if not piece.splits else Piece("", splits=True, breaks=piece.breaks)
        return
    parts = re.split(f"[{re.escape(ifs)}]", piece.text) if ifs else [piece.text]
    parts = parts[:-1] if len(parts) > 1 and not parts[-1] else parts
    for index, part in enumerate(parts):
        yield Piece(part, breaks=piece.breaks or index > 0)
