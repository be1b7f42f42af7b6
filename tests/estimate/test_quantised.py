"""FP8, MXFP8 and NVFP4: copies of weights, what products keep of their inputs, and the kernels that quantise."""

from typing import Any

import pytest

from launcher.estimate import Estimate, estimate
from launcher.estimate.layers import operations_of
from launcher.estimate.machine import read_machine
from launcher.estimate.operation import Operation
from launcher.estimate.sizes import read_sizes
from tests.estimate.estimate_jobs import MOE, job_with

TOKENS, LAYERS, HIDDEN, FFN = 4096, 16, 2048, 8192
# Query, key, value; output; gate and up; down.
PRODUCTS = HIDDEN * 4096 + 2048 * HIDDEN + HIDDEN * 2 * FFN + FFN * HIDDEN
INPUTS = HIDDEN + 2048 + HIDDEN + FFN
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


def test_scales_of_whole_tensors_need_their_maximum_first() -> None:
    """A second pass over the weights; those over inputs of dense layers are not counted."""

    def seconds(recipe: str) -> float:
        time = with_format(recipe, HOPPER, hardware=NO_START).time
        assert time is not None
        return time.step_s

    weights = LAYERS * PRODUCTS * 2
    assert seconds("tensorwise") - seconds("delayed") == pytest.approx(weights / 3e12, rel=1e-6)


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
