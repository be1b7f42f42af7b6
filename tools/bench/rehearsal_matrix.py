"""Trains layouts and recipes on the real megatron-core, on CPU, and compares each layout with one process.

    python -m tools.bench.rehearsal_matrix [--only TEXT] [--part layouts|drawn|recipes] [--drawn N] [--seed N]
                                           [--state FILE] [--markdown] [--docs]

Each job goes through `launch check` first: a refused one must have a reason, an accepted one is rehearsed. Losses and
gradient norms of a layout are compared with those of one process (tolerances: rehearsal_runs.py); the layouts are data
in rehearsal_layouts.py, with what is expected of each, and `drawn` ones are taken at random from their values. Recipes
are shrunken and trained; those that the embedded trainer refuses by the backend itself, where it is installed here.
Goes on where it was stopped. Exit code 1 if an accepted job fails or differs, or a layout is not what is expected.
"""

import argparse
import datetime
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from tests.rehearse.core.core_world import Zygote
from tools.bench.rehearsal_layouts import KINDS, LAYOUTS, SIZE, Layout, drawn
from tools.bench.rehearsal_recipes import ITERATIONS, recipes, rehearsed
from tools.bench.rehearsal_runs import (
    BAD,
    DIFFERS,
    EQUAL,
    FAILED,
    NOT_REHEARSED,
    REFUSED,
    TRAINED,
    WARNED,
    WARNINGS,
    Rehearsals,
    Result,
    as_result,
)
from tools.resumable import ROOT, commit, digest, load, save, state_file

STATE = state_file("rehearsal_matrix")
PAGE = ROOT / "docs" / "rehearsal.md"
PROGRAM = ("launcher", "backends", "conf", "recipes")
"""What decides the results, beside the jobs: other changes of the sources do not forget them."""
PARTS = ("layouts", "drawn", "recipes")
MARKS = {part: (f"<!-- {part}: begin -->", f"<!-- {part}: end -->") for part in PARTS}


def cases() -> Iterator[tuple[str, Layout]]:
    """Yield every kind and layout of the matrix."""
    for layout in LAYOUTS:
        for kind in KINDS:
            if kind in layout.on or kind in layout.refused:
                yield kind, layout


def expected(kind: str, layout: Layout, result: Result) -> bool:
    """Return whether a layout of the matrix became what its row says."""
    if kind in layout.refused:
        return result.verdict == REFUSED and bool(result.seen)
    if layout.differs:
        return result.verdict == (WARNED if layout.differs in WARNINGS else DIFFERS)
    return result.verdict in (EQUAL, NOT_REHEARSED)


def main() -> int:
    """Run what is left, print a line for each and the tables; return the exit code."""
    options = _options()
    sources = f"{digest(*PROGRAM)} {SIZE} {sorted(KINDS.items())}"
    known = load(options.state, sources, as_result)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder, Zygote(Path(folder)) as zygote:
        rehearsals = Rehearsals(zygote, Path(folder))
        for key, fits, run in _steps(options, rehearsals):
            if options.only not in key:
                continue
            if key not in known or known[key].verdict in BAD:
                known[key] = run()
                save(options.state, sources, known)
            good = fits(known[key])
            bad += not good
            print(f"{'' if good else 'NOT EXPECTED  '}{key}: {_shown(known[key])}", flush=True)
    tables = {"layouts": layout_table, "drawn": drawn_line, "recipes": recipe_tables}
    text = {part: "\n".join(table(known)) for part, table in tables.items()}
    if options.markdown:
        print("\n\n".join(text.values()))
    if options.docs:
        write_tables({part: table for part, table in text.items() if part in options.part and table})
    return int(bad > 0)


def _steps(
    options: argparse.Namespace, rehearsals: Rehearsals
) -> Iterator[tuple[str, Callable[[Result], bool], Callable[[], Result]]]:
    """Yield what is to be tried: its key, what is expected of it, and the trial."""
    if "layouts" in options.part:
        for kind, layout in cases():
            fits = partial(expected, kind, layout)
            yield _key("layouts", kind, layout), fits, partial(rehearsals.compare, kind, layout)
    if "drawn" in options.part:
        for kind, layout in islice(drawn(options.seed), options.drawn):
            yield _key("drawn", kind, layout), _not_bad, partial(rehearsals.compare, kind, layout)
    if "recipes" in options.part:
        for name in recipes():
            yield f"recipes {name}", _not_bad, partial(rehearsed, name, rehearsals)


def _key(part: str, kind: str, layout: Layout) -> str:
    return f"{part} {kind}: {layout.name}"


def _not_bad(result: Result) -> bool:
    return result.verdict not in BAD


def _shown(result: Result) -> str:
    differences = "" if result.loss is None else f"; differs by {result.loss:.1e} in loss, {result.norm:.1e} in norm"
    return f"{result.verdict}: {result.seen[:200]}{differences}"


def layout_table(known: Mapping[str, Result]) -> Iterator[str]:
    """Yield the lines of the table of layouts."""
    found = {key: each for key, each in known.items() if key.startswith("layouts ")}
    if found:
        yield f"{_counted(found.values())} ({_measured()})."
        yield from ("", f"| layout | {' | '.join(KINDS)} |", f"|---|{'---|' * len(KINDS)}")
        for name, layout in {layout.name: layout for layout in LAYOUTS}.items():  # one name may be listed by kinds
            results = [found.get(_key("layouts", kind, layout)) for kind in KINDS]
            if any(results):
                yield f"| `{name}` | {' | '.join(map(_cell, results))} |"


def drawn_line(known: Mapping[str, Result]) -> Iterator[str]:
    """Yield the line of the layouts drawn at random."""
    draws = [each for key, each in known.items() if key.startswith("drawn ")]
    if draws:
        yield f"Layouts drawn at random: {_counted(draws)} ({_measured()})."


def recipe_tables(known: Mapping[str, Result]) -> Iterator[str]:
    """Yield the lines of the tables of recipes."""
    tried = {key.partition(" ")[2]: each for key, each in known.items() if key.startswith("recipes ")}
    if tried:
        yield from _recipes(tried)


def _measured() -> str:
    return f"{datetime.date.today().isoformat()}, {commit()}"


def _counted(results: Iterable[Result]) -> str:
    found = list(results)
    counts = Counter(each.verdict for each in found)
    losses = [each.loss for each in found if each.verdict == EQUAL and each.loss is not None]
    worst = f" (largest difference of a loss {max(losses):.0e})" if losses else ""
    parts = [f"{counts[EQUAL]} train like one process{worst}"]
    parts += [f"{counts[WARNED]} differ as a warning says"] if counts[WARNED] else []
    parts += [f"{counts[DIFFERS]} differ"] if counts[DIFFERS] else []
    parts += [f"{counts[verdict]} {verdict}" for verdict in (NOT_REHEARSED, FAILED) if counts[verdict]]
    accepted = len(found) - counts[REFUSED]
    return f"{len(found)} jobs, {counts[REFUSED]} refused by `launch check`; of {accepted} accepted {', '.join(parts)}"


def _cell(result: Result | None) -> str:
    if result is None:
        return ""
    if result.verdict == EQUAL:
        return f"{result.loss:.0e}" if result.loss else "0"
    return f"`{result.seen.partition(':')[0]}`" if result.verdict == REFUSED else f"**{result.verdict}**"


def _recipes(tried: Mapping[str, Result]) -> Iterator[str]:
    trained = {name: each for name, each in tried.items() if each.verdict == TRAINED}
    yield f"{len(trained)} of {len(tried)} recipes, shrunken, train {ITERATIONS} iterations here ({_measured()}):"
    yield from ("", "| recipe | trained by, loss |", "|---|---|")
    yield from (f"| `{name}` | {each.seen} |" for name, each in trained.items())
    others = [each for each in tried.items() if each[0] not in trained]
    yield from ("", "| recipe | why not |", "|---|---|") if others else ()
    yield from (f"| `{name}` | {each.verdict}: {_first(each.seen)} |" for name, each in others)


def _first(seen: str) -> str:
    return seen.partition(";")[0].replace("|", "\\|")[:200]


def write_tables(tables: Mapping[str, str]) -> None:
    """Replace these tables of the documentation, between their marks; the others stay with their own date."""
    text = PAGE.read_text(encoding="utf-8")
    for part, table in tables.items():
        begin, end = MARKS[part]
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only jobs whose key holds this")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part (default: all)")
    parser.add_argument("--drawn", type=int, default=60, metavar="N", help="layouts drawn at random")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the drawn layouts")
    parser.add_argument("--state", type=Path, default=STATE, metavar="FILE")
    parser.add_argument("--markdown", action="store_true", help="print the tables")
    parser.add_argument(
        "--docs", action="store_true", help=f"write the tables of the parts into {PAGE.relative_to(ROOT)}"
    )
    options = parser.parse_args()
    if options.docs and options.only:
        parser.error("--docs writes whole tables: it goes with --part, not with --only")
    options.part = options.part or PARTS
    return options


if __name__ == "__main__":
    sys.exit(main())
