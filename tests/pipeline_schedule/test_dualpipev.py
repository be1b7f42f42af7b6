"""DualPipeV and GPipe: every step once, nothing before its input, idle time and memory as their tables state."""

from collections import Counter
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.pipeline_schedule.dualpipev import fewest_micro_batches
from launcher.pipeline_schedule.in_flight import peak
from launcher.pipeline_schedule.long_step import Middle, finish
from launcher.pipeline_schedule.order import DUALPIPEV, GPIPE, Part, Schedule, order
from launcher.pipeline_schedule.precedence import precedence
from launcher.pipeline_schedule.simulation import Pipeline, simulate, timeline


def folded(stages: int, micro_batches: int, *, late: bool = True) -> Schedule:
    return Schedule(
        stages=stages, chunks=2, micro_batches=micro_batches, group=stages, kind=DUALPIPEV, late_weights=late
    )


def even(schedule: Schedule, forward: float, backward: float, weights: float) -> Pipeline:
    numbers = schedule.stages * schedule.chunks
    return Pipeline(
        schedule=schedule,
        forward=(forward,) * numbers,
        backward=(backward,) * numbers,
        transfer=0.0,
        blocking=False,
        weights=(weights,) * numbers if schedule.splits_backward else (),
    )


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    stages = draw(st.integers(2, 6))
    schedule = folded(stages, fewest_micro_batches(stages) + draw(st.integers(0, 12)), late=draw(st.booleans()))
    times = st.lists(st.integers(1, 9).map(float), min_size=2 * stages, max_size=2 * stages).map(tuple)
    weights = draw(times)
    return Pipeline(
        schedule=schedule,
        forward=draw(times),
        backward=tuple(more + own for more, own in zip(draw(times), weights, strict=True)),
        transfer=draw(st.sampled_from((0.0, 0.5))),
        blocking=False,
        weights=weights,
    )


@given(pipelines())
def test_each_chunk_of_a_micro_batch_runs_once_after_what_it_needs(pipeline: Pipeline) -> None:
    schedule, events = pipeline.schedule, timeline(pipeline)
    done = {(event.part, event.micro_batch, schedule.number(event.stage, event.chunk)): event for event in events}
    assert len(done) == len(events)
    last = 2 * schedule.stages - 1
    for micro_batch in range(schedule.micro_batches):
        before = 0.0
        for number in range(last + 1):
            event = done[Part.FORWARD, micro_batch, number]
            assert event.start >= before
            before = event.end
        for number in reversed(range(last + 1)):
            whole, inputs, weights = (
                done.get((part, micro_batch, number)) for part in (Part.BACKWARD, Part.INPUTS, Part.WEIGHTS)
            )
            back = whole or inputs
            assert back is not None
            assert (whole is None) == (inputs is not None) == (weights is not None)
            assert back.start >= before
            assert weights is None or weights.start >= back.end
            before = back.end
    for stage in range(schedule.stages):
        own = sorted((event.start, event.end) for event in events if event.stage == stage)
        assert all(end <= start for (_, end), (start, _) in pairwise(own))


@given(st.integers(2, 8), st.integers(0, 30), st.integers(1, 5).map(float))
def test_idle_time_and_memory_are_those_of_the_table(stages: int, more: int, forward: float) -> None:
    """With B = 2 F and W = F: (p - 1)(2 B - 3 W), against (p - 1)(2 F + 2 B) of 1F1B with chunks of twice the size."""
    schedule = folded(stages, fewest_micro_batches(stages) + more)
    pipeline = even(schedule, forward, 2 * forward, forward)
    work = schedule.micro_batches * 2 * 3 * forward
    assert max(simulate(pipeline)) == pytest.approx(work + (stages - 1) * forward)
    for stage in range(stages):
        steps = order(schedule, stage)
        assert Counter(part for part, _, _ in steps)[Part.FORWARD] == 2 * schedule.micro_batches
        held = accumulate(0 if part == Part.WEIGHTS else (-1 if part else 1) for part, _, _ in steps)
        assert max(held) == 2 * stages
        assert peak(schedule, stage, (1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.0, 0.0)) == 2 * stages


@given(st.integers(2, 6), st.integers(0, 40), st.booleans(), st.tuples(*3 * [st.integers(1, 9).map(float)]))
def test_the_middle_of_a_long_step_of_equal_chunks_takes_what_a_stage_works(
    stages: int, more: int, late: bool, times: tuple[float, float, float]
) -> None:
    forward, inputs, weights = times
    schedule = folded(stages, fewest_micro_batches(stages) + more, late=late)
    pipeline = even(schedule, forward, inputs + weights, weights)
    assert finish(pipeline, Middle.BUSIEST) == pytest.approx(finish(pipeline, Middle.SIMULATED))


def test_late_gradients_of_weights_save_time_and_cost_memory() -> None:
    at_once, late = (even(folded(4, 16, late=late), 1.0, 2.0, 1.0) for late in (False, True))
    assert max(simulate(late)) < max(simulate(at_once))
    held = [peak(each.schedule, 3, (1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (20.0, 20.0)) for each in (at_once, late)]
    assert held[0] < held[1]


def test_fewer_micro_batches_than_the_phases_need_are_refused() -> None:
    with pytest.raises(ValueError, match="6 micro-batches are fewer than 7"):
        order(folded(4, 6), 0)
    with pytest.raises(ValueError, match="no precedence graph"):
        precedence(folded(4, 8))


@given(st.integers(2, 6), st.integers(1, 20))
def test_gpipe_holds_all_micro_batches_and_fills_the_pipeline_twice(stages: int, micro_batches: int) -> None:
    schedule = Schedule(stages=stages, chunks=1, micro_batches=micro_batches, group=stages, kind=GPIPE)
    pipeline = even(schedule, 1.0, 2.0, 0.0)
    assert max(simulate(pipeline)) == 3 * (micro_batches + stages - 1)
    assert finish(pipeline, Middle.BUSIEST) == 3 * (micro_batches + stages - 1)
    assert peak(schedule, 0, (1.0,), (1.0,), (0.0,)) == micro_batches
