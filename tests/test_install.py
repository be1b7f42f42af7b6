"""Installing: the wheel carries conf and recipes, the core install is light."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy without what git ignores, as a release does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, cwd=folder)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment and return its folder of commands."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", str(wheel)], check=True)
    return folder / "bin"


def of_wheel(*command: str | Path, cwd: Path, path: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": path} if path else {}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, check=False)


@pytest.mark.slow
def test_an_index_takes_the_wheel(wheel: Path, tmp_path: Path):
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "twine"], check=True)
    done = of_wheel(python, "-m", "twine", "check", "--strict", wheel, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"launch_llm.py", "launcher", "backends", wheel.name.split("-py3")[0] + ".dist-info"}


@pytest.mark.slow
def test_the_wheel_carries_everything_and_needs_nothing_heavy(installed: Path, tmp_path: Path):
    listed = of_wheel(installed / "python", "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
    names = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert not names & {"torch", "numpy", "transformers", "megatron-core", "scipy", "pandas"}
    for backend in ("megatron", "megatron_lm", "mindspeed", "mindformers"):
        args = ("dry-run", "+recipe=tiny_qwen3_moe", f"backend={backend}", "--format", "argv")
        done = of_wheel(installed / "launch", *args, cwd=tmp_path)
        assert done.stdout, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_wheel_works_wherever_it_is_started(installed: Path, tmp_path: Path):
    """A checkout of something else may hold folders, and packages, of our names."""
    job = ("+recipe=tiny_qwen3", "backend=megatron_lm", "--format", "argv")
    for name in ("conf", "recipes", "launcher", "backends"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text("- not ours\n")
    as_module = (installed / "python", "-m", "launcher")
    for command in ((installed / "launch",), as_module):
        done = of_wheel(*command, "dry-run", *job, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert "pretrain_gpt.py" in done.stdout
    for name in ("launcher", "backends"):
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('not ours')")
    done = of_wheel(installed / "launch", "dry-run", *job, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")  # a command does not search the working directory
    done = of_wheel(installed / "launch", "dry-run", *job, cwd=tmp_path, path=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"launch: {tmp_path}/launcher/__init__.py hides ")
    assert len(done.stderr.splitlines()) == 1
