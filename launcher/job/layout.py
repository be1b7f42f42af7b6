"""Nested sections: communication libraries, FSDP and CUDA graphs."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, DDP_CONFIG, MODEL_PARALLEL_CONFIG, TRANSFORMER_CONFIG
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication libraries between ranks."""

    backend: str | None = option(
        None,
        "Library of collectives: that of the devices (nccl; on Ascend HCCL takes its place), or gloo.",
        source=f"{ARGUMENTS} --distributed-backend",
        choices=("nccl", "gloo"),
    )
    pipeline_backend: str | None = option(
        None,
        "Library of transfers between pipeline stages.",
        source=f"{MODEL_PARALLEL_CONFIG}.pipeline_model_parallel_comm_backend",
        choices=("nccl", "ucc"),
    )
    nccl_config: str | None = option(
        None,
        "YAML file of NCCL's settings, group by group.",
        source=f"{ARGUMENTS} --nccl-communicator-config-path",
    )
    ring_exchange_p2p: bool | None = option(
        None,
        "Transfers between pipeline stages by torch's ring exchange, which only NVIDIA's builds of torch have.",
        source=f"{MODEL_PARALLEL_CONFIG}.use_ring_exchange_p2p",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """Sharded weights and gradients (parallel.zero_stage 2 and 3), unit by unit."""

    implementation: str | None = option(
        None,
        "FSDP implementation: Megatron-core's, or torch's FSDP2, which is stage 3; none: Megatron-core's.",
        source=f"{ARGUMENTS} --use-megatron-fsdp, --use-torch-fsdp2",
        choices=("megatron", "torch"),
    )
    communication_unit_size: int | None = option(
        None,
        "Weights whose gathering or reduction is in flight at once.",
        source=f"{DDP_CONFIG}.suggested_communication_unit_size",
        minimum=1,
    )
    keep_fp8_transpose_cache: bool | None = option(
        None, "Keep the transposed FP8 weights between uses.", source=f"{DDP_CONFIG}.keep_fp8_transpose_cache"
    )
    init_model_with_meta_device: bool | None = option(
        None,
        "Build the model without memory; each rank fills its own shard.",
        source=f"{TRANSFORMER_CONFIG}.init_model_with_meta_device",
    )
    strict_load: bool | None = option(
        None,
        "Reject a checkpoint of sharded weights that lacks some of the model's.",
        source=f"{ARGUMENTS} --no-strict-fsdp-dtensor-load",
        affects_training=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaGraph:
    """Kernels captured once and replayed each step."""

    impl: str | None = option(
        None,
        "Capture by Megatron-core itself, or by Transformer Engine.",
        source=f"{TRANSFORMER_CONFIG}.cuda_graph_impl",
        choices=("none", "local", "transformer_engine"),
    )
    scope: tuple[str, ...] = option(
        (),
        "Parts of a layer that are captured; none: whole layers.",
        source=f"{TRANSFORMER_CONFIG}.cuda_graph_scope",
        choices=("attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba", "full_iteration"),
    )
    warmup_steps: int | None = option(
        None,
        "Steps before the first capture.",
        unit="iterations",
        source=f"{TRANSFORMER_CONFIG}.cuda_graph_warmup_steps",
        minimum=0,
    )
