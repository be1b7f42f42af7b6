"""Rules of Megatron-LM: for each the smallest command line that breaks it and the nearest one that passes."""

from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.mapping.backend import get_backend
from launcher.pipeline import judge
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from tests.backends.megatron_lm import rule_cases
from tests.backends.rule_pairs import can_be_found, check_pairs

BACKEND = get_backend("megatron_lm")
load(BACKEND.rules)
CASES = list(rule_cases.read(Path(__file__).parent / "rule_pairs.txt"))
# Rules about the environment, and of jobs rather than scripts, have their pairs below.
ELSEWHERE = {"MLM-CONNECTIONS", "MLM-CONNECTIONS-FSDP", "MLM-DETERMINISTIC-NCCL", "MLM-ETP-REPLICAS"}


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_rule_finds_the_broken_command_line_and_passes_the_other(case):
    backend, version = case.version.split()
    moe = case.base == "moe"
    broken = rule_cases.broken_by(backend, version, case.broken, moe=moe)
    passing = rule_cases.broken_by(backend, version, case.passing, moe=moe)
    assert broken.get(case.id) == RULES[case.id].severity
    assert case.id not in passing
    assert "error" not in passing.values(), passing


def test_every_rule_has_a_pair():
    declared = {rule.id for rule in RULES.values() if "megatron_lm" in rule.backends and can_be_found(rule)}
    check_pairs(declared, {case.id for case in CASES} | ELSEWHERE, "tests/backends/megatron_lm/rule_pairs.txt")


def test_every_rule_has_a_source_and_an_explanation():
    for rule in RULES.values():
        if "megatron_lm" in rule.backends:
            assert rule.source, rule.id
            assert rule.doc.endswith("."), rule.id
            assert rule.doc[0].isupper() or rule.doc.startswith("ms-"), rule.id


@pytest.mark.parametrize("version", BACKEND.versions)
def test_the_bases_are_legal(version):
    for moe in (False, True):
        assert "error" not in rule_cases.broken_by("megatron_lm", version, "", moe=moe).values()


ENVIRONMENT = (
    ("MLM-CONNECTIONS", "--tensor-model-parallel-size 2", "8", "1"),
    ("MLM-CONNECTIONS-FSDP", "--use-torch-fsdp2 --no-gradient-accumulation-fusion", "1", "8"),
)


@pytest.mark.parametrize(("id_", "changes", "wrong", "right"), ENVIRONMENT, ids=[row[0] for row in ENVIRONMENT])
def test_connections_fit_what_overlaps_with_them(id_, changes, wrong, right):
    native = rule_cases.values(BACKEND, "0.12.1", changes)

    def ids(connections):
        env = {"CUDA_DEVICE_MAX_CONNECTIONS": connections}
        return {finding.rule for finding in rule_cases.findings(BACKEND, "0.12.1", native, env)}

    assert id_ in ids(wrong)
    assert id_ not in ids(right)


DETERMINISTIC = ("kernels.deterministic=true", "kernels.attention_backend=unfused")


def test_deterministic_training_needs_an_algorithm_of_nccl():
    """The launcher sets it, unless the job has another; the shell that starts a script may set it."""

    def severities(*overrides):
        job = compose(["backend=megatron_lm", "+recipe=tiny_qwen3", *DETERMINISTIC, *overrides])
        return [f.severity for f in judge(job, fixes=False).findings if f.rule == "MLM-DETERMINISTIC-NCCL"]

    assert severities() == []
    assert severities("backend.env.NCCL_ALGO=Ring") == []
    assert severities("backend.env.NCCL_ALGO=PAT") == ["error"]
    native = rule_cases.values(BACKEND, "0.16.1", "--deterministic-mode")
    found = {finding.rule: finding.severity for finding in rule_cases.findings(BACKEND, "0.16.1", native)}
    assert found["MLM-DETERMINISTIC-NCCL"] == "warning"


ETP_RULE = {"megatron_lm": "MLM-ETP-REPLICAS", "mindspeed": "MLM-ETP-REPLICAS", "megatron": "SW-ETP-REPLICAS"}


@pytest.mark.parametrize("backend", ETP_RULE)
def test_experts_are_split_like_other_layers_or_over_ranks(backend):
    """Left open, the split is one with right gradients; another one is refused in a job."""

    def found(*overrides):
        sizes = ("parallel.tp=2", "parallel.sequence_parallel=true", "cluster.devices_per_node=4")
        job = compose([f"backend={backend}", "+recipe=tiny_qwen3_moe", *sizes, *overrides])
        return [f for f in judge(job).findings if f.rule == ETP_RULE[backend]]

    assert not found() + found("parallel.etp=2") + found("parallel.etp=1", "parallel.ep=2")
    (finding,) = found("parallel.etp=1")
    assert finding.severity == "error"
    assert ("parallel.etp=2",) in [fix.overrides for fix in finding.fixes]


def test_a_script_with_replicas_of_experts_runs_with_a_warning():
    changes = "--tensor-model-parallel-size 2 --sequence-parallel --expert-tensor-parallel-size 1"
    native = rule_cases.values(BACKEND, "0.16.1", f"{changes} --expert-model-parallel-size 1", moe=True)
    found = {finding.rule: finding.severity for finding in rule_cases.findings(BACKEND, "0.16.1", native)}
    assert found["MLM-ETP-REPLICAS"] == "warning"


def test_findings_name_fields_and_flags():
    native = rule_cases.values(BACKEND, "0.16.1", "--overlap-param-gather --overlap-grad-reduce")
    found = {finding.rule: finding for finding in rule_cases.findings(BACKEND, "0.16.1", native)}
    finding = found["MLM-PARAM-GATHER-OPTIMIZER"]
    assert "overlap.param_gather" in finding.fields
    assert "parallel.distributed_optimizer" in finding.fields
    assert "overlap-param-gather" in finding.flags
    assert "--use-distributed-optimizer" in finding.message
