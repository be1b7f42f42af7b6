"""Values that the target cannot take are replaced by what it has instead, told, and come back on their own backend."""

from pathlib import Path
from typing import Any

import pytest

from launcher.cli.port_show import ported_yaml
from launcher.compose import compose
from launcher.importing.imported import Imported
from launcher.importing.port import Ported, ported
from launcher.importing.read_argv import read_argv
from launcher.job import value_at
from launcher.pipeline import judge
from launcher.port.substitutes import SUBSTITUTE_RULE

SIZES = (
    "--num-layers 8 --hidden-size 256 --ffn-hidden-size 512 --num-attention-heads 8 --seq-length 512 "
    "--max-position-embeddings 512 --micro-batch-size 1 --global-batch-size 8 --train-iters 10 --lr 1e-4 --bf16 "
    "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path DIR --padded-vocab-size 1024 --data-path d"
)
MOE = "--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm"
NPU = f"torchrun --nproc_per_node 8 pretrain_gpt.py --use-mcore-models {SIZES}"
LM = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES.replace('PretrainedFromHF', 'HuggingFaceTokenizer')}".replace(
    "--tokenizer-name-or-path", "--tokenizer-model"
)
SWIFT = (
    "megatron sft --model Qwen/Qwen3-8B --dataset x --max_length 512 --train_iters 10 --micro_batch_size 1 "
    "--global_batch_size 8"
)

# name: (source, command line, target, fields and their values there, severity)
CASES: dict[str, tuple[str, str, str, dict[str, Any], str]] = {
    "format of checkpoints": ("mindspeed", f"{NPU} --ckpt-format torch", "mindformers", {"checkpoint.format": None},
                              "change"),
    "local layers": ("mindspeed", f"{NPU} --transformer-impl local", "megatron", {"kernels.transformer_impl": None},
                     "change"),
    "order of the exchange": ("mindspeed", f"{NPU} {MOE} --moe-token-dispatcher-type alltoall_seq", "megatron_lm",
                              {"moe.token_dispatcher_type": "alltoall"}, "change"),
    "empty layers": ("mindspeed", f"{NPU} --pipeline-model-parallel-size 2 --noop-layers 0", "megatron_lm",
                     {"parallel.noop_layers": (), "parallel.first_stage_layers": 3}, "change"),
    "a last stage without layers": (
        "mindspeed",
        f"{NPU} --pipeline-model-parallel-size 2 --noop-layers 4,5,6,7",
        "megatron_lm",
        {"parallel.noop_layers": (), "parallel.first_stage_layers": None, "parallel.layout": "Et*4|L"},
        "change",
    ),
    "empty layers of chunks": (
        "mindspeed",
        f"{NPU} --pipeline-model-parallel-size 2 --noop-layers 7 --num-layers-per-virtual-pipeline-stage 2",
        "megatron_lm",
        {"parallel.noop_layers": (), "parallel.layout": "Et*2|t*2|t*2|tL"},
        "change",
    ),
    "even routing": ("megatron_lm", f"{LM} {MOE} --moe-router-force-load-balancing", "megatron",
                     {"moe.force_load_balancing": None}, "warning"),
    "swapped optimizer": ("mindspeed", f"{NPU} --swap-optimizer --use-distributed-optimizer", "megatron_lm",
                          {"optimizer.precision_aware": True}, "change"),
    "dropout of adapters": ("megatron", f"{SWIFT} --tuner_type lora --lora_dropout 0.05", "mindspeed",
                            {"lora.dropout": None}, "warning"),
    "states of the optimizer": (
        "megatron",
        f"{SWIFT} --use_precision_aware_optimizer true --exp_avg_dtype bf16 --exp_avg_sq_dtype bf16",
        "mindspeed",
        {"optimizer.exp_avg_dtype": None},
        "warning",
    ),
    "the seed 0": ("mindspeed", f"{NPU} --seed 0", "megatron", {"seed": 1}, "warning"),
    "products in FP8": ("mindspeed", f"{NPU} --fp8-format e4m3 --fp8-recipe mxfp8", "mindformers",
                        {"precision.fp8_format": None}, "warning"),
    "layers of FP8": ("megatron", f"{SWIFT} --fp8_format hybrid --fp8_recipe delayed", "mindspeed",
                      {"kernels.transformer_impl": "transformer_engine"}, "change"),
    "causal masks": ("mindspeed", f"{NPU} --context-parallel-size 2 --cp-attention-mask-type general", "megatron_lm",
                     {"parallel.cp_mask_type": None}, "change"),
    "offloaded attention": ("mindspeed", f"{NPU} --swap-attention --transformer-impl local", "megatron_lm",
                            {"kernels.transformer_impl": None}, "change"),
    "epochs of stated samples": (
        "megatron",
        SWIFT.replace("--dataset x", "--dataset a/b#500 c#300 --split_dataset_ratio 0.1").replace(
            "--train_iters 10", "--num_train_epochs 2"
        ),
        "megatron_lm",
        {"schedule.epochs": None, "schedule.train_iters": 180},
        "warning",
    ),
    "weights of a family that is converted apart": (
        "megatron",
        SWIFT.replace("Qwen3-8B", "Qwen2.5-7B"),
        "mindspeed",
        {"checkpoint.load": "Qwen2.5-7B-mcore"},
        "change",
    ),
    "weights": ("megatron", SWIFT, "megatron_lm",
                {"checkpoint.load": "Qwen3-8B-mcore", "checkpoint.finetune": True}, "change"),
}  # fmt: skip


def read(case: str) -> tuple[Imported, Ported]:
    source, words, target, *_ = CASES[case]
    imported = read_argv(words.split(), backend=source)
    return imported, ported(imported, target, fixes=False)


@pytest.mark.parametrize("case", CASES)
def test_the_target_gets_what_it_has_instead_and_it_is_told(case: str) -> None:
    *_, wanted, severity = CASES[case]
    found = read(case)[1]
    assert {path: value_at(found.job, path) for path in wanted} == wanted
    told = [each for each in found.findings if each.rule == SUBSTITUTE_RULE and set(each.fields) & wanted.keys()]
    assert [each.severity for each in told] == [severity]
    refused = {path for each in found.findings if each.severity == "error" for path in each.fields}
    assert not refused & wanted.keys()


@pytest.mark.parametrize("case", CASES)
def test_the_job_file_says_the_same_and_its_own_backend_gets_the_scripts_value(case: str, tmp_path: Path) -> None:
    imported, found = read(case)
    file = tmp_path / "job.yaml"
    file.write_text(ported_yaml(imported, found, "x"), encoding="utf-8")
    again = judge(compose([f"+job={file}"]), fixes=False)
    told = {(each.severity, each.message) for each in again.findings if each.rule == SUBSTITUTE_RULE}
    assert told == {(each.severity, each.message) for each in found.findings if each.rule == SUBSTITUTE_RULE}
    back = judge(compose([f"+job={file}", f"backend={imported.backend}"]), fixes=False)
    for path in CASES[case][3]:
        assert value_at(back.job, path) == value_at(imported.job, path)


def test_what_the_user_sets_is_refused_instead(tmp_path: Path) -> None:
    imported, found = read("local layers")
    file = tmp_path / "job.yaml"
    file.write_text(ported_yaml(imported, found, "x"), encoding="utf-8")
    outcome = judge(compose([f"+job={file}", "kernels.transformer_impl=local"]), fixes=False)
    errors = [each.fields for each in outcome.findings if each.severity == "error"]
    assert ("kernels.transformer_impl",) in errors


def test_a_multimodal_model_is_refused_by_name_where_language_models_are_trained() -> None:
    imported = read_argv(SWIFT.replace("Qwen3-8B", "Qwen2.5-VL-7B-Instruct").split(), backend="megatron")
    (found,) = [each for each in ported(imported, "mindspeed", fixes=False).findings if each.rule == "PORT-MODEL"]
    assert found.severity == "error"
    assert "Qwen/Qwen2.5-VL-7B-Instruct reads pictures" in found.message
