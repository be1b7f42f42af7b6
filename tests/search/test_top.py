"""The ten best of every recipe: accepted by the rules of each backend, and by the real parsers."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.api import compose
from launcher.cli.search_screen import screen
from launcher.job import Job, with_values
from launcher.pipeline import judge
from launcher.report.text_page import Page
from launcher.search.begin import CannotSearch, begin
from launcher.search.search import Search
from tests.backends.megatron.test_real_parser import _case as swift_case
from tests.backends.megatron.test_real_parser import swift_python  # noqa: F401
from tests.backends.mindspeed.test_mindspeed_parser import _with_folders
from tests.conftest import ROOT
from tests.rehearse.native.environments import mindformers_1_6_python, mindspeed_python

pytestmark = pytest.mark.slow

RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))
HARDWARE = {"megatron": "h100_80g", "megatron_lm": "h100_80g", "mindspeed": "ascend_910b", "mindformers": "ascend_910b"}
PARSED = ("qwen3_8b", "qwen3_moe", "deepseek_v3")
# Where a backend does not read the data of a recipe: data that it does read, so that the layouts are tried all the same
_SFT = ("data.system=null", "data.self_cognition_name=null", "data.self_cognition_author=null")
_LENGTH = ("schedule.epochs=null", "schedule.train_iters=1000")
OWN_DATA = {
    "mindspeed": ("data.format=megatron", "data.paths=[data/corpus]", *_SFT, *_LENGTH),
    "megatron_lm": (
        *("data.format=messages", "data.paths=[data.jsonl]", "data.template=nemotron-nano-v2", "batch.packing=false"),
        *(*_SFT, *_LENGTH),
    ),
}


def begun(recipe: str, backend: str, *more: str) -> tuple[Job, Search]:
    """Return the search of a recipe, with data of the backend's own where it does not read the recipe's.

    Raises:
        CannotSearch: the backend cannot run the recipe.
    """
    args = [f"+recipe={recipe}", f"backend={backend}", f"hardware={HARDWARE[backend]}", "model.pretrained=false"]
    job = compose([*args, "search.max_vpp=2", *more])
    try:
        return job, begin(job)
    except CannotSearch:
        if backend not in OWN_DATA or recipe.startswith("tiny_"):
            raise
    job = compose([*args, "search.max_vpp=2", *OWN_DATA[backend], *more])
    return job, begin(job)


def top(recipe: str, backend: str, *more: str) -> list[Job]:
    """Return the ten best of a recipe as jobs; fewer where no more fit."""
    job, search = begun(recipe, backend, *more)
    for _ in search.run():
        pass
    if not search.found.best:
        reason = next(screen(job, search.found, Page()))
        pytest.skip(f"{backend} runs {recipe}, but nothing fits: {reason}")
    return [with_values(job, candidate.values) for candidate in search.found.best]


@pytest.mark.sample(keep=1, by="backend")
@pytest.mark.parametrize("backend", HARDWARE)
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_rules_accept_the_ten_best(recipe: str, backend: str) -> None:
    try:
        jobs = top(recipe, backend)
    except CannotSearch as error:
        pytest.skip(f"{backend} cannot run {recipe}: {error.findings[0].message}")
    for job in jobs:
        errors = [finding for finding in judge(job, fixes=False).findings if finding.severity == "error"]
        assert not errors, job.parallel


@pytest.mark.sample(keep=1, of="backends accept the best")
def test_ms_swift_itself_accepts_them(swift_python: Path, tmp_path: Path) -> None:  # noqa: F811
    jobs = {f"{recipe} {n}": job for recipe in PARSED for n, job in enumerate(top(recipe, "megatron"))}
    assert len(jobs) == 10 * len(PARSED)
    cases = [swift_case(name, job, job.model, tmp_path) for name, job in jobs.items()]
    result = subprocess.run(
        [str(swift_python), "-m", "tests.backends.megatron.real_parser"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    answers = {line["name"]: line["error"] for line in map(json.loads, result.stdout.splitlines())}
    assert answers == dict.fromkeys(jobs)


@pytest.mark.sample(keep=1, of="backends accept the best")
def test_mindformers_itself_accepts_them(tmp_path: Path) -> None:
    python = mindformers_1_6_python()
    args = ["model.n_group=1", "model.topk_group=1", "moe.aux_loss_coeff=0.0", "backend.version=1.6.0"]
    jobs = top("deepseek_v3", "mindformers", *args)
    assert len(jobs) == 10
    full, some = (3, 1, 0, 2), (1, 2, 2, 0)
    again = {"granularity": "full", "method": "block", "num_layers": 3, "layers_per_chunk": full}
    again |= {"modules": ("core_attn",), "selective_layers_per_chunk": some, "activation": False, "norm": False}
    values = {"parallel.pp": 4, "parallel.vpp": None, "parallel.layout": "Et*15|t*16|t*15|t*15mL", "parallel.tp": 4}
    values |= {"parallel.first_stage_layers": None, "parallel.last_stage_layers": None, "parallel.ep": 8}
    jobs.append(with_values(jobs[0], {**values, **{f"recompute.{name}": value for name, value in again.items()}}))
    cases: list[Any] = []
    for number, job in enumerate(jobs):
        path = tmp_path / f"{number}.yaml"
        path.write_text(judge(job, fixes=False).plan().files[0].content, encoding="utf-8")
        cases.append([str(path), job.cluster.world_size])
    result = subprocess.run(
        [str(python), str(ROOT / "tests" / "backends" / "mindformers" / "real_config.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1200,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    answers = json.loads(result.stdout)
    assert [answer.get("error") for answer in answers] == [None] * len(jobs)
    assert [count for row in answers[-1]["recompute"] for count in row] == list(full)
    # MindFormers counts both from the start of a chunk; what is recomputed in full is not recomputed in part.
    counted = [[count for row in rows for count in row] for rows in answers[-1]["select"].values()]
    assert counted == [[4, 3, 2, 0]]


def _local(job: Job, folder: Path) -> list[str]:
    """Return the job's arguments with folders for what is downloaded before a start: the parser looks for them."""
    return [str(folder) if arg == job.model.hub_id else arg for arg in _with_folders(job, folder)]


def test_mindspeed_itself_accepts_them(tmp_path: Path) -> None:
    unset = [tree.variable for tree in NATIVE_CPU.checkouts if not os.environ.get(tree.variable)]
    if unset:
        pytest.skip(f"{', '.join(unset)} not set: they name the checkouts of MindSpeed-LLM, MindSpeed and Megatron-LM")
    python = mindspeed_python()
    jobs = {f"{recipe} {n}": job for recipe in PARSED for n, job in enumerate(top(recipe, "mindspeed"))}
    (tmp_path / "weights").mkdir()
    lines = [{"argv": _local(job, tmp_path), "world_size": job.cluster.world_size} for job in jobs.values()]
    child = subprocess.run(
        [str(python), str(ROOT / "tests" / "backends" / "mindspeed" / "parser_child.py")],
        input="\n".join(json.dumps(line) for line in lines),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "USE_TF": "FALSE"},
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = json.loads(child.stdout.splitlines()[-1])
    assert {name: answer for name, answer in zip(jobs, answers, strict=True) if answer} == {}
