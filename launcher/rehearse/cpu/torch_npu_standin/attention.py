"""The fused attention of torch_npu in plain torch: forward, and the explicit gradient that ring attention calls."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_EVERYTHING = 2147483647
_STATISTIC_LANES = 8
"""The operator returns softmax_max and softmax_sum as [batch, heads, tokens, 8]: eight equal lanes, for alignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Conversion of one ``input_layout`` to [batch, heads, tokens, head dimension] and back."""

    split: Callable[[Tensor, int], Tensor]
    join: Callable[[Tensor], Tensor]


def _heads_last(tensor: Tensor, heads: int) -> Tensor:
    return tensor.reshape(tensor.size(0), tensor.size(1), heads, -1)


_LAYOUTS = {
    "SBH": _Layout(
        split=lambda tensor, heads: _heads_last(tensor, heads).permute(1, 2, 0, 3),
        join=lambda tensor: tensor.permute(2, 0, 1, 3).flatten(2),
    ),
    "BSH": _Layout(
        split=lambda tensor, heads: _heads_last(tensor, heads).transpose(1, 2),
        join=lambda tensor: tensor.transpose(1, 2).flatten(2),
    ),
    "BSND": _Layout(split=lambda tensor, heads: tensor.transpose(1, 2), join=lambda tensor: tensor.transpose(1, 2)),
    "BNSD": _Layout(split=lambda tensor, heads: tensor, join=lambda tensor: tensor),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """Parameters of forward and backward: head layout, attention mask, scale of scores."""

    head_num: int
    layout: str
    scale: float
    keep_prob: float
    mask: Tensor | None
    sparse_mode: int
    before: int
    after: int

    def allowed(self, queries: int, keys: int) -> Tensor | None:
        """Return bool [queries, keys] (or what broadcasts to it), True where a query attends; None for all pairs.

        As documented (op-plugin docs/context/torch_npu-npu_fusion_attention.md): without a mask every mode computes all
        pairs; 0 and 1 take the mask as given (0 also the band), 2 is causal from the upper left, 3 causal to the lower
        right, 4 a band counted from the lower right.
        """
        if self.sparse_mode not in range(5):
            raise NotImplementedError(
                f"npu_fusion_attention: sparse_mode={self.sparse_mode} has no stand-in on CPU (0-4 have)"
            )
        if self.mask is None:
            return None
        query = torch.arange(queries)[:, None]
        key = torch.arange(keys)[None, :]
        shift = keys - queries
        match self.sparse_mode:
            case 0:
                given = ~self.mask[..., :queries, :keys].bool()
                return given & (key >= query - self.before) & (key <= query + self.after)
            case 1:
                return ~self.mask[..., :queries, :keys].bool()
            case 2:
                return key <= query
            case 3:
                return key <= query + shift
        return (key >= query + shift - self.before) & (key <= query + shift + self.after)


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"npu_fusion_attention: {name} has no stand-in on CPU")


def _scores(query: Tensor, key: Tensor, options: _Options) -> Tensor:
    """Return float32 scores [batch, heads, queries, keys], -inf where a pair does not attend; key has all heads."""
    scores = torch.matmul(query.float(), key.float().transpose(-1, -2)) * options.scale
    allowed = options.allowed(query.size(2), key.size(2))
    return scores if allowed is None else scores.masked_fill(~allowed, float("-inf"))


def _repeat(tensor: Tensor, query: Tensor) -> Tensor:
    """Return key or value with as many heads as the query (grouped-query attention)."""
    return tensor.repeat_interleave(query.size(1) // tensor.size(1), 1)


def _forward(query: Tensor, key: Tensor, value: Tensor, options: _Options) -> tuple[Tensor, Tensor, Tensor]:
    """Return output, softmax_max and softmax_sum of [batch, heads, tokens, dimension] inputs."""
    scores = _scores(query, _repeat(key, query), options)
    largest = scores.detach().amax(-1, keepdim=True)
    largest = torch.where(torch.isinf(largest), torch.zeros_like(largest), largest)
    exponentials = torch.exp(scores - largest)
    total = exponentials.sum(-1, keepdim=True)
    weights = exponentials / total.clamp_min(torch.finfo(torch.float32).tiny)
    if options.keep_prob < 1.0:
        weights = torch.nn.functional.dropout(weights, 1.0 - options.keep_prob)
    output = torch.matmul(weights, _repeat(value, query).float()).to(query.dtype)
    lanes = (*largest.shape[:-1], _STATISTIC_LANES)
    return output, largest.expand(lanes).contiguous(), total.detach().expand(lanes).contiguous()


def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grad: Tensor,
    output: Tensor,
    largest: Tensor,
    total: Tensor,
    options: _Options,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the three gradients, from softmax statistics that may cover more keys than are given (ring attention)."""
    keys, values = _repeat(key, query).float(), _repeat(value, query).float()
    grad, output = grad.float(), output.float()
    weights = torch.exp(_scores(query, keys, options) - largest[..., :1]) / total[..., :1]
    grad_value = torch.matmul(weights.transpose(-1, -2), grad)
    grad_weights = torch.matmul(grad, values.transpose(-1, -2))
    grad_scores = weights * (grad_weights - (grad * output).sum(-1, keepdim=True)) * options.scale
    grad_query = torch.matmul(grad_scores, keys)
    grad_key = torch.matmul(grad_scores.transpose(-1, -2), query.float())
    return grad_query.to(query.dtype), _sum_groups(grad_key, key), _sum_groups(grad_value, value)


def _sum_groups(grad: Tensor, like: Tensor) -> Tensor:
    """Sum the gradient of repeated key or value heads back into the heads they were repeated from."""
    groups = like.size(1)
    return grad.unflatten(1, (groups, grad.size(1) // groups)).sum(2).to(like.dtype)


def _ends(lengths: Any) -> list[int]:
    """Return cumulative sequence ends without the leading 0 that some callers pass."""
    ends = [int(end) for end in lengths]
    return ends[1:] if ends and ends[0] == 0 else ends


def _sequences(query_ends: Any, key_ends: Any) -> Iterator[tuple[slice, slice]]:
    """Yield the token ranges of each packed sequence (layout TND) for queries and keys."""
    query_start = key_start = 0
    for query_end, key_end in zip(_ends(query_ends), _ends(key_ends), strict=True):
        yield slice(query_start, query_end), slice(key_start, key_end)
        query_start, key_start = query_end, key_end


def _packed(tensor: Tensor, tokens: slice) -> Tensor:
    """Return one packed sequence of [tokens, heads, dimension] as [1, heads, tokens, dimension]."""
    return tensor[tokens].transpose(0, 1).unsqueeze(0)


def _concatenate(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return per-sequence results [1, heads, tokens, x] as packed tensors [tokens, heads, x]."""
    return tuple(torch.cat([part[0].transpose(0, 1) for part in column]) for column in zip(*parts, strict=True))


def _split_heads(
    layout: _Layout, query: Tensor, key: Tensor, value: Tensor, options: _Options
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value as [batch, heads, tokens, dimension]; joined heads are counted by the key's width."""
    queries = layout.split(query, options.head_num)
    groups = key.size(-1) // queries.size(-1) if options.layout in ("SBH", "BSH") else 0
    return queries, layout.split(key, groups), layout.split(value, groups)


def _layout(name: str) -> _Layout:
    try:
        return _LAYOUTS[name]
    except KeyError:
        raise NotImplementedError(f"npu_fusion_attention: input_layout={name} has no stand-in on CPU") from None


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _EVERYTHING,
    next_tockens: int = _EVERYTHING,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    **_ignored: Any,
) -> tuple[Any, ...]:
    """Return (output, softmax_max, softmax_sum, None, seed, offset, numels) as torch_npu.npu_fusion_attention does.

    Layouts SBH, BSH, BSND, BNSD and packed TND (with cumulative ``actual_seq_*len``); grouped heads; what is True in
    the mask is masked out. Scores, softmax and weighted sum are float32. Raises NotImplementedError for pse, prefix and
    sparse modes above 4.
    """
    _refuse(pse=pse, prefix=prefix)
    options = _Options(
        head_num=head_num,
        layout=input_layout,
        scale=scale,
        keep_prob=keep_prob,
        mask=atten_mask,
        sparse_mode=sparse_mode,
        before=pre_tockens,
        after=next_tockens,
    )
    if input_layout == "TND":
        parts = [
            _forward(_packed(query, rows), _packed(key, columns), _packed(value, columns), options)
            for rows, columns in _sequences(actual_seq_qlen, actual_seq_kvlen)
        ]
        return (*_concatenate(parts), None, 0, 0, 0)
    layout = _layout(input_layout)
    output, largest, total = _forward(*_split_heads(layout, query, key, value, options), options)
    return layout.join(output), largest, total, None, 0, 0, 0


def npu_fusion_attention_grad(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dy: Tensor,
    head_num: int,
    input_layout: str,
    *,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    softmax_max: Tensor | None = None,
    softmax_sum: Tensor | None = None,
    softmax_in: Tensor | None = None,
    attention_in: Tensor | None = None,
    scale_value: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _EVERYTHING,
    next_tockens: int = _EVERYTHING,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    **_ignored: Any,
) -> tuple[Any, ...]:
    """Return (grad_query, grad_key, grad_value, None) for the statistics given, which ring attention makes global.

    Raises NotImplementedError for pse, prefix and attention dropout (its random mask is not kept on CPU).
    """
    _refuse(pse=pse, prefix=prefix, keep_prob=None if keep_prob == 1.0 else keep_prob)
    assert softmax_max is not None
    assert softmax_sum is not None
    assert attention_in is not None
    options = _Options(
        head_num=head_num,
        layout=input_layout,
        scale=scale_value,
        keep_prob=1.0,
        mask=atten_mask,
        sparse_mode=sparse_mode,
        before=pre_tockens,
        after=next_tockens,
    )
    with torch.no_grad():
        if input_layout == "TND":
            parts = [
                _backward(
                    *(_packed(query, rows), _packed(key, columns), _packed(value, columns), _packed(dy, rows)),
                    *(_packed(attention_in, rows), _packed(softmax_max, rows), _packed(softmax_sum, rows)),
                    options,
                )
                for rows, columns in _sequences(actual_seq_qlen, actual_seq_kvlen)
            ]
            return (*_concatenate(parts), None)
        layout = _layout(input_layout)
        grad, output = layout.split(dy, head_num), layout.split(attention_in, head_num)
        inputs = _split_heads(layout, query, key, value, options)
        grads = _backward(*inputs, grad, output, softmax_max, softmax_sum, options)
        return (*map(layout.join, grads), None)
