"""Rules of MindSpeed-LLM: a pair for each, versions, what is stricter than upstream, and the job of the handbook."""

from pathlib import Path

import pytest

from launcher import api, pipeline
from launcher.mapping.backend import get_backend
from launcher.rules.engine import load
from launcher.rules.registry import RULES
from tests.backends.megatron_lm import rule_cases
from tests.backends.rule_pairs import can_be_found, check_pairs
from tests.conftest import make_job

BACKEND = get_backend("mindspeed")
load(BACKEND.rules)
CASES = list(rule_cases.read(Path(__file__).parent / "rule_pairs.txt"))


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_rule_finds_the_broken_command_line_and_passes_the_other(case):
    version, moe = case.version.split()[1], case.base == "moe"
    broken = rule_cases.broken_by("mindspeed", version, case.broken, moe=moe)
    passing = rule_cases.broken_by("mindspeed", version, case.passing, moe=moe)
    assert broken.get(case.id) == RULES[case.id].severity
    assert case.id not in passing
    assert "error" not in passing.values(), passing


def test_empty_layers_are_numbers():
    values = rule_cases.values(BACKEND, "26.1.0", "--noop-layers 7")
    assert "MS-NOOP-NUMBER" not in ids(job_with({"noop-layers": "6,7"}))
    assert "MS-NOOP-NUMBER" in ids(job_with({"noop-layers": "6,a"}))
    assert "MS-NOOP-NUMBER" not in {f.rule for f in rule_cases.findings(BACKEND, "26.1.0", values)}


@pytest.mark.parametrize(
    ("split", "ratios", "stage"),
    [
        ("--num-layers 8 --num-layers-per-virtual-pipeline-stage 1", "4 0 0 0 0 4 0 0", 2),
        ("--num-layers 8 --num-layers-per-virtual-pipeline-stage 1", "4 0 0 4 0 4 4 0", None),
        ("--num-layers 8 --decoder-first-pipeline-num-layers 2", "0 0 4 0 4 0 4 0", 0),
        ("--num-layers 8 --decoder-last-pipeline-num-layers 2", "4 0 4 0 4 0 0 0", 3),
        ("--num-layers 8 --schedules-method dualpipev", "4 0 4 4 0 0 0 0", 1),
        ("--num-layers 8 --schedules-method dualpipev", "4 0 4 4 0 0 4 0", None),
        ("--num-layers 8", "0 0 0 0 0 0 128 0", None),
        ("--num-layers 8", "4 0 4 0 4 0 0 0 4", None),
    ],
)
def test_a_stage_without_an_indexer_is_found_however_layers_are_split(split: str, ratios: str, stage: int | None):
    line = f"--enable-dsa-indexer --kv-compress --multi-latent-attention --pipeline-model-parallel-size 4 {split}"
    values = rule_cases.values(BACKEND, "26.1.0", f"{line} --compress-ratios {ratios}")
    found = [f.message for f in rule_cases.findings(BACKEND, "26.1.0", values) if f.rule == "MS-DSA-STAGE"]
    assert [message.split(":")[0] for message in found] == (
        [] if stage is None else [f"stage {stage} of 4 has no layer with compression ratio 4"]
    )


def test_every_rule_has_a_pair():
    declared = {rule.id for rule in RULES.values() if rule.backends == ("mindspeed",) and can_be_found(rule)}
    # test_empty_layers_are_numbers, test_mindspeed_tokenizer.py, tests/families/test_config_names.py
    elsewhere = {"MS-NOOP-NUMBER", "MS-PAD-EOS", "MS-CONVERT-NAMES"}
    check_pairs(declared, {case.id for case in CASES} | elsewhere, "tests/backends/mindspeed/rule_pairs.txt")


def test_every_rule_has_a_source_and_an_explanation():
    for rule in RULES.values():
        if "mindspeed" in rule.backends:
            assert rule.source, rule.id
            assert rule.doc.endswith("."), rule.id


@pytest.mark.parametrize("version", BACKEND.versions)
def test_the_bases_are_legal(version):
    for moe in (False, True):
        assert "error" not in rule_cases.broken_by("mindspeed", version, "", moe=moe).values()


def job_with(args=None, tree=None, *, moe=False):
    """Return a small job for MindSpeed-LLM with passed-through arguments."""
    base = {"data": {"format": "mock"}, **(tree or {})}
    base["backend"] = {"name": "mindspeed", "version": "26.1.0", "args": args or {}}
    return make_job(base, moe=moe)


def ids(job):
    return {finding.rule for finding in pipeline.judge(job, fixes=False).findings}


HYBRID = {"parallel": {"cp": 8, "cp_algorithm": "hybrid", "ulysses_degree": 3}}


def test_a_passed_through_argument_is_judged_like_a_field():
    by_field = job_with(tree={"parallel": {"cp": 4, "cp_window": 3}})
    by_flag = job_with({"cp-window-size": 3}, {"parallel": {"cp": 4}})
    assert "MS-CP-RING-WINDOW-DIVIDES" in ids(by_field)
    assert "MS-CP-RING-WINDOW-DIVIDES" in ids(by_flag)
    assert "PAR-TP-HEADS" in ids(job_with({"tensor-model-parallel-size": 3}))


def test_old_names_count_as_the_new_ones():
    job = job_with({"use-mc2": True})
    assert {"MS-MC2-TP", "MS-OLD-NAME"} <= ids(job)


STRICTER = (
    ("MS-RC-ACTIVATION-SELECTIVE", {"recompute": {"activation": True, "granularity": "selective"}}),
    ("MS-RC-NORM-SELECTIVE", {"recompute": {"norm": True, "granularity": "selective"}}),
    (
        "MS-CP-GENERAL-MBS",
        {
            "parallel": {"cp": 2, "cp_algorithm": "megatron", "cp_mask_type": "general"},
            "batch": {"micro_batch_size": 2},
        },
    ),
)


@pytest.mark.parametrize(("id_", "tree"), STRICTER, ids=[row[0] for row in STRICTER])
def test_what_newer_versions_accept_is_an_error_that_can_be_lowered(id_, tree):
    def severity(version, strict):
        job = make_job(
            {"backend": {"name": "mindspeed", "version": version}, "rules": {"strict": strict}, **tree}, backend=None
        )
        found = {finding.rule: finding for finding in pipeline.judge(job, fixes=False).findings}
        return found[id_].severity, found[id_].message

    now, message = severity("26.1.0", "all")
    assert now == "error"
    assert "stricter than 26.1.0" in message
    assert severity("26.1.0", "upstream")[0] == "warning"
    old, message = severity("2.1.0", "upstream")
    assert old == "error"
    assert "stricter" not in message


def test_removed_algorithms_are_named():
    job = job_with(tree={"parallel": {"cp": 2, "cp_algorithm": "adaptive"}})
    found = [finding for finding in pipeline.judge(job, fixes=False).findings if finding.rule == "MS-CP-NO-ADAPTIVE"]
    assert found
    assert "adaptive_cp_algo was removed after 2.1.0" in found[0].message


def test_the_hybrid_example_shows_every_fault_with_fixes():
    arguments = (
        "backend=mindspeed parallel.cp=8 parallel.cp_algorithm=hybrid parallel.ulysses_degree=3 "
        "recompute.activation=true recompute.granularity=selective"
    )
    job = api.compose(arguments.split(), recipe="qwen3_moe")
    errors = [finding for finding in api.check(job) if finding.severity == "error"]
    wanted = {
        "MS-CP-HYBRID-DIVIDES",
        "MS-CP-HYBRID-HEADS",
        "MS-RC-ACTIVATION-SELECTIVE",
        "MS-RC-ACTIVATION-UNIFORM",
        "RC-SELECTIVE",
    }
    assert {finding.rule for finding in errors} == wanted
    assert all(finding.fixes for finding in errors)
    by_rule = {finding.rule: [str(fix) for fix in finding.fixes] for finding in errors}
    assert "parallel.ulysses_degree=4" in by_rule["MS-CP-HYBRID-DIVIDES"]
