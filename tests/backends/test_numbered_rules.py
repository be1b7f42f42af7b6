"""What upstream refuses or changes, number by number: each has a rule here, or a reason why it has none."""

from pathlib import Path

import pytest

from launcher.mapping.backend import get_backend
from launcher.rules.diagnostics import DIAGNOSTICS
from launcher.rules.engine import load
from launcher.rules.registry import RULES

NUMBERS = {
    "megatron": [*map(str, range(1, 59)), *"abcdefghij"],
    "mindformers": [*map(str, range(1, 68)), *(f"S{number}" for number in range(1, 10))],
}


def rows(backend: str) -> list[list[str]]:
    text = (Path(__file__).parent / backend / "numbered_rules.txt").read_text(encoding="utf-8")
    return [[part.strip() for part in line.split("|||")] for line in text.splitlines() if not line.startswith("#")]


ROWS = [(backend, row) for backend in NUMBERS for row in rows(backend)]


@pytest.mark.parametrize("backend", NUMBERS)
def test_every_number_is_there_once(backend):
    assert [row[0] for row in rows(backend)] == NUMBERS[backend]


@pytest.mark.parametrize(("backend", "row"), ROWS, ids=[f"{backend} {row[0]}" for backend, row in ROWS])
def test_a_number_has_rules_or_a_reason(backend, row):
    number, what, rules, reason = row
    load(get_backend(backend).rules)
    if rules == "-":
        assert reason
        return
    severities = {_severity(name, backend) for name in rules.split()}
    if what.startswith("R ") or number in ("S8", "S9"):
        assert "error" in severities or number == "8"
    if what.startswith("S ") or number.startswith("S"):
        assert severities & {"change", "warning", "error"}


def _severity(name: str, backend: str) -> str:
    if name in DIAGNOSTICS:
        return DIAGNOSTICS[name].severity
    rule = RULES[name]
    assert any(rule.applies_to(backend, version) for version in get_backend(backend).versions), name
    return rule.severity
