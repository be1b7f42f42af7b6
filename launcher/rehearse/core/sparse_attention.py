"""Sparse attention (DSA) in megatron-core's local layers: its own DSAttention and DSAIndexer, which only lack a spec.

megatron-core 0.16.1 builds them with Transformer Engine's linear layers (experimental_attention_variant_module_specs.py
get_dsa_module_spec_for_backend) and rotates with fast_hadamard_transform, whose kernel needs a GPU. The indexer reads
the normalised low-rank queries here, as in DeepSeek's model; Transformer Engine's fused norm gives it those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch


class ReplicatedLinear(torch.nn.Linear):
    """A linear layer with its whole weight on each tensor-parallel rank, as TELinear with parallel_mode duplicated."""

    def __init__(self, input_size: int, output_size: int, *, config: Any, init_method: Any, **_options: Any) -> None:
        super().__init__(input_size, output_size, bias=False, dtype=config.params_dtype)
        init_method(self.weight)

    def forward(self, hidden: Any) -> Any:
        """Return the product, and no bias."""
        return super().forward(hidden), None


class KeyNorm(torch.nn.LayerNorm):
    """LayerNorm of the indexer's keys.

    Its gradient is complete on every tensor-parallel rank, which has the whole sequence: it is not summed over them.
    """

    def __init__(self, *, config: Any, hidden_size: int, eps: float) -> None:
        super().__init__(hidden_size, eps=eps, dtype=config.params_dtype)


def hadamard_transform(x: Any, scale: float = 1.0) -> Any:
    """Multiply the last dimension, a power of 2, by the Hadamard matrix, as fast_hadamard_transform does."""
    size, out = x.size(-1), x.float()
    width = 1
    while width < size:
        pairs = out.reshape(*x.shape[:-1], size // (2 * width), 2, width)
        first, second = pairs.unbind(-2)
        out = torch.stack([first + second, first - second], dim=-2).reshape(x.shape)
        width *= 2
    return (out * scale).to(x.dtype)


def with_sparse_attention(layers: Iterable[Any]) -> None:
    """Replace the core attention of local layer specs of latent attention by that over the keys an indexer selects."""
    from megatron.core.transformer.experimental_attention_variant import dsa
    from megatron.core.transformer.spec_utils import ModuleSpec

    dsa.rotate_activation = _rotated
    dsa.DSAIndexerLossLoggingHelper.save_loss_to_tracker = staticmethod(_not_logged)
    linear: Callable[..., Any] = ReplicatedLinear
    indexer = dsa.DSAIndexerSubmodules(linear_wq_b=linear, linear_wk=linear, k_norm=KeyNorm, linear_weights_proj=linear)
    attention = dsa.DSAttentionSubmodules(indexer=ModuleSpec(module=dsa.DSAIndexer, submodules=indexer))
    for layer in layers:
        layer.submodules.self_attention.submodules.core_attention = ModuleSpec(
            module=dsa.DSAttention, submodules=attention
        )


def _rotated(x: Any) -> Any:
    """Rotate as rotate_activation does, which asserts what its kernel needs: bf16 (`launch check`: MLM-DSA-BF16)."""
    return hadamard_transform(x, scale=x.size(-1) ** -0.5)


def _not_logged(**_values: Any) -> None:
    """Keep no indexer loss: the table of megatron-core has no row for a multi-token-prediction layer."""
