"""How Megatron-LM is started."""

import json
import shlex
import subprocess

from backends.megatron_lm import BACKEND
from launcher.job import Job
from launcher.mapping.engine import translate
from launcher.plan.plan import LaunchPlan
from launcher.plan.shell import one_line
from tests.backends.megatron_lm.jobs import DENSE, EXPERTS, JOBS, NEWER, job_of


def plan(job: Job) -> LaunchPlan:
    """Return the plan of a job on the newest version."""
    return BACKEND.launch(job, translate(job, BACKEND, BACKEND.version(None)).native)


def test_one_command_per_node() -> None:
    made = plan(
        job_of(DENSE, {"name": "run", "cluster": {"nodes": 2, "devices_per_node": 4, "master_addr": "10.0.0.1"}})
    )
    for rank, node in enumerate(made.nodes):
        args = list(node.argv)
        assert args[: args.index("${MEGATRON_LM_PATH}/pretrain_gpt.py")] == shlex.split(
            f"torchrun --nproc_per_node 4 --nnodes 2 --node_rank {rank} --master_addr 10.0.0.1 --master_port "
            + args[args.index("--master_port") + 1]
        )
    assert len(made.nodes) == 2
    assert made.output_dir == "launch_output/run"
    assert json.loads(json.dumps(made.as_tree()))["nodes"][0]["ranks"] == [0, 1]


def test_paths_of_the_job_keep_their_meaning() -> None:
    node = plan(JOBS["dense"]).nodes[0]
    assert node.workdir == "."
    assert node.argv[node.argv.index("--data-path") + 1] == "corpus_text_document"


def test_environment() -> None:
    assert plan(JOBS["dense"]).nodes[0].env == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    users = job_of(DENSE, {"backend": {"env": {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "NCCL_DEBUG": "INFO"}}})
    assert plan(users).nodes[0].env == {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "NCCL_DEBUG": "INFO"}
    assert plan(NEWER["fine-grained offloading"]).nodes[0].env["NVTE_CPU_OFFLOAD_V1"] == "1"
    deterministic = plan(job_of(DENSE, {"kernels": {"deterministic": True}})).nodes[0].env
    assert deterministic["NCCL_ALGO"] == "Ring"


def test_pattern_expressions_reach_the_program_unchanged_through_a_shell() -> None:
    job = job_of(DENSE, EXPERTS, {"model": {"first_k_dense_replace": 3}, "data": {"paths": ["a b", "c"]}})
    args = [arg for arg in plan(job).nodes[0].argv if "MEGATRON_LM_PATH" not in arg]
    printed = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {one_line(args)}"], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split("\0")[:-1] == args
    assert "([0]*3+[1]*1)" in args


def test_aliases_of_versions() -> None:
    assert [BACKEND.version(name) for name in (None, "0.16", "0.12", "0.12.1")] == [
        "0.16.1",
        "0.16.1",
        "0.12.1",
        "0.12.1",
    ]
