"""The table of a calibration, as wide as the page."""

from collections.abc import Iterator

from launcher.calibrate.calibrate import Calibration
from launcher.calibrate.fit import Row
from launcher.calibrate.write import conclusions
from launcher.report.text_page import Page


def screen(found: Calibration, page: Page) -> list[str]:
    """Return what was measured and estimated, and what follows from it, in lines."""
    return [*_table(found, page), "", *page.wrapped(conclusions(found))]


def _table(found: Calibration, page: Page) -> Iterator[str]:
    """Yield a row for each layout; where one would be wider than the page, the names are on lines of their own."""
    heads = f"{'step':>9} {'spread':>6} {'estimate':>9} {'':>6}  {'tensors':>9} {'estimate':>9}"
    rows = [(_kind(row), row.observation.name, _figures(row)) for row in found.fitted.rows]
    width = max(len(name) for _, name, _ in rows)
    if page.width is None or 12 + width + max(len(heads), *(len(text) for _, _, text in rows)) <= page.width:
        yield f"{'':9} {'layout':{width}}  {heads}"
        yield from (f"{kind:9} {name:{width}}  {text}" for kind, name, text in rows)
        return
    yield heads
    for kind, name, text in rows:
        yield from (*page.wrap(name, f"{kind}: ", "  "), text)


def _kind(row: Row) -> str:
    return "held out" if row.observation.held_out else "fitted"


def _figures(row: Row) -> str:
    one = row.observation
    times = f"{one.step_s * 1e3:6.1f} ms {one.spread:6.1%} {row.step_s * 1e3:6.1f} ms {row.time_error:+6.1%}"
    if one.peak_bytes is None:
        return f"{times}  {'–':>9}"
    return f"{times}  {one.peak_bytes / 2**20:5.0f} MiB {row.peak_bytes / 2**20:5.0f} MiB {row.memory_error:+6.1%}"
