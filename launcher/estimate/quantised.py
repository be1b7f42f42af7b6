"""Seconds in which inputs and output gradients of a product are quantised, from `launcher.job.quantisation`."""

from launcher.estimate.machine import Machine
from launcher.estimate.sizes import Sizes
from launcher.job.quantisation import Module
from launcher.records import record

# Seconds of one pass over a tensor to quantise it, beside its bytes: least squares over Transformer Engine's benchmark
# (`python -m tools.bench.quantisation`). Kernels run one after the other there, as in training, while
# kernel_latency_us stands for single kernels.
PASS = 5.2e-6


@record()
class Quantised:
    """What a product's quantisation costs.

    Attributes:
        forward, backward: seconds of its kernels; negative where a norm writes fewer bytes instead of 16 bits.
        forward_comm, backward_comm: seconds in which the maximum is reduced over the ranks that gather a tensor.
        again: further seconds of the backward if the input is kept in 16 bits and quantised once more there.
    """

    forward: float = 0.0
    backward: float = 0.0
    forward_comm: float = 0.0
    backward_comm: float = 0.0
    again: float = 0.0


NOTHING = Quantised()


def quantised(
    sizes: Sizes,
    machine: Machine,
    module: Module,
    given: float,
    made: float,
    *,
    split: str = "none",
    original: bool = False,
    bias: bool = False,
    parts: int = 1,
) -> Quantised:
    """Return what quantisation costs of a product with inputs of `given` and outputs of `made` elements.

    Args:
        split: how the product is split over tp (`Builder.linear`).
        original: its input is kept in 16 bits and quantised again in the backward.
        bias: the gradient of its output is summed up for a bias.
        parts: experts whose tokens it multiplies.
    """
    recipe = sizes.quantisation
    if recipe is None:
        return NOTHING
    casts, copies = recipe.modules[module], sizes.quantised_copies
    latency = min(PASS, machine.latency)
    kernels = 1 if recipe.happens(casts.together, copies) else parts
    # With sequence parallelism, what is gathered is quantised before.
    gathers_input = split == "column" and sizes.sp
    gathers_gradient = split == "row" and sizes.sp

    def kernel(elements: float, reads: int, written: int) -> float:
        return moved(sizes, elements, reads, written) / machine.memory + reads * kernels * latency

    own = given / sizes.tp if gathers_input else given
    reads = casts.input_reads_cudnn if sizes.cudnn_norm else casts.input_reads
    written = 1 if gathers_input and not recipe.by_block else copies
    forward = kernel(own, reads, written) if reads else _by_norm(sizes, machine, own, written, latency)
    backward = _gathered_again(sizes, machine, given, latency) if gathers_input else 0.0
    # By row in the forward; in the backward by column, or where one scale holds for both, as in a forward.
    second = 1 if recipe.by_block else written
    again = kernel(own, reads, second) - moved(sizes, own, 0, written - 1) / machine.memory
    again = again if recipe.keeps_original else 0.0
    backward += again if original else 0.0
    own = made / sizes.tp if gathers_gradient else made
    backward += kernel(own, casts.gradient_reads, 1 if gathers_gradient and not recipe.by_block else copies)
    backward += _gathered_again(sizes, machine, made, latency) if gathers_gradient else 0.0
    if bias and not casts.bias_fused:
        backward += moved(sizes, own, 1, 0) / machine.memory + latency
    # The maximum is one number: the start of a collective.
    reduced = machine.start if recipe.maximum_reduced else 0.0
    return Quantised(
        forward=forward,
        backward=backward,
        forward_comm=reduced if gathers_input else 0.0,
        backward_comm=reduced if gathers_gradient else 0.0,
        again=again,
    )


def moved(sizes: Sizes, elements: float, reads: int, written: int) -> float:
    """Return the bytes of kernels that read a 16-bit tensor `reads` times and write `written` copies of it."""
    return elements * (reads * sizes.act + written * sizes.gemm_bytes)


def _by_norm(sizes: Sizes, machine: Machine, elements: float, written: int, latency: float) -> float:
    """Return the seconds that a norm takes beyond those of one that writes 16 bits.

    With one scale for the tensor it writes the copy by row, which another kernel reads to write that by column.
    """
    recipe = sizes.quantisation
    transposed = 0 if recipe is None or recipe.by_block else written - 1
    copies = (written + transposed) * sizes.gemm_bytes
    return elements * (copies - sizes.act) / machine.memory + transposed * latency


def _gathered_again(sizes: Sizes, machine: Machine, elements: float, latency: float) -> float:
    """Return the seconds in which the gathered copy by column is read and written in another order."""
    recipe = sizes.quantisation
    if recipe is None or not recipe.happens(recipe.reordered, sizes.quantised_copies):
        return 0.0
    return 2 * elements * sizes.gemm_bytes / machine.memory + latency
