"""Variants are judged as whole jobs are, whatever changed."""

import random

import pytest

from launcher.compose import compose
from launcher.job import convert, field_at, with_values
from launcher.mapping.backend import backend_names
from launcher.pipeline import judge, variants_of
from launcher.rules.dependency_tracking import changed_leaves

VALUES = {
    "parallel.tp": (1, 2, 3, 4, 8, 64),
    "parallel.pp": (1, 2, 3, 4),
    "parallel.vpp": (None, 2, 5),
    "parallel.cp": (1, 2, 8),
    "parallel.ep": (1, 2, 8, 12),
    "parallel.etp": (None, 1, 2),
    "parallel.sequence_parallel": (None, False, True),
    "parallel.cp_algorithm": (None, "ulysses", "megatron", "hybrid", "adaptive"),
    "parallel.ulysses_degree": (None, 2, 3),
    "parallel.first_stage_layers": (None, 5),
    "parallel.distributed_optimizer": (None, False, True),
    "batch.micro_batch_size": (1, 2, 3),
    "batch.global_batch_size": (64, 96, 7),
    "batch.seq_length": (4096, 1000, 1_000_000),
    "batch.packing": (None, True, False),
    "recompute.granularity": (None, "full", "selective"),
    "recompute.method": (None, "uniform", "block"),
    "recompute.num_layers": (None, 1, 100),
    "recompute.activation": (None, True),
    "recompute.modules": ((), ("core_attn",), ("moe", "mlp"), ("layernorm",)),
    "offload.attention": (None, True),
    "offload.optimizer": (None, True),
    "overlap.grad_reduce": (None, True),
    "overlap.param_gather": (None, True),
    "moe.token_dispatcher_type": ("allgather", "alltoall", "flex"),
    "moe.grouped_gemm": (None, True, False),
    "precision.dtype": ("bf16", "fp16", "fp32"),
    "lora.rank": (None, 8),
    "model.num_attention_heads": (32, 30),
    "model.num_experts": (128, 100, None),
    "schedule.train_iters": (None, 10),
    "task.type": ("pretrain", "sft", "dpo"),
    "cluster.nodes": (1, 2, 3),
    "rules.strict": ("all", "upstream"),
}
RECIPES = (
    ["+recipe=qwen3_moe"],
    ["+recipe=qwen3_moe", "parallel.tp=3", "parallel.cp=2", "recompute.activation=true"],
    ["model=qwen3_8b", "batch.seq_length=4096", "batch.global_batch_size=64", "optimizer.lr=1e-5", "parallel.tp=2"],
)
PASSED = {
    "megatron": ["++backend.args.recompute_granularity=full", "++backend.args.tensor_model_parallel_size=4"],
    "megatron_lm": ["++backend.args.tensor-model-parallel-size=4", "++backend.args.fp16=true"],
    "mindspeed": ["++backend.args.context-parallel-size=2", "++backend.args.swap-attention=true"],
    "mindformers": ["++backend.args.parallel_config.expert_parallel=3"],
}


def errors(findings) -> list[tuple[str, str]]:
    return sorted({(finding.rule, finding.message) for finding in findings if finding.severity == "error"})


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize("recipe", [*range(len(RECIPES)), "passed"])
def test_a_variant_has_the_errors_of_the_whole_job(backend, recipe):
    args = RECIPES[0] + PASSED[backend] if recipe == "passed" else RECIPES[recipe]
    job = compose([*args, f"backend={backend}"])
    variants = variants_of(job)
    assert errors(variants.errors({})) == errors(judge(job, fixes=False).findings)
    draw = random.Random(f"{backend} {recipe}")
    for _ in range(60):
        paths = draw.sample(list(VALUES), draw.choice((1, 1, 2, 3, 8)))
        changes = {path: draw.choice(VALUES[path]) for path in paths}
        changes = {path: convert(value, field_at(path).type, field_at(path).meta) for path, value in changes.items()}
        # As fixes do: a pass-through argument is dropped or set, a variable is set.
        passed = (override.lstrip("+").partition("=")[0] for override in PASSED[backend])
        changes |= {path: draw.choice((None, 0, 2)) for path in passed if draw.random() < 0.3}
        if draw.random() < 0.1:
            changes["backend.env.CUDA_DEVICE_MAX_CONNECTIONS"] = draw.choice(("1", "8"))
        whole = errors(judge(with_values(job, changes), fixes=False).findings)
        assert errors(variants.errors(changes)) == whole, changes
        assert variants.passes(changes) is not bool(whole), changes
        refusal = variants.refused(changes)
        assert (refusal is None) is not bool(whole), changes
        if refusal is not None and refusal.reads is not None:
            others = {path: changes.get(path, draw.choice(VALUES[path])) for path in draw.sample(list(VALUES), 3)}
            between = changed_leaves(with_values(job, changes), with_values(job, {**changes, **others}))
            if refusal.reads.isdisjoint(between):
                assert not variants.passes({**changes, **others}), (refusal.finding.message, others)


def test_variants_of_several_jobs_do_not_disturb_each_other():
    args = ["+recipe=qwen3_moe", "backend=megatron"]
    one, two = variants_of(compose([*args, "batch.seq_length=4096"])), variants_of(compose([*args, "parallel.tp=64"]))
    assert one.passes({})
    assert not two.passes({})
    assert two.passes({"parallel.tp": 1})
    assert not one.passes({"parallel.cp": 64})
    assert one.passes({})
    assert not two.passes({})
