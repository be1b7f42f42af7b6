"""Real files of the backends' examples: what they become, that the job composes, and that it says the same again."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from launcher.api import Imported, ImportRefused, import_argv, import_file
from launcher.compose import compose
from launcher.importing.job_file import job_yaml
from launcher.importing.port import ported
from launcher.importing.roundtrip import differences
from launcher.job import value_at
from launcher.pipeline import judge
from tests.effective import differing

DATA = Path(__file__).parent / "data"

# file: (backend, version, fields that a reader of the file would expect)
FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "swift_sft.sh": (
        "megatron",
        "4.6.0",
        {
            "task.type": "sft",
            "model.hub_id": "Qwen/Qwen2.5-7B-Instruct",
            "parallel.tp": 2,
            "parallel.sequence_parallel": True,
            "batch.global_batch_size": 16,
            "batch.seq_length": 2048,
            "recompute.granularity": "full",
            "optimizer.lr": 1e-5,
            "schedule.epochs": 1.0,
            "checkpoint.save_interval": 100,
            "cluster.devices_per_node": 2,
            "backend.env": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "CUDA_VISIBLE_DEVICES": "0,1"},
        },
    ),
    "swift_3_5_moe.sh": (
        "megatron",
        "3.12.6",  # the newest that takes all of its options
        {"parallel.ep": 8, "moe.aux_loss_coeff": 0.01, "checkpoint.save_interval": 200, "data.num_workers": 8},
    ),
    "mindspeed_qwen3.sh": (
        "mindspeed",
        "26.1.0",
        {
            "task.type": "pretrain",
            "model.num_hidden_layers": 28,
            "model.hidden_size": 1024,
            "model.num_key_value_heads": 8,
            "model.qk_layernorm": True,
            "model.rope_theta": 1e6,
            "batch.global_batch_size": 32,
            "schedule.train_iters": 2000,
            "optimizer.min_lr": 1.25e-7,
            "cluster.devices_per_node": 8,
            "cluster.master_port": 6011,
        },
    ),
    "megatron_model_config.yaml": (
        "megatron_lm",
        "0.16.1",
        {"model.num_hidden_layers": 12, "parallel.pp": 4, "batch.seq_length": 1024, "schedule.train_iters": 50},
    ),
    "swift_sft.yaml": (
        "megatron",
        "4.6.0",
        {"lora.rank": 8, "parallel.ep": 4, "batch.packing": True, "model.hub_id": "Qwen/Qwen3.5-35B-A3B"},
    ),
    "mindformers_qwen3.yaml": (
        "mindformers",
        "2.1.0",
        {"task.type": "pretrain", "parallel.tp": 4, "parallel.pp": 4, "batch.seq_length": 4096},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_fields(name: str) -> None:
    backend, version, expected = FILES[name]
    imported = import_file(DATA / name)
    assert (imported.backend, imported.version) == (backend, version)
    assert {path: value_at(imported.job, path) for path in expected} == expected


@pytest.mark.parametrize("name", FILES)
def test_the_job_says_the_same_again(name: str) -> None:
    assert differences(import_file(DATA / name)) == []


@pytest.mark.parametrize("name", FILES)
def test_the_job_file_composes_and_says_the_same(name: str, tmp_path: Path) -> None:
    imported = import_file(DATA / name)
    file = tmp_path / "job.yaml"
    file.write_text(job_yaml(imported, name, with_version=True))
    outcome = judge(compose([f"+job={file}"]), fixes=False)
    assert (outcome.backend.name, outcome.version) == (imported.backend, imported.version)
    before = {arg.flag: arg.value for arg in imported.native}
    after = {arg.flag: arg.value for arg in outcome.native}
    assert differing(outcome.job, imported.backend, imported.version, before, after) == []


def test_every_argument_is_accounted_for() -> None:
    imported = import_file(DATA / "mindspeed_qwen3.sh")
    unmapped = {arg.flag for arg in imported.unmapped}
    for each in imported.mapped_args:
        assert bool(each.fields) + each.implied + (each.flag in unmapped) == 1, each
        assert each.where.startswith(str(DATA / "mindspeed_qwen3.sh")), each
    where = {each.flag: each.where.rpartition(":")[2] for each in imported.mapped_args}
    lines = (DATA / "mindspeed_qwen3.sh").read_text().splitlines()
    assert "--rotary-base" in lines[int(where["rotary-base"]) - 1]


def test_placeholders_are_kept_and_reported() -> None:
    imported = import_file(DATA / "mindspeed_qwen3.sh")
    assert imported.job.tokenizer.path == "your tokenizer path"
    assert imported.job.data.paths == ("your data path",)
    reported = [str(note) for note in imported.warnings]
    assert any("--tokenizer-name-or-path 'your tokenizer path' is a placeholder" in note for note in reported), reported


def test_unset_number_of_nodes_is_reported_and_can_be_set() -> None:
    file = DATA / "swift_3_5_moe.sh"
    imported = import_file(file)
    assert any("--set WORLD_SIZE=N" in str(note) for note in imported.warnings)
    assert import_file(file, variables={"WORLD_SIZE": "4"}).job.cluster.nodes == 4


def test_version_can_be_given() -> None:
    imported = import_file(DATA / "swift_3_5_moe.sh", version="3.5")
    assert imported.version == "3.5.3"
    assert differences(imported) == []


def test_old_options_come_out_in_the_version_asked_for() -> None:
    found = ported(import_file(DATA / "swift_3_5_moe.sh"), "megatron", "4.6.0")
    flags = {arg.flag for arg in judge(found.job, fixes=False).native}
    assert {"save_steps", "output_dir", "dataloader_num_workers"} <= flags
    assert not {"save", "save_interval", "num_workers", "use_flash_attn"} & flags


def test_argument_list_as_services_call_it() -> None:
    argv = [
        "--tensor-model-parallel-size",
        "2",
        "--pipeline-model-parallel-size",
        "4",
        "--lr",
        "1e-4",
        "--micro-batch-size",
        "2",
    ]
    imported = import_argv(argv, backend="megatron_lm", world_size=16)
    job = imported.job
    assert (job.parallel.tp, job.parallel.pp, job.optimizer.lr, job.batch.micro_batch_size) == (2, 4, 1e-4, 2)
    assert (job.cluster.world_size, job.parallel.dp) == (16, 2)


def test_whole_command_as_argument_list() -> None:
    argv = ["megatron", "pt", "--model", "Qwen/Qwen3-8B", "--tensor_model_parallel_size", "4"]
    imported = import_argv(argv, backend="megatron", version="4.6", env={"NPROC_PER_NODE": "8", "FOO": "1"})
    assert imported.job.task.type == "pretrain"
    assert imported.job.cluster.devices_per_node == 8
    assert dict(imported.job.backend.env) == {"FOO": "1"}


SCRIPT = "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --use-ascend-coc --bf16 {}\n"


def refused(tmp_path: Path, text: str, name: str = "x.sh") -> str:
    (tmp_path / name).write_text(text)
    with pytest.raises(ImportRefused) as error:
        import_file(tmp_path / name)
    return str(error.value)


BAD = {
    "unknown flag": ("x.sh", SCRIPT.format("--sequence-paralel"), ("x.sh:1: --sequence-paralel is not", "--sequence-parallel")),  # noqa: E501
    "unknown flag of a list in the script": (
        "x.sh",
        'A="\n --bf16 \\\n --lrr 1 \\\n"\ntorchrun posttrain_gpt.py $A',
        ("x.sh:3: --lrr is not an argument of MindSpeed-LLM",),
    ),
    "flag of another version": (
        "x.sh",
        "megatron sft --model m --tuner_type lora --use_vllm true --sleep_level 1 --log_completions true --moe_pad_expert_input_to_capacity true --hidden_dropout 0.1",  # noqa: E501
        ("--hidden_dropout is not an argument of Megatron-SWIFT 4.6.0: it is an argument of Megatron-SWIFT 3.12.6",),
    ),
    "flag of another backend": (
        "x.sh",
        "torchrun posttrain_gpt.py --use-mcore-models --dataset_num_proc 4",
        ("--dataset_num_proc is not an argument of MindSpeed-LLM", "it is an argument of Megatron-SWIFT"),
    ),
    "wrong value": ("x.sh", SCRIPT.format("--train-iters many"), ("x.sh:1: --train-iters must be a whole number, got 'many'",)),  # noqa: E501
    "no training": ("x.sh", "echo hi\npip install x\n", ("starts a known training program",)),
    "another program": ("x.sh", "swift sft --model m\n", ("x.sh:1: swift sft: it runs on transformers",)),
    "unclosed quote": ("x.sh", 'echo\nA="1\n', ("x.sh:2: the \" quote opened here is never closed",)),
    "unresolvable loop": ("x.sh", "for m in $(ls); do\n megatron sft --model $m\ndone", ("x.sh:1: this loop cannot be resolved",)),  # noqa: E501
    "ambiguous arguments": ("x.txt", "--tensor-model-parallel-size 2\n", ("equally well", "--backend mindspeed")),
    "empty": ("x.sh", " \n", ("x.sh: the file is empty",)),
    "binary": ("x.sh", "a\0b", ("x.sh: the file is not text but binary",)),
    "not YAML": ("x.yaml", "a: [1\nb: 2\n", ("x.yaml:2: the file is not YAML",)),
    "not JSON": ("x.json", '{"a": 1,\n}', ("x.json:2: the file is not JSON",)),
    "no mapping": ("x.yaml", "- 1\n- 2\n", ("a mapping is expected",)),
    "keys of nobody": ("x.yaml", "foo: 1\nbar: 2\n", ("its keys match no backend",)),
    "a job already": ("x.yaml", "model: {hidden_size: 8}\nbatch: {seq_length: 2}\ncluster: {nodes: 1}\n", ("is a job of Launch",)),  # noqa: E501
    "yaml bomb": (
        "x.yaml",
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{name}: &{name} [{','.join('*' + last for _ in range(10))}]\n" for last, name in pairwise("abcdefgh")),  # noqa: E501
        ("too many values in a YAML file, aliases",),
    ),
    "no training run": ("x.yaml", "run_mode: predict\ntrainer: {type: x}\n", ("x.yaml:1: run_mode predict is not training",)),  # noqa: E501
    "base_config missing": ("x.yaml", "base_config: none.yaml\nrun_mode: train\ntrainer: {type: x}\n", ("base_config none.yaml",)),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str, tmp_path: Path) -> None:
    file, text, messages = BAD[name]
    reported = refused(tmp_path, text, file)
    for message in messages:
        assert message in reported


def test_large_file(tmp_path: Path) -> None:
    with (tmp_path / "x.sh").open("wb") as file:
        file.truncate(50 * 2**20)
    with pytest.raises(ImportRefused, match="has 50 MiB"):
        import_file(tmp_path / "x.sh")


def test_partial_keeps_what_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text(SCRIPT.format("--sequence-paralel --lr 1e-4"))
    imported = import_file(tmp_path / "x.sh", partial=True)
    assert imported.job.optimizer.lr == 1e-4
    assert imported.job.backend.args["sequence-paralel"] is True
    assert "--sequence-paralel" in str(imported.problems[0])


def test_several_commands(tmp_path: Path) -> None:
    from launcher.importing.read_command import ImportOptions
    from launcher.importing.read_file import read_file

    file = tmp_path / "x.sh"
    file.write_text(
        "swift export --model m --to_mcore true\n"
        "megatron pt --model m --lr 1e-4\n"
        "megatron sft --model m --lr 1e-5\n"
        "swift infer --model m\n"
    )
    first = read_file(file, ImportOptions())
    assert [job.program for job in first] == ["megatron pt"]
    assert any("megatron sft is dropped" in str(note) for note in first[0].warnings)
    assert [job.program for job in read_file(file, ImportOptions(), all_commands=True)] == [
        "megatron pt",
        "megatron sft",
    ]


def test_mindformers_through_its_launcher(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text((DATA / "mindformers_qwen3.yaml").read_text())
    (tmp_path / "own.yaml").write_text("base_config: base.yaml\nparallel_config: {pipeline_stage: 2}\n")
    (tmp_path / "run.sh").write_text(
        'bash scripts/msrun_launcher.sh "run_mindformer.py --config own.yaml --batch_size 2 --run_mode train" 16\n'
    )
    imported: Imported = import_file(tmp_path / "run.sh")
    job = imported.job
    assert (job.parallel.tp, job.parallel.pp, job.batch.micro_batch_size) == (4, 2, 2)
    assert job.cluster.world_size == 16


def test_configuration_beside_the_script(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("model: Qwen/Qwen3-8B\nlr: 1e-4\nENV: {A: '1', NPROC_PER_NODE: '4'}\n")
    (tmp_path / "x.sh").write_text("A=2 megatron sft x.yaml --tensor_model_parallel_size 2\n")
    job = import_file(tmp_path / "x.sh").job
    assert (job.model.hub_id, job.optimizer.lr, job.parallel.tp) == ("Qwen/Qwen3-8B", 1e-4, 2)
    assert job.cluster.devices_per_node == 4
    assert dict(job.backend.env) == {"A": "2"}


def test_devices_follow_from_the_layout_where_nothing_says_them(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text((DATA / "mindformers_qwen3.yaml").read_text())
    imported = import_file(tmp_path / "x.yaml")
    parallel = imported.job.parallel
    assert imported.job.cluster.world_size == (parallel.dp or 0) * parallel.tp * parallel.pp * parallel.cp
    assert any("are assumed (dp × tp × pp × cp, etp × ep × pp)" in str(note) for note in imported.warnings)


def test_an_unknown_value_of_a_field_is_passed_through_and_the_job_file_is_accepted(tmp_path: Path) -> None:
    script = "torchrun posttrain_gpt.py --position-embedding-type deepseek4 --lr 1e-4 --micro-batch-size 1\n"
    (tmp_path / "x.sh").write_text(script)
    imported = import_file(tmp_path / "x.sh")
    assert imported.job.backend.args["position-embedding-type"] == "deepseek4"
    (tmp_path / "job.yaml").write_text(job_yaml(imported, "x.sh", with_version=True))
    outcome = judge(compose([f"+job={tmp_path}/job.yaml"]), fixes=False)
    assert outcome.native.get("position-embedding-type") == "deepseek4"
    assert "ARG-CONTRADICTION" not in {finding.rule for finding in outcome.findings}


SLURM = """#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=4   # four of them
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=1
export NCCL_DEBUG=INFO
nodes=( $(scontrol show hostnames $SLURM_JOB_NODELIST) )
head=${nodes[0]}
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $SLURM_GPUS_ON_NODE --rdzv_id $RANDOM --rdzv_backend c10d \\
  --rdzv_endpoint $head:29500 pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 \\
  --micro-batch-size 1 --train-iters $((1000 * 10))
"""


def test_slurm_script(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text(SLURM)
    job = import_file(tmp_path / "x.sh").job
    assert (job.cluster.nodes, job.cluster.devices_per_node, job.parallel.dp) == (4, 8, 1)
    assert (job.cluster.master_addr, job.schedule.train_iters) == (None, 10_000)


def test_plain_megatron_and_mindspeed_are_distinguished(tmp_path: Path) -> None:
    cases = {
        "only MindSpeed-LLM has the flag": ("torchrun pretrain_gpt.py --lr 1 --use-fused-rmsnorm", "mindspeed"),
        "only Megatron-LM has the flag": ("torchrun pretrain_gpt.py --lr 1 --moe-router-fusion", "megatron_lm"),
        "an NPU variable": ("export HCCL_CONNECT_TIMEOUT=1\ntorchrun pretrain_gpt.py --lr 1", "mindspeed"),
        "a GPU variable": ("export NCCL_DEBUG=INFO\ntorchrun pretrain_gpt.py --lr 1", "megatron_lm"),
        "nothing tells": ("torchrun pretrain_gpt.py --lr 1", "megatron_lm"),
        "its own script": ("torchrun posttrain_gpt.py --lr 1 --stage sft", "mindspeed"),
    }
    for name, (script, backend) in cases.items():
        (tmp_path / "x.sh").write_text(script)
        assert import_file(tmp_path / "x.sh").backend == backend, name


def test_lists_in_brackets_of_a_model_config(tmp_path: Path) -> None:
    """Megatron-LM's own gpt3_15b_8t_release and cp4_a2a_p2p write lists so."""
    path = tmp_path / "model_config.yaml"
    path.write_text(
        'MODEL_ARGS:\n  --num-layers: 4\n  --rampup-batch-size: "[384 384 97656250]"\n'
        '  --hierarchical-context-parallel-sizes: "[2,2]"\n  --moe-layer-freq: "[0,1]"\n'
    )
    native = import_file(path).native
    assert [int(part) for part in native.get("rampup-batch-size")] == [384, 384, 97656250]
    assert native.get("hierarchical-context-parallel-sizes") == (2, 2)
    assert native.get("moe-layer-freq") == "[0,1]"


@pytest.mark.parametrize("program", ["pretrain_gpt.py", "posttrain_gpt.py --stage sft"])
def test_the_other_spelling_of_selective_recomputation(tmp_path: Path, program: str) -> None:
    (tmp_path / "x.sh").write_text(f"torchrun {program} --lr 1 --recompute-activations\n")
    found = import_file(tmp_path / "x.sh")
    assert found.job.recompute.granularity == "selective"
    assert differences(found) == []


def test_full_recomputation_beside_it_is_kept(tmp_path: Path) -> None:
    """The parser lets the switch win; both stay, so that rules can say so."""
    (tmp_path / "x.sh").write_text(
        "torchrun pretrain_gpt.py --lr 1 --recompute-activations --recompute-granularity full\n"
    )
    found = import_file(tmp_path / "x.sh")
    assert "recompute-activations" in found.job.backend.args
    assert differences(found) == []


def test_a_blank_survives_a_port(tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_text("torchrun pretrain_gpt.py --lr 1 --lr-warmup-iters $WARMUP\n")
    found = ported(import_file(tmp_path / "x.sh"), "mindspeed")
    assert "lr-warmup-iters" not in {each.flag for each in found.missing}
    assert found.job.backend.args["lr-warmup-iters"] == "$WARMUP"
    assert not found.ok


@pytest.mark.parametrize(
    ("model", "balancing"),
    [("deepseek-ai/DeepSeek-V3", "seq_aux_loss"), ("Qwen/Qwen3-30B-A3B", "aux_loss")],
)
def test_the_balancing_that_a_model_brings_along_survives_the_job_file(
    tmp_path: Path, model: str, balancing: str
) -> None:
    """ms-swift takes it from the model where the script says nothing; the job file knows the model by its preset."""
    (tmp_path / "x.sh").write_text(f"megatron sft --model {model} --dataset d --moe_aux_loss_coeff 0.001\n")
    found = import_file(tmp_path / "x.sh")
    (tmp_path / "job.yaml").write_text(job_yaml(found, "x.sh", with_version=False))
    native = judge(compose([f"+job={tmp_path / 'job.yaml'}"]), fixes=False).native
    written = {arg.flag: arg.value for arg in native}
    assert found.job.moe.load_balancing_type == balancing
    assert written.get("moe_router_load_balancing_type", balancing) == balancing


_MEGATRON = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2"


def test_an_ordinary_path_with_a_blank_is_no_placeholder(tmp_path: Path) -> None:
    paths = '0.3 "/data/my corpus_text_document" 0.7 /data/b_text_document'
    (tmp_path / "x.sh").write_text(f"{_MEGATRON} --data-path {paths}\n")
    imported = import_file(tmp_path / "x.sh")
    assert [note.message for note in imported.warnings if "data-path" in note.message] == []
    assert {arg.flag: arg.value for arg in imported.native}["data-path"][1] == "/data/my corpus_text_document"


# name: (script, reason)
REASONS = {
    "unset": ("{} --seed $S", "--seed $S is kept as it is: the script does not set its value"),
    "computed of an unset one": (
        "{} --seed $((S / 2))",
        "--seed $((S / 2)) is kept as it is: a variable in it is not known",
    ),
    "of the machine": (
        '[[ ":$PATH:" == *:/x:* ]] || export PATH=/x:$PATH\n{} --seed 1',
        "PATH is not known here; the condition takes it as empty",
    ),
    "printed by a program": ("S=$(nproc)\n{} --seed $S", "--seed $(nproc) is kept as it is: {}"),
    "a format that is not followed": ("printf -v S '%(%s)T' -1\n{} --seed $S", "--seed $S is kept as it is: {}"),
    "a branch that the machine chooses": (
        "S=$(case $(uname -m) in a) echo 1;; *) echo 2;; esac)\n{} --seed $S",
        "--seed $(case $(uname -m) in a) echo 1;; *) echo 2;; esac) is kept as it is: {}",
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_why_a_value_is_not_known(name: str, tmp_path: Path) -> None:
    script, reason = REASONS[name]
    (tmp_path / "x.sh").write_text(script.format(_MEGATRON))
    warnings = import_file(tmp_path / "x.sh").warnings
    reported = [note.message for note in warnings]
    assert "$((" not in reason or any("--set S=VALUE" in note.works for note in warnings)
    assert reason.replace("{}", "its value is known only where the script runs") in reported, reported


def test_a_pattern_of_file_names_is_kept_and_reported(tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text(
        "D=(/data/shard-*/train)\nrm -rf /tmp/x/*\n"
        "megatron pt --model m --cached_dataset \"${D[@]}\" --output_dir 'out/*' --save_steps 1\n"
    )
    reported = [note for note in import_file(script).warnings if "match" in note.message]
    assert [(note.where, note.message.partition(":")[0]) for note in reported] == [
        (f"{script}:1", "/data/shard-*/train")
    ]
