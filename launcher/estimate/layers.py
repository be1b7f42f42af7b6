"""A transformer layer as the list of its kernels: sizes kept and moved, products, collectives, in execution order."""

from functools import lru_cache

from launcher.estimate import network
from launcher.estimate.machine import Machine
from launcher.estimate.operation import Layer, Operation, bound_by_host, checkpointed, recomputed, walk
from launcher.estimate.sizes import Sizes


class Builder:
    """Makes the operations of one job's layers on one machine; all tensors are counted for one rank."""

    def __init__(self, sizes: Sizes, machine: Machine) -> None:
        self.sizes, self.machine = sizes, machine
        self.tokens, self.local = sizes.tokens, sizes.local_tokens
        self.act = sizes.act
        # What a matrix product keeps of its input: one byte an element in FP8.
        self.gemm = 1 if sizes.fp8 else sizes.act
        self.wire = self.act

    # -- building blocks
    def norm(self, name: str, tokens: int, width: int, module: str, *, keeps: bool = True) -> Operation:
        """Return a normalisation over `width`: keeps its input and one fp32 figure a token."""
        size = tokens * width * self.act
        moved = self.machine.moved
        return Operation(
            name=name,
            module=module,
            keeps=size + 4 * tokens if keeps else 4 * tokens,
            forward_needs=2 * size,
            backward_needs=2 * size,
            forward=moved(2 * size),
            backward=moved(3 * size) + self.machine.latency,
        )

    def elementwise(self, name: str, module: str, size: float, *, needs: float = 0.0) -> Operation:
        """Return a kernel that keeps nothing and moves `size` bytes in each direction."""
        seconds = self.machine.moved(size)
        return Operation(name=name, module=module, forward=seconds, backward=seconds, forward_needs=needs)

    def linear(
        self,
        name: str,
        module: str,
        tokens: int,
        inner: int,
        outer: int,
        *,
        split: str = "none",
        shared: bool = False,
    ) -> Operation:
        """Return a matrix product of `tokens` x inner x outer on this rank.

        Args:
            split: `column` (output split over tp: input gathered), `row` (input split: output reduced) or `none`.
            shared: its input is kept by another operation already.
        """
        s, machine, act = self.sizes, self.machine, self.act
        flops = 2.0 * tokens * inner * outer
        given, made, weight = tokens * inner * act, tokens * outer * act, inner * outer * act
        forward = machine.linear(flops, given + made + weight)
        backward = machine.linear(flops, given + made + weight)
        backward += machine.linear(flops, given + made + 2 * inner * outer * 4, gradient=True)
        forward_comm = backward_comm = 0.0
        keeps = float(tokens * inner * self.gemm)
        needs, back = float(given + made), float(given + made)
        if s.tp > 1 and split != "none":
            forward_comm, backward_comm = self._tensor_parallel(given, made, split)
            if split == "column" and s.sp:
                keeps = keeps if s.fp8 else keeps / s.tp
                back += given
        if shared:
            keeps = 0.0
        return Operation(
            name=name,
            module=module,
            keeps=keeps,
            forward_needs=needs,
            backward_needs=back,
            forward=forward,
            backward=backward,
            forward_comm=forward_comm,
            backward_comm=backward_comm,
            flops=flops,
            weight=(outer, inner),
        )

    def _tensor_parallel(self, given: float, made: float, split: str) -> tuple[float, float]:
        """Return seconds of the collectives of a split product, forward and backward."""
        s, machine = self.sizes, self.machine
        hidden = 0.3 if s.overlap_tp else 1.0
        if s.sp:
            if split == "column":
                forward = network.all_gather(machine, given, s.tp, 1)
                backward = forward + network.reduce_scatter(machine, given, s.tp, 1)
            else:
                forward = network.reduce_scatter(machine, made, s.tp, 1)
                backward = network.all_gather(machine, made, s.tp, 1)
            return forward * hidden, backward * hidden
        if split == "column":
            return 0.0, network.all_reduce(machine, given, s.tp, 1) * hidden
        return network.all_reduce(machine, made, s.tp, 1) * hidden, 0.0

    # -- attention
    def attention(self) -> list[Operation]:
        """Return normalisation, projections, core attention, output and the residual addition."""
        s = self.sizes
        size = self.local * s.hidden * self.act
        separate = s.mla or s.separate_norm
        operations = [self.norm("separate input norm" if separate else "input norm", self.local, s.hidden, "norm")]
        operations += self._latent() if s.mla else self._grouped_query()
        operations.append(self.elementwise("residual", "residual", 3 * size))
        if s.dropout:
            operations.append(Operation(name="dropout", module="residual", keeps=self.local * s.hidden))
        return operations

    def _grouped_query(self) -> list[Operation]:
        s, act = self.sizes, self.act
        query = s.heads * s.head_dim // s.tp
        key = max(1, s.kv_heads // s.tp) * s.head_dim if s.kv_heads >= s.tp else s.kv_heads * s.head_dim // s.tp
        rotated = self.tokens * (query + key) * act
        operations = [self.linear("qkv", "attention", self.tokens, s.hidden, query + 2 * key, split="column")]
        if s.qk_norm:
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
        operations.append(self.elementwise("rope", "attention", 2 * rotated, needs=rotated))
        operations += self._core(query, key, key, s.heads // s.tp, s.head_dim, s.head_dim)
        operations.append(self.linear("out", "attention", self.tokens, query, s.hidden, split="row"))
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
            operations.append(self.linear("q up", "attention", self.tokens, s.q_rank, heads * head, split="column"))
        else:
            operations.append(self.linear("q", "attention", self.tokens, s.hidden, heads * head, split="column"))
        operations.append(self.linear("kv down", "attention", down, s.hidden, s.kv_rank + s.rope_dim, shared=True))
        operations.append(self.norm("kv norm", down, s.kv_rank, "attention"))
        up = heads * (s.nope_dim + s.v_dim)
        operations.append(self.linear("kv up", "attention", self.tokens, s.kv_rank, up, split="column"))
        rotated = self.tokens * heads * (2 * head + s.v_dim) * act  # query and key put together anew, value copied
        operations.append(self.elementwise("rope", "attention", 2 * rotated, needs=rotated))
        operations += self._core(heads * head, heads * head, heads * s.v_dim, heads, head, s.v_dim)
        operations.append(self.linear("out", "attention", self.tokens, heads * s.v_dim, s.hidden, split="row"))
        return operations

    def _core(self, query: int, key: int, value: int, heads: int, qk_dim: int, v_dim: int) -> list[Operation]:
        """Return core attention; widths of query, key and value are per rank, the sequence is split over cp."""
        s, machine, act = self.sizes, self.machine, self.act
        q, k, v = (self.tokens * width * act for width in (query, key, value))
        out = self.tokens * heads * v_dim * act
        length = float(s.seq)
        share = 1.0 - s.sparsity
        if s.window:
            share *= min(1.0, 2.0 * s.window / length)
        flops = 2.0 * s.mbs * heads * (qk_dim + v_dim) * length * length / s.cp * share
        mla = qk_dim != v_dim
        forward = machine.core(flops, latent=mla, backward=False)
        backward = machine.core(2.5 * flops, latent=mla, backward=True)
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
        elif s.swap_attention:
            statistics = 0.0
        kept = 0.0 if s.swap_attention else q + k + v + keeps
        core = Operation(
            name="core attention",
            module="core",
            keeps=kept,
            forward_needs=q + k + v + out + extra_forward,
            backward_needs=q + k + v + 2 * out + extra_backward,
            forward=forward,
            backward=backward,
            forward_comm=forward_comm,
            backward_comm=backward_comm,
            flops=flops,
        )
        softmax = Operation(name="softmax", module="core", keeps=statistics)
        return [core, softmax]

    def _context(
        self, q: float, k: float, v: float, out: float, forward: float, backward: float
    ) -> tuple[float, float, float, float, float]:
        """Return exposed seconds (forward, backward), bytes needed (forward, backward) and bytes kept for cp."""
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
        if ring > 1:
            gather = s.cp_algorithm == "allgather"
            moved = network.send(machine, k + v, s.tp * inside) * (ring - 1)
            comm_forward += max(0.0, moved - (0.0 if gather else forward))
            comm_backward += max(0.0, 2 * moved - (0.0 if gather else backward))
            more_forward += (k + v) * (ring if gather else 2) + 2 * out
            more_backward += 4 * (k + v) + 2 * out
        return comm_forward, comm_backward, more_forward, more_backward, keeps

    # -- feed-forward
    def mlp(self, ffn: int, *, prefix: str = "", module: str = "mlp", shared: bool = False) -> list[Operation]:
        """Return up projection, activation and down projection of a dense network."""
        s, act = self.sizes, self.act
        width = ffn // s.tp
        up = self.linear(
            f"{prefix}up", module, self.tokens, s.hidden, width * (2 if s.gated else 1), split="column", shared=shared
        )
        down = self.linear(f"{prefix}down", module, self.tokens, width, s.hidden, split="row")
        return [up, self._activation(f"{prefix}activation", module, self.tokens * width * act), down]

    def _activation(self, name: str, module: str, made: float) -> Operation:
        """Return the activation function that makes `made` bytes."""
        s, machine = self.sizes, self.machine
        given = made * (2 if s.gated else 1)
        keeps = given if s.fused_activation else given + made
        if s.fp8 and not s.gated:
            keeps = given
        return Operation(
            name=name,
            module=module,
            keeps=keeps,
            forward_needs=given + made,
            backward_needs=given + made,
            forward=machine.moved(given + made) * (1 if s.fused_activation else 2),
            backward=machine.moved(2 * given + made) * (1 if s.fused_activation else 2),
        )

    def feed_forward(self, moe: bool) -> list[Operation]:
        """Return normalisation, dense network or experts, and the residual addition."""
        s = self.sizes
        size = self.local * s.hidden * self.act
        separate = moe or s.separate_norm
        name, module = ("separate feed-forward norm", "norm") if separate else ("feed-forward norm", "mlp")
        operations = [self.norm(name, self.local, s.hidden, module)]
        if moe:
            from launcher.estimate.experts import experts

            operations += experts(self)
        else:
            operations += self.mlp(s.ffn)
        operations.append(self.elementwise("residual", "residual", 3 * size))
        if s.dropout:
            operations.append(Operation(name="dropout", module="residual", keeps=self.local * s.hidden))
        return operations


@lru_cache(maxsize=512)
def operations_of(sizes: Sizes, machine: Machine, moe: bool) -> tuple[Operation, ...]:
    """Return the kernels of one layer, without recomputation."""
    builder = Builder(sizes, machine)
    return tuple(builder.attention() + builder.feed_forward(moe))


@lru_cache(maxsize=512)
def layer(sizes: Sizes, machine: Machine, moe: bool, recompute: str) -> Layer:
    """Return what one layer costs.

    Args:
        recompute: `none`, `selective`, or `full` (the job's own group size for method uniform).
    """
    operations = list(operations_of(sizes, machine, moe))
    residual = float(sizes.local_tokens * sizes.hidden * sizes.act)
    if recompute == "full":
        saved = residual / sizes.tp if sizes.saved_over_tp and not sizes.sp else residual
        group = sizes.recompute_layers if sizes.recompute == "full" else 1
        return checkpointed(operations, residual, saved, group, machine.launch)
    if recompute == "selective":
        operations = recomputed(operations, sizes)
    return bound_by_host(walk(operations, residual), operations, machine.launch)
