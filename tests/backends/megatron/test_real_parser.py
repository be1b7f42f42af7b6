"""The argument classes of ms-swift 4.6.0 itself accept what the launcher writes, up to the model's configuration."""

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backends.megatron.launch import argv, command
from launcher.api import compose
from launcher.families.config_json import config_from_model
from launcher.job import Job
from launcher.job.model import Model
from launcher.mapping.backend import get_backend
from launcher.pipeline import judge
from launcher.rules.effects import absent_value
from tests.backends.megatron.jobs import (
    JOBS,
    NEWER_JOBS,
    NEWEST,
    QWEN3_8B,
    QWEN3_30B_A3B,
    make,
    named_job,
    translated,
)
from tests.rehearse.native import environments

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
# What the environment of these tests cannot configure, and what it lacks.
NOT_HERE = {
    "recipe internlm3_8b": "the code in the model's own repository, which its config.json names",
    # mcore-bridge asks for the branch; a release refuses its router ("Expert bias … only supports sigmoid").
    "recipe deepseek_v4_flash": "Megatron-core's development branch (SW-COMPRESSED-CORE)",
}
RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("*.yaml"))


@pytest.fixture(scope="module")
def swift_python() -> Path:
    return environments.swift_python()


# Values that are lists or mappings inside megatron_extra_kwargs, or JSON themselves.
COMPOSITES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "attention window": (QWEN3_8B, {"sliding_window": 512}),
    "pattern of expert layers": (
        QWEN3_30B_A3B,
        {
            "num_hidden_layers": 8,
            "num_experts": 16,
            "num_experts_per_tok": 4,
            "first_k_dense_replace": 2,
            "moe_layer_freq": 2,
            "norm_topk_prob": False,
        },
    ),
}
# What is left out -> of which job.
ABSENT = {"balancing loss": ("moe pretrain", "moe_aux_loss_coeff")}
_REST = {"data": {"paths": ["chat.jsonl"], "format": "messages"}, "batch": {"global_batch_size": 16}}


def _changed(name: str) -> Job:
    model, changes = COMPOSITES[name]
    return make({**_REST, "model": {**model, **changes, "overridden": list(changes)}})


@pytest.fixture(scope="module")
def judged(swift_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every recipe that `launch check` accepts and every named job, parsed by the real classes in one process."""
    folder = tmp_path_factory.mktemp("models")
    recipes = {f"recipe {name}": compose(recipe=name, overrides=["backend=megatron"]) for name in RECIPES}
    jobs = {name: job for name, job in recipes.items() if judge(job).ok}
    jobs |= {name: named_job(name) for name in (*JOBS, *NEWER_JOBS)}
    cases = [_case(name, job, job.model, folder) for name, job in jobs.items()]
    cases += [_without(name, flag, cases) for name, flag in ABSENT.values()]
    cases += [_case(name, _changed(name), make({"model": COMPOSITES[name][0]}).model, folder) for name in COMPOSITES]
    result = subprocess.run(
        [str(swift_python), "-m", "tests.backends.megatron.real_parser"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return {line["name"]: line for line in map(json.loads, result.stdout.splitlines())}


def _case(name: str, job: Job, model: Model, folder: Path) -> dict[str, Any]:
    """Give the job its model's config.json in a local directory of the hub's name, and data to name."""
    home = folder / name.replace(" ", "_") / (job.model.hub_id or "model").rsplit("/", 1)[-1]
    home.mkdir(parents=True)
    (home / "config.json").write_text(json.dumps(config_from_model(model)))
    data = dataclasses.replace(job.data, paths=job.data.paths or ("data.jsonl",), format=job.data.format or "hub")
    load = str(home) if job.checkpoint.load else None
    checkpoint = dataclasses.replace(job.checkpoint, save=str(folder / "out"), load=load)
    native = translated(dataclasses.replace(job, data=data, checkpoint=checkpoint), NEWEST).native
    args = argv(native)
    for flag in ("--model", "--teacher_model"):
        if flag in args:
            args[args.index(flag) + 1] = str(home)
    return {
        "name": name,
        "command": command(job),
        "argv": [*args, "--check_model", "false"],
        "world_size": job.cluster.world_size,
        "local_world_size": job.cluster.devices_per_node,
    }


def _without(name: str, flag: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a case without one of its arguments, which has one value."""
    case = next(case for case in cases if case["name"] == name)
    place = case["argv"].index(f"--{flag}")
    return {**case, "name": f"{name} without {flag}", "argv": [*case["argv"][:place], *case["argv"][place + 2 :]]}


def test_what_is_left_out_means_what_the_catalogue_says(judged: dict[str, Any]) -> None:
    """The parser says None for the coefficient of the balancing loss; the model's configuration gets 0."""
    catalogue = get_backend("megatron").catalogue(NEWEST)
    for name, flag in ABSENT.values():
        case = judged[f"{name} without {flag}"]
        assert case["error"] is None
        argument = catalogue.get(flag)
        assert argument is not None
        assert absent_value(argument) == case["model"][flag] == 0.0


@pytest.mark.parametrize("name", [*(f"recipe {name}" for name in RECIPES), *JOBS, *NEWER_JOBS, *COMPOSITES])
def test_the_real_classes_accept_the_command_line(judged: dict[str, Any], name: str) -> None:
    if name not in judged:
        pytest.skip("launch check refuses this recipe on Megatron-SWIFT")
    if name in NOT_HERE:
        pytest.skip(f"it needs {NOT_HERE[name]}")
    assert judged[name]["error"] is None


def test_the_model_is_the_one_that_was_meant(judged: dict[str, Any]) -> None:
    moe = judged["moe pretrain"]["model"]
    assert (moe["num_layers"], moe["hidden_size"], moe["num_moe_experts"]) == (48, 2048, 128)
    deep = judged["mla and mtp"]["model"]
    assert (deep["moe_layer_freq"], deep["mtp_num_layers"]) == ([0] * 3 + [1] * 58, 1)


def test_lists_and_mappings_keep_their_meaning(judged: dict[str, Any]) -> None:
    """A list would be refused where mcore-bridge asserts a text: `window_size` is "511,0" there."""
    assert judged["attention window"]["model"]["window_size"] == [511, 0]
    assert judged["pattern of expert layers"]["model"]["moe_layer_freq"] == [0, 0, 1, 0, 1, 0, 1, 0]


def test_gradient_accumulation_and_precision_follow(judged: dict[str, Any]) -> None:
    assert judged["sft"]["microbatches"] == 8
    assert judged["sft"]["dtype"] == "torch.bfloat16"
    assert judged["fp32"]["dtype"] == "torch.float32"
