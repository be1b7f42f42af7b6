"""What launchers on top of Megatron-LM and torchrun write differently."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.compose import compose
from launcher.compose.errors import ComposeError
from launcher.compose.presets import preset_named
from launcher.compose.variants import VARIANTS
from launcher.families.fill import model_of
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import ImportRefused
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file

_SIZES = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
_ARGS = f"{_SIZES} --micro-batch-size 1 --train-iters 10 --lr 1e-4 --vocab-size 100 --data-path d"

# name: what is before the script, nodes and devices per node that are started.
PROCESSES = {
    "torchrun": ("torchrun", (1, 1)),
    "torchrun of two nodes": ("torchrun --nnodes 2 --master_addr a --master_port 29501", (2, 1)),
    "torchrun as a module": ("python -m torch.distributed.run", (1, 1)),
    "a number": ("torchrun --nproc_per_node 4", (1, 4)),
    "options that are not set": ("torchrun $OPTIONS", (1, 8)),
}


@pytest.mark.parametrize("case", PROCESSES)
def test_processes_that_a_launcher_starts(tmp_path: Path, case: str) -> None:
    """Torchrun starts one process per node without --nproc_per_node (torch/distributed/run.py)."""
    launcher, (nodes, devices) = PROCESSES[case]
    script = tmp_path / "run.sh"
    script.write_text(f"{launcher} pretrain_gpt.py {_ARGS} --tokenizer-type NullTokenizer\n")
    cluster = read_file(script, ImportOptions())[0].job.cluster
    assert (cluster.nodes, cluster.devices_per_node) == (nodes, devices)


_SETTINGS = """\
    num_layers: 2
    hidden_size: 64
    num_attention_heads: 4
    seq_length: 128
    max_position_embeddings: 128
    micro_batch_size: 1
    global_batch_size: 8
    train_iters: 10
"""
PRIMUS = f"""\
work_group: amd
modules:
  pre_trainer:
    framework: megatron
    overrides:
      tokenizer_type: ${{TOKENIZER:Llama3Tokenizer}}
      tokenizer_model: meta-llama/Llama-3.1-8B
{_SETTINGS.replace("    ", "      ")}"""
FLAGSCALE = f"""\
experiment:
  task: {{type: train, backend: megatron}}
  runner: {{nnodes: 1, nproc_per_node: 8}}
train:
  model:
{_SETTINGS}  data:
    tokenizer:
      tokenizer_type: QwenTokenizerFS
      tokenizer_path: Qwen/Qwen3-0.6B
"""


@pytest.mark.parametrize(("text", "path"), [(PRIMUS, "meta-llama/Llama-3.1-8B"), (FLAGSCALE, "Qwen/Qwen3-0.6B")])
def test_tokenizer_classes_of_launchers_on_top(tmp_path: Path, text: str, path: str) -> None:
    file = tmp_path / "train.yaml"
    file.write_text(text)
    found = read_file(file, ImportOptions())[0]
    assert (found.job.tokenizer.path, found.native.get("tokenizer-type")) == (path, "HuggingFaceTokenizer")
    assert any("is read as HuggingFaceTokenizer" in note.message for note in found.warnings)


# name of a model in a script of ms-swift: (preset, what the job file says of the model beside it)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Qwen/Qwen3-8B": ("qwen3_8b", {}),
    "Qwen/Qwen3-8B-Base": ("qwen3_8b", {"hub_id": "Qwen/Qwen3-8B-Base", "max_position_embeddings": 32768}),
    "Qwen/Qwen2.5-7B-Instruct": ("qwen2_5_7b_instruct", {}),
    "deepseek-ai/DeepSeek-V3-0324": ("deepseek_v3", {"hub_id": "deepseek-ai/DeepSeek-V3-0324"}),
    "Qwen/Qwen3-235B-A22B-Instruct-2507": (
        "qwen3_235b_a22b",
        {
            "hub_id": "Qwen/Qwen3-235B-A22B-Instruct-2507",
            "max_position_embeddings": 262144,
            "rope_theta": 5000000.0,
        },
    ),
    "LLM-Research/Meta-Llama-3.1-8B-Instruct": ("llama3_1_8b", {"hub_id": "LLM-Research/Meta-Llama-3.1-8B-Instruct"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_names_of_known_models(tmp_path: Path, name: str) -> None:
    """A base model, a chat model or one of another date has its family's sizes, and its own context and rotary base."""
    preset, said = MODELS[name]
    found = read_argv(["megatron", "sft", "--model", name, "--lr", "1e-5", "--save", "out"], backend="megatron")
    text = job_yaml(found, "x.sh", with_version=False)
    assert f"override /model: {preset}" in text
    model = yaml.safe_load(text).get("model", {})
    assert {key: value for key, value in model.items() if key in (*said, "hub_id", "rope_theta")} == said
    (tmp_path / "job.yaml").write_text(text)
    imported, named = compose([f"+job={tmp_path}/job.yaml"]).model, compose([f"model={name}", "backend=megatron"]).model
    assert imported.hub_id == named.hub_id == name
    for field in ("hidden_size", "max_position_embeddings", "rope_theta", "num_hidden_layers", "rope_scaling"):
        assert getattr(imported, field) == getattr(named, field) is not None or field == "rope_scaling"


def test_models_by_their_names_alone() -> None:
    base = compose(["model=Qwen3-8B-Base", "backend=mindspeed", "model.rope_theta=5e5"]).model
    assert (base.hub_id, base.max_position_embeddings, base.rope_theta) == ("Qwen/Qwen3-8B-Base", 32768, 5e5)
    assert compose(["model=Kimi-K2-Thinking", "backend=mindspeed"]).model.rope_scaling.factor == 64
    with pytest.raises(ComposeError, match="no model named"):
        compose(["model=Qwen3-9B-Base"])


def test_variants_are_models_of_their_presets() -> None:
    for variant in VARIANTS:
        for hub_id in variant.hub_ids:
            found = preset_named(hub_id)
            assert found is not None, hub_id
            assert found.name == variant.preset, hub_id
            assert model_of(found.fields).hub_id == hub_id


# file: (content, what the refusal says)
FOREIGN = {
    "deepspeed.sh": ("deepspeed --num_gpus 8 train.py --per_device_train_batch_size 4 --output_dir o --x 1", "Trainer"),
    "python.sh": ("A=1 python train.py --model_name_or_path m --per_device_train_batch_size 8 --o p", "Trainer"),
    "accelerate.sh": ("accelerate launch -m axolotl.cli.train examples/lora.yml", "Axolotl"),
    "run_clm.sh": (
        "torchrun --nproc_per_node=4 examples/run_clm.py --do_train --output_dir x --block_size 1",
        "Trainer",
    ),
    "llamafactory.sh": ("FORCE_TORCHRUN=1 llamafactory-cli train examples/sft.yaml", "LLaMA-Factory"),
    "src_train.sh": (
        "torchrun --nproc_per_node 8 src/train.py --stage sft --finetuning_type lora --do_train x",
        "LLaMA-F",
    ),
    "verl.sh": ("set -x\npython3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes=1 $@", "veRL"),
    "nemo.sh": ("nemo llm pretrain --factory llama3_8b trainer.max_steps=10 -y", "NeMo"),
    "nemo_script.sh": (
        "torchrun /opt/NeMo/examples/megatron_gpt_pretraining.py model.mcore_gpt=true",
        "NeMo",
    ),
    "openrlhf.sh": ("deepspeed --module openrlhf.cli.train_sft --max_len 2048 --dataset d --pretrain m", "OpenRLHF"),
    "llamafactory.yaml": (
        "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nbf16: true\nseed: 1",
        "LLaMA-Factory",
    ),
    "verl.yaml": ("data: {train_files: x}\nactor_rollout_ref: {model: {path: m}}\ntrainer: {nnodes: 1}", "veRL"),
    "ds.json": ('{"train_batch_size": 32, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', "DeepSpeed"),
    "job.yaml": ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: x}\nspec: {}", "Kubernetes"),
    "axolotl.yaml": ("base_model: m\ndatasets: [d]\nmicro_batch_size: 2\nsequence_len: 2048\nseed: 1", "Axolotl"),
    "vit.yaml": (
        "seed: 0\nrun_mode: train\ntrainer: {type: image_classification}\nrunner_config: {epochs: 1, batch_size: 2}\n"
        "model: {arch: {type: ViTForImageClassification}, model_config: {type: ViTConfig}}",
        "trainer.type image_classification: it trains another kind of model",
    ),
    "whisper.yaml": (
        "seed: 0\nrun_mode: finetune\ntrainer: {type: CausalLanguageModelingTrainer}\nrunner_config: {epochs: 1}\n"
        "model: {arch: {type: WhisperForConditionalGeneration}}",
        "model.arch.type WhisperForConditionalGeneration: it trains another kind of model",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("backend", [None, "megatron_lm"])
def test_programs_and_models_of_others_are_refused_by_name(tmp_path: Path, name: str, backend: str | None) -> None:
    text, wanted = FOREIGN[name]
    if backend is not None and not name.endswith(".sh"):
        return
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ImportRefused) as refused:
        read_file(file, ImportOptions(backend=backend))
    (note,) = refused.value.notes
    assert wanted in str(note)
    assert "--backend" not in str(note)


def test_scripts_of_megatron_under_another_name_are_still_read(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(f"torchrun --nproc_per_node 2 ours/train.py {_ARGS} --tokenizer-type NullTokenizer\n")
    assert read_file(file, ImportOptions(backend="megatron_lm"))[0].job.cluster.devices_per_node == 2
