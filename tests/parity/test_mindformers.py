"""The real MindFormers trains the same numbers and parameters as transformers, with accumulation and on two ranks."""

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
_TWO_RANKS = ("cluster.devices_per_node=2", "batch.global_batch_size=4")
CASES = {
    # Gradients accumulate, and the experts' bias follows the load of both ranks.
    "DeepSeek-V3 on 1.8, two ranks": (
        "1.8",
        ("+recipe=tiny_deepseek_v3", "moe.aux_loss_coeff=0", "model.num_nextn_predict_layers=0", *_TWO_RANKS),
    ),
    # The load-balancing loss is one of each micro-batch.
    "Qwen3-MoE on 1.8": ("1.8", ("+recipe=tiny_qwen3_moe", "moe.aux_loss_coeff=1e-1")),
    # The factors are in the checkpoint that it loads, B other than 0.
    "LoRA, Qwen3 on 1.8": ("1.8", ("+recipe=tiny_qwen3", "lora.rank=4")),
    "Llama-3 on 1.6": ("1.6", _LLAMA),
}


@pytest.mark.sample(keep=1, of="MindFormers parities")
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_transformers(launch: Launch, tmp_path: Path, name: str) -> None:
    version, job = CASES[name]
    python = mindformers_1_6_python() if version == "1.6" else mindformers_1_8_python()
    words = ("--backends", "mindformers", "--python", f"mindformers={python}", "--reference", "transformers")
    out = tmp_path / "parity"
    finished = launch("parity", *job, "kernels.cross_entropy_fusion=false", *words, "--iterations", "3", "-o", str(out))
    assert finished.code == 0, finished.out + finished.err
    result = json.loads((out / "parity.json").read_text())
    (side,) = result["compared"]
    assert side["agrees"]
    assert result["parameters"]["mindformers"]["tensors"] > 0
