"""Catalogues of what starts a backend: torchrun, msrun, run_mindformer.py and environment variables.

    python -m tools.catalogue.launchers torchrun --version 2.13.0 --source .../torch/distributed/run.py
    python -m tools.catalogue.launchers msrun --version 2.7.0 --source .../mindspore/parallel/cluster/run.py
    python -m tools.catalogue.launchers run_mindformer --version 1.6.0 --source ~/src/mindformers/run_mindformer.py
    python -m tools.catalogue.launchers environment --backend mindspeed --version master \
        --source ~/src/MindSpeed-LLM/mindspeed_llm --source ~/src/MindSpeed/mindspeed --doc .../environment_variable.md

Everything is read from source by `ast`; of a documentation page, only the variables' names. The file goes to
backends/BACKEND/catalogue/launchers/.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from launcher.catalogue.checkout.classes import Unknown, evaluate
from tools.catalogue.writer import Row, write

_BACKENDS = Path(__file__).resolve().parents[2] / "backends"
_HOMES = {"torchrun": "megatron_lm", "msrun": "mindformers", "run_mindformer": "mindformers"}
_ACTIONS = {"check_env": "store_true", "env": "store"}  # torch/distributed/argparse_util.py
_TYPES = {"int": "int", "float": "float", "str": "str", "json.loads": "json"}
_TRUE_FALSE = {"str2bool", "ast.literal_eval", "str2bool_or_int", "parse_and_validate_bind_core"}
_READERS = {
    "os.environ.get", "os.getenv", "environ.get", "getenv", "get_env_args", "os.environ.pop", "os.environ.setdefault",
}  # fmt: skip
_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|NNODES|RANK")


def options(path: Path) -> Iterator[Row]:
    """Yield one row per `add_argument` call of a Python file, in its order."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in sorted(
        (found for found in ast.walk(tree) if isinstance(found, ast.Call)), key=lambda call: call.lineno
    ):
        if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
            continue
        names = [str(evaluate(item)) for item in node.args]
        given = {arg.arg: arg.value for arg in node.keywords}
        long = [name for name in names if name.startswith("--")] or names
        row: Row = {
            "name": long[0].lstrip("-"),
            "aliases": [name.lstrip("-") for name in names if name != long[0]],
            "dest": _value(given.get("dest"), long[0].lstrip("-").replace("-", "_")),
            "source": f"{path.name}:{node.lineno}",
        }
        yield row | _shape(given, positional=not names[0].startswith("-"))


def _shape(given: dict[str | None, ast.expr], *, positional: bool) -> Row:
    kind = ast.unparse(given["type"]) if "type" in given else "str"
    action = _value(given.get("action"), "store")
    row: Row = {"action": _ACTIONS.get(action, action), "type": _TYPES.get(kind, "str")}
    if kind in _TRUE_FALSE:
        row["type"] = "bool|json" if "bind_core" in kind else "bool"
    if row["action"] in ("store_true", "store_false"):
        row |= {"type": "bool", "default": row["action"] == "store_false"}
    row |= {"nargs": _value(given.get("nargs"), None), "required": bool(_value(given.get("required"), positional))}
    choices = _value(given.get("choices"), None)
    if isinstance(choices, (list, tuple)):  # an expression that only the program can evaluate is left out
        row["choices"] = choices
    if "default" in given:
        try:
            row["default"] = evaluate(given["default"])
        except Unknown as error:
            row["default_from"] = str(error)
    elif row["action"] == "store" and not row["required"]:
        row["default"] = None
    return row


def _value(node: ast.expr | None, otherwise: Any) -> Any:
    if node is None:
        return otherwise
    try:
        return evaluate(node)
    except Unknown as error:
        return str(error)


def variables(folders: Iterable[Path], documents: Iterable[Path]) -> list[Row]:
    """Return the environment variables that the code below the folders reads, sets or that the pages name."""
    found: dict[str, Row] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            where = path.relative_to(folder.parent).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                for name, row in _access(node):
                    row["source"] = f"{where}:{getattr(node, 'lineno', 0)}"
                    known = found.setdefault(name, row)
                    # A read is more informative than a write.
                    if known["owner"] == "set" and row["owner"] == "read":
                        found[name] = row
    for document in documents:
        for line_number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
            for name in _documented(line):
                row = {"name": name, "owner": "documented", "source": f"{document.name}:{line_number}"}
                found.setdefault(name, row)["help"] = "documented"
    return list(found.values())


def _documented(line: str) -> list[str]:
    """Return the names that a table row or a bullet of a documentation page is about."""
    head = re.match(r"\s*(?:\||[-*])\s*([^|:]+)", line)
    return _NAME.findall(head.group(1).replace("\\", "")) if head else []


def _access(node: ast.AST) -> Iterator[tuple[str, Row]]:
    """Yield what one node reads from or writes to the environment."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func)
        if called in _READERS and node.args and isinstance(node.args[0], ast.Constant):
            yield _called(node, called)
        return
    name, owner = None, "read"
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) in ("os.environ", "environ"):
        name = node.slice
        owner = "set" if isinstance(node.ctx, ast.Store) else "read"
    elif isinstance(node, ast.Compare) and any(ast.unparse(side) == "os.environ" for side in node.comparators):
        name = node.left
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value, {"name": name.value, "owner": owner}


def _called(node: ast.Call, called: str) -> tuple[str, Row]:
    name = str(evaluate(node.args[0]))
    # ms-swift's get_env_args("max_pixels", int, 5) reads MAX_PIXELS.
    swift = called == "get_env_args"
    name = name.upper() if swift else name
    default = node.args[2:3] if swift else node.args[1:2]
    row: Row = {"name": name, "owner": "set" if called.endswith("setdefault") else "read"}
    if swift and len(node.args) > 1:
        row["type"] = _TYPES.get(ast.unparse(node.args[1]), "str")
    if default and isinstance(default[0], ast.Constant):
        row["default"] = default[0].value
    return name, row


def main(argv: list[str] | None = None) -> int:
    """Make one launcher's or one backend's environment catalogue; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.catalogue.launchers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=[*_HOMES, "environment"])
    parser.add_argument("--version", required=True)
    parser.add_argument("--source", required=True, type=Path, action="append")
    parser.add_argument("--doc", type=Path, action="append", default=[])
    parser.add_argument("--backend", help="environment only")
    parser.add_argument("--revision", help="what the source is: PyPI torch 2.13.0, a commit …")
    given = parser.parse_args(argv)
    missing = [str(path) for path in (*given.source, *given.doc) if not path.exists()]
    if missing:
        raise SystemExit(f"no such file or folder: {', '.join(missing)}")
    backend = given.backend or _HOMES.get(given.what)
    if backend is None:
        raise SystemExit("environment needs --backend")
    environment = given.what == "environment"
    rows = (
        variables(given.source, given.doc) if environment else [row for path in given.source for row in options(path)]
    )
    head = {
        "backend": backend,
        "version": given.version,
        "source": {
            "project": given.what,
            "version": given.version,
            "revision": given.revision or given.version,
            "made_by": f"tools/catalogue/launchers {given.what} --version {given.version}",
        },
        "style": "env" if environment else "argparse",
    }
    if not environment:
        head["abbreviations"] = True
    out = _BACKENDS / backend / "catalogue" / "launchers" / f"{given.what}.json"
    write(out, head, rows)
    print(f"{out}: {len(rows)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
