"""Text output of `launch parity`: whether it is one training, each side, and the iterations."""

from collections.abc import Iterator

from launcher.parity.compare import QUANTITIES, Compared, finite
from launcher.parity.compare import table as rows_of
from launcher.parity.request import Result
from launcher.parity.routing import AGAIN
from launcher.report.text_page import Page
from launcher.report.text_table import table


def screen(result: Result, page: Page) -> Iterator[str]:
    """Yield the answer, what is known of each side, and loss and gradient norm of each iteration."""
    yield _answer(result, page)
    for line in _sides(result):
        text = line.lstrip(" ")
        indent = line[: len(line) - len(text)]
        yield from page.wrap(text, indent, f"{indent}  ")
    heading, *rows = rows_of(result.trained)
    for side in result.trained:
        heading = [title.replace(f"{side.label} ", f"{side.label}\n", 1) for title in heading]
    if rows:
        yield ""
        yield from table(page, rows, heading, right=range(len(heading)))
        yield ""
    yield f"details: {result.folder / 'parity.json'}"


def _answer(result: Result, page: Page) -> str:
    if result.agrees:
        return page.paint("the same training", "ok")
    failed = bool(result.trained[0].problem) or any(each.problem for each in result.compared)
    return page.paint("not compared in full" if failed else "not the same training", "error")


def _sides(result: Result) -> Iterator[str]:
    first = result.trained[0]
    if first.problem:
        yield f"{first.label} failed: {first.problem} (log: {first.log})"
    if result.reordered is not None and result.spread_problem:
        yield (
            f"the spread of {first.label} is not known, so rounding alone is allowed: its second run failed: "
            f"{result.spread_problem} (log: {result.reordered.log})"
        )
    for each in result.compared:
        yield _verdict(each, result)
        for line in _routing(each, result):
            yield f"  {line}"
        if each.label in result.parameters:
            yield f"  {result.parameters[each.label].line()}"
        if each.label in result.located:
            for line in result.located[each.label].lines():
                yield f"  {line}"


def _routing(each: Compared, result: Result) -> Iterator[str]:
    """Yield the routing flips of a side, and of the reference itself when its sums are in another order."""
    flips, spread = result.routing.get(each.label), result.routing.get(AGAIN)
    if flips is not None and not each.problem:
        own = f"; {result.trained[0].label} again: {spread.counted}" if spread is not None and spread.counts else ""
        yield flips.line() + own


def _verdict(each: Compared, result: Result) -> str:
    reference = result.trained[0].label
    side = next(one for one in result.trained if one.label == each.label)
    if each.problem:
        return f"{each.label} {'failed' if side.problem else 'not compared'}: {each.problem} (log: {side.log})"
    sizes = ", ".join(
        f"{QUANTITIES[name]} {value:.1e}" if finite(value) is not None else f"{QUANTITIES[name]} not reported"
        for name, value in each.largest.items()
    )
    if each.agrees:
        return f"{each.label} agrees with {reference}: largest relative difference of {sizes}"
    part = each.first
    assert part is not None
    return (
        f"{each.label} differs from {reference} at iteration {part.iteration}: {QUANTITIES[part.quantity]} "
        f"{part.value:.9g} against {part.reference:.9g}, relative difference {part.relative:.1e}, "
        f"tolerance {part.tolerance:.1e}"
    )
