"""The balance of a pipeline: held against published answers and against trying every split."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.balance.problem import BadProblem, Fixed, Kind, Mode, Problem, Split
from launcher.balance.schedule import schedule
from launcher.balance.taylor import Ratios, taylor_problem

pytest.importorskip("highspy")

from launcher.balance.solve import Infeasible, balance
from launcher.balance.timing import simulate

# Unit tests of fast-tuner (mindspore-ai/hyper-parallel fdd0a80, unit_tests/pipeline_alg_test.py): megabytes.
_KINDS = (
    "act_mem0",
    "act_mem",
    "select_mem0",
    "select_mem",
    "re_comp_mem0",
    "re_comp_mem",
    "layer_mem012",
    "layer_mem",
)
_LIMITS = ("mem_lim_stage0", "mem_lim_others", "mem_lim_last")
PUBLISHED = {
    "t1": ((16, 64), (1.839, 0.397, 1.5, 1), (479, 765, 400, 765, 30, 30, 866, 10691), (51913, 52914, 46621), 1132.66),
    "t2": (
        (6, 120),
        (1.627, 0.71, 1.493, 0.246),
        (494, 673, 416, 674, 46, 158, 1010, 2644),
        (53101, 55065, 48876),
        3603.39,
    ),
    "t3": (
        (16, 960),
        (1.627, 0.71, 1.493, 0.246),
        (614, 738, 480, 737, 78, 190, 130, 7230),
        (51555, 54134, 49405),
        10943.91,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_answers_are_found_and_proven(name: str) -> None:
    (stages, micro_batches), (backward, dense, head, recompute), sizes, limits, objective = PUBLISHED[name]
    problem = taylor_problem(
        stages=stages,
        chunks=1,
        micro_batches=micro_batches,
        dense_layers=3,
        moe_layers=59,
        ratios=Ratios(backward=backward, dense=dense, head=head, recompute=recompute),
        memory=dict(zip(_KINDS, sizes, strict=True)) | dict(zip(_LIMITS, limits, strict=True)),
        quirks=True,
    )
    found = balance(problem, gap=1e-5)
    assert found.time == pytest.approx(objective, rel=1e-4)
    assert found.optimal
    assert found.bound <= found.time
    assert sum(found.split.of_kind(0)) == 3
    assert sum(found.split.of_kind(1)) == 59
    assert all(used <= limit for used, limit in zip(found.memory, problem.limits, strict=True))


def _splits(problem: Problem) -> Iterator[Split]:
    """Yield every split of a small problem."""
    parts = range(problem.parts)
    for layers in itertools.product(range(problem.layers + 1), repeat=problem.parts):
        if sum(layers) != problem.layers:
            continue
        if any(count < (0 if c in problem.may_be_empty else problem.fewest) for c, count in enumerate(layers)):
            continue
        kinds, left = [], [kind.count for kind in problem.kinds]
        for count in layers:
            row = []
            for index in range(len(left)):
                taken = min(count, left[index])
                left[index] -= taken
                count -= taken
                row.append(taken)
            kinds.append(row)
        ways = [range(kinds[c][k] + 1) for k in range(len(problem.kinds)) for c in parts]
        for again in itertools.product(*ways):
            full = [again[k * problem.parts : (k + 1) * problem.parts] for k in range(len(problem.kinds))]
            yield Split(
                counts=tuple(
                    (tuple(kinds[c][k] - full[k][c] for c in parts), tuple(full[k])) for k in range(len(problem.kinds))
                )
            )


def _skips(split: Split) -> bool:
    """Tell whether a chunk recomputes layers of the second kind while it keeps some of the first."""
    kept, again = split.counts[0][0], split.counts[1][1]
    return any(first and second for first, second in zip(kept, again, strict=True))


def _best(problem: Problem) -> float | None:
    """Return the least time over every split of a problem whose schedule is laid out in full."""
    steps = schedule(problem.stages, problem.chunks, problem.micro_batches, problem.few_in_flight)
    times = []
    for split in _splits(problem):
        memory = split.memory(problem, steps.in_flight)
        if problem.in_order and _skips(split):
            continue
        if all(used <= limit + 1e-9 for used, limit in zip(memory, problem.limits, strict=True)):
            forward, backward = split.durations(problem)
            times.append(simulate(problem, steps, [*forward, *backward]))
    return min(times, default=None)


@st.composite
def small_problems(draw: st.DrawFn) -> Problem:
    stages, chunks = draw(st.sampled_from([(2, 1), (3, 1), (2, 2)]))
    times = st.integers(1, 9).map(lambda n: n / 3)

    def kind(name: str, count: int) -> Kind:
        forward, backward, again, keeps = draw(times), draw(times), draw(times), draw(st.integers(2, 9))
        modes = (
            Mode(name="none", backward=backward, keeps=keeps),
            Mode(name="full", backward=backward + again, keeps=draw(st.integers(0, keeps))),
        )
        return Kind(name=name, count=count, forward=forward, memory=draw(st.integers(0, 5)), modes=modes)

    kinds = (kind("dense", draw(st.integers(1, 2))), kind("moe", draw(st.integers(2, 4))))
    limit = st.integers(15, 80).map(float)
    return Problem(
        stages=stages,
        chunks=chunks,
        micro_batches=draw(st.integers(stages, 2 * stages + 1)),
        kinds=kinds,
        limits=tuple(draw(limit) for _ in range(stages)),
        fixed={stages * chunks - 1: Fixed(forward=draw(times), backward=draw(times), keeps=1.0)},
        transfer=draw(st.sampled_from([0.0, 0.5])),
        fewest=draw(st.sampled_from([0, 1])),
        in_order=draw(st.booleans()),
    )


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_no_split_is_better_than_the_one_found(problem: Problem) -> None:
    if problem.layers < problem.fewest * problem.parts:
        with pytest.raises(BadProblem):
            balance(problem)
        return
    best = _best(problem)
    if best is None:
        with pytest.raises(Infeasible):
            balance(problem)
        return
    found = balance(problem, gap=1e-6)
    assert found.time == pytest.approx(best, rel=1e-5)
    assert found.optimal


def _dense(stages: int, chunks: int, micro_batches: int, layers: int, limit: float, keeps: float = 1.0) -> Problem:
    modes = (Mode(name="none", backward=2, keeps=keeps), Mode(name="full", backward=3, keeps=0.1 * keeps))
    return Problem(
        stages=stages,
        chunks=chunks,
        micro_batches=micro_batches,
        kinds=(Kind(name="dense", count=layers, forward=1, memory=1, modes=modes),),
        limits=(limit,) * stages,
    )


def test_the_same_number_of_recomputed_layers_everywhere_where_a_backend_knows_only_that() -> None:
    problem = replace(_dense(4, 1, 8, 16, limit=14.0), covered=2)
    found = balance(problem)
    assert all(
        again == min(2, count)
        for again, count in zip(found.split.in_mode(problem, "full"), found.split.layers(), strict=True)
    )


def test_infeasible_names_the_stage_and_what_it_lacks() -> None:
    with pytest.raises(Infeasible) as caught:
        balance(_dense(4, 1, 8, 16, limit=4.5))
    # All recomputed, 3, 4, 4 and 5 layers hold 4.2, 5.2, 4.8 and 5.5 with 4, 3, 2 and 1 micro-batches in flight.
    assert caught.value.stage == 3
    assert caught.value.lacking == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"micro_batches": 3}, "at least 4 micro-batches"),
        ({"limits": (1.0,)}, "1 memory limits for 4 stages"),
        ({"stages": 0}, "stages must be at least 1"),
        ({"chunks": 8}, "cannot fill 32 chunks"),
    ],
)
def test_contradictory_figures_are_refused(change: dict[str, object], word: str) -> None:
    with pytest.raises(BadProblem, match=word):
        balance(replace(_dense(4, 1, 8, 16, limit=100.0), **change))  # type: ignore[arg-type]


def test_a_first_chunk_with_the_embedding_alone_is_used_where_allowed() -> None:
    problem = _dense(2, 2, 8, 9, limit=1e6)
    heavy = replace(problem, fixed={0: Fixed(forward=5, backward=5)})
    assert balance(heavy).split.layers()[0] >= 1
    assert balance(replace(heavy, may_be_empty=frozenset({0}))).split.layers()[0] == 0


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_the_periodic_middle_of_a_long_step_costs_one_period_a_round(chunks: int) -> None:
    problem = _dense(4, chunks, 64, 32, limit=1e6)
    found = balance(problem)
    steps = schedule(4, chunks, 64, whole=True)
    forward, backward = found.split.durations(problem)
    assert found.time == pytest.approx(simulate(problem, steps, [*forward, *backward]), rel=2e-3)


@settings(max_examples=15, deadline=None)
@given(small_problems())
def test_the_program_that_is_written_for_other_solvers_has_the_same_optimum(problem: Problem) -> None:
    from launcher.balance.whole import whole_program

    if problem.layers < problem.fewest * problem.parts:
        return
    values, _ = whole_program(problem).solve(60.0, 1e-6)
    if values is None:
        with pytest.raises(Infeasible):
            balance(problem)
        return
    program = whole_program(problem)
    values, bound = program.solve(60.0, 1e-6)
    assert balance(problem, gap=1e-6).time == pytest.approx(bound, rel=1e-4)
