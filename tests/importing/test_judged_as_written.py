"""A file, an argv and the job that they are read as are judged alike: sizes of the model, places, flags and fixes."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.mindformers.yaml_file import flatten
from launcher.api import check, compose, import_argv, import_file, plan
from launcher.families.config_json import config_from_model
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.judge import judge_existing
from launcher.importing.notes import ImportRefused
from launcher.job import with_values
from launcher.job.finding import Finding
from launcher.pipeline import judge
from tests.backends.megatron import mutated as megatron
from tests.backends.megatron.jobs import QWEN3_8B, make
from tests.backends.megatron_lm import mutated as megatron_lm
from tests.backends.mindformers.mutated import changed_file
from tests.backends.mindformers.test_changed_files import examples
from tests.backends.mindformers.test_changed_files import read as read_file
from tests.backends.mindspeed import mutated as mindspeed
from tests.backends.mutated import Line, Mutations, changed
from tests.conftest import Launch
from tests.sampling import dice, fuzz_seed, trials

pytestmark = pytest.mark.slow

SWIFT = ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x", "--tensor_model_parallel_size", "5"]
SIZES = {"PAR-TP-FFN", "PAR-TP-HEADS", "PAR-TP-KV-HEADS"}


def errors(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings if finding.severity == "error"}


@pytest.mark.parametrize("named", ["a hub id", "a folder"])
def test_sizes_of_a_named_model_are_judged(named: str, tmp_path: Path, launch: Launch) -> None:
    args = list(SWIFT)
    if named == "a folder":
        args[3] = str(tmp_path / "Qwen3-8B")
        (tmp_path / "Qwen3-8B").mkdir()
        config = config_from_model(make({"model": QWEN3_8B}).model)
        (tmp_path / "Qwen3-8B" / "config.json").write_text(json.dumps(config))
    script = tmp_path / "train.sh"
    script.write_text(f"NPROC_PER_NODE=8 NNODES=5 {' '.join(args)}\n")
    found = errors(check(import_argv(args, backend="megatron", world_size=40)))
    assert set(found) == SIZES
    for finding in found.values():
        assert finding.flags == ("tensor_model_parallel_size",)
        assert "parallel.tp=4" in map(str, finding.fixes)
    shown = launch("check", str(script))
    assert shown.code == 1
    assert f"parallel.tp=5 ({script}:1 --tensor_model_parallel_size), model.num_attention_heads=32 (" in shown.out
    assert set(errors(check(import_file(script)))) == SIZES
    job_file = tmp_path / "job.yaml"
    assert launch("import", str(script), "-o", str(job_file)).code == 0
    assert set(errors(check(compose([f"+job={job_file}"])))) >= SIZES


def test_a_changed_import_is_judged_again() -> None:
    read = import_argv(SWIFT, backend="megatron", world_size=40)
    native = read.native.with_args(arg for arg in read.native if arg.flag != "tensor_model_parallel_size")
    job = with_values(read.job, {"parallel.tp": 4})
    assert set(errors(check(read))) == SIZES
    assert not errors(check(replace(read, job=job, native=native)))
    assert not errors(check(replace(read, job=with_values(read.job, {"rules.disable": tuple(SIZES)}))))


def test_a_config_json_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    args = [*SWIFT[:3], str(tmp_path), *SWIFT[4:]]
    found = errors(check(import_argv(args, backend="megatron", world_size=40)))
    assert str(tmp_path / "config.json") in found["IMPORT"].message


# Said of a job beside the errors of its file: what the launcher cannot derive from a layout that is refused.
DERIVED = {"MAP-UNSUPPORTED"}
EXAMPLES = Path(__file__).parents[1] / "backends"


def swift_lines(folder: Path) -> tuple[list[Line], Mutations]:
    records = json.loads((EXAMPLES / "megatron/upstream_commands.json").read_text())
    return megatron.lines_of([each for each in records if each["version"] == "4.6.0"], folder), megatron.MUTATIONS


def mindspeed_lines(folder: Path) -> tuple[list[Line], Mutations]:
    records = json.loads((EXAMPLES / "mindspeed/upstream_examples.json").read_text())["examples"]
    sized = [{**each, "world_size": each["nodes"] * each["devices_per_node"]} for each in records]
    return mindspeed.lines_of(sized, folder), mindspeed.MUTATIONS


def megatron_lm_lines(folder: Path) -> tuple[list[Line], Mutations]:
    return list(megatron_lm.recipe_lines()), megatron_lm.MUTATIONS


LINES = {"megatron": swift_lines, "mindspeed": mindspeed_lines, "megatron_lm": megatron_lm_lines}


def read_lines(backend: str, folder: Path) -> Iterator[tuple[str, Imported]]:
    bases, mutations = LINES[backend](folder)
    for line in changed(bases, mutations, trials(60), fuzz_seed()):
        argv, env = [*line.program, *line.argv], line.env
        with contextlib.suppress(ImportRefused):
            yield line.name, import_argv(argv, backend=backend, env=env, world_size=line.world_size)


def read_files(backend: str, folder: Path) -> Iterator[tuple[str, Imported]]:
    trees = examples()
    for number in range(trials(60)):
        draw = dice(f"three paths {number}")
        name = draw.choice(list(trees))
        tree, change = changed_file(trees[name], draw)
        with contextlib.suppress(ImportRefused):
            yield f"{name}: {change}", read_file(tree)


@pytest.mark.parametrize("backend", [*LINES, "mindformers"])
def test_a_changed_file_and_its_job_have_the_same_errors(backend: str, tmp_path: Path) -> None:
    file, count = tmp_path / "job.yaml", 0
    for name, read in (read_files if backend == "mindformers" else read_lines)(backend, tmp_path):
        file.write_text(job_yaml(read, "x", with_version=True))
        judged = judge_existing(read, fixes=False).findings
        # The import hands on the errors that it found.
        assert judged == judge_existing(replace(read, judged=None), fixes=False).findings, name
        written = set(errors(judged))
        composed = set(errors(judge(compose([f"+job={file}"]), fixes=False).findings))
        assert written <= composed, name
        assert composed - written <= (DERIVED if written else set()), name
        count += 1
    assert count


# What no field of a job holds: a change of an example, the rule that refuses it, and the line that the job writes.
KEPT = {
    "null": ("recompute_config.mp_comm_recompute", None, "MF-RECOMPUTE-SWITCHES", "  mp_comm_recompute: null\n"),
    "a number as text": ("lr_schedule.learning_rate", "1e-5", "MF-LR-VALUES", '  learning_rate: "1e-5"\n'),
    "another type of number": ("model.model_config.hidden_dropout", 0, "MF-DROPOUT", "    hidden_dropout: 0\n"),
    "a size below its bound": ("model.model_config.num_layers", 0, "MF-STAGE-LAYERS", "    num_layers: 0\n"),
    "what training does not read": ("eval_dataset.seed", 0, "MF-DATASET-TASK", "eval_dataset:\n  seed: 0\n"),
    "an empty section": ("train_dataset_task", {}, "", "train_dataset_task: {}\n"),
}


def changed_example(path: str, value: Any) -> dict[str, Any]:
    tree = json.loads(json.dumps(examples()["finetune_qwen3"]))
    *sections, leaf = path.split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, {})
    node[leaf] = value
    return dict(tree)


@pytest.mark.parametrize("case", KEPT)
def test_what_no_field_holds_is_in_the_job(case: str, tmp_path: Path) -> None:
    path, value, rule, line = KEPT[case]
    read = read_file(changed_example(path, value))
    found = errors(check(read))
    assert not rule or rule in found
    file = tmp_path / "job.yaml"
    file.write_text(job_yaml(read, "x", with_version=True))
    job = compose([f"+job={file}"])
    assert set(errors(check(job))) == set(found)
    (config,) = (each for each in plan(job).files if each.path.endswith(".yaml"))
    assert line in config.content
    assert flatten(yaml.safe_load(config.content))[path] == value


def test_layers_beyond_the_limit_cost_nothing(tmp_path: Path, launch: Launch) -> None:
    script, job = tmp_path / "train.sh", tmp_path / "job.yaml"
    layout = f"--pipeline_model_parallel_layout 'Et*{10**11}|L' --pipeline_model_parallel_size 2"
    script.write_text(f"NPROC_PER_NODE=8 {' '.join(SWIFT[:6])} {layout}\n")
    assert launch("import", str(script), "-o", str(job)).code == 0
    for checked in (str(script), f"+job={job}"):
        done = launch("check", checked)
        assert done.code == 1
        assert "100,000,000,017 layers; the limit is 100,000" in done.err


def test_a_file_takes_overrides(tmp_path: Path, launch: Launch) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"NPROC_PER_NODE=8 NNODES=5 {' '.join(SWIFT)}\n")
    done = launch("check", str(script), "parallel.tp=4")
    assert done.code == 0
    assert "parallel.tp=4 (command line)" in done.out
    assert f"{script} with parallel.tp=4 on Megatron-SWIFT" in done.out
    done = launch("check", str(script), "parallel.pp=2", "--json")
    assert {finding["rule"] for finding in done.json["findings"] if finding["severity"] == "error"} >= SIZES
    shown = launch("check", str(script), "parallel.pp=2").out
    assert f"parallel.tp=5 ({script}:1 --tensor_model_parallel_size)" in shown
    assert launch("check", str(script), "parallel.tq=4").code == 2


def test_a_file_is_judged_by_the_version_that_is_named(tmp_path: Path, launch: Launch) -> None:
    script = tmp_path / "train.sh"
    script.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --cuda-graph-impl local\n")
    assert "for Megatron-LM 0.16.1: " in launch("check", str(script)).out
    done = launch("check", str(script), "backend.version=0.12.1")
    assert done.code == 1
    assert "--cuda-graph-impl is not an argument of Megatron-LM 0.12.1" in done.err
    script.write_text("torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2\n")
    assert "for Megatron-LM 0.12.1: " in launch("check", str(script), "backend.version=0.12.1").out
    changed = launch("check", str(script), "backend.version=0.12.1", "parallel.tp=2").out
    assert "with parallel.tp=2 on Megatron-LM 0.12.1: " in changed
    assert launch("check", str(script), "backend.version=0.1").code == 2


def test_another_version_than_the_default_is_reported(tmp_path: Path, launch: Launch) -> None:
    """An argument that the default version lacks is no reason to take an older one without a word."""
    args = ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x", "--train_type", "lora"]
    read = import_argv(args, backend="megatron")
    assert read.version != "4.6.0"
    (found,) = (finding for finding in check(read) if finding.rule == "IMPORT-VERSION")
    assert found.severity == "warning"
    assert "4.6.0 refuses --train_type" in found.message
    (note,) = (note for note in read.warnings if "4.6.0 refuses" in note.message)
    assert note.works == ("--backend-version 4.6.0",)
    asked = import_argv(args, backend="megatron", version=read.version)
    assert not asked.other_version
    script = tmp_path / "train.sh"
    script.write_text(" ".join(args) + "\n")
    assert "IMPORT-VERSION" in launch("check", str(script)).out


# Words that import reads and the backend's own parser rejects.
REJECTED = {
    "renamed": (["--num_workers", "4"], "ARG-UNKNOWN", "in 4.6.0 it is dataloader_num_workers"),
    "of another command": (["--to_hf", "true"], "ARG-UNKNOWN", "of export, not of sft"),
    "two words": (["--output_dir", "/a", "true"], "ARG-VALUE", "a shell would split it"),
    "a float for an integer": (["--max_length", "2e3"], "ARG-VALUE", "digits only"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_what_the_parser_rejects_is_an_error(case: str, tmp_path: Path, launch: Launch) -> None:
    args, rule, reported = REJECTED[case]
    line = ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x", "--tuner_type", "lora", *args]
    read = import_argv(line, backend="megatron", version="4.6.0", world_size=8)
    assert reported in errors(check(read))[rule].message
    script = tmp_path / "train.sh"
    script.write_text(f"NPROC_PER_NODE=8 {' '.join(line)}\n")
    done = launch("check", str(script), "--json")
    assert done.code == 1
    (found,) = (finding for finding in done.json["findings"] if finding["rule"] == rule)
    assert f"{script}:1: {args[0]} " in found["message"]
