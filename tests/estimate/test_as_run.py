"""An imported job is estimated as its backend runs it: by its arguments, its model's name, its backend's defaults."""

import contextlib
from typing import Any

import pytest

from launcher.compose import compose
from launcher.estimate import Estimate, estimate
from launcher.estimate.estimate import CannotEstimate
from launcher.job import Job, Origin, field_paths, fields, value_at, with_values
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back, translate
from launcher.search.begin import begin
from tests.estimate.estimate_jobs import job_with

_UNKNOWN = dict.fromkeys(
    (
        *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
        *("vocab_size", "max_position_embeddings"),
    )
)


def of(job: Job) -> Estimate:
    return estimate(job, changes=False)


def test_a_vocabulary_among_passed_arguments_is_read() -> None:
    """NullTokenizer has one token more than --vocab-size says, for the end of a document."""
    passed = {"name": "megatron_lm", "args": {"tokenizer-type": "NullTokenizer", "vocab-size": 131071}}
    seen = of(job_with(model={"vocab_size": None}, backend=passed))
    assert seen.parameters == of(job_with(model={"vocab_size": 131072})).parameters
    assert not any("vocab-size" in note for note in seen.missing)


def test_an_argument_that_no_row_reads_is_still_named() -> None:
    seen = of(job_with(backend={"name": "megatron_lm", "args": {"log-energy": True}}))
    assert any("backend.args.log-energy" in note for note in seen.missing)


def test_a_list_of_layers_per_stage_is_a_layout() -> None:
    model, parallel = {"num_hidden_layers": 10}, {"pp": 4}
    listed = job_with(
        model=model, parallel=parallel, backend={"name": "mindspeed", "args": {"num-layer-list": "2,3,3,2"}}
    )
    uneven = job_with(model=model, parallel={**parallel, "layout": "Ett|ttt|ttt|ttL"})
    assert of(listed).parameters == of(uneven).parameters
    assert not any("num-layer-list" in note for note in of(listed).missing)


def test_a_list_of_more_layers_than_the_model_has_is_refused() -> None:
    passed = {"name": "mindspeed", "args": {"num-layer-list": "2,3,3,9"}}
    with pytest.raises(CannotEstimate, match="the layout has 17 × t, the model needs 10"):
        of(job_with(model={"num_hidden_layers": 10}, parallel={"pp": 4}, backend=passed))


NAMES = {
    "the preset's own": ({"hub_id": "Qwen/Qwen3-8B"}, {}, 8_190_735_360, False),
    "of the same sizes": ({"hub_id": "Qwen/Qwen3-30B-A3B-Instruct-2507"}, {}, 30_532_122_624, False),
    "stored in FP8": ({"hub_id": "Qwen/Qwen3-14B-FP8"}, {}, 14_768_307_200, False),
    "stored in FP8 by another": ({"hub_id": "someone/Qwen2.5-14B-FP8"}, {}, 14_770_033_664, True),
    "linear attention": ({"hub_id": "Qwen/Qwen3-Next-80B-A3B-Thinking"}, {}, 79_674_391_296, False),
    "a converted checkpoint": ({}, {"load": "Qwen2.5-14B-mcore"}, 14_770_033_664, True),
}


@pytest.mark.parametrize(("model", "checkpoint", "total", "noted"), NAMES.values(), ids=list(NAMES))
def test_a_named_model_has_the_sizes_of_its_preset(
    model: dict[str, Any], checkpoint: dict[str, Any], total: int, noted: bool
) -> None:
    job = job_with(model={**_UNKNOWN, **model}, checkpoint=checkpoint, tokenizer={"make_vocab_size_divisible_by": 1})
    seen = of(job)
    assert seen.parameters["total"] == total
    assert any("by its name" in note for note in seen.missing) == noted


@pytest.mark.parametrize("name", ["Qwen/Qwen3-VL-4B-Instruct", "google/gemma-4-12B-it", "Instruct", "zai-org/GLM-4.5"])
def test_another_model_is_not_taken_for_a_preset(name: str) -> None:
    with pytest.raises(CannotEstimate, match=r"model\.num_hidden_layers"):
        of(job_with(model={**_UNKNOWN, "hub_id": name}))


def test_a_vocabulary_is_that_of_the_tokenizer_folder_s_model() -> None:
    job = job_with(model={"vocab_size": None}, tokenizer={"path": "/data/llama-2-7b-hf/tokenizer.model"})
    seen = of(job)
    assert seen.parameters == of(job_with(model={"vocab_size": 32000})).parameters
    assert any(note.startswith("model.vocab_size: 32000, that of model=llama2_7b") for note in seen.missing)


def test_a_vocabulary_that_nobody_knows_is_asked_for() -> None:
    with pytest.raises(CannotEstimate, match="your_tokenizer_path") as caught:
        of(job_with(model={"vocab_size": None}, tokenizer={"path": "your_tokenizer_path"}))
    assert [finding.rule for finding in caught.value.findings] == ["EST-VOCAB"]


def test_what_the_backend_computes_itself_is_not_asked_for() -> None:
    """Megatron-LM makes a SwiGLU network 8/3 wide, in multiples of 64; rotary positions have no table."""
    job = job_with(model={"intermediate_size": None, "max_position_embeddings": None}, backend={"name": "megatron_lm"})
    assert of(job).parameters == of(job_with(model={"intermediate_size": 5440})).parameters
    assert any("model.intermediate_size: 5440" in note for note in of(job).missing)


def test_experts_are_split_as_the_backend_does_without_a_word() -> None:
    """ms-swift keeps experts whole where Megatron-core splits them like the rest."""
    model = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1024}
    sections: dict[str, Any] = {"model": model, "parallel": {"tp": 2, "pp": 2, "ep": 4}}
    with pytest.raises(CannotEstimate, match="etp 2"):
        of(job_with(**sections))
    seen = of(job_with(**sections, backend={"name": "megatron"}))
    assert any(note.startswith("parallel.etp: 1 ") for note in seen.missing)


def test_block_recomputation_of_more_layers_than_there_are_recomputes_all() -> None:
    def blocks(number: int) -> Estimate:
        recompute = {"granularity": "full", "method": "block", "num_layers": number}
        return of(job_with(parallel={"pp": 2}, recompute=recompute))

    assert blocks(100).stages == blocks(8).stages


# Job: what the backend's validation changes, and the job that says so itself.
OVERRULED = {
    "sequence parallel on one rank": (
        {"backend": {"name": "megatron_lm"}, "parallel": {"tp": 1, "sequence_parallel": True}},
        {"backend": {"name": "megatron_lm"}, "parallel": {"tp": 1, "sequence_parallel": False}},
        "parallel.sequence_parallel: false instead of true, as Megatron-LM sets it (MLM-SET-SP)",
    ),
    "unfused attention with context parallelism": (
        {
            "backend": {"name": "mindspeed"},
            "parallel": {"cp": 2},
            "kernels": {"attention_backend": "unfused"},
        },
        {"backend": {"name": "mindspeed"}, "parallel": {"cp": 2}, "kernels": {"attention_backend": "flash"}},
        "kernels.attention_backend: flash instead of unfused, as MindSpeed-LLM sets it (MS-CP-FLASH)",
    ),
}


@pytest.mark.parametrize("name", OVERRULED)
def test_what_validation_changes_is_estimated_and_named(name: str) -> None:
    wanted, really, note = OVERRULED[name]
    seen, same = of(job_with(**wanted)), of(job_with(**really))
    assert note in seen.missing
    assert note not in same.missing
    assert (seen.stages, seen.time) == (same.stages, same.time)


@pytest.mark.parametrize("backend", ["megatron", "mindformers"])
def test_what_a_backend_trains_without_is_not_estimated(backend: str) -> None:
    """Neither numbers ranks with data parallelism outermost, which Megatron-LM does when asked."""
    sections: dict[str, Any] = {"parallel": {"pp": 2, "dp_outermost": True}}
    seen = of(job_with(**sections, backend={"name": backend}))
    note = next(note for note in seen.missing if note.startswith("parallel.dp_outermost"))
    assert note.startswith("parallel.dp_outermost: true has no effect")
    asked = of(job_with(**sections, backend={"name": "megatron_lm"}))
    assert not any("dp_outermost" in note for note in asked.missing)


def test_the_states_of_muon_are_spread_over_ranks() -> None:
    job = job_with(
        backend={"name": "mindspeed"}, optimizer={"type": "muon"}, parallel={"tp": 1, "distributed_optimizer": True}
    )
    assert not any("distributed_optimizer" in note for note in of(job).missing)


ASCEND = ["hardware=ascend_910b"]
# What the user leaves open, and the same script with the value that the backend writes.
CHOSEN = {
    "MindSpeed-LLM's layers": (["+recipe=qwen3_8b", "backend=mindspeed"], "kernels.transformer_impl=local"),
    "its flash attention": (["+recipe=qwen3_8b", "backend=mindspeed"], "kernels.attention_backend=flash"),
    "its automatic attention": (["+recipe=qwen3_8b", "backend=mindspeed"], "kernels.attention_backend=auto"),
    "MindFormers' one layer library": (["+recipe=qwen3_8b", "backend=mindformers"], "kernels.transformer_impl=local"),
    "its main weights": (["+recipe=qwen3_8b", "backend=mindformers"], "optimizer.main_params_dtype=fp32"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_one_script_has_one_estimate(name: str) -> None:
    words, override = CHOSEN[name]
    unset, given = of(compose([*words, *ASCEND])), of(compose([*words, *ASCEND, override]))
    assert (unset.stages, unset.time) == (given.stages, given.time)


def test_a_choice_of_the_backend_is_named() -> None:
    seen = of(compose(["+recipe=qwen3_8b", "backend=mindspeed", *ASCEND])).missing
    assert "kernels.transformer_impl: local (MindSpeed-LLM's default)" in seen


@pytest.mark.parametrize("backend", ["megatron", "megatron_lm", "mindformers", "mindspeed"])
@pytest.mark.parametrize("recipe", ["qwen3_8b", "qwen3_moe", "deepseek_v3"])
def test_what_a_job_s_own_arguments_say_changes_no_estimate(backend: str, recipe: str) -> None:
    """The arguments that a job is translated to, read back, set no field to what is not counted."""
    hardware = "ascend_910b" if backend in ("mindspeed", "mindformers") else "h100_80g"
    job = compose([f"+recipe={recipe}", f"backend={backend}", f"hardware={hardware}"])
    used, version = get_backend(backend), get_backend(backend).version(None)
    native = translate(used.prepare(job, version), used, version).native
    back = read_back({arg.flag: arg.value for arg in native}, used, version).job
    sections = ("kernels.", "moe.", "optimizer.", "precision.", "parallel.", "recompute.")
    paths = [path for path in field_paths() if path.startswith(sections) and value_at(job, path) is None]
    written = {path: value_at(back, path) for path in paths if value_at(back, path) is not None}
    plain, explicit = of(job), of(with_values(job, written))
    assert (plain.stages, plain.time) == (explicit.stages, explicit.time)


def test_a_search_counts_what_the_backend_chooses() -> None:
    words = ["+recipe=qwen3_8b", "backend=mindspeed", *ASCEND, "search.axes=[tp,pp]"]
    assert begin(compose(words)).job.kernels.transformer_impl == "local"


def test_a_schedule_that_the_backend_does_not_have_is_not_counted() -> None:
    words = ["+recipe=qwen3_8b", "backend=mindspeed", *ASCEND, "parallel.pp=2"]
    plain, other = of(compose(words)), of(compose([*words, "parallel.schedule=gpipe"]))
    assert (plain.stages, plain.time) == (other.stages, other.time)
    assert any(note.startswith("parallel.schedule: gpipe has no effect") for note in other.missing)


def test_what_a_backend_ignores_in_this_job_is_not_counted() -> None:
    words = ["+recipe=qwen3_moe", "backend=mindformers", *ASCEND, "parallel.tp=2", "parallel.sequence_parallel=true"]
    plain, other = of(compose(words)), of(compose([*words, "overlap.sequence_parts=2"]))
    assert (plain.stages, plain.time) == (other.stages, other.time)
    assert any(note.startswith("overlap.sequence_parts: 2 has no effect") for note in other.missing)


REFUSED = {
    "layers": (["+recipe=qwen3_8b", "backend=megatron", "hardware=b200"], "kernels.transformer_impl", "local"),
    "gradients": (
        ["+recipe=qwen3_moe", "backend=megatron", "hardware=b200"],
        "precision.grad_reduce_in_fp32",
        "false",
    ),
    "prediction": (["+recipe=qwen3_8b", "backend=mindformers", *ASCEND], "model.num_nextn_predict_layers", "1"),
    "optimizer": (["+recipe=qwen3_moe", "backend=mindformers", *ASCEND], "optimizer.precision_aware", "true"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_backend_refuses_is_named(name: str) -> None:
    words, path, value = REFUSED[name]
    assert not [note for note in of(compose(words)).missing if "refuses" in note]
    notes = [note for note in of(compose([*words, f"{path}={value}"])).missing if note.startswith(path)]
    assert notes[0].startswith(f"{path}: {value} is counted, but ")
    assert "refuses it (" in notes[0]


@pytest.mark.parametrize("backend", ["megatron", "mindformers"])
def test_the_least_value_of_every_size_is_estimated_or_refused(backend: str) -> None:
    base = compose(["+recipe=qwen3_moe", f"backend={backend}", "hardware=h100_80g", "cluster.nodes=2"])
    sections = ("parallel.", "batch.", "cluster.", "recompute.", "model.num_", "hardware.")
    for path, info in fields().items():
        if path.startswith(sections) and info.type in (int, int | None) and info.meta.minimum is not None:
            job = with_values(base, {path: int(info.meta.minimum)}, Origin(kind="override", where=path))
            with contextlib.suppress(CannotEstimate):
                estimate(job, changes=False)
