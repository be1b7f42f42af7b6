"""What tests of all rooms share: running the real command line in a child process, and small jobs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from launcher.job import Job, build, derive

ROOT = Path(__file__).resolve().parent.parent

# The same examples in every run: whether a commit passes is no matter of luck. CONTRIBUTING.md: how to find new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


class Finished:
    """A finished command: exit code, standard output, standard error."""

    def __init__(self, process: "subprocess.CompletedProcess[str]") -> None:
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


Launch = Callable[..., Finished]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Run `launch WORDS` as a user would, in an empty folder."""

    def run(*words: str, timeout: float = 240, env: dict[str, str] | None = None) -> Finished:
        return Finished(
            subprocess.run(
                [sys.executable, "-m", "launcher", *words],
                cwd=tmp_path,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "LAUNCH_HOME": f"{tmp_path}.launch",
                    **(env or {}),
                },
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        )

    return run


DENSE = {
    "model": {
        "model_type": "qwen3",
        "num_hidden_layers": 8,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 512,
        "max_position_embeddings": 4096,
        "qk_layernorm": True,
    },
    "batch": {"seq_length": 128, "global_batch_size": 16},
    "schedule": {"train_iters": 100},
    "optimizer": {"lr": 1e-3},
    "data": {"format": "sample"},
    "cluster": {"devices_per_node": 8},
}
MOE_MODEL = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


def make_job(tree: dict[str, Any] | None = None, *, moe: bool = False, backend: str | None = "megatron_lm") -> Job:
    """Return a small legal job with some values changed; `tree` is nested like a recipe."""
    merged: dict[str, Any] = {section: dict(values) for section, values in DENSE.items()}
    if moe:
        merged["model"] |= MOE_MODEL
    merged["backend"] = {"name": backend}
    for section, values in (tree or {}).items():
        merged[section] = {**merged.get(section, {}), **values} if isinstance(values, dict) else values
    job, problems = build(merged)
    assert not problems, problems
    return derive(job)
