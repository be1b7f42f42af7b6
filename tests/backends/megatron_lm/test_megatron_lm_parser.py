"""The arguments of every kind of job against Megatron-LM's real parser, validator and configuration."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backends.megatron_lm import BACKEND
from launcher.catalogue.versions import in_range
from launcher.mapping.engine import translate
from launcher.mapping.environment import environment
from tests.backends.megatron_lm.checkout import CHECKOUT, checked_out_version
from tests.backends.megatron_lm.jobs import JOBS, NEWER


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.skipif(checked_out_version() is None, reason="MEGATRON_LM_PATH names no Megatron-LM of a known version")
def test_megatron_accepts_every_job() -> None:
    version = checked_out_version()
    assert version is not None
    jobs = {**JOBS, **(NEWER if in_range(version, "0.16", None) else {})}
    lines = [
        {
            "argv": BACKEND.argv(native := translate(job, BACKEND, version).native),
            "world_size": job.cluster.world_size,
            "env": environment(BACKEND.environment, job, native),
        }
        for job in jobs.values()
    ]
    child = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("parser_child.py")), CHECKOUT],
        input="\n".join(json.dumps(line) for line in lines),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert child.returncode == 0, child.stderr[-2000:]
    answers = json.loads(child.stdout.splitlines()[-1])
    assert {name: answer for name, answer in zip(jobs, answers, strict=True) if answer} == {}
