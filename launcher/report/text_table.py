"""Tables as text: aligned columns where the page has room for them, else the cells of a row below each other.

Not rich's tables: in a narrow terminal they shorten names and paths in the middle of a word (`parallel.expert_te…`), or
break them, so that they can be neither copied nor searched for; and in a pipe a row is several lines.
"""

from collections.abc import Collection, Sequence

from launcher.report.text_page import Page, cells

# Longer cells shift the rest of their line in a pipe; on a page they are never cut either.
_WIDEST = 44
# Where fewer rows than this share fit the columns, no row is written in columns: one layout is easier to read than two.
_ALIGNED = 0.6
_GAP = 2

Row = Sequence[str]


def table(
    page: Page,
    rows: Sequence[Row],
    heading: Row = (),
    *,
    right: Collection[int] = (),
    indent: str = "",
    dim_last: bool = False,
) -> list[str]:
    """Return rows as lines, no text of which is left out.

    Args:
        rows: cells without line breaks and control characters; as many in each.
        heading: titles of the columns, in several lines where the page is narrow, first at line breaks; (): none.
        right: columns that are aligned to the right, as numbers are.
        dim_last: paint the last column dim.
    """
    layout = _Layout(page, heading, frozenset(right), indent, dim_last)
    whole = [*([layout.joined] if heading else []), *rows]
    if not whole:
        return []
    widths = [max(cells(row[column]) for row in whole) for column in range(len(whole[0]))]
    if page.width is None:
        return layout.lines(rows, [min(width, _WIDEST) for width in widths], _GAP)
    room = page.width - len(indent)
    if _total(widths, _GAP) <= room:
        return layout.lines(rows, widths, _GAP)
    sizes = [max((cells(row[column]) for row in rows), default=0) for column in range(len(widths))]
    for sign in ("\n", None):  # titles in their own lines, then in as many as they have words
        least = [max(map(cells, title.split(sign)), default=0) for title in heading] or [0] * len(widths)
        bodies = list(map(max, least, sizes))
        if _total(bodies, _GAP) <= room:
            return layout.lines(rows, bodies, _GAP)
    if right and _total(bodies, 1) <= room:
        return layout.lines(rows, bodies, 1)
    return layout.lines(rows, _narrowed(rows, bodies, least, room), _GAP)


def _wrapped(text: str, width: int, page: Page) -> list[str]:
    return [text] if page.width is None else Page(width=width).wrap(text)


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _narrowed(rows: Sequence[Row], widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths that fit the page, with the fewest rows that do not fit them; all 0: too few rows would."""
    widths, left = list(widths), list(rows)
    while _total(widths, _GAP) > room:
        options: list[tuple[float, int, int, list[Row]]] = []
        for column, width in enumerate(widths):
            rest = [row for row in left if cells(row[column]) < width]
            narrower = max([least[column], *(cells(row[column]) for row in rest)])
            if rest and narrower < width:
                # Saved for each row that then no longer fits; none does where it did not fit another column before.
                saved = (width - narrower) / max(len(left) - len(rest), 0.1)
                options.append((saved, column, narrower, rest))
        if not options:
            return [0] * len(widths)
        _, column, widths[column], left = max(options, key=lambda option: option[:2])
    return widths if len(left) >= _ALIGNED * len(rows) else [0] * len(widths)


class _Layout:
    def __init__(self, page: Page, heading: Row, right: frozenset[int], indent: str, dim_last: bool) -> None:
        self.page, self.heading, self.right, self.indent, self.dim_last = page, heading, right, indent, dim_last

    @property
    def joined(self) -> list[str]:
        """Return the titles, in one line each."""
        return [title.replace("\n", " ") for title in self.heading]

    def lines(self, rows: Sequence[Row], widths: Sequence[int], gap: int) -> list[str]:
        """Return heading and rows; a row with a cell that is wider than its column is stacked."""
        stacked_all = not any(widths)
        lines = [] if stacked_all or not self.heading else self._titles(widths, gap)
        for row in rows:
            fits = all(cells(cell) <= width for cell, width in zip(row, widths, strict=True))
            if stacked_all or (not fits and self.page.width is not None):
                lines += self._stacked(row, widths[0])
            else:
                lines.append(self._line(row, widths, gap))
        return lines

    def _line(self, row: Row, widths: Sequence[int], gap: int, *, body: bool = True) -> str:
        parts = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - cells(cell))
            is_last = column == len(row) - 1
            text = self.page.paint(cell, "dim") if body and is_last and self.dim_last else cell
            parts.append(blanks + text if column in self.right else text + ("" if is_last else blanks))
        return (self.indent + (" " * gap).join(parts)).rstrip()

    def _titles(self, widths: Sequence[int], gap: int) -> list[str]:
        """Return the heading, in as many lines as its narrowest column needs; the last words are next to the rows."""
        titles = []
        for title, joined, width in zip(self.heading, self.joined, widths, strict=True):
            parts = [joined] if self.page.width is None or cells(joined) <= width else title.split("\n")
            titles.append([line for part in parts for line in _wrapped(part, width, self.page)])
        height = max(map(len, titles))
        filled = [[""] * (height - len(title)) + title for title in titles]
        rows = zip(*filled, strict=True)
        return [self.page.paint(self._line(row, widths, gap, body=False), "bold") for row in rows]

    def _stacked(self, row: Row, first: int) -> list[str]:
        """Return the cells of a row below each other, with their titles; without any, the last below the rest."""
        page, further = self.page, f"{self.indent}    "
        if self.heading:
            pairs = [(title, cell) for title, cell in zip(self.joined[1:], row[1:], strict=True) if cell]
            return [*page.wrap(row[0], self.indent, further), *page.pairs(pairs, f"{self.indent}  ")]
        head, body = self.indent, "  ".join(row[:-1])
        if cells(row[0]) <= first:  # the first column goes on through the rows that do not fit
            head, body = f"{head}{row[0]}{' ' * (first - cells(row[0]) + _GAP)}", "  ".join(row[1:-1])
            further = " " * cells(head)
        lines = page.wrap(body, head, further)
        last = page.wrap(row[-1], f"{further}  ")
        return lines + [page.paint(text, "dim") if self.dim_last else text for text in last]
