"""Hostile text in every field of a job that holds text: refused by a finding, or carried to the program as it is."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launcher.job import Job, Value, fields, with_values
from launcher.pipeline import judge
from launcher.plan import LaunchPlan
from launcher.plan.executor import Place, get_executor
from launcher.plan.shell import script
from launcher.runtime import planned
from tests.conftest import make_job
from tests.injection.hostile import TEXTS, Stubs, agrees, expected, header_options
from tests.sampling import sample

BACKENDS = ("megatron", "megatron_lm", "mindspeed", "mindformers")
EXECUTORS: dict[str, dict[str, Any]] = {
    "local": {},
    "ssh": {"hosts": ["n1"]},
    "slurm": {},
    "kubernetes": {"container": "x/y:1", "master_addr": None},
    "environment": {},
}
# Text that is a choice of ours is refused by its type; hardware only names and explains.
TEXT_FIELDS = tuple(
    path
    for path, info in fields().items()
    if ("str" in str(info.type) or "Mapping" in str(info.type)) and not info.meta.choices
    if not path.startswith(("hardware.", "imported.", "search.", "backend.name", "backend.version", "rules."))
)
# Some arguments without a field, for backend.args.
FREE = {
    "megatron": "external_plugins",
    "megatron_lm": "wandb-exp-name",
    "mindspeed": "wandb-exp-name",
    "mindformers": "train_dataset.data_loader.dataset_dir",
}


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """Programs that record their calls."""
    return Stubs(tmp_path_factory.mktemp("stubs"))


def values_of(path: str, text: str, backend: str) -> Iterator[Value]:
    """Yield values of a field that hold a text."""
    kind = str(fields()[path].type)
    if path == "backend.args":
        yield {FREE[backend]: text}
        yield {text: "1"}
    elif "Mapping" in kind:
        yield {"X": text}
        yield {text: "1"}
    elif "tuple" in kind:
        yield (text,)
        yield ("a", text)
    else:
        yield text


def made(path: str, value: Value, backend: str, executor: str) -> Job:
    """Return a small job with one value changed; the wrong names and types that composing refuses are not judged."""
    job = make_job({"cluster": {"executor": executor, "python": None, **EXECUTORS[executor]}}, backend=backend)
    return with_values(job, {path: value})


@cache
def base(backend: str, executor: str) -> LaunchPlan:
    return planned(judge(made("seed", 42, backend, executor), fixes=False))


def check_job(stubs: Stubs, folder: Path, path: str, value: Value, backend: str, executor: str) -> bool:
    """Judge a job; where it is accepted, render it and run its script. Tell whether a script was run."""
    outcome = judge(made(path, value, backend, executor), fixes=False)
    if not outcome.ok:
        return False
    plan = planned(outcome)
    if plan == base(backend, executor):
        return False
    check_rendered(plan, executor)
    text = script(plan)
    environ = {"NODE_RANK": "0", "MASTER_ADDR": "h"}
    done = stubs.run(["bash", "-c", text], folder, **environ)
    calls = stubs.calls()
    assert not [call for call in calls if call.argv[0] == "pwned"], done.stderr
    # A Python in a folder means the program beside it there, and none of the stubs.
    if not plan.prepare and "/" not in plan.nodes[0].argv[0]:
        node = replace(plan.nodes[0], env={k: v for k, v in plan.nodes[0].env.items() if k != "PATH"})
        known = stubs.environ(**environ, LAUNCH_DIR=str(folder))
        wanted = expected(node, known)
        assert wanted.argv in [call.argv for call in calls], done.stderr
        assert any(agrees(call, wanted) for call in calls), (path, value)
    return True


def check_rendered(plan: LaunchPlan, executor: str) -> None:
    """Render what starts a plan; the header of a batch script asks for the plan's options and nothing else."""
    renders = get_executor(executor)
    if renders.here:
        return
    files = renders.render(plan, Place(id="job-1", folder="/x/out", launch_dir="/x"))
    if executor == "slurm":
        options = list(header_options(files[-1].content))
        assert options[4:] == list(plan.start.settings.options)
        assert options[0] == f"--job-name={plan.start.name}"


def cases() -> Iterator[tuple[str, Value, str, str]]:
    """Yield all fields with all texts, each on some backend and executor."""
    number = 0
    for path, text in itertools.product(TEXT_FIELDS, TEXTS.values()):
        backend = BACKENDS[number % len(BACKENDS)]
        executors = ("slurm", "kubernetes", "ssh") if path.startswith("cluster.") else tuple(EXECUTORS)
        executor = executors[number // len(BACKENDS) % len(executors)]
        for value in values_of(path, text, backend):
            yield path, value, backend, executor
            number += 1


def test_hostile_text_is_refused_or_preserved(stubs: Stubs, tmp_path: Path) -> None:
    ran = [check_job(stubs, tmp_path, *case) for case in sample(cases(), 90, "hostile text")]
    assert sum(ran) > len(ran) / 15, "most fields reach no program: the test sees nothing"


# Fields whose text goes through a grammar of its own on the way; each of them with each text.
NARROW = (
    *("name", "output_dir", "cluster.python", "cluster.master_addr", "cluster.container", "cluster.time_limit"),
    *("cluster.sbatch_options", "cluster.partition", "cluster.account", "cluster.container_mounts", "backend.env"),
)


@pytest.mark.sample(keep=5)
@pytest.mark.parametrize("path", NARROW)
def test_each_hostile_text_where_a_grammar_is_narrow(stubs: Stubs, tmp_path: Path, path: str) -> None:
    executor = "slurm" if path.startswith("cluster.") else "local"
    every = 1 if path in ("name", "cluster.sbatch_options") else 3
    for text in itertools.islice(TEXTS.values(), 0, None, every):
        for value in values_of(path, text, "megatron"):
            check_job(stubs, tmp_path, path, value, "megatron", executor)
