"""The real MindFormers from PyPI trains and resumes on CPU under msrun, with dry-run's YAML changed for CPU."""

import json
import os
import re
import shutil
import socket
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors import safe_open

from backends.mindformers.rehearse import NATIVE_CPU, adapt_plan
from backends.mindformers.rehearse.plan import ENTRY_SCRIPT
from backends.mindformers.yaml_file import parse
from launcher.compose import compose
from launcher.parity.model import make_model
from launcher.pipeline import judge
from launcher.plan.plan import LaunchPlan
from launcher.rehearse.adapt import adapted
from launcher.rehearse.plan import rehearsal_plan
from launcher.rehearse.refusal import RehearsalRefused
from tests.rehearse.native.environments import mindformers_1_6_python, mindformers_1_8_python
from tests.rehearse.native.plans import native_plan
from tests.rehearse.native.runs import Run, run_native
from tests.rehearse.native.token_file import write_token_file

LOSS = re.compile(r"step:\[ *(\d+)/ *\d+\], loss:\[([0-9.]+)")


@pytest.fixture(autouse=True)
def _from_pypi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINDFORMERS_PATH", raising=False)


def rehearsal(*args: str) -> LaunchPlan:
    """Return the plan of a job's rehearsal: what dry-run prints for the cluster, changed for CPU."""
    return adapt_plan(*native_plan(args))


TINY = ("+recipe=tiny_qwen3", "backend=mindformers", "data.format=megatron", "data.paths=[/data/tokens]")


def test_only_what_cpu_cannot_do_is_changed_and_each_change_is_reported() -> None:
    cluster, _ = native_plan([*TINY, "precision.dtype=bf16"])
    here = rehearsal(*TINY, "precision.dtype=bf16")
    before, after = parse(cluster.files[0].content), parse(here.files[0].content)
    changed = {flag for flag in {*before, *after} if before.get(flag) != after.get(flag)}
    reported = {note.split(": ")[1].split(" (")[0] for note in here.notes if note.startswith("changed for CPU: ")}
    assert changed == reported
    assert {"context.device_target", "parallel.parallel_mode", "model.model_config.compute_dtype"} <= changed
    assert after["model.model_config.compute_dtype"] == "float32"
    assert "changed for CPU: context.device_target: Ascend -> CPU" in here.files[0].content


def test_gradients_accumulate_as_on_the_cluster() -> None:
    flat = parse(rehearsal(*TINY, "batch.micro_batch_size=2", "batch.global_batch_size=16").files[0].content)
    assert flat["runner_config.batch_size"] == 2
    assert flat["runner_config.gradient_accumulation_steps"] == 8


def test_the_wheel_is_started_by_our_entry_and_a_checkout_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(ENTRY_SCRIPT) in rehearsal(*TINY).nodes[0].argv
    monkeypatch.setenv("MINDFORMERS_PATH", "/checkout")
    assert "${MINDFORMERS_PATH}/run_mindformer.py" in rehearsal(*TINY).nodes[0].argv


REFUSED: Mapping[str, tuple[Sequence[str], str]] = {
    "tensor parallel": (
        ["cluster.devices_per_node=2", "parallel.tp=2", "parallel.sequence_parallel=true"],
        "parallel.tp",
    ),
    "pipeline parallel": (["cluster.devices_per_node=2", "parallel.pp=2"], "parallel.pp"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_only_ascend_can_do_is_refused(case: str) -> None:
    args, field = REFUSED[case]
    with pytest.raises(RehearsalRefused) as refused:
        rehearsal(*TINY, *args)
    (finding,) = refused.value.findings
    assert finding.fields == (field,)
    assert "for Ascend only" in finding.message
    assert finding.fixes


def interpreter(folder: Path, mindformers: str, mindspore: str) -> str:
    """Return a program that answers the question for installed versions as an interpreter with these would."""
    file = folder / "bin" / "python"
    file.parent.mkdir()
    versions = json.dumps({"python": "3.11.7", "mindspore": mindspore, "mindformers": mindformers})
    file.write_text(f"#!/bin/sh\necho '{versions}'\n")
    file.chmod(0o755)
    return str(file)


NATIVE = (*TINY, "rehearse.entry=native", "runtime=rehearsal")


@pytest.mark.parametrize(
    ("installed", "core", "written"), [("1.6.0", "2.7.0", "1.6.0"), ("1.8.0", "2.7.2", "1.8.0"), ("2.1.0", "", "2.1.0")]
)
def test_the_installed_version_is_written_for(tmp_path: Path, installed: str, core: str, written: str) -> None:
    job = compose([*NATIVE, f"cluster.python={interpreter(tmp_path, installed, core)}"])
    assert judge(job, fixes=False).version == written


def test_another_version_than_the_installed_one_is_refused(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "1.6.0", "2.7.0")
    outcome = judge(compose([*NATIVE, f"cluster.python={python}", "backend.version=2.1.0"]), fixes=False)
    with pytest.raises(RehearsalRefused) as refused:
        rehearsal_plan(outcome)
    (finding,) = refused.value.findings
    assert "MindFormers 1.6.0 is installed" in finding.message
    assert finding.fixes[0].overrides == ("backend.version=1.6.0",)


def test_a_near_version_is_told(tmp_path: Path) -> None:
    job = compose([*NATIVE, f"cluster.python={interpreter(tmp_path, '1.9.0', '2.9.0')}"])
    notes = rehearsal_plan(judge(job, fixes=False)).notes
    assert "MindFormers 1.9.0 is installed; its arguments are written as for 2.0.0" in notes


def test_what_makes_a_recipe_run_on_1_6_is_offered() -> None:
    job = compose(["+recipe=llama3_8b", "backend=mindformers", "backend.version=1.6.0", *TINY[2:]])
    (error,) = (each for each in judge(job).findings if each.severity == "error")
    assert "with model.legacy=true it trains llama, qwen2, mixtral" in error.message
    assert error.fixes[0].overrides == ("model.legacy=true",)
    assert judge(compose([*LLAMA_1_6, *TINY[2:]])).ok


SHRUNK = ("data.format=megatron", "rehearse.shrink=true", "model.pretrained=false", "model.hub_id=null")
LLAMA_1_6 = ("+recipe=llama3_8b", "backend=mindformers", "backend.version=1.6.0", "model.legacy=true")


def test_a_class_that_is_not_in_the_package_is_not_offered() -> None:
    job = compose(["+recipe=tiny_deepseek_v3", *NATIVE[1:2], "backend.version=1.6.0", *TINY[2:], "model.n_group=2"])
    messages = [each.message for each in judge(job, fixes=False).findings if each.severity == "error"]
    assert messages
    assert not any("it trains llama, qwen2, mixtral, deepseek_v3" in each for each in messages)
    job = compose([*TINY[:2], "backend.version=1.6.0", *TINY[2:]])
    (error,) = (each for each in judge(job).findings if each.severity == "error")
    assert error.message.endswith("with model.legacy=true it trains llama, qwen2, mixtral")


def test_an_older_model_reads_token_files_with_causal_attention_and_float32_weights() -> None:
    flat = parse(native_plan([*LLAMA_1_6, *TINY[2:], "kernels.attention_backend=null"])[0].files[0].content)
    assert flat["model.model_config.input_sliced_sig"] is True
    assert flat["model.model_config.use_flash_attention"] is True
    assert flat["model.model_config.param_init_type"] == "float32"
    assert flat["parallel.full_batch"] is False


def test_experts_are_grouped_which_training_requires() -> None:
    moe = ["+recipe=tiny_qwen3_moe", *TINY[1:]]
    assert parse(rehearsal(*moe).files[0].content)["model.model_config.moe_grouped_gemm"] is True
    refused = judge(compose([*moe, "moe.grouped_gemm=false"]), fixes=False)
    assert [error.fields for error in refused.findings if error.severity == "error"] == [("moe.grouped_gemm",)]


def test_weights_are_converted_into_the_folder_of_each_rank(tmp_path: Path) -> None:
    model = make_model(compose([*TINY]), tmp_path / "shared")
    plan = rehearsal(*TINY, f"model.path={model}", "cluster.devices_per_node=2", f"output_dir={tmp_path / 'out'}")
    flat = parse(plan.files[0].content)
    (convert,) = plan.prepare
    subprocess.run(convert.argv, check=True, capture_output=True)
    folder = Path(str(flat["load_checkpoint"]))
    assert flat["auto_trans_ckpt"] is False
    names = {path.parent.name for path in folder.glob("rank_*/*.safetensors")}
    assert names == {"rank_0", "rank_1"}
    with safe_open(next(folder.glob("rank_1/*.safetensors")), "np") as stored:
        assert "decoder.layers.0.self_attention.linear_qkv.weight" in stored.keys()  # noqa: SIM118


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A finished msrun, and the loss of each step of each worker."""

    run: Run
    losses: Sequence[Mapping[int, float]]


def free_port() -> str:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start(python: Path, plan: LaunchPlan, folder: Path) -> Training:
    """Write the plan's files below ``folder`` and run its command there; fails the test where it fails."""
    for file in plan.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content)
    (node,) = plan.nodes
    argv = [arg.replace("${PWD}", str(folder)).replace("${LAUNCH_DIR}", str(folder)) for arg in node.argv]
    argv[argv.index("--master_port") + 1] = free_port()
    env = {**node.env, **dict(NATIVE_CPU.env), "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    run = run_native(NATIVE_CPU, [str(python.parent / argv[0]), *argv[1:]], cwd=folder, env=env).check()
    logs = Path(folder, argv[argv.index("--log_dir") + 1])
    workers = sorted(logs.glob("worker_*.log"))
    losses = [{int(step): float(loss) for step, loss in LOSS.findall(log.read_text())} for log in workers]
    return Training(run=run, losses=losses)


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_token_file(tmp_path_factory.mktemp("mindformers") / "tokens")


@pytest.fixture(scope="session")
def mindformers_1_8() -> Path:
    return mindformers_1_8_python()


@pytest.fixture(scope="session")
def mindformers_1_6() -> Path:
    return mindformers_1_6_python()


def tiny_qwen3(tokens: Path, name: str, *more: str) -> LaunchPlan:
    """Return tiny_qwen3's rehearsal with 20 steps on the test's tokens; it saves steps 10 and 20 below ``name``."""
    small = [
        "schedule.train_iters=20",
        "schedule.lr_warmup_iters=2",
        "batch.global_batch_size=8",
        "batch.seq_length=64",
    ]
    places = [
        f"data.paths=[{tokens}]",
        f"output_dir={name}",
        f"checkpoint.save={name}/saved",
        "checkpoint.save_interval=10",
    ]
    return rehearsal(*TINY[:3], *places, *small, *more)


@pytest.mark.sample(keep=1, of="MindFormers trainings")
@pytest.mark.slow
def test_two_ranks_train_the_recipe(mindformers_1_8: Path, tokens: Path, tmp_path: Path) -> None:
    training = start(mindformers_1_8, tiny_qwen3(tokens, "two", "cluster.devices_per_node=2"), tmp_path)
    assert "rehearsal: MindFormers 1.8.0 (mindspore 2.7.2) itself, unmodified, on CPU" in training.run.output
    assert len(training.losses) == 2
    for losses in training.losses:
        assert list(losses) == list(range(1, 21))
        assert losses[20] < losses[1] - 3.0


@pytest.mark.sample(keep=1, of="MindFormers trainings")
@pytest.mark.slow
def test_a_checkpoint_resumes(mindformers_1_8: Path, tokens: Path, tmp_path: Path) -> None:
    whole = start(mindformers_1_8, tiny_qwen3(tokens, "whole"), tmp_path).losses[0]
    saved = tmp_path / "at_ten"
    shutil.copytree(tmp_path / "whole" / "saved" / "checkpoint", saved)
    (file,) = saved.glob("rank_0/*-1_10.safetensors")
    (saved / "rank_0" / "meta.json").write_text(
        json.dumps({"last_epoch": 1, "last_step": 10, "last_ckpt_file": file.name})
    )
    resumed = start(mindformers_1_8, tiny_qwen3(tokens, "resumed", f"checkpoint.load={saved}"), tmp_path).losses[0]
    assert resumed == {step: loss for step, loss in whole.items() if step > 10}


DEEPSEEK_1_6 = """
    seed: 42
    output_dir: ./output
    use_parallel: True
    run_mode: train
    use_legacy: False
    load_checkpoint: ''
    trainer: {type: CausalLanguageModelingTrainer, model_name: deepseekV3}
    runner_config: {epochs: 1, batch_size: 2, sink_mode: True, sink_size: 1, gradient_accumulation_steps: 2}
    optimizer: {type: AdamW, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.0}
    lr_schedule: {type: ConstantWarmUpLR, learning_rate: 3.0e-3, warmup_ratio: 0, total_steps: -1}
    runner_wrapper: {type: MFTrainOneStepCell, scale_sense: 1.0, use_clip_grad: True}
    train_dataset: &train_dataset
      data_loader:
        type: BlendedMegatronDatasetDataLoader
        datasets_type: GPTDataset
        sizes: [160, 0, 0]
        shuffle: False
        config:
          {seed: 1234, split: "1, 0, 0", seq_length: 64, create_attention_mask: False, eod: 126, pad: 0,
           data_path: ["1", TOKENS]}
      input_columns: [input_ids, labels, loss_mask, position_ids]
      construct_args_key: [input_ids, labels, loss_mask, position_ids]
      num_parallel_workers: 1
      python_multiprocessing: False
      prefetch_size: 1
      numa_enable: False
      repeat: 1
      drop_remainder: True
    train_dataset_task: {type: CausalLanguageModelDataset, dataset_config: *train_dataset}
    context:
      mode: 0
      device_target: Ascend
      max_device_memory: 58GB
      jit_config: {jit_level: O0}
      ascend_config: {precision_mode: must_keep_origin_dtype, parallel_speed_up_json_path: SPEED_UP}
    parallel:
      {parallel_mode: 1, full_batch: False, gradients_mean: False, dataset_strategy: [[2, 1], [2, 1], [2, 1], [2, 1]]}
    parallel_config: {data_parallel: 2, model_parallel: 1, pipeline_stage: 1, micro_batch_num: 1, vocab_emb_dp: True}
    recompute_config: {recompute: True}
    model:
      model_config:
        {model_type: deepseek_v3, architectures: [DeepseekV3ForCausalLM], vocab_size: 128, hidden_size: 64,
         intermediate_size: 128, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 4,
         n_routed_experts: 4, num_experts_per_tok: 2, n_group: 1, topk_group: 1,
         moe_intermediate_size: 32, first_k_dense_replace: 2, n_shared_experts: 1,
         moe_grouped_gemm: True, num_nextn_predict_layers: 0, kv_lora_rank: 16, q_lora_rank: 24, qk_rope_head_dim: 8,
         qk_nope_head_dim: 16, v_head_dim: 16, max_position_embeddings: 64, seq_length: 64, input_sliced_sig: True,
         compute_dtype: bfloat16, params_dtype: float32}
    callbacks: [{type: MFLossMonitor}]
"""
"""A cluster's file of 1.6.0, whose only trainable mcore model is DeepSeek-V3: all layers dense, two devices."""


@pytest.mark.sample(keep=1, of="MindFormers trainings")
@pytest.mark.slow
def test_version_1_6_trains_llama(mindformers_1_6: Path, tokens: Path, tmp_path: Path) -> None:
    sizes = ["parallel.tp=1", "parallel.sequence_parallel=false", "cluster.devices_per_node=2"]
    job, _ = adapted(compose([*LLAMA_1_6, f"data.paths=[{tokens}]", *SHRUNK, *sizes]), 2)
    outcome = judge(job, fixes=False)
    for losses in start(mindformers_1_6, adapt_plan(outcome.plan(), outcome.job), tmp_path).losses:
        assert list(losses) == list(range(1, 11))
        assert losses[10] < losses[1] - 0.1


@pytest.mark.sample(keep=1, of="MindFormers trainings")
@pytest.mark.slow
def test_experts_train(mindformers_1_8: Path, tokens: Path, tmp_path: Path) -> None:
    moe = ["+recipe=tiny_qwen3_moe", *TINY[1:3], f"data.paths=[{tokens}]", "rehearse.shrink=true"]
    job, _ = adapted(compose([*moe, "schedule.lr_warmup_iters=0"]), 2)
    outcome = judge(job, fixes=False)
    (losses,) = start(mindformers_1_8, adapt_plan(outcome.plan(), outcome.job), tmp_path).losses
    assert losses[10] < losses[1] - 0.5


@pytest.mark.sample(keep=1, of="MindFormers trainings")
@pytest.mark.slow
def test_version_1_6_trains_latent_attention(mindformers_1_6: Path, tokens: Path, tmp_path: Path) -> None:
    speed_up = tmp_path / "parallel_speed_up.json"
    speed_up.write_text('{"dataset_broadcast_opt_level": 3}')
    plan, job = native_plan([*TINY, "cluster.devices_per_node=2"])
    content = textwrap.dedent(DEEPSEEK_1_6).replace("TOKENS", str(tokens)).replace("SPEED_UP", str(speed_up))
    own = LaunchPlan(nodes=plan.nodes, files=(type(plan.files[0])(path=plan.files[0].path, content=content),))
    training = start(mindformers_1_6, adapt_plan(own, job), tmp_path)
    for losses in training.losses:
        assert list(losses) == list(range(1, 21))
        assert losses[20] < losses[1] - 1.0
