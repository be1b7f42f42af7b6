"""What MindSpeed-LLM's validation leaves of the arguments, recorded from the real one (tools.bench.effective)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.backends.effective import changed_by
from tests.backends.megatron_lm import effective as drawn

RECORDED = json.loads((Path(__file__).parent / "effective.json").read_text(encoding="utf-8"))
CASES = [
    pytest.param(version, case, id=f"{version} {case['base']} {case['changes']}")
    for version, found in RECORDED.items()
    for case in ({"base": "dense", "changes": "", "changed": {}}, *found["cases"])
]


@pytest.mark.parametrize(("version", "case"), CASES)
def test_values_after_validation_are_the_real_ones(version: str, case: dict[str, Any]) -> None:
    changes = RECORDED[version][case["base"]] | case["changed"]
    real = {dest: values for dest, values in changes.items() if values is not None}
    line = drawn.made("mindspeed", version, case["changes"], moe=case["base"] == "moe")
    found = changed_by(line, real, "mindspeed", version)
    assert found is not None
    assert [change for change in found.found if change.kind != "same"] == []
