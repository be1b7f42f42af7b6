"""Installing: the wheel carries conf and recipes, the core install is light, a third party's backend is found."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.conftest import ROOT

THIRD_PARTY = """
from launcher.plan import LaunchPlan, NodePlan
from launcher.job import fields
from launcher.translate.backend import Backend
from launcher.translate.catalogue import Argument, Catalogue
from launcher.translate.rows import Table, same

TABLE = Table(
    rows=(same("parallel.tp", "tp"),),
    irrelevant={path: "a toy" for path in fields() if path != "parallel.tp"},
)
BACKEND = Backend(
    name="theirs", title="Theirs", versions=("1.0",), devices=("cpu",),
    table=lambda version: TABLE,
    catalogue=lambda version: Catalogue(
        backend="theirs", version=version, style="argparse", arguments=(Argument(name="tp", dest="tp", type="int"),)
    ),
    launch=lambda job, native: LaunchPlan(nodes=(NodePlan(rank=0, argv=("echo", str(native.get("tp")))),)),
    argv=lambda native: [],
)
"""


def test_a_third_partys_backend_is_found_by_its_entry_point(tmp_path: Path):
    (tmp_path / "their_backend.py").write_text(THIRD_PARTY)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[launch.backends]\ntheirs = their_backend:BACKEND\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "launcher", "dry-run", "--format", "argv"),
            *("+recipe=tiny_qwen3", "backend.name=theirs", "parallel.tp=2", "cluster.devices_per_node=2"),
        ],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "echo 2", done.stderr


@pytest.mark.slow
def test_the_wheel_carries_everything_and_needs_nothing_heavy(tmp_path: Path):
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True)
    freeze = [python, "-m", "pip", "list", "--format", "freeze"]
    listed = subprocess.run(freeze, capture_output=True, text=True, check=True)
    names = {line.partition("==")[0].lower() for line in listed.stdout.splitlines()}
    assert not names & {"torch", "numpy", "transformers", "megatron-core", "scipy", "pandas"}
    launch = tmp_path / "env" / "bin" / "launch"
    for backend in ("megatron", "megatron_lm", "mindspeed", "mindformers"):
        done = subprocess.run(
            [launch, "dry-run", "+recipe=tiny_qwen3_moe", f"backend={backend}", "--format", "argv"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.stdout, done.stderr
        assert "Traceback" not in done.stderr
