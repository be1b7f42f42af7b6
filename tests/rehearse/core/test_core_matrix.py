"""Layouts of the matrix: refused by `launch check`, or trained like one process, as their rows say."""

import pytest
from core_world import Zygote

from tools.bench.rehearsal_layouts import Layout
from tools.bench.rehearsal_matrix import cases, expected
from tools.bench.rehearsal_runs import NoTraining, Rehearsals, checked, job_of

CASES = [pytest.param(kind, layout, id=f"{kind}: {layout.name}") for kind, layout in cases()]


@pytest.fixture(scope="module")
def rehearsals(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Rehearsals:
    """What trains, and keeps the trainings of one process for all cases."""
    return Rehearsals(zygote, tmp_path_factory.mktemp("matrix"))


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("kind,layout", CASES)
def test_check_accepts_and_refuses_what_the_matrix_says(kind: str, layout: Layout) -> None:
    if kind in layout.on:
        assert checked(job_of(kind, layout)).ok
        return
    with pytest.raises(NoTraining, match=r"refused by check: [A-Z]"):
        checked(job_of(kind, layout))


@pytest.mark.slow
@pytest.mark.sample(keep=8)
@pytest.mark.parametrize("kind,layout", [case for case in CASES if case.values[0] in case.values[1].on])
def test_a_layout_trains_as_the_matrix_says(rehearsals: Rehearsals, kind: str, layout: Layout) -> None:
    result = rehearsals.compare(kind, layout)
    assert expected(kind, layout, result), result


@pytest.mark.slow
def test_a_layout_that_differs_is_noticed(rehearsals: Rehearsals) -> None:
    """Context-parallel ranks with multi-token prediction: the smallest difference that upstream is known for."""
    result = rehearsals.compare("mtp", Layout(words="cp=2", on=("mtp",)))
    assert result.loss is not None
    assert result.loss > 1e-5
