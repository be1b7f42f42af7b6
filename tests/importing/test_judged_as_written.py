"""A file, an argv and the job that they are read as are judged alike: sizes of the model, places, flags and fixes."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.api import check, compose, import_argv, import_file
from launcher.families import config_from_model
from launcher.importing.job_file import job_yaml
from launcher.job.finding import Finding
from tests.backends.megatron.jobs import QWEN3_8B, make
from tests.backends.megatron.mutated import DIALECT, lines_of
from tests.backends.mutated import changed
from tests.conftest import Launch
from tests.sampling import fuzz_seed, trials

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


# What a job must say and a command line need not, and what a command line says twice.
ONE_SIDED = {"REQ-LR", "REQ-LENGTH", "REQ-BATCH", "SW-FP16-DTYPE", "SW-FP16-BF16"}


def test_a_changed_command_line_and_its_job_have_the_same_errors(tmp_path: Path) -> None:
    records = json.loads((Path(__file__).parents[1] / "backends/megatron/upstream_commands.json").read_text())
    bases = lines_of([record for record in records if record["version"] == "4.6.0"], tmp_path)
    drawn = list(changed(bases, DIALECT, trials(60), fuzz_seed()))[len(bases) :]
    assert drawn
    for line in drawn:
        read = import_argv([*line.program, *line.argv], backend="megatron", world_size=line.world_size)
        file = tmp_path / "job.yaml"
        file.write_text(job_yaml(read, "x", with_version=True))
        written, composed = errors(check(read)), errors(check(compose([f"+job={file}"])))
        assert set(written) ^ set(composed) <= ONE_SIDED, line.name


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
    assert not asked.older_version
    script = tmp_path / "train.sh"
    script.write_text(" ".join(words) + "\n")
    assert "IMPORT-VERSION" in launch("check", str(script)).out
