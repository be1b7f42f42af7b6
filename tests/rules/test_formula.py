"""What follows from the text of a rule: its formula, and the values with which it no longer is broken."""

from collections.abc import Iterator

import pytest

from launcher.job import Value
from launcher.mapping.backend import get_backend
from launcher.pipeline import variants_of
from launcher.rules.engine import load
from launcher.rules.formula import formula, settling_values
from launcher.rules.registry import RULES, Rule, RuleContext
from launcher.rules.table import declare
from tests.conftest import make_job

BACKEND = get_backend("megatron_lm")
load(BACKEND.rules)
ROWS = {
    "needs": (
        Rule(id="T-1", when="fp16 & tensor-model-parallel-size>1", then="bf16 or moe-grouped-gemm", source="t"),
        "fp16 and tensor-model-parallel-size above 1 needs bf16 or moe-grouped-gemm",
    ),
    "never": (Rule(id="T-2", when="!swiglu & seed?", source="t"), "never not swiglu and seed set"),
    "values": (
        Rule(id="T-3", when="position-embedding-type=rope|yarn & seed!=None", then="optimizer!=sgd", source="t"),
        "position-embedding-type is rope or yarn and seed is not unset needs optimizer is not sgd",
    ),
    "a function decides": (Rule(id="T-4", when="fp16", check=lambda context: True, source="t"), "where fp16"),
    "a change": (Rule(id="T-5", severity="change", when="fp16", sets={"seed": 1}, source="t"), "where fp16"),
    "a remainder": (
        Rule(id="T-7", when="hidden-size%{tensor-model-parallel-size}*{job.parallel.cp}", source="t"),
        "never hidden-size not a multiple of tensor-model-parallel-size * parallel.cp",
    ),
    "two values": (
        Rule(id="T-8", when="fp16", then="seed<={num-layers} & seed!={num-layers}", source="t"),
        "fp16 needs seed at most num-layers and seed is not num-layers",
    ),
    "no text": (Rule(id="T-6", check=lambda context: True, source="t"), ""),
}


@pytest.fixture(autouse=True)
def rows() -> Iterator[None]:
    declare((row for row, _ in ROWS.values()), backends=("toy",))
    yield
    for row, _ in ROWS.values():
        del RULES[row.id]


@pytest.mark.parametrize(("row", "text"), ROWS.values(), ids=ROWS)
def test_formula(row: Rule, text: str) -> None:
    assert formula(RULES[row.id]) == text


COMPARED = {
    "T-7": ({"hidden-size": 12}, {"hidden-size": 16}),
    "T-8": ({"fp16": True, "seed": 4}, {"fp16": True, "seed": 3}),
}


@pytest.mark.parametrize(("rule", "broken", "passing"), [(id_, *values) for id_, values in COMPARED.items()])
def test_a_number_is_compared_with_another(rule: str, broken: dict[str, Value], passing: dict[str, Value]) -> None:
    job, sizes = make_job({"parallel": {"cp": 4}}), {"tensor-model-parallel-size": 2, "num-layers": 4}
    assert list(RULES[rule].check(RuleContext(job=job, values={**sizes, **broken})))
    assert not list(RULES[rule].check(RuleContext(job=job, values={**sizes, **passing})))
    assert not list(RULES["T-7"].check(RuleContext(job=job, values=sizes))), "a value that is not set"


VALUES = {
    "the other side of a bound": ("MLM-CPU-OFFLOAD-PP", "offload.activation_layers", [0]),
    "a switch that is needed": ("MLM-STEP-GATHER-DISTRIBUTED", "overlap.param_gather", [True]),
    "no switch for a number": ("MLM-STEP-GATHER-VPP", "parallel.vpp", []),
    "a function's rule": ("MLM-TOPK-ONE", "model.hidden_size", []),
}


@pytest.mark.parametrize(("rule", "path", "values"), VALUES.values(), ids=VALUES)
def test_values_that_settle_a_rule(rule: str, path: str, values: list[object]) -> None:
    assert list(settling_values(RULES[rule], path, BACKEND, BACKEND.versions[0])) == values


def test_a_value_that_only_the_rule_names_is_found() -> None:
    """The canonical field has no such candidate of its own."""
    job = make_job({"backend": {"name": "megatron_lm"}, "offload": {"activation_layers": 3}, "parallel": {"pp": 2}})
    assert 0 in set(variants_of(job).settling("MLM-CPU-OFFLOAD-PP", "offload.activation_layers"))
