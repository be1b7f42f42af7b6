"""What a run leaves behind: the arguments that a log shows, `args.json`; and how files are written and encoded."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.api import ImportRefused, import_file
from launcher.importing.roundtrip import differences
from launcher.mapping.backend import get_backend


def line(name: str, value: Any) -> str:
    return f"  {name} {'.' * (48 - len(name))} {value}"


SHOWN: dict[str, Any] = {
    "world_size": 16,
    "data_parallel_size": 4,
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 2,
    "num_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "seq_length": 2048,
    "max_position_embeddings": 2048,
    "micro_batch_size": 2,
    "global_batch_size": 64,
    "train_iters": 1000,
    "lr": 0.0003,
    "min_lr": 0.0,
    "lr_decay_style": "cosine",
    "lr_decay_iters": None,
    "weight_decay": 0.1,
    "clip_grad": 1.0,
    "bf16": True,
    "fp16": False,
    "swiglu": True,
    "attention_backend": "AttnBackend.flash",
    "exit_signal": 15,
    "num_experts": [1],
    "params_dtype": "torch.bfloat16",
    "data_path": ["/data/a_text_document"],
    "split": "99,1,0",
    "tokenizer_type": "GPT2BPETokenizer",
    "seed": 1234,
}


def log(values: dict[str, Any], before: str = "") -> str:
    shown = "\n".join(before + line(name, value) for name, value in values.items())
    return f"using world size: 16 ...\n{before}----- arguments -----\n{shown}\n{before}-- end of arguments --\nstep 1\n"


@pytest.mark.parametrize("before", ["", "[default0]:", "2026-01-02 10:00:00 | "])
def test_the_arguments_of_a_log(tmp_path: Path, before: str) -> None:
    text = log(SHOWN, before) + log({**SHOWN, "lr": 9.0}, before)
    (tmp_path / "train.log").write_bytes(text.encode() + b"\xe4\x00 50%\n")
    found = import_file(tmp_path / "train.log")
    job = found.job
    assert (found.backend, job.cluster.world_size, job.parallel.tp, job.parallel.pp) == ("megatron_lm", 16, 2, 2)
    assert (job.optimizer.lr, job.batch.global_batch_size, job.kernels.attention_backend) == (3e-4, 64, "flash")
    assert job.data.paths == ("/data/a_text_document",)
    assert differences(found) == []
    flags = {each.flag for each in found.mapped_args}
    assert not flags & {"clip-grad", "seed", "fp16"}, "defaults are no arguments of the run"
    dropped = [note.message for note in found.warnings if "dropped" in note.message]
    assert {"exit_signal", "num_experts"} <= {each.split()[0] for each in dropped}


def stored(version: str) -> dict[str, Any]:
    """Return what a run of a version stores: every argument, most of them at their defaults."""
    catalogue = get_backend("megatron").catalogue(version)
    defaults = {
        each.name: list(each.default) if isinstance(each.default, tuple) else each.default
        for each in catalogue.arguments
    }
    computed = {"rank": 0, "global_world_size": 8, "model_info": "ModelInfo(...)"}
    own = {"model": "Qwen/Qwen3-8B", "dataset": ["a.jsonl"], "tensor_model_parallel_size": 4, "lr": 2e-5}
    return {**defaults, **computed, **own, "command": None, "rlhf_type": None}


@pytest.mark.parametrize("version", ["3.6.4", "3.12.6", "4.0.0", "4.6.0"])
def test_args_json_of_a_run(tmp_path: Path, version: str) -> None:
    (tmp_path / "args.json").write_text(json.dumps(stored(version)))
    found = import_file(tmp_path / "args.json")
    job = found.job
    assert (found.backend, found.version, job.task.type) == ("megatron", version, "sft")
    assert (job.model.hub_id, job.parallel.tp, job.optimizer.lr) == ("Qwen/Qwen3-8B", 4, 2e-5)
    assert (job.cluster.world_size, len(found.mapped_args)) == (8, 4)
    assert differences(found) == []


def test_values_that_say_nothing(tmp_path: Path) -> None:
    text = "model: m\ndataset: d\nlr: 1e-5\nlr_decay_iters: null\nmicro_batch_size: 1\n"
    (tmp_path / "x.yaml").write_text(text)
    found = import_file(tmp_path / "x.yaml")
    assert any(note.message == "without a value, dropped: lr_decay_iters" for note in found.warnings)
    assert "lr_decay_iters" not in {each.flag for each in found.mapped_args}


STATIC = """
run_mode: train
use_parallel: True
trainer: {type: CausalLanguageModelingTrainer, model_name: m}
runner_config: {epochs: 1, batch_size: 1, sink_size: 1}
optimizer: {type: AdamW, eps: 1e-8}
lr_schedule: {type: CosineWithWarmUpLR, learning_rate: 2e-5, warmup_ratio: 0.1, total_steps: -1}
parallel_config: {data_parallel: 8, model_parallel: 1, pipeline_stage: 1}
moe_config: {expert_num: 8.0}
callbacks:
  - type: MFLossMonitor
  - type: SummaryMonitor
    keep_default_action: True
processor: {tokenizer: {unk_token: <unk>, bos_token: <s>, vocab_file: <path to it>}}
model:
  model_config: {type: LlamaConfig, num_layers: 2, hidden_size: 8, num_heads: 2, seq_length: 16, vocab_size: 9}
"""


def test_numbers_without_a_point_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(STATIC)
    job = import_file(tmp_path / "x.yaml").job
    assert (job.optimizer.lr, job.optimizer.adam_eps, job.model.num_experts) == (2e-5, 1e-8, 8)


def test_a_callback_with_nothing_but_defaults_stays(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(STATIC)
    found = import_file(tmp_path / "x.yaml")
    assert [each for each in differences(found) if "SummaryMonitor" in each.flag] == []
    assert found.job.backend.args["callbacks.SummaryMonitor.keep_default_action"] is True


def test_tokens_are_no_blanks(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(STATIC)
    blanks = [note.message for note in import_file(tmp_path / "x.yaml").warnings if "is a placeholder" in note.message]
    assert ["vocab_file" in each for each in blanks] == [True]


SETTINGS = "model: Qwen/Qwen3-8B\ndataset: a.jsonl\nlr: 1e-5\ntensor_model_parallel_size: 2\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings(tmp_path: Path, encoding: str, end: str) -> None:
    text = SETTINGS.replace("\n", end)
    content = b"\xff\xfe" + text.encode("utf-16-le") if encoding == "utf-16-le-bom" else text.encode(encoding)
    (tmp_path / "x.yaml").write_bytes(content)
    job = import_file(tmp_path / "x.yaml").job
    assert (job.model.hub_id, job.parallel.tp, job.data.paths) == ("Qwen/Qwen3-8B", 2, ("a.jsonl",))


BAD: dict[str, tuple[str | bytes, str]] = {
    "an open quote": ('lr: 1\nsystem: "never\nmodel: x\n', r"x.yaml:2: the file is not YAML: .* does not end"),
    "an alias of its own node": ("a: &a {b: [*a]}\n", "its aliases refer to the node that contains them"),
    "UTF-16 that is cut": (b"\xff\xfea\x00\x00\xd8", "is not UTF-16 text"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(tmp_path: Path, case: str) -> None:
    text, reported = BAD[case]
    (tmp_path / "x.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ImportRefused, match=reported):
        import_file(tmp_path / "x.yaml")
