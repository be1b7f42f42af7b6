"""`launch diff`: one job on several backends or versions, side by side after each one's own defaults."""

import sys

from launcher.cli.options import composed, guarded, parse, parser, print_json
from launcher.job import field_at, field_paths
from launcher.translate.backend import Backend, UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.translate.effects import NONE, Effect, effects


def main(words: list[str]) -> int:
    """Show what differs, training-relevant fields first; exit 0 if nothing does, 1 if something does."""
    made = parser(
        "diff",
        "Compare what a job means on backends or versions, after each one's own defaults.",
        "launch diff +recipe=qwen3_moe --backends megatron,mindspeed\n"
        "  launch diff +recipe=qwen2_5_7b_sft --backends megatron@3.5,megatron@4.6",
    )
    made.add_argument(
        "--backends", required=True, metavar="A,B[,C]", help="names, each with @VERSION if not the newest"
    )
    options = parse(made, words)

    def body() -> int:
        sides = [_side(text.strip()) for text in options.backends.split(",")]
        wrong = [side for side in sides if isinstance(side, str)]
        if wrong or len(sides) < 2:
            for message in wrong or ["--backends needs at least two names"]:
                print(f"launch diff: {message}; works: {' · '.join(backend_names())}", file=sys.stderr)
            return 2
        job = composed(options)
        columns = {
            f"{backend.name} {version}": effects(job, backend, version)
            for backend, version in (side for side in sides if not isinstance(side, str))
        }
        rows = _different(columns)
        if options.json:
            print_json({"same": not rows, "differences": [_tree(path, columns) for path in rows]})
        else:
            _show(rows, columns)
        return 1 if rows else 0

    return guarded(body, as_json=options.json)


def _side(text: str) -> tuple[Backend, str] | str:
    name, _, version = text.partition("@")
    try:
        backend = get_backend(name)
        return backend, backend.version(version or None)
    except UnknownBackend:
        return f"no backend {name!r}"
    except UnknownVersion as error:
        return str(error)


def _different(columns: dict[str, dict[str, Effect]]) -> list[str]:
    """Fields whose known values differ, those that change training first.

    Where a backend writes nothing and its parser has no default, what it does is decided elsewhere (config.json, the
    model class): unknown is not different.
    """
    paths = []
    for path in field_paths():
        known = [
            each[path] for each in columns.values() if each[path].how != NONE and each[path].value not in (None, ())
        ]
        if len({_text(effect) for effect in known}) > 1:
            paths.append(path)
    return sorted(paths, key=lambda path: not field_at(path).meta.trains)


def _text(effect: Effect) -> str:
    value = effect.value
    if value in (None, ()):
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _tree(path: str, columns: dict[str, dict[str, Effect]]) -> dict[str, object]:
    values = {name: {"value": column[path].value, "how": column[path].how} for name, column in columns.items()}
    return {"field": path, "changes_training": field_at(path).meta.trains, "values": values}


def _show(rows: list[str], columns: dict[str, dict[str, Effect]]) -> None:
    if not rows:
        print("the same on " + " and ".join(columns))
        return
    table = [["field", *columns]]
    for path in rows:
        name = path + (" *" if field_at(path).meta.trains else "")
        cells = [f"{_text(column[path])} ({column[path].how})" for column in columns.values()]
        table.append([name, *cells])
    widths = [min(48, max(len(row[index]) for row in table)) for index in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("* changes training")
