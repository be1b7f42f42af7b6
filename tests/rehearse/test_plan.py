"""What a rehearsal runs, what it refuses, and which runtime a job gets."""

import json

import pytest

from launcher.compose import compose
from launcher.families.config_json import config_from_model
from launcher.job.shipped import shipped
from launcher.mapping.backend import get_backend
from launcher.pipeline import judge
from launcher.rehearse.plan import rehearsal_plan
from launcher.rehearse.refusal import RehearsalRefused
from launcher.runtime import choose, planned
from tests.rehearse.not_on_core import NOT_ON_CORE

TINY = ("+recipe=tiny_qwen3_moe", "backend=megatron")


def plan_of(*args: str):
    return planned(judge(compose([*args]), fixes=False))


def test_core_rehearsal_starts_one_process_per_device_with_megatron_lms_arguments():
    plan = plan_of(
        *TINY, "runtime=rehearsal", "parallel.tp=2", "parallel.sequence_parallel=true", "cluster.devices_per_node=2"
    )
    (node,) = plan.nodes
    args = " ".join(node.argv)
    assert args.startswith("torchrun --nproc_per_node 2 ")
    assert "--tensor-model-parallel-size 2 " in args
    assert "--sequence-parallel" in args
    assert "launcher.rehearse.core" in args
    assert "megatron-core" in plan.what
    assert "in place of Megatron-SWIFT" in plan.what
    options = json.loads(plan.files[0].content)
    assert options["data"]["kind"] == "sample"


def test_what_would_train_something_else_is_refused():
    with pytest.raises(RehearsalRefused, match=r"task.type=kto"):
        plan_of(*TINY, "runtime=rehearsal", "task=kto")
    with pytest.raises(RehearsalRefused, match=r"task.loss_type=ipo"):
        plan_of(*TINY, "runtime=rehearsal", "task=dpo", "task.loss_type=ipo")
    chats = ("runtime=rehearsal", "task=sft", "data.format=messages", "data.paths=[x.jsonl]")
    with pytest.raises(RehearsalRefused, match=r"lora\.load"):
        plan_of(*TINY, *chats, "lora.rank=8", "lora.load=adapters")


def test_the_device_reaches_the_trainer_and_asks_for_a_rehearsal():
    fp8 = ("precision.dtype=bf16", "precision.fp8_format=hybrid")
    plan = plan_of(*TINY, "rehearse.device=cuda", *fp8)
    assert json.loads(plan.files[0].content)["device"] == "cuda"
    assert "--fp8-format hybrid" in " ".join(plan.nodes[0].argv)
    with pytest.raises(RehearsalRefused, match=r"rehearse\.device=cuda where both are"):
        plan_of(*TINY, "rehearse.device=cpu", *fp8)
    with pytest.raises(RehearsalRefused, match="for entry=core"):
        plan_of(*TINY, "rehearse.device=cpu", "rehearse.entry=native")


def test_adapters_reach_the_trainer():
    lora = ("lora.rank=8", "lora.alpha=4", "lora.target_modules=[linear_qkv]", "lora.rslora=true")
    plan = plan_of(*TINY, "runtime=rehearsal", "task=sft", *lora)
    wanted = {"rank": 8, "alpha": 4.0, "dropout": 0.0, "target_modules": ["linear_qkv"], "rslora": True, "load": None}
    assert json.loads(plan.files[0].content)["lora"] == wanted
    assert not any("lora" in note for note in plan.notes)


def test_adapters_to_start_from_are_converted_by_launch(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    words = (*TINY, "runtime=rehearsal", "lora.rank=8", f"lora.load={tmp_path}", "output_dir=out")
    with pytest.raises(RehearsalRefused, match=r"model\.path=DIR"):
        plan_of(*words)
    config = config_from_model(compose([*TINY]).model, torch_dtype="float32")
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = plan_of(*words, f"model.path={tmp_path}")
    command = " ".join(plan.prepare[-1].argv)
    assert f"convert hf-to-mcore --adapter {tmp_path} --model {tmp_path} --out out/initial_adapter" in command
    assert json.loads(plan.files[0].content)["lora"]["load"] == "out/initial_adapter"
    assert any(note.startswith(f"adapters: loaded from {tmp_path}") for note in plan.notes)
    shrunk = plan_of(*words, "rehearse.shrink=true")
    assert any(note.startswith("new adapters") for note in shrunk.notes)


def test_token_files_get_the_end_of_document_of_the_jobs_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    files = ("data.format=megatron", "data.paths=[tokens]", f"tokenizer.path={tmp_path}", "runtime=rehearsal")
    for switch, tokenizer in (("data.eod_mask_loss=true", str(tmp_path)), ("seed=1", None)):
        plan = plan_of("+recipe=tiny_qwen3", "backend=megatron_lm", *files, switch)
        assert json.loads(plan.files[0].content)["data"]["tokenizer"] == tokenizer


def test_several_nodes_are_refused_with_what_would_work():
    with pytest.raises(RehearsalRefused, match=r"rehearse.shrink=true"):
        plan_of("+recipe=qwen3_moe", "backend=megatron", "runtime=rehearsal")


def test_a_fake_world_is_one_process_of_the_full_world():
    plan = plan_of("+recipe=deepseek_v3", "backend=mindspeed", "rehearse.fake_world=true")
    (node,) = plan.nodes
    assert "torchrun" not in node.argv
    fake = json.loads(plan.files[0].content)["fake_world"]
    assert fake["world_size"] == 512
    assert {0, 511} <= set(fake["ranks"])


def test_pretrained_weights_are_not_loaded_and_that_is_reported():
    plan = plan_of("+recipe=qwen3_8b", "backend=megatron", "rehearse.shrink=true")
    assert any("random weights" in note for note in plan.notes)
    assert any(note.startswith("shrunk: model.hidden_size 4096") for note in plan.notes)


def test_pass_through_arguments_of_another_backend_are_named():
    plan = plan_of(*TINY, "runtime=rehearsal", "backend.args.moe_z_loss_coeff=1e-3", "backend.args.check_model=false")
    assert "--moe-z-loss-coeff" in plan.nodes[0].argv  # it has a field
    assert any(note.endswith("backend.args check_model") for note in plan.notes)


@pytest.mark.parametrize(
    "backend, words",
    [
        ("megatron_lm", ["save=/prod/a", "load=/prod/a", "tensorboard_dir=/prod/b", "swiglu=true"]),
        ("megatron_lm", ["save=/prod/a", "tensorboard-dir=/prod/b", "global_batch_size=64"]),
        ("mindspeed", ["save=/prod/a", "load=/prod/a", "num_layers=80", "seq-length=65536"]),
        ("megatron", ["output_dir=/prod/a", "seq_length=65536", "max_epochs=3"]),
        ("mindformers", ["output_dir=/prod/a", "model.model_config.seq_length=65536"]),
    ],
)
def test_a_shrunken_job_is_small_and_writes_nowhere_else_whatever_passed_arguments_say(
    backend: str, words: list[str]
) -> None:
    recipe = ("+recipe=qwen3_moe", f"backend={backend}", "rehearse.shrink=true", "cluster.devices_per_node=1")
    passed = [f"+backend.args.{word}" for word in words]
    small, named = plan_of(*recipe), plan_of(*recipe, *passed)
    assert "/prod" not in " ".join(word for node in named.nodes for word in node.argv)
    assert not any("/prod" in file.content for file in named.files)
    sizes = [_sizes(plan.nodes[0].argv) for plan in (small, named)]
    assert sizes[0] == sizes[1]


def _sizes(argv: tuple[str, ...]) -> dict[str, str]:
    names = ("--num-layers", "--seq-length", "--global-batch-size", "--hidden-size", "--train-iters")
    return {name: argv[argv.index(name) + 1] for name in names}


CHOICES = {
    "tiny job without accelerator": (TINY, "rehearsal"),
    "shrunken job": (("+recipe=qwen3_moe", "backend=megatron", "rehearse.shrink=true"), "rehearsal"),
    "fake world": (("+recipe=qwen3_moe", "backend=megatron", "rehearse.fake_world=true"), "rehearsal"),
    "large job without accelerator": (("+recipe=qwen3_moe", "backend=mindspeed"), None),
    "as given": ((*TINY, "runtime=native"), "native"),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES.keys())
def test_the_runtime_follows_from_the_job_and_the_machine(case, monkeypatch):
    args, runtime = case
    monkeypatch.setattr("launcher.runtime.has_device", lambda kinds: False)
    job = compose([*args])
    assert choose(job, get_backend(job.backend.name or ""), {}).runtime == runtime


def test_native_is_chosen_where_stack_and_device_are_there(monkeypatch, tmp_path):
    monkeypatch.setattr("launcher.runtime.has_device", lambda kinds: True)
    job = compose(["+recipe=tiny_qwen3", "backend=megatron_lm"])
    backend = get_backend("megatron_lm")
    environ = {name.partition(":")[2]: str(tmp_path) for name in backend.requires if name.startswith("env:")}
    monkeypatch.setattr("launcher.runtime.find_spec", lambda name: object())
    assert choose(job, backend, environ).runtime == "native"


def test_a_large_job_that_cannot_run_is_refused_with_what_to_do(launch):
    done = launch("+recipe=qwen3_moe", "backend=mindspeed")
    assert done.code == 1
    assert "rehearse.shrink=true" in done.err
    assert "dry-run" in done.err


def test_a_rehearsal_never_writes_into_a_production_folder():
    job = ("+recipe=qwen3_8b", "backend=megatron", "rehearse.shrink=true", "checkpoint.save=/prod/ckpt")
    plan = plan_of(*job, "logging.tensorboard_dir=/prod/tb")
    assert "/prod" not in " ".join(plan.nodes[0].argv)
    assert any("/prod/ckpt" in note for note in plan.notes)


def test_a_run_of_the_same_model_saves_where_the_command_line_says():
    plan = plan_of(*TINY, "runtime=rehearsal", "checkpoint.save=/mine")
    assert "--save /mine" in " ".join(plan.nodes[0].argv)


def test_converted_weights_of_the_full_model_are_not_loaded_into_a_shrunken_one():
    plan = plan_of("+recipe=qwen2_5_7b_sft", "backend=megatron", "rehearse.shrink=true")
    assert "--load" not in plan.nodes[0].argv
    assert any(note.startswith("checkpoint.load") for note in plan.notes)
    assert any("conversations made of the shipped text instead of hub data" in note for note in plan.notes)


@pytest.mark.parametrize("finetune", ["true", "false"])
def test_a_checkpoint_that_the_command_line_names_is_loaded(finetune):
    """Left out, the run would start from other weights without a word."""
    args = (*TINY, "runtime=rehearsal", "checkpoint.load=converted", f"checkpoint.finetune={finetune}")
    (node,) = plan_of(*args).nodes
    argv = list(node.argv)
    assert argv[argv.index("--load") + 1] == "converted"
    assert ("--finetune" in argv) == (finetune == "true")


def test_data_switches_that_the_trainer_honours_reach_it():
    switches = ("data.eod_mask_loss=true", "data.reset_attention_mask=true", "data.reset_position_ids=true")
    args = plan_of("+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=rehearsal", *switches).nodes[0].argv
    assert {"--eod-mask-loss", "--reset-attention-mask", "--reset-position-ids"} <= set(args)


def test_pass_through_arguments_of_megatron_lm_reach_the_trainer():
    plan = plan_of(
        "+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=rehearsal", "backend.args.end-weight-decay=0.5"
    )
    assert "--end-weight-decay" in plan.nodes[0].argv


RECIPES = sorted(path.stem for path in shipped("recipes").glob("*.yaml"))


@pytest.mark.sample(keep=14)
@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe not in NOT_ON_CORE])
def test_a_recipe_can_be_rehearsed(recipe):
    assert plan_of(f"+recipe={recipe}", "backend=megatron", "rehearse.shrink=true").nodes


@pytest.mark.sample(keep=4)
@pytest.mark.parametrize("recipe", NOT_ON_CORE)
def test_a_recipe_that_cannot_be_rehearsed_is_refused_with_the_reason(recipe):
    with pytest.raises(RehearsalRefused) as refused:
        plan_of(f"+recipe={recipe}", "backend=megatron", "rehearse.shrink=true", "rehearse.entry=core")
    assert NOT_ON_CORE[recipe] in str(refused.value.findings)


def test_preferences_reach_the_trainer(tmp_path):
    task = ("task=dpo", "task.beta=0.3", "task.rpo_alpha=0.5", "data.format=messages", "data.paths=[pairs.jsonl]")
    options = json.loads(plan_of(*TINY, "runtime=rehearsal", *task).files[0].content)
    assert options["preference"] == {"beta": 0.3, "label_smoothing": 0.0, "rpo_alpha": 0.5}
    assert (options["data"]["kind"], options["data"]["paths"]) == ("preferences", ["pairs.jsonl"])


def test_native_entry_names_what_is_missing(monkeypatch):
    monkeypatch.delenv("MEGATRON_LM_PATH", raising=False)
    outcome = judge(
        compose(["+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=rehearsal", "rehearse.entry=native"])
    )
    with pytest.raises(RehearsalRefused, match="MEGATRON_LM_PATH"):
        rehearsal_plan(outcome)


def test_a_shrunken_multimodal_model_trains_its_language_model_on_text():
    plan = plan_of("+recipe=qwen3_vl_8b_sft", "backend=megatron", "rehearse.shrink=true")
    assert "--position-embedding-type rope" in " ".join(plan.nodes[0].argv)
    assert any(note.startswith("the language model alone") for note in plan.notes)
    with pytest.raises(RehearsalRefused, match="mrope"):
        plan_of("+recipe=qwen3_vl_8b_sft", "backend=megatron", "runtime=rehearsal", "cluster.nodes=1")


def test_a_dispatcher_that_megatron_core_lacks_is_replaced_by_its_equal_and_that_is_reported():
    plan = plan_of("+recipe=deepseek_v3_lora", "backend=mindspeed", "rehearse.shrink=true")
    assert "--moe-token-dispatcher-type alltoall " in " ".join(plan.nodes[0].argv)
    assert any("alltoall moves the same tokens" in note for note in plan.notes)


def test_optimizer_instances_without_einops_are_refused(monkeypatch):
    words = ("+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=rehearsal", "cluster.devices_per_node=4")
    monkeypatch.setattr("launcher.rehearse.core.rules.find_spec", lambda name: None)
    with pytest.raises(RehearsalRefused, match="pip install einops"):
        plan_of(*words, "parallel.optimizer_instances=2")
