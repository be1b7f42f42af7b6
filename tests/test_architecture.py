"""Packages import what CONTRIBUTING's table says, only compose imports hydra, no backend is named in the launcher."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from launcher.executors import BUILT_IN
from tests.conftest import ROOT

LAUNCHER, BACKENDS = ROOT / "launcher", ROOT / "backends"
BACKEND_NAMES = ("megatron_lm", "mindspeed", "mindformers", "megatron-swift", "ms-swift", "ms_swift")
# Examples in help texts and the sources of facts may name a backend; code may not decide by it.
FREE = ("job", "rehearse", "importing", "estimate")


def table() -> dict[str, set[str] | None]:
    """Return the packages that each package imports, as CONTRIBUTING says; None: any."""
    found: dict[str, set[str] | None] = {}
    for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines():
        match = re.fullmatch(r"\| (?P<names>`(?:launcher|backends)/.*?`) \| .* \| (?P<imports>[a-z_, ]+) \|", line)
        if match is not None:
            args = match["imports"]
            imported = None if args == "everything" else set() if args == "nothing" else set(args.split(", "))
            for name in re.findall(r"`([^`]+)`", match["names"]):
                found[name.removesuffix(".py")] = imported
    return found


TABLE = table()
# Modules that import nothing of ours and that every package may import.
LEAVES = {"budgets", "declared", "list_expression", "nearest", "notebook", "plugins", "records", "syntax", "terminal"}


def modules(package: str) -> list[Path]:
    place = ROOT / package
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            if node.module in ("launcher", "backends"):
                found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def imported(package: str) -> set[str]:
    """Return the other packages of ours that one imports, without the leaves."""
    own = package.replace("/", ".")
    found = {
        name.split(".")[1]
        for path in modules(package)
        for name in imports(path)
        if name.startswith(("launcher.", "backends.")) and not name.split(".")[1].isupper() and "__" not in name
        if name != own and not name.startswith(f"{own}.")
    }
    return found - LEAVES


def test_tests_that_contributing_names_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.partition("Coverage of the slow tests only:")[2].partition("\n## ")[0]
    named = [
        name for row in re.findall(r"^\| (`.*?`) \|", rows, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    ]
    assert named
    folder = ROOT / "tests"
    assert [name for name in named if not any(list(folder.rglob(f"{name}{end}")) for end in ("", ".py"))] == []


def test_the_table_is_total() -> None:
    packages = {
        f"{folder.name}/{path.name.removesuffix('.py')}"
        for folder in (LAUNCHER, BACKENDS)
        for path in folder.iterdir()
        if (path.is_dir() and any(path.glob("*.py"))) or (path.suffix == ".py" and not path.name.startswith("__"))
    }
    assert packages == {package for package in TABLE if package.count("/") == 1}
    # Packages within others that stand alone.
    assert {package for package in TABLE if package not in packages} == {
        "launcher/convert/containers",
        "launcher/importing/shell",
    }


@pytest.mark.parametrize("package", [package for package, names in TABLE.items() if names is not None])
def test_a_package_imports_what_the_table_says(package: str) -> None:
    assert imported(package) == TABLE[package]


@pytest.mark.parametrize("module", sorted(LEAVES))
def test_leaves_import_nothing_of_ours(module):
    assert not [name for name in imports(LAUNCHER / f"{module}.py") if name.split(".")[0] in ("launcher", "backends")]


@pytest.mark.slow
def test_no_modules_import_each_other() -> None:
    """Neither when they are loaded nor within functions or for types."""
    files = [path for package in ("launcher", "backends", "tools") for path in modules(package)]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        found = set(imports(path))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                if members <= names.keys():  # only modules of the package, not the package itself
                    found.discard(node.module or "")
                found |= members
        graph[name] = (found & names.keys()) - {name}
    order = list(TopologicalSorter(graph).static_order())
    assert (
        order.index("launcher.mapping.rows")
        < order.index("launcher.mapping.backend")
        < order.index("launcher.pipeline")
    )


def test_nothing_imports_the_command_line():
    for path in LAUNCHER.rglob("*.py"):
        if "cli" not in path.relative_to(LAUNCHER).parts and path.name != "__main__.py":
            assert not [name for name in imports(path) if name.startswith("launcher.cli")], path


def test_only_composition_imports_hydra():
    for path in LAUNCHER.rglob("*.py"):
        if path.relative_to(LAUNCHER).parts[0] != "compose":
            assert not [name for name in imports(path) if name.split(".")[0] == "hydra"], path


# Words that name something else as well: Megatron-core's layers and attention, a scope of training scripts, a program.
ALSO_OTHERS = {
    # Megatron-core's layers, attention, CUDA graphs and checkpoints; bash's `local`; the default of cluster.executor.
    "local": {
        *("cli/convert.py", "importing/shell/assign.py"),
        *(f"job/{name}.py" for name in ("checkpoint", "cluster", "kernels", "layout")),
        *(f"convert/{name}.py" for name in ("formats/format", "formats/legacy", "formats/torch_dist", "layouts/core")),
        *(f"convert/{name}.py" for name in ("layouts/torch_dist", "lora/legacy")),
        *("estimate/sizes.py", "estimate/unread.py"),
        *(f"rehearse/core/{name}.py" for name in ("configs", "model", "options", "supported_args")),
        *("rehearse/implementation.py", "search/switches.py"),
    },
    # A word of a secret's name; a program in scripts.
    "ssh": {"job/secret/names.py", "importing/shell/effects.py", "importing/shell/scripts.py"},
    # The environment of a process.
    "environment": {"cli/dry_run.py", "mapping/launchers.py"},
}


def test_no_executor_is_named_outside_of_executors() -> None:
    """What depends on an executor is a property or a method of its class, or a rule of its package."""
    used: dict[str, set[str]] = {}
    for path in LAUNCHER.rglob("*.py"):
        package = path.relative_to(LAUNCHER).parts[0]
        if package == "executors":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in BUILT_IN:
                used.setdefault(node.value, set()).add(str(path.relative_to(LAUNCHER)))
    assert used == ALSO_OTHERS


def test_nothing_decides_by_an_executor_s_name() -> None:
    """The field holds a name for people and for the registry; only an executor compares it, with its own."""
    for path in [*LAUNCHER.rglob("*.py"), *BACKENDS.rglob("*.py")]:
        if path.relative_to(ROOT).parts[:2] == ("launcher", "executors"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                names = [each.attr for each in (node.left, *node.comparators) if isinstance(each, ast.Attribute)]
                assert "executor" not in names, f"{path}:{node.lineno}"


def test_no_backend_is_named_in_the_launcher():
    for path in LAUNCHER.rglob("*.py"):
        if path.relative_to(LAUNCHER).parts[0] in FREE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 40:
                assert node.value not in BACKEND_NAMES, f"{path}:{node.lineno}"


def named_on_the_page() -> list[tuple[str, str]]:
    """Return paths on the architecture page, each with the name that stands beside it, or none."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"`((?:launcher|backends|tests|tools|conf)/[\w/.]+)`(?:[^`\n]{0,2}`(\w+)`)?", text)
    return [(path, name) for path, name in found if "NAME" not in path]


@pytest.mark.parametrize(("path", "name"), named_on_the_page())
def test_the_architecture_page_names_what_is_there(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    if name:
        names = [node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")]
        assert name in names
