"""Figures of the code base: files and lines by package, functions, complexity, what a dry run imports.

    python -m tools.figures [--json]

Code lines are lines of the syntax tree without docstrings, comments and blank lines. Complexity is McCabe's, counted by
ruff (C901). Figures to look at, not limits.
"""

import argparse
import ast
import json
import statistics
import subprocess
import sys
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
    found = figures()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2))
        return 0
    print(f"{'package':28} files  code lines")
    for package, (files, lines) in found["packages"].items():
        print(f"{package:28} {files:5} {lines:11,}")
    for name, value in found.items():
        if name != "packages":
            print(f"{name}: {value}")
    return 0


def figures() -> dict[str, Any]:
    """Return all figures by name."""
    packages: dict[str, tuple[int, int]] = {}
    lengths: list[int] = []
    typed: list[bool] = []
    for path in _sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines = len(code_lines(tree))
        parts = path.relative_to(ROOT).parts
        package = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        files, known = packages.get(package, (0, 0))
        packages[package] = (files + 1, known + lines)
        for function in _functions(tree):
            lengths.append((function.end_lineno or function.lineno) - function.lineno + 1)
            typed.append(function.returns is not None or function.name == "__init__")
    ordered = sorted(lengths)
    modules = imported_by_a_dry_run()
    return {
        "packages": packages,
        "files": sum(files for files, _ in packages.values()),
        "code lines": sum(lines for _, lines in packages.values()),
        "function lines, median / p95 / max": [
            statistics.median(ordered),
            ordered[int(len(ordered) * 0.95)],
            ordered[-1],
        ],
        "functions with a return type": f"{100 * sum(typed) / len(typed):.1f} %",
        f"functions over complexity {_COMPLEX}": complex_functions(),
        "modules that a dry run imports": len(modules),
        "of these ours": sum(name.split(".")[0] in ("launcher", "backends", "launch_llm") for name in modules),
    }


def _sources() -> Iterator[Path]:
    for folder in ("launcher", "backends"):
        yield from sorted((ROOT / folder).rglob("*.py"))


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


def complex_functions() -> list[str]:
    """Return the functions whose complexity is above the bound, as `file:line name (complexity)`."""
    words = ["--select", "C901", "--config", f"lint.mccabe.max-complexity={_COMPLEX}", "--output-format", "json"]
    done = subprocess.run(
        ["ruff", "check", "--quiet", "--ignore-noqa", *words, "launcher", "backends"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [
        f"{Path(each['filename']).relative_to(ROOT)}:{each['location']['row']} {each['message']}"
        for each in json.loads(done.stdout)
    ]


def imported_by_a_dry_run() -> list[str]:
    """Return the modules that are loaded at the end of a dry run."""
    code = (
        "import contextlib, io, sys\n"
        "from launcher.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    main({list(_DRY_RUN)!r})\n"
        "print('\\n'.join(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
