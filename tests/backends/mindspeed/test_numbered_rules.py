"""Upstream's validators, case by case: each of 258 verdicts has a rule here, or a reason why it has none."""

from pathlib import Path

import pytest

from launcher.mapping.backend import get_backend
from launcher.rules.diagnostics import DIAGNOSTICS
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from tests.backends.megatron_lm import rule_cases

VERSION = "26.1.0"
load(get_backend("mindspeed").rules)
ROWS = [
    [part.strip() for part in line.split("|||")]
    for line in (Path(__file__).parent / "numbered_rules.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
# The MindSpeed-LLM parameter guide (§26) refuses what upstream no longer does; both verdicts are those of other rules
# by design.
STRICTER = {"MS-RC-ACTIVATION-SELECTIVE", "MS-RC-NORM-UNIFORM", "MS-RC-PER-RANK"}
# Two switches that upstream merges without a word are told here, and one that it silently lets win is refused.
OTHER = {"MS-MTP-CP-PASSES": "warning", "MS-EXPERT-WIDTH-TWICE": "warning"}


def test_every_number_is_there_once():
    assert [int(row[0]) for row in ROWS] == list(range(1, 259))


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_case_has_a_rule_of_its_severity_or_a_reason(row):
    _, _, verdict, rules, more = row
    if rules == "-":
        assert more
        return
    for name in rules.split():
        if name in DIAGNOSTICS:
            assert DIAGNOSTICS[name].severity == verdict
            continue
        assert RULES[name].applies_to("mindspeed", VERSION), name
        if name in STRICTER:
            assert verdict == "accepted"
            assert RULES[name].is_stricter(VERSION)
        elif name not in OTHER:
            assert RULES[name].severity == verdict, name


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row[4].split(" ")[0].startswith(("-", "moe"))], ids=lambda r: r[0]
)
def test_a_command_line_gets_upstreams_verdict(row):
    _, _, verdict, rules, line = row
    found = rule_cases.broken_by("mindspeed", VERSION, line.removeprefix("moe "), moe=line.startswith("moe "))
    if verdict == "accepted":
        assert "error" not in found.values(), found
    else:
        assert set(rules.split()) & set(found), found
