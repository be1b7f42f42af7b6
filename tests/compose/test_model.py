"""Values of a job take precedence over config.json; its name, sizes, vocabulary and tokenizer belong together."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import ComposeError, compose
from launcher.importing.job_file import job_yaml
from launcher.importing.judge import located
from launcher.importing.read_argv import read_argv
from launcher.job import fields, value_at
from launcher.job.determined import determined_fields
from launcher.pipeline import judge

PUBLISHED = Path(__file__).parents[1] / "families" / "published"
RECIPE = "+recipe=qwen3_8b"
# Values of another model than Qwen3-4B, valid for every field of their name.
OTHERS: dict[str, Any] = {
    "hub_id": "someone/else",
    "model_type": "qwen3",
    "rope_scaling.type": "linear",
    "path": None,
    "overridden": None,
    "newer_names": ("rope_parameters",),
    "heterogeneous_layers_config_path": "layers.json",
    "heterogeneous_layers_config_encoded_json": "text",
    "hybrid_override_pattern": "M",
    "label": "mine",
}


def folder_of(name: str, folder: Path, **changes: object) -> Path:
    config = json.loads((PUBLISHED / f"{name}.json").read_text())
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "config.json").write_text(json.dumps({**config.get("config", config), **changes}))
    return folder / name


def other_value(path: str) -> Any:
    """Return a value of a field that is neither its default nor Qwen3-4B's."""
    name, info = path.removeprefix("model."), fields()[path]
    if name in OTHERS:
        return OTHERS[name]
    if info.meta.choices:
        value: Any = next(choice for choice in reversed(info.meta.choices) if choice != info.default)
        return (value,) if "tuple" in str(info.type) else value
    if "tuple" in str(info.type):
        return (3, 5)
    if "bool" in str(info.type):
        return not (info.default or name in ("tie_word_embeddings", "qk_layernorm"))
    return 3 if "int" in str(info.type) else 0.5 if info.meta.minimum != 1 else 1.5


SECTION = sorted(path for path in fields() if path.startswith("model."))


@pytest.mark.parametrize("path", [path for path in SECTION if other_value(path) is not None])
def test_every_field_that_is_specified_survives_the_config_json(path: str, tmp_path: Path) -> None:
    value = other_value(path)
    folder = folder_of("qwen3_4b", tmp_path)
    text = f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value).lower()
    text = text if not isinstance(value, str) else value
    job = compose([f"model.path={folder}", f"{path}={text}"])
    assert value_at(job, path) == value
    name = path.removeprefix("model.")
    differs = name in determined_fields() and name != "model_type"
    assert (name in job.model.overridden) == differs
    if differs:
        assert str(folder) in job.origin(path).replaced


def test_a_recipe_and_a_job_file_take_precedence_over_config_json(tmp_path: Path) -> None:
    folder = folder_of("qwen3_4b", tmp_path)
    file = tmp_path / "own.yaml"
    file.write_text(f"model:\n  path: {folder}\n  num_hidden_layers: 4\n  hidden_dropout: 0.1\n")
    for arg in (f"+recipe={file}", f"+job={file}"):
        model = compose([arg]).model
        assert (model.num_hidden_layers, model.hidden_dropout, model.hidden_size) == (4, 0.1, 2560)
        assert model.overridden == ("num_hidden_layers",)


def test_null_that_is_specified_takes_precedence_too(tmp_path: Path) -> None:
    folder = folder_of("mixtral_8x7b", tmp_path, sliding_window=4096)
    assert compose([f"model.path={folder}"]).model.sliding_window == 4096
    assert compose([f"model.path={folder}", "model.sliding_window=null"]).model.sliding_window is None


def test_a_replaced_value_is_reported_with_file_and_key(tmp_path: Path) -> None:
    folder = folder_of("qwen3_4b", tmp_path)
    args = ["backend=megatron_lm", f"model.path={folder}", "model.num_hidden_layers=4"]
    (found,) = [each for each in judge(compose(args), fixes=False).findings if each.rule == "SENSE-CONFIG"]
    assert f"num_hidden_layers 4 (not 36 in {folder}/config.json)" in found.message


REPLACED = {
    "another family": ("tiny_qwen3_moe", "model_type qwen3 (not qwen3_moe in conf/model/tiny_qwen3_moe.yaml:"),
    "another size": ("qwen3_8b", "hidden_size 2560 (not 4096 in conf/model/qwen3_8b.yaml:"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_folder_of_another_model_than_the_recipes_is_told(name: str, tmp_path: Path) -> None:
    recipe, message = REPLACED[name]
    job = compose([f"+recipe={recipe}", "backend=megatron_lm", f"model.path={folder_of('qwen3_4b', tmp_path)}"])
    (found,) = [each for each in judge(job, fixes=False).findings if each.rule == "SENSE-MODEL-REPLACED"]
    assert message in found.message


def test_a_folder_of_the_recipes_model_replaces_nothing(tmp_path: Path) -> None:
    job = compose([RECIPE, "backend=megatron_lm", f"model.path={folder_of('qwen3_8b', tmp_path)}"])
    assert "SENSE-MODEL-REPLACED" not in {each.rule for each in judge(job, fixes=False).findings}


@pytest.mark.parametrize("stated", [True, False])
def test_a_default_that_a_script_states_takes_precedence_over_config_json(stated: bool, tmp_path: Path) -> None:
    folder = folder_of("qwen3_4b", tmp_path, rms_norm_eps=1e-5)
    args = f"megatron sft --model {folder} --dataset x".split() + ["--norm_epsilon", "1e-6"] * stated
    imported = read_argv(args, backend="megatron", version="3.12.6")
    file = tmp_path / "job.yaml"
    file.write_text(job_yaml(imported, "x", with_version=True))
    expected = 1e-6 if stated else 1e-5
    assert compose([f"+job={file}"]).model.rms_norm_eps == expected
    assert located(imported).model.rms_norm_eps == expected


def sizes(args: list[str]) -> tuple[Any, ...]:
    job = compose(args)
    model = job.model
    return model.hub_id, model.hidden_size, model.vocab_size, job.tokenizer.padded_vocab_size


CHANGED = {
    "another known name": ([RECIPE, "model.hub_id=Qwen/Qwen3-4B"], ("Qwen/Qwen3-4B", 2560, 151936, 151936)),
    "the same sizes, by its name": ([RECIPE, "model.hub_id=Qwen/Qwen3-8B-FP8"], ("Qwen/Qwen3-8B-FP8", 4096)),
    "an unknown name, its sizes said": (
        [RECIPE, "model=qwen3_8b", "model.hub_id=me/x"],
        ("me/x", 4096, 151936, 151936),
    ),
    "another preset": ([RECIPE, "model=llama3_8b"], ("meta-llama/Meta-Llama-3-8B", 4096, 128256, None)),
    "over a recipe's name": (["+recipe=qwen3_8b_dpo", "model=qwen3_4b"], ("Qwen/Qwen3-4B", 2560, 151936, None)),
    "over a preset without a name": (["+recipe=tiny_qwen3", "model.hub_id=Qwen/Qwen3-4B"], ("Qwen/Qwen3-4B", 2560)),
    "sizes said beside it": ([RECIPE, "model.hub_id=Qwen/Qwen3-4B", "model.hidden_size=64"], ("Qwen/Qwen3-4B", 64)),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_model_is_changed_as_one(case: str) -> None:
    args, expected = CHANGED[case]
    assert sizes(args)[: len(expected)] == expected


def test_a_folder_of_another_vocabulary_replaces_the_recipes(tmp_path: Path) -> None:
    assert sizes([RECIPE, f"model.path={folder_of('llama3_8b', tmp_path)}"]) == (None, 4096, 128256, None)
    assert sizes([RECIPE, f"model.path={folder_of('qwen3_4b', tmp_path)}"]) == (None, 2560, 151936, 151936)


REFUSED = {
    "a name without known sizes": ([RECIPE, "model.hub_id=google/gemma-3-4b"], "google/gemma-3-4b", "model=qwen3_8b"),
    "two names": ([RECIPE, "model=qwen3_8b", "model.hub_id=Qwen/Qwen3-4B"], "name two models", "model=qwen3_4b"),
    "another family": ([RECIPE, "model.model_type=llama"], "contradicts qwen3", "model.model_type=qwen3"),
    "a tokenizer by name": (["model=llama2_7b", "tokenizer.path=Qwen/Qwen3-8B"], "151936", "tokenizer.path=null"),
    "a tokenizer": ([RECIPE, "tokenizer.path={llama2_7b}"], "32000", "tokenizer.path=null"),
    "a name beside a folder": (
        ["model.path={llama2_7b}", "model.hub_id=Qwen/Qwen3-8B"],
        "model_type qwen3",
        "model.hub_id=null",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_parts_of_two_models_are_refused(case: str, tmp_path: Path) -> None:
    args, reported, works = REFUSED[case]
    with pytest.raises(ComposeError) as caught:
        compose([arg.format(llama2_7b=folder_of("llama2_7b", tmp_path)) for arg in args])
    (mistake,) = caught.value.mistakes
    assert reported in mistake.what
    assert works in mistake.works


def test_a_smaller_vocabulary_is_allowed_for_a_new_model(tmp_path: Path) -> None:
    folder = folder_of("llama2_7b", tmp_path)
    assert compose([RECIPE, "model.pretrained=false", f"tokenizer.path={folder}"]).tokenizer.path == str(folder)
