"""Every recipe is a whole, legal job that says where it comes from; the copied ones say what their source says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.compose.search_path import shipped
from launcher.families.config_json import config_from_model
from launcher.job import Job, value_at
from tests.sampling import ROOT

FILES = sorted(shipped("recipes").glob("*.yaml"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TINY = [path for path in FILES if path.stem.startswith("tiny_")]


def _job(path: Path) -> Job:
    return compose([f"+recipe={path.stem}"])


def _stages(job: Job) -> list[int]:
    """Layers of each pipeline stage."""
    layers, pp = job.model.num_hidden_layers or 0, job.parallel.pp
    first, last = job.parallel.first_stage_layers, job.parallel.last_stage_layers
    outer = [size for size in (first, last) if size is not None]
    middle, rest = pp - len(outer), layers - sum(outer)
    assert rest % middle == 0, "the stages between the first and the last are not even"
    inner = [rest // middle] * middle
    return [*([first] if first is not None else []), *inner, *([last] if last is not None else [])]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_recipes_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"\+recipe=([a-z]\w*)\b(?!\()", page.read_text(encoding="utf-8")))
    missing = named - {path.stem for path in FILES}
    assert not missing, f"{page.name} names recipes that are not in recipes/: {', '.join(sorted(missing))}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recipe_says_where_it_comes_from(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    comment = "\n".join(lines[: lines.index("defaults:")])
    assert lines[0] == "# @package _global_"
    assert "Source: " in comment
    assert all(len(line) <= 120 for line in lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_arithmetic_of_a_recipe_works_out(path: Path) -> None:
    job = _job(path)
    parallel, batch, model = job.parallel, job.batch, job.model
    world = job.cluster.world_size
    assert world % (parallel.tp * parallel.pp * parallel.cp) == 0
    dp = world // (parallel.tp * parallel.pp * parallel.cp)
    assert parallel.dp == dp
    assert batch.global_batch_size is not None
    assert batch.global_batch_size % (batch.micro_batch_size * dp) == 0
    assert batch.seq_length is not None
    assert model.max_position_embeddings is not None
    assert batch.seq_length <= model.max_position_embeddings
    assert batch.seq_length % (2 * parallel.cp * parallel.tp) == 0
    assert (model.num_attention_heads or 0) % parallel.tp == 0
    groups = model.num_key_value_heads or 0
    # megatron-core 0.16 gives each rank a copy of a head that several share (transformer_config.py:939).
    assert groups % parallel.tp == 0 or parallel.tp % groups == 0
    stages = _stages(job)
    assert len(stages) == parallel.pp
    assert sum(stages) == model.num_hidden_layers
    assert all(stage % (parallel.vpp or 1) == 0 for stage in stages)
    vocabulary = job.tokenizer.padded_vocab_size or model.vocab_size
    assert (vocabulary or 0) % parallel.tp == 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_sequence_parallelism_and_experts_fit_the_layout(path: Path) -> None:
    job = _job(path)
    parallel, model = job.parallel, job.model
    assert not (parallel.sequence_parallel and parallel.tp == 1)
    if not model.is_moe:
        assert parallel.ep == 1
        return
    assert model.num_experts is not None
    assert model.num_experts % parallel.ep == 0
    assert (job.cluster.world_size // parallel.pp) % (parallel.ep * (parallel.etp or parallel.tp)) == 0
    assert parallel.sequence_parallel or parallel.tp == 1, "experts under tensor parallelism need sequence parallelism"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_one_length_of_training_is_given_and_the_schedule_is_explicit(path: Path) -> None:
    job = _job(path)
    schedule = job.schedule
    assert sum(value is not None for value in (schedule.train_iters, schedule.train_samples, schedule.epochs)) == 1
    assert job.optimizer.lr is not None
    assert (schedule.lr_warmup_iters is None) != (schedule.lr_warmup_fraction is None)
    assert job.checkpoint.save
    assert job.checkpoint.save_interval


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_model_is_the_preset_itself(path: Path) -> None:
    """No recipe quietly trains another architecture than the model it names; samples that are longer than its positions
    extend them to exactly their length."""
    job = _job(path)
    overridden = set(job.model.overridden) - {"mtp_loss_scaling_factor"}
    if "max_position_embeddings" in overridden:
        assert job.model.max_position_embeddings == job.batch.seq_length
        assert "tokens" in path.read_text(encoding="utf-8").splitlines()[1]
    if "attn_logit_softcapping" in overridden:  # MindSpeed-LLM builds Gemma 2 without it
        assert "caps no logits" in path.read_text(encoding="utf-8").partition("defaults:")[0]
    if "num_nextn_predict_layers" in overridden:  # its script trains none of the layers that the model has
        assert job.model.num_nextn_predict_layers == 0
        assert job.task.type != "pretrain"
    assert overridden <= {"max_position_embeddings", "attn_logit_softcapping", "num_nextn_predict_layers"}
    config_from_model(job.model)


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_recipes_run_on_one_process_with_the_text_that_ships(path: Path) -> None:
    job = _job(path)
    assert (job.cluster.world_size, job.data.format, job.precision.dtype) == (1, "sample", "fp32")
    assert job.model.hub_id is None
    # The padded vocabulary is the same at tp 1, 2 and 4, so that the loss is.
    assert (job.model.vocab_size or 1) % (128 * 4) == 0


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_models_have_about_a_million_parameters(path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = config_from_model(_job(path).model)
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    assert 0.9e6 < sum(weight.numel() for weight in built.parameters()) < 1.6e6


# What the source says, argument by argument; the differences are explained in the recipe's comment.
EXPECTED: dict[str, dict[str, Any]] = {
    # ms-swift v3.5 docs/source/Instruction/Megatron-SWIFT训练.md
    "qwen2_5_7b_sft": {
        "model.hub_id": "Qwen/Qwen2.5-7B-Instruct",
        "task.type": "sft",
        "checkpoint.load": "Qwen2.5-7B-Instruct-mcore",
        "data.paths": (
            "AI-ModelScope/alpaca-gpt4-data-zh#500",
            "AI-ModelScope/alpaca-gpt4-data-en#500",
            "swift/self-cognition#500",
        ),
        "parallel.tp": 2,
        "cluster.devices_per_node": 2,
        "batch.micro_batch_size": 4,
        "batch.global_batch_size": 16,
        "recompute.granularity": "selective",
        "schedule.train_iters": 100,
        "evaluation.iters": 5,
        "checkpoint.finetune": True,
        "kernels.cross_entropy_fusion": True,
        "optimizer.lr": 1e-5,
        "schedule.lr_warmup_iters": 10,
        "optimizer.min_lr": 1e-6,
        "checkpoint.save": "megatron_output/Qwen2.5-7B-Instruct",
        "checkpoint.save_interval": 100,
        "batch.seq_length": 2048,
        "data.system": "You are a helpful assistant.",
        "data.num_workers": 4,
        "checkpoint.no_save_optim": True,
        "checkpoint.no_save_rng": True,
        "data.num_preprocess": 4,
        "data.self_cognition_author": "swift",
        "data.self_cognition_name": "swift-robot",
    },
    # ms-swift 9d297f99 examples/train/megatron/base_to_chat.sh
    "qwen2_5_14b_sft": {
        "checkpoint.load": "Qwen2.5-14B-mcore",
        "parallel.tp": 4,
        "batch.micro_batch_size": 1,
        "batch.global_batch_size": 16,
        "batch.packing": True,
        "recompute.granularity": "selective",
        "schedule.train_iters": 2000,
        "evaluation.iters": 50,
        "schedule.lr_warmup_iters": 100,
        "evaluation.interval": 200,
        "checkpoint.save_interval": 200,
        "batch.seq_length": 8192,
        "parallel.sequence_parallel": True,
        "kernels.attention_backend": "flash",
        "cluster.devices_per_node": 8,
    },
    # ms-swift 8d95f8c9 examples/train/megatron/moe.sh
    "qwen1_5_moe_sft": {
        "checkpoint.load": "Qwen1.5-MoE-A2.7B-mcore",
        "parallel.tp": 2,
        "parallel.ep": 4,
        "moe.grouped_gemm": True,
        "moe.shared_expert_overlap": True,
        "moe.aux_loss_coeff": 0.01,
        "batch.packing": True,
        "recompute.granularity": "selective",
        "parallel.sequence_parallel": True,
        "batch.seq_length": 8192,
    },
    # MindSpeed-LLM examples/mcore/qwen3_moe/pretrain_qwen3_30b_a3b_4K_ptd.sh
    "qwen3_moe": {
        "model.hub_id": "Qwen/Qwen3-30B-A3B",
        "cluster.nodes": 2,
        "cluster.devices_per_node": 8,
        "parallel.tp": 1,
        "parallel.pp": 2,
        "parallel.ep": 8,
        "batch.micro_batch_size": 1,
        "batch.global_batch_size": 256,
        "batch.seq_length": 4096,
        "recompute.granularity": "full",
        "recompute.method": "uniform",
        "recompute.num_layers": 1,
        "moe.aux_loss_coeff": 0.001,
        "optimizer.lr": 1.25e-6,
        "optimizer.min_lr": 1.25e-7,
        "optimizer.weight_decay": 0.1,
        "schedule.train_iters": 2000,
        "schedule.lr_warmup_fraction": 0.01,
        "tokenizer.padded_vocab_size": 151936,
        "seed": 42,
    },
    # ms-swift v3.6.4 examples/train/megatron/rlhf/dpo/dense.sh
    "qwen3_8b_dpo": {
        "model.hub_id": "Qwen/Qwen3-8B-Base",
        "task.type": "dpo",
        "task.beta": 0.1,
        "task.rpo_alpha": 1.0,
        "task.loss_type": "sigmoid",
        "parallel.tp": 4,
        "batch.micro_batch_size": 8,
        "batch.global_batch_size": 16,
        "schedule.epochs": 1.0,
        "schedule.lr_warmup_fraction": 0.05,
        "batch.seq_length": 8192,
    },
}


@pytest.mark.parametrize("recipe", EXPECTED)
def test_a_recipe_says_what_its_source_says(recipe: str) -> None:
    job = _job(shipped("recipes") / f"{recipe}.yaml")
    assert {field: value_at(job, field) for field in EXPECTED[recipe]} == EXPECTED[recipe]


# What a real bash hands to stubs of torchrun and megatron (`launch import` has tests of its own), and what a recipe has
# otherwise.
SCRIPTS = json.loads((Path(__file__).parent / "scripts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("recipe", SCRIPTS)
def test_a_copied_recipe_says_what_its_script_says(recipe: str) -> None:
    script = SCRIPTS[recipe]
    wanted = script["says"] | script.get("differs", {})
    job = _job(shipped("recipes") / f"{recipe}.yaml")
    found = {field: value_at(job, field) for field in wanted}
    assert {field: list(value) if isinstance(value, tuple) else value for field, value in found.items()} == wanted


@pytest.mark.parametrize("recipe", SCRIPTS)
def test_a_copied_recipe_names_its_source(recipe: str) -> None:
    comment = (shipped("recipes") / f"{recipe}.yaml").read_text(encoding="utf-8").partition("defaults:")[0]
    words = comment.replace("#", "").replace(",", "").split()
    version, *rest = SCRIPTS[recipe]["source"].split(" ")
    assert version in words
    assert set(rest) <= {word.rstrip(".;") for word in words}


def test_every_recipe_is_ours_or_in_a_table() -> None:
    older = {"deepseek_v3", "llama3_70b", "llama3_8b", "qwen3_8b", "qwen3_8b_lora", "qwen3_moe_235b"}
    assert {path.stem for path in FILES} - {path.stem for path in TINY} == SCRIPTS.keys() | EXPECTED.keys() | older
