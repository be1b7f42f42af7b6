"""A shrunken job keeps topology and switches, passes every rule, and says what shrank."""

import math

import pytest

from launcher.compose import compose
from launcher.job import fields, value_at
from launcher.job.shipped import shipped
from launcher.pipeline import judge
from launcher.rehearse.shrink import fit, shrink

RECIPES = sorted(path.stem for path in shipped("recipes").glob("*.yaml"))
# What a shrunken job may change: sizes, never a switch.
SIZES = (
    "model.",
    "parallel.",
    "cluster.",
    "batch.",
    "schedule.",
    "tokenizer.padded_vocab_size",
    "recompute.num_layers",
    "evaluation.iters",
    "optimizer.lr",
    "optimizer.min_lr",
    "logging.interval",
)


def shrunken(recipe: str, *args: str, cores: int | None = 2):
    job = compose([f"+recipe={recipe}", "backend=megatron_lm", "model.pretrained=false", *args])
    return job, shrink(job, cores=cores)


def errors_of(job):
    found = judge(job, fixes=False).findings
    return {(each.rule, each.fields) for each in found if each.severity == "error"}


@pytest.mark.sample(keep=14)
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_fits_a_laptop_and_its_layout_is_legal(recipe):
    job, small = shrunken(recipe)
    assert small.job.cluster.world_size <= 4
    # What Megatron-LM refuses in the whole job (a task, an offloaded optimizer), it refuses in the small one.
    assert errors_of(small.job) <= errors_of(job)
    assert (small.job.model.vocab_size or 0) <= 512


@pytest.mark.sample(keep=14)
@pytest.mark.parametrize("recipe", RECIPES)
def test_only_sizes_change_and_each_change_is_reported(recipe):
    job, small = shrunken(recipe)
    changed = {path for path in fields() if value_at(job, path) != value_at(small.job, path)}
    derived = {"parallel.dp", "checkpoint.save"}
    assert {line.split()[0] for line in small.report} == changed - derived
    assert all(path.startswith(SIZES) for path in changed - derived), changed


def test_parallelism_stays_parallel():
    _, small = shrunken("qwen3_moe")
    assert (small.job.parallel.pp, small.job.parallel.ep, small.job.parallel.dp) == (2, 2, 2)
    _, small = shrunken(
        "qwen3_moe", "parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=4", "parallel.ep=2"
    )
    assert (small.job.parallel.tp, small.job.parallel.pp) == (2, 2)
    assert small.job.parallel.sequence_parallel


def test_a_fake_world_keeps_the_layout():
    job, small = shrunken("deepseek_v3", cores=None)
    assert small.job.parallel.dp == job.parallel.dp
    assert small.job.cluster == job.cluster
    assert (small.job.parallel.tp, small.job.parallel.pp, small.job.parallel.ep) == (4, 8, 32)
    assert small.job.model.num_nextn_predict_layers == 1


@pytest.mark.parametrize(("asked", "small"), [(256, 16), (224, 224)], ids=["of the head size", "of another size"])
def test_the_scale_of_queries_follows_the_head_size(asked: int, small: int) -> None:
    job = shrunken("gemma_2_9b", f"model.query_pre_attn_scalar={asked}")[1].job
    assert (job.model.head_dim, job.model.query_pre_attn_scalar) == (16, small)


def test_more_processes_keep_more():
    _, small = shrunken("qwen3_moe", "rehearse.max_processes=16")
    assert small.job.cluster.world_size == 16
    assert small.job.parallel.ep == 8


@pytest.mark.parametrize("sizes", [{"tp": 8, "pp": 16, "dp": 8}, {"dp": 64}, {"tp": 3, "pp": 5}, {"tp": 1}])
@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_fit_never_exceeds_the_processes(sizes, most):
    small = fit(sizes, most)
    assert math.prod(small.values()) <= most
    assert all(1 <= small[name] <= size for name, size in sizes.items())


def test_a_learning_rate_of_zero_stays() -> None:
    small = shrink(compose(["+recipe=tiny_qwen3", "optimizer.lr=0"]), cores=2).job
    assert small.optimizer.lr == 0


@pytest.mark.parametrize(("asked", "small"), [(5, 5), (10, 10), (500, 1)])
def test_a_short_run_reports_its_losses(asked: int, small: int) -> None:
    assert shrink(compose(["+recipe=tiny_qwen3", f"logging.interval={asked}"]), cores=2).job.logging.interval == small


def test_an_indexer_selects_some_keys_only() -> None:
    model = shrunken("deepseek_v3_2")[1].job.model
    assert (model.index_topk, model.index_head_dim) == (32, 16)


@pytest.mark.parametrize("recipe", ["qwen3_next", "qwen3_5_27b_sft", "qwen3_5_moe_lora"])
def test_both_kinds_of_attention_stay_and_the_last_layer_has_softmax(recipe: str) -> None:
    model = shrunken(recipe)[1].job.model
    layers, interval = model.num_hidden_layers or 0, model.full_attention_interval or 0
    assert (layers % interval, interval > 1) == (0, True)


def test_each_stage_keeps_every_kind_of_compressed_attention() -> None:
    """One without an indexer hangs on MindSpeed-LLM; a head's key is as large as what all heads share."""
    small = shrunken("deepseek_v4_flash", "backend=mindspeed")[1].job
    model, parallel = small.model, small.parallel
    first = parallel.first_stage_layers
    assert parallel.pp == 2
    assert [set(part) for part in (model.compress_ratios[:first], model.compress_ratios[first:])] == [{4, 128}] * 2
    assert len(model.compress_ratios) == model.num_hidden_layers
    assert model.qk_nope_head_dim + model.qk_rope_head_dim == model.kv_lora_rank == model.v_head_dim
    assert model.num_attention_heads % model.o_groups == 0
    assert small.batch.seq_length == 2 * max(model.compress_ratios)
