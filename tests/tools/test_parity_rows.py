"""docs/parity.md is what was measured; every job of the matrix is one that the reference computes."""

from typing import Any

import pytest

from launcher.job import Job, with_values
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.parity.samples import reference_lacks
from launcher.parity.sides import side_of
from launcher.pipeline import judge
from launcher.rules.computations import RULE as COMPUTES
from launcher.rules.computations import computed_differently
from launcher.rules.effective import EffectiveValues
from launcher.rules.native import effective_of
from tools.parity.__main__ import PAGE, _cell
from tools.parity.case import ITERATIONS
from tools.parity.kinds import case_of, names
from tools.parity.rows import ROWS, Cell, page, read

AGREES: dict[str, Any] = {
    "side": "a",
    "agrees": True,
    "largest_relative_difference": {"loss": 1e-7, "grad_norm": 2e-7},
    "differs_at": None,
    "problem": None,
}


def moved(relative: float | None, **values: Any) -> dict[str, Any]:
    tensor = {"tensor": "model.norm.weight", "relative_to_movement": relative, "tolerance": 1e-3, "tensors": 9}
    return {"parameters": {"a": {**tensor, "problem": None, **values}}, "located": {}}


def test_the_page_is_what_was_measured() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(read(ROWS))
    assert set(read(ROWS)) <= set(names())
    assert len(names()) == len(set(names()))


@pytest.mark.sample(keep=20)
@pytest.mark.parametrize("name", names())
def test_the_reference_computes_every_job(name: str) -> None:
    case = case_of(name)
    side = side_of(
        case.words, "megatron_lm", entry="native", python=None, environ={}, config_dirs=(), iterations=ITERATIONS
    )
    assert reference_lacks(side.job) == []


DIFFERENT = [
    (row.name, backend)
    for row in read(ROWS).values()
    for backend, cell in row.cells.items()
    if cell.loss is not None and not cell.agrees
]


@pytest.mark.parametrize(("name", "backend"), DIFFERENT)
def test_what_differs_is_a_finding_of_the_job(name: str, backend: str) -> None:
    case = case_of(name)
    words = [*case.words, *(["data.eod_mask_loss=true"] if backend != "megatron" else [])]  # as `launch parity` adds
    side = side_of(words, backend, entry="native", python=None, environ={}, config_dirs=(), iterations=ITERATIONS)
    causes = case.causes[backend]
    assert causes
    found = {each.rule for each in judge(side.job).findings}
    if any(cause.startswith(f"{COMPUTES}-") for cause in causes):
        plain = with_values(side.job, {"backend.name": "megatron_lm", "backend.version": None})
        found |= {each.rule for each in computed_differently([effective_values(plain), effective_values(side.job)])}
    assert set(causes) <= found


def effective_values(job: Job) -> EffectiveValues:
    backend = get_backend(str(job.backend.name))
    version = job.backend.version or backend.default_version
    prepared = backend.prepare(job, version)
    return effective_of(prepared, backend, version, translate(prepared, backend, version).native)


def test_a_cell_shows_loss_gradient_norm_and_parameters() -> None:
    cell = _cell(AGREES, moved(5e-6))
    assert cell.agrees
    assert cell.text() == "1e-07 / 2e-07 / 5e-06"


def test_parameters_that_differ_make_the_row_differ() -> None:
    apart = _cell(AGREES, moved(2e-3))
    assert not apart.agrees
    assert apart.text() == "**1e-07 / 2e-07 / 2e-03**; parameter model.norm.weight"
    endless = _cell(AGREES, moved(None))
    assert not endless.agrees
    assert endless.text().startswith("**1e-07 / 2e-07 / ∞**")


def test_parameters_that_were_not_compared_are_told() -> None:
    cell = _cell(AGREES, moved(0.0, tensor=None, problem="no checkpoint was saved"))
    assert not cell.agrees
    assert "no checkpoint was saved" in cell.text()


def test_a_refusal_and_a_failure_do_not_agree() -> None:
    failed = _cell({**AGREES, "agrees": False, "problem": "exit code 1"}, moved(0.0))
    assert not failed.agrees
    assert failed.text() == "failed: exit code 1"
    assert Cell(agrees=False, note="refused: because").text() == "refused: because"
