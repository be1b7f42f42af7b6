"""No field is accepted silently: each changes the estimate, is named in the answer, or costs nothing."""

import pytest

from launcher.estimate import CannotEstimate, estimate
from launcher.job import Job, Value, field_at, field_paths, value_at, with_values
from tests.estimate.estimate_jobs import MOE, job_with

SECTIONS = (
    "batch",
    "estimate",
    "hardware",
    "kernels",
    "lora",
    "moe",
    "offload",
    "optimizer",
    "overlap",
    "parallel",
    "precision",
    "recompute",
)
# What is learned, what is printed, what is derived: no memory and no time.
NO_COST = {
    "batch.decrease_batch_size_if_needed",
    "batch.packing",  # of pretraining; for instruction data see test_packing_of_instruction_data
    "batch.padding_free",
    "estimate.enforce",
    "hardware.measured",
    "hardware.name",
    "hardware.source",
    "kernels.inference_rng_tracker",
    "kernels.cuda_graph.warmup_steps",
    "kernels.manual_gc_eval",
    "kernels.manual_gc_interval",
    "kernels.sparse_mode",
    "kernels.te_rng_tracker",
    "lora.alpha",
    "lora.dropout",
    "lora.load",
    "lora.merge",
    "lora.rslora",
    "moe.aux_loss_coeff",
    "moe.bias_update_rate",
    "moe.input_jitter_eps",
    "moe.load_balancing_type",
    "moe.use_upcycling",
    "moe.z_loss_coeff",
    "optimizer.adam_beta1",
    "optimizer.adam_beta2",
    "optimizer.adam_eps",
    "optimizer.clip_grad",
    "optimizer.decay_qk_layernorm",
    "optimizer.decoupled_lr",
    "optimizer.decoupled_min_lr",
    "optimizer.end_weight_decay",
    "optimizer.lr",
    "optimizer.min_lr",
    "optimizer.muon_coefficient_type",
    "optimizer.muon_extra_scale_factor",
    "optimizer.muon_momentum",
    "optimizer.muon_nesterov",
    "optimizer.muon_scale_mode",
    "optimizer.muon_split_qkv",
    "optimizer.qk_clip",
    "optimizer.qk_clip_alpha",
    "optimizer.qk_clip_threshold",
    "optimizer.sgd_momentum",
    "optimizer.start_weight_decay",
    "optimizer.weight_decay",
    "optimizer.weight_decay_style",
    "overlap.average_in_collective",
    "overlap.tp.bootstrap_backend",
    "parallel.dp",
    "parallel.fsdp.init_model_with_meta_device",
    "parallel.fsdp.strict_load",
    "parallel.gloo",
    "precision.calculate_per_token_loss",
    "precision.disable_bf16_reduced_precision_matmul",
    "precision.fp8_amax_compute_algo",
    "precision.fp8_amax_history_len",
    "precision.fp8_margin",
    "precision.initial_loss_scale",
    "precision.loss_scale",
    "precision.loss_scale_factor",
    "precision.loss_scale_hysteresis",
    "precision.loss_scale_window",
    "precision.min_loss_scale",
}
FP8 = {"bf16_tflops": 1000.0, "fp8_tflops": 2000.0, "fp32_tflops": 500.0}
SMALL = {**FP8, "fp8_blockwise_tflops": 1900.0, "mxfp8_tflops": 2100.0, "nvfp4_tflops": 4000.0}
# Host of 2, domain of 4, rail of 8, all 16: each level has links of its own.
LEVELS = {
    "domain_devices": 8,
    "domain_used_devices": 4,
    "domain_gbs": 200.0,
    "domain_latency_us": 10.0,
    "domain_efficiency": 0.5,
    "domain_oversubscription": 1.0,
    "rail_devices": 8,
    "rail_oversubscription": 1.0,
    "spine_gbs": 20.0,
    "spine_latency_us": 20.0,
    "spine_efficiency": 0.5,
    "spine_oversubscription": 1.0,
}
FULL = {"granularity": "full", "method": "block", "num_layers": 2}
JOBS: dict[str, Job] = {
    "dense": job_with(
        parallel={"tp": 2, "pp": 2, "vpp": 2, "cp": 2, "sequence_parallel": True}, cluster={"nodes": 2}, recompute=FULL
    ),
    "experts": job_with(
        model={**MOE, "num_hidden_layers": 16},
        parallel={"tp": 2, "ep": 4, "etp": 1, "pp": 2, "sequence_parallel": True},
        cluster={"nodes": 2},
        moe={"capacity_factor": 1.5},
        recompute={"granularity": "selective", "modules": ["moe", "mlp"]},
    ),
    "plain": job_with(parallel={"tp": 2}, recompute={"granularity": "full", "method": "uniform", "num_layers": 1}),
    "fp32": job_with(precision={"dtype": "fp32"}, hardware=FP8, kernels={"attention_backend": "unfused"}),
    "hybrid ring": job_with(
        parallel={"cp": 4, "cp_algorithm": "hybrid", "ulysses_degree": 2}, kernels={"cross_entropy_fusion": True}
    ),
    "both ends": job_with(parallel={"pp": 4, "vpp": 2, "schedule": "dualpipev"}, batch={"global_batch_size": 32}),
    "sharded": job_with(parallel={"zero_stage": 3}, cluster={"nodes": 2}, model={"num_hidden_layers": 4}),
    "levels": job_with(cluster={"nodes": 8, "devices_per_node": 2}, parallel={"tp": 4}, hardware=LEVELS),
    **{
        f"experts in {name}": job_with(model=MOE, parallel={"ep": 4}, hardware=SMALL, precision=precision)
        for name, precision in {
            "FP8": {"fp8_format": "e4m3", "fp8_recipe": "tensorwise"},
            "FP8 by block": {"fp8_format": "e4m3", "fp8_recipe": "blockwise"},
            "MXFP8": {"fp8_format": "e4m3", "fp8_recipe": "mxfp8"},
            "NVFP4": {"fp4_format": "e2m1"},
        }.items()
    },
    "adapters": job_with(
        lora={"rank": 8},
        optimizer={"precision_aware": True},
        offload={"optimizer": True},
        hardware={**FP8, "price": 2.0},
        precision={"fp8_format": "e4m3", "fp8_recipe": "tensorwise"},
    ),
}
TEXTS: dict[str, tuple[Value, ...]] = {
    "batch.rampup_batch_size": ((32, 32, 1000),),
    "offload.modules": (("attention",),),
    "hardware.unverified": (("hardware.bf16_tflops: a guess",),),
    "parallel.noop_layers": ((3, 4),),
    "overlap.tp.config": ("ub.yaml",),
    "parallel.communication.nccl_config": ("nccl.yaml",),
    "parallel.layout": ("Ettt|tttt|tttt|tttttL",),
    "lora.target_modules": (("q_proj",),),
    "recompute.layers_per_chunk": ((2, 0, 1, 2),),
    "recompute.selective_layers_per_chunk": ((2, 0),),
    "recompute.modules": (("core_attn",), ("mlp",)),
}


def outcome(job: Job) -> tuple[str, ...]:
    try:
        tree = estimate(job, changes=False).as_tree()
    except CannotEstimate as error:
        return tuple(finding.message for finding in error.findings)
    return (repr(tree),)


BEFORE = {name: outcome(job) for name, job in JOBS.items()}


def others(path: str, now: Value) -> list[Value]:
    info = field_at(path)
    kind = str(info.type)
    found: list[Value] = [*TEXTS.get(path, ()), *info.meta.choices]
    if path not in TEXTS and "tuple" not in kind:
        if "bool" in kind:
            found += [True, False]
        elif "int" in kind or "float" in kind:
            base = now if isinstance(now, int | float) and now else 1
            found += [base * 2, base + 1, 1, 2, 4] if "int" in kind else [base * 0.5, base * 2.0]
    return [value for value in found if value != now]


FIELDS = [path for path in field_paths() if path.split(".")[0] in SECTIONS]


@pytest.mark.parametrize("path", [path for path in FIELDS if path not in NO_COST])
def test_a_field_changes_the_estimate_or_is_named(path: str) -> None:
    for name, job in JOBS.items():
        for value in others(path, value_at(job, path)):
            if outcome(with_values(job, {path: value})) != BEFORE[name]:
                return
    pytest.fail(
        f"{path} is accepted without a word and changes nothing: let the estimate read it, say in "
        "launcher/estimate/unread.py what is counted instead, or list it in NO_COST"
    )


def test_fields_without_cost_are_fields() -> None:
    assert set(FIELDS) >= NO_COST


def test_packing_of_instruction_data() -> None:
    loose = estimate(job_with(task={"type": "sft"})).missing
    packed = estimate(job_with(task={"type": "sft"}, batch={"packing": True})).missing
    assert set(loose) - set(packed) == {
        "batch.seq_length: every sequence is counted at full length; shorter samples need less"
    }


def test_modules_are_recomputed_in_the_layers_that_follow_those_in_full() -> None:
    part = {"recompute.granularity": "full", "recompute.modules": ("core_attn",)}

    def held(full: tuple[int, ...], in_part: tuple[int, ...]) -> int:
        values = {**part, "recompute.layers_per_chunk": full, "recompute.selective_layers_per_chunk": in_part}
        return estimate(with_values(JOBS["dense"], values), changes=False).stages[0].activations

    none = held((0, 0, 0, 0), (0, 0, 0, 0))
    assert held((1, 0, 1, 0), (0, 0, 0, 0)) < held((0, 0, 0, 0), (1, 0, 1, 0)) < none
    assert held((1, 0, 1, 0), (1, 0, 1, 0)) < held((1, 0, 1, 0), (0, 0, 0, 0))
    all_in_part = {**dict.fromkeys(("recompute.method", "recompute.num_layers")), "recompute.granularity": "selective"}
    every = estimate(with_values(JOBS["dense"], all_in_part), changes=False).stages[0].activations
    assert held((0, 0, 0, 0), (99, 99, 99, 99)) == every


def test_layers_counted_per_stage_are_taken_from_its_chunks_in_turn() -> None:
    """MindSpeed: layer_idx * vpp_size + vpp_rank < recompute_num_layers."""

    def held(values: dict[str, Value]) -> list[int]:
        job = with_values(JOBS["dense"], values)
        return [stage.activations for stage in estimate(job, changes=False).stages]

    for count, each in ((1, (1, 1, 0, 0)), (2, (1, 1, 1, 1)), (3, (2, 2, 1, 1))):
        by_stage = held({"recompute.per_pp_rank": True, "recompute.num_layers": count})
        assert by_stage == held({"recompute.layers_per_chunk": each, "recompute.num_layers": 2})


def test_the_same_number_for_every_chunk_is_num_layers() -> None:
    job = JOBS["dense"]
    assert outcome(with_values(job, {"recompute.layers_per_chunk": (2, 2, 2, 2)})) == BEFORE["dense"]
    less = estimate(with_values(job, {"recompute.layers_per_chunk": (2, 0, 2, 0)}), changes=False)
    more = estimate(job, changes=False)
    assert less.stages[0].activations == more.stages[0].activations
    assert less.stages[1].activations > more.stages[1].activations
