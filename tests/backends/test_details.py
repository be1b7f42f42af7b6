"""The finer settings that several backends share: written by each in its own words, read back, or refused by name."""

from typing import Any

import pytest

from launcher.job import value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back, translate
from tests.backends.small_jobs import (
    LM,
    LM_12,
    MF,
    MF_OLD,
    MS,
    MS_OLD,
    SWIFT,
    SWIFT_3,
    SWIFT_36,
    job_of,
    written,
)

# Field, value -> on which backend it is which argument.
SAME: list[tuple[str, Any, dict[tuple[str, str], tuple[str, Any]]]] = [
    (
        "batch.rampup_batch_size",
        (8, 8, 400),
        {
            LM: ("rampup-batch-size", (8, 8, 400)),
            LM_12: ("rampup-batch-size", ("8", "8", "400")),
            MS_OLD: ("rampup-batch-size", ("8", "8", "400")),
        },
    ),
    ("schedule.skip_iterations", (3, 4), {LM: ("iterations-to-skip", (3, 4)), MS: ("iterations-to-skip", (3, 4))}),
    ("schedule.exit_minutes", 90, {LM: ("exit-duration-in-mins", 90), MS_OLD: ("exit-duration-in-mins", 90)}),
    (
        "optimizer.weight_decay_style",
        "cosine",
        {LM: ("weight-decay-incr-style", "cosine"), SWIFT: ("weight_decay_incr_style", "cosine")},
    ),
    (
        "optimizer.decay_qk_layernorm",
        True,
        {
            LM: ("apply-wd-to-qk-layernorm", True),
            MS: ("apply-wd-to-qk-layernorm", True),
            SWIFT_3: ("apply_wd_to_qk_layernorm", True),
        },
    ),
    ("optimizer.decoupled_lr", 0.001, {LM_12: ("decoupled-lr", 0.001), MS_OLD: ("decoupled-lr", 0.001)}),
    (
        "optimizer.muon_ns_steps",
        7,
        {LM: ("muon-num-ns-steps", 7), MS: ("muon-num-ns-steps", 7), SWIFT: ("muon_num_ns_steps", 7)},
    ),
    (
        "optimizer.muon_split_qkv",
        False,
        {LM: ("muon-no-split-qkv", True), MS: ("muon-no-split-qkv", True), SWIFT: ("muon_split_qkv", False)},
    ),
    (
        "optimizer.muon_nesterov",
        True,
        {LM: ("muon-use-nesterov", True), MS: ("muon-nesterov", True), SWIFT: ("muon_use_nesterov", True)},
    ),
    (
        "precision.first_last_layers_bf16",
        True,
        {LM: ("first-last-layers-bf16", True), MS: ("first-last-layers-bf16", True)},
    ),
    (
        "model.rotary_interleaved",
        True,
        {
            LM: ("rotary-interleaved", True),
            MS_OLD: ("rotary-interleaved", True),
            SWIFT_3: ("rotary_interleaved", True),
            MF: ("model.model_config.rotary_interleaved", True),
        },
    ),
    (
        "model.post_norm_residual",
        True,
        {
            LM: ("apply-residual-connection-post-layernorm", True),
            MF_OLD: ("model.model_config.apply_residual_connection_post_layernorm", True),
        },
    ),
    (
        "model.init_per_replica",
        True,
        {LM: ("data-parallel-random-init", True), SWIFT: ("data_parallel_random_init", True)},
    ),
    (
        "moe.force_load_balancing",
        True,
        {
            LM: ("moe-router-force-load-balancing", True),
            MS: ("fix-router", True),
            MS_OLD: ("fix-router", True),
            MF: ("model.model_config.moe_router_force_expert_balance", True),
        },
    ),
    ("parallel.gloo", False, {LM: ("disable-gloo-process-groups", True), MS: ("disable-gloo-group", True)}),
    (
        "kernels.attention_mask",
        "compressed",
        {
            LM: ("no-create-attention-mask-in-dataloader", True),
            MS: ("no-create-attention-mask-in-dataloader", True),
            SWIFT_36: ("no_create_attention_mask_in_dataloader", True),
            MF: ("model.model_config.use_attn_mask_compression", True),
        },
    ),
    (
        "fault_tolerance.check_for_nan",
        False,
        {LM: ("no-check-for-nan-in-loss-and-grad", True), MF: ("check_for_nan_in_loss_and_grad", False)},
    ),
    ("checkpoint.load_schedule", True, {LM: ("use-checkpoint-opt_param-scheduler", True)}),
    ("checkpoint.load_schedule", False, {MS: ("override-opt_param-scheduler", True)}),
    ("data.order", "cyclic", {LM: ("dataloader-type", "cyclic"), SWIFT_3: ("dataloader_type", "cyclic")}),
    ("logging.level", 20, {LM: ("logging-level", 20), SWIFT_3: ("logging_level", "20")}),
    ("logging.tensorboard_queue_size", 5, {MS: ("tensorboard-queue-size", 5), SWIFT: ("tensorboard_queue_size", 5)}),
]
CASES = [(path, value, where, wanted) for path, value, everywhere in SAME for where, wanted in everywhere.items()]


@pytest.mark.parametrize(
    ("path", "value", "where", "wanted"),
    CASES,
    ids=[f"{path}={value}-{'-'.join(where)}" for path, value, where, _ in CASES],
)
def test_a_field_is_the_same_setting_everywhere(path: str, value: Any, where: tuple[str, str], wanted: Any) -> None:
    more: dict[str, Any] = {"kernels__attention_backend": "flash"} if path == "kernels.attention_mask" else {}
    if path == "moe.force_load_balancing":
        more = {"model__num_experts": 4, "model__num_experts_per_tok": 2, "model__moe_intermediate_size": 32}
    given, refused = written(job_of(**{path.replace(".", "__"): value}, **more), where)
    assert given[wanted[0]] == wanted[1]
    assert path not in refused
    back = read_back(given, get_backend(where[0]), where[1]).job
    # MindFormers' compressed mask is what its jobs have anyway.
    assert value_at(back, path) == value or where == MF


SAMPLES = [
    # Counted in sequences by Megatron, in steps elsewhere.
    (LM, "lr-decay-samples", 800),
    (MS_OLD, "lr-decay-samples", 800),
    (SWIFT, "lr_decay_iters", 50),
    (SWIFT_36, "lr_decay_iters", 50),
    (MF, "lr_schedule.total_steps", 50),
]


@pytest.mark.parametrize(("where", "flag", "wanted"), SAMPLES, ids=[flag for _, flag, _ in SAMPLES])
def test_a_schedule_in_sequences(where: tuple[str, str], flag: str, wanted: int) -> None:
    job = job_of(schedule__train_iters=None, schedule__train_samples=1600, schedule__lr_decay_samples=800)
    given, refused = written(job, where)
    assert given[flag] == wanted
    assert not any(path.startswith("schedule.lr") for path in refused)


@pytest.mark.parametrize("where", [SWIFT, MF], ids=str)
def test_sequences_that_are_no_whole_steps_are_refused_with_the_nearest(where: tuple[str, str]) -> None:
    backend = get_backend(where[0])
    found = translate(job_of(schedule__lr_warmup_samples=17), backend, where[1]).findings
    fault = next(finding for finding in found if finding.fields == ("schedule.lr_warmup_samples",))
    assert fault.severity == "error"
    assert fault.fixes[0].overrides == ("schedule.lr_warmup_samples=16",)


@pytest.mark.parametrize("where", [LM, LM_12, MS, MS_OLD, SWIFT, MF], ids=str)
def test_a_length_has_one_setting(where: tuple[str, str]) -> None:
    _, refused = written(job_of(schedule__lr_decay_iters=50, schedule__lr_decay_samples=800), where)
    assert refused["schedule.lr_decay_samples"] == "error"


REFUSED = [
    ("batch.rampup_batch_size", (8, 8, 400), {SWIFT: "error", MF: "error"}),
    ("batch.rampup_batch_size", (8, 8), {LM: "error", MS: "error"}),
    ("schedule.exit_interval", 10, {SWIFT: "error", MF: "error"}),
    ("optimizer.muon_momentum", 0.8, {LM_12: "error", MS_OLD: "error", SWIFT_3: "error"}),
    ("model.norm_zero_centered", True, {SWIFT_3: "error", MF: "error"}),
    ("checkpoint.parallel_load", True, {SWIFT: "warning"}),
    ("fault_tolerance.check_for_nan", False, {SWIFT: "warning"}),
    ("generation.top_k", 3, {MF: "warning"}),
]


@pytest.mark.parametrize(("path", "value", "verdicts"), REFUSED, ids=[path for path, _, _ in REFUSED])
def test_what_a_backend_cannot_express_is_reported(path: str, value: Any, verdicts: dict[tuple[str, str], str]) -> None:
    for where, severity in verdicts.items():
        _, refused = written(job_of(**{path.replace(".", "__"): value}), where)
        assert refused.get(path) == severity, where


def test_generation_of_the_older_models_is_written() -> None:
    given, refused = written(job_of(model__legacy=True, generation__top_k=3), MF_OLD)
    assert given["model.model_config.top_k"] == 3
    assert "generation.top_k" not in refused


@pytest.mark.parametrize("where", [LM, LM_12, MS, MS_OLD, SWIFT], ids=str)
def test_fp8_scaling_is_the_same_everywhere(where: tuple[str, str]) -> None:
    """Megatron's own defaults are 1 and most_recent, ms-swift's 1024 and max."""
    names = ("fp8-amax-history-len", "fp8-amax-compute-algo")
    given, _ = written(job_of(precision__fp8_format="hybrid"), where)
    if where == SWIFT:
        defaults = [get_backend("megatron").catalogue(SWIFT[1]).get(name.replace("-", "_")) for name in names]
        assert [each.default for each in defaults if each] == [1024, "max"]
        return
    assert [given[name] for name in names] == [1024, "max"]
    plain = read_back({"fp8-format": "hybrid"}, get_backend(where[0]), where[1]).job.precision
    assert (plain.fp8_amax_history_len, plain.fp8_amax_compute_algo) == (1, "most_recent")
    without, _ = written(job_of(), where)
    assert not any(name in without for name in names)


@pytest.mark.parametrize("where", [LM, MS, SWIFT], ids=str)
def test_muon_has_one_momentum(where: tuple[str, str]) -> None:
    given, _ = written(job_of(optimizer__type="muon"), where)
    assert given["muon-momentum" if where != SWIFT else "muon_momentum"] == 0.95
    own = {LM: 0.9, MS: 0.95, SWIFT: 0.9}[where]
    assert read_back({"optimizer": "muon"}, get_backend(where[0]), where[1]).job.optimizer.muon_momentum == own
