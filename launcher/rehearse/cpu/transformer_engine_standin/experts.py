"""Transformer Engine's fused mixture-of-experts functions, by megatron-core's unfused formulas."""

from typing import Any

import torch


def moe_permute(
    tokens: Any, routing_map: Any, num_out_tokens: int = -1, max_token_num: int = -1, map_type: str = "mask"
) -> tuple[Any, Any]:
    """Sort ``tokens`` [n, hidden] by expert; return them with the row map that moe_unpermute takes back."""
    rows = _rows(routing_map)
    return tokens.index_select(0, rows), rows


def moe_permute_with_probs(tokens: Any, probs: Any, routing_map: Any, num_out_tokens: int = -1) -> tuple[Any, Any, Any]:
    """Sort ``tokens`` and their ``probs`` [n, experts] by expert; return tokens, probabilities and the row map."""
    rows = _rows(routing_map)
    chosen = probs.T.contiguous().masked_select(routing_map.T.bool())
    return tokens.index_select(0, rows), chosen, rows


def moe_unpermute(
    tokens: Any,
    row_id_map: Any,
    merging_probs: Any = None,
    restore_shape: Any = None,
    map_type: str = "mask",
    probs: Any = None,
) -> Any:
    """Add each token's expert outputs together, weighted where ``merging_probs`` [n, experts] is given."""
    from launcher.rehearse.cpu.transformer_engine_standin.precision import refuse

    if merging_probs is not None or probs is not None:
        refuse("weighting inside the fused unpermutation (moe_permute_fusion with legacy probabilities)")
    output = torch.zeros(restore_shape, dtype=tokens.dtype, device=tokens.device)
    return output.index_add(0, row_id_map, tokens)


def moe_sort_chunks_by_index(tokens: Any, split_sizes: Any, sorted_index: Any) -> Any:
    """Reorder the chunks of ``tokens`` of the given sizes."""
    chunks = torch.split(tokens, split_sizes.tolist(), dim=0)
    return torch.cat([chunks[index] for index in sorted_index.tolist()], dim=0)


def moe_sort_chunks_by_index_with_probs(
    tokens: Any, probs: Any, split_sizes: Any, sorted_index: Any
) -> tuple[Any, Any]:
    """Reorder the chunks of ``tokens`` and ``probs`` alike."""
    return tuple(moe_sort_chunks_by_index(tensor, split_sizes, sorted_index) for tensor in (tokens, probs))


def _rows(routing_map: Any) -> Any:
    """Return the token of each row after sorting by expert, from the map [n, experts]."""
    tokens, experts = routing_map.shape
    every = torch.arange(tokens).unsqueeze(0).expand(experts, -1)
    return every.masked_select(routing_map.bool().T.contiguous())


def fused_topk_with_score_function(
    logits: Any,
    topk: int,
    use_pre_softmax: bool,
    num_groups: int | None,
    group_topk: int | None,
    scaling_factor: float | None,
    score_function: str,
    expert_bias: Any,
    **_kwargs: Any,
) -> tuple[Any, Any]:
    """Return routing probabilities and map [n, experts], by megatron-core's unfused router."""
    from megatron.core.transformer.moe.moe_utils import topk_routing_with_score_function

    result = topk_routing_with_score_function(
        logits,
        topk,
        use_pre_softmax=use_pre_softmax,
        num_groups=num_groups,
        group_topk=group_topk,
        scaling_factor=scaling_factor,
        score_function=score_function,
        expert_bias=expert_bias,
        fused=False,
    )
    return result[0], result[1]


def fused_compute_score_for_moe_aux_loss(
    logits: Any, topk: int, score_function: str, **_kwargs: Any
) -> tuple[Any, Any]:
    """Return the routing map and the scores of the balancing loss, by megatron-core's unfused formula."""
    from megatron.core.transformer.moe.moe_utils import compute_routing_scores_for_aux_loss

    routing_map, scores = compute_routing_scores_for_aux_loss(logits, topk, score_function, fused=False)
    return routing_map, scores


def fused_moe_aux_loss(
    probs: Any, tokens_per_expert: Any, total_num_tokens: Any, topk: int, num_experts: int, coeff: float
) -> Any:
    """Return the balancing loss: experts · coeff / (topk · tokens²) · Σ probability · tokens of each expert."""
    aggregated = probs.sum(dim=0)
    return torch.sum(aggregated * tokens_per_expert) * (
        num_experts * coeff / (topk * total_num_tokens * total_num_tokens)
    )


PERMUTATIONS = (
    moe_permute,
    moe_permute_with_probs,
    moe_unpermute,
    moe_sort_chunks_by_index,
    moe_sort_chunks_by_index_with_probs,
)
ROUTER = (fused_topk_with_score_function, fused_compute_score_for_moe_aux_loss, fused_moe_aux_loss)
