"""Parameter counts, equal to what megatron-core's GPTModel allocates with the same arguments."""

from collections.abc import Iterable
from functools import lru_cache

from launcher.estimate.kinds import COMPRESSED, Kind, kind_of
from launcher.estimate.placement import Chunk
from launcher.estimate.sizes import Sizes
from launcher.records import record


@record()
class Counts:
    """Numbers of parameters.

    Attributes:
        dense: on one rank, sharded or replicated over data parallel ranks.
        expert: on one rank, of routed experts, which have their own data parallel group.
        total: of the whole module, each weight once.
        active: of `total`, those that one token uses.
        matmul: weights of `dense` and `expert` on a rank that FP8 keeps in one byte.
    """

    dense: int = 0
    expert: int = 0
    total: int = 0
    active: int = 0
    matmul: int = 0

    @property
    def rank(self) -> int:
        """Parameters on one rank."""
        return self.dense + self.expert

    @staticmethod
    def sum(counts: "Iterable[Counts]") -> "Counts":
        """Return the sum of all."""
        dense = expert = total = active = matmul = 0
        for each in counts:
            dense += each.dense
            expert += each.expert
            total += each.total
            active += each.active
            matmul += each.matmul
        return Counts(dense=dense, expert=expert, total=total, active=active, matmul=matmul)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts.sum((self, other))

    def __mul__(self, times: int) -> "Counts":
        return Counts(
            dense=self.dense * times,
            expert=self.expert * times,
            total=self.total * times,
            active=self.active * times,
            matmul=self.matmul * times,
        )


def _whole(number: int) -> Counts:
    return Counts(dense=number, total=number, active=number)


def _split(number: int, parts: int) -> Counts:
    return Counts(dense=number // parts, total=number, active=number, matmul=number // parts)


def norm_parameters(sizes: Sizes, width: int) -> int:
    """Return the parameters of one normalisation: a scale, and a shift for LayerNorm."""
    return width * (2 if sizes.layer_norm else 1)


def _mixer(s: Sizes, mixer: str) -> Counts:
    if mixer == "linear":
        return _linear_attention(s)
    if mixer == "mamba":
        return _mamba(s)
    if mixer in COMPRESSED.values():
        return _compressed_attention(s, mixer)
    counts = _latent_attention(s) if s.mla else _attention(s)
    if s.variants.sinks:
        counts += Counts(dense=s.heads // s.tp, total=s.heads, active=s.heads)
    return counts + _indexer(s) if mixer == "sparse" else counts


def _linear_attention(s: Sizes) -> Counts:
    """Count a gated delta net: GatedDeltaNet.__init__, megatron-core 0.16.1 ssm/gated_delta_net.py:124."""
    v = s.variants
    key, value = v.linear_widths
    counts = _split(s.hidden * (2 * key + 2 * value + 2 * v.value_heads), s.tp) + _split(value * s.hidden, s.tp)
    convolution = _split((2 * key + value) * v.conv, s.tp)
    return counts + convolution + _split(2 * v.value_heads, s.tp) + _whole(norm_parameters(s, v.value_dim))


def _indexer(s: Sizes) -> Counts:
    """Count an indexer, which is not sharded: DSAIndexer.__init__, megatron-core 0.16.1 dsa.py:410."""
    v = s.variants
    query = (s.q_rank or s.hidden) * v.index_heads * v.index_dim
    return _whole(query + s.hidden * (v.index_dim + v.index_heads) + 2 * v.index_dim)


def _compressed_attention(s: Sizes, mixer: str) -> Counts:
    """Count DeepSeek-V4's attention: one latent for all heads, grouped output, compressor, indexer.

    Source: modeling_deepseek_v4.py @5.24; DSv4HybridSelfAttention, megatron-core dev d48bd6be
    transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py, csa.py (Compressor is replicated).
    """
    # Keys are the values, too, so that --v-head-dim of MindSpeed-LLM is not read (deepseek4/csa.py:103 @26.1.0).
    v, head, rank = s.variants, s.nope_dim + s.rope_dim, s.q_rank or 0
    query, out = s.heads * head, v.out_groups * v.out_rank
    counts = _whole(s.hidden * (rank + head) + rank + head) + _split(rank * query, s.tp)
    counts += _split(query // v.out_groups * out, s.tp) + _split(out * s.hidden, s.tp)
    counts += Counts(dense=s.heads // s.tp, total=s.heads, active=s.heads)
    if mixer == "hca":
        counts += _compressor(s.hidden, head, 128)
    if mixer == "csa":
        counts += _compressor(s.hidden, head, 4) + _compressor(s.hidden, v.index_dim, 4)
        counts += _whole(rank * v.index_heads * v.index_dim + s.hidden * v.index_heads)
    return counts


def _compressor(hidden: int, head: int, ratio: int) -> Counts:
    """Count keys and gates, biases of the positions, and a norm; windows of 4 overlap, which takes two of each."""
    width = 2 * head if ratio == 4 else head
    return _whole(2 * hidden * width + ratio * width + head)


def _hyper_connection(s: Sizes) -> Counts:
    """Count the mixing of residual streams before and after attention or feed-forward network."""
    n = s.variants.streams
    return _whole((2 + n) * n * (n * s.hidden + 1) + 3) if n else Counts()


def _hyper_head(s: Sizes) -> Counts:
    """Count the collapse of residual streams before the last norm."""
    n = s.variants.streams
    return _whole(n * (n * s.hidden + 1) + 1) if n else Counts()


def _mamba(s: Sizes) -> Counts:
    """Count a Mamba-2 mixer: MambaMixer.__init__, megatron-core 0.16.1 ssm/mamba_mixer.py:125."""
    v = s.variants
    mixed = v.inner + 2 * v.groups * v.state
    counts = _split(s.hidden * (v.inner + mixed + v.mamba_heads), s.tp) + _split(v.inner * s.hidden, s.tp)
    return counts + _split(mixed * (v.mamba_conv + 1) + 3 * v.mamba_heads + v.inner, s.tp)


def _attention(s: Sizes) -> Counts:
    query, key_value = s.heads * s.head_dim, 2 * s.kv_heads * s.head_dim
    gated = query if s.variants.gate else 0
    counts = _split(s.hidden * (query + gated + key_value), s.tp) + _split(query * s.hidden, s.tp)
    if s.qkv_bias:
        counts += _split(query + gated + key_value, s.tp)
    if s.output_bias:
        counts += _whole(s.hidden)
    if s.wide_qk_norm:
        counts += _whole(norm_parameters(s, query) + norm_parameters(s, key_value // 2))
    elif s.qk_norm:
        counts += _whole(2 * norm_parameters(s, s.head_dim))
    return counts


def _latent_attention(s: Sizes) -> Counts:
    """Count MLA: the down projections are replicated over tp with Transformer Engine, split with local layers."""
    down_parts = 1 if s.duplicated_mla else s.tp
    head = s.nope_dim + s.rope_dim
    if s.q_rank is not None:
        counts = _split(s.hidden * s.q_rank, down_parts) + _split(s.q_rank * s.heads * head, s.tp)
        if s.qk_norm:
            counts += _whole(norm_parameters(s, s.q_rank))
    else:
        counts = _split(s.hidden * s.heads * head, s.tp)
    counts += _split(s.hidden * (s.kv_rank + s.rope_dim), down_parts)
    counts += _split(s.kv_rank * s.heads * (s.nope_dim + s.v_dim), s.tp)
    if s.qk_norm:
        counts += _whole(norm_parameters(s, s.kv_rank))
    counts += _split(s.heads * s.v_dim * s.hidden, s.tp)
    if s.output_bias:
        counts += _whole(s.hidden)
    return counts


def _mlp(s: Sizes, ffn: int) -> Counts:
    width = ffn * (2 if s.gated else 1)
    counts = _split(s.hidden * width, s.tp) + _split(ffn * s.hidden, s.tp)
    if s.linear_bias:
        counts += _split(width, s.tp) + _whole(s.hidden)
    return counts


def _moe(s: Sizes) -> Counts:
    one = s.hidden * s.moe_ffn * (3 if s.gated else 2)
    local = s.experts // s.ep
    share = local * one // s.etp
    total, active = s.experts * one, s.topk * one
    if s.linear_bias:
        bias = s.moe_ffn * (2 if s.gated else 1)
        share += local * (bias // s.etp + s.hidden)
        total += s.experts * (bias + s.hidden)
        active += s.topk * (bias + s.hidden)
    router = s.experts * (s.hidden + int(s.linear_bias))
    counts = Counts(expert=share, total=total, active=active, matmul=share) + _whole(router)
    if s.shared_ffn:
        counts += _mlp(s, s.shared_ffn)
        if s.shared_gate:
            counts += _whole(s.hidden)
    return counts


@lru_cache(maxsize=512)
def layer_parameters(sizes: Sizes, kind: Kind) -> Counts:
    """Return the parameters of one layer: token mixer, MLP or experts, and a normalisation before (and after) each."""
    counts = Counts()
    norm = _whole(norm_parameters(sizes, sizes.hidden) * (2 if sizes.output_norms else 1)) + _hyper_connection(sizes)
    if kind.mixer != "none":
        counts += _mixer(sizes, kind.mixer) + norm
    if kind.feed != "none":
        counts += (_moe(sizes) if kind.moe else _mlp(sizes, sizes.ffn)) + norm
    return counts


def embedding_parameters(sizes: Sizes) -> Counts:
    """Return the parameters of the token embedding, with learned positions where the model has them."""
    counts = Counts(
        dense=sizes.vocab * sizes.hidden // sizes.tp,
        total=sizes.vocab * sizes.hidden,
        active=sizes.vocab * sizes.hidden,
    )
    return counts + _whole(sizes.positions * sizes.hidden) if sizes.learned_positions else counts


@lru_cache(maxsize=512)
def mtp_parameters(sizes: Sizes) -> Counts:
    """Return the parameters of one multi-token-prediction layer: two norms, a projection, a layer, a norm."""
    kind = sizes.kind(sizes.layers - 1)
    if sizes.variants.ratios:
        kind = kind_of("sliding", kind.feed)
    projection = _split(2 * sizes.hidden * sizes.hidden, sizes.tp)
    norms = _whole(3 * norm_parameters(sizes, sizes.hidden))
    return layer_parameters(sizes, kind) + projection + norms + _hyper_head(sizes)


def chunk_parameters(sizes: Sizes, chunk: Chunk) -> Counts:
    """Return the parameters of one model chunk.

    The last stage holds a copy of the embedding where it is tied to the output layer or where MTP layers need it;
    the copy counts on the rank, not in the total.
    """
    kinds = dict.fromkeys(chunk.kinds)
    counts = Counts.sum(layer_parameters(sizes, kind) * chunk.kinds.count(kind) for kind in kinds)
    embedding = embedding_parameters(sizes)
    if chunk.embedding:
        counts += embedding
    elif chunk.mtp:
        counts += Counts(dense=embedding.dense)
    if chunk.mtp:
        counts += mtp_parameters(sizes) * chunk.mtp
    if chunk.norm:
        counts += _whole(norm_parameters(sizes, sizes.hidden)) + _hyper_head(sizes)
    if chunk.head:
        counts += _head(sizes, chunk)
    return counts


def _head(sizes: Sizes, chunk: Chunk) -> Counts:
    weight = sizes.vocab * sizes.hidden
    if not sizes.tied:
        return Counts(dense=weight // sizes.tp, total=weight, active=weight)
    if chunk.embedding:
        return Counts()
    return Counts(dense=weight // sizes.tp)
