"""Registers the stand-in's modules in ``sys.modules`` under Transformer Engine's names, by a table."""

from collections.abc import Mapping
from typing import Any

import torch

from launcher.rehearse.cpu.stand_in_modules import register_package
from launcher.rehearse.cpu.transformer_engine_standin import (
    attention,
    experts,
    functions,
    linear,
    norm,
    optimizer,
    precision,
)

VERSION = "2.9.0"
"""The Transformer Engine whose interface this follows; megatron-core checks it before it passes newer arguments."""


def _ops() -> dict[str, type]:
    layers = "Sequential FusibleOperation LayerNorm RMSNorm BasicLinear Bias ReduceScatter AllReduce"
    activations = "GELU GEGLU SiLU SwiGLU ReLU ReGLU"
    names = f"{layers} {activations}"
    return {
        name: type(name, (precision.Unsupported,), {"feature": "operation fusion (te.ops)"}) for name in names.split()
    }


_AUTOCAST = {"fp8_autocast": precision.fp8_autocast, "fp8_model_init": precision.fp8_model_init}
_RECIPES = {recipe.__name__: recipe for recipe in precision.RECIPES}
_ROPE = {"apply_rotary_pos_emb": functions.apply_rotary_pos_emb}
_MODULES = {module.__name__: module for module in (linear.Linear, linear.LayerNormLinear, linear.GroupedLinear)}
_NORMS = {"LayerNorm": norm.LayerNorm, "RMSNorm": norm.RMSNorm}

TABLE: Mapping[str, Mapping[str, Any]] = {
    "": {"__version__": VERSION},
    "common": {},
    "common.recipe": {**_RECIPES, "Format": precision.Format, "Recipe": precision.Recipe},
    "pytorch": {
        **_MODULES,
        **_NORMS,
        **_AUTOCAST,
        "DotProductAttention": attention.DotProductAttention,
        "Fp8Padding": precision.Fp8Padding,
        "Fp8Unpadding": precision.Fp8Unpadding,
    },
    "pytorch.fp8": {**_AUTOCAST, "FP8GlobalStateManager": precision.FP8GlobalStateManager},
    "pytorch.distributed": {
        "CudaRNGStatesTracker": functions.CudaRNGStatesTracker,
        "checkpoint": functions.checkpoint,
        "is_fp8_activation_recompute_enabled": lambda: False,
        "activation_recompute_forward": precision.fp8_autocast,
        "get_all_rng_states": functions.get_all_rng_states,
    },
    "pytorch.attention": {"_SplitAlongDim": functions.SplitAlongDim, **_ROPE},
    "pytorch.attention.rope": _ROPE,
    "pytorch.attention.dot_product_attention": {},
    "pytorch.attention.dot_product_attention.utils": {"FlashAttentionUtils": attention.FlashAttentionUtils},
    "pytorch.cpu_offload": {"get_cpu_offload_context": functions.get_cpu_offload_context},
    "pytorch.utils": {"SplitAlongDim": functions.SplitAlongDim, "make_weak_ref": lambda value: value},
    "pytorch.module": {},
    "pytorch.module.base": {
        "TransformerEngineBaseModule": linear.TransformerEngineBaseModule,
        "UserBufferQuantizationMode": functions.UserBufferQuantizationMode,
        "initialize_ub": functions.initialize_ub,
    },
    "pytorch.module.layernorm": _NORMS,
    "pytorch.tensor": {"QuantizedTensor": precision.QuantizedTensor},
    "pytorch.float8_tensor": {"Float8Tensor": precision.QuantizedTensor},
    "pytorch.tensor.float8_tensor": {"Float8Tensor": precision.QuantizedTensor},
    "pytorch.tensor.utils": {
        "cast_master_weights_to_fp8": precision.no_fp8_parameters,
        "replace_raw_data": precision.no_fp8_parameters,
    },
    "pytorch.ops": _ops(),
    "pytorch.permutation": {function.__name__: function for function in experts.PERMUTATIONS},
    "pytorch.router": {function.__name__: function for function in experts.ROUTER},
    "pytorch.cross_entropy": {"parallel_cross_entropy": functions.parallel_cross_entropy},
    "pytorch.optimizers": {
        "FusedAdam": optimizer.FusedAdam,
        "FusedSGD": torch.optim.SGD,
        "multi_tensor_applier": optimizer.multi_tensor_applier,
        "multi_tensor_scale": optimizer.multi_tensor_scale,
        "multi_tensor_l2norm": optimizer.multi_tensor_l2norm,
    },
}
"""Module below ``transformer_engine`` → its names; other names raise ImportError, which upstream handles."""


def register() -> None:
    """Make ``import transformer_engine`` find the stand-in in this process (`register_package`)."""
    register_package("transformer_engine", "launcher.rehearse.cpu.transformer_engine_standin", TABLE)
