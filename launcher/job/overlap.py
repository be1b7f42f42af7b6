"""Overlap of communication with computation."""

from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, DDP_CONFIG, MODEL_PARALLEL_CONFIG
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallelOverlap:
    """Which GEMMs of tensor-parallel layers overlap with communication, if overlap.tp_comm is on."""

    overlap_ag: bool | None = option(
        None,
        "Overlap the all-gather with the GEMM, in chunks passed on (ring).",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_overlap_ag",
    )
    overlap_rs: bool | None = option(
        None,
        "Overlap the reduce-scatter with the GEMM, in chunks passed on (ring).",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_overlap_rs",
    )
    overlap_rs_dgrad: bool | None = option(
        None,
        "Overlap the reduce-scatter of input gradients with their GEMM.",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_overlap_rs_dgrad",
    )
    split_ag: bool | None = option(
        None,
        "Overlap the all-gather with the GEMM, split into parts.",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_split_ag",
    )
    split_rs: bool | None = option(
        None,
        "Overlap the reduce-scatter with the GEMM, split into parts.",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_split_rs",
    )
    bulk_dgrad: bool | None = option(
        None,
        "Overlap the all-gather of activations with the GEMM of input gradients.",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_bulk_dgrad",
    )
    bulk_wgrad: bool | None = option(
        None,
        "Overlap the reduce-scatter of gradients with the GEMM of weight gradients.",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_bulk_wgrad",
    )
    config: str | None = option(
        None, "YAML file of the method of each product.", source=f"{ARGUMENTS} --tp-comm-overlap-cfg"
    )
    bootstrap_backend: str | None = option(
        None,
        "Library for the exchange of the ranks' buffer addresses (bootstrap).",
        source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_bootstrap_backend",
        choices=("nccl", "mpi", "gloo"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Communication overlapped with computation."""

    grad_reduce: bool | None = option(None, "Gradient reduction.", source=f"{DDP_CONFIG}.overlap_grad_reduce")
    param_gather: bool | None = option(
        None,
        "Overlap the distributed optimizer's all-gather of weights with the forward pass.",
        source=f"{DDP_CONFIG}.overlap_param_gather",
    )
    param_gather_with_optimizer_step: bool | None = option(
        None,
        "Overlap the first chunk's all-gather of weights with the optimizer step of the others.",
        source=f"{DDP_CONFIG}.overlap_param_gather_with_optimizer_step",
    )
    grad_bucket_size: int | None = option(
        None,
        "Bucket size: weights whose gradients are reduced together.",
        source=f"{DDP_CONFIG}.bucket_size",
        minimum=1,
    )
    grad_buckets: int | None = option(
        None,
        "Buckets of gradients; none: as grad_bucket_size says.",
        source=f"{ARGUMENTS} --ddp-num-buckets",
        minimum=1,
    )
    average_in_collective: bool | None = option(
        None,
        "Average gradients in the collective instead of summing them.",
        source=f"{DDP_CONFIG}.average_in_collective",
    )
    gradient_reduce_div_fusion: bool | None = option(
        None,
        "FSDP: divide gradients in the kernel that copies them; results differ in rounding only.",
        source=f"{DDP_CONFIG}.gradient_reduce_div_fusion",
    )
    pad_buckets: bool | None = option(
        None,
        "Pad buckets of gradients to sizes with high bus bandwidth, at any number of data-parallel ranks.",
        source=f"{DDP_CONFIG}.pad_buckets_for_high_nccl_busbw",
    )
    align_grad_reduce: bool | None = option(
        None,
        "Align the start of the gradient reduction across pipeline stages.",
        source=f"{ARGUMENTS} --no-align-grad-reduce",
    )
    align_param_gather: bool | None = option(
        None,
        "Align the start of the weight all-gather across pipeline stages.",
        source=f"{DDP_CONFIG}.align_param_gather",
    )
    embedding_wgrad: bool | None = option(
        None,
        "Compute the output layer's weight gradients in the pipeline's last phase.",
        source=f"{MODEL_PARALLEL_CONFIG}.defer_embedding_wgrad_compute",
    )
    embedding_wgrad_limit: int | None = option(
        None,
        "embedding_wgrad: micro-batches deferred; 0: all.",
        source=f"{MODEL_PARALLEL_CONFIG}.wgrad_deferral_limit",
        minimum=0,
    )
    p2p_warmup_flush: bool | None = option(
        None,
        "Overlap pipeline communication in warm-up and cool-down too.",
        source=f"{MODEL_PARALLEL_CONFIG}.overlap_p2p_comm_warmup_flush",
    )
    tp_comm: bool | None = option(
        None, "Tensor-parallel communication.", source=f"{MODEL_PARALLEL_CONFIG}.tp_comm_overlap"
    )
    tp: TensorParallelOverlap = TensorParallelOverlap()
    tp_allreduce: bool | None = option(
        None,
        "Overlap the reduction of input gradients with weight gradients, without sequence parallelism.",
        source=f"{MODEL_PARALLEL_CONFIG}.async_tensor_model_parallel_allreduce",
    )
    p2p: bool | None = option(None, "Pipeline communication.", source=f"{MODEL_PARALLEL_CONFIG}.overlap_p2p_comm")
    sequence_parts: int | None = option(
        None,
        "Parts of a sequence computed alternately, so that communication of one overlaps with computation of another.",
        source="MindFormers fine_grain_interleave",
        minimum=1,
    )
