"""Builds megatron-core's configuration objects from settings."""

from __future__ import annotations

import dataclasses
from typing import Any

from launcher.rehearse.core.settings import Settings
from launcher.rehearse.core.supported_args import SUPPORTED


def parameter_dtype(settings: Settings) -> Any:
    """Return the torch dtype of the model's parameters."""
    import torch

    if settings.value("bf16"):
        return torch.bfloat16
    return torch.float16 if settings.value("fp16") else torch.float32


def transformer_config(settings: Settings, *, transformer_engine: bool) -> Any:
    """Build the TransformerConfig (or MLATransformerConfig) of a run, as core_transformer_config_from_args does."""
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    config_class = MLATransformerConfig if settings.value("multi_latent_attention") else TransformerConfig
    names = {field.name for field in dataclasses.fields(config_class)}
    fields = {dest: settings.value(dest) for dest in SUPPORTED["transformer"].split() if dest in names}
    if fields.get("rope_type", "") is None:
        del fields["rope_type"]
    if fields["recompute_modules"] and not transformer_engine:
        fields["recompute_modules"] = [name for name in fields["recompute_modules"] if name != "moe_act"]
    if transformer_engine and settings.value("fp8"):
        fields |= {dest: settings.value(dest) for dest in SUPPORTED["fp8"].split() if dest in names}
    dtype = parameter_dtype(settings)
    fields.update(
        num_moe_experts=settings.value("num_experts"),
        num_layers_in_first_pipeline_stage=settings.value("decoder_first_pipeline_num_layers"),
        num_layers_in_last_pipeline_stage=settings.value("decoder_last_pipeline_num_layers"),
        virtual_pipeline_model_parallel_size=settings.layout.vpp,
        batch_p2p_comm=not settings.value("overlap_p2p_comm"),
        params_dtype=dtype,
        pipeline_dtype=dtype,
        deallocate_pipeline_outputs=True,
        transformer_impl="transformer_engine" if transformer_engine else "local",
        **_activation(settings),
        **_initialisers(settings),
        **_kernels(settings, transformer_engine=transformer_engine),
    )
    return config_class(**fields)


def _activation(settings: Settings) -> dict[str, Any]:
    import torch.nn.functional as F
    from megatron.core.activations import quick_gelu, squared_relu

    if settings.value("swiglu"):
        return {"activation_func": F.silu, "gated_linear_unit": True}
    if settings.value("quick_geglu"):
        return {"activation_func": quick_gelu, "gated_linear_unit": True}
    return {"activation_func": squared_relu if settings.value("squared_relu") else F.gelu}


def _initialisers(settings: Settings) -> dict[str, Any]:
    """Return initialisers other than the normal distribution of --init-method-std, which the config creates itself."""
    from torch.nn.init import xavier_uniform_

    if not settings.value("init_method_xavier_uniform"):
        return {}
    return {"init_method": xavier_uniform_, "output_layer_init_method": xavier_uniform_}


def _kernels(settings: Settings, *, transformer_engine: bool) -> dict[str, Any]:
    """Disable every fusion that the local layers lack; with Transformer Engine use Megatron-LM's settings."""
    if not transformer_engine:
        return {
            "persist_layer_norm": False,
            "gradient_accumulation_fusion": False,
            "masked_softmax_fusion": False,
            "apply_rope_fusion": False,
            "bias_activation_fusion": False,
            "bias_dropout_fusion": False,
            "moe_grouped_gemm": False,
        }
    return {
        "persist_layer_norm": not settings.value("no_persist_layer_norm"),
        "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": settings.value("masked_softmax_fusion"),
        "apply_rope_fusion": settings.value("apply_rope_fusion")
        and settings.value("position_embedding_type") == "rope"
        and not settings.value("multi_latent_attention"),
        "bias_activation_fusion": settings.value("bias_swiglu_fusion") and settings.value("swiglu"),
        "bias_dropout_fusion": settings.value("bias_dropout_fusion"),
        "moe_grouped_gemm": settings.value("moe_grouped_gemm"),
        "moe_permute_fusion": settings.value("moe_permute_fusion"),
    }


def optimizer_config(settings: Settings) -> Any:
    """Build the OptimizerConfig of a run."""
    from megatron.core.optimizer import OptimizerConfig

    names = {field.name for field in dataclasses.fields(OptimizerConfig)}
    fields = {dest: settings.value(dest) for dest in SUPPORTED["optimizer"].split() if dest in names}
    fields.update(fp16=settings.value("fp16"), bf16=settings.value("bf16"), params_dtype=parameter_dtype(settings))
    return OptimizerConfig(**fields)


def ddp_config(settings: Settings, parameters: int) -> Any:
    """Build the DistributedDataParallelConfig of a run; `parameters` counts those of this rank."""
    from megatron.core.distributed import DistributedDataParallelConfig

    distributed = settings.value("use_distributed_optimizer")
    overlap = settings.value("overlap_grad_reduce")
    bucket = settings.value("ddp_bucket_size")
    if settings.value("ddp_num_buckets"):
        bucket = max(1, parameters // settings.value("ddp_num_buckets"))
    default_bucket = max(40_000_000, 1_000_000 * settings.layout.dp * settings.layout.cp)
    return DistributedDataParallelConfig(
        grad_reduce_in_fp32=settings.value("accumulate_allreduce_grads_in_fp32"),
        overlap_grad_reduce=overlap,
        overlap_param_gather=settings.value("overlap_param_gather") and distributed,
        align_param_gather=settings.value("align_param_gather"),
        use_distributed_optimizer=distributed,
        num_distributed_optimizer_instances=settings.value("num_distributed_optimizer_instances"),
        check_for_nan_in_grad=settings.value("check_for_nan_in_loss_and_grad"),
        check_for_large_grads=settings.value("check_for_large_grads"),
        bucket_size=(bucket or default_bucket) if overlap else None,
        pad_buckets_for_high_nccl_busbw=settings.value("ddp_pad_buckets_for_high_nccl_busbw"),
        average_in_collective=settings.value("ddp_average_in_collective"),
        gradient_reduce_div_fusion=settings.value("gradient_reduce_div_fusion"),
    )
