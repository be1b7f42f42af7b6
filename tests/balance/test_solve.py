"""The balance of a pipeline: held against published answers and against trying every split."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.balance.problem import BadProblem, Fixed, Kind, Mode, Problem, Split

pytest.importorskip("highspy")

from launcher.balance.solve import Balanced, Infeasible, balance_any
from launcher.balance.taylor import Ratios, taylor_problem
from launcher.balance.timing import pipeline_of, seconds
from launcher.pipeline_schedule.precedence import precedence
from launcher.pipeline_schedule.simulation import simulate
from tests.sampling import examples


def balance(problem: Problem, **options: Any) -> Balanced:
    return balance_any([problem], **options)[1]


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


@pytest.mark.slow
@pytest.mark.sample(keep=1)
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
    assert [sum(map(sum, modes)) for modes in found.split.counts] == [3, 59]
    assert all(used <= limit for used, limit in zip(found.memory, problem.limits, strict=True))


@pytest.mark.slow
def test_the_case_that_took_forty_minutes_is_solved_within_one_percent_of_the_bound() -> None:
    """Taylor's t6: 8 stages of 4 chunks, 240 micro-batches; 5562.66 ± 20 is its own answer."""
    sizes = (988, 1346, 832, 1347, 92, 316, 1109, 3670)
    problem = taylor_problem(
        stages=8,
        chunks=4,
        micro_batches=240,
        dense_layers=3,
        moe_layers=59,
        ratios=Ratios(backward=1.627, dense=0.71, head=1.493, recompute=0.246),
        memory=dict(zip(_KINDS, sizes, strict=True)) | dict(zip(_LIMITS, (49858, 52632, 42894), strict=True)),
        few_in_flight=False,
        quirks=True,
    )
    found = balance(problem, seconds=120, gap=1e-3, quick=True)
    assert found.time <= 5562.66 + 20
    assert found.gap <= 0.01


def _splits(problem: Problem) -> Iterator[Split]:
    """Yield every split of a small problem."""
    parts = range(problem.parts)
    for layers in itertools.product(range(problem.layers + 1), repeat=problem.parts):
        if sum(layers) != problem.layers:
            continue
        if any(count < (0 if c in problem.may_be_empty else problem.fewest) for c, count in enumerate(layers)):
            continue
        dealt, left = [], [kind.count for kind in problem.kinds]
        for count in layers:
            row = []
            for index in range(len(left)):
                taken = min(count, left[index])
                left[index] -= taken
                count -= taken
                row.append(taken)
            dealt.append(row)
        for chosen in itertools.product(*(_treatments(problem, row) for row in dealt)):
            yield Split(
                counts=tuple(
                    tuple(tuple(chosen[c][k][m] for c in parts) for m in range(len(kind.modes)))
                    for k, kind in enumerate(problem.kinds)
                )
            )


def _treatments(problem: Problem, row: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    """Return every way to treat the layers of a chunk: numbers by kind and mode."""
    ways = [
        [w for w in itertools.product(range(count + 1), repeat=len(kind.modes)) if sum(w) == count]
        for kind, count in zip(problem.kinds, row, strict=True)
    ]
    return [way for way in itertools.product(*ways) if _is_allowed(problem, way)]


def _is_allowed(problem: Problem, way: tuple[tuple[int, ...], ...]) -> bool:
    if problem.in_order:
        # Layer by layer, none is recomputed further than the one before it.
        depths = [mode for kind in way for mode in range(len(kind) - 1, -1, -1) for _ in range(kind[mode])]
        return depths == sorted(depths, reverse=True)
    used = {mode for kind in way for mode in range(1, len(kind)) if kind[mode]}
    return len(used) < 2 or not problem.one_mode_a_chunk


def _best(problem: Problem) -> float | None:
    """Return the least time over every split of a problem whose schedule is laid out in full."""
    in_flight = precedence(problem.schedule).in_flight
    times = []
    for split in _splits(problem):
        memory = split.memory(problem, in_flight)
        if all(used <= limit + 1e-9 for used, limit in zip(memory, problem.limits, strict=True)):
            times.append(seconds(problem, split))
    return min(times, default=None)


@st.composite
def small_problems(draw: st.DrawFn) -> Problem:
    stages, chunks = draw(st.sampled_from([(2, 1), (3, 1), (2, 2)]))
    times = st.integers(1, 9).map(lambda n: n / 3)

    def kind(name: str, count: int) -> Kind:
        forward, backward, again, keeps = draw(times), draw(times), draw(times), draw(st.integers(2, 9))
        least = draw(st.integers(0, keeps))
        modes = [
            Mode(name="none", backward=backward, keeps=keeps),
            Mode(name="selective", backward=backward + draw(times), keeps=draw(st.integers(least, keeps))),
            Mode(name="full", backward=backward + again, keeps=least),
        ]
        chosen = tuple(modes if in_part else modes[::2])
        return Kind(name=name, count=count, forward=forward, memory=draw(st.integers(0, 5)), modes=chosen)

    in_part = draw(st.booleans())
    kinds = (kind("dense", draw(st.integers(1, 2))), kind("moe", draw(st.integers(2, 3 if in_part else 4))))
    limit = st.integers(15, 80).map(float)
    return Problem(
        stages=stages,
        chunks=chunks,
        micro_batches=draw(st.integers(1, 2 * stages + 1)),
        kinds=kinds,
        limits=tuple(draw(limit) for _ in range(stages)),
        fixed={stages * chunks - 1: Fixed(forward=draw(times), backward=draw(times), keeps=1.0)},
        transfer=draw(st.sampled_from([0.0, 0.5])),
        fewest=draw(st.sampled_from([0, 1])),
        in_order=draw(st.booleans()),
        one_mode_a_chunk=draw(st.booleans()),
    )


@examples(40)
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
    assert balance(problem, quick=True).bound <= best * (1 + 1e-6)


@examples(15)
@given(small_problems())
def test_of_several_problems_the_best_split_is_found_and_the_bound_holds_for_all(problem: Problem) -> None:
    if problem.layers < problem.fewest * problem.parts:
        return
    kinds = tuple(replace(kind, modes=(kind.modes[0], kind.modes[-1])) for kind in problem.kinds)
    plain = replace(problem, kinds=kinds)
    problems = [replace(plain, covered=0), replace(plain, covered=1), replace(plain, covered=9), problem]
    times = []
    for each in problems:
        try:
            times.append(balance(each, gap=1e-6).time)
        except Infeasible:
            times.append(float("inf"))
    if min(times) == float("inf"):
        with pytest.raises(Infeasible):
            balance_any(problems)
        return
    number, found = balance_any(problems, gap=1e-6)
    assert found.time == pytest.approx(min(times), rel=1e-5)
    assert times[number] == pytest.approx(min(times), rel=1e-5)
    assert found.optimal
    assert balance_any(problems, quick=True)[1].bound <= min(times) * (1 + 1e-6)


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
    ("change", "arg"),
    [
        ({"micro_batches": 0}, "micro-batches must be at least 1"),
        ({"limits": (1.0,)}, "1 memory limits for 4 stages"),
        ({"stages": 0}, "stages must be at least 1"),
        ({"chunks": 8}, "cannot fill 32 chunks"),
    ],
)
def test_contradictory_figures_are_refused(change: dict[str, object], arg: str) -> None:
    with pytest.raises(BadProblem, match=arg):
        balance(replace(_dense(4, 1, 8, 16, limit=100.0), **change))  # type: ignore[arg-type]


def test_a_first_chunk_with_the_embedding_alone_is_used_where_allowed() -> None:
    problem = _dense(2, 2, 8, 9, limit=1e6)
    heavy = replace(problem, fixed={0: Fixed(forward=5, backward=5)})
    assert balance(heavy).split.layers()[0] >= 1
    assert balance(replace(heavy, may_be_empty=frozenset({0}))).split.layers()[0] == 0


@pytest.mark.parametrize(("stages", "chunks", "micro_batches"), [(4, 1, 2), (8, 1, 1), (4, 2, 3)])
def test_fewer_micro_batches_than_stages_all_run_in_the_only_round(
    stages: int, chunks: int, micro_batches: int
) -> None:
    problem = _dense(stages, chunks, micro_batches, 16, limit=1e6)
    assert len(precedence(problem.schedule).chunk_of) == 2 * stages * chunks * micro_batches
    found = balance(problem, gap=1e-6)
    assert found.time == pytest.approx(seconds(problem, found.split))
    # Each micro-batch passes 16 layers of 1 + 2; those after the first wait at most for the largest stage.
    assert found.time >= 16 * 3


@pytest.mark.slow
@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_the_periodic_middle_of_a_long_step_costs_one_period_a_round(chunks: int) -> None:
    problem = _dense(4, chunks, 64, 32, limit=1e6)
    found = balance(problem)
    whole = max(simulate(pipeline_of(problem, found.split)))
    assert found.time == pytest.approx(whole, rel=2e-3)


@examples(15)
@given(small_problems())
def test_the_program_that_is_written_for_other_solvers_has_the_same_optimum(problem: Problem) -> None:
    from launcher.balance.mip_export import whole_program

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
