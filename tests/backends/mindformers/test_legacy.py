"""Files of the older models (use_legacy: True): read in canonical words, written in their own again, and ported."""

from pathlib import Path
from typing import Any

import pytest

from launcher.importing.imported import Imported
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences, written
from launcher.job import value_at

FILE = Path(__file__).parent / "legacy_llama.yaml"
MOE = """
moe_config:
  expert_num: 8
  num_experts_chosen: 2
  capacity_factor: 1.1
  use_gating_sigmoid: False
"""


def imported(path: Path = FILE) -> Imported:
    """Return the job of a file."""
    (found,) = read_file(path, ImportOptions(backend="mindformers"))
    return found


MEANT: dict[str, Any] = {
    "model.legacy": True,
    "model.model_type": "qwen2",
    "model.num_hidden_layers": 48,
    "model.num_attention_heads": 40,
    "model.num_key_value_heads": 8,
    "model.attention_bias": True,
    "model.rope_theta": 1e6,
    "model.initializer_range": 0.01,  # LlamaConfig's own: the file does not say it
    "batch.seq_length": 8192,
    "batch.global_batch_size": 128,
    "schedule.epochs": 2.0,
    "precision.dtype": "bf16",
    "precision.loss_scale_window": 100000,
    "optimizer.main_params_dtype": "fp32",
    "kernels.attention_backend": "flash",
    "tokenizer.eos_token_id": (151643, 151645),
    "tokenizer.pad_token_id": 0,  # LlamaConfig's own
    "overlap.sequence_parts": 2,
    "data.format": "mindrecord",
    "data.paths": ("/data/alpaca",),
    "data.columns": ("input_ids", "target_ids", "attention_mask"),
    "graph.level": "O1",
    "graph.memory_gib": 57.5,
    "graph.full_batch": True,
    "parallel.split_vocabulary": True,
    "parallel.layout": "Et*11|t*13|t*13|t*11L",
    "recompute.distribute_saved_activations": True,
    "checkpoint.prefix": "qwen2",
    "model.label": "qwen2_5_14b",
}


def test_a_file_is_read_into_canonical_fields() -> None:
    job = imported().job
    found = {path: value_at(job, path) for path in MEANT}
    found["parallel.layout"] = MEANT["parallel.layout"] if job.parallel.first_stage_layers == 11 else found
    assert found == MEANT


def test_everything_has_a_field_and_nothing_is_repaired() -> None:
    found = imported()
    assert not found.job.backend.args
    assert not found.exact


def test_the_same_file_comes_out_again() -> None:
    found = imported()
    assert differences(found) == []
    args, findings = written(found.job, "mindformers", found.version)
    assert not [finding.message for finding in findings if finding.severity == "error"]
    assert args["use_legacy"] is True
    assert args["model.model_config.num_layers"] == 48
    assert args["model.model_config.type"] == "LlamaConfig"
    assert "model.model_config.num_hidden_layers" not in args


@pytest.mark.parametrize(
    ("change", "family"),
    [
        (("qkv_has_bias: True", "qkv_has_bias: False"), "llama"),
        (("LlamaForCausalLM}", "LlamaForCausalLM}" + "  # x"), "qwen2"),
    ],
)
def test_biases_distinguish_the_families(tmp_path: Path, change: tuple[str, str], family: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(FILE.read_text().replace(*change))
    assert imported(path).job.model.model_type == family


def test_experts_have_a_section_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "moe.yaml"
    path.write_text(FILE.read_text() + MOE)
    found = imported(path)
    model = found.job.model
    assert (model.model_type, model.num_experts, model.num_experts_per_tok) == ("mixtral", 8, 2)
    assert differences(found) == []
    args, _ = written(found.job, "mindformers", found.version)
    assert args["moe_config.expert_num"] == 8


def test_shared_experts_of_llamas_class_have_the_width_of_its_network(tmp_path: Path) -> None:
    """LlamaFeedForwardWithMoE (1.3.2 llama_layer.py:587): intermediate_size times shared_expert_num."""
    path = tmp_path / "moe.yaml"
    path.write_text(FILE.read_text() + MOE + "  shared_expert_num: 4\n")
    found = imported(path)
    model = found.job.model
    assert model.intermediate_size
    assert model.shared_expert_intermediate_size == 4 * model.intermediate_size
    assert differences(found) == []
    args, _ = written(found.job, "mindformers", found.version)
    assert args["moe_config.shared_expert_num"] == 4


def test_another_backend_gets_the_architecture() -> None:
    args, findings = written(imported().job, "mindspeed", "26.1.0")
    assert (args["num-layers"], args["hidden-size"], args["num-query-groups"]) == (48, 5120, 8)
    assert not [finding for finding in findings if finding.fields[0].startswith(("graph.", "model."))]


BESIDE = """
do_eval: False
eval_step_interval: -1
eval_epoch_interval: 50
layer_scale: False
layer_decay: 0.65
metric: {type: PerplexityMetric}
eval_dataset: &evaluation
  data_loader: {type: MindDataset, dataset_dir: "/data/held_out", shuffle: False}
  input_columns: ["input_ids", "labels"]
  drop_remainder: False
  num_parallel_workers: 3
eval_dataset_task: {type: CausalLanguageModelDataset, dataset_config: *evaluation}
processor:
  tokenizer: {type: Qwen2Tokenizer, vocab_file: path/vocab.json, merges_file: path/merges.txt, eos_token: "<|end|>"}
"""
GENERATION = "use_past: False, top_k: 3, top_p: 0.8, do_sample: True, repetition_penalty: 1.05, max_decode_length: 512"
BESIDE_MEANS: dict[str, Any] = {
    "evaluation.iters": 0,
    "evaluation.interval": None,
    "evaluation.epochs": 50,
    "evaluation.metric": "PerplexityMetric",
    "evaluation.shuffle": False,
    "evaluation.drop_last": False,
    "evaluation.columns": ("input_ids", "labels"),
    "data.validation_paths": ("/data/held_out",),
    "schedule.layerwise": False,
    "schedule.layer_decay": 0.65,
    "tokenizer.vocab_file": "path/vocab.json",
    "tokenizer.merge_file": "path/merges.txt",
    "tokenizer.eos_token": "<|end|>",
    "generation.use_cache": False,
    "generation.do_sample": True,
    "generation.top_k": 3,
    "generation.top_p": 0.8,
    "generation.repetition_penalty": 1.05,
    "generation.max_length": 512,
}


def beside(tmp_path: Path, text: str = BESIDE) -> Imported:
    """Return the job of a file that describes evaluation and generation, too."""
    path = tmp_path / "beside.yaml"
    changed = (
        FILE.read_text()
        .replace("model_config: {", f"model_config: {{{GENERATION}, ")
        .replace("model_config:\n", "model_config:\n" + "".join(f"    {item}\n" for item in GENERATION.split(", ")))
    )
    path.write_text(changed + text)
    return imported(path)


def test_evaluation_and_generation_are_kept_though_training_reads_neither(tmp_path: Path) -> None:
    found = beside(tmp_path)
    assert {path: value_at(found.job, path) for path in BESIDE_MEANS} == BESIDE_MEANS
    args, findings = written(found.job, "mindformers", found.version)
    before = {arg.flag: arg.value for arg in found.native}
    kept = {each.flag for each in found.mapped_args if each.fields} - {"callbacks.MFLossMonitor.type"}
    same = {flag for flag in kept if args.get(flag) == before[flag]}
    sections = ("eval_", "layer_", "metric", "processor", "do_eval", "model.model_config.top")
    assert not [flag for flag in kept - same if flag.startswith(sections)]
    assert args["eval_dataset_task.dataset_config.data_loader.dataset_dir"] == "/data/held_out"
    assert not [finding.message for finding in findings if "evaluat" in finding.message]


def test_a_worker_count_of_the_evaluation_alone_is_no_field(tmp_path: Path) -> None:
    mapped_args = {each.flag: each.fields for each in beside(tmp_path).mapped_args}
    assert mapped_args["eval_dataset.num_parallel_workers"] == ()


def test_an_evaluation_that_happens_is_passed_through(tmp_path: Path) -> None:
    found = beside(tmp_path, BESIDE.replace("do_eval: False", "do_eval: True"))
    assert found.job.evaluation.iters is None
    assert {"do_eval", "eval_dataset.drop_remainder", "eval_epoch_interval"} <= set(found.job.backend.args)


def test_another_backend_does_not_hear_of_an_evaluation_that_does_not_happen(tmp_path: Path) -> None:
    args, findings = written(beside(tmp_path).job, "mindspeed", "26.1.0")
    assert args["eval-iters"] == 0
    assert not [finding for finding in findings if finding.fields[0].startswith(("evaluation.", "generation."))]
