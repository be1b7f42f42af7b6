"""Sizes of a model whose folder is on another machine: from the preset of the model that the folder is named after."""

import json
from pathlib import Path

import pytest

from launcher.api import check, import_argv
from launcher.cli.port_show import ported_yaml
from launcher.compose import ComposeError, compose
from launcher.compose.presets import preset_of_folder
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.port import ported
from launcher.importing.read_argv import read_argv
from launcher.importing.roundtrip import differences
from launcher.job import Job
from launcher.pipeline import judge

COMMAND = "--dataset my.jsonl --max_length 2048 --micro_batch_size 1 --global_batch_size 16 --train_iters 100 --lr 1e-5"
ABSENT = "/nowhere/models/Qwen2.5-7B"

FOLDERS = {
    "/data/Qwen2.5-7B": "Qwen/Qwen2.5-7B",
    "/data/Qwen2.5-7B-Instruct/": "Qwen/Qwen2.5-7B-Instruct",
    "models/qwen3-8b-hf": "Qwen/Qwen3-8B",
    "$ROOT/Llama-2-7b-hf": "meta-llama/Llama-2-7b-hf",
    "/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c": "Qwen/Qwen3-8B",
    "/root/.cache/modelscope/hub/models/Qwen/Qwen2___5-7B": "Qwen/Qwen2.5-7B",
    "/data/Qwen2.5-7B/checkpoint-100": "",
    "/data/Qwen2.5-7B-pruned": "",
    "/data": "",
    "": "",
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_named_after_a_model_or_not(folder: str) -> None:
    found = preset_of_folder(folder)
    assert (found.fields["hub_id"] if found else "") == FOLDERS[folder]


def read(folder: str, more: str = "") -> Imported:
    return read_argv([*f"--model {folder} {COMMAND} {more}".split()], backend="megatron")


def sizes(job: Job) -> tuple[int | None, ...]:
    return (job.model.num_hidden_layers, job.model.hidden_size, job.model.vocab_size)


@pytest.mark.parametrize("target", ["megatron_lm", "mindspeed", "mindformers"])
def test_a_port_needs_no_model_and_says_whose_sizes_it_has(target: str, tmp_path: Path) -> None:
    imported = read(ABSENT)
    found = ported(imported, target, fixes=False)
    assert sizes(found.job) == (28, 3584, 152064)
    assert not [each for each in found.findings if each.severity == "error" and "model.hidden_size" in each.fields]
    assert found.job.origin("model.hidden_size").where == f"conf/model/qwen2_5_7b.yaml, by the name of {ABSENT}"
    (note,) = found.notes
    assert (
        note.message
        == f"the sizes are those of Qwen/Qwen2.5-7B, by the name of model.path={ABSENT}, which is not on this machine"
    )
    expected = sorted((each.severity, each.rule, each.message) for each in found.findings)
    for text, words in (
        (ported_yaml(imported, found, "x"), ()),
        (job_yaml(imported, "x", with_version=True), (f"backend={target}",)),
    ):
        file = tmp_path / "job.yaml"
        file.write_text(text, encoding="utf-8")
        later = judge(compose([f"+job={file}", *words]), fixes=False)
        assert (later.job.model.path, later.job.model.hub_id, *sizes(later.job)) == (ABSENT, None, 28, 3584, 152064)
        assert sorted((each.severity, each.rule, each.message) for each in later.findings) == expected


def test_the_script_comes_back_as_it_was() -> None:
    imported = read(ABSENT)
    assert differences(imported) == []
    assert check(import_argv(f"--model {ABSENT} {COMMAND}".split(), backend="megatron")).ok


@pytest.mark.parametrize("folder", ["/nowhere/ours", "/nowhere/Qwen2.5-7B-pruned"])
def test_another_name_still_needs_a_model(folder: str) -> None:
    found = ported(read(folder), "megatron_lm", fixes=False)
    assert found.notes == ()
    assert [each.rule for each in found.findings if "model.hidden_size" in each.fields] == ["REQ-MODEL"]


def test_a_folder_on_this_machine_is_read(tmp_path: Path) -> None:
    """Whatever its name: here a smaller model."""
    folder = tmp_path / "Qwen2.5-7B"
    folder.mkdir()
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    imported = read(str(folder))
    file = tmp_path / "job.yaml"
    file.write_text(job_yaml(imported, "x", with_version=True), encoding="utf-8")
    job = compose([f"+job={file}", "backend=megatron_lm"])
    assert sizes(job) == (2, 64, 1000)
    assert job.origin("model.hidden_size").where == str(folder / "config.json")


def test_on_its_own_backend_the_folder_is_read_where_the_job_runs(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(job_yaml(read(ABSENT), "x", with_version=True), encoding="utf-8")
    assert sizes(compose([f"+job={file}"])) == (None, None, None)


def test_a_job_keeps_what_it_states(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    text = f"defaults:\n- override /backend: megatron_lm\nmodel:\n  path: {ABSENT}\n  num_hidden_layers: 4\n"
    file.write_text(f"{text}imported:\n  backend: megatron\n  version: 4.6.0\n", encoding="utf-8")
    job = compose([f"+job={file}"])
    assert sizes(job) == (4, 3584, 152064)
    assert job.model.overridden == ("num_hidden_layers",)
    assert job.origin("model.hidden_size").where == f"conf/model/qwen2_5_7b.yaml, by the name of {ABSENT}"


def test_a_folder_that_is_typed_has_to_exist() -> None:
    with pytest.raises(ComposeError, match=r"config\.json does not exist; a model's folder is expected"):
        compose(["+recipe=tiny_qwen3", "backend=megatron", f"model.path={ABSENT}"])
