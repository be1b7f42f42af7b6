"""Every fix that a finding offers, of errors and warnings, removes it and causes no error."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.job import Job, field_at, with_values
from launcher.job.finding import Finding
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.engine import UNSUPPORTED, is_lost
from launcher.pipeline import judge
from launcher.report.findings import format_finding
from launcher.rules.candidates import candidates
from launcher.rules.changes import changes_of
from tests.conftest import make_job

RECIPES = sorted(file.stem for file in (Path(__file__).parents[2] / "recipes").glob("*.yaml"))


def untrue(job: Job) -> list[tuple[str, str]]:
    """The fixes of a job that leave their finding or cause an error."""
    findings = judge(job).findings
    errors = {each.rule for each in findings if each.severity == "error"}
    return [
        (finding.rule, str(fix))
        for finding in findings
        for fix in finding.fixes
        if (changes := changes_of(fix)) and not _holds(job, changes, finding, errors)
    ]


def _holds(job: Job, changes: dict[str, Any], finding: Finding, errors: set[str]) -> bool:
    after = judge(with_values(job, changes), fixes=False).findings
    remains = any(
        (each.rule, each.fields, each.severity) == (finding.rule, finding.fields, finding.severity) for each in after
    )
    return not remains and {each.rule for each in after if each.severity == "error"} <= errors


@pytest.mark.sample(keep=16)
@pytest.mark.parametrize("backend", backend_names())
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_offered_for_a_recipe_works(recipe: str, backend: str) -> None:
    assert untrue(compose([f"+recipe={recipe}", f"backend={backend}"])) == []


@pytest.mark.parametrize("name", backend_names())
def test_what_is_offered_for_a_field_that_a_backend_does_not_take_works(name: str) -> None:
    backend, tried = get_backend(name), 0
    for path, gap in backend.table(backend.default_version).unsupported.items():
        options = (*(field_at(path).meta.choices or ()), True, False, 2, 0.5)
        value = next(
            (each for each in options if _fits(path, each) and is_lost(_with(name, path, each), path, gap)), None
        )
        if value is not None and any(each.fixes for each in judge(_with(name, path, value)).findings):
            assert [each for each in untrue(_with(name, path, value)) if each[0] == UNSUPPORTED] == [], path
            tried += 1
    assert tried


def _fits(path: str, value: Any) -> bool:
    kind = str(field_at(path).type)
    return type(value).__name__ in kind


def _with(name: str, path: str, value: Any) -> Job:
    several = str(field_at(path).type).startswith("tuple")
    return with_values(make_job({"backend": {"name": name}}), {path: (value,) if several else value})


@pytest.mark.parametrize(
    ("backend", "version"),
    [
        ("megatron", "4.6.0"),
        ("megatron", "4.2.3"),
        ("megatron_lm", "0.16.1"),
        ("megatron_lm", "0.19.0"),
        ("mindspeed", "26.1.0"),
    ],
)
def test_what_is_offered_for_a_value_of_config_json_works_when_it_is_typed(
    backend: str, version: str, tmp_path: Path
) -> None:
    published = Path(__file__).parents[1] / "families" / "published" / "deepseek_v3.json"
    config = {**json.loads(published.read_text()), "num_experts_per_tok": 1}
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k != "quantization_config"}))
    args = ["+recipe=deepseek_v3", f"backend={backend}", f"backend.version={version}", f"model.path={tmp_path}"]
    errors = [each for each in judge(compose(args)).findings if each.severity == "error"]
    # No rule complains of arguments that are absent because the value is refused.
    assert {each.rule for each in errors} == {UNSUPPORTED}
    for error in errors:
        assert error.fixes
        for fix in error.fixes:
            changed = {each.partition("=")[0] for each in fix.overrides}
            kept = [each for each in args if each.partition("=")[0] not in changed]
            after = judge(compose([*kept, *fix.overrides]), fixes=False).findings
            assert not [each for each in after if each.severity == "error" and each.fields == error.fields], fix


PROPOSED = {
    "YaRN's temperatures": (
        [
            "backend=megatron",
            "model=kimi_k2",
            "model.rope_scaling.mscale=null",
            "model.rope_scaling.mscale_all_dim=null",
        ],
        "SW-YARN-MSCALE",
    ),
    "one of them": (["backend=megatron", "model=kimi_k2", "model.rope_scaling.mscale_all_dim=null"], "SW-YARN-MSCALE"),
    "a bias that is not built": (
        ["backend=megatron", "model=qwen3_8b", "model.attention_output_bias=true"],
        "SW-BUILD-OUTPUT-BIAS",
    ),
    "what only arguments of the backend settle": (
        ["backend=mindspeed", "model=glm_5", "model.pretrained=false", "data.reset_attention_mask=true"],
        "MS-DSA-PACKED",
    ),
}

MACHINES = ["cluster.devices_per_node=8", "cluster.nodes=2", "cluster.master_addr=n0", "data.format=sample"]
SIZES = ["batch.global_batch_size=512", "batch.seq_length=4096", "schedule.train_iters=10", "optimizer.lr=1e-4"]
MOE = ["model=qwen3_30b_a3b", "moe.aux_loss_coeff=0.001", "model.pretrained=false"]
KEPT = {
    "another backend, where this one lacks a value of the model": (
        [*MOE, "backend=mindformers", "model.scoring_func=sqrtsoftplus"],
        "MF-ROUTER-SCORE",
        ["backend=megatron_lm backend.version=0.19.0", "backend=mindspeed"],
    ),
    "the name that was meant": (
        ["backend=megatron", "model=qwen3_8b", "task=sft", "data.template=qwen3_think"],
        "SW-TEMPLATE",
        ["data.template=qwen3_thinking"],
    ),
    "nothing, where every backend refuses": (
        ["backend=mindformers", "+recipe=qwen3_moe", "+backend.args.optimizer.foo=1"],
        "MF-KEY",
        [],
    ),
}


@pytest.mark.parametrize(("overrides", "rule", "works"), KEPT.values(), ids=KEPT)
def test_what_is_offered_keeps_the_model(overrides: list[str], rule: str, works: list[str]) -> None:
    job = compose([*MACHINES, *SIZES, *overrides])
    [error] = [each for each in judge(job).findings if each.rule == rule]
    assert list(map(str, error.fixes)) == works
    said = "no other value is offered: backend.args is yours to choose"
    assert (said in format_finding(error, job)) == (not works)


def test_a_switch_that_is_not_set_is_offered_off() -> None:
    job = make_job({"backend": {"name": "megatron_lm"}})
    assert {*candidates(job, "kernels.rope_fusion")} == {True, False}


@pytest.mark.parametrize("case", PROPOSED.values(), ids=PROPOSED.keys())
def test_what_a_rule_proposes_is_offered_and_the_error_is_reported_once(case: tuple[list[str], str]) -> None:
    overrides, rule = case
    layout = ["cluster.devices_per_node=8", "cluster.nodes=64", "cluster.master_addr=n0", "moe.bias_update_rate=0.001"]
    sizes = ["batch.global_batch_size=512", "batch.seq_length=4096", "schedule.train_iters=10", "optimizer.lr=1e-4"]
    job = compose(["data.format=sample", *layout, *sizes, *overrides])
    [error] = [each for each in judge(job).findings if each.severity == "error"]
    assert error.rule == rule
    assert error.fixes
    assert untrue(job) == []


def test_chunks_of_a_stage_are_offered_to_go_beside_errors_that_nothing_settles() -> None:
    layout = ["cluster.nodes=16", "cluster.devices_per_node=8", "cluster.master_addr=n0", "parallel.tp=4"]
    sizes = ["batch.seq_length=32768", "batch.global_batch_size=96", "schedule.train_iters=100", "optimizer.lr=1e-5"]
    backend = ["model=minimax_m2", "backend=mindspeed", "task=reward_model", "parallel.cp_algorithm=adaptive"]
    stages = ["parallel.pp=2", "parallel.vpp=2", "data.format=sample", "model.pretrained=false"]
    job = compose([*backend, *stages, *layout, *sizes])
    [error] = [each for each in judge(job).findings if each.rule == "PAR-PP-LAYERS"]
    assert "parallel.vpp=null" in map(str, error.fixes)


NEAREST = {
    "a size of the model": (
        ["+recipe=deepseek_v3", "backend=megatron", "model.first_k_dense_replace=100"],
        ["model.first_k_dense_replace=60"],
    ),
    "the next one": (
        ["+recipe=deepseek_v3", "backend=megatron", "model.first_k_dense_replace=61"],
        ["model.first_k_dense_replace=60"],
    ),
    "chunks that no even split gives": (
        [
            *MACHINES,
            *SIZES,
            "model=qwen3_8b",
            "backend=megatron",
            "model.pretrained=false",
            "model.num_hidden_layers=61",
            "parallel.pp=4",
            "parallel.vpp=2",
        ],
        ["parallel.layout=Et*7|t*7|t*8|t*8|t*8|t*8|t*8|t*7L"],
    ),
}


@pytest.mark.parametrize(("overrides", "works"), NEAREST.values(), ids=NEAREST)
def test_the_nearest_value_that_works_is_offered(overrides: list[str], works: list[str]) -> None:
    [error] = [each for each in judge(compose(overrides)).findings if each.severity == "error"]
    assert list(map(str, error.fixes)) == works
    assert judge(compose([*overrides, *works]), fixes=False).ok
