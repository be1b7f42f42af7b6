"""Effective values: `sets` of rules in the order of phases, each on what the rules before it left."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.mapping.backend import backend_names, get_backend
from launcher.rules.effective import effective_values, setting_rules
from launcher.rules.engine import load, run
from launcher.rules.registry import RULES, Rule, RuleContext
from launcher.rules.table import declare

_NAMES = {"layers": 4, "width": None, "heads": 8, "fused": True}
CATALOGUE = Catalogue(
    backend="toy",
    version="1.0",
    style="argparse",
    source="test",
    arguments=tuple(
        Argument(name=name, dest=name, type="int", default=default, has_default=True)
        for name, default in _NAMES.items()
    ),
)
ROWS = (
    Rule(
        id="TOY-LATE",
        phase="config",
        when="width>100",
        sets={"fused": False},
        severity="change",
        doc="Wide.",
        source="t",
    ),
    Rule(
        id="TOY-WIDTH",
        when="!width?",
        sets={"width": lambda context: 4 * context["heads"]},
        severity="change",
        doc="Four times the heads.",
        source="t",
    ),
    Rule(id="TOY-HEADS", phase="parse", when="layers>10", sets={"heads": "{layers}"}, severity="change", source="t"),
    Rule(
        id="TOY-SPELLING",
        when="layers<0",
        sets={"layers": None, "of-a-file": 1, "elsewhere": 1},
        reports_written=False,
        severity="change",
        source="t",
    ),
)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    declare(ROWS, backends=("toy",))
    yield
    for row in ROWS:
        del RULES[row.id]


def context(**values: object) -> RuleContext:
    return RuleContext(job=Job(), backend="toy", version="1.0", values=values, catalogue=CATALOGUE)


def of_the_toy(**values: object) -> list[Finding]:
    return [finding for finding in run(context(**values)) if finding.rule.startswith("TOY-")]


CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "nothing is written": ({}, {"layers": 4, "width": 32, "heads": 8, "fused": True}),
    "a later phase reads what an earlier one set": (
        {"layers": 32},
        {"layers": 32, "width": 128, "heads": 32, "fused": False},
    ),
    "what the catalogue lacks is set where it is written": (
        {"layers": -1, "of-a-file": 0},
        {"layers": None, "width": 32, "heads": 8, "fused": True, "of-a-file": 1},
    ),
    "a written value is not filled in": ({"width": 7}, {"layers": 4, "width": 7, "heads": 8, "fused": True}),
}


@pytest.mark.parametrize(("written", "namespace"), CASES.values(), ids=CASES)
def test_values_after_all_phases(written: dict[str, object], namespace: dict[str, object]) -> None:
    assert effective_values(context(**written)).namespace() == namespace


def test_a_written_value_that_changes_is_a_finding_and_a_default_is_none() -> None:
    assert of_the_toy(layers=32) == []
    (finding,) = of_the_toy(layers=32, heads=16)
    assert (finding.rule, finding.severity, finding.flags) == ("TOY-HEADS", "change", ("layers",))
    assert finding.message.startswith("--heads 16 → 32")


def test_another_spelling_of_what_is_written_is_no_finding() -> None:
    assert of_the_toy(layers=-1) == []


ORDER = """
import sys
from launcher.mapping.backend import get_backend
from launcher.rules.effective import setting_rules
from launcher.rules.engine import load
from launcher.rules.registry import RULES
for name in sys.argv[1:]:
    load(get_backend(name).rules)
for name in sorted(sys.argv[1:]):
    backend = get_backend(name)
    for version in backend.versions:
        print(name, version, *(rule.id for rule in setting_rules(name, version, len(RULES))))
"""


@pytest.mark.slow
def test_the_order_does_not_depend_on_what_was_loaded_before() -> None:
    names = backend_names()
    answers = {
        subprocess.run([sys.executable, "-c", ORDER, *order], capture_output=True, text=True, check=True).stdout
        for order in (names, names[::-1], sorted(names))
    }
    assert len(answers) == 1


def test_every_rule_that_sets_values_is_in_a_module_of_its_backend() -> None:
    for name in backend_names():
        load(get_backend(name).rules)
        rules = setting_rules(name, get_backend(name).default_version, len(RULES))
        assert not [rule.id for rule in rules if rule.module not in get_backend(name).rules]
