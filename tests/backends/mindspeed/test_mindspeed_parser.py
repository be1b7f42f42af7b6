"""The arguments of every kind of job against MindSpeed-LLM's real parser, validators and configuration."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from backends.mindspeed import BACKEND
from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.job import Job
from launcher.mapping.engine import translate
from launcher.mapping.environment import environment
from tests.backends.megatron_lm.jobs import JOBS as SMALL
from tests.backends.mindspeed.examples import JOBS as EXAMPLES
from tests.rehearse.native.environments import mindspeed_python

# One job of each kind: about ten seconds each, as MindSpeed is imported anew for every command line.
KINDS = (
    "dense",
    "llama3 scaling",
    "tp with sequence parallel",
    "pp with vpp",
    "uneven stages",
    "cp hybrid",
    "cp allgather",
    "moe tp sp ep etp",
    "deepseek v2 lite",
    "deepseek v3 tp sp pp ep",
    "recompute selective",
    "checkpoints, logs, evaluation",
    "weights sharded by Megatron",
    "weights sharded by torch",
    "communication in detail",
)


@pytest.mark.slow
def test_mindspeed_accepts_every_kind_of_job(tmp_path: Path) -> None:
    unset = [tree.variable for tree in NATIVE_CPU.checkouts if not os.environ.get(tree.variable)]
    if unset:
        pytest.skip(f"{', '.join(unset)} not set: they name the checkouts of MindSpeed-LLM, MindSpeed and Megatron-LM")
    python = mindspeed_python()
    jobs = {name: SMALL[name] for name in KINDS} | dict(EXAMPLES)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").touch()
    lines = [
        {"argv": _with_folders(job, tmp_path), "world_size": job.cluster.world_size, "env": _connections(job)}
        for job in jobs.values()
    ]
    child = subprocess.run(
        [str(python), str(Path(__file__).with_name("parser_child.py"))],
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


def _connections(job: Job) -> dict[str, str]:
    """Return the variable that validators look at, as a plan of the job has it."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    return {name: environment(BACKEND.environment, job, translate(job, BACKEND, "26.1.0").native)[name]}


def _with_folders(job: Job, folder: Path) -> list[str]:
    """Return the job's arguments with folders that exist for upstream's placeholders and files."""
    args = BACKEND.argv(translate(job, BACKEND, "26.1.0").native)
    weights = str(folder / "weights")
    with_weights = [weights if arg == "your_model_ckpt_path" else arg for arg in args]
    return [str(folder) if arg.startswith(("your_", "/data/")) else arg for arg in with_weights]
