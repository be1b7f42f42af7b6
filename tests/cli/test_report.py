"""`launch report`: what it writes, what it refuses, and that nothing of the user's is lost or shown."""

import json
import re

import pytest

pytestmark = pytest.mark.slow

JOB = ["+recipe=qwen3_moe", "backend=megatron", "hardware=h100_80g", "cluster.nodes=4"]


@pytest.fixture(autouse=True)
def _libraries():
    pytest.importorskip("plotly")
    pytest.importorskip("jinja2")


def figures(text: str) -> dict[str, dict]:
    found = re.search(r'id="figures">(.*?)</script>', text, re.S)
    assert found is not None
    return json.loads(found[1])


def test_a_page_in_one_file(launch, tmp_path):
    done = launch("report", *JOB, "parallel.pp=2", "-o", "r.html")
    assert done.code == 0, done
    text = (tmp_path / "r.html").read_text()
    assert f"written: r.html ({len(text) / 1e6:.1f} MB)" in done.out
    assert len(text) < 2_500_000
    assert set(figures(text)) == {"devices-1", "memory-1", "timeline-1"}
    assert "Content-Security-Policy" in text
    assert "launch run +recipe=qwen3_moe backend=megatron" in text
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text.partition('id="plotly"')[0])


def test_a_refused_job_is_drawn_with_its_findings(launch, tmp_path):
    done = launch("report", *JOB, "parallel.pp=2", "parallel.tp=3", "-o", "r.html")
    assert done.code == 1
    assert "written: r.html" in done.out
    assert "error" in done.err
    text = (tmp_path / "r.html").read_text()
    assert "refused" in text
    assert text.count('data-severity="error"') >= 1


def test_a_job_without_a_backend_or_hardware_is_drawn(launch, tmp_path):
    done = launch("report", "+recipe=qwen3_8b", "-o", "r.html", "--json")
    assert done.code == 1
    assert done.json["written"] == "r.html"
    assert [each["rule"] for each in done.json["jobs"][0]["findings"] if each["severity"] == "error"] == ["REQ-BACKEND"]
    assert "devices-1" in figures((tmp_path / "r.html").read_text())


def test_jobs_side_by_side_and_the_same_on_other_backends(launch, tmp_path):
    words = [
        "report",
        *JOB[:1],
        *JOB[2:],
        "--backends",
        "megatron,mindspeed",
        "--with",
        "parallel.pp=2",
        "-o",
        "r.html",
    ]
    done = launch(*words, "--json")
    labels = [job["label"] for job in done.json["jobs"]]
    assert labels == [
        *("backend=megatron", "backend=mindspeed"),
        *("parallel.pp=2 backend=megatron", "parallel.pp=2 backend=mindspeed"),
    ]
    assert {"steps", "peaks", "memory-4"} <= set(figures((tmp_path / "r.html").read_text()))
    swept = launch("report", *JOB, "-m", "parallel.pp=1,2", "-o", "s.html", "--json")
    assert [job["label"] for job in swept.json["jobs"]] == ["parallel.pp=1", "parallel.pp=2"]


def test_nothing_of_the_user_s_is_replaced(launch, tmp_path):
    (tmp_path / "mine.html").write_text("<p>my page</p>")
    done = launch("report", *JOB, "-o", "mine.html")
    assert done.code == 1
    assert "is not a report that launch made" in done.err
    assert "mine-2.html" in done.err
    assert (tmp_path / "mine.html").read_text() == "<p>my page</p>"
    assert launch("report", *JOB, "-o", "r.html").code == 0
    assert launch("report", *JOB, "parallel.pp=2", "-o", "r.html").code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-o", "r.pdf"], "must end in .html"),
        (["-o", "no/r.html"], "there is no folder no"),
        (["-o", "r.html", "--backends", "megatorn"], "no backend 'megatorn'"),
        (["-o", "r.html", "--with", "'"], "No closing quotation"),
        (["-o", "r.html", "--search-state", "no.json"], "there is no such file"),
        (["-o", "r.html", "-m", "seed=range(1,40)"], "at most 24"),
        ([], "-o"),
    ],
    ids=["ending", "folder", "backend", "quoting", "no state", "too many", "no file"],
)
def test_wrong_use_writes_nothing(launch, tmp_path, words, says):
    done = launch("report", *JOB, *words)
    assert done.code == 2
    assert says in done.err
    assert not list(tmp_path.glob("*.html"))


def test_without_the_extra_it_says_what_to_install(launch, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, package=None: None if name == 'plotly' else find(name, package)\n"
    )
    from tests.commands import run_process
    from tests.conftest import ROOT

    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{hidden}:{ROOT}", "LAUNCH_HOME": str(tmp_path / "home")}
    done = run_process(["report", *JOB, "-o", "r.html"], cwd=tmp_path, env=env)
    assert done.code == 1
    assert "needs plotly" in done.err
    assert "pip install 'launch-llm[report]'" in done.err


def test_a_search_begun_elsewhere_is_drawn(launch, tmp_path):
    words = ["search.fix=[tp,cp,ep,etp,vpp,micro_batch_size,recompute,stages]"]
    searched = launch("search", *JOB, *words, "--resume", "s.json", "--json")
    assert searched.code == 0, searched
    done = launch("report", *JOB, *words, "--search-state", "s.json", "-o", "r.html")
    assert done.code == 0, done
    text = (tmp_path / "r.html").read_text()
    assert len(figures(text)["pareto"]["data"][1]["x"]) >= 1
    assert "The fastest layouts" in text
    other = launch("report", *JOB, "--search-state", "s.json", "-o", "o.html")
    assert other.code == 1
    assert "another search" in other.err


def test_secrets_and_markup_stay_out(launch, tmp_path):
    secret = "0123456789abcdef0123456789abcdef01234567"
    name = "name='</script><script>alert(1)</script>'"
    done = launch("report", *JOB, f"backend.env.WANDB_API_KEY={secret}", name, "-o", "r.html")
    text = (tmp_path / "r.html").read_text() if (tmp_path / "r.html").exists() else ""
    assert secret not in text + done.out + done.err
    assert "<script>alert" not in text


def test_ten_thousand_devices_are_not_a_large_page(launch, tmp_path):
    words = ["cluster.nodes=1250", "parallel.tp=2", "parallel.pp=5", "parallel.ep=4", "batch.global_batch_size=10000"]
    done = launch("report", *JOB[:3], *words, "-o", "r.html")
    assert done.code in (0, 1), done
    assert (tmp_path / "r.html").stat().st_size < 2_600_000
    assert len(figures((tmp_path / "r.html").read_text())["devices-1"]["data"][0]["x"]) == 40
