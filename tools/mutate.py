"""Do the tests notice when a rule, a mapping row or a converter is wrong? Small faults, one at a time, on a copy.

    python -m tools.mutate [--count 30] [--seed N] [--slow] [--keep FILE.json]

Each fault flips a comparison, swaps `and` and `or`, drops a `not`, moves a number by one, or drops an entry of a table
with two or more. The tests of the changed part run on a copy of the working tree (git's files) until one fails; --slow
adds the slow ones where the others let a fault pass. Prints a row a fault. Exit code 1 if a fault was not noticed.

mutmut and cosmic-ray were looked at: both run one test command for every fault (the whole suite, minutes each) and
neither drops rows of tables, which is where most of this project's facts are.
"""

import argparse
import ast
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = {
    "rules": ("launcher/rules/*.py", "backends/*/rules*.py"),
    "rows": ("backends/*/mapping*.py",),
    "converters": ("launcher/convert/**/*.py", "backends/*/checkpoint*.py"),
}
COMPARISONS = {
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A change of one file: the characters from `start` to `end` become `text`."""

    part: str
    file: str
    line: int
    start: int
    end: int
    text: str
    shown: str


def main() -> int:
    """Try the faults; return 1 if one was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=30, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--slow", action="store_true", help="ask the slow tests too before a fault counts as missed")
    parser.add_argument("--keep", type=Path, metavar="FILE.json", help="write the faults and what noticed them")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    drawn = []
    for number in range(options.count):
        part = list(PARTS)[number % len(PARTS)]
        files = sorted({path for pattern in PARTS[part] for path in ROOT.glob(pattern)})
        found = [fault for path in files for fault in faults(part, path)]
        drawn.append(chance.choice(found))
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "copy"
        listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        results = []
        for fault in drawn:
            noticed = try_one(fault, copy, slow=options.slow)
            results.append(asdict(fault) | {"noticed": noticed})
            print(f"{noticed or 'NOT NOTICED':60.60} {fault.file}:{fault.line}: {fault.shown}", flush=True)
    missed = sum(not result["noticed"] for result in results)
    print(f"{len(results) - missed} of {len(results)} noticed")
    if options.keep:
        options.keep.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 1 if missed else 0


def faults(part: str, path: Path) -> Iterator[Fault]:
    """Return every fault that can be put into a file."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    raw = source.encode()

    def span(first: ast.AST, last: ast.AST) -> tuple[int, int]:
        begin = starts[first.lineno - 1] + first.col_offset  # type: ignore[attr-defined]
        return begin, starts[last.end_lineno - 1] + last.end_col_offset  # type: ignore[attr-defined]

    def made(first: ast.AST, last: ast.AST, text: str, shown: str) -> Fault:
        start, end = span(first, last)
        file = str(path.relative_to(ROOT))
        line: int = first.lineno  # type: ignore[attr-defined]
        return Fault(part=part, file=file, line=line, start=start, end=end, text=text, shown=shown)

    def text_of(node: ast.AST) -> str:
        start, end = span(node, node)
        return raw[start:end].decode()

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator = COMPARISONS[type(node.ops[0])]
            text = f"({text_of(node.left)}) {operator} ({text_of(node.comparators[0])})"
            yield made(node, node, text, f"{text_of(node)} -> {operator}")
        elif isinstance(node, ast.BoolOp):
            other = " or " if isinstance(node.op, ast.And) else " and "
            text = "(" + other.join(f"({text_of(value)})" for value in node.values) + ")"
            yield made(node, node, text, f"{text_of(node)} -> {other.strip()}")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield made(node, node, f"({text_of(node.operand)})", f"{text_of(node)} -> without not")
        elif isinstance(node, ast.Constant) and type(node.value) is int and 0 < node.value < 100:
            yield made(node, node, str(node.value + 1), f"{node.value} -> {node.value + 1}")
        elif part == "rows" and isinstance(node, ast.Tuple) and len(node.elts) > 1:
            for entry, after in zip(node.elts, [*node.elts[1:], None], strict=True):
                if isinstance(entry, ast.Call) and after is not None:
                    start, _ = span(entry, entry)
                    until, _ = span(after, after)
                    found = made(entry, entry, "", f"dropped {text_of(entry)}")
                    yield Fault(**{**asdict(found), "end": until, "start": start})


def tests_of(file: str) -> list[str]:
    """Return the test folders of a source file, its own first."""
    parts = Path(file).parts
    if parts[0] == "backends":
        own = "tests/backends/" + parts[1]
        converting = ["tests/convert"] if "checkpoint" in file else []
        return [own, *converting, "tests/backends", "tests/rules", "tests/importing"]
    return [f"tests/{parts[1]}", "tests/backends"]


def try_one(fault: Fault, copy: Path, *, slow: bool) -> str:
    """Return the test that notices a fault, or "" if none does."""
    path = copy / fault.file
    before = path.read_bytes()
    path.write_bytes(before[: fault.start] + fault.text.encode() + before[fault.end :])
    try:
        for marks in (["not slow"], ["slow"]) if slow else (["not slow"],):
            args = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "auto", "--dist", "loadgroup", "-m", *marks]
            for folder in tests_of(fault.file):
                done = subprocess.run([*args, folder], cwd=copy, capture_output=True, text=True, check=False)
                failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
                if done.returncode not in (0, 5):
                    return failed[0].split(" - ")[0].split(" ", 1)[1] if failed else "could not be collected"
    finally:
        path.write_bytes(before)
    return ""


if __name__ == "__main__":
    raise SystemExit(main())
