"""A user's words and files become one job; every value knows where it was set."""

import json
import os
import textwrap
from pathlib import Path

import pytest

from launcher.compose import ComposeError, compose, sweep
from launcher.job import derive

RECIPE = """
defaults:
  - override /model: tiny_qwen3
parallel:
  tp: 2
batch:
  seq_length: 64
  global_batch_size: 8
"""


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def test_groups_recipes_and_overrides_win_in_this_order(user_folder: Path):
    job = compose([f"+recipe={user_folder}/mine.yaml", "backend=megatron", "batch.seq_length=32"])
    assert (job.model.model_type, job.parallel.tp, job.batch.seq_length) == ("qwen3", 2, 32)
    assert job.backend.name == "megatron"
    assert job.name == "mine"


def test_every_value_knows_its_place(user_folder: Path):
    job = compose([f"+recipe={user_folder}/mine.yaml", "batch.seq_length=32"])
    assert job.origin("parallel.tp").where == f"{user_folder}/mine.yaml:5"
    assert job.origin("batch.seq_length").kind == "override"
    assert job.origin("model.hidden_size").where.startswith("conf/model/tiny_qwen3.yaml:")
    assert job.origin("parallel.dp").kind == "derived"
    assert job.origin("parallel.pp").kind == "default"


def test_recipes_and_groups_from_an_own_folder(user_folder: Path):
    (user_folder / "model").mkdir()
    (user_folder / "model" / "mine.yaml").write_text("hidden_size: 77\n")
    job = compose(["+recipe=mine", "model=mine"], [str(user_folder)])
    assert job.model.hidden_size == 77


def test_what_a_job_file_says_comes_back(user_folder: Path):
    import yaml

    from launcher.job import as_tree

    job = compose([f"+recipe={user_folder}/mine.yaml", "backend=megatron", "recompute.modules=[core_attn,mlp]"])
    (user_folder / "job.yaml").write_text(yaml.safe_dump(as_tree(job)))
    again = compose([f"+job={user_folder}/job.yaml"])
    assert again == job


TEXTS = {
    "commas": ("data.split=99,1,0", "data.split", "99,1,0"),
    "version that looks like a number": ("backend.version=3.10", "backend.version", "3.10"),
    "spaces and quotes": ('data.system=it\'s "so"', "data.system", 'it\'s "so"'),
    "backslash at the end": ("data.system=a\\", "data.system", "a\\"),
    "list without brackets": ("recompute.modules=core_attn,mlp", "recompute.modules", ("core_attn", "mlp")),
    "null": ("data.split=null", "data.split", None),
    "environment variable": ("backend.env.A=1", "backend.env", {"A": "1"}),
}


@pytest.mark.parametrize("case", TEXTS.values(), ids=TEXTS.keys())
def test_text_means_what_was_typed(case):
    from launcher.job import value_at

    arg, path, value = case
    assert value_at(compose([arg]), path) == value


MISTAKES = {
    "unknown field": (["paralel.tp=2"], "paralel.tp is not a field", "parallel.tp"),
    "unknown recipe": (["+recipe=tiny_qwen"], "no recipe named 'tiny_qwen'", "tiny_qwen3"),
    "backend with its version": (
        ["backend=mindspeed@26.1.0"],
        "no backend named 'mindspeed@26.1.0': a version is backend.version=26.1.0",
        "mindspeed",
    ),
    "unknown backend": (["backend=megatrn"], "no backend named 'megatrn'", "megatron"),
    "missing file": (["+recipe=./none.yaml"], "./none.yaml does not exist", None),
    "no equals sign": (["tiny_qwen3"], "'tiny_qwen3' is not of the form key=value", "+recipe=tiny_qwen3"),
    "wrong type": (["parallel.tp=x"], "parallel.tp needs a whole number", None),
    "missing model directory": (["model.path=/none"], "/none/config.json does not exist", None),
}


@pytest.mark.parametrize("case", MISTAKES.values(), ids=MISTAKES.keys())
def test_mistakes_name_what_would_work(case):
    args, what, works = case
    with pytest.raises(ComposeError) as caught:
        compose(args)
    assert what in caught.value.mistakes[0].what
    assert works is None or works in caught.value.mistakes[0].works


def test_all_mistakes_come_at_once(user_folder: Path):
    with pytest.raises(ComposeError) as caught:
        compose(["a.b=1", "parallel.tpp=1", "backend=none", "+recipe=none"])
    assert len(caught.value.mistakes) == 4


def test_a_path_may_have_a_comma_and_an_apostrophe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "a,b's"
    folder.mkdir()
    (folder / "mine, it's.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    for word in (f"+recipe={folder}/mine, it's.yaml", "+recipe=a,b's/mine, it's.yaml"):
        assert compose([word]).parallel.tp == 2
        assert sweep([word, "batch.seq_length=32,64"]) == [[word, f"batch.seq_length={each}"] for each in (32, 64)]


def test_mistakes_in_files_name_the_line(user_folder: Path):
    (user_folder / "bad.yaml").write_text("parallel:\n  tp: 2\n  tpp: 3\nbogus: 1\n")
    with pytest.raises(ComposeError) as caught:
        compose([f"+recipe={user_folder}/bad.yaml"])
    assert [mistake.where for mistake in caught.value.mistakes] == [
        f"{user_folder}/bad.yaml:3",
        f"{user_folder}/bad.yaml:4",
    ]


def test_a_file_that_is_not_yaml_is_named_with_its_line(user_folder: Path):
    (user_folder / "bad.yaml").write_text("a: [1\nb: }")
    with pytest.raises(ComposeError) as caught:
        compose([f"+recipe={user_folder}/bad.yaml"])
    assert caught.value.mistakes[0].where == f"{user_folder}/bad.yaml:2"


CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
}


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_a_model_directory_fills_the_model_section(model_dir: Path):
    job = compose(["model=qwen3_8b", f"model.path={model_dir}"])
    assert (job.model.hidden_size, job.model.rope_theta, job.model.tie_word_embeddings) == (64, 500000.0, True)
    assert job.origin("model.hidden_size").where.endswith("config.json")
    assert job.model.overridden == ()


def test_values_beside_the_model_directory_win_and_are_recorded(model_dir: Path):
    job = compose([f"model.path={model_dir}", "model.num_hidden_layers=4", "model.hidden_size=64"])
    assert job.model.num_hidden_layers == 4
    assert job.model.overridden == ("num_hidden_layers",)


def test_changes_of_a_preset_are_recorded():
    assert compose(["model=qwen3_8b"]).model.overridden == ()
    assert compose(["model=qwen3_8b", "model.num_hidden_layers=4"]).model.overridden == ("num_hidden_layers",)


def test_config_without_a_needed_key_is_refused_by_name(model_dir: Path):
    (model_dir / "config.json").write_text(json.dumps({k: v for k, v in CONFIG.items() if k != "hidden_size"}))
    with pytest.raises(ComposeError) as caught:
        compose([f"model.path={model_dir}"])
    assert "hidden_size" in caught.value.mistakes[0].what


def test_config_that_is_not_json_is_refused(model_dir: Path):
    (model_dir / "config.json").write_text("{")
    with pytest.raises(ComposeError) as caught:
        compose([f"model.path={model_dir}"])
    assert "is not JSON" in caught.value.mistakes[0].what


def test_a_tilde_is_the_home_directory(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    job = compose(["checkpoint.save=~/ck", "checkpoint.save_interval=1", "data.paths=~/a,b"])
    assert job.checkpoint.save == "/home/me/ck"
    assert job.data.paths == ("/home/me/a", "b")


def test_a_secret_is_kept_nowhere():
    job = compose(["backend.env.WANDB_API_KEY=s3cr3t", "backend.env.HF_HOME=/x"])
    assert job.backend.env == {"WANDB_API_KEY": "${WANDB_API_KEY}", "HF_HOME": "/x"}
    assert "s3cr3t" not in repr(job) + repr(job.origins)


def test_sweep_makes_every_combination():
    jobs = sweep(["+recipe=tiny_qwen3", "parallel.tp=1,2", "batch.micro_batch_size=1,2", "data.split='99,1,0'"])
    assert len(jobs) == 4
    assert {tuple(arg for arg in job if arg.startswith("parallel")) for job in jobs} == {
        ("parallel.tp=1",),
        ("parallel.tp=2",),
    }
    assert all(compose(job).data.split == "99,1,0" for job in jobs)


def test_recipe_of_another_package_is_taken_as_written(user_folder: Path):
    (user_folder / "packaged.yaml").write_text(textwrap.dedent("# @package parallel\ntp: 4\n"))
    assert compose([f"+recipe={user_folder}/packaged.yaml"]).parallel.tp == 4


# words -> nodes
HOSTS = {
    "a recipe's count gives way": (["+recipe=tiny_qwen3", "cluster=ssh", "cluster.hosts=[a,b]"], 2),
    "what the user says stays": (["+recipe=tiny_qwen3", "cluster=ssh", "cluster.hosts=[a,b]", "cluster.nodes=1"], 1),
    "no hosts": (["+recipe=qwen3_moe", "cluster=slurm"], 2),
    "hosts that only ssh reads": (["+recipe=tiny_qwen3", "cluster=slurm", "cluster.hosts=[a,b]"], 1),
    "their file is not read": (["+recipe=tiny_qwen3", "cluster=slurm", "cluster.host_file=/none/hosts"], 1),
}


@pytest.mark.parametrize("case", HOSTS.values(), ids=HOSTS.keys())
def test_as_many_nodes_as_hosts(case):
    args, nodes = case
    assert derive(compose(args)).cluster.nodes == nodes


QWEN = ("+recipe=qwen3_8b", "backend=megatron")
# Name: words, what is said, what would work.
SEVERAL = {
    "a field": ((*QWEN, "parallel.tp=1,2"), "parallel.tp=1,2 expands to several values", ("-m, ", "parallel.tp=1")),
    "a choice": ((*QWEN, "parallel.tp=choice(1,2)"), "parallel.tp=choice(1,2) expands to", ("-m, ",)),
    "a list": ((*QWEN, "backend.args.x=1,2"), "backend.args.x=1,2 expands to", ("-m, ", "backend.args.x=[1,2]")),
    "a group": (("+recipe=qwen3_8b", "backend=megatron,mindspeed"), "backend=megatron,mindspeed", ("-m, ", "backend=")),
    "two recipes": (
        (*QWEN, "+recipe=tiny_qwen3"),
        "recipe is given 2 times; a job takes one",
        ("+recipe=qwen3_8b", "+recipe=tiny_qwen3"),
    ),
}


@pytest.mark.parametrize("case", SEVERAL.values(), ids=SEVERAL.keys())
def test_several_values_where_a_job_has_one_are_shown_as_typed(case):
    args, what, works = case
    with pytest.raises(ComposeError) as caught:
        compose(args)
    (mistake,) = caught.value.mistakes
    assert mistake.what.startswith(what)
    assert len(mistake.works) == len(works)
    assert all(reported.startswith(start) for reported, start in zip(mistake.works, works, strict=True))


def test_several_values_of_a_secret_are_not_shown():
    with pytest.raises(ComposeError) as caught:
        compose([*QWEN, "backend.args.wandb_api_key=abc,def"])
    assert "abc" not in str(caught.value.mistakes)


# Name: word, what is said, what would work first.
FILES = {
    "a script": ("ms.sh", "ms.sh is a file", "launch import ms.sh -o job.yaml, then +job=job.yaml"),
    "a script as a job": ("+job=ms.sh", "ms.sh is not a job", "launch import ms.sh -o job.yaml, then +job=job.yaml"),
    "a script with its folder": ("+job=./ms.sh", "./ms.sh is not a job", "launch import ./ms.sh -o job.yaml, then"),
    "a YAML file": ("job.yaml", "job.yaml is a file", "+job=job.yaml"),
    "a missing script": ("none.sh", "there is no file none.sh", None),
    "a missing YAML file": ("none.yaml", "there is no file none.yaml", None),
    "a missing script as a job": ("+job=none.sh", "there is no file none.sh", None),
    "a pipe": ("pipe.sh", "pipe.sh is a pipe or device, not a file", None),
    "a pipe as a job": ("+job=pipe.yaml", "pipe.yaml is a pipe or device, not a file", None),
    "a folder as a job": ("+job=./folder", "./folder is a folder, not a file", None),
    "a device": ("/dev/null", "/dev/null is a pipe or device, not a file", None),
    "a recipe": ("qwen3_8b", "'qwen3_8b' is not of the form", "+recipe=qwen3_8b"),
}


@pytest.mark.parametrize("case", FILES.values(), ids=FILES.keys())
def test_a_file_where_an_override_is_expected_is_pointed_to_its_command(case, tmp_path, monkeypatch):
    arg, what, works = case
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ms.sh").write_text("torchrun pretrain.py\n")
    (tmp_path / "job.yaml").write_text("parallel: {tp: 1}\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.sh")
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(ComposeError) as caught:
        compose([arg, "parallel.tp=3"])
    (mistake,) = caught.value.mistakes
    assert mistake.what.startswith(what)
    assert mistake.works[0].startswith(works) if works else not mistake.works


def test_a_copy_of_a_hardware_file_is_hardware(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    copy.write_text(Path("conf/hardware/h100_80g.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    assert compose([f"hardware={copy}"]).hardware == compose(["hardware=h100_80g"]).hardware


def test_a_misspelt_field_of_a_hardware_file_is_the_only_mistake(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    text = Path("conf/hardware/h100_80g.yaml").read_text(encoding="utf-8")
    copy.write_text(text.replace("\nbf16_tflops:", "\nbf16_tflopss:"), encoding="utf-8")
    with pytest.raises(ComposeError) as caught:
        compose([f"hardware={copy}"])
    (mistake,) = caught.value.mistakes
    line = 1 + text[: text.index("\nbf16_tflops:") + 1].count("\n")
    assert (mistake.field, mistake.where, mistake.works) == (
        "hardware.bf16_tflopss",
        f"{copy}:{line}",
        ("hardware.bf16_tflops",),
    )


def test_nan_in_a_hardware_file_is_named_with_its_line(tmp_path: Path) -> None:
    copy = tmp_path / "mine.yaml"
    copy.write_text("name: mine\nbf16_tflops: 100\nmatmul_efficiency: .nan\n", encoding="utf-8")
    with pytest.raises(ComposeError) as caught:
        compose([f"hardware={copy}"])
    (mistake,) = caught.value.mistakes
    assert (mistake.where, mistake.fixes) == (f"{copy}:3", ("hardware.matmul_efficiency=null",))
    assert compose([f"hardware={copy}", "hardware.matmul_efficiency=null"]).hardware.bf16_tflops == 100


# A value that Hydra's grammar does not have, and the same in quotes; none where quotes alone do not mend it.
UNQUOTED = {
    "list": ("cluster.sbatch_options=[--switches=1,-C a]", """"cluster.sbatch_options=['--switches=1','-C a']\""""),
    "call": ("data.paths=[/data/a(1)]", ""),
}


@pytest.mark.parametrize(("word", "works"), UNQUOTED.values(), ids=UNQUOTED)
def test_a_value_outside_of_the_grammar_is_offered_in_quotes_if_these_are_read(word: str, works: str):
    with pytest.raises(ComposeError) as caught:
        compose([word])
    (mistake,) = caught.value.mistakes
    assert mistake.works == ((works,) if works else ("key='quoted value'", "key=[a,b]"))
    if works:
        assert compose([works.strip('"')]).cluster.sbatch_options == ("--switches=1", "-C a")
