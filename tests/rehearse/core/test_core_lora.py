"""LoRA trains adapters alone, the same at every layout, and its formula is PEFT's."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from core_world import DENSE, MLA, MOE, Run, Zygote, split_args

from launcher.rehearse.core.options import FakeWorld, LoraOptions

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
LORA = LoraOptions(rank=4, alpha=8.0)
SEQUENCE = "--tensor-model-parallel-size 2 --sequence-parallel"

MODELS = {
    "dense": [*DENSE, "--lr", "3e-2"],
    "tied": [*[flag for flag in DENSE if not flag.startswith("--untie")], "--lr", "3e-2"],
    "moe": [*DENSE, *MOE, "--lr", "3e-2"],
    "mla": [*MLA, "--lr", "3e-2"],
}
LAYOUTS = {
    "TP2": ("dense", "--tensor-model-parallel-size 2", 2),
    "TP2 SP": ("dense", SEQUENCE, 2),
    "PP2 tied": ("tied", "--pipeline-model-parallel-size 2", 2),
    "PP2 recompute": (
        "dense",
        "--pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1",
        2,
    ),
    "DP2 distributed optimizer": ("dense", "--use-distributed-optimizer --overlap-grad-reduce", 2),
    "MoE EP2": ("moe", "--expert-model-parallel-size 2", 2),
    "MoE TP2 SP ETP2": ("moe", SEQUENCE, 2),
    "MoE TP2 SP EP2 ETP1": ("moe", f"{SEQUENCE} --expert-model-parallel-size 2 --expert-tensor-parallel-size 1", 2),
    "MLA TP2": ("mla", "--tensor-model-parallel-size 2", 2),
    "MLA TP2 SP": ("mla", SEQUENCE, 2),
}


@pytest.fixture(scope="module")
def alone(zygote: Zygote) -> Callable[[str], Run]:
    return cache(lambda name: zygote.run(MODELS[name], lora=LORA))


@pytest.mark.sample(keep=3)
@pytest.mark.parametrize("model,layout,ranks", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_trains_the_same_adapters(
    zygote: Zygote, alone: Callable[[str], Run], model: str, layout: str, ranks: int
) -> None:
    run = zygote.run([*MODELS[model], *layout.split()], ranks=ranks, lora=LORA)
    assert run.losses == pytest.approx(alone(model).losses, abs=TOLERANCE)
    assert run.summary["trained_parameters"] == alone(model).summary["trained_parameters"]
    assert run.losses[-1] < run.losses[0] - 0.02


def test_the_first_loss_is_that_of_the_base_model(zygote: Zygote, alone: Callable[[str], Run]) -> None:
    assert alone("dense").losses[0] == zygote.run(MODELS["dense"]).losses[0]
    hidden, ffn, heads, groups, head = 32, 64, 4, 2, 8
    qkv, out = hidden + (heads + 2 * groups) * head, heads * head + hidden
    expected = 4 * LORA.rank * (qkv + out + hidden + 2 * ffn + ffn + hidden)
    assert alone("dense").summary["trained_parameters"] == expected


def test_target_modules(zygote: Zygote) -> None:
    few = zygote.run(MODELS["dense"], lora=LoraOptions(rank=4, alpha=8.0, target_modules=("linear_qkv",)))
    assert few.summary["trained_parameters"] == 4 * 4 * (32 + 64)
    wrong = zygote.run(MODELS["dense"], lora=LoraOptions(rank=4, alpha=8.0, target_modules=("q_proj",)))
    assert wrong.exit_codes == [1]
    assert "q_proj: this model has no such linear layers; works: linear_fc1, linear_fc2, linear_proj" in wrong.output


def test_adapters_resume_at_another_layout(zygote: Zygote, alone: Callable[[str], Run], tmp_path: Path) -> None:
    half = split_args(f"--save {tmp_path}/saved --save-interval 3 --exit-interval 3")
    zygote.run([*MODELS["dense"], *half, "--tensor-model-parallel-size", "2"], ranks=2, lora=LORA)
    rest = zygote.run([*MODELS["dense"], "--load", f"{tmp_path}/saved"], lora=LORA)
    assert rest.losses == pytest.approx(alone("dense").losses[3:], abs=TOLERANCE)


def test_a_full_training_is_not_resumed_but_its_weights_are(zygote: Zygote, tmp_path: Path) -> None:
    half = split_args(f"--save {tmp_path}/saved --save-interval 3 --exit-interval 3")
    zygote.run([*MODELS["dense"], *half])
    load = ["--load", f"{tmp_path}/saved"]
    refused = zygote.run([*MODELS["dense"], *load], lora=LORA)
    assert refused.exit_codes == [1]
    assert "works: --finetune" in refused.output
    run = zygote.run([*MODELS["dense"], *load, "--finetune"], lora=LORA)
    assert run.summary["first_iteration"] == 1
    assert run.losses[0] == zygote.run([*MODELS["dense"], *load, "--finetune"]).losses[0]


def test_a_fake_world_has_the_adapters(zygote: Zygote) -> None:
    argv = [*MODELS["moe"], *split_args(f"{SEQUENCE} --expert-model-parallel-size 2 --global-batch-size 16")]
    run = zygote.run(argv, lora=LORA, fake_world=FakeWorld(world_size=8, ranks=(5,)))
    assert run.exit_codes == [0], run.output


def test_a_fraction_of_dropout_changes_training(zygote: Zygote, alone: Callable[[str], Run]) -> None:
    run = zygote.run(MODELS["dense"], lora=LoraOptions(rank=4, alpha=8.0, dropout=0.5))
    assert run.losses[0] == alone("dense").losses[0]  # B is 0
    assert run.losses[1:] != alone("dense").losses[1:]


@pytest.mark.parametrize("name,rslora", [("qwen3", False), ("llama", True), ("qwen3_moe", False)])
def test_peft_computes_the_same_with_the_trained_adapters(
    zygote: Zygote, model: Callable[[str], Path], tokens: tuple[Any, Any], tmp_path: Path, name: str, rslora: bool
) -> None:
    """Trained here, converted to PEFT's format, merged into the logits by PEFT: the loss of the next iteration.

    Converted back, it is what another training starts from, at another layout.
    """
    import torch

    pytest.importorskip("peft")
    from core_models import loss_of
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from tests.convert.core_logits import megatron_argv
    from tests.convert.helpers import launch

    folder, start, saved, adapter = model(name), tmp_path / "start", tmp_path / "saved", tmp_path / "adapter"
    assert launch("hf-to-mcore", "--model", folder, "--out", start) == 0
    argv = megatron_argv(str(folder), "schedule.train_iters=4", "optimizer.lr=3e-2")
    targets = ("linear_qkv", "linear_proj") if name == "qwen3_moe" else ()
    lora = LoraOptions(rank=4, alpha=8.0, rslora=rslora, target_modules=targets)
    places = [f"--load={start}", "--finetune", "--save", str(saved), "--save-interval", "3", "--split", "100,0,0"]
    run = zygote.run([*argv, *places], data=tokens[1], lora=lora)
    assert abs(run.losses[3] - run.losses[0]) > 1e-2
    (saved / "latest_checkpointed_iteration.txt").write_text("3")
    words = ["--set", f"alpha={8.0 * (2 if rslora else 1)}"]
    assert launch("mcore-to-hf", "--checkpoint", saved, "--model", folder, "--out", adapter, *words) == 0
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    assert run.losses[3] == pytest.approx(loss_of(PeftModel.from_pretrained(base, adapter), tokens[0]), rel=1e-6)
    again = tmp_path / "again"
    assert launch("hf-to-mcore", "--model", folder, "--adapter", adapter, "--out", again) == 0
    dense = name != "qwen3_moe"
    split = ["--tensor-model-parallel-size", "2"] if dense else []
    lora = replace(lora, load=str(again))
    started = zygote.run([*argv, *places[:2], *split], data=tokens[1], lora=lora, ranks=1 + dense)
    assert started.losses[0] == pytest.approx(run.losses[3], rel=1e-6), started.output
    few = replace(lora, target_modules=("linear_qkv",))
    refused = zygote.run([*argv, *places[:2]], data=tokens[1], lora=few)
    assert refused.exit_codes == [1]
    assert "the checkpoint has it, this model does not" in refused.output
