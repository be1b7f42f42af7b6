"""Mixtral for MindSpeed-LLM, tensor by tensor what its own first converter (convert_ckpt.py) writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.rehearse.native import missing
from tests.convert import zoo
from tests.convert.helpers import launch, tensors
from tests.rehearse.native.environments import mindspeed_python

_ABSENT = missing(NATIVE_CPU, os.environ, version_of=lambda _name: "installed in the test's own environment")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_ABSENT), reason="; ".join(_ABSENT))]
ROOT = Path(__file__).parents[3]
# In bf16: grouped experts of MindSpeed-LLM know no other format.
_COMMON = (
    *("--use-mcore-models", "--model-type", "GPT", "--model-type-hf", "mixtral"),
    *("--load-model-type", "hf", "--save-model-type", "mg", "--tokenizer-model", "none", "--params-dtype", "bf16"),
)
_TP, _PP = "--target-tensor-parallel-size", "--target-pipeline-parallel-size"
_EP, _VPP = "--target-expert-parallel-size", "--num-layers-per-virtual-pipeline-stage"
CASES = {
    "tp2 pp2 ep2": ((_TP, "2", _PP, "2", _EP, "2"), ("parallel.tp=2", "parallel.pp=2", "parallel.ep=2")),
    "tp2 ep2 grouped": (
        (_TP, "2", _EP, "2", "--moe-grouped-gemm"),
        ("parallel.tp=2", "parallel.ep=2", "moe.grouped_gemm=true"),
    ),
    "pp2 vpp": ((_PP, "2", _VPP, "1"), ("parallel.pp=2", "parallel.vpp=2")),
}


def _converted(model: Path, out: Path, args: tuple[str, ...]) -> Path:
    checkout = Path(os.environ["MINDSPEED_LLM_PATH"])
    if not (checkout / "convert_ckpt.py").is_file():
        pytest.skip("MINDSPEED_LLM_PATH has no convert_ckpt.py")
    python = mindspeed_python()
    child = "tests.backends.mindspeed.old_converter_child"
    done = subprocess.run(
        [str(python), "-m", child, *_COMMON, "--load-dir", str(model), "--save-dir", str(out), *args],
        cwd=out.parent,
        env={**os.environ, **dict(NATIVE_CPU.env), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (out / "latest_checkpointed_iteration.txt").is_file(), done.stderr[-3000:]
    return out


def _stored(folder: Path) -> dict[tuple[str, str, str], Any]:
    import torch

    found: dict[tuple[str, str, str], Any] = {}
    for file in sorted(folder.glob("iter_0000001/mp_rank_*/model_optim_rng.pt")):
        top = torch.load(file, map_location="cpu", weights_only=False)
        for key in (key for key in top if key.startswith("model")):
            # Modules without state leave an entry of nothing.
            for name, tensor in ((name, tensor) for name, tensor in top[key].items() if tensor is not None):
                data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
                found[file.parent.name, key, name] = (tensor.dtype, tuple(tensor.shape), data)
    return found


@pytest.mark.parametrize(("theirs", "ours"), CASES.values(), ids=list(CASES))
def test_its_first_converter_writes_the_same(
    theirs: tuple[str, ...], ours: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="the zoo is written by transformers")
    # Its files name classes of Megatron-LM among their arguments.
    monkeypatch.syspath_prepend(os.environ["MEGATRON_LM_PATH"])
    model = zoo.make("mixtral", tmp_path / "hf", dtype="bfloat16")
    mine, upstream = tmp_path / "ours", _converted(model, tmp_path / "theirs", theirs)
    assert launch("hf-to-mcore", "--model", model, "--out", mine, "--backend", "mindspeed", *ours) == 0
    assert _stored(mine) == _stored(upstream)
    back = ("--checkpoint", upstream, "--model", model, "--out", tmp_path / "back")
    assert launch("mcore-to-hf", *back) == 0
    assert tensors(tmp_path / "back") == tensors(model)
