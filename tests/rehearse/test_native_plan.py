"""Which entry a shrunken job gets, the data of a native rehearsal, and what a rehearsal may leave out."""

import json
import shutil
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.compose.errors import ComposeError
from launcher.families.config_json import config_from_model
from launcher.pipeline import judge
from launcher.plan import LaunchPlan
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rehearse.sample_data import tokenizer_directory
from launcher.runtime import planned

KTO = ("+recipe=qwen2_5_7b_kto", "backend=megatron", "rehearse.max_processes=2")
FP8 = ("+recipe=llama3_70b_fp8", "backend=megatron_lm", "schedule.lr_warmup_iters=1")
SHRUNK = "rehearse.shrink=true"


def plan_of(*words: str) -> LaunchPlan:
    return planned(judge(compose([*words]), fixes=False))


@pytest.fixture
def swift(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which ms-swift is installed."""
    monkeypatch.setattr("launcher.rehearse.native_plan.missing_in", lambda *_: [])
    monkeypatch.setattr("launcher.rehearse.native_plan.versions_in", lambda *_: lambda name: "1.0")


@pytest.mark.usefixtures("swift")
def test_a_shrunken_job_that_core_refuses_is_trained_by_the_backend_itself() -> None:
    plan = plan_of(*KTO, SHRUNK)
    assert plan.nodes[0].argv[:2] == ("megatron", "rlhf")
    assert "ms-swift" in plan.what
    assert plan.notes[0].startswith("rehearse.entry=native, as rehearse.entry=core cannot train this job: ")


@pytest.mark.usefixtures("swift")
def test_the_user_decides_the_entry() -> None:
    with pytest.raises(RehearsalRefused, match=r"task.type=kto"):
        plan_of(*KTO, SHRUNK, "rehearse.entry=core")
    with pytest.raises(RehearsalRefused, match=r"task.type=kto"):
        plan_of(*KTO, "runtime=rehearsal")
    core = plan_of("+recipe=qwen3_8b_sft", "backend=megatron", SHRUNK)
    assert "launcher.rehearse.core" in core.nodes[0].argv


def test_a_refusal_has_the_reasons_of_both_entries() -> None:
    with pytest.raises(RehearsalRefused) as refused:
        plan_of(*KTO, SHRUNK, "cluster.python=/nowhere/python")
    first, *others = refused.value.findings
    assert "task.type=kto" in first.message
    assert others
    assert all(each.message.startswith("rehearse.entry=native: ") for each in others)


@pytest.mark.usefixtures("swift")
@pytest.mark.parametrize("recipe", ["qwen3_moe_grpo", "qwen3_8b_gkd"])
@pytest.mark.parametrize(
    "name, value",
    [
        ("vllm_mode", "server"),
        ("vllm_enable_lora", "true"),
        ("structured_outputs_regex", "yes"),
        ("teacher_model_server", "http://teacher:8000"),
    ],
)
def test_answers_of_another_engine_are_refused_with_what_would_work(recipe: str, name: str, value: str) -> None:
    with pytest.raises(RehearsalRefused, match=f"entry=core cannot do task.type=.*entry=native: {name}"):
        plan_of(f"+recipe={recipe}", "backend=megatron", SHRUNK, f"backend.args.{name}={value}")


@pytest.mark.usefixtures("swift")
def test_compressed_attention_is_refused_before_megatron_core_fails() -> None:
    with pytest.raises(RehearsalRefused, match=r"ms-swift is rehearsed on 0\.16\.1") as refused:
        plan_of("+recipe=deepseek_v4_flash", "backend=megatron", SHRUNK, "rehearse.entry=native")
    assert [fix.overrides for each in refused.value.findings for fix in each.fixes] == [("backend=mindspeed",)]


# words: what a plan of answers for that many ranks has
GENERATED = {
    ("qwen3_moe_grpo", "1"): {"global_batch_size": "8", "num_generations": "4"},
    ("qwen3_moe_grpo", "4"): {"global_batch_size": "8", "vllm_tensor_parallel_size": "4"},
    ("qwen3_moe_grpo_lora", "2"): {"global_batch_size": "8", "vllm_tensor_parallel_size": "2"},
    ("qwen3_8b_gkd", "4"): {"global_batch_size": "4", "max_completion_length": "32", "vllm_max_model_len": "288"},
}


@pytest.mark.usefixtures("swift")
@pytest.mark.parametrize("recipe, processes", GENERATED)
def test_sizes_of_answers_fit_the_ranks_and_that_is_reported(recipe: str, processes: str) -> None:
    plan = plan_of(f"+recipe={recipe}", "backend=megatron", SHRUNK, f"rehearse.max_processes={processes}")
    argv = plan.nodes[0].argv
    for name, value in GENERATED[recipe, processes].items():
        assert argv[argv.index(f"--{name}") + 1] == value
        assert any(note.startswith(f"shrunk: {name} ") or name in note for note in plan.notes)
    assert plan.what.endswith("TransformerEngine, triton and vLLM")
    assert any(note.startswith("vLLM is replaced: answers are drawn by transformers") for note in plan.notes)


@pytest.mark.usefixtures("swift")
def test_the_recipes_rewards_stay_and_one_is_added_that_random_weights_earn() -> None:
    plan = plan_of("+recipe=qwen3_moe_grpo", "backend=megatron", SHRUNK)
    argv = plan.nodes[0].argv
    first = argv.index("--reward_funcs") + 1
    assert argv[first : first + 3] == ("accuracy", "format", "rehearsal_letters")
    assert argv[argv.index("--external_plugins") + 1].endswith("letters.py")
    assert any(note.startswith("reward rehearsal_letters is added") for note in plan.notes)
    assert "math-verify is not installed: reward accuracy finds no formula in any text" in plan.notes


@pytest.mark.usefixtures("swift")
def test_a_teacher_gets_random_weights_of_its_own() -> None:
    plan = plan_of("+recipe=qwen3_8b_gkd", "backend=megatron", SHRUNK, "output_dir=out")
    argv = plan.nodes[0].argv
    assert argv[argv.index("--teacher_model") + 1] == "./out/teacher"
    student, teacher = (step.argv for step in plan.prepare[-2:])
    assert student[student.index("--seed") + 1] != teacher[teacher.index("--seed") + 1]
    assert "--out=./out/teacher" in teacher
    assert "teacher_model Qwen/Qwen3-32B: random weights of the shrunken model's size" in plan.notes


# recipe: file of the shipped text, and what the notes call it
RECORDS = {
    "qwen2_5_7b_kto": ("labelled.jsonl", "answers with a label"),
    "qwen3_moe_rm_lora": ("pairs.jsonl", "pairs of answers"),
    "qwen3_5_moe_lora": ("conversations.jsonl", "conversations"),
}


@pytest.mark.usefixtures("swift")
@pytest.mark.parametrize("recipe", RECORDS)
def test_hub_data_of_a_shrunken_job_is_replaced_and_that_is_reported(recipe: str) -> None:
    file, what = RECORDS[recipe]
    plan = plan_of(f"+recipe={recipe}", "backend=megatron", SHRUNK, "rehearse.entry=native", "output_dir=out")
    argv = plan.nodes[0].argv
    assert argv[argv.index("--dataset") + 1] == f"out/data/{file}"
    assert plan.prepare[0].argv[-2:] == ("launcher.rehearse.sample_data", "out/data")
    assert any(note.startswith(f"data: {what} made of the shipped text instead of hub data") for note in plan.notes)
    assert argv[argv.index("--max_length") + 1] == "256"


@pytest.mark.usefixtures("swift")
def test_the_sample_s_tokens_have_the_sample_s_tokenizer() -> None:
    """The recipe's own is of a hub, which a rehearsal of random weights would ask for nothing else."""
    argv = plan_of("+recipe=gemma_2_9b", "backend=mindspeed", SHRUNK).nodes[0].argv
    assert argv[argv.index("--tokenizer-model") + 1] == tokenizer_directory()
    argv = plan_of("+recipe=gemma_2_9b", "backend=mindspeed", SHRUNK, "tokenizer.path=/mine").nodes[0].argv
    assert argv[argv.index("--tokenizer-model") + 1] == "/mine"


@pytest.mark.usefixtures("swift")
def test_hub_data_of_a_whole_job_stays() -> None:
    whole = ("+recipe=qwen2_5_7b_sft", "backend=megatron", "runtime=rehearsal", "rehearse.entry=native")
    argv = plan_of(*whole, "cluster=local", "cluster.nodes=1").nodes[0].argv
    assert not argv[argv.index("--dataset") + 1].endswith(".jsonl")


def test_a_number_format_is_left_out_where_the_user_says_so_and_that_is_shown() -> None:
    words = (*FP8, SHRUNK, "rehearse.entry=core", "rehearse.leave_out=[precision.fp8_format]")
    plan = plan_of(*words)
    assert not any(word.startswith("--fp8") for word in plan.nodes[0].argv)
    assert any(note.startswith("left out by rehearse.leave_out: precision.fp8_format=hybrid") for note in plan.notes)
    (change,) = (each for each in judge(compose([*words]), fixes=False).findings if each.rule == "REHEARSE-LEFT-OUT")
    assert (change.severity, "precision.fp8_format=hybrid" in change.message) == ("change", True)


def test_nothing_is_left_out_unasked_and_the_refusal_offers_it() -> None:
    with pytest.raises(RehearsalRefused) as refused:
        plan_of(*FP8, SHRUNK, "rehearse.entry=core")
    (fix,) = refused.value.findings[0].fixes
    assert (str(fix), fix.affects_training) == ("rehearse.leave_out=[precision.fp8_format]", True)
    assert plan_of(*FP8, SHRUNK, "rehearse.entry=core", *fix.overrides).nodes


def test_the_native_stack_leaves_nothing_out() -> None:
    words = (*FP8, "runtime=native", "rehearse.leave_out=[precision.fp8_format]")
    outcome = judge(compose([*words]), fixes=False)
    assert "--fp8-format" in outcome.plan().nodes[0].argv
    assert not [each for each in outcome.findings if each.rule == "REHEARSE-LEFT-OUT"]


@pytest.mark.parametrize("name", ["parallel.tp", "model.hidden_act", "fp8"])
def test_only_number_formats_can_be_left_out(name: str) -> None:
    with pytest.raises(ComposeError, match=r"precision\.fp8_format"):
        compose([*FP8, f"rehearse.leave_out=[{name}]"])


def own_model(folder: Path, *, tokenizer: bool) -> str:
    """Return the directory of a model that no preset has, as a user has it."""
    model = compose(["+recipe=tiny_qwen3"]).model
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_from_model(model)))
    if tokenizer:
        shutil.copytree(tokenizer_directory(), folder, dirs_exist_ok=True)
    return str(folder)


@pytest.mark.usefixtures("swift")
def test_the_shipped_text_is_read_by_the_tokenizer_of_ones_own_model(tmp_path: Path) -> None:
    """ms-swift has the tokenizer from the model's directory: it got no data, and ended."""
    path = own_model(tmp_path / "mine", tokenizer=True)
    words = ("+recipe=tiny_qwen3", "backend=megatron", "runtime=rehearsal", "rehearse.entry=native")
    argv = plan_of(*words, f"model.path={path}").nodes[0].argv
    assert argv[argv.index("--dataset") + 1].endswith("/data/sample.jsonl")
    assert path in argv


@pytest.mark.usefixtures("swift")
def test_a_model_without_a_tokenizer_is_refused_before_the_backend_fails(tmp_path: Path) -> None:
    path = own_model(tmp_path / "mine", tokenizer=False)
    words = ("+recipe=tiny_qwen3", "backend=megatron", "runtime=rehearsal", "rehearse.entry=native")
    with pytest.raises(RehearsalRefused, match="has no tokenizer files"):
        plan_of(*words, f"model.path={path}")
