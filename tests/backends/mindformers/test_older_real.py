"""MindFormers' own older networks, and MindSpore's own tools for ranks, take what was converted, and the other way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.backends.mindformers import weights
from tests.convert.helpers import launch, tensors
from tests.rehearse.native.environments import mindformers_1_6_python

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
OLDER = ("--set", "use_legacy=true", "--set", "version=1.6")
RANKS = ("--set", "per_rank=true", "backend=mindformers", "parallel.tp=2", "parallel.pp=2", "parallel.ep=2")
GROUPED, CONCATENATED = ("--set", "use_gmm=true"), ("--set", "qkv_concat=true")
# Cuts whose parts are contiguous: MindSpore 2.7.0 writes others wrongly (numpy views given to safetensors).
CUTS: list[dict[str, Any]] = [
    {"devices": [2, 2, 2], "map": [0, -1]},
    {"devices": [8], "map": [-1, -1], "optimizer": [1, 8]},
    {"devices": [4, 2], "map": [0, -1], "optimizer": [2, 4]},
    {"devices": [4, 2], "map": [0, -1], "optimizer": [2, 2]},
    {"devices": [2, 2, 2], "map": [1, -1], "optimizer": [1, 4]},
    {"devices": [2, 2, 2], "map": [1, -1], "optimizer": [1, 2]},
    {"devices": [2, 2, 2], "map": [[2, 0], [-1]]},
    {"devices": [2, 2, 2], "map": [[1], [-1]], "optimizer": [1, 2]},
    {"devices": [2, 4], "map": [-1, -1], "optimizer": [1, -1]},
    {"devices": [8], "map": [-1, -1], "optimizer": [1, 4]},
]


@pytest.fixture
def upstream(tmp_path: Path) -> Callable[..., str]:
    python = mindformers_1_6_python()

    def run(module: str, *args: object) -> str:
        done = subprocess.run(
            [str(python), "-m", f"tests.backends.mindformers.{module}", *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "GLOG_v": "3", "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run


def _to(name: str, folder: Path, *args: str) -> tuple[Path, Path]:
    model, out = weights.write(name, folder / "hf"), folder / "mf"
    assert launch("hf-to-mcore", "--model", model, "--out", out, "--backend", "mindformers", *args) == 0
    return model, out


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("llama", ()),
        ("llama_tied", ()),
        ("qwen2", CONCATENATED),
        ("qwen2_moe", ()),
        ("qwen2_moe", (*GROUPED, *CONCATENATED)),
        ("mixtral", ()),
        ("mixtral", GROUPED),
    ],
)
def test_its_own_network_loads_every_parameter(
    name: str, args: tuple[str, ...], upstream: Callable[..., str], tmp_path: Path
) -> None:
    model, out = _to(name, tmp_path, *OLDER, *args)
    options = {"use_gmm": "use_gmm=true" in args, "qkv_concat": "qkv_concat=true" in args}
    answer = json.loads(upstream("real_older", model, json.dumps(options), out).strip().splitlines()[-1])
    assert (answer["lacking"], answer["unused"], answer["different"]) == ([], [], [])
    written = weights.digests(sorted(out.rglob("*.safetensors")))
    assert {parameter: shape for parameter, (shape, _) in written.items()} == answer["network"]


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", ["qwen2_moe", "deepseek_v3"])
@pytest.mark.parametrize("args", [(), GROUPED], ids=["each", "grouped"])
def test_its_own_tools_make_whole_files_of_the_ranks(
    name: str, args: tuple[str, ...], upstream: Callable[..., str], tmp_path: Path
) -> None:
    _, whole = _to(name, tmp_path / "whole", *OLDER, *args)
    _, ranks = _to(name, tmp_path / "ranks", *OLDER, *args, *RANKS)
    upstream("real_unify", "unify", ranks / "checkpoint", ranks / "strategy", tmp_path / "unified")
    files = [file for file in sorted((tmp_path / "unified").glob("*.safetensors")) if "hyper" not in file.name]
    assert weights.digests(files) == weights.digests(sorted(whole.rglob("*.safetensors")))


def test_ranks_that_its_own_tools_cut_come_back(upstream: Callable[..., str], tmp_path: Path) -> None:
    """Parallel optimizer, dimensions cut by several axes, ranks that repeat others."""
    model, out = _to("llama", tmp_path, *OLDER)
    folder = tmp_path / "whole" / "rank_0"
    folder.mkdir(parents=True)
    shutil.copy(next(out.glob("*.safetensors")), folder / "w_rank_0-1_1.safetensors")
    cases = {}
    for number, (name, (shape, _)) in enumerate(weights.digests(list(folder.iterdir())).items()):
        cut = shape[0] % 8 == 0 and len(shape) == 2
        plain = {"devices": [8], "map": [-1] * len(shape)}
        cases[name] = {**(CUTS[number % len(CUTS)] if cut else plain), "shape": shape}
    upstream("real_unify", "cut", folder.parent, tmp_path / "cut", json.dumps(cases))
    back = ("mcore-to-hf", "--checkpoint", tmp_path / "cut", "--model", model, "--out", tmp_path / "back")
    assert launch(*back) == 0
    assert tensors(tmp_path / "back") == tensors(model)
