"""What a stack keeps of a parameter and of activations, what it hides, what experts get: fields read by its profile."""

from launcher.estimate.profile import Profile
from launcher.job import Job

# Modules whose kept tensors go to the host where attention as a whole is offloaded, as Megatron-LM's mapping writes it.
_ATTENTION = ("qkv_linear", "core_attn", "attn_proj")
# Bytes of an element.
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
_WITH_TP_OVERLAP = 0.3  # share exposed with overlap.tp_comm: assumed


def exposed_tp(job: Job, profile: Profile) -> float:
    """Return the share of tensor-parallel communication that computation does not hide."""
    if job.overlap.tp_comm:
        return _WITH_TP_OVERLAP
    return profile.parts_exposed if (job.overlap.sequence_parts or 1) > 1 else 1.0


def stored_bytes(job: Job, dtype: int, profile: Profile) -> int:
    """Return bytes of a weight as it is kept."""
    if not profile.weights_are_main:
        return dtype
    return profile.weight_bytes or BYTES[job.optimizer.main_params_dtype or "fp32"]


def copy_bytes(job: Job, dtype: int, stored: int, *, zero_weights: bool, profile: Profile) -> int:
    """Return bytes per parameter of weights cast or gathered for arithmetic that live from forward to backward."""
    if not profile.weights_are_main:
        return 0
    other = stored != dtype or job.optimizer.main_params_dtype not in (None, "fp32", job.precision.dtype)
    kept = zero_weights and not job.recompute.optimizer_communication
    return dtype if kept or (other and not zero_weights) else 0


def gradient_groups(job: Job, micro_batches: int, profile: Profile) -> int:
    """Return the groups in which gradients are reduced; 0: they are kept in a buffer."""
    if profile.gradient_buffer or micro_batches > 1:
        return 0
    return job.graph.gradient_groups or profile.gradient_groups


def fsdp_of(job: Job, zero: int, ranks: int, profile: Profile) -> str:
    """Return whose FSDP shards gradients (and weights), "megatron" or "torch"; "": none.

    Args:
        zero: stage of ZeRO.
        ranks: ranks that hold the same dense parameters.
    """
    if zero < 2 or ranks == 1 or profile.weights_follow_optimizer:
        return ""
    return job.parallel.fsdp.implementation or "megatron"


def instances(job: Job, ranks: int) -> int:
    """Return the groups of ranks that each hold all shards (hybrid sharding, HSDP)."""
    return min(job.parallel.optimizer_instances or 1, ranks)


def captured_scope(job: Job, profile: Profile) -> tuple[str, ...]:
    """Return what CUDA graphs capture: parts of a layer, ("layer",), ("full_iteration",), or nothing."""
    graph = job.kernels.cuda_graph
    if graph.impl in (None, "none") or not profile.cuda_graphs or job.hardware.device != "cuda":
        return ()
    return tuple(sorted(graph.scope)) or ("layer",)


def offloaded_modules(job: Job) -> tuple[str, ...]:
    """Return the modules whose kept activations go to the host."""
    modules = job.offload.modules
    return tuple(dict.fromkeys((*_ATTENTION, *modules))) if job.offload.attention else modules


def optimizer_bytes(job: Job, dtype: int, profile: Profile) -> tuple[int, int]:
    """Return bytes per parameter of the main weights, and of the optimizer's states."""
    optimizer = job.optimizer
    moments = {"adam": 2, "sgd": 1, "muon": 1}[optimizer.type]
    master = 0 if dtype == 4 or profile.weights_are_main else profile.main_weight_bytes or 4
    if not optimizer.precision_aware:
        return master, 4 * moments
    short = optimizer.main_params_dtype == "fp16" or job.precision.dtype == "bf16"
    if dtype == 2 and short and _holds_main_weights(job):
        master = 2  # fp16, or what fp32 adds to bf16 (OptimizerConfig.store_param_remainders, on by default)
    first = BYTES[optimizer.exp_avg_dtype or "fp32"]
    second = BYTES[optimizer.exp_avg_sq_dtype or "fp32"] if moments == 2 else 0
    return master, first + second


def _holds_main_weights(job: Job) -> bool:
    """Return whether a precision-aware optimizer holds the main weights itself and reads gradients in their own format.

    With an FP8 recipe other than delayed, also where no FP8 is used, Megatron-core keeps them in fp32 (0.16.1
    optimizer_config.py:355, use_precision_aware_optimizer_no_fp8_or_ds_fp8).
    """
    other = job.optimizer.main_params_dtype not in (None, "fp32")
    return other or job.precision.fp8_recipe in (None, "delayed") or bool(job.offload.optimizer)


def step_bytes(job: Job, grad_bytes: int) -> int:
    """Return bytes per parameter of fp32 copies made by the update: of gradients, or of low-precision moments.

    Sources: megatron-core 0.16.1 distrib_optimizer.py, _copy_model_grads_to_main_grads; Transformer Engine 2.14
    optimizers/fused_adam.py, where one kernel reads and writes the moments only if both are bf16.
    """
    optimizer = job.optimizer
    gradients = 4 if grad_bytes < 4 else 0
    if not optimizer.precision_aware:
        return gradients
    moments = [optimizer.exp_avg_dtype or "fp32", optimizer.exp_avg_sq_dtype or "fp32"]
    unpacked = 0 if moments == ["bf16", "bf16"] else 4 * sum(each != "fp32" for each in moments)
    return unpacked if _holds_main_weights(job) else gradients + unpacked


def resident_optimizer(job: Job) -> float:
    """Return the share of the optimizer's states that is on the device, 0 to 1."""
    offload = job.offload
    if not offload.optimizer:
        return 1.0
    return 1.0 - (offload.optimizer_fraction if offload.optimizer_fraction is not None else 1.0)


def bucket_copy(job: Job, dtype: int, grad_bytes: int, fsdp: str) -> int:
    """Return the bytes moved for each weight of a product to copy its gradient into FSDP's bucket; 0: none is copied.

    Without the fusion, FSDP with sharded gradients copies what the product wrote (megatron-core 0.16.1
    megatron_fsdp.py:572). Torch's FSDP2 has no such bucket; DDP's addition (distributed_data_parallel.py:440) is not
    counted (docs/estimate.md).

    Args:
        fsdp: whose FSDP shards gradients, see `fsdp_of`.
    """
    copies = fsdp == "megatron" and not job.lora.rank
    return dtype + grad_bytes if copies and job.kernels.gradient_accumulation_fusion is False else 0


def capacity_of(job: Job, *, padded: bool) -> float | None:
    """Return an expert's tokens relative to balanced routing: its capacity if padded, else at most one."""
    factor = job.moe.capacity_factor
    if factor is None:
        return None
    return factor if padded else min(1.0, factor)


def received_tokens(job: Job, ep: int, *, padded: bool) -> float:
    """Return the tokens that the experts of the busiest rank get, relative to balanced routing."""
    moe, factor = job.moe, job.moe.capacity_factor
    if factor is not None and padded:
        return factor
    imbalance = 1.0 if ep == 1 or moe.force_load_balancing else job.estimate.expert_imbalance
    return imbalance if factor is None else min(imbalance, factor)
