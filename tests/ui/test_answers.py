"""Answers of the page are those of the command line's functions."""

import pytest

from launcher.compose import compose
from launcher.estimate import estimate
from launcher.pipeline import judge
from launcher.ui import answers, comparing, exports
from tests.conftest import ROOT

_LARGE = """model=qwen3_32b task=pretrain backend=mindspeed hardware=ascend_910b batch.seq_length=4096
batch.global_batch_size=8 schedule.train_iters=10 optimizer.lr=1e-4"""
JOBS = {
    "passes": ("+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g"),
    "refused": ("+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g", "parallel.pp=3"),
    "does not fit": tuple(_LARGE.split()),
}


@pytest.mark.parametrize("words", JOBS.values(), ids=JOBS)
def test_findings_and_estimate_are_the_same(words: tuple[str, ...]) -> None:
    job = compose(words)
    outcome = judge(job)
    found = answers.plan(words)
    assert answers.findings(words) == [each.as_tree() for each in outcome.findings]
    assert [(each["rule"], each["message"]) for each in found["findings"]] == [
        (each.rule, each.message) for each in outcome.findings
    ]
    assert found["ok"] == outcome.ok
    if outcome.ok:
        assert found["estimate"] == estimate(job).as_tree()
        assert found["estimate"]["fits"] is ("model=qwen3_32b" not in words)
    else:
        assert found["no_estimate"]


def test_a_job_without_a_backend_is_estimated_and_asks_for_one() -> None:
    found = answers.plan(["+recipe=qwen3_moe", "hardware=h100_80g"])
    assert found["estimate"]["fits"] is True
    assert [(each["rule"], "backend=megatron" in each["fix"]) for each in found["findings"]] == [("REQ-BACKEND", True)]


def test_mistakes_have_what_works() -> None:
    found = answers.plan(["+recipe=qwen3_mo", "paralel.tp=2"])
    fixes = [fix for each in found["mistakes"] for fix in each["fix"]]
    assert {"+recipe=qwen3_moe", "parallel.tp=2"} <= {*fixes}


def test_backends_side_by_side() -> None:
    found = comparing.compared(JOBS["passes"], ["megatron", "mindspeed"])
    assert [each["name"] for each in found["columns"]] == ["megatron", "mindspeed"]
    (size,) = [each for each in found["columns"][1]["args"] if each[0] == "tensor-model-parallel-size"]
    assert (size[1], size[2].startswith("recipe, recipes/qwen3_moe.yaml:"), size[3]) == ("1", True, "parallel.tp")
    assert {each["field"].partition(" ")[2] for each in found["rows"]} == {"*", ""}
    assert found["legend"] == ["* changes training"]
    same = comparing.compared(JOBS["passes"], ["megatron", "megatron_lm"])
    assert (bool(same["rows"]), same["legend"]) == (True, [])


def test_sizes_that_do_not_divide_the_devices_have_no_data_parallel_size() -> None:
    pytest.importorskip("dash")
    from launcher.ui.shown import layout_line

    assert layout_line(answers.plan(JOBS["passes"])) == "2 × 8 H100-SXM5-80GB: dp 8 × pp 2, ep 8"
    line = layout_line(answers.plan(JOBS["refused"]))
    assert line == "2 × 8 H100-SXM5-80GB: pp 3, ep 8, which do not divide the devices"


def test_a_refused_job_has_no_script() -> None:
    with pytest.raises(exports.NoFile):
        exports.script(JOBS["refused"])


def test_the_job_file_is_the_job() -> None:
    import yaml

    tree = yaml.safe_load(exports.job(JOBS["passes"]))
    assert tree["parallel"]["pp"] == 2
    assert tree["backend"]["name"] == "megatron"


def test_a_report_draws_a_refused_job_and_names_no_folder_of_the_server() -> None:
    pytest.importorskip("plotly")
    text = exports.report(JOBS["refused"])
    assert "training report</h1>" in text
    assert str(ROOT) not in text


def test_a_size_that_an_argument_sets_is_shown() -> None:
    words = ("+recipe=qwen3_8b", "backend=megatron", "hardware=h100_80g", "+backend.args.tensor_model_parallel_size=2")
    layout = answers.plan(words)["layout"]
    assert (layout["tp"], layout["pp"], layout["dp"]) == (2, 2, 2)
