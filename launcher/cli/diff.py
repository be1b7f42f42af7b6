"""`launch diff`: compares files and jobs, or one job on several backends, after each backend's own defaults."""

import sys
from collections.abc import Iterator, Sequence

from launcher.cli.also_refused import note_refused
from launcher.cli.diff_columns import sides, sorted_words
from launcher.cli.notes import printable
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import WrongUse
from launcher.importing.side_by_side import Row, Side, is_empty, legend, side_by_side, text
from launcher.job.finding import Finding
from launcher.report.text_page import Page, page_of
from launcher.report.text_table import table
from launcher.rules.computations import computed_differently
from launcher.rules.effects import DEFAULT, WRITTEN
from launcher.syntax import escaped
from launcher.terminal import counted

_EXAMPLES = """\
launch diff old.sh new.sh
  launch diff job.yaml train.sh batch.global_batch_size=256
  launch diff +recipe=qwen3_moe --backends {cuda},{npu}
  launch diff old.sh --backends {cuda}@{old},{cuda}@{new}"""


def main(words: list[str]) -> int:
    """Show differences, those that affect training first; exit 0 if there are none, 1 if there are, 2 for mistakes."""
    made = parser(
        "diff",
        "Compare the values of jobs, with each backend's own defaults: two or more files (scripts, configurations, job "
        "files), +job= or +recipe=, each on its own backend; or one of them on several backends. Overrides change all.",
        _EXAMPLES,
    )
    made.add_argument(
        "--backends", metavar="A,B[,C]", help="names, each with @VERSION if not the newest; for several jobs, one each"
    )
    made.add_argument("--set", action="append", default=[], metavar="VAR=VALUE", help="value of a shell variable")
    made.add_argument("--partial", action="store_true", help="compare what can be read despite errors")
    options = parse(made, words)

    wrong = next((pair for pair in options.set if "=" not in pair), None)
    if wrong is not None:
        raise WrongUse(f"--set takes VARIABLE=VALUE, got {wrong!r}")
    columns = sides(sorted_words(options.overrides, options.backends), options)
    rows = side_by_side(columns)
    computed = list(computed_differently([side.meaning.effective for side in columns]))
    if options.json:
        print_json(_tree(rows, computed, columns))
    else:
        print("\n".join(_lines(rows, computed, columns, page_of(sys.stdout))))
        note_refused("diff", {side.label: list(side.refused_by) for side in columns})
    return 1 if rows or computed else 0


def _tree(rows: Sequence[Row], computed: Sequence[Finding], columns: Sequence[Side]) -> dict[str, object]:
    return {
        "same": not (rows or computed),
        "sides": [
            {
                "name": side.label,
                "backend": side.kind[0],
                "version": side.kind[1],
                "refused_by": list(side.refused_by),
            }
            for side in columns
        ],
        "differences": [
            {
                "field": row.path,
                "changes_training": row.affects_training,
                "does": row.does or None,
                "values": {
                    side.label: {"value": effect.value, "how": effect.how}
                    for side, effect in zip(columns, row.effects, strict=True)
                },
            }
            for row in rows
        ],
        "computed_differently": [finding.as_tree() for finding in computed],
    }


def _lines(rows: Sequence[Row], computed: Sequence[Finding], columns: Sequence[Side], page: Page) -> Iterator[str]:
    """Yield the answer, what is compared, the differing values side by side, and what is computed differently."""
    several_jobs = len({side.job_id for side in columns}) > 1
    yield from page.wrap(_answer(rows, computed, columns, several_jobs), "", "  ")
    for side in columns if several_jobs else ():
        yield from page.wrap(printable(side.about), "", "  ")
    if rows:
        yield ""
        yield from _fields(rows, columns, page)
    for finding in computed:
        works = f"; the same with {' or '.join(map(str, finding.fixes))}" if finding.fixes else ""
        yield from page.wrap(printable(f"{finding.message}{works}  [{finding.source}]"), "", "  ")


def _answer(rows: Sequence[Row], computed: Sequence[Finding], columns: Sequence[Side], several_jobs: bool) -> str:
    if not rows and not computed:
        return ("the same: " if several_jobs else "the same on ") + " and ".join(side.label for side in columns)
    training = sum(row.affects_training is True for row in rows)
    unknown = sum(row.affects_training is None for row in rows)
    effects = [f"{training} of them change{'s' * (training == 1)} training" if training else "none changes training"]
    effects += [f"{unknown} of unknown effect"] if unknown else []
    parts = [f"{counted(len(rows), 'value')}, {', '.join(effects)}"] if rows else []
    parts += [f"{counted(len(computed), 'value')} computed differently"] if computed else []
    return f"different: {'; '.join(parts)}"


def _fields(rows: Sequence[Row], columns: Sequence[Side], page: Page) -> Iterator[str]:
    cells = []
    for row in rows:
        cells.append([escaped(row.marked), *(escaped(_cell(effect.value, effect.how)) for effect in row.effects)])
    yield from table(page, cells, ["field", *(escaped(side.label) for side in columns)])
    yield from page.join(_legend(rows), "", "  ")
    for row in rows:
        if row.does:
            yield from page.wrap(printable(f"{row.path}: {row.does}"), "", "  ")


def _legend(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what the marks of the table mean."""
    yield from legend(rows)
    if any(effect.how == DEFAULT and not is_empty(effect.value) for row in rows for effect in row.effects):
        yield f"(default) {DEFAULT}"


def _cell(value: object, how: str) -> str:
    """Return a value, and where it comes from unless it is written."""
    if how == WRITTEN or (is_empty(value) and how == DEFAULT):
        return text(value)
    return f"{text(value)} ({'default' if how == DEFAULT else how})"
