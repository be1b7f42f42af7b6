"""`launch diff`: compares files and jobs, or one job on several backends, after each backend's own defaults."""

from collections.abc import Sequence

from launcher.cli.diff_columns import sides, sorted_words
from launcher.cli.notes import printable
from launcher.cli.options import parse, parser, print_json
from launcher.cli.refusal import WrongUse
from launcher.importing.side_by_side import Row, Side, is_empty, side_by_side, text
from launcher.job.finding import Finding
from launcher.rules.computations import computed_differently
from launcher.rules.effects import DEFAULT, WRITTEN

_EXAMPLES = """\
launch diff old.sh new.sh
  launch diff job.yaml train.sh batch.global_batch_size=256
  launch diff +recipe=qwen3_moe --backends {cuda},{npu}
  launch diff old.sh --backends {cuda}@{old},{cuda}@{new}"""
_WIDEST = 44


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
        _show(rows, computed, columns)
    return 1 if rows or computed else 0


def _tree(rows: Sequence[Row], computed: Sequence[Finding], columns: Sequence[Side]) -> dict[str, object]:
    return {
        "same": not (rows or computed),
        "sides": [{"name": side.label, "backend": side.kind[0], "version": side.kind[1]} for side in columns],
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


def _show(rows: Sequence[Row], computed: Sequence[Finding], columns: Sequence[Side]) -> None:
    several_jobs = len({side.job_id for side in columns}) > 1
    for side in columns if several_jobs else ():
        print(f"# {side.about}")
    if not rows and not computed:
        print(("the same: " if several_jobs else "the same on ") + " and ".join(side.label for side in columns))
        return
    if rows:
        _show_fields(rows, columns)
    for finding in computed:
        works = f"; the same with {' or '.join(map(str, finding.fixes))}" if finding.fixes else ""
        print(printable(f"{finding.message}{works}  [{finding.source}]"))


def _show_fields(rows: Sequence[Row], columns: Sequence[Side]) -> None:
    table = [["field", *(side.label for side in columns)]]
    for row in rows:
        mark = {True: " *", None: " ?", False: ""}[row.affects_training]
        table.append([row.path + mark, *(_cell(effect.value, effect.how) for effect in row.effects)])
    widths = [max(len(line[index]) for line in table) for index in range(len(table[0]))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for row in rows:
        if row.does:
            print(f"{row.path}: {row.does}")
    unknown = " · ? unknown effect" if any(row.affects_training is None for row in rows) else ""
    print(f"* changes training{unknown}")


def _cell(value: object, how: str) -> str:
    shown = text(value)
    if len(shown) > _WIDEST:
        shown = shown[: _WIDEST - 1] + "…"
    return shown if is_empty(value) and how in (WRITTEN, DEFAULT) else f"{shown} ({how})"
