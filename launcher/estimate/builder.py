"""Kernels of a layer: normalisations, element-wise kernels, matrix products, MLPs."""

from launcher.estimate import network
from launcher.estimate.machine import Machine
from launcher.estimate.operation import Operation
from launcher.estimate.quantised import quantised
from launcher.estimate.sizes import Sizes
from launcher.job.quantisation import Module

# Kernels of a normalisation that is composed of element-wise ones: square, mean, scale, weight; and their derivatives.
_NORM_FORWARD, _NORM_BACKWARD = 4, 8


class Builder:
    """Builds the operations of one job on one machine; all tensor sizes are per rank."""

    def __init__(self, sizes: Sizes, machine: Machine) -> None:
        self.sizes, self.machine = sizes, machine
        self.tokens, self.local = sizes.tokens, sizes.local_tokens
        self.act = sizes.act
        # Bytes per element that a matrix product keeps of its input: one in FP8, 0.5625 in NVFP4.
        self.gemm = sizes.gemm_bytes if sizes.fp8 else sizes.act

    # -- building blocks
    def norm(self, name: str, tokens: int, width: int, module: str, *, keeps: bool = True) -> Operation:
        """Return a normalisation over `width`: keeps its input and one fp32 value per token."""
        size = tokens * width * self.act
        moved = self.machine.moved
        if self.sizes.composed_norm:
            return self.composed_norm(name, module, size, 4.0 * tokens)
        return Operation(
            name=name,
            module=module,
            keeps=size + 4 * tokens if keeps else 4 * tokens,
            forward_needs=2 * size,
            backward_needs=2 * size,
            forward=moved(2 * size),
            backward=moved(3 * size) + self.machine.latency,
        )

    def composed_norm(self, name: str, module: str, size: float, statistics: float) -> Operation:
        """Return an RMSNorm that torch composes of element-wise kernels: it also keeps the input times its scale.

        Source: rms_norm_composite, torch 2.9 aten/src/ATen/native/layer_norm.cpp.

        Args:
            size: bytes of the input.
            statistics: bytes of the scale, one value for each row.
        """
        moved = self.machine.moved
        return Operation(
            name=name,
            module=module,
            keeps=2 * size + statistics,
            forward_needs=3 * size,
            backward_needs=3 * size,
            forward=_NORM_FORWARD * moved(1.75 * size),
            backward=_NORM_BACKWARD * moved(2 * size),
        )

    def elementwise(self, name: str, module: str, size: float, *, needs: float = 0.0) -> Operation:
        """Return a kernel that keeps nothing and moves `size` bytes in each direction."""
        seconds = self.machine.moved(size)
        return Operation(name=name, module=module, forward=seconds, backward=seconds, forward_needs=needs)

    def written(self, weights: int) -> int:
        """Return the bytes that a product moves for the gradient of weights: fp32 read and written where fused."""
        return weights * (self.act if self.sizes.bucket_copy else 8)

    def copied(self, weights: int) -> float:
        """Return the seconds in which the gradient of weights is copied to where it is reduced; 0 where it is not."""
        return self.machine.moved(weights * self.sizes.bucket_copy)

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
        normed: bool = False,
        original: bool = False,
        bias: bool = False,
    ) -> Operation:
        """Return a matrix product of `tokens` x inner x outer on this rank.

        Args:
            split: `column` (output split over tp: input gathered), `row` (input split: output reduced) or `none`.
            shared: another operation already keeps its input.
            normed: the same module computes the norm before it (Transformer Engine's LayerNormLinear).
            original: it keeps its 16-bit input in recipes that can quantise it again (`Recipe.keeps_original`).
            bias: it adds a bias.
        """
        s, machine, act = self.sizes, self.machine, self.act
        flops = 2.0 * tokens * inner * outer
        given, made, weight = tokens * inner * act, tokens * outer * act, inner * outer * act
        plain = not s.fp8
        forward = machine.linear(flops, given + made + weight, plain=plain)
        backward = machine.linear(flops, given + made + weight, plain=plain)
        backward += machine.linear(flops, given + made + self.written(inner * outer), gradient=True, plain=plain)
        backward += self.copied(inner * outer)
        original = original and s.quantisation is not None and s.quantisation.keeps_original
        module_kind: Module = "LayerNormLinear" if normed else "Linear"
        own = quantised(
            *(s, machine, module_kind, tokens * inner, tokens * outer), split=split, original=original, bias=bias
        )
        forward_comm, backward_comm = own.forward_comm, own.backward_comm
        keeps = float(given if original else tokens * inner * self.gemm)
        needs, back = float(given + made), float(given + made)
        if s.tp > 1 and split != "none":
            exposed = self._tensor_parallel(given, made, split)
            forward_comm, backward_comm = forward_comm + exposed[0], backward_comm + exposed[1]
            if split == "column" and s.sp:
                keeps /= s.tp  # gathered again in the backward, in FP8 too (TE 2.8 layernorm_linear.py, ln_out)
                back += given
        if shared and (original or not s.fp8):  # otherwise each product quantises its own copy
            keeps = 0.0
        return Operation(
            name=name,
            module=module,
            keeps=keeps,
            forward_needs=needs,
            backward_needs=back,
            forward=forward + own.forward,
            backward=backward + own.backward,
            forward_comm=forward_comm,
            backward_comm=backward_comm,
            again=0.0 if original else own.again,
            flops=flops,
            weight=(outer, inner),
        )

    def _tensor_parallel(self, given: float, made: float, split: str) -> tuple[float, float]:
        """Return seconds of the collectives of a split product, forward and backward."""
        s, machine = self.sizes, self.machine
        if s.sp:
            # What is gathered is quantised: by row in forward, by column for the weight's gradient, both for gradients
            # whose copies differ (Transformer Engine 2.20 docs, "Quantized all-gather").
            one = self.gemm / self.act
            both = 2 * one if s.quantisation is not None and s.quantisation.by_block else one
            if split == "column":
                forward = network.all_gather(machine, given * one, s.tp, 1)
                backward = forward + network.reduce_scatter(machine, given, s.tp, 1)
            else:
                forward = network.reduce_scatter(machine, made, s.tp, 1)
                backward = network.all_gather(machine, made * both, s.tp, 1)
            return forward * s.exposed_tp, backward * s.exposed_tp
        if split == "column":
            return 0.0, network.all_reduce(machine, given, s.tp, 1) * s.exposed_tp
        return network.all_reduce(machine, made, s.tp, 1) * s.exposed_tp, 0.0

    # -- feed-forward
    def mlp(self, ffn: int, *, prefix: str = "", module: str = "mlp", shared: bool = False) -> list[Operation]:
        """Return up projection, activation and down projection of an MLP."""
        s, act = self.sizes, self.act
        width = ffn // s.tp
        up = self.linear(
            *(f"{prefix}up", module, self.tokens, s.hidden, width * (2 if s.gated else 1)),
            split="column",
            shared=shared,
            normed=not prefix,
            original=bool(prefix),
        )
        down = self.linear(f"{prefix}down", module, self.tokens, width, s.hidden, split="row")
        return [up, self._activation(f"{prefix}activation", module, self.tokens * width * act), down]

    def _activation(self, name: str, module: str, made: float) -> Operation:
        """Return the activation function with an output of `made` bytes."""
        s, machine = self.sizes, self.machine
        given = made * (2 if s.gated else 1)
        keeps = given if s.fused_activation else given + made
        if s.local and s.gated and not s.fused_activation:
            keeps += (
                made  # the linear half plus an offset, also of zero (megatron-core 0.16.1 mlp.py, glu_linear_offset)
            )
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
