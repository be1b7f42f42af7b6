"""Configurations made of several files: Hydra's defaults, bases, modules that name a model, open values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.api import ImportRefused, import_file
from launcher.job import value_at

MODEL = "num_layers: 12\nhidden_size: 768\nnum_attention_heads: 12\n"
BASE = "swiglu: true\nnormalization: RMSNorm\nmax_position_embeddings: 4096\nhidden_size: 512\n"
TRAINER = (
    "lr: 1.0e-3\nmin_lr: 1.0e-5\ntrain_iters: 500\nmicro_batch_size: 1\nglobal_batch_size: 8\nlr_decay_iters: null\n"
)
MODULES = """
work_group: ${TEAM:us}
modules:
  pre_trainer:
    framework: FRAMEWORK
    config: pre.yaml
    model: ${MODEL:small}.yaml
    overrides:
      lr: 2.0e-4
      seq_length: ${SEQ_LENGTH:2048}
      tensor_model_parallel_size: ${TP:2}
      use_torch_fsdp2: 0
      train_data_path: ${DATA:null}
"""
EXPERIMENT = """
defaults:
  - _self_
  - train: small
experiment:
  seed: 7
  out: ./out
  steps: 250
  task: {type: train, backend: BACKEND}
  runner: {nnodes: 2, nproc_per_node: 4, rdzv_backend: static}
  envs: {CUDA_DEVICE_MAX_CONNECTIONS: 1}
action: run
hydra: {run: {dir: "${experiment.out}/hydra"}}
"""
TRAIN = """
system:
  tensor_model_parallel_size: 2
  precision: {bf16: true}
  checkpoint: {save: "${experiment.out}/ckpt", save_interval: "${experiment.steps}"}
model:
  num_layers: 12
  hidden_size: 768
  num_attention_heads: 12
  rotary_base: 1000000.0
  seed: ${experiment.seed}
  micro_batch_size: 1
  global_batch_size: 16
  train_iters: 100
  seq_length: 2048
  max_position_embeddings: 2048
  optimizer: {weight_decay: 0.1, lr_scheduler: {lr: 3.0e-4, lr_decay_style: cosine}}
data: {data_path: /data/x, split: 1}
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def modules(folder: Path, **replaced: str) -> Path:
    text = MODULES.replace("FRAMEWORK", replaced.pop("framework", "megatron"))
    files = {
        "examples/a/x.yaml": text,
        "primus/configs/models/megatron/small.yaml": f"extends: [base.yaml]\n{MODEL}",
        "primus/configs/models/megatron/base.yaml": BASE,
        "primus/configs/modules/megatron/pre.yaml": TRAINER,
    }
    for name in replaced.values():
        del files[name]
    return write(folder, files) / "examples/a/x.yaml"


def test_a_module_is_put_over_its_configuration_and_its_model(tmp_path: Path) -> None:
    found = import_file(modules(tmp_path))
    expected = {
        "optimizer.lr": 2e-4,
        "optimizer.min_lr": 1e-5,
        "schedule.train_iters": 500,
        "model.num_hidden_layers": 12,
        "model.hidden_size": 768,
        "model.hidden_act": "silu",
        "batch.seq_length": 2048,
        "parallel.tp": 2,
    }
    assert {path: value_at(found.job, path) for path in expected} == expected
    notes = [note.message for note in found.warnings]
    assert "variables at the defaults that the file names: SEQ_LENGTH=2048, TP=2, DATA=null" in notes


def test_variables_of_a_file_can_be_set(tmp_path: Path) -> None:
    found = import_file(modules(tmp_path), variables={"TP": "4"})
    assert found.job.parallel.tp == 4


def test_a_missing_model_is_reported_and_not_guessed(tmp_path: Path) -> None:
    path = modules(tmp_path, without="primus/configs/models/megatron/small.yaml")
    with pytest.raises(ImportRefused, match=r"modules.pre_trainer.model small.yaml is not found") as caught:
        import_file(path)
    assert caught.value.partial
    assert import_file(path, partial=True).job.optimizer.lr == 2e-4


def test_a_module_of_another_framework_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="trains with torchtitan"):
        import_file(modules(tmp_path, framework="torchtitan"))


def test_an_experiment_with_its_training(tmp_path: Path) -> None:
    write(tmp_path, {"train.yaml": EXPERIMENT.replace("BACKEND", "megatron"), "train/small.yaml": TRAIN})
    found = import_file(tmp_path / "train.yaml")
    expected = {
        "cluster.nodes": 2,
        "cluster.devices_per_node": 4,
        "parallel.tp": 2,
        "seed": 7,
        "checkpoint.save": "./out/ckpt",
        "checkpoint.save_interval": 250,
        "optimizer.lr": 3e-4,
        "model.rope_theta": 1_000_000,
        "data.paths": ("/data/x",),
    }
    assert {path: value_at(found.job, path) for path in expected} == expected
    assert found.job.backend.env == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert not [note for note in found.warnings if "dropped" in note.message]


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "inference": (
        {"x.yaml": EXPERIMENT.replace("BACKEND", "vllm"), "train/small.yaml": TRAIN},
        "train by vllm: not a training",
    ),
    "a file of defaults that is not there": ({"x.yaml": EXPERIMENT}, r"named in its `defaults`: _self_, .*small.yaml"),
    "defaults in a circle": ({"x.yaml": "defaults: [x]\nlr: 1\n"}, "include each other"),
    "bases in a circle": (
        {"x.yaml": f"extends: [y.yaml]\n{MODEL}", "y.yaml": "extends: x.yaml\n"},
        "include each other",
    ),
    "roles with settings of their own": (
        {"x.yaml": f"actor: {{lr: 1, micro_batch_size: 4}}\ncritic: {{micro_batch_size: 8}}\n{MODEL}"},
        "sections configure several models",
    ),
    "sections of another program under known names": (
        {"x.yaml": "model: {remote: 1, scratch: 1}\ndata: {cutoff: 1}\nparallel: {fsdp: 8}\noptimizer: {a: 1}\n"},
        "keys are not read by",
    ),
    "roles of a driver": (
        {"x.yaml": "model: m\ndataset: d\nlr: 1e-5\ntrain:\n  lr: 1e-6\nrollout:\n  max_length: 1\n"},
        "train, rollout have separate arguments",
    ),
    "another trainer of the same project": (
        {"x.yaml": "model: m\ndataset: d\ntorch_dtype: bfloat16\nper_device_train_batch_size: 1\nmax_length: 9\n"},
        "per_device_train_batch_size: arguments of transformers' trainer",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_single_training_is_refused(tmp_path: Path, case: str) -> None:
    files, reported = REFUSED[case]
    with pytest.raises(ImportRefused, match=reported):
        import_file(write(tmp_path, files) / "x.yaml")


OPEN: dict[str, tuple[str, dict[str, Any]]] = {
    "a default": ("${A:8}", {"batch.global_batch_size": 8}),
    "a default as a shell writes it": ("${A:-8}", {"batch.global_batch_size": 8}),
    "a default as OmegaConf writes it": ("${oc.env:A,8}", {"batch.global_batch_size": 8}),
    "another value": ("${other.size}", {"batch.global_batch_size": 16}),
}


@pytest.mark.parametrize("case", OPEN)
def test_open_values(tmp_path: Path, case: str) -> None:
    typed, expected = OPEN[case]
    text = f"{MODEL}{BASE}lr: 1.0e-4\nmicro_batch_size: 1\nother: {{size: 16}}\nglobal_batch_size: {typed}\n"
    (tmp_path / "x.yaml").write_text(text.replace("hidden_size: 512\n", ""))
    found = import_file(tmp_path / "x.yaml", backend="megatron_lm")
    assert {path: value_at(found.job, path) for path in expected} == expected
