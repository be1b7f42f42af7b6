"""Kernels of a mixture-of-experts layer: routing, dispatch, grouped GEMM, combine, shared experts."""

from dataclasses import replace

from launcher.estimate import network
from launcher.estimate.builder import Builder
from launcher.estimate.operation import Operation
from launcher.estimate.quantised import quantised

# Kernels that the host starts in eager mode (megatron-core 0.16.1 router.py, token_dispatcher.py, experts.py).
_ROUTER, _FUSED_ROUTER = 40, 12
_DISPATCH, _FUSED_DISPATCH = 20, 6
_COMBINE, _FUSED_COMBINE = 12, 4
_GROUPED = 10
# Small kernels of scores, top-k, balancing loss, token counts, each way (megatron-core 0.16.1 router.py, moe_utils.py).
_ROUTING_KERNELS = 10
# Fused: scores and top-k, scores of the balancing loss, that loss; token counts, their cast (router.py, moe_utils.py,
# fused_topk_with_score_function, fused_compute_score_for_moe_aux_loss, fused_moe_aux_loss).
_FUSED_ROUTING_KERNELS = 5


def routed_tokens(builder: Builder) -> float:
    """Return the tokens that the experts of the busiest rank receive."""
    s = builder.sizes
    return float(builder.local * s.topk * s.etp) * s.received


def copies(builder: Builder) -> float:
    """Return the copies sent per token: to each of its experts, to each device that holds some of them, or to all."""
    s = builder.sizes
    if s.dispatcher == "allgather":
        return float(s.ep * s.etp)
    return _reached(s.ep, s.topk) if s.flex else s.topk * (s.capacity or 1.0)


def _reached(places: float, visits: int) -> float:
    """Return the expected number of `places` that hold at least one of `visits` uniformly distributed experts."""
    return places * (1 - (1 - 1 / places) ** visits)


def experts(builder: Builder) -> list[Operation]:
    """Return the operations of the experts of one layer, in the order of Megatron-core's all-to-all dispatcher."""
    s = builder.sizes
    operations = [_router(builder)]
    # With overlap the gathered input is a separate tensor (megatron-core 0.16.1 shared_experts.py, cached_fc1_input).
    gathered = s.overlap_shared and s.sp
    shared = builder.mlp(s.shared_ffn, prefix="shared ", module="shared", shared=not gathered) if s.shared_ffn else []
    if shared and gathered:
        wide = s.quantisation is None or s.quantisation.keeps_original
        kept = builder.act if wide else builder.gemm
        shared[0] = replace(shared[0], keeps=float(builder.tokens * s.hidden * kept))
    operations += _dispatch(builder)
    operations += _grouped(builder)
    operations.append(_combine(builder))
    return operations + shared


def _router(builder: Builder) -> Operation:
    """Return gating: a product of hidden x experts, scores and top-k in fp32."""
    s, machine, tokens = builder.sizes, builder.machine, builder.local
    small = (_FUSED_ROUTING_KERNELS if s.fused_router else _ROUTING_KERNELS) * machine.latency
    flops = 2.0 * tokens * s.hidden * s.experts
    given, scores = tokens * s.hidden * builder.act, 4.0 * tokens * s.experts
    return Operation(
        name="router",
        module="moe",
        keeps=given + 2 * scores,
        forward_needs=given + 3 * scores + 4.0 * s.hidden * s.experts,
        backward_needs=given + 3 * scores + 4.0 * s.hidden * s.experts,
        forward=machine.linear(flops, given + scores, plain=True) + machine.moved(2 * scores) + small,
        backward=2 * machine.linear(flops, given + scores, plain=True) + machine.moved(3 * scores) + small,
        flops=flops,
        launches=_FUSED_ROUTER if s.fused_router else _ROUTER,
    )


# Exposed share of an exchange that overlaps with computation of the same layer (shared experts, permutation).
_EXPOSED_SHARE = 0.7


def _exchange(builder: Builder) -> float:
    """Return seconds of dispatching or combining the tokens of a micro-batch once between expert-parallel ranks."""
    s, machine = builder.sizes, builder.machine
    stride = s.etp
    size = float(builder.local * s.hidden * builder.act)
    sent = size * copies(builder)
    if s.dispatcher == "allgather":
        return network.all_gather(machine, sent, s.ep * s.etp, 1)
    if s.flex:
        domains = max(1.0, s.ep * stride / machine.linked)
        reached = _reached(domains, s.topk)
        if s.groups > 1 and s.groups % domains == 0:
            reached = min(reached, s.topk_groups)
        seconds = network.dispatch(machine, size, copies(builder), reached, s.ep, stride)
    else:
        seconds = network.all_to_all(machine, sent, s.ep, stride)
    if not s.padded_capacity:
        seconds *= max(1.0, s.received)  # it ends when the busiest rank has its tokens
    if s.etp > 1:
        seconds += network.all_gather(machine, sent * s.etp, s.etp, 1)
    overlapped = s.overlap_dispatch or (s.overlap_shared and s.shared_ffn)
    return seconds * _EXPOSED_SHARE if overlapped else seconds


def _permuting(builder: Builder) -> float:
    """Return the seconds in which a rank permutes tokens into send order and into expert order."""
    s, machine, act = builder.sizes, builder.machine, builder.act
    sent = float(builder.local * s.hidden * act) * copies(builder)
    got = routed_tokens(builder) * s.hidden * act
    if s.flex or s.dispatcher == "allgather":
        return (sent + got) / machine.permute + machine.latency  # sent as they are, copied by the receiver
    seconds = (builder.local * s.hidden * act + sent) / machine.permute + machine.latency
    if s.ep > 1 and s.experts > s.ep:
        seconds += 2 * got / machine.permute + machine.latency
    return seconds


def _waited(builder: Builder) -> float:
    """Return the seconds that a forward waits for the host after it has read how many tokens each expert gets.

    The host then starts the kernels of the dispatch and of the first product before the device has long work again
    (megatron-core 0.16.1 token_dispatcher.py, _maybe_dtoh_and_synchronize; experts.py, tokens_per_expert.tolist()).
    Nothing is read where each expert gets its capacity, nor in a captured step; beside another micro-batch the device
    has that one's work.
    """
    s = builder.sizes
    if s.overlap_batch or (s.capacity and s.padded_capacity):
        return 0.0
    return builder.machine.launch * ((_FUSED_DISPATCH if s.flex else _DISPATCH) + _GROUPED)


def _dispatch(builder: Builder) -> list[Operation]:
    s, machine, act = builder.sizes, builder.machine, builder.act
    sent = float(builder.local * s.hidden * act) * copies(builder)
    got = routed_tokens(builder) * s.hidden * act
    kernels, seconds = _permuting(builder), _exchange(builder)
    if s.probs and not s.flex:
        seconds += network.all_to_all(machine, sent / s.hidden / act * 4, s.ep, s.etp) if s.ep > 1 else 0.0
    return [
        Operation(
            name="dispatch",
            module="moe",
            forward_needs=sent + got,
            backward_needs=sent + got,
            forward=kernels + _waited(builder),
            backward=kernels,
            forward_comm=seconds,
            backward_comm=seconds,
            exchange=seconds,
            launches=_FUSED_DISPATCH if s.flex else _DISPATCH,
        )
    ]


def _held(builder: Builder) -> float:
    """Return bytes of dispatched tokens that the layer's forward still refers to until it ends.

    MoELayer.forward keeps the permuted and, where they are sorted again, the received tokens in local variables
    (megatron-core 0.16.1 transformer/moe/moe_layer.py).
    """
    s = builder.sizes
    sent = float(builder.local * s.hidden * builder.act) * copies(builder)
    got = routed_tokens(builder) * s.hidden * builder.act
    return sent + (got if s.ep > 1 and s.experts > s.ep else 0.0)


def _grouped(builder: Builder) -> list[Operation]:
    s, machine, act = builder.sizes, builder.machine, builder.act
    rows = routed_tokens(builder)
    held = _held(builder)
    width = s.moe_ffn // s.etp
    local = s.experts // s.ep
    up = _product(builder, "expert up", rows, s.hidden, width * (2 if s.gated else 1), local)
    down = _product(builder, "expert down", rows, width, s.hidden, local)
    made = rows * width * act
    given = made * (2 if s.gated else 1)
    keeps = given if s.fused_activation else given + made
    activation = Operation(
        name="expert activation",
        module="moe",
        keeps=keeps + (4 * rows if s.probs else 0.0),
        forward_needs=given + made + held,
        backward_needs=given + 2 * made,
        forward=machine.moved(given + made),
        backward=machine.moved(2 * given + made),
    )
    if s.clamped:
        activation = _clamped(builder, activation, given)
    return [up, activation, down, *([_biases(builder, rows, local)] if s.linear_bias and s.grouped else [])]


# Kernels and passes over the up projection's output that clamp its halves before the fused kernel: two clamps and a
# concatenation; in backward their derivatives and those of the two halves' split (each pass reads and writes).
_CLAMPS, _CLAMPS_BACKWARD = 3, 5


def _clamped(builder: Builder, activation: Operation, given: float) -> Operation:
    """Return the activation of experts with clamped inputs, which Megatron-core clamps outside of its fused kernel.

    Both what is clamped and the clamped copy are kept (megatron-core 0.16.1 fusions/fused_bias_geglu.py,
    weighted_bias_quick_geglu_impl).

    Args:
        given: bytes of the up projection's output.
    """
    machine = builder.machine
    return replace(
        activation,
        keeps=activation.keeps + given,
        inner=given,
        forward_needs=activation.forward_needs + given,
        backward_needs=activation.backward_needs + given,
        forward=activation.forward + 4 * given / machine.memory + _CLAMPS * machine.latency,
        backward=activation.backward + 5 * given / machine.memory + _CLAMPS_BACKWARD * machine.latency,
        launches=activation.launches + _CLAMPS,
    )


# Bytes moved an element of the down projection's output: in forward bias times probability in fp32 (4 written), their
# sum (2 and 4 read, 4 written), joined (4, 4) and cast (4, 2); in backward the cast (2, 4), its copy in 16 bits (4, 2),
# gradients of bias and probability (each 4 read, 4 written, 4 read to be summed).
_BIAS_FORWARD, _BIAS_BACKWARD = 28, 36


def _biases(builder: Builder, rows: float, local: int) -> Operation:
    """Return the biases of the experts' down projection, which no kernel fuses: expert by expert, in fp32.

    Source: TEGroupedMLP._apply_bias, megatron-core 0.16.1 transformer/moe/experts.py:609; the bias of the up projection
    is added by the product.

    Args:
        rows: tokens of the rank's experts.
        local: experts of the rank.
    """
    s, machine = builder.sizes, builder.machine
    size = rows * s.hidden
    kernels = 2 * local + 2
    return Operation(
        name="expert bias",
        module="moe",
        keeps=4.0 * rows,
        forward_needs=10 * size + _held(builder),
        backward_needs=8 * size,
        forward=max(_BIAS_FORWARD * size / machine.memory, kernels * machine.latency),
        backward=max(_BIAS_BACKWARD * size / machine.memory, 2 * kernels * machine.latency),
        launches=kernels,
    )


def _product(builder: Builder, name: str, rows: float, inner: int, outer: int, local: int) -> Operation:
    s, machine, act = builder.sizes, builder.machine, builder.act
    flops = 2.0 * rows * inner * outer
    size = rows * (inner + outer) * act + local * inner * outer * act
    gradient = rows * (inner + outer) * act + builder.written(local * inner * outer)
    tokens = max(1.0, rows / local)
    if s.grouped:
        seconds = machine.experts(flops, size, tokens)
        back = seconds + machine.experts(flops, gradient, tokens, gradient=True)
    else:  # an ordinary product for each expert
        seconds = local * machine.linear(flops / local, size / local)
        back = seconds + local * machine.linear(flops / local, gradient / local, gradient=True)
    back += builder.copied(local * inner * outer)
    if s.fp8 and not s.flex:  # copied to and from a multiple of rows (experts.py, Fp8Padding, Fp8Unpadding)
        copied = machine.moved(2 * rows * (inner if name == "expert up" else outer) * act)
        seconds, back = seconds + copied, back + copied
    own = quantised(s, machine, "GroupedLinear", rows * inner, rows * outer, parts=local)
    return Operation(
        name=name,
        module="moe",
        keeps=rows * inner * builder.gemm,
        forward_needs=rows * (inner + outer) * act + _held(builder),
        backward_needs=rows * (inner + outer) * act,
        again=own.again,
        wide=rows * inner * act if s.fp8 else 0.0,
        forward=seconds + own.forward,
        backward=back + own.backward,
        flops=flops,
        weight=(outer, inner),
        launches=_GROUPED,
    )


def _combine(builder: Builder) -> Operation:
    s, act = builder.sizes, builder.act
    sent = float(builder.local * s.hidden * act) * copies(builder)
    got = routed_tokens(builder) * s.hidden * act
    kernels, seconds = _permuting(builder), _exchange(builder)
    return Operation(
        name="combine",
        module="moe",
        keeps=0.0 if s.probs else sent,
        forward_needs=sent + got + _held(builder),
        backward_needs=sent + got,
        forward=kernels,
        backward=kernels,
        forward_comm=seconds,
        backward_comm=seconds,
        exchange=seconds,
        launches=_FUSED_COMBINE if s.flex else _COMBINE,
    )
