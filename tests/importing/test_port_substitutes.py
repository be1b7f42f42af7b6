"""Values that the target cannot take are replaced by what it has instead, told, and come back on their own backend."""

from pathlib import Path
from typing import Any

import pytest

from launcher.cli.port_show import ported_yaml
from launcher.compose import compose
from launcher.importing.imported import Imported
from launcher.importing.port import Ported, ported
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import value_at
from launcher.pipeline import judge
from launcher.port.substitutes import SUBSTITUTE_RULE

pytestmark = pytest.mark.slow

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
    "alltoall_seq": ("mindspeed", f"{NPU} {MOE} --moe-token-dispatcher-type alltoall_seq", "megatron_lm",
                     {"moe.token_dispatcher_type": "alltoall"}, "change"),
    "gathered tokens": ("megatron_lm", f"{LM} {MOE} --moe-token-dispatcher-type allgather", "megatron",
                        {"moe.token_dispatcher_type": "alltoall"}, "change"),
    "gathered tokens on MindFormers": (
        "megatron_lm",
        f"{LM} {MOE} --moe-token-dispatcher-type allgather",
        "mindformers",
        {"moe.token_dispatcher_type": "alltoall"},
        "change",
    ),
    "the schedule of the checkpoint": (
        "megatron_lm",
        f"{LM} --load c --use-checkpoint-opt_param-scheduler",
        "megatron",
        {"checkpoint.load_schedule": None},
        "warning",
    ),
    "sizes of the checkpoint": (
        "megatron_lm",
        f"{LM} --load c --use-checkpoint-args",
        "mindformers",
        {"checkpoint.load_arguments": None},
        "warning",
    ),
    "a run that is interrupted": (
        "megatron_lm",
        f"{LM} --exit-interval 5",
        "megatron",
        {"schedule.exit_interval": None},
        "warning",
    ),
    "both overlaps": (
        "mindspeed",
        f"{NPU} {MOE} --moe-fb-overlap --moe-token-dispatcher-type alltoall --expert-model-parallel-size 2 "
        "--moe-shared-expert-intermediate-size 256 --moe-shared-expert-overlap",
        "megatron_lm",
        {"moe.shared_expert_overlap": None},
        "change",
    ),
    "gloo groups": (
        "mindspeed",
        f"{NPU} --disable-gloo-group --use-distributed-optimizer --ckpt-format torch",
        "megatron_lm",
        {"parallel.gloo": None, "checkpoint.format": "torch"},
        "change",
    ),
    "causal masks of pairs": (
        "mindspeed",
        f"{NPU} --context-parallel-size 2 --attention-mask-type general",
        "megatron",
        {"parallel.cp_mask_type": None},
        "change",
    ),
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
    "groups of recomputed layers": (
        "megatron",
        f"{SWIFT} --recompute_granularity full --recompute_method uniform --recompute_num_layers 4",
        "mindformers",
        {"recompute.num_layers": 1},
        "change",
    ),
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
    "adapters of experts": (
        "megatron",
        SWIFT.replace("Qwen3-8B", "Qwen3-30B-A3B") + " --tuner_type lora --lora_rank 8 --lora_alpha 16",
        "mindspeed",
        {"moe.token_dispatcher_type": "alltoall_seq", "parallel.etp": 1},
        "change",
    ),
    "swapped states of an optimizer that is not said to be distributed": (
        "megatron_lm",
        f"{LM} --optimizer-cpu-offload --use-precision-aware-optimizer",
        "mindspeed",
        {"parallel.distributed_optimizer": True},
        "change",
    ),
    "weights in FP8, which it does not convert when it starts": (
        "megatron",
        SWIFT.replace("Qwen3-8B", "Qwen3-14B-FP8"),
        "mindspeed",
        {"checkpoint.load": "Qwen3-14B-FP8-mcore"},
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
    findings = [each for each in found.findings if each.rule == SUBSTITUTE_RULE and set(each.fields) & wanted.keys()]
    assert [each.severity for each in findings] == [severity]
    refused = {path for each in found.findings if each.severity == "error" for path in each.fields}
    assert not refused & wanted.keys()


@pytest.mark.parametrize("case", CASES)
def test_the_job_file_says_the_same_and_its_own_backend_gets_the_scripts_value(case: str, tmp_path: Path) -> None:
    imported, found = read(case)
    file = tmp_path / "job.yaml"
    file.write_text(ported_yaml(imported, found, "x"), encoding="utf-8")
    again = judge(compose([f"+job={file}"]), fixes=False)
    shown = {(each.severity, each.message) for each in again.findings if each.rule == SUBSTITUTE_RULE}
    assert shown == {(each.severity, each.message) for each in found.findings if each.rule == SUBSTITUTE_RULE}
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


QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
# name: (source, text of the variable, arguments, target, whether the target can have it)
VARIABLES: dict[str, tuple[str, str, str, str, bool]] = {
    "many queues": ("megatron", "32", "--tensor_model_parallel_size 2", "mindspeed", False),
    "many queues and context parallelism": ("megatron", "32", "--context_parallel_size 2", "megatron_lm", False),
    "many queues without either": ("megatron", "32", "", "mindspeed", True),
    "one queue": ("megatron", "1", "--tensor_model_parallel_size 2", "mindspeed", True),
    "one queue, which context parallelism accepts": ("megatron", "1", "--context_parallel_size 2", "megatron_lm", True),
    "overlapped micro-batches": (
        "mindspeed",
        "32",
        f"{MOE} --moe-fb-overlap --moe-token-dispatcher-type alltoall --expert-model-parallel-size 2 "
        "--tensor-model-parallel-size 2 --sequence-parallel",
        "megatron_lm",
        True,
    ),
    "one queue of FSDP": ("megatron_lm", "1", "--use-megatron-fsdp --data-parallel-sharding-strategy "
                          "optim_grads_params --ckpt-format fsdp_dtensor", "megatron", False),
}  # fmt: skip


STARTS = {"megatron": f"NPROC_PER_NODE=8 {SWIFT}", "megatron_lm": LM, "mindspeed": NPU}


def with_variable(case: str, folder: Path) -> Imported:
    source, number, words, *_ = VARIABLES[case]
    script = folder / "train.sh"
    script.write_text(
        f"export {QUEUES}={number}\n" + f"{STARTS[source]} {words}\n",
        encoding="utf-8",
    )
    (imported,) = read_file(script, ImportOptions(backend=source))
    return imported


@pytest.mark.parametrize("case", VARIABLES)
def test_a_variable_that_the_target_refuses_is_left_to_it(case: str, tmp_path: Path) -> None:
    _, number, _, target, fits = VARIABLES[case]
    imported = with_variable(case, tmp_path)
    found = ported(imported, target, fixes=False)
    assert found.job.backend.env.get(QUEUES) == (number if fits else None)
    replaced = [
        each for each in found.findings if each.rule == SUBSTITUTE_RULE and f"backend.env.{QUEUES}" in each.fields
    ]
    assert [each.severity for each in replaced] == ([] if fits else ["change"])
    assert all(each.message.startswith(f"backend.env.{QUEUES}={number} → left to the backend: ") for each in replaced)
    assert not [each for each in found.findings if each.severity == "error" and QUEUES in each.message]


def test_a_variable_comes_back_on_its_own_backend_and_is_refused_where_the_user_sets_it(tmp_path: Path) -> None:
    imported = with_variable("many queues", tmp_path)
    file = tmp_path / "job.yaml"
    file.write_text(ported_yaml(imported, ported(imported, "mindspeed", fixes=False), "x"), encoding="utf-8")
    assert QUEUES not in judge(compose([f"+job={file}"]), fixes=False).job.backend.env
    assert judge(compose([f"+job={file}", "backend=megatron"]), fixes=False).job.backend.env[QUEUES] == "32"
    refused = judge(compose([f"+job={file}", f"+backend.env.{QUEUES}='16'"]), fixes=False)
    assert "MLM-CONNECTIONS" in {each.rule for each in refused.findings if each.severity == "error"}


def test_without_adapters_nothing_of_them_is_refused(tmp_path: Path) -> None:
    words = f"{SWIFT} --tuner_type lora --lora_rank 8 --lora_alpha 16 --lora_dropout 0.05 --system x --model_author a"
    imported = read_argv([*words.split(), "--model_name", "b"], backend="megatron")
    found = ported(imported, "megatron_lm")
    errors = {
        each.fields[0]: [fix.overrides for fix in each.fixes] for each in found.findings if each.severity == "error"
    }
    for path in ("lora.alpha", "lora.dropout"):
        assert errors[path] == [("lora.rank=null", f"{path}=null")]
    for path in ("data.system", "data.self_cognition_author", "data.self_cognition_name"):
        assert errors[path] == [(f"{path}=null",)]
    file = tmp_path / "job.yaml"
    file.write_text(ported_yaml(imported, found, "x"), encoding="utf-8")
    outcome = judge(compose([f"+job={file}", "lora.rank=null"]), fixes=False)
    assert [each.fields for each in outcome.findings if each.severity == "error" and "lora." in each.fields[0]] == []


def test_a_multimodal_model_is_refused_by_name_where_language_models_are_trained() -> None:
    imported = read_argv(SWIFT.replace("Qwen3-8B", "Qwen2.5-VL-7B-Instruct").split(), backend="megatron")
    (found,) = [each for each in ported(imported, "mindspeed", fixes=False).findings if each.rule == "PORT-MODEL"]
    assert found.severity == "error"
    assert "Qwen/Qwen2.5-VL-7B-Instruct also reads images" in found.message


PASSES = """
use_legacy: False
run_mode: train
runner_config: {epochs: 3, batch_size: 2}
trainer: {type: CausalLanguageModelingTrainer, model_name: llm}
train_dataset:
  data_loader:
    type: BlendedMegatronDatasetDataLoader
    sizes: [1001, 0, 0]
    config: {seq_length: 512, data_path: ["1", "/data/text"]}
parallel_config: {data_parallel: 2, model_parallel: 1, pipeline_stage: 1, micro_batch_num: 1}
optimizer: {type: AdamW, weight_decay: 0.1}
lr_schedule: {type: ConstantWarmUpLR, learning_rate: 1.e-4}
model: {model_config: {model_type: qwen3, hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 8}}
"""


@pytest.mark.parametrize("target", ["megatron", "megatron_lm", "mindspeed"])
def test_passes_over_stated_samples_are_their_whole_batches(target: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(PASSES, encoding="utf-8")
    imported = read_file(file, ImportOptions(backend="mindformers", world_size=2))[0]
    found = ported(imported, target, fixes=False)
    batch = found.job.batch.global_batch_size
    assert batch == 4
    assert found.job.schedule.train_iters == 3 * (1001 // batch)
    assert (found.job.schedule.epochs, found.job.schedule.train_samples) == (None, None)
    (finding,) = [each for each in found.findings if each.rule == SUBSTITUTE_RULE and "schedule.epochs" in each.fields]
    assert finding.severity == "warning"


OF_CHECKPOINT = {
    "a known model": ("Qwen2.5-14B-mcore", "Qwen/Qwen2.5-14B", 5120),
    "in a folder": ("/ckpt/Qwen3-32B-mcore/", "Qwen/Qwen3-32B", 5120),
    "an unknown one": ("ours-mcore", None, None),
    "another name": ("Qwen3-32B", None, None),
}


@pytest.mark.parametrize("case", OF_CHECKPOINT)
def test_the_name_of_a_converted_checkpoint_is_the_model(case: str) -> None:
    """ms-swift 3 reads the architecture from the checkpoint, which its examples call `NAME-mcore`."""
    load, name, size = OF_CHECKPOINT[case]
    words = SWIFT.replace("--model Qwen/Qwen3-8B", f"--load {load}").split()
    found = ported(read_argv(words, backend="megatron", version="3.6.4"), "mindspeed", fixes=False)
    assert (found.job.model.hub_id, found.job.model.hidden_size) == (name, size)
    assert [name in note.message for note in found.notes] == ([True] if name else [])


def test_a_template_that_only_mindspeed_llm_has_is_a_decision() -> None:
    """The real ms-swift refuses it (`template_type: 'plm' not in …`), and another chat format changes the training."""
    words = f"{NPU} --stage sft --is-instruction-dataset --prompt-type plm".replace("pretrain_gpt", "posttrain_gpt")
    found = ported(read_argv(words.split(), backend="mindspeed"), "megatron", fixes=False)
    (error,) = [each for each in found.findings if "data.template" in each.fields and each.severity == "error"]
    assert "no template of this name" in error.message
