"""Jobs of docs/parity.md, through `python -m tools.parity` on the backends that are here, are as the page has them."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from launcher.mapping.backend import get_backend
from launcher.rehearse.native import missing
from tests.conftest import ROOT
from tests.rehearse.native.environments import mindspeed_python, swift_python
from tools.parity.rows import ROWS, Row, read

MATRIX = read(ROWS)


def jobs(backend: str) -> list[str]:
    """Return the jobs that were measured on a backend."""
    return [name for name, row in MATRIX.items() if backend in row.cells]


def missing_checkouts(backend: str) -> str:
    """Return why a backend whose entry point is a checkout is not here; "" where it is."""
    module = get_backend(backend).native_cpu
    assert module is not None
    native = import_module(module).NATIVE_CPU
    return "; ".join(missing(native, os.environ, version_of=lambda _name: "installed in the test's own environment"))


def measured(name: str, backend: str, python: Path, folder: Path) -> Row:
    """Measure a job with the command that writes docs/parity.md."""
    pytest.importorskip("transformers")
    rows = folder / "rows.json"
    words = ("--backends", backend, "--python", f"{backend}={python}", "--only", name, "--rows", str(rows))
    command = [sys.executable, "-m", "tools.parity", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert rows.exists(), done.stderr
    return read(rows)[name]


def is_as_on_the_page(row: Row, backend: str) -> None:
    """Fail the test where the job agrees and the page says that it does not, or the reverse."""
    found, expected = row.cells[backend], MATRIX[row.name].cells[backend]
    assert found.agrees == expected.agrees, found
    assert (found.loss is None) == (expected.loss is None), found
    assert found.parameters is not None or expected.parameters is None, found


@pytest.mark.slow
@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", jobs("megatron"))
def test_ms_swift(name: str, tmp_path: Path) -> None:
    is_as_on_the_page(measured(name, "megatron", swift_python(), tmp_path), "megatron")


@pytest.mark.slow
@pytest.mark.sample(keep=2)
@pytest.mark.skipif(bool(missing_checkouts("megatron_lm")), reason=missing_checkouts("megatron_lm"))
@pytest.mark.parametrize("name", jobs("megatron_lm"))
def test_megatron_lm(name: str, tmp_path: Path) -> None:
    is_as_on_the_page(measured(name, "megatron_lm", Path(sys.executable), tmp_path), "megatron_lm")


@pytest.mark.slow
@pytest.mark.sample(keep=2)
@pytest.mark.skipif(bool(missing_checkouts("mindspeed")), reason=missing_checkouts("mindspeed"))
@pytest.mark.parametrize("name", jobs("mindspeed"))
def test_mindspeed_llm(name: str, tmp_path: Path) -> None:
    is_as_on_the_page(measured(name, "mindspeed", mindspeed_python(), tmp_path), "mindspeed")
