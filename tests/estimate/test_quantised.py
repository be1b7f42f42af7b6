"""FP8, MXFP8 and NVFP4: copies of weights, what products keep of their inputs, and the kernels that quantise."""

from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from launcher.estimate.layers import operations_of
from launcher.estimate.machine import read_machine
from launcher.estimate.operation import Operation, recomputed
from launcher.estimate.sizes import read_sizes
from tests.estimate.estimate_jobs import MOE, job_with

TOKENS, LAYERS, HIDDEN, FFN = 4096, 16, 2048, 8192
# Query, key, value; output; gate and up; down.
PRODUCTS = HIDDEN * 4096 + 2048 * HIDDEN + HIDDEN * 2 * FFN + FFN * HIDDEN
# Inputs kept in the format: that of the output projection stays in 16 bits, which attention keeps anyway.
INPUTS = HIDDEN + HIDDEN + FFN
HOPPER = {"fp8_tflops": 2000.0, "fp8_blockwise_tflops": 2000.0}
BLACKWELL = {**HOPPER, "mxfp8_tflops": 2000.0, "nvfp4_tflops": 2000.0}
NO_START = {"host_launch_us": 0.0, "kernel_latency_us": 0.0, "memory_efficiency": 1.0}


def with_format(recipe: str | None, machine: dict[str, float], **sections: dict[str, Any]) -> Estimate:
    precision = {"fp4_format": "e2m1"} if recipe == "nvfp4" else {"fp8_format": "hybrid", "fp8_recipe": recipe}
    precision = {} if recipe is None else precision
    hardware = {**machine, **sections.pop("hardware", {})}
    return estimate(job_with(hardware=hardware, precision=precision, **sections), changes=False)


# By row and by column, unless the machine multiplies by either: data of 8 or 4 bits, and the scales of blocks.
COPIES = {
    ("tensorwise", "Hopper"): 2.0,
    ("tensorwise", "Blackwell"): 1.0,
    ("blockwise", "Hopper"): 2 * (1 + 4 / 128),
    ("mxfp8", "Blackwell"): 2 * (1 + 1 / 32),
    ("nvfp4", "Blackwell"): 2 * (0.5 + 1 / 16),
}


@pytest.mark.parametrize(("recipe", "machine"), COPIES, ids=lambda text: text)
def test_weights_have_quantised_copies_beside_them(recipe: str, machine: str) -> None:
    figures = HOPPER if machine == "Hopper" else BLACKWELL
    more = with_format(recipe, figures).stages[0].weights - with_format(None, figures).stages[0].weights
    assert more == pytest.approx(COPIES[recipe, machine] * LAYERS * PRODUCTS)


def test_four_bits_save_less_than_a_half() -> None:
    """Only inputs of products shrink: norms, attention and activation functions keep 16 bits."""
    eight, four = (with_format(recipe, BLACKWELL).stages[0].activations for recipe in ("mxfp8", "nvfp4"))
    assert eight - four == pytest.approx(LAYERS * TOKENS * INPUTS * (1 + 1 / 32 - 0.5 - 1 / 16))
    assert 0.5 < four / eight < 1


def seconds_of(recipe: str | None, machine: dict[str, float], **sections: dict[str, Any]) -> float:
    time = with_format(recipe, machine, hardware=NO_START, **sections).time
    assert time is not None
    return time.step_s


MICRO_BATCHES = 8
GRADIENTS = 4096 + HIDDEN + 2 * FFN + HIDDEN


def test_scales_of_whole_tensors_need_their_maximum_first() -> None:
    """A second pass over weights, inputs and output gradients, but norms find the maximum of what they write."""
    weights = LAYERS * PRODUCTS * 2
    # After a norm: a cast of 16 bits (2 read, 2 written) for a norm that writes 8 bits and a transpose (1, 1, 1).
    normed = 2 * HIDDEN * (4 - (1 - 2 + 2))
    # The output projection quantises twice, by row and again by both: 4 + 1, 4 + 2, for 2 + 2.
    projected = 2048 * (11 - 4)
    tokens = LAYERS * MICRO_BATCHES * TOKENS * (normed + projected + 2 * FFN + 2 * GRADIENTS)
    difference = seconds_of("tensorwise", HOPPER) - seconds_of("delayed", HOPPER)
    assert difference == pytest.approx((weights + tokens) / 3e12, rel=1e-6)


CUDNN_NORMS = {
    # MXFP8: the norm writes both copies instead of 16 bits that another kernel reads.
    ("mxfp8", "Blackwell"): 2 * HIDDEN * (-2 - 2),
    # No maximum from cuDNN's norm: one more read.
    ("tensorwise", "Hopper"): 2 * HIDDEN * 2,
    ("tensorwise", "Blackwell"): 2 * HIDDEN * 2,
    ("delayed", "Hopper"): 0,
    ("nvfp4", "Blackwell"): 0,
}


@pytest.mark.parametrize(("recipe", "machine"), CUDNN_NORMS, ids=lambda text: text)
def test_norms_of_cudnn_write_mxfp8_but_find_no_maximum(recipe: str, machine: str) -> None:
    figures = HOPPER if machine == "Hopper" else BLACKWELL
    environment = {"env": {"NVTE_NORM_FWD_USE_CUDNN": "1"}}
    difference = seconds_of(recipe, figures, backend=environment) - seconds_of(recipe, figures)
    more = LAYERS * MICRO_BATCHES * TOKENS * CUDNN_NORMS[recipe, machine]
    assert difference == pytest.approx(more / 3e12, rel=1e-6, abs=1e-12)
    off = {"env": {"NVTE_NORM_FWD_USE_CUDNN": "0"}}
    assert seconds_of(recipe, figures, backend=off) == seconds_of(recipe, figures)


def test_gathered_copies_are_transposed_where_products_need_it() -> None:
    """With sequence parallelism one copy is gathered; Hopper transposes it then, Blackwell multiplies by either."""
    split = {"tp": 8, "sequence_parallel": True}
    fast = {"intra_node_gbs": 1e12, "intra_node_latency_us": 0.0, "collective_latency_us": 0.0}

    def seconds(machine: dict[str, float]) -> float:
        time = with_format("delayed", machine, hardware={**NO_START, **fast}, parallel=split).time
        assert time is not None
        return time.forward_s + time.backward_s

    # Not gathered: two inputs and two output gradients, split over tp, written once more on Hopper. Gathered: two
    # inputs and two output gradients, read and written.
    apart = (2048 + FFN + 4096 + 2 * FFN) // 8
    whole = 2 * (HIDDEN + HIDDEN + HIDDEN + HIDDEN)
    micro_batches = 64
    more = LAYERS * micro_batches * TOKENS * (apart + whole)
    assert seconds(HOPPER) - seconds(BLACKWELL) == pytest.approx(more / 3e12, rel=1e-6)


def test_the_maximum_of_a_gathered_tensor_is_reduced() -> None:
    split = {"tp": 8, "sequence_parallel": True}

    def exposed(recipe: str, start: float) -> float:
        links = {"collective_latency_us": start}
        time = with_format(recipe, HOPPER, hardware={**NO_START, **links}, parallel=split).time
        assert time is not None
        return time.exposed_comm_s

    def starts(recipe: str) -> float:
        return (exposed(recipe, 10.0) - exposed(recipe, 0.0)) / 10e-6

    # Two inputs and two output gradients of a layer in each of 64 micro-batches.
    assert starts("tensorwise") - starts("delayed") == pytest.approx(64 * LAYERS * 4, rel=1e-6)


# Kernels for the tokens of sixteen experts; one more copies them to a multiple of rows.
EXPERT_KERNELS = {
    ("delayed", "Hopper"): 1,
    ("delayed", "Blackwell"): 16,
    ("tensorwise", "Hopper"): 2 * 16,
    ("blockwise", "Hopper"): 16,
    ("mxfp8", "Blackwell"): 16,
    ("nvfp4", "Blackwell"): 2,
}


@pytest.mark.parametrize(("recipe", "machine"), EXPERT_KERNELS, ids=lambda text: text)
def test_tokens_of_experts_are_quantised_one_by_one_or_together(recipe: str, machine: str) -> None:
    def forward(latency: float) -> float:
        precision = {"fp4_format": "e2m1"} if recipe == "nvfp4" else {"fp8_format": "hybrid", "fp8_recipe": recipe}
        figures = {**(HOPPER if machine == "Hopper" else BLACKWELL), **NO_START, "kernel_latency_us": latency}
        job = job_with(model=MOE, precision=precision, hardware=figures)
        sizes, read = read_sizes(job)[0], read_machine(job, experts=True)[0]
        operations = operations_of(sizes, read, sizes.kind(sizes.layers - 1))
        return next(op.forward for op in operations if op.name == "expert up")

    kernels = EXPERT_KERNELS[recipe, machine] + 1
    assert forward(1.0) - forward(0.0) == pytest.approx(kernels * 1e-6, rel=1e-6)


def test_a_recomputed_activation_is_quantised_again() -> None:
    """Megatron-core lets the experts' second product keep its 16-bit input, which is then made again."""
    job = job_with(model=MOE, precision={"fp8_format": "hybrid", "fp8_recipe": "mxfp8"}, hardware=BLACKWELL | NO_START)
    recompute = {"granularity": "selective", "modules": ["moe_act"]}
    again = job_with(
        model=MOE,
        precision={"fp8_format": "hybrid", "fp8_recipe": "mxfp8"},
        hardware=BLACKWELL | NO_START,
        recompute=recompute,
    )
    sizes, machine = read_sizes(job)[0], read_machine(job, experts=True)[0]
    operations = list(operations_of(sizes, machine, sizes.kind(sizes.layers - 1)))
    before = next(op for op in operations if op.name == "expert down")
    after = next(op for op in recomputed(operations, read_sizes(again)[0]) if op.name == "expert down")
    elements = before.flops / (2 * HIDDEN)
    # Read once more: one of both copies is written in forward, the other in backward.
    assert after.backward - before.backward == pytest.approx(elements * 2 / 3e12, rel=1e-6)
    assert after.restored == elements * 2


def test_gathered_inputs_travel_quantised() -> None:
    """Sequence parallelism: bytes to gather fall to those of the format, where both copies travel to twice those."""

    def exposed(recipe: str | None, latency: float = 0.0) -> float:
        links = {"intra_node_gbs": 1.0, "intra_node_latency_us": latency, "collective_latency_us": latency}
        parallel = {"tp": 8, "sequence_parallel": True}
        time = with_format(recipe, BLACKWELL, hardware={**NO_START, **links}, parallel=parallel).time
        assert time is not None
        return time.exposed_comm_s

    # Of a layer, in tensors of tokens x hidden: two gathered by row in forward, two by column and two of gradients
    # in backward; 64 micro-batches; 0.7 of half of 1 GB/s, seven eighths of each tensor.
    each = 64 * LAYERS * TOKENS * HIDDEN * 7 / 8 / (1e9 / 2 * 0.7)
    assert exposed(None) - exposed("tensorwise") == pytest.approx(each * 6 * (2 - 1), rel=1e-6)
    assert exposed(None) - exposed("nvfp4") == pytest.approx(each * (4 * (2 - 0.5625) + 2 * (2 - 1.125)), rel=1e-6)


def test_the_output_layer_stays_in_bf16() -> None:
    """Megatron-core's own linear layer (tensor_parallel/layers.py), no module of Transformer Engine."""
    peaks = {"bf16_tflops": 1000.0, "fp8_tflops": 1e9, "matmul_efficiency": 0.5, "weight_gradient_efficiency": 0.5}
    figures = {**HOPPER, **NO_START, **peaks, "small_matmul_gflop": 0.0}

    def seconds(vocabulary: int) -> float:
        time = with_format("delayed", figures, model={"vocab_size": vocabulary}).time
        assert time is not None
        return time.forward_s + time.backward_s

    micro_batches = 8
    more = 3 * 2 * TOKENS * HIDDEN * 64_000 / 0.5e15
    assert seconds(128_000) - seconds(64_000) > micro_batches * more


def test_the_router_stays_in_bf16() -> None:
    def router(recipe: str | None) -> Operation:
        precision = {"fp8_format": "hybrid", "fp8_recipe": recipe} if recipe else {}
        job = job_with(model={**MOE, "num_experts": 512}, precision=precision, hardware={**HOPPER, **NO_START})
        sizes, machine = read_sizes(job)[0], read_machine(job, experts=True)[0]
        return next(op for op in operations_of(sizes, machine, sizes.kind(sizes.layers - 1)) if op.name == "router")

    assert router("tensorwise").forward == router(None).forward
    assert router("tensorwise").backward == router(None).backward
