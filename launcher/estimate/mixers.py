"""Token mixers other than softmax attention over all keys: gated delta nets, indexers, Mamba-2."""

from launcher.estimate.builder import Builder
from launcher.estimate.operation import Operation

# Chunk size of linear attention, in tokens (flash-linear-attention chunk_gated_delta_rule).
_CHUNK = 64
# Chunk size of Mamba-2, in tokens (megatron-core 0.16.1 ssm/mamba_mixer.py, chunk_size).
_MAMBA_CHUNK = 128
# The backward recomputes the states of chunks and runs two products for each of the forward's
# (flash-linear-attention gated_delta_rule/chunk.py, mamba_ssm ssd_combined.py).
_BACKWARD = 3.0


def delta_flops(key_heads: int, key_dim: int, value_dim: int) -> float:
    """Return the FLOPs of the gated delta rule for one token of `key_heads` heads (already repeated).

    In chunks of C: three C x C products over keys (K K^T, Q K^T, W), two over values (U, the output within the chunk),
    and three products with the state. Source: Gated Delta Networks, arXiv 2412.06464, section 3.3 (chunkwise form).
    """
    return key_heads * (2.0 * _CHUNK * (3 * key_dim + 2 * value_dim) + 6.0 * key_dim * value_dim)


def state_flops(heads: int, dim: int, groups: int, state: int) -> float:
    """Return the FLOPs of a Mamba-2 mixer's scan for one token.

    Source: Transformers are SSMs, arXiv 2405.21060, section 6 (SSD in chunks): C B^T within a group, its product with
    the values, and writing and reading the state.
    """
    return 2.0 * _MAMBA_CHUNK * groups * state + heads * dim * (2.0 * _MAMBA_CHUNK + 4.0 * state)


def index_flops(heads: int, dim: int, length: float) -> float:
    """Return the FLOPs of an indexer's scores for one token over `length` keys.

    Source: DeepSeek-V3.2, arXiv 2512.02556, equation 1.
    """
    return 2.0 * heads * dim * length


def linear_attention(builder: Builder) -> list[Operation]:
    """Return the kernels of a gated delta net, in the order of megatron-core 0.16.1 ssm/gated_delta_net.py."""
    s, v, machine, act = builder.sizes, builder.sizes.variants, builder.machine, builder.act
    key, value = (width // s.tp for width in v.linear_widths)
    heads, tokens = v.value_heads // s.tp, builder.tokens
    mixed = float(tokens * (2 * key + value) * act)
    repeated = float(tokens * heads * (2 * v.key_dim + v.value_dim) * act)
    out = float(tokens * value * act)
    flops = tokens * delta_flops(heads, v.key_dim, v.value_dim)
    seconds = machine.core(flops, latent=False, backward=False) + machine.moved(repeated + out)
    back = machine.core(_BACKWARD * flops, latent=False, backward=True) + machine.moved(3 * (repeated + out))
    # Decays in fp32, gates, and the inverse of each chunk's lower triangle.
    auxiliary = tokens * heads * (4.0 + act + _CHUNK * act)
    return [
        builder.linear(
            "linear in", "attention", tokens, s.hidden, 2 * key + 2 * value + 2 * heads, split="column", normed=True
        ),
        Operation(
            name="convolution",
            module="attention",
            keeps=mixed,
            forward_needs=2 * mixed,
            backward_needs=2 * mixed,
            forward=machine.moved(2 * mixed),
            backward=machine.moved(3 * mixed),
        ),
        Operation(
            name="key norm",
            module="attention",
            keeps=mixed,
            forward_needs=mixed + repeated,
            backward_needs=mixed + repeated,
            forward=machine.moved(mixed + repeated),
            backward=machine.moved(2 * mixed + repeated),
            launches=12,
        ),
        Operation(
            name="delta rule",
            module="core",
            keeps=repeated + auxiliary,
            forward_needs=repeated + auxiliary + out,
            backward_needs=2 * repeated + 2 * out,
            forward=seconds,
            backward=back,
            flops=flops,
            launches=8,
        ),
        Operation(
            name="gated norm",
            module="attention",
            keeps=2 * out,
            forward_needs=3 * out,
            backward_needs=3 * out,
            forward=machine.moved(3 * out),
            backward=machine.moved(5 * out),
        ),
        builder.linear("out", "attention", tokens, value, s.hidden, split="row"),
    ]


def indexer(builder: Builder) -> list[Operation]:
    """Return the kernels of an indexer, whose matrix products are not sharded (megatron-core 0.16.1 dsa.py).

    Modelled as a kernel that keeps no scores, only the selected keys; the indexer loss is not counted.
    """
    s, v, machine = builder.sizes, builder.sizes.variants, builder.machine
    tokens = builder.tokens
    flops = tokens * index_flops(v.index_heads, v.index_dim, s.seq / 2)
    chosen = 4.0 * tokens * min(v.topk, s.seq)
    width = v.index_heads * v.index_dim
    return [
        builder.linear("index q", "attention", tokens, s.q_rank or s.hidden, width, shared=True),
        builder.linear("index k", "attention", tokens, s.hidden, v.index_dim, shared=True),
        builder.linear("index weights", "attention", tokens, s.hidden, v.index_heads, shared=True),
        Operation(
            name="index",
            module="core",
            keeps=chosen + float(tokens * (width + v.index_dim) * builder.act),
            forward_needs=2 * chosen,
            backward_needs=chosen,
            forward=machine.core(flops, latent=False, backward=False),
            backward=machine.core(2 * flops, latent=False, backward=True),
            flops=flops,
            launches=12,
        ),
    ]


def mamba(builder: Builder) -> list[Operation]:
    """Return the kernels of a Mamba-2 mixer, in the order of megatron-core 0.16.1 ssm/mamba_mixer.py."""
    s, v, machine, act = builder.sizes, builder.sizes.variants, builder.machine, builder.act
    inner, heads, groups = v.inner // s.tp, v.mamba_heads // s.tp, max(1, v.groups // s.tp)
    tokens = builder.tokens
    mixed = float(tokens * (inner + 2 * groups * v.state) * act)
    out = float(tokens * inner * act)
    flops = tokens * state_flops(heads, v.mamba_dim, groups, v.state)
    states = 4.0 * tokens / _MAMBA_CHUNK * heads * v.mamba_dim * v.state
    given = mixed + out + 4.0 * tokens * heads
    return [
        builder.linear(
            *("mamba in", "attention", tokens, s.hidden, 2 * inner + 2 * groups * v.state + heads),
            split="column",
            normed=True,
        ),
        # One fused kernel keeps the projection output and recomputes the rest (mamba_split_conv1d_scan_combined).
        Operation(
            name="scan",
            module="core",
            keeps=given + out,
            forward_needs=given + mixed + out + states,
            backward_needs=2 * given + 2 * mixed + out + 2 * states,
            forward=machine.core(flops, latent=False, backward=False) + machine.moved(2 * given + out + states),
            backward=machine.core(_BACKWARD * flops, latent=False, backward=True)
            + machine.moved(4 * given + 3 * out + 2 * states),
            flops=flops,
            launches=8,
        ),
        builder.linear("out", "attention", tokens, inner, s.hidden, split="row"),
    ]
