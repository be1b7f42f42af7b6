"""What a rule reads, over the example jobs of all rules and over fuzz, is what it declares."""

from collections.abc import Iterator
from typing import Any

import pytest

from launcher.compose import compose
from launcher.mapping.backend import backend_names, get_backend
from launcher.pipeline import judge
from launcher.rules.engine import load, run
from launcher.rules.registry import RULES, RuleContext
from launcher.rules.rule_index import reads_of
from launcher.rules.table import FIELD
from tests.backends.megatron import fuzzed as megatron_jobs
from tests.backends.megatron import test_rules_swift as megatron_rules
from tests.backends.megatron_lm import rule_cases
from tests.backends.mindformers import test_rules_mindformers as mindformers_rules
from tests.backends.mindformers import verdicts as mindformers_jobs
from tests.conftest import make_job
from tests.rules import test_common, test_sanity_checks
from tests.rules.reads import recorded
from tests.sampling import ROOT, dice, fuzz_seed, sample, trials

pytestmark = pytest.mark.slow

load(module for name in backend_names() for module in get_backend(name).rules)


def undeclared(found: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return by rule what it read and does not declare."""
    wrong = {}
    for id_, tokens in found.items():
        declared = reads_of(RULES[id_])
        names = {token.removeprefix("--") if token.startswith("--") else f"{FIELD}{token}" for token in tokens}
        left = {name for name in names - declared if name.startswith(FIELD) or "*" not in declared}
        if left:
            wrong[id_] = sorted(left)
    return wrong


def common_pairs() -> Iterator[Any]:
    for _, moe, broken, passing in test_common.CASES:
        for tree in (broken, passing):
            yield run(RuleContext(job=make_job(tree, moe=moe)))
    for trees in test_sanity_checks.PAIRS.values():
        for tree in trees:
            yield test_sanity_checks.broken_rules(tree)


def recipes() -> Iterator[Any]:
    for backend in backend_names():
        for recipe in ("tiny_qwen3", "tiny_qwen3_moe"):
            yield judge(compose([f"backend={backend}", f"+recipe={recipe}"]), fixes=False)


def pairs(rules: Any, key: str) -> Iterator[Any]:
    for pair in sample(rules.PAIRS.values(), 60, key):
        yield rules.found(pair.broken, pair.version)
        yield rules.found(pair.passing, pair.version)


def command_lines(folder: str) -> Iterator[Any]:
    """Yield each pair, and pairs of them together."""
    cases = list(rule_cases.read(ROOT / "tests" / "backends" / folder / "rule_pairs.txt"))
    draw = dice(f"reads {folder}")
    for case in sample(cases, 120, f"reads {folder}"):
        backend, version = case.version.split()
        other = draw.choice([each for each in cases if each.version == case.version])
        for args in (case.broken, case.passing, f"{case.broken} {other.broken}", f"{case.passing} {other.broken}"):
            yield rule_cases.broken_by(backend, version, args, moe=case.base == "moe")


def jobs() -> Iterator[Any]:
    for _, job in megatron_jobs.jobs(trials(200), fuzz_seed()):
        yield judge(job, fixes=False)
    for _, _, job in mindformers_jobs.jobs(trials(200), fuzz_seed()):
        yield judge(job, fixes=False)


SOURCES = {
    "common pairs": common_pairs,
    "recipes": recipes,
    "Megatron-SWIFT's pairs": lambda: pairs(megatron_rules, "reads megatron"),
    "MindFormers' pairs": lambda: pairs(mindformers_rules, "reads mindformers"),
    "Megatron-LM's command lines": lambda: command_lines("megatron_lm"),
    "MindSpeed-LLM's command lines": lambda: command_lines("mindspeed"),
    "fuzzed jobs": jobs,
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_rule_reads_what_it_declares(source: str) -> None:
    with recorded() as found:
        judged = sum(1 for _ in SOURCES[source]())
    assert judged
    assert any(found.values())
    assert undeclared(found) == {}
