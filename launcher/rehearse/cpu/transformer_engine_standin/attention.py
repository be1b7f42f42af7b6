"""Transformer Engine's DotProductAttention on torch's: grouped queries, packed sequences, context parallelism."""

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from launcher.rehearse.cpu.transformer_engine_standin.linear import TransformerEngineBaseModule
from launcher.rehearse.cpu.transformer_engine_standin.precision import refuse


class FlashAttentionUtils:
    """Flags checked before a flash-attention version is forced: every version counts as installed."""

    is_installed = v3_is_installed = v4_is_installed = True


def zigzag(boundaries: list[int], ranks: int, rank: int) -> Any:
    """Return the token positions of context-parallel ``rank``: chunks rank and 2·ranks-1-rank of each sequence."""
    if ranks == 1:
        return torch.arange(boundaries[-1])
    parts = []
    for start, end in itertools.pairwise(boundaries):
        chunk = (end - start) // (2 * ranks)
        parts += [torch.arange(chunk) + start + index * chunk for index in (rank, 2 * ranks - 1 - rank)]
    return torch.cat(parts)


class DotProductAttention(TransformerEngineBaseModule):
    """te.pytorch.DotProductAttention on query [s, b, heads, dim] (sbhd), [b, s, ..] (bshd) or [t, heads, dim] (thd).

    Context parallelism gathers keys and values, whose backward reduce-scatters: the results of Transformer Engine's
    ring, all-to-all and all-gather, without their speed.
    """

    def __init__(
        self,
        num_attention_heads: int,
        kv_channels: int | tuple[int, int],
        num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0,
        qkv_format: str = "sbhd",
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        get_rng_state_tracker: Callable[[], Any] | None = None,
        tp_group: Any = None,
        cp_group: Any = None,
        softmax_scale: float | None = None,
        softmax_type: str = "vanilla",
        return_max_logit: bool = False,
        tp_size: int = 1,
        **_kwargs: Any,
    ) -> None:
        super().__init__()
        if softmax_type not in ("vanilla", "learnable"):
            refuse(f"attention softmax of type {softmax_type!r}")
        if return_max_logit:
            refuse("maximum attention logit (qk_clip, log_max_attention_logit)")
        self._set_parallel(tp_group=tp_group, tp_size=1)
        key_channels = kv_channels if isinstance(kv_channels, int) else kv_channels[0]
        self.softmax_scale = key_channels**-0.5 if softmax_scale is None else softmax_scale
        self.attention_dropout, self.window_size = attention_dropout, window_size
        self.attn_mask_type, self.qkv_format = attn_mask_type, qkv_format
        self.get_rng_state_tracker, self.cp_group = get_rng_state_tracker, cp_group
        learned = softmax_type == "learnable"
        self.softmax_offset: Any = torch.nn.Parameter(torch.zeros(num_attention_heads // tp_size)) if learned else None

    def set_context_parallel_group(self, cp_group: Any, *_ring: Any) -> None:
        """Set the group whose ranks share one sequence; None switches context parallelism off."""
        self.cp_group = cp_group

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        qkv_format: str | None = None,
        cu_seqlens_q: Any = None,
        cu_seqlens_q_padded: Any = None,
        attn_mask_type: str | None = None,
        window_size: tuple[int, int] | None = None,
        core_attention_bias: Any = None,
        **_kwargs: Any,
    ) -> Any:
        """Attend; positions follow from ``cu_seqlens_q`` (thd) or from the sequence length (sbhd)."""
        if core_attention_bias is not None:
            refuse("attention bias")
        layout = qkv_format or self.qkv_format
        query, key, value = (_to_sbhd(tensor, layout) for tensor in (query, key, value))
        ranks, rank = self._context_parallel()
        boundaries = None
        if layout == "thd":
            boundaries = _boundaries(
                cu_seqlens_q if cu_seqlens_q_padded is None else cu_seqlens_q_padded, len(query) * ranks
            )
        mask_type = attn_mask_type or self.attn_mask_type
        causal, window = "causal" in mask_type, window_size or self.window_size
        if ranks > 1:
            key, value = self._gather(key), self._gather(value)
            context = self._with_positions(query, key, value, boundaries, causal, window, ranks, rank)
        elif boundaries is not None:
            context = self._each_sequence(query, key, value, boundaries, causal, window)
        else:
            mask = attention_mask if mask_type != "causal" and mask_type != "no_mask" else None
            context = self._attend(query, key, value, _dense_mask(query, key, mask, causal, window), causal)
        return _from_sbhd(context, layout).flatten(-2)

    def _context_parallel(self) -> tuple[int, int]:
        group = self._cp()
        if group is None:
            return 1, 0
        return torch.distributed.get_world_size(group), torch.distributed.get_rank(group)

    def _cp(self) -> Any:
        if isinstance(
            self.cp_group, list
        ):  # a2a+p2p passes the two levels; one gather over all ranks gives the same numbers
            from megatron.core import parallel_state

            return parallel_state.get_context_parallel_group()
        return self.cp_group

    def _gather(self, tensor: Any) -> Any:
        from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region

        return gather_from_sequence_parallel_region(tensor.contiguous(), True, self._cp())

    def _with_positions(
        self, query: Any, key: Any, value: Any, boundaries: Any, causal: bool, window: Any, ranks: int, rank: int
    ) -> Any:
        edges = boundaries or [0, len(query) * ranks]
        held = [zigzag(edges, ranks, other) for other in range(ranks)]
        queries, keys = held[rank], torch.cat(held)
        ends = torch.tensor(edges[1:])
        same = torch.bucketize(queries, ends, right=True)[:, None] == torch.bucketize(keys, ends, right=True)[None, :]
        mask = same & _visible(queries, keys, causal, window)
        return self._attend(query, key, value, mask, causal)

    def _each_sequence(self, query: Any, key: Any, value: Any, boundaries: list[int], causal: bool, window: Any) -> Any:
        parts = []
        for start, end in itertools.pairwise(boundaries):
            part = (query[start:end], key[start:end], value[start:end])
            parts.append(self._attend(*part, _dense_mask(part[0], part[1], None, causal, window), causal))
        return torch.cat(parts)

    def _attend(self, query: Any, key: Any, value: Any, mask: Any, causal: bool) -> Any:
        """Attend over [s, b, heads, dim]; ``mask`` (True attends) replaces the causal rule where given."""
        repeats = query.shape[2] // key.shape[2]
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 2), value.repeat_interleave(repeats, 2)
        if self.softmax_offset is not None:
            key, value, mask = self._with_sink(query, key, value, mask, causal)
        dropout = self.attention_dropout if self.training else 0.0
        tracked = dropout > 0 and self.get_rng_state_tracker is not None
        with self.get_rng_state_tracker().fork() if tracked else contextlib.nullcontext():  # type: ignore[misc]
            context = F.scaled_dot_product_attention(
                query.permute(1, 2, 0, 3),
                key.permute(1, 2, 0, 3),
                value.permute(1, 2, 0, 3),
                attn_mask=mask,
                is_causal=causal and mask is None,
                scale=self.softmax_scale,
                dropout_p=dropout,
            )
        return context.permute(2, 0, 1, 3)

    def _with_sink(self, query: Any, key: Any, value: Any, mask: Any, causal: bool) -> tuple[Any, Any, Any]:
        """Return keys and values with one more of zeros, and the scores' bias: the learned one of each head there."""
        if mask is None:
            mask = _visible(torch.arange(len(query)), torch.arange(len(key)), causal, None)
        hidden = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(~mask, float("-inf"))
        heads = self.softmax_offset.numel()
        hidden = hidden.expand(query.shape[1], heads, len(query), len(key))
        sink = self.softmax_offset.to(query.dtype).view(1, heads, 1, 1).expand(query.shape[1], heads, len(query), 1)
        more = torch.zeros_like(key[:1]), torch.zeros_like(value[:1])
        return torch.cat([key, more[0]]), torch.cat([value, more[1]]), torch.cat([hidden, sink], dim=-1)


def _to_sbhd(tensor: Any, layout: str) -> Any:
    if layout == "sbhd":
        return tensor
    if layout == "bshd":  # megatron-core 0.12 to 0.14 with fused RoPE
        return tensor.transpose(0, 1)
    return tensor.unsqueeze(1) if layout == "thd" else refuse(f"attention layout {layout!r}")


def _from_sbhd(tensor: Any, layout: str) -> Any:
    if layout == "thd":
        return tensor.squeeze(1)
    return tensor.transpose(0, 1) if layout == "bshd" else tensor


def _boundaries(cumulative: Any, tokens: int) -> list[int]:
    """Return the cumulative lengths as a list that ends at ``tokens``: padding at the end is one more sequence."""
    if cumulative is None:
        raise ValueError("packed attention (thd) needs cu_seqlens_q")
    edges = [edge for edge in cumulative.tolist() if edge <= tokens]
    return edges if edges[-1] == tokens else [*edges, tokens]


def _visible(queries: Any, keys: Any, causal: bool, window: tuple[int, int] | None) -> Any:
    """Return the mask of keys that each query attends to, [queries, keys]; window = (left, right), -1 is unlimited."""
    distance = queries[:, None] - keys[None, :]
    visible = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    if window is not None:
        left, right = window
        visible = (
            visible & (distance <= left if left >= 0 else visible) & (-distance <= right if right >= 0 else visible)
        )
    return visible


def _dense_mask(query: Any, key: Any, masked: Any, causal: bool, window: tuple[int, int] | None) -> Any:
    """Return the mask of one whole sequence, or None where torch's causal (or full) attention is equivalent.

    ``masked`` is Transformer Engine's convention: True is hidden.
    """
    limited = window is not None and tuple(window) not in ((-1, -1), (-1, 0))
    if masked is None and not limited and len(query) == len(key):
        return None
    visible = _visible(torch.arange(len(query)), torch.arange(len(key)), causal, window)
    if masked is not None:
        visible = visible & ~masked
    # A fully masked row (padding) would become NaN; it attends to itself and is masked in the loss.
    return visible | torch.eye(len(query), len(key), dtype=torch.bool)
