"""A transformer layer as the list of its kernels: sizes kept and moved, products, collectives, in execution order."""

from dataclasses import replace
from functools import lru_cache

from launcher.estimate import network
from launcher.estimate.builder import Builder
from launcher.estimate.experts import experts
from launcher.estimate.graphs import captured, in_graph, pool, replayed
from launcher.estimate.kinds import Kind
from launcher.estimate.machine import Machine
from launcher.estimate.mixers import indexer, linear_attention, mamba
from launcher.estimate.offload import offloaded, operations_on_host, with_copies
from launcher.estimate.operation import (
    Layer,
    Operation,
    bound_by_host,
    checkpointed,
    overlapped_with_micro_batch,
    read_by_backward,
    recomputed,
    walk,
)
from launcher.estimate.sizes import Sizes, plain_sizes

# Queries of a tile of flash attention: 128 for heads of 128 (flash-attention 07602ad hopper/tile_size.h; 192 for heads
# of 64); those of cuDNN's kernels are not published, counted as the same (assumed).
_TILE = 128
# Kernels of the rotation of query and key in Megatron-core's own form (0.16.1 rope_utils.py).
_ROPE_KERNELS = 12


class LayerBuilder(Builder):
    """Builds the operations of one job's layers."""

    def __init__(self, sizes: Sizes, machine: Machine) -> None:
        super().__init__(sizes, machine)
        # Keys that a query attends to, and those that an indexer selects; None: all.
        self.window = sizes.window
        self.chosen: int | None = None

    # -- attention
    def attention(self, mixer: str) -> list[Operation]:
        """Return normalisation, projections, token mixer, output projection and the residual addition."""
        s = self.sizes
        size = self.local * s.hidden * self.act
        separate = s.mla or s.separate_norm
        operations = [self.norm("separate input norm" if separate else "input norm", self.local, s.hidden, "norm")]
        operations += self._mixed(mixer)
        if s.output_norms:
            operations.append(self.norm("attention output norm", self.local, s.hidden, "norm"))
        operations.append(self.elementwise("residual", "residual", 3 * size))
        if s.dropout:
            operations.append(Operation(name="dropout", module="residual", keeps=self.local * s.hidden))
        return operations

    def _mixed(self, mixer: str) -> list[Operation]:
        if mixer == "linear":
            return linear_attention(self)
        if mixer == "mamba":
            return mamba(self)
        self.window = None if mixer == "unwindowed" else self.sizes.window
        self.chosen = self.sizes.variants.topk if mixer in ("sparse", "shared") else None
        own = indexer(self) if mixer == "sparse" else []
        return own + (self._latent() if self.sizes.mla else self._grouped_query())

    def _grouped_query(self) -> list[Operation]:
        s, act = self.sizes, self.act
        query = s.heads * s.head_dim // s.tp
        key = max(1, s.kv_heads // s.tp) * s.head_dim if s.kv_heads >= s.tp else s.kv_heads * s.head_dim // s.tp
        rotated = self.tokens * (query + key) * act
        gate = query if s.variants.gate else 0
        operations = [
            self.linear(
                *("qkv", "attention", self.tokens, s.hidden, query + gate + 2 * key),
                split="column",
                normed=not s.separate_norm,
                bias=s.qkv_bias,
            )
        ]
        if s.qk_norm and s.composed_norm:
            statistics = 4.0 * self.tokens * (query + key) / s.head_dim
            normed = self.composed_norm("qk norm", "attention", rotated, statistics)
            # Query and key are parts of the product's output, which also holds the value.
            operations.append(replace(normed, keeps=normed.keeps + self.tokens * key * act))
        elif s.qk_norm:
            moved = self.machine.moved
            operations.append(
                Operation(
                    name="qk norm",
                    module="attention",
                    keeps=rotated,
                    forward_needs=rotated,
                    forward=2 * moved(rotated),
                    backward=2 * moved(1.5 * rotated),
                )
            )
        rope = self.elementwise("rope", "attention", 2 * rotated, needs=rotated)
        if s.local and not s.fused_rope:
            # Halves are negated and concatenated; two products and a sum, of query and of key.
            seconds = _ROPE_KERNELS * self.machine.moved(rotated)
            rope = replace(
                rope, forward=seconds, backward=seconds, forward_needs=3 * rotated, backward_needs=3 * rotated
            )
        elif s.rope_bytes:
            seconds = self.machine.moved(s.rope_bytes * self.tokens * (query + key))
            rope = replace(rope, forward=seconds, backward=seconds)
        operations.append(rope)
        operations += self._core(query, key, key, s.heads // s.tp, s.head_dim, s.head_dim)
        if gate:
            made = self.tokens * query * act
            gated = self.elementwise("output gate", "attention", 3 * made, needs=made)
            operations.append(replace(gated, keeps=2.0 * made))
        operations.append(self.linear("out", "attention", self.tokens, query, s.hidden, split="row", original=True))
        return operations

    def _latent(self) -> list[Operation]:
        s, act = self.sizes, self.act
        heads = s.heads // s.tp
        head = s.nope_dim + s.rope_dim
        down = self.local if s.duplicated_mla else self.tokens
        operations: list[Operation] = []
        if s.q_rank is not None:
            operations.append(self.linear("q down", "attention", down, s.hidden, s.q_rank))
            operations.append(self.norm("q norm", down, s.q_rank, "attention", keeps=True))
            operations.append(
                self.linear("q up", "attention", self.tokens, s.q_rank, heads * head, split="column", normed=True)
            )
        else:
            operations.append(self.linear("q", "attention", self.tokens, s.hidden, heads * head, split="column"))
        operations.append(self.linear("kv down", "attention", down, s.hidden, s.kv_rank + s.rope_dim, shared=True))
        operations.append(self.norm("kv norm", down, s.kv_rank, "attention"))
        up = heads * (s.nope_dim + s.v_dim)
        operations.append(self.linear("kv up", "attention", self.tokens, s.kv_rank, up, split="column", normed=True))
        rotated = self.tokens * heads * (2 * head + s.v_dim) * act  # query and key concatenated again, value copied
        rope = self.elementwise("mla rope", "attention", 2 * rotated, needs=rotated)
        # Unfused: halves of query and key are split, rotated and concatenated.
        operations.append(rope if s.fused_rope else replace(rope, launches=30))
        operations += self._core(heads * head, heads * head, heads * s.v_dim, heads, head, s.v_dim)
        operations.append(
            self.linear("out", "attention", self.tokens, heads * s.v_dim, s.hidden, split="row", original=True)
        )
        return operations

    def _core(self, query: int, key: int, value: int, heads: int, qk_dim: int, v_dim: int) -> list[Operation]:
        """Return core attention; widths of query, key and value are per rank, the sequence is split over cp."""
        s, machine, act = self.sizes, self.machine, self.act
        q, k, v = (self.tokens * width * act for width in (query, key, value))
        out = self.tokens * heads * v_dim * act
        length = float(s.seq)
        share = 1.0 - s.sparsity
        reach = min(self.window or s.seq, self.chosen or s.seq)
        if reach < s.seq:
            # Kernels compute whole tiles: a window also costs the part of a tile that it does not cover.
            tile = _TILE if self.window and reach == self.window else 0
            share *= min(1.0, 2.0 * (reach + tile) / length)
        flops = 2.0 * s.mbs * heads * (qk_dim + v_dim) * length * length / s.cp * share
        mla = qk_dim != v_dim
        forward = machine.core(flops, latent=mla, backward=False)
        backward = machine.core(2.5 * flops, latent=mla, backward=True)
        if share < 1.0:
            forward = max(forward, machine.moved(q + k + v + out))
            backward = max(backward, machine.moved(2 * (q + k + v + out)))
        forward_comm, backward_comm, extra_forward, extra_backward, keeps = self._context(
            q, k, v, out, forward, backward
        )
        statistics = (64.0 if s.npu else 4.0) * self.tokens * heads  # npu_fusion_attention keeps 2 x 8 fp32
        if not s.flash:
            scores = float(s.mbs) * heads * s.seq * s.seq / s.cp
            # The softmax; with dropout also its mask and its output.
            statistics = scores * act + (scores * (1 + act) if s.dropout else 0)
            extra_forward += scores * act
            extra_backward += 2 * scores * act
            forward += machine.moved(4 * scores * act)
            backward += machine.moved(6 * scores * act)
        if s.local:
            # Keys and values are repeated for the queries that share them; the output is copied into its own order.
            repeated = 2.0 * (q - k) if k < q and not s.mla else 0.0
            keeps += repeated + (out if s.flash else 0.0)
            extra_forward += repeated
            extra_backward += repeated
            copies = machine.moved(repeated) + machine.moved(2 * out)
            forward += copies
            backward += copies
        if s.quantisation is not None and not s.quantisation.keeps_original:
            keeps += out  # in addition to the FP8 copy that the output projection keeps
        core = Operation(
            name="core attention",
            module="core",
            keeps=q + k + v + keeps,
            forward_needs=q + k + v + out + extra_forward,
            backward_needs=q + k + v + 2 * out + extra_backward,
            forward=forward,
            backward=backward,
            forward_comm=forward_comm,
            backward_comm=backward_comm,
            flops=flops,
        )
        softmax = Operation(name="softmax", module="core", keeps=statistics, launches=0)
        return [core, softmax]

    def _context(
        self, q: float, k: float, v: float, out: float, forward: float, backward: float
    ) -> tuple[float, float, float, float, float]:
        """Return exposed seconds (forward, backward), bytes needed (forward, backward) and bytes kept for cp.

        The ring keeps the inputs and outputs of every step until its forward ends (Transformer Engine 2.11
        context_parallel.py, p2p_comm_buffers, out_per_step); all-to-all and all-gather keep a separate output.
        """
        s, machine = self.sizes, self.machine
        if s.cp == 1:
            return 0.0, 0.0, 0.0, 0.0, 0.0
        inside = s.cp if s.cp_algorithm == "ulysses" else (s.ulysses if "hybrid" in s.cp_algorithm else 1)
        ring = s.cp // inside
        comm_forward = comm_backward = more_forward = more_backward = keeps = 0.0
        if inside > 1:
            seconds = sum(network.all_to_all(machine, size, inside, s.tp) for size in (q, k, v, out))
            copies = machine.moved(2 * (q + k + v + out))
            comm_forward += seconds + copies
            comm_backward += seconds + copies
            keeps += out
            given = q + k + v
            more_forward += max(4 * given, 3 * given + out, 2 * given + 4 * out) - given - out
            more_backward += max(5 * out, 2 * given + 3 * out + q + k, 3 * out + 4 * given) - given - 3 * out
        if ring > 1 and s.cp_algorithm == "allgather":
            moved = network.all_gather(machine, ring * (k + v), ring, s.tp * inside)
            comm_forward += moved
            comm_backward += 2 * moved
            more_forward += 2 * ring * (k + v) + out
            more_backward += 3 * ring * (k + v)
            keeps += out
        elif ring > 1:
            hidden, steps = (ring - 1) / ring, ring - 1
            moved = network.send(machine, k + v, s.tp * inside) * steps
            each = machine.attention_overhead * steps
            comm_forward += max(0.0, moved - hidden * forward) + each + machine.moved(3 * out) * ring
            comm_backward += max(0.0, 2 * moved - hidden * backward) + each + machine.moved(3 * (q + k + v)) * ring
            more_forward += ring * (k + v + out)
            more_backward += 4 * (k + v) + q
        return comm_forward, comm_backward, more_forward, more_backward, keeps

    def feed_forward(self, moe: bool) -> list[Operation]:
        """Return normalisation, MLP or experts, and the residual addition."""
        s = self.sizes
        size = self.local * s.hidden * self.act
        separate = moe or s.separate_norm
        name, module = ("separate feed-forward norm", "norm") if separate else ("feed-forward norm", "mlp")
        operations = [self.norm(name, self.local, s.hidden, module)]
        if moe:
            operations += experts(self)
        else:
            operations += self.mlp(s.ffn)
        if s.output_norms:
            operations.append(self.norm("feed-forward output norm", self.local, s.hidden, "norm"))
        operations.append(self.elementwise("residual", "residual", 3 * size))
        if s.dropout:
            operations.append(Operation(name="dropout", module="residual", keeps=self.local * s.hidden))
        return operations


@lru_cache(maxsize=512)
def operations_of(sizes: Sizes, machine: Machine, kind: Kind) -> tuple[Operation, ...]:
    """Return the kernels of one layer, without recomputation."""
    operations = _operations(sizes, machine, kind)
    places = _captured(sizes, operations)
    if not places:
        return tuple(operations)
    within = _operations(sizes, in_graph(machine), kind)
    return tuple(within[place] if place in places else op for place, op in enumerate(operations))


def _operations(sizes: Sizes, machine: Machine, kind: Kind) -> list[Operation]:
    builder = LayerBuilder(sizes, machine)
    mixer = [] if kind.mixer == "none" else builder.attention(kind.mixer)
    return mixer + ([] if kind.feed == "none" else builder.feed_forward(kind.moe))


def _captured(sizes: Sizes, operations: list[Operation]) -> list[int]:
    return captured(sizes.captured, operations, shared_overlaps=sizes.overlap_shared) if sizes.captured else []


@lru_cache(maxsize=512)
def layer(sizes: Sizes, machine: Machine, kind: Kind, recompute: str, offload: bool = False) -> Layer:
    """Return what one layer costs.

    Args:
        recompute: `none`, `selective`, or `full` (the job's own group size for method uniform).
        offload: everything that it keeps goes to the host (offload.activation_layers).
    """
    operations = list(operations_of(plain_sizes(sizes), machine, kind))
    copied = 0.0
    if offload or sizes.offload_modules:
        names = operations_on_host(sizes.offload_modules, operations, layer=offload)
        operations, copied = offloaded(operations, names, sizes.offload_smallest)
    residual = float(sizes.local_tokens * sizes.hidden * sizes.act)
    if recompute == "full":
        saved = residual / sizes.tp if sizes.saved_over_tp and not sizes.sp else residual
        group = sizes.recompute_layers if sizes.recompute == "full" else 1
        # The gate of a shared expert, in the layers that have one, is multiplied by what the last product makes.
        gated = kind.moe and sizes.shared_gate
        repeated = operations if gated or sizes.repeats_unread else read_by_backward(operations)
        return checkpointed(operations, repeated, residual, saved, group, machine.launch)
    if recompute == "selective":
        operations = recomputed(operations, sizes)
    places = _captured(sizes, operations)
    started = replayed(operations, places) if places else operations
    made = bound_by_host(walk(operations, residual), started, machine.launch)
    if sizes.overlap_batch:
        made = overlapped_with_micro_batch(made, operations)
    if not copied:
        return made
    # Transformer Engine spreads the copies of whole layers over those that stay (cpu_offload.py, layer_window_map).
    window = max(1, sizes.layers // sizes.offload_layers) if offload else 1
    return with_copies(made, copied / machine.host, window)


@lru_cache(maxsize=512)
def graph_pool(sizes: Sizes, machine: Machine, kind: Kind) -> float:
    """Return the bytes that captured parts of a layer reserve beside what is kept: those they need for a moment."""
    operations = list(operations_of(plain_sizes(sizes), machine, kind))
    return pool(operations, _captured(sizes, operations))
