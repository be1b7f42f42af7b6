"""A file, an argv and the job that they are read as are judged alike: sizes of the model, places, flags and fixes."""

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launcher.api import check, compose, import_argv, import_file
from launcher.families.config_json import config_from_model
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.notes import ImportRefused
from launcher.job.finding import Finding
from launcher.rules.registry import RULES
from tests.backends.megatron import mutated as megatron
from tests.backends.megatron.jobs import QWEN3_8B, make
from tests.backends.megatron_lm import mutated as megatron_lm
from tests.backends.mindformers.mutated import changed_file
from tests.backends.mindformers.test_changed_files import examples
from tests.backends.mindformers.test_changed_files import read as read_file
from tests.backends.mindspeed import mutated as mindspeed
from tests.backends.mutated import Dialect, Line, changed
from tests.conftest import Launch
from tests.sampling import dice, fuzz_seed, trials

SWIFT = ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x", "--tensor_model_parallel_size", "5"]
SIZES = {"PAR-TP-FFN", "PAR-TP-HEADS", "PAR-TP-KV-HEADS"}


def errors(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings if finding.severity == "error"}


@pytest.mark.parametrize("named", ["a hub id", "a folder"])
def test_sizes_of_a_named_model_are_judged(named: str, tmp_path: Path, launch: Launch) -> None:
    words = list(SWIFT)
    if named == "a folder":
        words[3] = str(tmp_path / "Qwen3-8B")
        (tmp_path / "Qwen3-8B").mkdir()
        config = config_from_model(make({"model": QWEN3_8B}).model)
        (tmp_path / "Qwen3-8B" / "config.json").write_text(json.dumps(config))
    script = tmp_path / "train.sh"
    script.write_text(f"NPROC_PER_NODE=8 NNODES=5 {' '.join(words)}\n")
    found = errors(check(import_argv(words, backend="megatron", world_size=40)))
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


def test_a_config_json_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    words = [*SWIFT[:3], str(tmp_path), *SWIFT[4:]]
    found = errors(check(import_argv(words, backend="megatron", world_size=40)))
    assert str(tmp_path / "config.json") in found["IMPORT"].message


# What a file omits, or writes twice, and the launcher writes from its job: the job passes, the file does not.
OF_THE_FILE = {
    *("SW-FP16-DTYPE", "SW-FP16-BF16"),  # bf16 beside fp16 is omitted; the job says one precision
    "MLM-MLA-GQA",  # query groups without effect
    "MS-CP-TRANSFORMER-IMPL",  # an argument that must be written although it has its default
    "MF-STRATEGY",  # a strategy that follows from the layout
    *("MF-CP-FLASH-WRITTEN", "MF-SECTIONS"),  # what a file must say itself; the launcher writes it
    "MF-DROPOUT",  # 0 instead of 0.0, which a job converts
    "MF-ACCUMULATION",  # checked also where stages count micro-batches instead
}
# Rules on the types of a file's values: a job converts them, and leaves out null.
TYPES = "backends.mindformers.rules.values"
# What the launcher cannot derive from a layout that is refused.
DERIVED = {"MAP-UNSUPPORTED", "MF-STRATEGY"}
# Of an empty section of a file (`train_dataset_task: {}`), which a job does not keep.
NOT_KEPT = {"MF-DATASET-TASK"}
EXAMPLES = Path(__file__).parents[1] / "backends"


def swift_lines(folder: Path) -> tuple[list[Line], Dialect]:
    records = json.loads((EXAMPLES / "megatron/upstream_commands.json").read_text())
    return megatron.lines_of([each for each in records if each["version"] == "4.6.0"], folder), megatron.DIALECT


def mindspeed_lines(folder: Path) -> tuple[list[Line], Dialect]:
    records = json.loads((EXAMPLES / "mindspeed/upstream_examples.json").read_text())["examples"]
    sized = [{**each, "world_size": each["nodes"] * each["devices_per_node"]} for each in records]
    return mindspeed.lines_of(sized, folder), mindspeed.DIALECT


def megatron_lm_lines(folder: Path) -> tuple[list[Line], Dialect]:
    return list(megatron_lm.recipe_lines()), megatron_lm.DIALECT


LINES = {"megatron": swift_lines, "mindspeed": mindspeed_lines, "megatron_lm": megatron_lm_lines}


def read_lines(backend: str, folder: Path) -> Iterator[tuple[str, Imported]]:
    bases, dialect = LINES[backend](folder)
    for line in changed(bases, dialect, trials(60), fuzz_seed()):
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
        written, composed = set(errors(check(read))), set(errors(check(compose([f"+job={file}"]))))
        if written:
            composed -= DERIVED - written
        count += 1
        if "ARG-BOUND" in written | composed:
            # Rules that divide by such a size report it in one of them only.
            assert written, name
            assert composed, name
            continue
        of_types = {id_ for id_ in written if id_ in RULES and RULES[id_].module == TYPES}
        assert (written ^ composed) - NOT_KEPT <= (OF_THE_FILE & written) | of_types, name
    assert count


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
    assert launch("check", str(script), str(script)).code == 2


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


def test_another_version_than_the_default_is_said(tmp_path: Path, launch: Launch) -> None:
    """An argument that the default version lacks is no reason to take an older one without a word."""
    words = ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x", "--train_type", "lora"]
    read = import_argv(words, backend="megatron")
    assert read.version != "4.6.0"
    (found,) = (finding for finding in check(read) if finding.rule == "IMPORT-VERSION")
    assert found.severity == "warning"
    assert "4.6.0 refuses --train_type" in found.message
    (note,) = (note for note in read.warnings if "4.6.0 refuses" in note.message)
    assert note.works == ("--backend-version 4.6.0",)
    asked = import_argv(words, backend="megatron", version=read.version)
    assert not asked.other_version
    script = tmp_path / "train.sh"
    script.write_text(" ".join(words) + "\n")
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
    words, rule, said = REJECTED[case]
    line = ["megatron", "sft", "--model", "Qwen/Qwen3-8B", "--dataset", "x", "--tuner_type", "lora", *words]
    read = import_argv(line, backend="megatron", version="4.6.0", world_size=8)
    assert said in errors(check(read))[rule].message
    script = tmp_path / "train.sh"
    script.write_text(f"NPROC_PER_NODE=8 {' '.join(line)}\n")
    done = launch("check", str(script), "--json")
    assert done.code == 1
    (found,) = (finding for finding in done.json["findings"] if finding["rule"] == rule)
    assert f"{script}:1: {words[0]} " in found["message"]
