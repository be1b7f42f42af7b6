"""The reference's schedule is Megatron-core's; jobs that it does not compute are refused with the field."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.compose import compose
from launcher.parity.reference import Options, rate, unsupported
from tests.sampling import examples


@given(
    warmup=st.integers(0, 5),
    length=st.integers(6, 20),
    decay=st.sampled_from(["constant", "linear", "cosine"]),
    lr=st.floats(1e-5, 1e-1),
    share=st.floats(0, 1),
    first=st.floats(0, 1),
)
@examples(50)
def test_the_learning_rate_is_megatron_cores(
    warmup: int, length: int, decay: str, lr: float, share: float, first: float
) -> None:
    scheduler = pytest.importorskip("megatron.core.optimizer_param_scheduler")
    group = {"lr": 0.0, "max_lr": lr, "min_lr": lr * share, "weight_decay": 0.0}
    real = scheduler.OptimizerParamScheduler(
        SimpleNamespace(param_groups=[group]),
        init_lr=lr * first,
        max_lr=lr,
        min_lr=lr * share,
        lr_warmup_steps=warmup,
        lr_decay_steps=length,
        lr_decay_style=decay,
        start_wd=0.0,
        end_wd=0.0,
        wd_incr_steps=length,
        wd_incr_style="constant",
    )
    ours = options(lr=lr, min_lr=lr * share, decay=decay, warmup=warmup, decay_iters=length, warmup_init=lr * first)
    for iteration in range(length + 3):
        assert rate(ours, iteration) == pytest.approx(group["lr"], rel=1e-12)
        real.step(increment=1)


def options(**values: object) -> Options:
    given = {
        "model": "m",
        "out": "o",
        "samples": [],
        "iterations": 1,
        "global_batch_size": 1,
        "micro_batch_size": 1,
        "lr": 1e-3,
        "min_lr": 0.0,
        "decay": "cosine",
        "warmup": 0,
        "decay_iters": 1,
        "weight_decay": 0.0,
        "betas": (0.9, 0.95),
        "eps": 1e-8,
        "clip_grad": 1.0,
    }
    return Options(**{**given, **values})  # type: ignore[arg-type]


REFUSED = {
    "passed through": (["+recipe=tiny_qwen3", "backend=megatron_lm", "+backend.args.adam-beta2=0.999"], "adam-beta2"),
    "experts in fp16": (["+recipe=tiny_qwen3_moe", "precision.dtype=fp16"], "model.model_type"),
    "preferences in fp16": (["+recipe=tiny_qwen3", "task=dpo", "precision.dtype=fp16"], "precision.dtype"),
    "loss per token in fp16": (
        ["+recipe=tiny_qwen3", "precision.dtype=fp16", "precision.calculate_per_token_loss=true"],
        "calculate_per_token_loss",
    ),
    "experts in bf16": (["+recipe=tiny_qwen3_moe", "precision.dtype=bf16"], "model.model_type"),
    "optimizer": (["+recipe=tiny_qwen3", "optimizer.type=sgd"], "optimizer.type"),
    "schedule": (["+recipe=tiny_qwen3", "schedule.lr_decay_style=inverse-square-root"], "lr_decay_style"),
    "balancing over all ranks": (
        ["+recipe=tiny_qwen3_moe", "moe.load_balancing_type=global_aux_loss"],
        "load_balancing_type",
    ),
    "prediction of more tokens": (
        ["+recipe=tiny_deepseek_v3", "model.num_nextn_predict_layers=2"],
        "num_nextn_predict_layers",
    ),
    "loss per token of further predictions": (
        ["+recipe=tiny_deepseek_v3", "precision.calculate_per_token_loss=true"],
        "num_nextn_predict_layers",
    ),
    "loss per token with a balancing loss": (
        ["+recipe=tiny_qwen3_moe", "precision.calculate_per_token_loss=true"],
        "calculate_per_token_loss",
    ),
    "capacity under tp": (
        ["+recipe=tiny_qwen3_moe", "moe.capacity_factor=1", "parallel.tp=2", "cluster.devices_per_node=2"],
        "parallel.tp",
    ),
    "capacity with an expert bias": (["+recipe=tiny_deepseek_v3", "moe.capacity_factor=1"], "moe.capacity_factor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_reference_does_not_compute_is_named_with_an_override_that_removes_it(name: str) -> None:
    words, field = REFUSED[name]
    found = list(unsupported(compose(words)))
    assert any(field in path for path, _, _ in found)
    without = [word for word in words if "backend.args" not in word]
    overrides = [override for _, _, override in found if "backend.args" not in override]
    assert not list(unsupported(compose([*without, *overrides])))
