"""Figures of the code base: files and lines by package, functions, complexity, imports, repetition.

    python -m tools.figures [--json]
    python -m tools.figures --before COMMIT      beside those of an earlier commit

Code lines are lines of the syntax tree without docstrings, comments and blank lines. Complexity is McCabe's, counted by
ruff (C901). Repeated places are pairs that share six or more lines, counted by `duplicates` where it is installed. The
seconds of the test suites are printed by `.ci/run`. Figures to look at, not limits.
"""

import argparse
import ast
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_COMPLEX = 20
_DRY_RUN = ("dry-run", "+recipe=qwen3_moe", "backend=megatron")


def main() -> int:
    """Print the figures as text, or as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--before", metavar="COMMIT", help="an earlier commit, for comparison")
    options = parser.parse_args()
    found = {options.before: figures_of(options.before)} if options.before else {}
    found["now"] = figures(ROOT)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for name in dict.fromkeys(name for column in found.values() for name in column):
        print(f"{name:46} " + " → ".join(_shown(column.get(name)) for column in found.values()))
    return 0


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " / ".join(map(_shown, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else "–" if value is None else str(value)


def figures_of(commit: str) -> dict[str, Any]:
    """Return the figures of another commit, from a checkout of its own."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        return figures(Path(folder))


def figures(root: Path) -> dict[str, Any]:
    """Return all figures of a checkout by name."""
    packages: dict[str, tuple[int, int]] = {}
    lengths: list[int] = []
    typed: list[bool] = []
    for path in _sources(root):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines = len(code_lines(tree))
        parts = path.relative_to(root).parts
        package = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        files, known = packages.get(package, (0, 0))
        packages[package] = (files + 1, known + lines)
        for function in _functions(tree):
            lengths.append((function.end_lineno or function.lineno) - function.lineno + 1)
            typed.append(function.returns is not None or function.name == "__init__")
    ordered = sorted(lengths)
    modules = imported_by_a_dry_run(root)
    return {
        **{f"{package}: files / code lines": list(counts) for package, counts in packages.items()},
        "files / code lines": [sum(column) for column in zip(*packages.values(), strict=True)],
        "function lines, median / p95 / max": [
            round(statistics.median(ordered)),
            ordered[int(len(ordered) * 0.95)],
            ordered[-1],
        ],
        "functions with a return type": f"{100 * sum(typed) / len(typed):.1f} %",
        f"functions over complexity {_COMPLEX}": complex_functions(root),
        "modules that a dry run imports": len(modules),
        "of these ours": sum(name.split(".")[0] in ("launcher", "backends", "launch_llm") for name in modules),
        "files on the way of one override": files_of_the_page(root),
        "repeated places": repeated_places(root),
        "violations of the import table": violations(root),
    }


def files_of_the_page(root: Path) -> int | None:
    """Return the number of files that docs/architecture.md names on the way of one override; None: it does not."""
    page = root / "docs" / "architecture.md"
    if not page.is_file():
        return None
    rows = (line for line in page.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \|", line))
    return len({name for row in rows for name in re.findall(r"`((?:launcher|backends)/[\w/.]+\.py)`", row)})


def repeated_places(root: Path) -> int | None:
    """Return the pairs of places in launcher/ and backends/ that share six or more lines; None: not counted."""
    if shutil.which("duplicates") is None:
        return None
    pairs = 0
    for folder in ("launcher", "backends"):
        args = ["duplicates", "--repo", str(root / folder), "--most", "1", "--seconds", "120"]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        first = re.match(r"(\d+) pairs", done.stdout)
        pairs += int(first[1]) if first else 0
    return pairs


def violations(root: Path) -> int | None:
    """Return how many tests of the import table fail; None: the commit has no such test."""
    test = "tests/test_architecture.py"
    if not (root / test).is_file():
        return None
    args = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "import", test]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(args, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return len(re.findall(r"^FAILED", done.stdout, flags=re.MULTILINE))


def _sources(root: Path) -> Iterator[Path]:
    for folder in ("launcher", "backends"):
        yield from sorted((root / folder).rglob("*.py"))


def code_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code: no docstring, comment or blank line."""
    documents: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            documents.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword | ast.alias)
        for line in (node.lineno, node.end_lineno or node.lineno)
    }
    return found - documents


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def complex_functions(root: Path) -> list[str]:
    """Return the functions whose complexity is above the bound, as `file:line name (complexity)`."""
    args = ["--select", "C901", "--config", f"lint.mccabe.max-complexity={_COMPLEX}", "--output-format", "json"]
    done = subprocess.run(
        ["ruff", "check", "--quiet", "--ignore-noqa", *args, "launcher", "backends"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return [
        f"{Path(each['filename']).relative_to(root.resolve())}:{each['location']['row']} {each['message']}"
        for each in json.loads(done.stdout)
    ]


def imported_by_a_dry_run(root: Path) -> list[str]:
    """Return the modules that are loaded at the end of a dry run."""
    code = (
        "import contextlib, io, sys\n"
        "from launcher.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main({list(_DRY_RUN)!r})\n"
        "print('\\n'.join(sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
