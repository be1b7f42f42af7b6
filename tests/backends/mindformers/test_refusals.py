"""What MindFormers cannot express is refused, with the reason and what would work."""

from typing import Any

import pytest

from backends.mindformers.mapping.unsupported import UNSUPPORTED
from tests.backends.mindformers.jobs import DEEPSEEK, NEWEST, OLD, QWEN3_MOE, refusals, tree

# name: (job, version, field refused, what would work, or "" where nothing is offered)
REFUSED: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "two data sets of the hub": (
        tree(data={"format": "hub", "paths": ["a/b", "c/d"]}),
        NEWEST,
        "data.paths",
        "data.paths=[NAME]",
    ),
    "a world that does not divide": (tree(parallel={"tp": 3}), NEWEST, "parallel.dp", ""),
    "another dp": (tree(parallel={"tp": 2, "dp": 8}), NEWEST, "parallel.dp", "parallel.dp=4"),
    "a batch that does not divide": (
        tree(batch={"global_batch_size": 100}),
        NEWEST,
        "batch.global_batch_size",
        "batch.global_batch_size=96",
    ),
    "fewer micro-batches than stages": (
        tree(parallel={"pp": 4}, batch={"global_batch_size": 4}),
        NEWEST,
        "batch.global_batch_size",
        "batch.global_batch_size=8",
    ),
    "stages without a batch": (
        tree(parallel={"pp": 4}, batch={"global_batch_size": None}),
        NEWEST,
        "batch.global_batch_size",
        "batch.global_batch_size=8",
    ),
    "layers that do not divide": (tree(parallel={"pp": 8}), NEWEST, "parallel.pp", "model.num_hidden_layers=32"),
    "Llama does not train": (tree(model_changes={"model_type": "llama"}), NEWEST, "model.model_type", ""),
    "Qwen3 does not train in 1.6": (tree(), OLD, "model.model_type", "backend.version=2.1.0"),
    "Qwen3 without its norm": (
        tree(model_changes={"qk_layernorm": False}),
        NEWEST,
        "model.qk_layernorm",
        "model.qk_layernorm=true",
    ),
    "experts split by tp": (tree(QWEN3_MOE, parallel={"tp": 2, "etp": 2}), NEWEST, "parallel.etp", "parallel.etp=1"),
    "capacity is read past": (tree(QWEN3_MOE, moe={"capacity_factor": 1.5}), NEWEST, "moe.capacity_factor", ""),
    "z-loss is read past": (tree(QWEN3_MOE, moe={"z_loss_coeff": 1e-3}), NEWEST, "moe.z_loss_coeff", ""),
    "another dispatcher": (
        tree(QWEN3_MOE, moe={"token_dispatcher_type": "allgather"}),
        NEWEST,
        "moe.token_dispatcher_type",
        "moe.token_dispatcher_type=alltoall",
    ),
    "sequence balance over several sequences": (
        tree(
            QWEN3_MOE,
            moe={"load_balancing_type": "seq_aux_loss", "aux_loss_coeff": 1e-3},
            batch={"micro_batch_size": 2},
        ),
        NEWEST,
        "moe.load_balancing_type",
        "batch.micro_batch_size=1",
    ),
    "groups do not exist in 1.6": (tree(DEEPSEEK), OLD, "model.n_group", "backend.version=2.1.0"),
    "ulysses does not exist in 1.6": (
        tree(
            DEEPSEEK, model_changes={"n_group": None, "topk_group": None}, parallel={"cp": 2, "cp_algorithm": "ulysses"}
        ),
        OLD,
        "parallel.cp_algorithm",
        "parallel.cp_algorithm=megatron",
    ),
    "swapped optimizer in 1.6": (
        tree(DEEPSEEK, model_changes={"n_group": None, "topk_group": None}, offload={"optimizer": True}),
        OLD,
        "offload.optimizer",
        "backend.version=2.1.0",
    ),
    "swapping in 1.6": (
        tree(DEEPSEEK, model_changes={"n_group": None, "topk_group": None}, offload={"attention": True}),
        OLD,
        "offload.attention",
        "backend.version=2.1.0",
    ),
    "yarn without MLA": (
        tree(model_changes={"rope_scaling": {"type": "yarn", "factor": 4.0}}),
        NEWEST,
        "model.rope_scaling.type",
        "model.rope_scaling.type=null",
    ),
    "groups of layers": (
        tree(recompute={"granularity": "full", "method": "uniform", "num_layers": 4}),
        NEWEST,
        "recompute.num_layers",
        "recompute.num_layers=1",
    ),
    "a stable phase without warm-up divides zero by zero": (
        tree(schedule={"lr_decay_style": "WSD", "lr_wsd_decay_iters": 20}),
        NEWEST,
        "schedule.lr_warmup_iters",
        "schedule.lr_warmup_iters=1",
    ),
    "inverse square root": (
        tree(schedule={"lr_decay_style": "inverse-square-root"}),
        NEWEST,
        "schedule.lr_decay_style",
        "schedule.lr_decay_style=cosine",
    ),
    "SGD": (tree(optimizer={"type": "sgd"}), NEWEST, "optimizer.type", "optimizer.type=adam"),
    "FP8": (tree(precision={"fp8_format": "hybrid"}), NEWEST, "precision.fp8_format", ""),
    "preference training": (tree(task={"type": "dpo"}), NEWEST, "task.type", "task.type=pretrain"),
    "chat messages": (tree(data={"format": "messages"}), NEWEST, "data.format", "data.format=megatron"),
    "several files without weights": (
        tree(data={"paths": ["/a", "/b", "/c"]}),
        NEWEST,
        "data.paths",
        "data.paths=[1,/a,1,/b,1,/c]",
    ),
    "no length": (tree(schedule={"train_iters": None}), NEWEST, "schedule.train_iters", "schedule.train_iters=1000"),
    "document masks without the token of an end": (
        tree(data={"reset_attention_mask": True}),
        NEWEST,
        "data.reset_attention_mask",
        "data.eod_token_id=TOKEN_ID",
    ),
    "weights from a hub": (tree(model_changes={"hub_id": "Qwen/Qwen3-8B"}), NEWEST, "model.hub_id", "model.path=DIR"),
    "another checkpoint format": (
        tree(checkpoint={"format": "torch_dist"}),
        NEWEST,
        "checkpoint.format",
        "checkpoint.format=safetensors",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_with_what_would_work(name: str) -> None:
    job, version, field, works = REFUSED[name]
    found = refusals(job, version)
    assert field in found, found
    message, fixes = found[field]
    assert "MindFormers" in message
    assert not works or works in fixes, fixes


def test_gaps_that_only_cost_speed_are_warnings() -> None:
    assert UNSUPPORTED["overlap.tp_comm"].severity == "warning"
    assert UNSUPPORTED["moe.z_loss_coeff"].severity == "error"
