"""The real MindFormers trains the same numbers as transformers, dense and with experts, on one rank and on two."""

import json
from pathlib import Path

import pytest

from tests.conftest import Launch
from tests.rehearse.native.environments import mindformers_1_6_python, mindformers_1_8_python

_LLAMA = (
    *("model=llama3_8b", "model.legacy=true", "kernels.attention_backend=flash", "data.format=megatron"),
    *("optimizer.lr=1e-3", "schedule.lr_warmup_iters=0", "precision.dtype=fp32", "rehearse.max_processes=1"),
    *("batch.global_batch_size=4", "batch.micro_batch_size=2", "batch.seq_length=64"),
)
# Measured: the loss stays within 1e-5, the gradient norm is up to 2.3e-4 off after updates, from 2e-5 at first. Where
# that comes from was not traced.
_TOLERANCE = "1e-3"
CASES = {
    "Qwen3 on 1.8, two ranks": ("1.8", ("+recipe=tiny_qwen3", "cluster.devices_per_node=2")),
    "Qwen3-MoE on 1.8": ("1.8", ("+recipe=tiny_qwen3_moe", "moe.aux_loss_coeff=0")),
    "Llama-3 on 1.6": ("1.6", _LLAMA),
}


@pytest.mark.sample(keep=1, of="MindFormers parities")
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_transformers(launch: Launch, tmp_path: Path, name: str) -> None:
    version, job = CASES[name]
    python = mindformers_1_6_python() if version == "1.6" else mindformers_1_8_python()
    words = [
        "--tolerance",
        _TOLERANCE,
        "--backends",
        "mindformers",
        "--python",
        f"mindformers={python}",
        "--reference",
        "transformers",
    ]
    out = tmp_path / "parity"
    finished = launch("parity", *job, "kernels.cross_entropy_fusion=false", *words, "--iterations", "4", "-o", str(out))
    assert finished.code == 0, finished.out + finished.err
    (side,) = json.loads((out / "parity.json").read_text())["compared"]
    assert side["agrees"]
    assert side["largest_relative_difference"]["loss"] < 1e-5
