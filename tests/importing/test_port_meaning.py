"""Ports mean what the source meant: widths that a class computes, data, checkpoints, number formats, variables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.importing.port import Ported, ported
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import Origin
from launcher.job.derive import with_values
from launcher.pipeline import judge
from tests.importing.sources import LM, NPU, SWIFT

LLAMA = """
run_mode: train
use_legacy: True
model:
  arch: {type: LlamaForCausalLM}
  model_config:
    type: LlamaConfig
    seq_length: 4096
    hidden_size: 4096
    num_layers: 4
    num_heads: 32
    compute_dtype: bfloat16
"""


def port(source: tuple[str, str], more: str, target: str) -> Ported:
    backend, command = source
    return ported(read_argv([*command.split(), *more.split()], backend=backend), target)


def of_file(folder: Path, more: str, target: str) -> Ported:
    """Return the port of a file of MindFormers' older Llama with more keys of its model."""
    path = folder / "llama.yaml"
    path.write_text(LLAMA + "".join(f"    {line}\n" for line in more.splitlines()))
    (found,) = read_file(path, ImportOptions(backend="mindformers"))
    return ported(found, target)


def message_of(found: Ported, rule: str) -> str:
    return " ".join(f"{each.severity}: {each.message}" for each in found.findings if each.rule == rule)


def native(found: Ported) -> Mapping[str, Any]:
    from launcher.pipeline import judge

    return {arg.flag: arg.value for arg in judge(found.job).native}


# models/llama/llama.py:856-866 @1.6.0: 4 * 4096 = 16384 (times 1.31), two thirds of it, up to a multiple.
@pytest.mark.parametrize(
    ("more", "width"),
    [
        ("multiple_of: 256", 11008),
        ("", 11008),
        ("multiple_of: 256\nffn_dim_multiplier: 1.3", 14336),
        ("multiple_of: 1024\nffn_dim_multiplier: 1.3", 14336),
        ("ffn_dim_multiplier: 1.3\nintermediate_size: 8192", 8192),
    ],
)
@pytest.mark.parametrize("target", ["megatron_lm", "mindspeed"])
def test_the_width_that_llamas_class_computes_goes_over(more: str, width: int, target: str, tmp_path: Path) -> None:
    found = of_file(tmp_path, more, target)
    assert found.job.model.intermediate_size == width
    assert "ffn_dim_multiplier" not in message_of(found, "PORT-LEFT-OUT")
    assert native(found)["ffn-hidden-size"] == width


@pytest.mark.parametrize(
    ("more", "size"),
    [
        ("--hidden-size 1024", "model.intermediate_size=4096"),
        ("--hidden-size 1024 --swiglu", "model.intermediate_size=2688"),
    ],
)
def test_a_width_that_megatron_computes_is_named(more: str, size: str) -> None:
    shape = "--num-layers 2 --num-attention-heads 8 --max-position-embeddings 4096"
    found = port(("megatron_lm", f"{shape} --seq-length 4096 --vocab-size 100"), more, "mindformers")
    assert size in message_of(found, "REQ-MODEL")


def test_a_tokenizer_without_words_has_one_more_than_its_vocabulary() -> None:
    shape = "--num-layers 2 --hidden-size 1024 --num-attention-heads 8 --max-position-embeddings 4096"
    found = port(("megatron_lm", shape), "--tokenizer-type NullTokenizer --vocab-size 151935", "mindformers")
    assert "model.vocab_size=151936" in message_of(found, "REQ-MODEL")


def test_token_files_of_instructions_are_no_text_to_pretrain_on() -> None:
    tuned = "--stage sft --is-instruction-dataset --data-path /d"
    found = port(NPU, tuned, "mindformers")
    assert message_of(found, "PORT-DATA").startswith("error: ")
    assert ("data.format=hub",) in [fix.overrides for each in found.findings for fix in each.fixes]
    assert not message_of(port(NPU, "--data-path /d", "mindformers"), "PORT-DATA")


@pytest.mark.parametrize(
    ("source", "target", "warned"),
    [
        (LM, "mindformers", True),
        (NPU, "mindformers", True),
        (LM, "mindspeed", True),
        (LM, "megatron", False),
        (LM, "megatron_lm", False),
    ],
)
def test_a_checkpoint_of_another_stack_is_reported_with_the_command_that_converts_it(
    source: tuple[str, str], target: str, warned: bool
) -> None:
    reported = message_of(port(source, "--load /ck --save /ck --save-interval 5", target), "PORT-CHECKPOINT")
    assert bool(reported) is warned
    assert not warned or "launch convert mcore-to-hf --checkpoint /ck" in reported


@pytest.mark.parametrize(("dtype", "scales"), [("--bf16", False), ("--fp16", True)])
def test_a_loss_scale_that_megatron_reads_in_fp16_only_scales_nothing_in_bf16(dtype: str, scales: bool) -> None:
    found = port(("megatron_lm", "--num-layers 2"), f"--initial-loss-scale 65536 {dtype}", "mindformers")
    assert (native(found).get("runner_wrapper.scale_sense") != 1.0) is scales
    assert bool(message_of(found, "SENSE-LOSS-SCALE")) is not scales


def test_softmax_in_a_narrow_type_is_not_widened(tmp_path: Path) -> None:
    found = of_file(tmp_path, "softmax_compute_type: float16", "megatron_lm")
    assert found.job.precision.attention_softmax_in_fp32 is False
    assert message_of(found, "PORT-NEAREST").startswith("warning: ")
    kept = of_file(tmp_path, "softmax_compute_type: float32\nrotary_dtype: float16", "megatron_lm")
    assert kept.job.precision.attention_softmax_in_fp32 is True
    assert "rotary_dtype" in message_of(kept, "PORT-LEFT-OUT")
    assert "softmax" not in message_of(kept, "PORT-LEFT-OUT")


VARIABLES = ("NCCL_IB_HCA", "NVTE_FLASH_ATTN", "CUDA_VISIBLE_DEVICES", "TORCH_NCCL_ENABLE_MONITORING")


@pytest.mark.parametrize(
    ("source", "names", "target", "kept"),
    [
        ("megatron_lm", VARIABLES[:2], "megatron", True),
        ("megatron_lm", VARIABLES, "mindspeed", False),
        ("mindspeed", ("HCCL_CONNECT_TIMEOUT", "ASCEND_LAUNCH_BLOCKING"), "mindformers", True),
        ("mindspeed", ("HCCL_CONNECT_TIMEOUT", "PYTORCH_NPU_ALLOC_CONF"), "megatron_lm", False),
    ],
)
def test_variables_that_libraries_read_stay_on_devices_of_a_kind(
    source: str, names: tuple[str, ...], target: str, kept: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    exports = "\n".join(f"export {name}=1" for name in names)
    path.write_text(f"{exports}\ntorchrun pretrain_gpt.py --num-layers 2 --lr 1e-4\n")
    (found,) = read_file(path, ImportOptions(backend=source))
    left = set(ported(found, target).variables)
    assert left & set(names) == (set() if kept else set(names))


def test_a_hub_name_is_offered_as_one() -> None:
    named = "--hidden-size 64 --tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-8B"
    found = port(("megatron_lm", named), "", "megatron")
    offered = {argument for each in found.findings for fix in each.fixes for argument in fix.overrides}
    assert "model.hub_id=Qwen/Qwen3-8B" in offered
    assert "model.path=Qwen/Qwen3-8B" not in offered


def test_data_that_mindformers_does_not_read_have_no_further_fault() -> None:
    found = port(SWIFT, "--tuner_type full", "mindformers")
    assert "messages" in message_of(found, "MAP-UNSUPPORTED")
    assert not message_of(found, "MF-STRATEGY")
    assert "data.format=tokenized" in {
        argument for each in found.findings for fix in each.fixes for argument in fix.overrides
    }


def test_recomputing_nothing_is_what_others_do() -> None:
    found = port(SWIFT, "--recompute_granularity none", "megatron_lm")
    assert "recompute_granularity" not in message_of(found, "PORT-LEFT-OUT")


@pytest.mark.parametrize(
    ("tokenizer", "severity"),
    [("NullTokenizer", "warning"), ("HuggingFaceTokenizer --tokenizer-model /d/tokenizer", None)],
)
def test_a_vocabulary_size_is_missed_only_where_a_tokenizer_reads_it(tokenizer: str, severity: str | None) -> None:
    found = port(LM, f"--vocab-size 151935 --tokenizer-type {tokenizer}", "mindformers")
    missed = [each for each in found.findings if each.rule == "PORT-LEFT-OUT" and "vocab-size" in each.message]
    assert [each.severity for each in missed] == ([] if severity is None else [severity])
    # One more than the argument: the end of a document (launcher/rules/required.py offers it, too).
    assert all("model.vocab_size=151936" in each.message for each in missed)


@pytest.mark.parametrize("target", ["megatron_lm", "mindformers"])
def test_a_training_that_the_target_does_not_have_is_refused_for_that_alone(target: str) -> None:
    line = "megatron rlhf --rlhf_type dpo --model Qwen/Qwen3-8B --dataset x.jsonl --train_iters 9 --global_batch_size 8"
    options = "--beta 0.2 --rpo_alpha 0.1 --loss_type sigmoid --label_smoothing 0.1"
    found = ported(read_argv([*line.split(), *options.split()], backend="megatron"), target)
    of_task = [each for each in found.findings if any(path.startswith("task.") for path in each.fields)]
    assert [(each.severity, each.fields) for each in of_task] == [("error", ("task.type",))]
    fixed = with_values(found.job, {"task.type": "sft"}, Origin(kind="override"))
    left = {each.rule: each for each in judge(fixed).findings if any(path.startswith("task.") for path in each.fields)}
    assert set(left["SENSE-TASK"].fields) == {"task.type", *(f"task.{name}" for name in _OF_DPO)}
    assert not [each for each in left.values() if each.severity == "error"]


_OF_DPO = {"beta", "loss_type", "rpo_alpha", "label_smoothing"}
