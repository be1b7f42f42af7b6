"""The schedule is Megatron-core's, the simulator obeys it, and every closed form and bound is held to the simulator."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.pipeline_schedule import bounds
from launcher.pipeline_schedule.in_flight import maxima, most_in_flight, peak, peak_of
from launcher.pipeline_schedule.long_step import Middle, finish, rounds, shortened
from launcher.pipeline_schedule.order import Schedule, groups, order, warm_up
from launcher.pipeline_schedule.precedence import precedence
from launcher.pipeline_schedule.simulation import Event, Pipeline, simulate, timeline
from tests.sampling import examples


@st.composite
def schedules(draw: st.DrawFn, most: int = 40) -> Schedule:
    stages = draw(st.integers(1, 6))
    return Schedule(
        stages=stages,
        chunks=draw(st.integers(1, 4)),
        micro_batches=draw(st.integers(1, most)),
        group=draw(st.integers(stages, 2 * stages + 1)),
        few_in_flight=draw(st.booleans()),
    )


@st.composite
def pipelines(draw: st.DrawFn, most: int = 40, transfers: tuple[float, ...] = (0.0, 0.25)) -> Pipeline:
    schedule = draw(schedules(most))
    numbers = schedule.stages * schedule.chunks
    times = st.lists(st.integers(1, 9).map(lambda n: n / 4), min_size=numbers, max_size=numbers).map(tuple)
    return Pipeline(
        schedule=schedule,
        forward=draw(times),
        backward=draw(times),
        transfer=draw(st.sampled_from(transfers)),
        blocking=draw(st.booleans()),
    )


def of(*, stages: int, chunks: int = 1, micro_batches: int, group: int | None = None) -> Schedule:
    return Schedule(stages=stages, chunks=chunks, micro_batches=micro_batches, group=group or stages)


def loads(pipeline: Pipeline) -> list[float]:
    stages = pipeline.schedule.stages
    return [sum(pipeline.forward[stage::stages]) + sum(pipeline.backward[stage::stages]) for stage in range(stages)]


def test_interleaved_order_is_that_of_megatron_core() -> None:
    """Two stages, two chunks, four micro-batches; stage 0 warms up with (2 - 0 - 1) * 2 + (2 - 1) * 2 = 4 steps."""
    steps = order(of(stages=2, chunks=2, micro_batches=4), 0)
    letters = ["B" if backward else "F" for backward, _, _ in steps]
    assert "".join(letters) == "FFFF" + "FB" * 4 + "BBBB"
    forward = [(micro, chunk) for backward, micro, chunk in steps if not backward]
    assert forward[:6] == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0)]
    assert [(micro, chunk) for backward, micro, chunk in steps if backward][:4] == [(0, 1), (1, 1), (0, 0), (1, 0)]


@pytest.mark.parametrize(("pp", "vpp", "group"), [(2, 2, 2), (4, 2, 4), (4, 4, 4), (8, 3, 8), (4, 2, 6)])
def test_interleaved_stages_hold_their_warm_up_and_one_more(pp: int, vpp: int, group: int) -> None:
    """Megatron-core 0.16.1 get_pp_rank_microbatches: 2 (pp - rank - 1) + (vpp - 1) group, then a forward before each
    backward; a chunk keeps one unit and needs nothing else."""
    schedule = of(stages=pp, chunks=vpp, micro_batches=4 * group, group=group)
    for stage in range(pp):
        lead = 2 * (pp - stage - 1) + (vpp - 1) * group
        assert warm_up(schedule, stage) == lead
        assert peak(schedule, stage, [1.0] * vpp, [1.0] * vpp, [1.0] * vpp) == lead + 1


def test_few_micro_batches_limit_what_interleaving_holds() -> None:
    assert peak(of(stages=4, chunks=4, micro_batches=4), 0, [1.0] * 4, [1.0] * 4, [1.0] * 4) == 16


def test_bubble_of_equal_stages_is_the_textbook_one() -> None:
    """1F1B without transfers: (pp - 1) of forward and backward; interleaved: a vpp-th of it."""
    for chunks in (1, 2):
        pipeline = Pipeline(
            schedule=of(stages=4, chunks=chunks, micro_batches=16),
            forward=(1.0 / chunks,) * 4 * chunks,
            backward=(2.0 / chunks,) * 4 * chunks,
            transfer=0.0,
            blocking=False,
        )
        assert max(simulate(pipeline)) == pytest.approx(16 * 3 + 3 * 3 / chunks)


@examples(100)
@given(schedules())
def test_every_chunk_runs_every_micro_batch_once_forward_then_backward(schedule: Schedule) -> None:
    assert [each for members in groups(schedule) for each in members] == list(range(schedule.micro_batches))
    for stage in range(schedule.stages):
        steps = order(schedule, stage)
        assert set(Counter(steps).values()) == {1}
        assert len(steps) == 2 * schedule.chunks * schedule.micro_batches
        place = {step: index for index, step in enumerate(steps)}
        assert all(place[False, *step[1:]] < index for step, index in place.items() if step[0])
        assert [step[0] for step in steps].index(True) == min(warm_up(schedule, stage) + 1, len(steps) // 2)


@examples(100)
@given(schedules(), st.data())
def test_memory_in_flight_is_that_of_the_whole_order(schedule: Schedule, data: st.DataObject) -> None:
    """The closed form of 1F1B, the shortened interleaved step and the Pareto maxima, against every step."""
    sizes = st.lists(st.integers(0, 9).map(float), min_size=schedule.chunks, max_size=schedule.chunks)
    keeps, forward, backward = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    for stage in range(schedule.stages):
        steps = order(schedule, stage)
        live = list(accumulate(-1 if step[0] else 1 for step in steps))
        assert most_in_flight(schedule, stage) == max(live)
        assert peak(schedule, stage, keeps, forward, backward) == peak_of(steps, keeps, forward, backward)
        most = max(
            sum(n * keep for n, keep in zip(each, keeps, strict=True)) for each in maxima(steps, schedule.chunks)
        )
        assert most == peak_of(steps, keeps, keeps, [0.0] * schedule.chunks)


@examples(100)
@given(pipelines())
def test_every_step_starts_when_its_stage_is_free_and_its_input_is_there(pipeline: Pipeline) -> None:
    """Against a recursion over the order of each stage and the way of each micro-batch, written independently."""
    schedule, transfer = pipeline.schedule, pipeline.transfer if pipeline.schedule.stages > 1 else 0.0
    stages, last = schedule.stages, schedule.stages * schedule.chunks - 1
    before = {
        (stage, *step): earlier
        for stage in range(stages)
        for earlier, step in zip((None, *order(schedule, stage)), order(schedule, stage), strict=False)
    }

    def sends(backward: int, number: int) -> bool:
        return number > 0 if backward else number < last

    @cache
    def end(backward: int, micro_batch: int, number: int) -> float:
        stage, chunk = number % stages, number // stages
        ready = 0.0
        if backward and number == last:
            ready = end(False, micro_batch, number)
        elif backward or number:
            ready = end(backward, micro_batch, number + (1 if backward else -1)) + transfer
        earlier = before[stage, backward, micro_batch, chunk]
        free = 0.0
        if earlier is not None:
            own = earlier[2] * stages + stage
            free = end(*earlier[:2], own) + (transfer if pipeline.blocking and sends(earlier[0], own) else 0.0)
        return max(ready, free) + (pipeline.backward if backward else pipeline.forward)[number]

    events = timeline(pipeline)
    assert len(events) == 2 * (last + 1) * schedule.micro_batches
    for event in sorted(events, key=lambda each: each.end):
        number = event.chunk * stages + event.stage
        assert event.end == pytest.approx(end(event.backward, event.micro_batch, number))
        assert event.end - event.start == pytest.approx(
            (pipeline.backward if event.backward else pipeline.forward)[number]
        )
    assert max(event.end for event in events) == pytest.approx(max(simulate(pipeline)))


@examples(100)
@given(pipelines())
def test_the_graph_for_linear_programs_has_the_simulated_times(pipeline: Pipeline) -> None:
    if pipeline.blocking:
        return  # The graph has no such sends.
    graph = precedence(pipeline.schedule)
    durations = [(pipeline.forward + pipeline.backward)[chunk] for chunk in graph.chunk_of]
    start = [0.0] * len(durations)
    for _ in durations:
        changed = False
        for (first, second), sent in zip(graph.arcs, graph.sends, strict=True):
            ready = start[first] + durations[first] + (pipeline.transfer if sent else 0.0)
            if ready > start[second]:
                start[second], changed = ready, True
        if not changed:
            break
    period = max((start[last] - start[before] for last, before in graph.period), default=0.0)
    total = start[graph.end] + durations[graph.end] + graph.repeated * period
    assert finish(pipeline, Middle.PERIOD) == pytest.approx(total)


@examples(100)
@given(pipelines())
def test_no_step_is_faster_than_its_bounds(pipeline: Pipeline) -> None:
    count, stages = pipeline.schedule.micro_batches, pipeline.schedule.stages
    time, busy = max(simulate(pipeline)), loads(pipeline)
    assert bounds.even_stages(sum(busy), count / stages) <= bounds.busiest_stage(max(busy), count) + 1e-9
    assert bounds.busiest_stage(max(busy), count) <= time + 1e-9
    if pipeline.schedule.chunks == 1:
        own = bounds.one_chunk_stages(sum(busy), count, stages)
        assert bounds.even_stages(sum(busy), count / stages) <= own + 1e-9
        assert own <= time + 1e-9


@st.composite
def even_pipelines(draw: st.DrawFn) -> Pipeline:
    """Pipelines of chunks that differ by up to a tenth, backwards twice as long, transfers short."""
    stages, chunks = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    numbers = stages * chunks
    times = st.lists(st.floats(0.9, 1.1), min_size=numbers, max_size=numbers)
    return Pipeline(
        schedule=of(stages=stages, chunks=chunks, micro_batches=draw(st.integers(1, 120))),
        forward=tuple(draw(times)),
        backward=tuple(2 * seconds for seconds in draw(times)),
        transfer=draw(st.sampled_from((0.0, 0.05))),
        blocking=draw(st.booleans()),
    )


@examples(100)
@given(even_pipelines())
def test_long_steps_of_even_stages_are_simulated_in_short(pipeline: Pipeline) -> None:
    schedule, exact = pipeline.schedule, max(simulate(pipeline))
    assert finish(pipeline, Middle.SIMULATED) == pytest.approx(exact)
    assert finish(pipeline, Middle.BUSIEST) == pytest.approx(
        exact, rel=1e-9 if shortened(schedule) == schedule else 0.05
    )
    if not pipeline.blocking:
        assert finish(pipeline, Middle.PERIOD) == pytest.approx(exact, rel=0.01 if rounds(schedule)[1] else 1e-9)


@examples(100)
@given(pipelines(most=120, transfers=(0.0, 0.25, 2.0)))
def test_a_short_simulation_keeps_the_bounds(pipeline: Pipeline) -> None:
    """Stages may be as uneven as they like; only hidden transfers and interleaved chunks can make it too short."""
    schedule, exact = pipeline.schedule, max(simulate(pipeline))
    busiest, period = finish(pipeline, Middle.BUSIEST), finish(pipeline, Middle.PERIOD)
    assert min(busiest, period) >= bounds.busiest_stage(max(loads(pipeline)), schedule.micro_batches) - 1e-9
    if schedule.chunks == 1 and (pipeline.blocking or not pipeline.transfer):
        assert busiest >= exact - 1e-9
        assert period == pytest.approx(exact)


@examples(200)
@given(pipelines(transfers=(0.0, 0.25, 2.0)), st.integers(0, 12), st.integers(2, 8))
def test_more_rounds_cost_what_one_more_round_shifts_start_times_by(pipeline: Pipeline, rest: int, more: int) -> None:
    """The steady state that both short simulations rest on, for any durations, transfers and groups.

    The steps of the first round are left out: their order is that of the warm-up.
    """
    group = pipeline.schedule.group
    count = 5 * group + rest % group

    def longer(by: int) -> Pipeline:
        return replace(pipeline, schedule=replace(pipeline.schedule, micro_batches=count + by * group))

    def key(event: Event, later: int) -> tuple[bool, int, int, int]:
        return event.backward, event.stage, event.chunk, event.micro_batch + later

    after = {key(event, 0): event.start for event in timeline(longer(1))}
    first = count - 4 * group
    shifts = [after[key(e, group)] - e.start for e in timeline(longer(0)) if e.micro_batch >= first]
    time, exact = max(simulate(longer(0))), max(simulate(longer(more)))
    assert time + more * min(shifts) <= exact + 1e-9
    assert exact <= time + more * max(shifts) + 1e-9
