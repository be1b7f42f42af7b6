"""What ms-swift leaves of the arguments: recorded from its own classes, and beside them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.backends.effective import Compared
from tests.backends.megatron.effective_real import bases, compare, compared, lines, made
from tests.backends.mutated import Line
from tests.rehearse.native.environments import swift_python
from tests.sampling import fuzz_seed, trials

RECORDED = json.loads((Path(__file__).parent / "effective.json").read_text(encoding="utf-8"))["4.6.0"]
BASES = [name for name in RECORDED if name != "cases"]
CASES = [*({"base": base, "changes": "", "changed": {}} for base in BASES), *RECORDED["cases"]]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Line]:
    return bases(tmp_path_factory.mktemp("models"))


def of_case(case: Mapping[str, Any], first: Mapping[str, Line]) -> Compared:
    real = {dest: pair for dest, pair in (RECORDED[case["base"]] | case["changed"]).items() if pair is not None}
    found = compared(made(first, case["base"], case["changes"]), real)
    assert found is not None
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['base']} {case['changes']}")
def test_values_after_validation_are_the_real_ones(case: Mapping[str, Any], first: Mapping[str, Line]) -> None:
    assert [change for change in of_case(case, first).found if change.kind != "same"] == []


@pytest.mark.slow
def test_drawn_command_lines_change_as_they_really_do(tmp_path: Path) -> None:
    drawn = lines(trials(100), fuzz_seed(), tmp_path)
    found = compare(drawn, swift_python())
    assert len(found) > len(drawn) / 2
    assert [change for one in found for change in one.found if change.kind != "same"] == []
