"""A fix runs once its module is loaded: not before, not twice, and at once where the module is loaded already."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from launcher.rehearse.cpu.after_import import after_import


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a package on sys.path that nobody has imported."""
    name = f"upstream_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "part.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_fix_waits_for_its_module(upstream: str) -> None:
    seen: list[int] = []

    def fix(module: ModuleType) -> None:
        seen.append(module.value)
        module.__dict__["value"] = 2

    after_import(f"{upstream}.part", fix)
    assert not seen
    assert f"{upstream}.part" not in sys.modules
    assert importlib.import_module(f"{upstream}.part").value == 2
    importlib.import_module(f"{upstream}.part")
    assert seen == [1]


def test_a_loaded_module_is_fixed_at_once(upstream: str) -> None:
    module = importlib.import_module(f"{upstream}.part")
    after_import(f"{upstream}.part", lambda part: part.__dict__.update(value=3))
    assert module.value == 3


def test_a_missing_module_stays_missing() -> None:
    after_import("no_such_module_anywhere", lambda module: pytest.fail("there is no such module"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_anywhere")
