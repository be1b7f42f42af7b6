"""A model chunk of a pipeline stage: embedding, layers, output layer and loss assembled from their kernels."""

from dataclasses import replace
from functools import lru_cache
from itertools import groupby

from launcher.estimate import network
from launcher.estimate.builder import Builder
from launcher.estimate.kinds import Kind
from launcher.estimate.layers import layer
from launcher.estimate.machine import Machine
from launcher.estimate.operation import Layer, Operation, walk
from launcher.estimate.placement import Chunk
from launcher.estimate.sizes import Sizes, plain_sizes
from launcher.records import record


@record()
class Part:
    """`count` equal layers in a row (or one embedding, one head)."""

    name: str
    layer: Layer
    count: int = 1


def parts_of(sizes: Sizes, machine: Machine, chunk: Chunk, covered: int | None = None) -> list[Part]:
    """Return the parts of a chunk, in execution order.

    Args:
        covered: layers that recompute method `block` covers in this chunk, where their number is per stage.
    """
    parts: list[Part] = []
    plain = plain_sizes(sizes)
    if chunk.embedding:
        parts.append(Part(name="embedding", layer=_embedding(plain, machine)))
    parts += _layers(sizes, machine, chunk, covered)
    if chunk.norm:
        residual = float(sizes.local_tokens * sizes.hidden * sizes.act)
        norm = Builder(sizes, machine).norm("final norm", sizes.local_tokens, sizes.hidden, "head")
        parts.append(Part(name="final norm", layer=walk([norm], residual)))
    if chunk.mtp:
        parts.append(Part(name="mtp", layer=_mtp(sizes, machine, head=chunk.head), count=chunk.mtp))
    if chunk.head:
        parts.append(Part(name="head", layer=_output(plain, machine)))
    return parts


@lru_cache(maxsize=512)
def _output(sizes: Sizes, machine: Machine) -> Layer:
    return walk(_head(sizes, machine), 0.0)


def _layers(sizes: Sizes, machine: Machine, chunk: Chunk, covered: int | None) -> list[Part]:
    kind, full = sizes.recompute, 0
    if kind == "block":
        full = sizes.recompute_layers if covered is None else covered
        full = full if chunk.recomputed is None else chunk.recomputed
        kind = "selective" if sizes.recompute_modules else "none"
    if sizes.offload_layers and chunk.embedding:
        return _partly_offloaded(sizes, machine, chunk, kind, full)
    until = len(chunk.kinds) if chunk.in_part is None or kind != "selective" else full + chunk.in_part
    runs: list[tuple[Kind, str, int]] = []
    for how, kinds in (("full", chunk.kinds[:full]), (kind, chunk.kinds[full:until]), ("none", chunk.kinds[until:])):
        for each, group in groupby(kinds):
            runs.append((each, how, len(list(group))))
    return [
        Part(
            name=f"{each.name} layer" + (" (recomputed)" if how == "full" else ""),
            layer=layer(sizes, machine, each, how),
            count=count,
        )
        for each, how, count in runs
    ]


def _partly_offloaded(sizes: Sizes, machine: Machine, chunk: Chunk, kind: str, full: int) -> list[Part]:
    """Return the layers of the first chunk, where what the first of them keep goes to the host.

    Offloading of whole layers excludes recomputation (megatron-core 0.16.1 transformer_config.py:1149).
    """
    most, parts = sizes.offload_layers, list[Part]()
    for index, each in enumerate(chunk.kinds):
        how = "full" if index < full else kind
        name = f"{each.name} layer" + (" (offloaded)" if index < most else "")
        parts.append(Part(name=name, layer=layer(sizes, machine, each, how, index < most)))
    return parts


@lru_cache(maxsize=512)
def _embedding(sizes: Sizes, machine: Machine) -> Layer:
    made = sizes.tokens * sizes.hidden * sizes.act
    local = sizes.local_tokens * sizes.hidden * sizes.act
    table = sizes.vocab * sizes.hidden // sizes.tp
    if sizes.sp:
        forward_comm = network.reduce_scatter(machine, made, sizes.tp, 1)
        backward_comm = network.all_gather(machine, made, sizes.tp, 1)
    else:
        forward_comm, backward_comm = network.all_reduce(machine, made, sizes.tp, 1), 0.0
    operation = Operation(
        name="embedding",
        module="embedding",
        keeps=8.0 * sizes.tokens,
        forward_needs=made + local,
        backward_needs=made + table * sizes.act,
        forward=machine.moved(2 * made),
        backward=machine.moved(made + table * (2 * sizes.act + 2 * sizes.grad_bytes)),
        forward_comm=forward_comm,
        backward_comm=backward_comm,
    )
    return walk([operation], 0.0)


def _head(sizes: Sizes, machine: Machine) -> list[Operation]:
    """Return the output layer and the cross entropy.

    The backward of the output layer returns a new tensor of the weight's shape, even where the gradient itself was
    accumulated into the main gradient (megatron-core 0.16.1 tensor_parallel/layers.py, grad_added_to_main_grad).
    """
    builder = Builder(replace(sizes, quantisation=None) if sizes.fp8 else sizes, machine)
    project = builder.linear("output", "head", sizes.tokens, sizes.hidden, sizes.vocab // sizes.tp, split="column")
    gradient = 0.0 if sizes.lora else sizes.vocab * sizes.hidden // sizes.tp * float(sizes.act)
    project = replace(project, backward_needs=project.backward_needs + gradient)
    return [project, _cross_entropy(sizes, machine)]


def _cross_entropy(sizes: Sizes, machine: Machine) -> Operation:
    """Return the loss.

    Transformer Engine's kernel overwrites the logits with their gradient. Both of Megatron-core's keep the softmax in
    fp32; the compiled one (`native`) allocates it beside the fp32 logits, the plain one works in place.
    """
    logits = float(sizes.tokens) * sizes.vocab / sizes.tp
    reductions = (2 if sizes.fused_ce else 3) * network.all_reduce(machine, 4.0 * sizes.tokens, sizes.tp, 1)
    speed = machine.cross_entropy
    if sizes.te_ce:
        seconds = 2 * sizes.act * logits / speed + machine.latency
        return Operation(
            name="cross entropy",
            module="head",
            keeps=sizes.act * logits,
            forward_needs=sizes.act * logits + 16.0 * sizes.tokens,
            forward=seconds,
            backward=seconds,
            forward_comm=reductions,
        )
    reads, writes = (12, 8) if sizes.fused_ce else (38, 14)
    return Operation(
        name="cross entropy",
        module="head",
        keeps=4 * logits,
        forward_needs=((8 if sizes.fused_ce else 4) + sizes.act) * logits,
        backward_needs=sizes.act * logits,
        forward=reads * logits / machine.memory + machine.latency,
        backward=writes * logits / machine.memory + machine.latency,
        forward_comm=reductions,
    )


@lru_cache(maxsize=512)
def _mtp(sizes: Sizes, machine: Machine, *, head: bool) -> Layer:
    """Return one multi-token-prediction layer with its embedding, its output and its loss."""
    builder = Builder(sizes, machine)
    local, width = sizes.local_tokens, sizes.hidden
    residual = float(local * width * sizes.act)
    kind = "full" if sizes.recompute in ("full", "block") else sizes.recompute
    inner = layer(sizes, machine, sizes.kind(sizes.layers - 1), kind)
    before = [
        builder.norm("embedding norm", local, width, "mtp"),
        builder.norm("hidden norm", local, width, "mtp"),
        builder.linear("projection", "mtp", sizes.tokens, 2 * width, width // sizes.tp, split="column"),
    ]
    after = [builder.norm("final norm", local, width, "mtp")]
    after += _head(sizes, machine) if head else []
    return _joined([_embedding(sizes, machine), walk(before, residual), inner, walk(after, residual)])


def _joined(layers: list[Layer]) -> Layer:
    parts = [Part(name="", layer=item) for item in layers]
    keeps, forward_peak, backward_peak = peaks(parts)
    return Layer(
        keeps=keeps,
        forward_peak=forward_peak,
        backward_peak=backward_peak,
        forward=sum(item.forward for item in layers),
        backward=sum(item.backward for item in layers),
        forward_comm=sum(item.forward_comm for item in layers),
        backward_comm=sum(item.backward_comm for item in layers),
        flops=sum(item.flops for item in layers),
        recompute=sum(item.recompute for item in layers),
        weights=sum(item.weights for item in layers),
        products=sum(item.products for item in layers),
    )


def peaks(parts: list[Part]) -> tuple[float, float, float]:
    """Return bytes that a chunk keeps for one micro-batch, and the peaks of its forward and of its backward."""
    live = forward_peak = 0.0
    starts = []
    for part in parts:
        starts.append(live)
        forward_peak = max(forward_peak, live + (part.count - 1) * part.layer.keeps + part.layer.forward_peak)
        live += part.count * part.layer.keeps
    backward_peak = live
    for part, start in zip(parts, starts, strict=True):
        top = start + (part.count - 1) * part.layer.keeps + part.layer.backward_peak
        backward_peak = max(backward_peak, top)
    return live, forward_peak, backward_peak


@record()
class ChunkCost:
    """Costs of one chunk for one micro-batch: bytes, seconds, and elements (`products`), as of `Layer`."""

    keeps: float
    forward_peak: float
    backward_peak: float
    forward: float
    backward: float
    forward_comm: float
    backward_comm: float
    recompute: float
    weights: float = 0.0
    products: float = 0.0

    @property
    def forward_total(self) -> float:
        """Seconds of the forward with exposed communication."""
        return self.forward + self.forward_comm

    @property
    def backward_total(self) -> float:
        """Seconds of the backward with recomputation and exposed communication."""
        return self.backward + self.backward_comm


def cost(parts: list[Part]) -> ChunkCost:
    """Sum up a chunk."""
    keeps, forward_peak, backward_peak = peaks(parts)
    forward = backward = forward_comm = backward_comm = recompute = weights = products = 0.0
    for part in parts:
        one, count = part.layer, part.count
        forward += one.forward * count
        backward += one.backward * count
        forward_comm += one.forward_comm * count
        backward_comm += one.backward_comm * count
        recompute += one.recompute * count
        weights += one.weights * count
        products += one.products * count
    return ChunkCost(
        keeps=keeps,
        forward_peak=forward_peak,
        backward_peak=backward_peak,
        forward=forward,
        backward=backward,
        forward_comm=forward_comm,
        backward_comm=backward_comm,
        recompute=recompute,
        weights=weights,
        products=products,
    )
