"""Token permutation operators of torch_npu (mixture-of-experts dispatch) in plain torch."""

import torch
from torch import Tensor


def _no_padding(drop_and_pad: bool) -> None:
    if drop_and_pad:
        raise NotImplementedError("token permutation with drop_and_pad has no stand-in on CPU")


def npu_moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """Return (tokens sorted by expert, where each of the token's copies went).

    ``tokens`` [tokens, hidden], ``indices`` [tokens, top k] or [tokens]; stable within an expert.
    """
    _no_padding(padded_mode)
    copies = 1 if indices.dim() == 1 else indices.size(1)
    order = torch.argsort(indices.reshape(-1), stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel())
    return tokens.index_select(0, order // copies)[: num_out_tokens or None], places


def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: tuple[int, ...] | None = None,
) -> Tensor:
    """Return the tokens in their first order, the copies of each weighted by ``probs`` [tokens, top k] and summed."""
    _no_padding(padded_mode)
    copies = permuted_tokens.index_select(0, sorted_indices.long())
    if probs is None:
        return copies
    weighted = copies.view(probs.size(0), probs.size(1), -1) * probs.unsqueeze(-1).to(copies.dtype)
    return weighted.sum(1)


def npu_moe_token_permute_with_routing_map(
    tokens: Tensor,
    routing_map: Tensor,
    *,
    probs: Tensor | None = None,
    num_out_tokens: int | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return (tokens sorted by expert, their probabilities, the source rows); ``routing_map`` [tokens, experts]."""
    _no_padding(drop_and_pad)
    count, experts = routing_map.shape
    chosen = routing_map.bool().T.contiguous()
    rows = torch.arange(count).unsqueeze(0).expand(experts, -1).masked_select(chosen)
    kept = None if probs is None else probs.T.contiguous().masked_select(chosen)
    return tokens.index_select(0, rows), kept, rows


def npu_moe_token_permute_with_routing_map_grad(
    grad: Tensor,
    grad_probs: Tensor | None,
    rows: Tensor,
    routing_map: Tensor,
    num_experts: int,
    num_tokens: int,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of tokens [tokens, hidden] and of probabilities [tokens, experts]."""
    _no_padding(drop_and_pad)
    grad_tokens = torch.zeros(num_tokens, grad.size(1), dtype=grad.dtype).index_add_(0, rows, grad)
    if grad_probs is None:
        return grad_tokens, None
    scattered = torch.zeros(num_experts, num_tokens, dtype=grad_probs.dtype)
    return grad_tokens, scattered.masked_scatter_(routing_map.bool().T, grad_probs).T.contiguous()


def npu_moe_token_unpermute_with_routing_map(
    permuted_tokens: Tensor,
    rows: Tensor,
    restore_shape: tuple[int, ...],
    *,
    probs: Tensor | None = None,
    routing_map: Tensor | None = None,
    drop_and_pad: bool = False,
) -> tuple[Tensor, Tensor, Tensor, None]:
    """Return (tokens summed back into ``restore_shape``, out index, permuted token id, None)."""
    _no_padding(drop_and_pad)
    weighted = permuted_tokens
    if probs is not None and routing_map is not None:
        kept = probs.T.contiguous().masked_select(routing_map.bool().T.contiguous())
        weighted = permuted_tokens * kept.unsqueeze(-1).to(permuted_tokens.dtype)
    restored = torch.zeros(*restore_shape, dtype=permuted_tokens.dtype).index_add_(0, rows, weighted)
    return restored, rows, rows, None


def npu_moe_token_unpermute_with_routing_map_grad(
    grad: Tensor,
    out_index: Tensor,
    permuted_token_id: Tensor,
    routing_map: Tensor | None = None,
    permuted_tokens: Tensor | None = None,
    probs: Tensor | None = None,
    drop_and_pad: bool = False,
    restore_shape: tuple[int, ...] | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the permuted tokens and of probabilities [tokens, experts]."""
    _no_padding(drop_and_pad)
    selected = grad.index_select(0, out_index)
    if probs is None or routing_map is None or permuted_tokens is None:
        return selected, None
    chosen = routing_map.bool().T.contiguous()
    kept = probs.T.contiguous().masked_select(chosen)
    per_copy = (selected * permuted_tokens).sum(-1).to(probs.dtype)
    grad_probs = torch.zeros(chosen.shape, dtype=probs.dtype).masked_scatter_(chosen, per_copy).T.contiguous()
    return selected * kept.unsqueeze(-1).to(selected.dtype), grad_probs


def moe_sort_chunks_by_index(inp: Tensor, split_sizes: Tensor, sorted_index: Tensor) -> Tensor:
    """Return the rows with their chunks in another order (MindSpeed ops/triton/sort_chunks_by_idx.py)."""
    chunks = torch.split(inp, split_sizes.tolist())
    return torch.cat([chunks[index] for index in sorted_index.tolist()])


def moe_sort_chunks_by_index_with_probs(
    inp: Tensor, probs: Tensor, split_sizes: Tensor, sorted_index: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the rows, and the probabilities of each, with their chunks in another order."""
    return (
        moe_sort_chunks_by_index(inp, split_sizes, sorted_index),
        moe_sort_chunks_by_index(probs, split_sizes, sorted_index),
    )
