"""MindFormers 1.8 itself loads what was converted: whole, and rank by rank, into its own network."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.backends.mindformers import weights
from tests.convert.helpers import launch
from tests.rehearse.native.environments import mindformers_1_8_python

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
RANKS = ("--set", "per_rank=true", "backend=mindformers", "parallel.tp=2", "parallel.pp=2")


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize(
    ("name", "args", "parameters"),
    [
        ("qwen3", (), 35),
        ("qwen3", RANKS, 35),
        ("qwen3_tied", (), 34),
        ("qwen3_moe", (), 39),
        ("qwen3_moe", (*RANKS, "parallel.ep=4"), 39),
    ],
)
def test_its_own_loader_gives_what_its_own_converter_gives(
    name: str, args: tuple[str, ...], parameters: int, tmp_path: Path
) -> None:
    python = mindformers_1_8_python()
    model = weights.write(name, tmp_path / "hf")
    out = tmp_path / "mf"
    assert launch("hf-to-mcore", "--model", model, "--out", out, "--backend", "mindformers", *args) == 0
    done = subprocess.run(
        [str(python), "-m", "tests.backends.mindformers.real_load", str(model), str(out)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {"compared": parameters, "different": []}
