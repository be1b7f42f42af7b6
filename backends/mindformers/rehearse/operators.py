"""MindSpore operators without an exact kernel on CPU, composed of operators that the CPU target supports."""

# MindSpore compiles this file: its graph language has no starred tuples.
# ruff: noqa: RUF005

from typing import Any

from mindspore import Tensor, nn, ops
from mindspore.common import dtype as mstype
from mindspore.ops import operations as P


class _Composed(nn.Cell):
    """Replaces a primitive: sharding, attributes and recomputation, without meaning here, are accepted and ignored."""

    def shard(self, *_args: Any, **_kwargs: Any) -> "_Composed":
        return self

    def add_prim_attr(self, *_args: Any, **_kwargs: Any) -> "_Composed":
        return self

    def recompute(self, *_args: Any, **_kwargs: Any) -> "_Composed":
        return self


def _slice(x: Any, axis: Any, begin: Any, size: Any) -> Any:
    """Return ``size`` elements of ``x`` from ``begin`` on along ``axis``."""
    rank = len(x.shape)
    axis = axis % rank
    start = (0,) * axis + (begin,) + (0,) * (rank - axis - 1)
    extent = x.shape[:axis] + (size,) + x.shape[axis + 1 :]
    return ops.slice(x, start, extent)


def _wide(x: Any) -> Any:
    """Return ``x`` in float64.

    The CPU target's float32 exp is a polynomial, off by up to 5e-6 (measured on
    64 x 256 numbers between -10 and 8, mindspore 2.7.2; ops.exp in float64 is exact to the last digit).
    """
    return ops.cast(x, mstype.float64)


def _silu(x: Any) -> Any:
    return ops.cast(ops.silu(_wide(x)), x.dtype)


def _softmax(x: Any, axis: Any) -> Any:
    return ops.cast(ops.softmax(_wide(x), axis), x.dtype)


class Exp(_Composed):
    """e to the power of ``input``, rounded once."""

    def construct(self, input: Any) -> Any:
        return ops.cast(ops.exp(_wide(input)), input.dtype)


class Log(_Composed):
    """Natural logarithm of ``input``, rounded once."""

    def construct(self, input: Any) -> Any:
        return ops.cast(ops.log(_wide(input)), input.dtype)


class Sigmoid(_Composed):
    """Logistic function of ``input``, rounded once."""

    def construct(self, input: Any) -> Any:
        return ops.cast(ops.sigmoid(_wide(input)), input.dtype)


class SiLU(_Composed):
    """``input`` times its logistic function, rounded once."""

    def construct(self, input: Any) -> Any:
        return _silu(input)


class Softmax(_Composed):
    """Softmax of ``input`` along ``axis``, rounded once."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, input: Any) -> Any:
        return _softmax(input, self.axis)


class IndexSelect(_Composed):
    """Entries ``index`` of ``input`` along ``dim``."""

    def construct(self, input: Any, dim: Any, index: Any) -> Any:
        return ops.gather(input, index, dim)


class SplitWithSize(_Composed):
    """``d_tensor`` cut along ``dim`` into pieces of the given sizes."""

    def construct(self, d_tensor: Any, split_size: Any, dim: Any = 0) -> Any:
        pieces: tuple[Any, ...] = ()
        begin = 0
        for size in split_size:
            pieces = pieces + (_slice(d_tensor, dim, begin, size),)
            begin = begin + size
        return pieces


class Swiglu(_Composed):
    """silu(first half) * second half of ``input`` along ``dim``."""

    def construct(self, input: Any, dim: Any = -1) -> Any:
        half = input.shape[dim] // 2
        return _silu(_slice(input, dim, 0, half)) * _slice(input, dim, half, half)


class RmsNorm(_Composed):
    """(x / rms(x) * gamma, 1 / rms(x)) over the last dimension."""

    def __init__(self, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.epsilon = epsilon

    def construct(self, x: Any, gamma: Any) -> Any:
        rstd = ops.rsqrt(ops.mean(ops.square(x), -1, True) + self.epsilon)
        return x * rstd * gamma, rstd


class Outer(_Composed):
    """Outer product of two vectors."""

    def construct(self, input: Any, vec2: Any) -> Any:
        return ops.expand_dims(input, 1) * ops.expand_dims(vec2, 0)


class RotaryPositionEmbedding(_Composed):
    """x * cos + rotated x * sin; mode 0 pairs the halves, mode 1 pairs neighbours."""

    def construct(self, x: Any, cos: Any, sin: Any, mode: Any = 0) -> Any:
        half = x.shape[-1] // 2
        if mode == 1:
            pairs = ops.reshape(x, x.shape[:-1] + (half, 2))
            first, second = _slice(pairs, -1, 0, 1), _slice(pairs, -1, 1, 1)
        else:
            first, second = _slice(x, -1, 0, half), _slice(x, -1, half, half)
        rotated = ops.reshape(P.Concat(-1)((-second, first)), x.shape)
        return x * cos + rotated * sin


class TopkExt(_Composed):
    """The ``k`` largest entries along the last dimension, in order, and their places."""

    def __init__(self) -> None:
        super().__init__()
        self.top = P.TopK(sorted=True)

    def construct(self, input: Any, k: Any) -> Any:
        return self.top(input, k)


class Morph(_Composed):
    """A function that is compiled as one operator, called as it is."""

    def __init__(self, fn: Any, *_infer: Any) -> None:
        super().__init__()
        self.fn = fn

    def construct(self, *args: Any) -> Any:
        return self.fn(*args)


class FlashAttentionScore(_Composed):
    """Attention with float32 scores; layouts BNSD, BSH and SBH, sparse modes 0 to 3; 1 in a mask excludes a pair."""

    def __init__(
        self,
        head_num: int,
        keep_prob: float = 1.0,
        scale_value: float = 1.0,
        pre_tokens: int = 2147483647,
        next_tokens: int = 2147483647,
        inner_precise: int = 0,
        input_layout: str = "BSH",
        sparse_mode: int = 0,
    ) -> None:
        super().__init__()
        if keep_prob != 1.0 or input_layout not in ("BNSD", "BSH", "SBH") or sparse_mode not in (0, 1, 2, 3):
            raise NotImplementedError(
                f"FlashAttentionScore(keep_prob={keep_prob}, input_layout={input_layout}, sparse_mode={sparse_mode}) "
                "has no stand-in on CPU; it has for keep_prob=1.0, layouts BNSD, BSH and SBH, and sparse modes 0 to 3"
            )
        self.head_num = head_num
        self.scale_value = scale_value
        self.layout = input_layout
        self.sparse_mode = sparse_mode

    def _split(self, x: Any, heads: Any) -> Any:
        """Return ``x`` as [batch, heads, tokens, dimension]."""
        if self.layout == "BNSD":
            return x
        x = ops.reshape(x, (x.shape[0], x.shape[1], heads, -1))
        return ops.transpose(x, (0, 2, 1, 3) if self.layout == "BSH" else (1, 2, 0, 3))

    def _join(self, x: Any) -> Any:
        """Return [batch, heads, tokens, dimension] in the caller's layout."""
        if self.layout == "BNSD":
            return x
        x = ops.transpose(x, (0, 2, 1, 3) if self.layout == "BSH" else (2, 0, 1, 3))
        return ops.reshape(x, (x.shape[0], x.shape[1], -1))

    def _hidden(self, queries: Any, keys: Any, attn_mask: Any) -> Any:
        """Return bool [..., queries, keys], True where a pair does not attend."""
        if self.sparse_mode == 2:
            return ops.triu(ops.ones((queries, keys), mstype.int32), 1) > 0
        if self.sparse_mode == 3:
            return ops.triu(ops.ones((queries, keys), mstype.int32), 1 + keys - queries) > 0
        if attn_mask is None:
            return ops.zeros((queries, keys), mstype.int32) > 0
        return ops.cast(attn_mask, mstype.int32) > 0

    def construct(
        self,
        query: Any,
        key: Any,
        value: Any,
        real_shift: Any = None,
        drop_mask: Any = None,
        padding_mask: Any = None,
        attn_mask: Any = None,
        prefix: Any = None,
        actual_seq_qlen: Any = None,
        actual_seq_kvlen: Any = None,
    ) -> Any:
        queries = self._split(query, self.head_num)
        groups = key.shape[1] if self.layout == "BNSD" else key.shape[-1] // queries.shape[-1]
        keys, values = self._split(key, groups), self._split(value, groups)
        if groups < self.head_num:
            keys = ops.repeat_interleave(keys, self.head_num // groups, 1)
            values = ops.repeat_interleave(values, self.head_num // groups, 1)
        wide = ops.cast(queries, mstype.float32)
        scores = ops.matmul(wide, ops.transpose(ops.cast(keys, mstype.float32), (0, 1, 3, 2))) * self.scale_value
        scores = ops.masked_fill(scores, self._hidden(scores.shape[2], scores.shape[3], attn_mask), -1e30)
        output = ops.matmul(_softmax(scores, -1), ops.cast(values, mstype.float32))
        largest = ops.amax(scores, -1, True)
        return largest, largest, largest, self._join(ops.cast(output, query.dtype))


class ExpertMatMul(_Composed):
    """``x`` [1, experts, tokens, in] times weights [experts, in, out], which BatchMatMul broadcasts on Ascend only."""

    def __init__(self, transpose_b: bool) -> None:
        super().__init__()
        self.product = P.BatchMatMul(transpose_b=transpose_b)

    def construct(self, x: Any, weight: Any) -> Any:
        output = self.product(ops.reshape(x, x.shape[1:]), weight)
        return ops.reshape(output, (1,) + output.shape)


def embedding(input: Any, weight: Any, *_args: Any, **_kwargs: Any) -> Any:
    """Return rows ``input`` of ``weight``, as mint.nn.functional.embedding does (no padding_idx, no max_norm)."""
    return ops.gather(weight, input, 0)


def experts(self: Any, tokens: Any, probs: Any, routing_map: Any) -> Any:
    """Return the experts' sum for [batch, tokens, hidden], in place of FFNGroupedGEMM.construct with one expert rank.

    Every expert computes every token, weighted with its probability, 0 where it was not chosen: what dispatch, grouped
    matrix product and combination give without dropped tokens.
    """
    x = ops.cast(tokens, self.compute_dtype)
    w1 = ops.reshape(ops.cast(self.weight1, self.compute_dtype), (-1, self.hidden_size, self.moe_ffn_hidden_size * 2))
    w2 = ops.reshape(ops.cast(self.weight2, self.compute_dtype), (-1, self.moe_ffn_hidden_size, self.hidden_size))
    half = self.moe_ffn_hidden_size
    output = ops.zeros_like(x)
    for expert in range(self.num_local_experts):
        chosen = ops.cast(routing_map == expert, mstype.float32)
        share = ops.sum(ops.cast(probs, mstype.float32) * chosen, -1, True)
        wide = ops.matmul(x, w1[expert])
        hidden = _silu(_slice(wide, -1, 0, half)) * _slice(wide, -1, half, half)
        output = output + ops.cast(share, self.compute_dtype) * ops.matmul(hidden, w2[expert])
    return ops.cast(output, tokens.dtype)


def barrier(group: str | None = None) -> None:
    """Wait for all ranks by summing one number over them: the CPU target has AllReduce but no Barrier."""
    reduce = P.AllReduce() if group is None else P.AllReduce(group=group)
    reduce(Tensor([1.0], mstype.float32)).asnumpy()


FOR_AUTO_GENERATE = {
    "IndexSelect": IndexSelect,
    "SplitWithSize": SplitWithSize,
    "Swiglu": Swiglu,
    "Outer": Outer,
    "TopkExt": TopkExt,
    "RotaryPositionEmbedding": RotaryPositionEmbedding,
    "Exp": Exp,
    "Log": Log,
    "Sigmoid": Sigmoid,
    "SiLU": SiLU,
    "Softmax": Softmax,
}
"""Names in mindspore.ops.auto_generate that MindFormers' mcore models import."""

FOR_OPERATIONS = {"RmsNorm": RmsNorm, "FlashAttentionScore": FlashAttentionScore, "Morph": Morph}
"""Names in mindspore.ops.operations that MindFormers' mcore models import."""
