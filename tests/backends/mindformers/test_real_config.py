"""MindFormers 1.6.0 itself reads the file that is written, up to the layers of every stage."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.mindformers.launch import launch
from tests.backends.mindformers.jobs import DEEPSEEK, OLD, make, translated, tree
from tests.rehearse.native.environments import mindformers_1_6_python

pytestmark = pytest.mark.slow

_MODEL = {"n_group": None, "topk_group": None}
_WIDE = {"tp": 8, "pp": 8, "ep": 32, "sequence_parallel": True, "distributed_optimizer": True}
JOBS: dict[str, dict[str, Any]] = {
    "one node": tree(DEEPSEEK, model_changes=_MODEL, moe={"aux_loss_coeff": 1e-3}),
    "256 devices with chunks and a layout": tree(
        DEEPSEEK,
        model_changes=_MODEL,
        cluster={"nodes": 32},
        parallel={**_WIDE, "vpp": 2, "layout": "Et*4|" + "t*4|" * 14 + "tmL"},
        recompute={"granularity": "full", "method": "uniform", "num_layers": 1},
    ),
    "block recomputation": tree(
        DEEPSEEK,
        model_changes={**_MODEL, "num_nextn_predict_layers": 0, "num_hidden_layers": 60, "q_lora_rank": None},
        parallel={"pp": 2},
        recompute={"granularity": "full", "method": "block", "num_layers": 2, "communication": False},
    ),
    "yarn": tree(
        DEEPSEEK,
        model_changes={
            **_MODEL,
            "rope_scaling": {"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
            "shared_expert_intermediate_size": None,
            "router_expert_bias": False,
            "scoring_func": "softmax",
        },
    ),
}
# What MindFormers must have understood, by job.
EXPECTED: dict[str, dict[str, Any]] = {
    "one node": {
        "layers": [[62]],
        "rotary_scaling_factor": 1.0,
        "aux_loss_factors": [1e-3],
        "data_parallel_size": 8,
        "sparse_mode": 2,
        "hidden_dropout": 0.0,
    },
    "256 devices with chunks and a layout": {
        "layers": [[4] * 8, [4] * 7 + [2]],
        "recompute": [[4] * 8, [4] * 7 + [2]],
        "data_parallel_size": 4,
        "expert_model_parallel_size": 32,
        "sequence_parallel": True,
    },
    "block recomputation": {
        "layers": [[30, 30]],
        "recompute": [[2, 2]],
        "mp_comm_recompute": False,
        "mtp_num_layers": 0,
        "q_lora_rank": None,
    },
    "yarn": {
        "position_embedding_type": "yarn",
        "rotary_scaling_factor": 40.0,
        "shared_expert_num": 0,
        "moe_router_enable_expert_bias": False,
        "moe_router_score_function": "softmax",
        "moe_router_topk_scaling_factor": 2.5,
    },
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every job's file, read by MindFormers in one process."""
    python = mindformers_1_6_python()
    folder = tmp_path_factory.mktemp("files")
    cases = []
    for number, whole in enumerate(JOBS.values()):
        job = make(whole)
        path = folder / f"{number}.yaml"
        path.write_text(launch(job, translated(job, OLD).native).files[0].content, encoding="utf-8")
        cases.append([str(path), job.cluster.world_size])
    result = subprocess.run(
        [str(python), str(Path(__file__).with_name("real_config.py"))],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return dict(zip(JOBS, json.loads(result.stdout), strict=True))


@pytest.mark.parametrize("name", JOBS)
def test_mindformers_understands_the_file(judged: dict[str, Any], name: str) -> None:
    understood = judged[name]
    assert "error" not in understood, understood
    assert understood["global_batch"] == JOBS[name]["batch"]["global_batch_size"]
    assert {field: understood[field] for field in EXPECTED[name]} == EXPECTED[name]
