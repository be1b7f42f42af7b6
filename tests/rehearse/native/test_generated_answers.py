"""GRPO of ms-swift on several ranks: the engine that answers has the weights that the trainer trains."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.executors.local.run import run
from launcher.pipeline import judge
from launcher.runtime import planned
from tests.rehearse.native.environments import swift_python
from tools.bench.rehearsal_recipes import ITERATIONS, shortened

RECIPE = "qwen3_moe_grpo"
FLOAT32 = ("precision.dtype=fp32", "optimizer.precision_aware=false", "offload.optimizer=false")
COMPARED = "backend.args.log_rollout_offpolicy_metrics=true"


@pytest.mark.slow
def test_answers_are_as_likely_for_the_trainer_as_for_the_engine_that_drew_them(tmp_path: Path) -> None:
    """ms-swift compares the probabilities itself: weights that were not exported would differ after the first step."""
    here = (f"output_dir={tmp_path}", f"cluster.python={swift_python()}", "rehearse.max_processes=2")
    words = [f"+recipe={RECIPE}", "backend=megatron", *shortened(RECIPE), *FLOAT32, COMPARED, *here]
    plan = planned(judge(compose(words), fixes=False))
    ended = run(plan, quiet=True)
    assert ended.code == 0, ended.log.read_text(errors="replace")[-3000:]
    steps = logged(tmp_path)
    assert len(steps) == ITERATIONS
    for step in steps:
        assert abs(step["rollout_correction/kl"]) < 1e-5
        assert step["grad_norm"] > 0
        assert 0 < step["rewards/RehearsalLetters/mean"] < 1
    perplexities = {step["rollout_correction/rollout_ppl"] for step in steps}
    assert len(perplexities) == ITERATIONS


def logged(folder: Path) -> list[dict[str, Any]]:
    (file,) = folder.rglob("logging.jsonl")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if "loss" in line]
