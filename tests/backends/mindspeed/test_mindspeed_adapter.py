"""MindSpeed-LLM's own training script saves LoRA factors and loads ours: the same loss before and after."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.rehearse.native import missing
from tests.convert.helpers import launch, tensors
from tests.rehearse.native.plans import native_plan, words_after
from tests.rehearse.native.test_mindspeed import SMALL, Workshop, train, workshop

_ABSENT = missing(NATIVE_CPU, os.environ, version_of=lambda _name: "installed in the test's own environment")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_ABSENT), reason="; ".join(_ABSENT))]
__all__ = ["workshop"]

SAME = 5e-6
"""Largest difference in loss between weights with factors beside them, and with the factors merged into them."""
LORA = ["--lora-target-modules", "linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
LORA += ["--lora-r", "4", "--lora-alpha", "8", "--ckpt-format", "torch"]
SEQUENTIAL = ("parallel.ep=2", "moe.token_dispatcher_type=alltoall_seq", "moe.grouped_gemm=false")
# Grouped products of experts multiply bf16 only: merged weights are rounded to it.
GROUPED = ("parallel.ep=2", "moe.token_dispatcher_type=alltoall_seq", "moe.grouped_gemm=true", "precision.dtype=bf16")
# Not tensor parallelism: its ranks begin with different factors A there, and no one adapter is what they trained.
LAYOUTS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "pp2": ("tiny_qwen3", ("parallel.pp=2",), SAME),
    "ep2": ("tiny_qwen3_moe", SEQUENTIAL, SAME),
    "grouped": ("tiny_qwen3_moe", GROUPED, 2e-2),
}


def _argv(workshop: Workshop, recipe: str, *more: str) -> list[str]:
    data = ["data.format=megatron", f"data.paths=[{workshop.tokens}]", f"data.cache_path={workshop.folder / 'cache'}"]
    small = [arg for arg in SMALL if not arg.startswith("checkpoint")]
    layers = "kernels.transformer_impl=local"
    plan, _ = native_plan([f"+recipe={recipe}", "backend=mindspeed", *small, *data, layers, *more])
    return words_after(plan, "pretrain_gpt.py", workshop.folder)


def _model(folder: Path, recipe: str) -> Path:
    """A random model of the recipe's architecture as Hugging Face stores it."""
    import torch
    import transformers

    from launcher import api
    from launcher.families.config_json import config_from_model

    folder.mkdir(parents=True)
    tree = config_from_model(api.compose([f"+recipe={recipe}"]).model)
    (folder / "config.json").write_text(json.dumps(tree))
    torch.manual_seed(0)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(tree))
    return folder


def _losses(workshop: Workshop, ranks: int, argv: Sequence[str]) -> list[float]:
    losses = train(workshop, ranks, list(argv)).losses
    return [losses[key] for key in sorted(losses)]


@pytest.mark.parametrize(("recipe", "layout", "same"), LAYOUTS.values(), ids=LAYOUTS.keys())
def test_its_factors_come_back_and_ours_are_loaded(
    recipe: str, layout: tuple[str, ...], same: float, workshop: Workshop, tmp_path: Path
) -> None:
    model = _model(tmp_path / "hf", recipe)
    base, saved, peft = tmp_path / "base", tmp_path / "saved", tmp_path / "peft"
    args = ["--backend", "mindspeed", "kernels.transformer_impl=local", *layout]
    assert launch("hf-to-mcore", "--model", model, "--out", base, *args) == 0
    # The first layout of training saves factors; a second run from them gives the loss to compare with.
    argv = _argv(workshop, recipe, "cluster.devices_per_node=2", *layout)
    start = [*LORA, "--finetune", "--no-load-optim", "--no-load-rng", "--load", str(base)]
    _losses(workshop, 2, [*argv, *start, "--lora-ckpt-filter", "--save", str(saved), "--save-interval", "20"])
    again = _losses(workshop, 2, [*argv, *start, "--lora-load", str(saved), "--train-iters", "3"])
    # To PEFT and back again.
    assert launch("mcore-to-hf", "--checkpoint", saved, "--model", model, "--out", peft) == 0
    ours, merged, other = tmp_path / "ours", tmp_path / "merged", tmp_path / "other"
    assert launch("hf-to-mcore", "--model", model, "--adapter", peft, "--out", ours, *args) == 0
    assert launch("verify", saved, ours, "--model", model) == 0
    assert _losses(workshop, 2, [*argv, *start, "--lora-load", str(ours), "--train-iters", "3"]) == again
    # Merged into the weights, without any factor.
    assert launch("merge", "--model", model, "--adapter", peft, "--out", merged) == 0
    assert tensors(merged) != tensors(model)
    assert launch("hf-to-mcore", "--model", merged, "--out", other, *args) == 0
    plain = ["--finetune", "--no-load-optim", "--no-load-rng", "--load", str(other), "--ckpt-format", "torch"]
    first = _losses(workshop, 2, [*argv, *plain, "--train-iters", "3"])[0]
    assert abs(first - again[0]) < same
