"""How MindSpeed-LLM is started."""

import pytest

from backends.mindspeed import BACKEND
from launcher.job import Job
from launcher.mapping.engine import translate
from launcher.plan.plan import LaunchPlan
from tests.backends.megatron_lm.jobs import DENSE, Tree, job_of


def plan(job: Job) -> LaunchPlan:
    """Return the plan of a job on the newest version."""
    return BACKEND.launch(job, translate(job, BACKEND, BACKEND.version(None)).native)


_SPECS = "mindspeed_llm.tasks.models.spec."
SCRIPTS: list[tuple[str, Tree, str]] = [
    ("pre-training", {}, "pretrain_gpt.py"),
    ("fine-tuning", {"task": {"type": "sft"}}, "posttrain_gpt.py"),
    ("DPO", {"task": {"type": "dpo"}}, "posttrain_gpt.py"),
    ("Mamba", {"backend": {"args": {"spec": [f"{_SPECS}mamba_spec", "layer_spec"]}}}, "pretrain_mamba.py"),
    (
        "DeepSeek 4",
        {"backend": {"args": {"spec": [f"{_SPECS}deepseek4_spec", "layer_spec"]}}},
        "pretrain_deepseek4.py",
    ),
]


@pytest.mark.parametrize(("name", "tree", "script"), SCRIPTS, ids=[name for name, _, _ in SCRIPTS])
def test_entry_script(name: str, tree: Tree, script: str) -> None:
    node = plan(job_of(DENSE, tree)).nodes[0]
    assert node.argv[0] == "torchrun"
    assert [arg for arg in node.argv if arg.endswith(".py")] == [script]
    assert node.workdir == "${MINDSPEED_LLM_PATH}"


def test_relative_paths_lie_below_the_folder_of_the_launch() -> None:
    job = job_of(
        DENSE,
        {
            "data": {"paths": ["0.3", "a", "0.7", "/b"]},
            "checkpoint": {"save": "out", "load": "$HOME/ckpt"},
            "tokenizer": {"path": "./hf"},
        },
    )
    argv = plan(job).nodes[0].argv
    at = argv.index("--data-path")
    assert argv[at + 1 : at + 5] == ("0.3", "${LAUNCH_DIR}/a", "0.7", "/b")
    assert argv[argv.index("--save") + 1] == "${LAUNCH_DIR}/out"
    assert argv[argv.index("--load") + 1] == "$HOME/ckpt"
    assert argv[argv.index("--tokenizer-model") + 1] == "${LAUNCH_DIR}/./hf"


def test_names_on_a_hub_are_no_paths() -> None:
    argv = plan(job_of(DENSE, {"model": {"hub_id": "Qwen/Qwen3-8B", "pretrained": False}})).nodes[0].argv
    assert argv[argv.index("--tokenizer-model") + 1] == "Qwen/Qwen3-8B"


def test_environment() -> None:
    env = plan(job_of(DENSE, {"backend": {"env": {"HCCL_CONNECT_TIMEOUT": "7200"}}})).nodes[0].env
    assert env == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
        "HCCL_CONNECT_TIMEOUT": "7200",
        "HCCL_EXEC_TIMEOUT": "3600",
        "PYTHONPATH": "${MINDSPEED_LLM_PATH}:${MINDSPEED_PATH}:${MEGATRON_LM_PATH}:${PYTHONPATH}",
    }
