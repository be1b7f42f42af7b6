"""The fit of a calibration: steps made by the estimate from a known hardware file give that file's steps again."""

import functools
import math
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from launcher.calibrate.fit import CannotFit, Observation, fit
from launcher.calibrate.layouts import Layout, fewer, layouts
from launcher.calibrate.least_squares import minimised
from launcher.compose import compose
from launcher.estimate.as_run import as_run
from launcher.estimate.estimate import estimate, quick
from launcher.job import Job
from launcher.job.hardware import Hardware
from launcher.pipeline import judge
from launcher.rehearse.implementation import described

START = Hardware(
    name="some processor", device="cpu", fp32_tflops=0.1, memory_bandwidth_gbs=10.0, reduce_scatter_copies=True
)
WORDS = ("+recipe=tiny_qwen3", "backend=megatron_lm", *described("cpu", transformer_engine=False))
LAYOUTS = layouts(compose(list(WORDS)), kind="cpu", devices=2, iterations=8)

known = st.builds(
    lambda matmul, memory, latency, link: replace(
        START,
        matmul_efficiency=matmul,
        weight_gradient_efficiency=0.9 * matmul,
        small_matmul_gflop=1e-4 * latency,
        attention_efficiency=0.5 * matmul,
        attention_backward_efficiency=0.4 * matmul,
        attention_overhead_us=2 * latency,
        memory_efficiency=memory,
        optimizer_efficiency=0.7 * memory,
        kernel_latency_us=latency,
        host_launch_us=0.0,
        workspace_gib=0.0,
        small_buffers_gib=0.003,
        intra_node_gbs=link,
        intra_node_latency_us=3 * latency,
        collective_latency_us=4 * latency,
    ),
    st.floats(0.2, 2.0),
    st.floats(0.1, 1.0),
    st.floats(3.0, 60.0),
    st.floats(0.5, 20.0),
)


def test_the_estimate_counts_the_layers_that_are_trained() -> None:
    words = described("cpu", transformer_engine=False)
    job = compose([*WORDS, *words])
    counted, notes = as_run(job)
    assert counted.kernels == job.kernels
    assert not [note for note in notes if note.startswith("kernels.")]


@functools.cache
def jobs() -> list[tuple[Layout, Job]]:
    return [(each, compose([*WORDS, *each.words])) for each in LAYOUTS]


def observed(hardware: Hardware, factor: float = 1.0) -> list[Observation]:
    """Return what the layouts would take on a hardware."""
    found = []
    for layout, job in jobs():
        answer = quick(replace(job, hardware=hardware))
        assert answer.time is not None
        found.append(
            Observation(
                name=layout.name,
                job=job,
                step_s=factor * answer.time.step_s,
                peak_bytes=answer.stages[0].peak_allocated,
                held_out=layout.held_out,
            )
        )
    return found


@pytest.mark.slow
@settings(max_examples=3, phases=[Phase.explicit, Phase.generate])
@given(known)
def test_a_known_hardware_is_found_again(hardware: Hardware) -> None:
    fitted = fit(observed(hardware), START)
    assert max(map(abs, fitted.errors(held_out=False))) < 0.02
    assert max(map(abs, fitted.errors(held_out=True))) < 0.06
    assert max(map(abs, fitted.errors(held_out=True, memory=True))) < 1e-3
    assert fitted.hardware.small_buffers_gib == pytest.approx(0.003, rel=1e-3)
    # What every layout depends on is found itself, and not only its steps.
    assert fitted.hardware.optimizer_efficiency == pytest.approx(hardware.optimizer_efficiency, rel=0.1)
    assert {"memory_efficiency", "kernel_latency_us", "intra_node_gbs"} <= set(fitted.fields)
    assert "grouped_matmul_efficiency" in fitted.unmeasured  # a model without experts
    assert fitted.hardware.grouped_matmul_efficiency is None


@pytest.mark.slow
def test_held_out_layouts_are_not_fitted() -> None:
    known = replace(START, memory_efficiency=0.6, kernel_latency_us=20.0)
    first = [each for each in observed(known) if each.ranks == 1]
    wrong = [replace(each, step_s=3 * each.step_s) if each.held_out else each for each in first]
    right, other = fit(first, START), fit(wrong, START)
    assert right.hardware == other.hardware
    assert min(other.errors(held_out=True)) < -0.6


@pytest.mark.parametrize("value", [math.nan, 0.0, -1.0, math.inf])
def test_a_measurement_that_is_none_is_refused(value: float) -> None:
    found = observed(START)
    with pytest.raises(CannotFit, match=f"step time of .*: {value} is not a positive number"):
        fit([replace(found[0], step_s=value), *found[1:]], START)
    with pytest.raises(CannotFit, match=r"peak memory of .*: 0 is not a positive number"):
        fit([replace(found[0], peak_bytes=0), *found[1:]], START)


def test_one_layout_is_too_few() -> None:
    with pytest.raises(CannotFit, match="at least two that differ"):
        fit(observed(START)[:1], START)


def test_a_device_without_a_peak_is_refused() -> None:
    found = observed(START)
    with pytest.raises(CannotFit, match="no peak of fp32 is known"):
        fit(found, replace(START, fp32_tflops=None))


def test_least_squares() -> None:
    def residuals(point: "list[float]") -> list[float]:
        return [math.log(point[0] * point[1] / 6), math.log(point[0] / 2), 0.0]

    assert minimised(residuals, [1e-3, 1e5]) == pytest.approx([2.0, 3.0], rel=1e-4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not finite"):
        minimised(lambda _: [math.nan], [1.0])


def test_layouts_are_different_and_fit_the_devices() -> None:
    assert len({each.words for each in LAYOUTS}) == len(LAYOUTS)
    assert {each.ranks for each in LAYOUTS} == {1, 2}
    alone = layouts(compose(list(WORDS)), kind="cpu", devices=1, iterations=8)
    assert {each.ranks for each in alone} == {1}
    assert {each.held_out for each in alone} == {True, False}


def test_a_large_model_is_scaled_down_for_a_processor_and_not_for_an_accelerator() -> None:
    large = compose(["+recipe=qwen3_moe", "backend=megatron_lm"])
    small, same = (layouts(large, kind=kind, devices=1, iterations=8)[0].words for kind in ("cpu", "cuda"))
    assert f"model.hidden_size={large.model.hidden_size}" in same
    assert "model.hidden_size=128" in small


@pytest.mark.parametrize("recipe", ["tiny_qwen3_moe", "deepseek_v3"])
def test_every_kind_of_layout_of_a_recipe_is_legal_and_estimated(recipe: str) -> None:
    words = [f"+recipe={recipe}", "backend=megatron_lm"]
    chosen = layouts(compose(words), kind="cpu", devices=2, iterations=8)
    for layout in [*fewer(chosen, 4), *(each for each in chosen if each.ranks > 1 and each.held_out)]:
        own = [*words, *described("cpu", transformer_engine=False), *layout.words, "runtime=rehearsal"]
        job = compose(own)
        assert not [each for each in judge(job, fixes=False).findings if each.severity == "error"]
        assert estimate(replace(job, hardware=replace(START, bf16_tflops=0.1)), changes=False).time is not None
