"""Modules that megatron-core lacks without Transformer Engine: sequence-parallel norm, context-parallel attention.

Both run on any device; parameter names and checkpoint keys are those of the modules they replace.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.utils import is_layer_window_attention, make_sharded_tensors_for_checkpoint

_CAUSAL = (AttnMaskType.causal, AttnMaskType.padding_causal)


class ZeroCenteredNorm(torch.nn.Module):
    """A norm whose weight is stored as its difference to one (layernorm_zero_centered_gamma)."""

    def __init__(self, hidden_size: int, eps: float, normalization: str) -> None:
        super().__init__()
        self.eps, self.shape, self.rms = eps, (hidden_size,), normalization == "RMSNorm"
        self.weight = torch.nn.Parameter(torch.zeros(hidden_size))
        if not self.rms:
            self.bias = torch.nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden: Any) -> Any:
        """Normalise the last dimension of `hidden` [..., hidden_size]."""
        weight = 1 + self.weight
        if self.rms:
            return F.rms_norm(hidden, self.shape, weight, self.eps)
        return F.layer_norm(hidden, self.shape, weight, self.bias, self.eps)


def torch_norm(
    config: Any,
    hidden_size: int,
    eps: float = 1e-5,
    persist_layer_norm: bool = False,
    zero_centered_gamma: bool = False,
    normalization: str = "LayerNorm",
) -> Any:
    """Build torch's norm with its parameters tagged for the gradient all-reduce of sequence parallelism.

    Replaces WrappedTorchNorm, which rejects sequence parallelism and zero-centred weights (torch_norm.py:32).
    """
    norm: Any
    if config.layernorm_zero_centered_gamma:
        norm = ZeroCenteredNorm(hidden_size, eps, config.normalization)
    else:
        norm = (torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm)(hidden_size, eps=eps)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel
    return norm


class CoreAttention(MegatronModule):
    """Scaled dot product attention with features that DotProductAttention rejects: MLA, packing, context parallelism.

    Grouped queries, key and value heads of different size (MLA), sliding windows, attention sinks, THD packing, and
    context parallelism by gathered keys and values over zigzag chunks, also with packing.
    Query: [s, b, heads, dim], or [t, heads, dim] packed.
    """

    def __init__(
        self,
        config: Any,
        layer_number: int,
        attn_mask_type: Any,
        attention_type: str,
        attention_dropout: float | None = None,
        softmax_scale: float | None = None,
        cp_comm_type: str | None = None,
        pg_collection: Any = None,
        k_channels: int | None = None,
        v_channels: int | None = None,
        **_kwargs: Any,
    ) -> None:
        super().__init__(config=config)
        self.attn_mask_type = attn_mask_type
        self.scale = softmax_scale if softmax_scale is not None else (k_channels or config.kv_channels) ** -0.5
        self.dropout = config.attention_dropout if attention_dropout is None else attention_dropout
        windowed = is_layer_window_attention(config.window_size, config.window_attn_skip_freq, layer_number)
        self.window = config.window_size if windowed else None
        self.tp_group = (
            pg_collection.tp if pg_collection is not None else parallel_state.get_tensor_model_parallel_group()
        )
        self.cp_size = config.context_parallel_size
        self.masks: dict[tuple[int, bool], Any] = {}
        self.softmax_offset = self._softmax_offset(config)

    def _softmax_offset(self, config: Any) -> Any:
        heads = config.num_attention_heads // config.tensor_model_parallel_size
        if config.softmax_type == "off-by-one":
            return torch.zeros(heads, dtype=config.params_dtype, device=torch.cuda.current_device())
        if config.softmax_type == "learnable":
            offset = torch.nn.Parameter(
                torch.empty(heads, dtype=config.params_dtype, device=torch.cuda.current_device())
            )
            offset.tensor_model_parallel, offset.partition_dim, offset.partition_stride = True, 0, 1
            if config.perform_initialization:
                config.init_method(offset)
            return offset
        return None

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        attn_mask_type: Any = None,
        attention_bias: Any = None,
        packed_seq_params: Any = None,
    ) -> Any:
        """Attend, and return [s, b, heads * value_dim] ([t, 1, heads * value_dim] packed).

        `attention_mask` is True where hidden, [b or 1, 1, queries or 1, all keys in order]; what the mask type hides is
        hidden anyway.
        """
        if attention_bias is not None:
            raise NotImplementedError("attention_bias is not supported by the rehearsal's attention")
        packed = packed_seq_params.cu_seqlens_q if packed_seq_params is not None else None
        if query.dim() == 3:
            query, key, value = (tensor.unsqueeze(1) for tensor in (query, key, value))
        length, batch = query.size(0), query.size(1)
        if self.cp_size > 1:
            group = parallel_state.get_context_parallel_group()
            key = gather_from_sequence_parallel_region(key.contiguous(), group=group)  # backward: reduce-scatter
            value = gather_from_sequence_parallel_region(value.contiguous(), group=group)
        repeats = query.size(2) // key.size(2)
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 2), value.repeat_interleave(repeats, 2)
        query, key, value = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        causal = (attn_mask_type or self.attn_mask_type) in _CAUSAL
        hidden = self._in_order_of_keys(attention_mask) if attention_mask is not None and packed is None else None
        context = self._attend(query, key, value, causal, packed, hidden)
        return context.permute(2, 0, 1, 3).reshape(length, batch, -1)

    def _in_order_of_keys(self, attention_mask: Any) -> Any:
        """Put the columns of a mask into the order of the gathered keys."""
        length = attention_mask.size(-1)
        if self.cp_size == 1 or length == 1:
            return attention_mask
        order = [zigzag_positions([0, length], self.cp_size, rank) for rank in range(self.cp_size)]
        return attention_mask[..., torch.cat(order).to(attention_mask.device)]

    def _attend(self, query: Any, key: Any, value: Any, causal: bool, packed: Any, hidden: Any) -> Any:
        dropout = self.dropout if self.training else 0.0
        tracked = dropout > 0 and not self.config.sequence_parallel
        unmasked = hidden is None and packed is None and self.window is None and self.softmax_offset is None
        plain = self.cp_size == 1 and unmasked and query.size(2) == key.size(2)
        mask = None if plain else self._mask(query.size(2), causal, packed)
        if hidden is not None:
            mask = mask & ~hidden
        with get_cuda_rng_tracker().fork() if tracked else contextlib.nullcontext():
            if self.softmax_offset is not None:
                return self._attend_with_sink(query, key, value, mask, dropout)
            if plain:
                return F.scaled_dot_product_attention(
                    query, key, value, is_causal=causal, scale=self.scale, dropout_p=dropout
                )
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, scale=self.scale, dropout_p=dropout
            )

    def _attend_with_sink(self, query: Any, key: Any, value: Any, mask: Any, dropout: float) -> Any:
        scores = (query.float() @ key.float().transpose(-1, -2)) * self.scale
        scores = scores.masked_fill(~mask, float("-inf"))
        sink = self.softmax_offset.float().view(1, -1, 1, 1).expand(scores.size(0), -1, scores.size(2), 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
        return F.dropout(weights, dropout).to(value.dtype) @ value

    def _mask(self, length: int, causal: bool, packed: Any) -> Any:
        """Build the boolean mask [queries, keys] of this context-parallel rank; True attends."""
        if packed is None and (length, causal) in self.masks:
            return self.masks[length, causal]
        boundaries = [0, length * self.cp_size] if packed is None else packed.tolist()
        rank = parallel_state.get_context_parallel_rank() if self.cp_size > 1 else 0
        positions = [zigzag_positions(boundaries, self.cp_size, other) for other in range(self.cp_size)]
        queries, keys = positions[rank][:, None], torch.cat(positions)[None, :]
        mask = queries >= keys if causal else torch.ones(1, 1, dtype=torch.bool).expand(queries.size(0), keys.size(1))
        if self.window is not None:
            left, right = self.window
            mask = mask & ((left < 0) | (queries - keys <= left)) & ((right < 0) | (keys - queries <= right))
        if packed is not None:
            edges = torch.tensor(boundaries[1:-1])
            mask = mask & (torch.bucketize(queries, edges, right=True) == torch.bucketize(keys, edges, right=True))
        mask = mask.to(torch.cuda.current_device())
        if packed is None:
            self.masks[length, causal] = mask
        return mask

    def sharded_state_dict(self, prefix: str = "", sharded_offsets: Any = (), metadata: Any = None) -> Any:
        """Describe the learnable softmax offset, sharded over heads, for a distributed checkpoint."""
        state = self.state_dict(prefix="", keep_vars=True) if self.config.softmax_type == "learnable" else {}
        return make_sharded_tensors_for_checkpoint(
            state,
            prefix,
            {"softmax_offset": 0},
            sharded_offsets,
            tp_group=self.tp_group,
            dp_cp_group=(metadata or {}).get("dp_cp_group"),
        )


def zigzag_positions(boundaries: list[int], cp_size: int, rank: int) -> Any:
    """List the global token positions that context-parallel rank `rank` holds: chunks r and 2·cp-1-r of each.

    `boundaries` are cumulative sequence lengths (one more than sequences); with cp_size > 1 each length must be
    divisible by 2·cp_size.
    """
    if cp_size == 1:
        return torch.arange(boundaries[-1])
    parts = []
    for start, end in itertools.pairwise(boundaries):
        chunk = (end - start) // (2 * cp_size)
        for index in (rank, 2 * cp_size - 1 - rank):
            parts.append(torch.arange(start + index * chunk, start + (index + 1) * chunk))
    return torch.cat(parts)


def install() -> None:
    """Put both modules into megatron-core's local layer specification, wherever it is built from."""
    from megatron.core.models import backends
    from megatron.core.transformer import torch_norm as torch_norm_module

    wrapped = torch_norm_module.WrappedTorchNorm
    wrapped.__new__ = staticmethod(lambda _cls, *args, **kwargs: torch_norm(*args, **kwargs))
    backends.LocalSpecProvider.core_attention = lambda self: CoreAttention
