"""A `TrainConfig` of the pynative trainer is read as the static graph's file that trains the same."""

from pathlib import Path
from typing import Any

import pytest

from backends.mindformers.pynative_callbacks import callback_notes
from launcher.api import check, import_file
from launcher.catalogue.catalogue import load
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences
from launcher.job import value_at

FILE = Path(__file__).parent / "pynative.yaml"


def imported() -> Imported:
    """Return the job of the file, its backend found by its keys."""
    (found,) = read_file(FILE, ImportOptions())
    return found


MEANT: dict[str, Any] = {
    "seed": 7,
    "task.type": "pretrain",
    "schedule.train_iters": 10,
    "schedule.lr_decay_style": "constant",
    "optimizer.lr": 1e-5,
    "optimizer.clip_grad": 0.5,
    "optimizer.adam_beta2": 0.95,
    "batch.micro_batch_size": 1,
    "batch.global_batch_size": 16,
    "batch.seq_length": 4096,
    "parallel.tp": 2,
    "parallel.pp": 2,
    "parallel.vpp": 2,
    "parallel.ep": 2,
    "parallel.dp": 2,
    "parallel.sequence_parallel": True,
    "parallel.zero_stage": 2,
    "model.model_type": "deepseek_v3",
    "model.num_experts": 8,
    "model.rope_scaling.type": "yarn",
    "model.rope_scaling.factor": 40,
    "recompute.granularity": "full",
    "recompute.method": "uniform",
    "data.format": "megatron",
    "data.paths": ("/data/wiki_text_document",),
    "data.eod_token_id": 1,
    "checkpoint.save": "./output/checkpoint",
    "checkpoint.save_interval": 100,
    "checkpoint.prefix": "deepseekv3",
    "kernels.deterministic": True,
}


def test_it_is_read_into_canonical_fields() -> None:
    found = imported()
    assert found.backend == "mindformers"
    assert {path: value_at(found.job, path) for path in MEANT} == MEANT
    assert differences(found) == []
    assert not found.exact


def test_what_the_static_graph_does_not_have_is_named() -> None:
    reported = " ".join(str(note) for note in imported().warnings)
    assert "parallelism.enable_mc2" in reported
    assert "parallelism.data_parallel_shard_strategy" in reported  # weights are not sharded there
    assert "parallelism.tensor_parallel" not in reported


def test_it_is_refused_for_nothing() -> None:
    """Defaults of the model's class hold for what the file omits, such as no bias in experts."""
    assert [finding for finding in check(import_file(FILE)) if finding.severity == "error"] == []


LOGITS = "callbacks.MaxLogitsMonitor"
# name: (the section, the first version that takes it; empty: none does, what is said of it in 2.1.0)
CALLBACKS: dict[str, tuple[str, str, str]] = {
    "one of the static graph": (
        "[{type: MFLossMonitor}]",
        "",
        "callbacks.MFLossMonitor is no callback of the pynative trainer, which has MaxLogitsMonitor or MaxLogitsReset",
    ),
    "one that every run has": ("[{type: LossCallback}]", "", "callbacks.LossCallback is no callback of"),
    "without a type": ("[{step_interval: 1}]", "", "callbacks has an entry without a type"),
    "no list": ("{type: MaxLogitsMonitor}", "", "callbacks must be a list"),
    "null": ("", "", "callbacks must be a list"),
    "an interval of 0": ("[{type: MaxLogitsMonitor, step_interval: 0}]", "", f"{LOGITS}.step_interval must be a whole"),
    "a text": ("[{type: MaxLogitsMonitor, enable_logging: x}]", "", f"{LOGITS}.enable_logging must be true or false"),
    "an unknown key": ("[{type: MaxLogitsMonitor, level: 1}]", "", f"{LOGITS}.level is no parameter of MaxLogits"),
    "a key of the other": ("[{type: MaxLogitsReset, step_interval: 1}]", "", "callbacks.MaxLogitsReset.step_interval"),
    "none": ("[]", "1.9.0", ""),
    "logits": ("[{type: MaxLogitsMonitor, step_interval: 2}]", "2.0.0", f"{LOGITS} logs attention logits"),
    "reset": ("[{type: MaxLogitsReset}]", "2.0.0", "callbacks.MaxLogitsReset logs attention logits"),
    "a later key": ("[{type: MaxLogitsMonitor, enable_logging: false}]", "2.1.0", f"{LOGITS} logs attention logits"),
}


def with_callbacks(text: str, folder: Path) -> Path:
    file = folder / "pynative.yaml"
    file.write_text(f"{FILE.read_text(encoding='utf-8')}callbacks: {text}\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("version", ["1.9.0", "2.0.0", "2.1.0"])
@pytest.mark.parametrize("case", CALLBACKS)
def test_callbacks_are_those_of_the_version(case: str, version: str, tmp_path: Path) -> None:
    text, since, message = CALLBACKS[case]
    file = with_callbacks(text, tmp_path)
    if not since or version < since:
        with pytest.raises(ImportRefused) as refused:
            read_file(file, ImportOptions(version=version))
        reported = [each.message for each in refused.value.notes]
    else:
        (found,) = read_file(file, ImportOptions(version=version))
        assert check(found.job).ok
        reported = [each.message for each in found.warnings if "callback" in each.message]
    if version == "2.1.0":
        assert [each.startswith(message) for each in reported] == ([True] if message else [])
    else:
        assert all("callback" in each for each in reported)


def test_files_of_the_pynative_trainer_are_refused_by_versions_without_it() -> None:
    with pytest.raises(ImportRefused, match=r"parallelism is a section of the pynative trainer, which 1\.9 and later"):
        read_file(FILE, ImportOptions(version="1.8.0"))


@pytest.mark.parametrize("version", ["1.9.0", "2.0.0", "2.1.0"])
def test_parameters_of_callbacks_are_those_that_were_read_from_the_versions_source(version: str) -> None:
    catalogue = load(Path("backends/mindformers/catalogue") / f"{version}.json")
    own = [each for each in catalogue.arguments if each.source.startswith("mindformers/pynative/callback/")]
    read = {each.name.rpartition(".")[2] for each in own}
    taken = set()
    for key, value in (("step_interval", 1), ("enable_logging", True), ("level", 1)):
        tree = {"callbacks": [{"type": "MaxLogitsMonitor", key: value}]}
        if not any(each.refused for each in callback_notes(tree, version)):
            taken.add(key)
    assert taken == read
