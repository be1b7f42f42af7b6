"""Sets the plain-torch operators on the torch_npu placeholder module, under torch_npu's names."""

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from launcher.rehearse.cpu.torch_npu_standin import attention, elementwise, grouped, routing

OPERATORS: dict[str, Callable[..., Any]] = {
    "npu_fusion_attention": attention.npu_fusion_attention,
    "npu_fusion_attention_grad": attention.npu_fusion_attention_grad,
    "npu_rms_norm": elementwise.npu_rms_norm,
    "npu_swiglu": elementwise.npu_swiglu,
    "npu_swiglu_backward": elementwise.npu_swiglu_backward,
    "npu_rotary_mul": elementwise.npu_rotary_mul,
    "npu_rotary_position_embedding": elementwise.npu_rotary_position_embedding,
    "npu_scaled_masked_softmax": elementwise.npu_scaled_masked_softmax,
    "npu_grouped_matmul": grouped.npu_grouped_matmul,
    "npu_grouped_matmul_add_": grouped.npu_grouped_matmul_add_,
    "npu_moe_token_permute": routing.npu_moe_token_permute,
    "npu_moe_token_unpermute": routing.npu_moe_token_unpermute,
    "npu_moe_token_permute_with_routing_map": routing.npu_moe_token_permute_with_routing_map,
    "npu_moe_token_permute_with_routing_map_grad": routing.npu_moe_token_permute_with_routing_map_grad,
    "_npu_moe_token_unpermute_with_routing_map": routing.npu_moe_token_unpermute_with_routing_map,
    "npu_moe_token_unpermute_with_routing_map_grad": routing.npu_moe_token_unpermute_with_routing_map_grad,
}
"""Name on torch_npu to its stand-in; every other ``npu_*`` name exists and raises when it is called."""


def install() -> ModuleType:
    """Import the torch_npu placeholder, set the operators on it and return it."""
    torch_npu = importlib.import_module("torch_npu")
    for name, operator in OPERATORS.items():
        setattr(torch_npu, name, operator)
    importlib.import_module("torch_npu.npu")
    return torch_npu
