"""The Python API as a notebook uses it: what it returns, how objects show themselves, and that a started run is one."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import api
from launcher.job.finding import Finding, Findings, Fix
from launcher.runs import NotStarted
from launcher.search.begin import CannotSearch
from tests.conftest import ROOT
from tests.convert.tiny import tiny_llama
from tests.waiting import STUCK_SECONDS

MOE = ["backend=megatron", "hardware=h100_80g", "cluster.nodes=2", "cluster.devices_per_node=8"]
HOSTILE = "</script><script>alert(1)</script>\"'&"


@pytest.fixture(scope="module")
def job() -> api.Job:
    return api.compose(MOE, recipe="qwen3_moe")


def test_importing_it_loads_nothing_heavy():
    heavy = ["torch", "transformers", "numpy", "scipy", "plotly", "jinja2", "highspy", "tree_sitter"]
    code = f"import sys; import launcher.api; print([each for each in {heavy} if each in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_function_says_what_it_takes_and_raises():
    for name in api.__all__:
        assert (getattr(api, name).__doc__ or "").strip(), name


def test_a_search_can_be_stopped_and_gives_jobs(job):
    calls: list[int] = []

    def stop(done: int, total: int, found: object) -> bool:
        calls.append(done)
        return done < min(20, total)

    result = api.search(job, top=3, progress=stop)
    assert calls[-1] == 20
    assert not result.found.complete
    assert result.best is not None
    first = result.candidates[0]
    assert {path: value for path, value in first.values.items() if path == "parallel.tp"}.items() <= first.point.items()
    assert api.estimate(result.best).fits


def test_a_search_without_hardware_says_what_is_missing():
    with pytest.raises(CannotSearch) as refused:
        api.search(api.compose(["backend=megatron"], recipe="qwen3_8b"))
    assert {finding.fields for finding in refused.value.findings} == {
        ("hardware.memory_gib",),
        ("hardware.bf16_tflops",),
    }


def test_balancing_is_no_slower_than_the_even_split(job):
    balanced = api.balance(
        dataclasses.replace(job, parallel=dataclasses.replace(job.parallel, pp=2, dp=None)), quick=True
    )
    assert balanced.times[1] <= balanced.times[0] * 1.001
    assert sum(balanced.balanced.split.layers()) == job.model.num_hidden_layers


def test_porting_keeps_fields_and_names_what_is_dropped(job):
    job = api.compose([*MOE, "backend.args.strict=true"], recipe="qwen3_moe")
    ported = api.port(job, "mindspeed")
    assert ported.job.backend.name == "mindspeed"
    assert ported.job.parallel == job.parallel
    assert any("strict" in finding.message for finding in ported.findings)


def test_a_difference_names_the_field_and_both_values(job):
    other = api.compose([*MOE, "optimizer.lr=0.5"], recipe="qwen3_moe")
    (row,) = api.diff(job, other)
    assert row.path == "optimizer.lr"
    assert row.affects_training
    assert row.effects[1].value == 0.5
    assert api.diff(job, job) == []


def test_a_checkpoint_comes_back_the_same(tmp_path):
    model = tiny_llama(tmp_path / "model")
    job = api.compose([f"model.path={model}", "parallel.tp=2", "cluster.devices_per_node=2"])
    report = api.convert(model, tmp_path / "mcore", job=job, format="torch_dist")
    assert report.verified
    assert api.compare_checkpoints(model, tmp_path / "mcore").outcome == "equal"
    back = api.convert(tmp_path / "mcore", tmp_path / "back", format="hf", model=model)
    assert back.verified
    assert api.compare_checkpoints(model, tmp_path / "back").outcome == "equal"
    with pytest.raises(Exception, match=r"exists|overwrite|not empty"):
        api.convert(model, tmp_path / "mcore", format="torch_dist")


# -- how objects show themselves


def check_html(text: str) -> None:
    """Escaped, one element, nothing loaded from elsewhere, no colour of text that a dark page would hide."""
    assert "<script" not in text
    assert "http" not in text.replace("https://", "", 0) or "src=" not in text
    assert not [word for word in ("src=", "href=", "url(", "@import") if word in text]
    assert ";color:" not in text
    assert text.startswith("<div")
    assert text.endswith("</div>")


def test_objects_show_themselves(job):
    result = api.search(job, top=3, progress=lambda done, total, found: done < 5)
    answer, findings = api.estimate(job), api.check(job)
    shown = [each._repr_html_() for each in (job, findings, answer, result)]
    for text in shown:
        check_html(text)
    assert "tp 1" in shown[0] or "tp 2" in shown[0] or "tp 4" in shown[0]
    assert "parallel.tp" in shown[0]
    assert f"{len(findings)} warning" in shown[1] or "no findings" in shown[1]
    assert f"{(answer.fullest.peak_reserved + answer.outside) / 2**30:.1f}" in shown[2]


def test_what_a_user_named_is_escaped():
    finding = Finding(
        rule="R",
        severity="error",
        message=HOSTILE,
        flags=(HOSTILE,),
        fixes=(Fix(overrides=(HOSTILE,)),),
        source=HOSTILE,
    )
    job = dataclasses.replace(api.compose(MOE, recipe="qwen3_moe"), name=HOSTILE)
    for text in (finding._repr_html_(), Findings([finding])._repr_html_(), job._repr_html_()):
        check_html(text)
        assert "alert(1)" in text


def test_a_secret_is_not_shown():
    job = api.compose([*MOE, "backend.env.WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567"], recipe="qwen3_moe")
    assert "0123456789abcdef" not in job._repr_html_()


# -- runs


def test_a_refused_job_is_not_started(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    job = api.compose(["backend=megatron", "parallel.tp=3", "cluster.devices_per_node=3"], recipe="tiny_qwen3")
    with pytest.raises(NotStarted) as refused:
        api.run(job)
    assert not refused.value.findings.ok
    assert not (tmp_path / "launch_output").exists()
    assert api.runs() == []


@pytest.mark.slow
def test_a_run_is_started_followed_and_listed(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAUNCH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    job = api.compose(
        ["backend=megatron", "cluster.devices_per_node=1", "schedule.train_iters=12"], recipe="tiny_qwen3"
    )
    run = api.run(job)
    assert run.status().state in ("running", "queued", "done")
    assert run.wait(timeout=STUCK_SECONDS).state == "done", run.logs(tail=30)
    assert [each.id for each in api.runs()] == [run.id]
    assert any("iteration" in line for line in run.logs())
    second = api.run(job)
    assert second.folder != run.folder
    second.stop()
    assert second.wait(timeout=STUCK_SECONDS).state in ("stopped", "done")
