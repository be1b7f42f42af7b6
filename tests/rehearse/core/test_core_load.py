"""The trainer starts from what `launch convert` and other stacks write: its first loss is transformers' own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from core_models import LENGTH, loss_of
from core_world import Run, Zygote

from launcher.compose import compose
from launcher.pipeline import judge
from launcher.rehearse.core.options import DataOptions
from launcher.rehearse.weights import convert
from launcher.runtime import planned
from tests.convert.core_logits import megatron_argv
from tests.convert.helpers import launch, with_mtp

pytestmark = pytest.mark.slow

RELATIVE = 1e-6
SEQUENCE = ["parallel.tp=2", "parallel.sequence_parallel=true"]

# name: model, layers whose names the checkpoint has, layout that trains, ranks
CASES: dict[str, tuple[str, str, list[str], int]] = {
    "qwen3": ("qwen3", "transformer_engine", [], 1),
    "qwen3 local": ("qwen3", "local", [], 1),
    "llama tp2": ("llama", "transformer_engine", ["parallel.tp=2"], 2),
    "llama tied pp2": ("llama_tied", "transformer_engine", ["parallel.pp=2"], 2),
    "qwen2 cp2": ("qwen2", "transformer_engine", ["parallel.cp=2"], 2),
    "qwen3_moe": ("qwen3_moe", "transformer_engine", [], 1),
    "qwen3_moe local": ("qwen3_moe", "local", [], 1),
    "qwen3_moe ep2": ("qwen3_moe", "transformer_engine", ["parallel.ep=2"], 2),
    "qwen3_moe tp2 ep2 etp1": ("qwen3_moe", "transformer_engine", [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"], 2),
    "deepseek_v3": ("deepseek_v3", "transformer_engine", [], 1),
    "deepseek_v3 local": ("deepseek_v3", "local", [], 1),
    "deepseek_v3 pp2": ("deepseek_v3", "transformer_engine", ["parallel.pp=2"], 2),
    "deepseek_v3 tp2": ("deepseek_v3", "transformer_engine", SEQUENCE, 2),
}


def transformers_loss(folder: Path, tokens: Any) -> float:
    """The mean loss that transformers computes on one sample, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return loss_of(model, tokens)


def started(
    zygote: Zygote,
    folder: Path,
    checkpoint: Path,
    overrides: list[str],
    ranks: int,
    tokens: tuple[Any, DataOptions],
    *more: str,
) -> Run:
    """Train some iterations from a checkpoint with the arguments of a Hugging Face folder's model."""
    argv = megatron_argv(str(folder), *overrides, "schedule.train_iters=2", world=ranks)
    return zygote.run([*argv, "--load", str(checkpoint), "--split", "100,0,0", *more], ranks=ranks, data=tokens[1])


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("name,layers,overrides,ranks", CASES.values(), ids=CASES.keys())
def test_the_first_loss_is_that_of_transformers(
    zygote: Zygote,
    model: Callable[[str], Path],
    tokens: tuple[Any, DataOptions],
    tmp_path: Path,
    name: str,
    layers: str,
    overrides: list[str],
    ranks: int,
) -> None:
    folder, out = model(name), tmp_path / "core"
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--layers", layers) == 0
    run = started(zygote, folder, out, overrides, ranks, tokens)
    assert run.losses[0] == pytest.approx(transformers_loss(folder, tokens[0]), rel=RELATIVE)
    assert len(run.losses) == 2
    assert run.summary["weights"] == f"loaded from {out}/iter_0000001, which has no optimizer state"


@pytest.mark.parametrize("layers", ["transformer_engine", "local"])
def test_mtp_layers_are_loaded_or_named(
    zygote: Zygote, model: Callable[[str], Path], tokens: tuple[Any, DataOptions], tmp_path: Path, layers: str
) -> None:
    folder, out = with_mtp(model, tmp_path / "with_mtp"), tmp_path / "core"
    assert launch("hf-to-mcore", "--model", folder, "--out", out, "--layers", layers) == 0
    expected = pytest.approx(transformers_loss(model("deepseek_v3"), tokens[0]), rel=RELATIVE)
    run = started(zygote, folder, out, ["parallel.pp=2"], 2, tokens)
    assert run.losses[0] == expected
    assert "MTP" not in run.summary["weights"]
    without = started(zygote, model("deepseek_v3"), out, [], 1, tokens)
    assert without.losses[0] == expected
    assert "MTP layers of the checkpoint are not loaded" in without.summary["weights"]


def test_released_weights_are_loaded(
    zygote: Zygote, model: Callable[[str], Path], tokens: tuple[Any, DataOptions], tmp_path: Path
) -> None:
    out = tmp_path / "core"
    assert launch("hf-to-mcore", "--model", model("qwen3"), "--out", out) == 0
    (out / "iter_0000001").rename(out / "release")
    (out / "latest_checkpointed_iteration.txt").write_text("release")
    run = started(zygote, model("qwen3"), out, [], 1, tokens)
    assert run.losses[0] == pytest.approx(transformers_loss(model("qwen3"), tokens[0]), rel=RELATIVE)


def test_weights_in_bf16_are_loaded_into_fp32(
    zygote: Zygote, model: Callable[[str], Path], tokens: tuple[Any, DataOptions], tmp_path: Path
) -> None:
    out, rounded = tmp_path / "core", tmp_path / "rounded"
    assert launch("hf-to-mcore", "--model", model("qwen3"), "--out", out, "--dtype", "bf16") == 0
    assert launch("mcore-to-hf", "--checkpoint", out, "--out", rounded) == 0
    run = started(zygote, model("qwen3"), out, [], 1, tokens)
    assert run.losses[0] == pytest.approx(transformers_loss(rounded, tokens[0]), rel=RELATIVE)


def test_a_checkpoint_of_another_model_is_refused(
    zygote: Zygote, model: Callable[[str], Path], tokens: tuple[Any, DataOptions], tmp_path: Path
) -> None:
    folder, out = model("llama"), tmp_path / "core"
    assert launch("hf-to-mcore", "--model", folder, "--out", out) == 0
    for flags, said in {
        ("--num-layers", "2"): "has 4 layers, this model 2",
        ("--num-layers", "6"): "has 4 layers, fewer than this model",
        ("--qk-layernorm",): "self_attention.q_layernorm.weight: this model has it, the checkpoint does not",
        ("--add-qkv-bias",): "linear_qkv.bias: this model has it",
        ("--ffn-hidden-size", "128"): "does not fit this run",
    }.items():
        refused = started(zygote, folder, out, [], 1, tokens, *flags)
        assert refused.exit_codes == [1], refused.output
        assert said in refused.output
        assert "Traceback" not in refused.output


def rehearsed(zygote: Zygote, tokens: tuple[Any, DataOptions], output_dir: Path, *overrides: str) -> tuple[Run, str]:
    """Run the plan of a rehearsal: what it converts first, then its trainer; return the run and the plan's notes."""
    ranks = 2
    job = compose(
        [
            "runtime=rehearsal",
            "precision.dtype=fp32",
            f"cluster.devices_per_node={ranks}",
            f"batch.seq_length={LENGTH}",
            "batch.micro_batch_size=1",
            "batch.global_batch_size=4",
            "schedule.train_iters=1",
            "optimizer.lr=1e-3",
            "data.format=megatron",
            f"data.paths=[{tokens[1].paths[0]}]",
            "data.split='100,0,0'",
            f"output_dir={output_dir}",
            *overrides,
        ]
    )
    plan = planned(judge(job, fixes=False))
    for node in plan.prepare:
        (file,) = (file for file in plan.files if file.path == node.argv[-1])
        convert(json.loads(file.content))
    argv = list(plan.nodes[0].argv)
    run = zygote.run(argv[argv.index("--") + 1 :], ranks=ranks, data=tokens[1])
    return run, "\n".join(plan.notes)


FOLDERS = {
    "qwen3 Megatron-LM": ("qwen3", "megatron_lm", ["parallel.tp=2"]),
    "qwen3_moe Megatron-SWIFT": ("qwen3_moe", "megatron", ["parallel.ep=2"]),
    "deepseek_v3 MindSpeed-LLM": ("deepseek_v3", "mindspeed", ["parallel.pp=2"]),
}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name,backend,overrides", FOLDERS.values(), ids=FOLDERS.keys())
def test_a_hugging_face_folder_is_loaded(
    zygote: Zygote,
    model: Callable[[str], Path],
    tokens: tuple[Any, DataOptions],
    tmp_path: Path,
    name: str,
    backend: str,
    overrides: list[str],
) -> None:
    folder = model(name)
    words = [f"backend={backend}", f"model.path={folder}", "model.pretrained=true", *overrides]
    run, notes = rehearsed(zygote, tokens, tmp_path / "out", *words)
    assert run.losses[0] == pytest.approx(transformers_loss(folder, tokens[0]), rel=RELATIVE)
    assert f"weights: loaded from {folder} (" in notes
    assert "random" not in notes
    fresh, notes = rehearsed(zygote, tokens, tmp_path / "fresh", *words, "model.pretrained=false")
    assert fresh.losses[0] != pytest.approx(run.losses[0], rel=1e-3)
    assert "weights: loaded" not in notes
    assert fresh.summary["weights"].startswith("random, seed ")


LEGACY = {
    "llama tp2 pp2": ("llama", "megatron_lm", ["parallel.tp=2", "parallel.pp=2"], ["parallel.pp=2"]),
    "qwen3_moe ep2": ("qwen3_moe", "megatron_lm", ["parallel.ep=2"], [*SEQUENCE, "parallel.ep=2", "parallel.etp=1"]),
    "qwen3_moe grouped": ("qwen3_moe", "megatron_lm", ["moe.grouped_gemm=true"], ["parallel.ep=2"]),
    "qwen3_moe MindSpeed-LLM": ("qwen3_moe", "mindspeed", ["parallel.ep=2"], ["parallel.ep=2"]),
    "deepseek_v3 tp2": ("deepseek_v3", "megatron_lm", SEQUENCE, ["parallel.pp=2"]),
}


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("name,backend,saved,overrides", LEGACY.values(), ids=LEGACY.keys())
def test_a_legacy_checkpoint_is_loaded_at_another_layout(
    zygote: Zygote,
    model: Callable[[str], Path],
    tokens: tuple[Any, DataOptions],
    tmp_path: Path,
    name: str,
    backend: str,
    saved: list[str],
    overrides: list[str],
) -> None:
    folder, out = model(name), tmp_path / "legacy"
    form = ["--backend", "mindspeed"] if backend == "mindspeed" else ["--format", "legacy"]
    assert launch("hf-to-mcore", "--model", folder, "--out", out, *form, *saved) == 0
    words = [f"backend={backend}", f"model.path={folder}", f"checkpoint.load={out}", *overrides]
    run, notes = rehearsed(zygote, tokens, tmp_path / "out", *words, "checkpoint.finetune=true")
    assert run.losses[0] == pytest.approx(transformers_loss(folder, tokens[0]), rel=RELATIVE)
    assert f"weights: loaded from {out} (" in notes


def test_a_step_that_was_not_saved_is_refused_with_those_that_were(tmp_path: Path) -> None:
    from launcher.rehearse.core.checkpoint import find
    from launcher.rehearse.core.errors import RehearsalError

    for step in (3, 6, 9):
        (tmp_path / f"iter_{step:07}").mkdir()
        (tmp_path / f"iter_{step:07}" / "metadata.json").write_text("{}")
    values = {"load": str(tmp_path), "ckpt_step": 7}
    settings: Any = type("Settings", (), {"value": staticmethod(values.get)})
    with pytest.raises(RehearsalError, match=r"works: checkpoint\.load_step=6 · checkpoint\.load_step=9"):
        find(settings)
