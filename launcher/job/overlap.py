"""Communication that hides behind computation."""

from dataclasses import dataclass

from launcher.job.option import option

_CORE = "Megatron-core ModelParallelConfig"
_MEGATRON = "Megatron-LM arguments.py"
_DDP = "Megatron-core DistributedDataParallelConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorParallelOverlap:
    """Which products of tensor-parallel layers hide communication, where overlap.tp_comm is on."""

    overlap_ag: bool | None = option(
        None, "Gathering behind the product, in pieces passed on.", source=f"{_CORE}.tp_comm_overlap_ag"
    )
    overlap_rs: bool | None = option(
        None, "Scattered reduction behind the product, in pieces passed on.", source=f"{_CORE}.tp_comm_overlap_rs"
    )
    overlap_rs_dgrad: bool | None = option(
        None, "Scattered reduction of input gradients behind their product.", source=f"{_CORE}.tp_comm_overlap_rs_dgrad"
    )
    split_ag: bool | None = option(
        None, "Gathering behind the product, split in parts.", source=f"{_CORE}.tp_comm_split_ag"
    )
    split_rs: bool | None = option(
        None, "Scattered reduction behind the product, split in parts.", source=f"{_CORE}.tp_comm_split_rs"
    )
    bulk_dgrad: bool | None = option(
        None, "Gathering of activations behind the gradients of inputs.", source=f"{_CORE}.tp_comm_bulk_dgrad"
    )
    bulk_wgrad: bool | None = option(
        None, "Scattered reduction of gradients behind those of weights.", source=f"{_CORE}.tp_comm_bulk_wgrad"
    )
    config: str | None = option(
        None, "YAML file of the method of each product.", source=f"{_MEGATRON} --tp-comm-overlap-cfg"
    )
    bootstrap_backend: str | None = option(
        None,
        "Library through which the ranks find each other's buffers.",
        source=f"{_CORE}.tp_comm_bootstrap_backend",
        choices=("nccl", "mpi", "gloo"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Communication hidden behind computation."""

    grad_reduce: bool | None = option(None, "Gradient reduction.", source=f"{_DDP}.overlap_grad_reduce")
    param_gather: bool | None = option(
        None, "Weight gathering of the distributed optimizer.", source=f"{_DDP}.overlap_param_gather"
    )
    param_gather_with_optimizer_step: bool | None = option(
        None,
        "Weight gathering of the first chunk, behind the optimizer step of the others.",
        source=f"{_DDP}.overlap_param_gather_with_optimizer_step",
    )
    grad_bucket_size: int | None = option(
        None, "Weights whose gradients are reduced together.", source=f"{_DDP}.bucket_size", minimum=1
    )
    grad_buckets: int | None = option(
        None,
        "Buckets of gradients; none: as grad_bucket_size says.",
        source=f"{_MEGATRON} --ddp-num-buckets",
        minimum=1,
    )
    average_in_collective: bool | None = option(
        None, "Collectives average gradients instead of adding them up.", source=f"{_DDP}.average_in_collective"
    )
    gradient_reduce_div_fusion: bool | None = option(
        None,
        "FSDP: divide gradients in the kernel that copies them; results differ in rounding only.",
        source=f"{_DDP}.gradient_reduce_div_fusion",
    )
    pad_buckets: bool | None = option(
        None,
        "Pad buckets of gradients to sizes that links carry fast, at any number of data-parallel ranks.",
        source=f"{_DDP}.pad_buckets_for_high_nccl_busbw",
    )
    align_grad_reduce: bool | None = option(
        None,
        "All pipeline stages start the reduction of gradients together.",
        source=f"{_MEGATRON} --no-align-grad-reduce",
    )
    align_param_gather: bool | None = option(
        None, "All pipeline stages start the gathering of weights together.", source=f"{_DDP}.align_param_gather"
    )
    embedding_wgrad: bool | None = option(
        None,
        "Compute the output layer's weight gradients in the pipeline's last phase.",
        source=f"{_CORE}.defer_embedding_wgrad_compute",
    )
    embedding_wgrad_limit: int | None = option(
        None, "embedding_wgrad: micro-batches put off; 0: all.", source=f"{_CORE}.wgrad_deferral_limit", minimum=0
    )
    p2p_warmup_flush: bool | None = option(
        None,
        "Pipeline communication in its first and last phase too.",
        source=f"{_CORE}.overlap_p2p_comm_warmup_flush",
    )
    tp_comm: bool | None = option(None, "Tensor-parallel communication.", source=f"{_CORE}.tp_comm_overlap")
    tp: TensorParallelOverlap = TensorParallelOverlap()
    tp_allreduce: bool | None = option(
        None,
        "Reduction of input gradients behind the gradients of weights, without sequence parallelism.",
        source=f"{_CORE}.async_tensor_model_parallel_allreduce",
    )
    p2p: bool | None = option(None, "Pipeline communication.", source=f"{_CORE}.overlap_p2p_comm")
    sequence_parts: int | None = option(
        None,
        "Parts of a sequence computed in turns, so that one's communication hides behind another's arithmetic.",
        source="MindFormers fine_grain_interleave",
        minimum=1,
    )
