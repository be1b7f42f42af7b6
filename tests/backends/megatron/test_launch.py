"""How `megatron` is started: one command per node, configured by the environment, with a prepared model directory."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backends.megatron import BACKEND
from backends.megatron.launch import argv, launch
from launcher.job import Job
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.plan import LaunchPlan
from tests.backends.megatron.jobs import JOBS, NEWEST, QWEN3_8B, SEED, make, named_job, translated


def plan_of(job: Job, version: str = NEWEST) -> LaunchPlan:
    return launch(job, translated(job, version).native)


def native(**values: Any) -> NativeArgs:
    args = tuple(NativeArg(flag=flag, value=value) for flag, value in values.items())
    return NativeArgs(backend="megatron", version=NEWEST, args=args)


ARGS: dict[str, tuple[Any, list[str]]] = {
    "a boolean": (True, ["--x", "true"]),
    "a false boolean": (False, ["--x", "false"]),
    "a list": (("a#1", "b c"), ["--x", "a#1", "b c"]),
    "a mapping": ({"a": 1, "b": "é"}, ["--x", '{"a": 1, "b": "é"}']),
    "a small number": (1e-5, ["--x", "1e-05"]),
    "a negative number": (-1, ["--x", "-1"]),
    "text that looks like an option": ("- be brief", ["--x=- be brief"]),
}


@pytest.mark.parametrize("name", ARGS)
def test_values_become_arguments(name: str) -> None:
    value, arguments = ARGS[name]
    assert argv(native(x=value)) == arguments


COMMANDS = {"pretrain": "pt", "sft": "sft", "dpo": "rlhf", "kto": "rlhf", "reward_model": "rlhf"}


@pytest.mark.parametrize("task", COMMANDS)
def test_the_task_is_the_subcommand(task: str) -> None:
    plan = plan_of(make({"model": QWEN3_8B, "task": {"type": task}}))
    assert plan.nodes[0].argv[:2] == ("megatron", COMMANDS[task])


def test_one_device_is_started_through_torchrun_too() -> None:
    """Without NPROC_PER_NODE swift starts no torchrun and its distributed set-up differs."""
    plan = plan_of(make({"model": QWEN3_8B, "cluster": {"devices_per_node": 1}}))
    assert plan.nodes[0].env["NPROC_PER_NODE"] == "1"
    assert "NNODES" not in plan.nodes[0].env
    assert plan.nodes[0].env["MASTER_PORT"] != "29500"


def test_several_nodes_find_each_other() -> None:
    plan = plan_of(named_job("moe pretrain"))
    assert [node.env["NODE_RANK"] for node in plan.nodes] == ["0", "1"]
    assert {(node.env["NNODES"], node.env["MASTER_ADDR"], node.env["MASTER_PORT"]) for node in plan.nodes} == {
        ("2", "node0", plan.nodes[0].env["MASTER_PORT"])
    }
    assert plan.nodes[0].argv == plan.nodes[1].argv


ENVIRONMENTS: dict[str, tuple[dict[str, Any], dict[str, str | None]]] = {
    "cuda": ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TASK_QUEUE_ENABLE": None}),
    "npu": (
        {"hardware": {"device": "npu"}},
        {
            "PYTORCH_CUDA_ALLOC_CONF": None,
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
            "TASK_QUEUE_ENABLE": "2",
        },
    ),
    "cpu": ({"hardware": {"device": "cpu"}}, {"PYTORCH_CUDA_ALLOC_CONF": None}),
    "the user wins": (
        {"backend": {"env": {"PYTORCH_CUDA_ALLOC_CONF": "a:b", "NCCL_DEBUG": "INFO"}}},
        {"PYTORCH_CUDA_ALLOC_CONF": "a:b", "NCCL_DEBUG": "INFO"},
    ),
    "Megatron-FSDP": ({"parallel": {"zero_stage": 3}}, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_environment_follows_the_device(name: str) -> None:
    tree, expected = ENVIRONMENTS[name]
    env = plan_of(make({"model": QWEN3_8B, **tree})).nodes[0].env
    assert {key: env.get(key) for key in expected} == expected


def test_the_chosen_pythons_own_megatron_is_started() -> None:
    plan = plan_of(make({"model": QWEN3_8B, "cluster": {"python": "/opt/swift/bin/python"}}))
    assert plan.nodes[0].argv[0] == "/opt/swift/bin/megatron"


def test_a_model_with_weights_needs_no_files() -> None:
    for version in BACKEND.versions:
        plan = plan_of(named_job("sft"), version)
        assert (plan.files, plan.prepare) == ((), ())


def test_the_seed_is_advised_to_convert_first() -> None:
    notes = plan_of(named_job("sft"), SEED).notes
    assert any(
        "swift export --model Qwen/Qwen3-8B --to_mcore true --torch_dtype bfloat16 --output_dir Qwen3-8B-mcore" in note
        for note in notes
    )
    assert not any("swift export" in note for note in plan_of(named_job("sft"), NEWEST).notes)


def test_random_weights_are_prepared_where_model_points() -> None:
    plan = plan_of(named_job("random weights"))
    folder = plan.nodes[0].argv[plan.nodes[0].argv.index("--model") + 1].removeprefix("./")
    files = {file.path: file.content for file in plan.files}
    config = json.loads(files[f"{folder}/config.json"])
    assert (config["model_type"], config["initializer_range"], config["num_hidden_layers"]) == ("qwen3", 0.006, 36)
    script = next(path for path in files if path.endswith(".py"))
    compile(files[script], script, "exec")
    arguments = (script, f"--config={folder}/config.json", "--tokenizer=/data/tokenizer")
    assert " ".join(arguments) in " ".join(plan.prepare[-1].argv)


def test_before_3_10_only_config_and_tokenizer_are_prepared() -> None:
    plan = plan_of(named_job("random weights"), SEED)
    assert [file.path for file in plan.files] == ["launch_output/job/model/config.json"]
    assert "/data/tokenizer" in plan.prepare[0].argv


def test_random_weights_of_a_hub_model_take_its_tokenizer() -> None:
    job = make({**JOBS["sft"], "model": {**QWEN3_8B, "pretrained": False}})
    plan = plan_of(job)
    fetch, draw = (node.argv for node in plan.prepare)
    assert fetch[4] == "launch_output/job/tokenizer/tokenizer_config.json"
    assert draw[4] == "launch_output/job/model"
    assert "Qwen/Qwen3-8B" in fetch


def test_without_a_tokenizer_the_plan_says_what_is_missing() -> None:
    job = make({**JOBS["random weights"], "tokenizer": {"path": None}})
    plan = plan_of(job)
    assert plan.prepare == ()
    assert any("tokenizer.path" in note for note in plan.notes)


def test_preparation_fills_the_directory_once(tmp_path: Path) -> None:
    """The commands run as they stand; a second start leaves the weights alone."""
    job = make(
        {**JOBS["random weights"], "tokenizer": {"path": str(tmp_path / "tok")}, "cluster": {"python": sys.executable}}
    )
    (tmp_path / "tok").mkdir()
    plan = plan_of(job)
    draws = "import pathlib, sys; words = dict(word.split('=', 1) for word in sys.argv if '=' in word); "
    draws += "out = pathlib.Path(words['--out']); out.mkdir(); "
    draws += "[(out / name).write_text('new') for name in ('config.json', 'model.safetensors', 'tokenizer.json')]"
    for file in plan.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(draws if file.path.endswith(".py") else file.content)
    folder = tmp_path / "launch_output/job/model"
    planned = (folder / "config.json").read_text()
    subprocess.run(plan.prepare[-1].argv, cwd=tmp_path, check=True)
    assert (folder / "model.safetensors").read_text() == "new"
    assert (folder / "config.json").read_text() == planned
    (folder / "model.safetensors").write_text("trained")
    subprocess.run(plan.prepare[-1].argv, cwd=tmp_path, check=True)
    assert (folder / "model.safetensors").read_text() == "trained"


def test_the_backend_is_imported_without_reading_data() -> None:
    """A command line that names another backend pays for nothing of this one's."""
    heavy = "{'torch', 'transformers', 'numpy', 'swift', 'yaml', 'hydra'}"
    code = f"import sys, backends.megatron; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
