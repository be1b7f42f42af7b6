"""The house keeps its shape: arrows go one way, hydra stays in one room, no backend is named in the launcher."""

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

LAUNCHER = ROOT / "launcher"
# Room: rooms of launcher/ that it may import (besides itself). Modules directly under launcher/ count as rooms.
ARROWS = {
    "job": set(),
    "outputs": {"job"},
    "models": {"job"},
    "compose": {"job", "models"},
    "plan": {"job"},
    "report": {"job"},
    "rules": {"job", "translate"},
    "translate": {"job", "plan"},
    "executors": {"outputs", "plan"},
    "observe": {"executors", "plan"},
    "pipeline": {"job", "plan", "rules", "transfer", "translate"},
    "transfer": {"job", "translate"},
    "runtime": {"job", "pipeline", "plan", "rehearse", "translate"},
    "balance": {"estimate", "job", "outputs", "pipeline", "rules", "translate"},
    "search": {"balance", "estimate", "job", "outputs", "pipeline", "plan", "report", "rules", "runtime"},
    "doctor": {"estimate", "executors", "job", "pipeline", "plan", "runtime", "translate"},
    "convert": {"estimate", "job", "models", "outputs", "translate"},
    "rehearse": {"executors", "job", "pipeline", "plan", "rules", "translate"},
}
# Modules that import nothing of ours and that every room may use.
LEAVES = {"budgets", "nearest", "syntax", "terminal"}
BACKEND_NAMES = ("megatron_lm", "mindspeed", "mindformers", "megatron-swift", "ms-swift", "ms_swift")
# Examples in help texts and the sources of facts may name a backend; code may not decide by it.
FREE = ("job", "rehearse", "importing", "estimate")


def modules(room: str) -> list[Path]:
    place = LAUNCHER / room
    return sorted(place.rglob("*.py")) if place.is_dir() else [LAUNCHER / f"{room}.py"]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("room", ARROWS)
def test_arrows_go_one_way(room):
    for path in modules(room):
        rooms = {name.split(".")[1] for name in imports(path) if name.startswith("launcher.")}
        assert rooms - {room} <= ARROWS[room] | LEAVES, path


@pytest.mark.parametrize("module", sorted(LEAVES))
def test_leaves_import_nothing_of_ours(module):
    assert not [name for name in imports(LAUNCHER / f"{module}.py") if name.split(".")[0] in ("launcher", "backends")]


def test_nothing_imports_the_command_line():
    for path in LAUNCHER.rglob("*.py"):
        if "cli" not in path.relative_to(LAUNCHER).parts and path.name != "__main__.py":
            assert not [name for name in imports(path) if name.startswith("launcher.cli")], path


def test_only_composition_imports_hydra():
    for path in LAUNCHER.rglob("*.py"):
        if path.relative_to(LAUNCHER).parts[0] != "compose":
            assert not [name for name in imports(path) if name.split(".")[0] == "hydra"], path


def test_no_backend_is_named_in_the_launcher():
    for path in LAUNCHER.rglob("*.py"):
        if path.relative_to(LAUNCHER).parts[0] in FREE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
                assert node.value not in BACKEND_NAMES, f"{path}:{node.lineno}"
