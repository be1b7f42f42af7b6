"""`launch parity` as a user runs it: refusals, and real trainings that agree or part."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Launch
from tests.rehearse.native.environments import swift_python
from tests.waiting import STUCK_SECONDS

pytestmark = pytest.mark.slow

UNFUSED = "kernels.cross_entropy_fusion=false"

WRONG = {
    "unknown backend": (["--backends", "megatron_lm,nobody"], "no backend 'nobody'"),
    "one backend": (["--backends", "megatron_lm"], "two are needed, or --reference transformers"),
    "the same twice": (["--backends", "megatron_lm,megatron_lm"], "each backend once"),
    "no iterations": (["--backends", "megatron_lm,megatron", "--iterations", "0"], "must be at least 1"),
    "tolerance": (["--backends", "megatron_lm,megatron", "--tolerance", "2"], "a relative difference from 0 to 1"),
    "python of another": (["--backends", "megatron_lm,megatron", "--python", "mindspeed=/bin/true"], "BACKEND=PATH"),
    "environment of another": (["--backends", "megatron_lm,megatron", "--env", "mindspeed:A=1"], "BACKEND:NAME=VALUE"),
    "no such python": (["--backends", "megatron_lm,megatron", "--python", "megatron=/no"], "there is no such file"),
    "no Python": (["--backends", "megatron_lm,megatron", "--python", "megatron=/bin/true"], "is not a Python that"),
    "not executable": (["--backends", "megatron_lm,megatron", "--python", "megatron=/etc/hostname"], "cannot be run"),
    "unknown version": (
        ["--backends", "megatron_lm@9.9,megatron"],
        "--backends megatron_lm@0.16.1,megatron · --backends megatron_lm@0.15.3,megatron",
    ),
    "not a tolerance": (["--backends", "megatron_lm,megatron", "--tolerance", "nan"], "a relative difference from 0"),
    "name of a variable": (["--backends", "megatron_lm,megatron", "--env", "megatron:A B=1"], "megatron:A_B=1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_command_lines(launch: Launch, name: str) -> None:
    words, said = WRONG[name]
    finished = launch("parity", "+recipe=tiny_qwen3", *words)
    assert finished.code == 2
    assert said in finished.err


REFUSED = {
    "not installed": (["--backends", "mindspeed,megatron_lm"], "MINDSPEED_LLM_PATH is not set"),
    "core of another": (
        ["--backends", "megatron_lm,megatron", "--entry", "core"],
        "reads the arguments of Megatron-LM, not of Megatron-SWIFT",
    ),
    "reinforcement learning": (
        ["--backends", "megatron_lm", "--reference", "transformers", "task.type=grpo"],
        "only pretrain, sft, dpo are compared",
    ),
    "chat template that the reference does not know": (
        ["--backends", "megatron_lm", "--reference", "transformers", "task=sft", "data.template=gemma"],
        "does not know the chat template data.template=gemma",
    ),
    "fine-tuning": (
        ["--backends", "megatron_lm", "--reference", "transformers", "task=sft"],
        "works: --backends megatron · --backends mindspeed · task=pretrain (changes training)",
    ),
    "preferences": (
        ["--backends", "megatron_lm", "--reference", "transformers", "task=dpo"],
        "works: --backends megatron · --backends mindspeed · task=pretrain (changes training)",
    ),
    "adapters": (
        ["--backends", "megatron_lm", "--reference", "transformers", "lora.rank=4"],
        "works: --backends mindspeed --entry core · --backends megatron · lora.rank=null (changes training)",
    ),
    "texts for the embedded trainer": (
        ["--backends", "megatron", "--reference", "transformers", "lora.rank=4", "--entry", "core"],
        "Megatron-SWIFT reads no token files",
    ),
    "adapters in bf16": (
        [
            "--backends",
            "mindspeed",
            "--reference",
            "transformers",
            "precision.dtype=bf16",
            "lora.rank=4",
            "--entry",
            "core",
        ],
        "does not compute lora.rank=4",
    ),
    "python of core": (
        ["--backends", "megatron_lm", "--reference", "transformers", "--python", f"megatron_lm={sys.executable}"],
        "cannot run here",
    ),
    "one version by two names": (
        ["--backends", "megatron_lm,megatron_lm@0.16.1", "--entry", "core"],
        "megatron_lm and megatron_lm@0.16.1 are both Megatron-LM 0.16.1\n"
        "works: --backends megatron_lm --reference transformers",
    ),
    "simulated ranks": (
        ["--backends", "megatron_lm", "--entry", "core", "--reference", "transformers", "rehearse.fake_world=true"],
        "works: rehearse.fake_world=false",
    ),
    "experts in bf16": (
        [
            *("--backends", "megatron_lm", "--entry", "core", "--reference", "transformers"),
            *("model=tiny_qwen3_moe", "precision.dtype=bf16"),
        ],
        "does not compute model.model_type=qwen3_moe in bf16",
    ),
    "folder with signs of Hydra": (
        ["--backends", "megatron_lm", "--entry", "core", "--reference", "transformers", "-o", "a,b=1"],
        "a,b=1: overrides cannot name a folder with , =",
    ),
    "not empty": (["--backends", "megatron_lm", "--reference", "transformers", "-o", "."], "is not empty"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_refused_before_anything_trains(launch: Launch, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.txt").write_text("kept")
    words, said = REFUSED[name]
    unset = {"MINDSPEED_LLM_PATH": "", "MINDSPEED_PATH": "", "MEGATRON_LM_PATH": ""}
    finished = launch("parity", "+recipe=tiny_qwen3", *words, env=unset)
    assert finished.code == 1
    assert said in finished.err
    assert "model and data" not in finished.err
    assert "task.type=sft" not in finished.err.partition("launch parity:")[0]
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_a_refusal_after_the_folder_was_made_leaves_none(launch: Launch, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    words = ["--backends", "megatron_lm", "--entry", "core", "--reference", "transformers", "model.qk_layernorm=false"]
    finished = launch("parity", "+recipe=tiny_qwen3", "checkpoint.load=/ckpt", *words)
    assert finished.code == 1
    assert "qk_layernorm=False cannot be expressed" in finished.err
    assert "checkpoint.load=/ckpt is not read" in finished.err
    assert list(tmp_path.iterdir()) == []


# The job, and what makes it a job that the reference computes.
MODELS = {
    "dense": ["+recipe=tiny_qwen3"],
    "experts": ["+recipe=tiny_qwen3_moe"],
    "latent attention, sequence-wise load balancing, multi-token prediction": [
        "+recipe=tiny_deepseek_v3",
        "moe.aux_loss_coeff=1",
        "batch.micro_batch_size=2",
        "batch.global_batch_size=4",
    ],
    "biases": ["+recipe=qwen2_5_7b_sft", "task=pretrain", "precision.dtype=fp32"],
    "scaled rotary embedding": ["+recipe=llama3_8b", "precision.dtype=fp32"],
    "tied": ["+recipe=tiny_qwen3", "model.tie_word_embeddings=true"],
}


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("name", MODELS)
def test_megatron_core_trains_as_transformers(launch: Launch, name: str) -> None:
    pytest.importorskip("transformers")
    words = ["--backends", "megatron_lm", "--entry", "core", "--reference", "transformers", "--iterations", "4"]
    finished = launch("parity", *MODELS[name], *words, UNFUSED, "--json", timeout=400)
    assert finished.code == 0, finished.out
    (compared,) = finished.json["compared"]
    assert compared["agrees"]
    assert compared["largest_relative_difference"]["loss"] < 1e-6
    assert len(finished.json["sides"][1]["iterations"]) == 4


def test_ms_swift_trains_as_megatron_core(launch: Launch) -> None:
    words = ["--backends", "megatron_lm,megatron", "--python", f"megatron={swift_python()}", "--iterations", "3"]
    finished = launch("parity", "+recipe=tiny_qwen3_moe", *words, "--json", timeout=500)
    assert finished.code == 0, finished.out
    assert finished.json["ok"]
    fused = ("kernels.cross_entropy_fusion=true", "--tolerance", "1e-5", "--locate")
    apart = launch("parity", "+recipe=tiny_qwen3", *words, *fused, timeout=500)
    assert apart.code == 1
    assert "differs from megatron_lm" in apart.out
    assert "gradient norm" in apart.out
    # The loss of each token agrees before it; the settings are those that decide how it is computed.
    assert "first difference: gradient of logits" in apart.out


# What makes it a tuning, and what its losses at iteration 1 (reference, ms-swift) and its parameters are beside.
TUNED: dict[str, tuple[list[str], Callable[[float, float, dict[str, Any]], bool]]] = {
    # ms-swift reports the mean of tokens, which is another number than the mean of micro-batches that is trained.
    "conversations": (["task=sft"], lambda own, side, _: abs(own / side - 1) > 1e-5),
    # The loss of preferred answers gives iteration 1 a loss of its own: without it, it is log 2 everywhere.
    "preferences": (["task=dpo", "task.rpo_alpha=1.0"], lambda _, side, __: side > 1),
    # Factors A and B of seven modules of two layers.
    "an adapter": (["lora.rank=4"], lambda _, __, found: found["tensors"] == 28 and ".lora_" in found["tensor"]),
}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", TUNED)
def test_ms_swift_tunes_as_transformers(launch: Launch, name: str) -> None:
    pytest.importorskip("transformers")
    words, holds = TUNED[name]
    sides = ["--backends", "megatron", "--python", f"megatron={swift_python()}", "--reference", "transformers"]
    # The tolerance is named, so that the reference is not trained twice.
    asked = [*sides, UNFUSED, "--iterations", "2", "--tolerance", "1e-4", "--json"]
    finished = launch("parity", "+recipe=tiny_qwen3", *words, *asked, timeout=400)
    assert finished.code == 0, finished.out
    (compared,) = finished.json["compared"]
    assert compared["largest_relative_difference"]["loss"] < 1e-5
    (parameters,) = finished.json["parameters"].values()
    assert parameters["problem"] is None
    own, side = (each["iterations"][0]["loss"] for each in finished.json["sides"])
    assert holds(own, side, parameters)


# What is compared, the training that is running, the signal, who gets it, and the exit code.
STOPPED: dict[str, tuple[list[str], str, int, Callable[[int, int], None], int]] = {
    "Ctrl-C": (
        ["--backends", "megatron_lm", "--reference", "transformers"],
        "transformers",
        signal.SIGINT,
        os.killpg,
        130,
    ),
    "kill of a shell's background job, which ignores Ctrl-C": (
        ["--backends", "megatron_lm@0.16.1,megatron_lm@0.12.1"],
        "megatron_lm-0.16.1-core",
        signal.SIGTERM,
        os.kill,
        143,
    ),
}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("name", STOPPED)
def test_a_comparison_that_is_stopped_leaves_no_process(tmp_path: Path, name: str) -> None:
    words, training, number, send, code = STOPPED[name]
    command = [sys.executable, "-m", "launcher", "parity", "+recipe=tiny_qwen3", *words, "--entry", "core"]
    long = ["--iterations", "10000", "schedule.train_iters=10000", "-o", "out"]
    if number != signal.SIGINT:
        command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LAUNCH_HOME": f"{tmp_path}.launch"}
    with subprocess.Popen(
        [*command, *long], cwd=tmp_path, env=env, stderr=subprocess.PIPE, start_new_session=True
    ) as child:
        record = tmp_path / "out" / training / "record.jsonl"
        for _ in range(600):
            if record.exists() or child.poll() is not None:
                break
            time.sleep(0.1)
        send(child.pid, number)
        assert child.wait(timeout=STUCK_SECONDS) == code
    assert not [line for line in _processes() if str(tmp_path) in line]
    assert json.loads(record.read_text(encoding="utf-8").splitlines()[0])["iteration"] == 1


def _processes() -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "launcher" in line]
