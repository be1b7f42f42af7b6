"""One kernel of a layer: saved bytes, temporary bytes, and time."""

from dataclasses import replace

from launcher.estimate.sizes import Sizes
from launcher.records import record


@record()
class Operation:
    """One kernel, or a few related ones, for one micro-batch on one rank.

    Attributes:
        name: unique within a layer.
        module: the recompute module that it belongs to (attention, core, mlp, moe, shared, norm …).
        keeps: bytes kept from its forward until its backward.
        forward_needs: temporary bytes of its forward, beyond what is kept.
        backward_needs: temporary bytes of its backward.
        restored: bytes that recomputation restores before its backward.
        frees: of the restored bytes, those that its backward frees.
        inner: of the bytes kept, those that it makes itself: not kept where it runs again.
        again: seconds in which a quantised input is quantised once more where it is not kept, but made again.
        wide: bytes of such an input in 16 bits, 0: as it is kept.
        forward, backward: seconds of computation.
        forward_comm, backward_comm: seconds of communication that does not overlap within the layer.
        exchange: seconds of each of them that another micro-batch's computation can hide.
        flops: of the forward, dense.
        rerun: its forward runs again in the backward.
        weight: (out, in) of a matrix product, for the library's placeholder of weight gradients.
        launches: kernels that the host starts for its forward.
    """

    name: str
    module: str
    keeps: float = 0.0
    forward_needs: float = 0.0
    backward_needs: float = 0.0
    restored: float = 0.0
    frees: float = 0.0
    inner: float = 0.0
    again: float = 0.0
    wide: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    forward_comm: float = 0.0
    backward_comm: float = 0.0
    exchange: float = 0.0
    flops: float = 0.0
    rerun: bool = False
    weight: tuple[int, int] | None = None
    launches: int = 3


@record()
class Layer:
    """Costs of a whole layer: bytes relative to those live at its start, and seconds.

    Attributes:
        keeps: bytes kept from forward to backward for one micro-batch.
        forward_peak: most bytes beyond those of earlier layers while its forward runs.
        backward_peak: the same while its backward runs (including what the layer keeps).
        forward, backward: seconds of computation (recomputation in backward).
        forward_comm, backward_comm: seconds of exposed communication.
        flops: of the forward.
        recompute: seconds of `backward` that repeat computation of the forward; its communication is in backward_comm.
        weights: seconds of `backward` that compute gradients of weights.
        products: elements of inputs and output gradients of products with weights, which their gradients need.
    """

    keeps: float = 0.0
    forward_peak: float = 0.0
    backward_peak: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    forward_comm: float = 0.0
    backward_comm: float = 0.0
    flops: float = 0.0
    recompute: float = 0.0
    weights: float = 0.0
    products: float = 0.0


def walk(operations: list[Operation], residual: float) -> Layer:
    """Sum up a layer: the forward in order, then the backward in reverse.

    Args:
        residual: bytes of the residual stream, whose gradient is live during the whole backward.
    """
    live = peak = 0.0
    forward = backward = forward_comm = backward_comm = flops = again = weights = products = 0.0
    for op in operations:
        need = live + op.forward_needs
        peak = max(peak, need)
        live += op.keeps
        forward += op.forward
        backward += op.backward
        forward_comm += op.forward_comm
        backward_comm += op.backward_comm
        flops += op.flops
        if op.weight is not None and op.flops:
            outer, inner = op.weight
            weights += op.backward / 2  # of its two products in the backward, one
            products += op.flops / (2 * outer * inner) * (outer + inner)
        if op.rerun:
            again += op.forward
            backward_comm += op.forward_comm
    keeps, back_peak = live, live
    live += residual
    for op in reversed(operations):
        live += op.restored
        back_peak = max(back_peak, live + op.backward_needs)
        live -= op.keeps + op.frees
    return Layer(
        keeps=keeps,
        forward_peak=max(peak, keeps),
        backward_peak=back_peak,
        forward=forward,
        backward=backward + again,
        forward_comm=forward_comm,
        backward_comm=backward_comm,
        flops=flops,
        recompute=again,
        weights=weights,
        products=products,
    )


# The backward launches more kernels: two products for each of the forward's, plus accumulation.
_BACKWARD_LAUNCHES = 1.7


def bound_by_host(layer: Layer, operations: list[Operation], launch: float) -> Layer:
    """Return a layer that takes at least as long as the host needs to launch its kernels.

    Args:
        launch: seconds for one kernel.
    """
    forward = launch * sum(op.launches for op in operations)
    backward = _BACKWARD_LAUNCHES * forward
    backward += launch * sum(op.launches for op in operations if op.rerun)
    late = max(0.0, forward - layer.forward - layer.forward_comm)
    later = max(0.0, backward - layer.backward - layer.backward_comm)
    if not late and not later:
        return layer
    return replace(layer, forward=layer.forward + late, backward=layer.backward + later)


# Exposed share of an exchange that overlaps with another micro-batch's computation: its first and last part.
_SHOWN = 0.2


def overlapped_with_micro_batch(layer: Layer, operations: list[Operation]) -> Layer:
    """Return a layer whose expert exchange overlaps with the computation of another micro-batch.

    One micro-batch's forward overlaps with another's backward: all exchanges of a layer can hide behind all of its
    computation, but behind no more.
    """
    exchange = sum(op.exchange for op in operations)
    exchange_again = sum(op.exchange for op in operations if op.rerun)
    total = 2 * exchange + exchange_again
    if not total:
        return layer
    shown = max(_SHOWN * total, total - layer.forward - layer.backward) / total
    hidden = exchange * (1 - shown)
    return replace(
        layer,
        forward_comm=layer.forward_comm - hidden,
        backward_comm=layer.backward_comm - hidden - exchange_again * (1 - shown),
    )


def read_by_backward(operations: list[Operation]) -> list[Operation]:
    """Return the kernels of a layer without its last product (or combination), which only the residual addition reads.

    The backward of that addition reads no value.
    """
    last = max(place for place, op in enumerate(operations) if op.module != "residual")
    return operations[:last]


def checkpointed(
    operations: list[Operation], again: list[Operation], residual: float, saved: float, group: int, launch: float
) -> Layer:
    """Return a layer whose forward runs again in the backward.

    Args:
        again: what runs again.
        saved: bytes of the layer's input as it is kept.
        group: layers that share one kept input (method uniform); the last of the group holds the others' tensors.
        launch: seconds of the host for one kernel.
    """
    plain = bound_by_host(walk(operations, residual), operations, launch)
    more = plain if again is operations else bound_by_host(walk(again, residual), again, launch)
    transient = max(op.forward_needs for op in operations) + residual
    repeated = max(plain.forward_peak, plain.backward_peak) + (group - 1) * plain.keeps
    return Layer(
        keeps=saved / group,
        forward_peak=saved / group + transient,
        backward_peak=saved / group + repeated,
        backward=plain.backward + more.forward,
        backward_comm=plain.backward_comm + more.forward_comm,
        forward=plain.forward,
        forward_comm=plain.forward_comm,
        flops=plain.flops,
        recompute=more.forward,
        weights=plain.weights,
        products=plain.products,
    )


# Modules of selective recomputation that drop everything between their input and their output.
_WHOLE = {"mlp": ("mlp",), "moe": ("moe", "shared"), "shared_experts": ("shared",), "core_attn": ("core",)}
# Recompute module, the operations that run again, and the operations whose kept input is dropped for it.
_DISCARDED: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("moe_act", ("expert activation",), ("expert down",)),
    ("activation", ("expert activation",), ("expert down",)),
    ("activation", ("activation",), ("down",)),
    ("activation", ("shared activation",), ("shared down",)),
    ("layernorm", ("separate input norm",), ("qkv", "q down", "q", "kv down")),
    ("layernorm", ("separate feed-forward norm",), ("router", "up", "shared up")),
    ("mla_up_proj", ("q norm", "q up"), ("q up",)),
    ("mla_up_proj", ("kv norm", "kv up", "mla rope"), ("kv up", "core attention")),
)


def recomputed(operations: list[Operation], sizes: Sizes) -> list[Operation]:
    """Return the operations of a layer with the job's selective recomputation applied.

    A recomputed module keeps only its input; a discarded output (normalisation, activation, MLA's up projection)
    is not kept by the operation that reads it, and is restored right before that operation's backward.
    """
    chosen = set(sizes.recompute_modules)
    result = operations
    for name, members in _WHOLE.items():
        if name in chosen:
            result = _segment(result, members, sizes.skip_last)
    for name, makers, readers in _DISCARDED:
        if name in chosen:
            result = _discard(result, makers, readers)
    return result


def idle(operations: list[Operation], modules: tuple[str, ...]) -> frozenset[str]:
    """Return the modules of selective recomputation that have nothing to recompute among some operations."""
    names, parts = {op.name for op in operations}, {op.module for op in operations}
    busy = {name for name, members in _WHOLE.items() if parts & set(members)}
    busy |= {name for name, makers, _ in _DISCARDED if names & set(makers)}
    return frozenset(modules) - busy


def _segment(operations: list[Operation], members: tuple[str, ...], skip_last: bool) -> list[Operation]:
    inside = [index for index, op in enumerate(operations) if op.module in members]
    if not inside:
        return operations
    result, dropped = list(operations), 0.0
    for index in inside:
        op = operations[index]
        if index == inside[0]:
            result[index] = replace(op, rerun=True)
            continue
        dropped += op.keeps
        again = not (skip_last and index == inside[-1])
        result[index] = replace(op, keeps=0.0, frees=op.frees + op.keeps, rerun=again)
    last = result[inside[-1]]
    result[inside[-1]] = replace(last, restored=last.restored + dropped)
    return result


def _discard(operations: list[Operation], makers: tuple[str, ...], readers: tuple[str, ...]) -> list[Operation]:
    if not any(op.name in makers for op in operations):
        return operations
    result, inner = [], 0.0
    for op in operations:
        if op.name in makers:
            inner += op.inner
            op = replace(op, rerun=True, keeps=op.keeps - op.inner, frees=op.frees + op.inner, inner=0.0)
        if op.name in readers and op.keeps:
            made = op.wide or op.keeps
            op = replace(
                op,
                keeps=0.0,
                restored=op.restored + made + inner,
                frees=op.frees + made,
                backward=op.backward + op.again,
            )
            inner = 0.0
        result.append(op)
    return result
