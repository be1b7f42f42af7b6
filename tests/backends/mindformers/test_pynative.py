"""A `TrainConfig` of the pynative trainer is read as the static graph's file that trains the same."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from backends.mindformers.yaml_file import file_notes
from launcher.api import check, import_file
from launcher.catalogue.catalogue import load
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences
from launcher.job import value_at
from tests.backends.mindformers.real_pynative import (
    RECORDED,
    VERSIONS,
    Accepts,
    changed,
    letters,
    of_combinations,
    verdicts,
)
from tools.catalogue.mindformers_pynative import pynative, uncovered
from tools.catalogue.obtain import ORIGINS, obtain
from tools.catalogue.writer import render

CATALOGUES = Path("backends/mindformers/catalogue")
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
    "an interval of 0": ("[{type: MaxLogitsMonitor, step_interval: 0}]", "", f"{LOGITS}.step_interval must be above 0"),
    "a text": ("[{type: MaxLogitsMonitor, enable_logging: x}]", "", f"{LOGITS}.enable_logging must be true or false"),
    "an unknown key": ("[{type: MaxLogitsMonitor, level: 1}]", "", f"{LOGITS}.level is no parameter of MaxLogits"),
    "a key of the other": ("[{type: MaxLogitsReset, step_interval: 1}]", "", "callbacks.MaxLogitsReset.step_interval"),
    "none": ("[]", "1.9.0", ""),
    "logits": ("[{type: MaxLogitsMonitor, step_interval: 2}]", "2.0.0", f"{LOGITS} logs attention logits"),
    "reset": ("[{type: MaxLogitsReset}]", "2.0.0", "callbacks.MaxLogitsReset logs attention logits"),
    "a later key": ("[{type: MaxLogitsMonitor, enable_logging: false}]", "2.1.0", f"{LOGITS} logs attention logits"),
}


# Keys of the file that came after 1.9.
LATER = {
    *("data_parallel_shard", "data_parallel_shard_strategy", "expert_parallel", "enable_mc2"),
    "pipeline_parallel_layers_per_stage",
}


def written(
    folder: Path, text: str = "", version: str = "2.1.0", changes: Mapping[str, Mapping[str, Any]] | None = None
) -> Path:
    """Write the file as a version takes it, with keys of its sections changed and text at its end."""
    tree = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    if version == "1.9.0":
        tree["recompute"] = {"full_recompute": True}
        tree["parallelism"] = {key: value for key, value in tree["parallelism"].items() if key not in LATER}
    for section, keys in (changes or {}).items():
        tree[section] = {**tree.get(section, {}), **keys}
    file = folder / "pynative.yaml"
    file.write_text(yaml.safe_dump(tree) + text, encoding="utf-8")
    return file


@pytest.mark.parametrize("version", ["1.9.0", "2.0.0", "2.1.0"])
@pytest.mark.parametrize("case", CALLBACKS)
def test_callbacks_are_those_of_the_version(case: str, version: str, tmp_path: Path) -> None:
    text, since, message = CALLBACKS[case]
    file = written(tmp_path, f"callbacks: {text}\n", version)
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


def accepts(version: str) -> Accepts:
    """Return what is said of a file: whether nothing of it is refused."""
    return lambda tree: not any(note.refused for note in file_notes(tree, version))


# Keys whose text is looked up after TrainConfig has taken it, and texts that are found.
BUILT = {
    "recompute.mode": "None",  # the others need layers or modules when the model is built
    "optimizer.type": "AdamW",
    "train_dataset.dataloader.type": "HFDataLoader",
    "parallelism.reshard_after_forward_policy": "never",
    "run_mode": "train",
}


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_and_values_are_judged_as_the_versions_own_classes_do(version: str) -> None:
    """6,080 verdicts of TrainConfig itself; names that only the trainer looks up, later, are refused besides."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))[version]
    wrong = {}
    for key, expected in recorded.items():
        found = letters(accepts(version), key) if key else of_combinations(accepts(version))
        if found != expected and not (key in BUILT and "y" not in found):
            wrong[key] = (found, expected)
    assert wrong == {}
    assert {key for key in recorded if key} == {
        each.name for each in load(CATALOGUES / f"{version}-pynative.json").arguments if each.owner.endswith("Config")
    }


@pytest.mark.parametrize(("key", "value"), BUILT.items())
def test_names_that_the_trainer_has_pass(key: str, value: str) -> None:
    assert accepts("2.1.0")(changed(key, value))


# name: (section, its keys, what is said of it in 2.1.0)
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a misspelt key": (
        "parallelism",
        {"tensor_paralel": 2},
        "parallelism.tensor_paralel is no key of parallelism in MindFormers 2.1.0 (did you mean tensor_parallel?)",
    ),
    "a key of no section that is like it": (
        "swap",
        {"prefetch": 1},
        "swap.prefetch is no key of swap in MindFormers 2.1.0, which has default_prefetch, enable, layer_swap, op_swap",
    ),
    "a mode": ("recompute", {"mode": "ful"}, "recompute.mode must be one of None, full, select, not 'ful'; did you"),
    "null": ("recompute", {"mode": None}, "recompute.mode must be text, not null"),
    "a text for a number": (
        "optimizer",
        {"eps": "1e-8"},
        "optimizer.eps must be a number, not '1e-8': YAML reads it as text, write 1.0e-08",
    ),
    "a text with a point": (
        "optimizer",
        {"eps": "1.5e-8"},
        "optimizer.eps must be a number, not '1.5e-8': YAML reads it as text, write 1.5e-08",
    ),
    "an item": ("optimizer", {"betas": [0.9, "x"]}, "optimizer.betas must be a list whose items are a number, not 'x'"),
    "a schedule": (
        "parallelism",
        {"pipeline_parallel_schedule": "interleaved"},
        "parallelism.pipeline_parallel_schedule must be one of 1f1b, interleaved_1f1b, gpipe, not 'interleaved'; "
        "did you mean interleaved_1f1b? (with pipeline_parallel 2)",
    ),
    "two keys": (
        "profiler",
        {"start_step": 5, "end_step": 2},
        "profiler.end_step 2 is refused: start_step > end_step (with start_step 5)",
    ),
    "an optimizer of the static graph": (
        "optimizer",
        {"type": "Came"},
        "optimizer.type must be one of AdamW, Muon, not 'Came'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_names_the_key_its_line_and_what_is_allowed(case: str, tmp_path: Path) -> None:
    section, keys, message = REFUSED[case]
    file = written(tmp_path, changes={section: keys})
    with pytest.raises(ImportRefused) as refused:
        read_file(file, ImportOptions(version="2.1.0"))
    (note,) = refused.value.notes
    assert note.message.startswith(message)
    line = file.read_text(encoding="utf-8").splitlines()[int(note.where.rpartition(":")[2]) - 1]
    assert line.strip().split(":")[0] in keys


def test_a_missing_type_is_told(tmp_path: Path) -> None:
    tree = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    del tree["lr_scheduler"]["type"]
    file = tmp_path / "pynative.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    with pytest.raises(ImportRefused, match=r"lr_scheduler\.type is missing, and MindFormers 2\.1\.0 has no default"):
        read_file(file, ImportOptions(version="2.1.0"))


# name: (section, its keys, the warning); upstream trains with each of them.
IGNORED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a section that nothing reads": ("training_args", {"x": 1}, "training_args is read by nothing in the pynative"),
    "a key that the optimizer swallows": ("optimizer", {"momentums": 1}, "optimizer.momentums is read by nothing in"),
    "a parameter of another optimizer": ("optimizer", {"momentum": 0.9}, "optimizer.momentum is a parameter of Muon"),
    "what the static graph lacks": ("swap", {"enable": True}, "swap.enable has no counterpart in the static graph's"),
}


@pytest.mark.parametrize("case", IGNORED)
def test_what_has_no_effect_is_a_warning(case: str, tmp_path: Path) -> None:
    section, keys, message = IGNORED[case]
    (found,) = read_file(written(tmp_path, changes={section: keys}), ImportOptions(version="2.1.0"))
    assert len([each for each in found.warnings if each.message.startswith(message)]) == 1


def test_a_schedule_in_capitals_passes_as_the_trainer_folds_it(tmp_path: Path) -> None:
    file = written(tmp_path, changes={"parallelism": {"pipeline_parallel_schedule": "Interleaved_1F1B"}})
    assert check(read_file(file, ImportOptions(version="2.1.0"))[0].job).ok


def test_a_file_for_inference_is_not_imported_as_training(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused, match="run_mode predict is not training"):
        read_file(written(tmp_path, "run_mode: predict\n"), ImportOptions(version="2.1.0"))


def test_the_version_of_a_file_is_one_that_has_the_trainer(tmp_path: Path) -> None:
    """A version without it refuses the whole file, not one key."""
    with pytest.raises(ImportRefused) as refused:
        read_file(written(tmp_path, changes={"recompute": {"mode": "x"}, "swap": {"enable": 1}}), ImportOptions())
    assert [each.message.split()[0] for each in refused.value.notes] == ["recompute.mode", "swap.enable"]


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_catalogue_and_verdicts_are_those_of_the_source(version: str) -> None:
    root = obtain(ORIGINS["mindformers"], version)
    assert json.loads(RECORDED.read_text(encoding="utf-8"))[version] == verdicts(root)
    head, rows = pynative(root)
    text = (CATALOGUES / f"{version}-pynative.json").read_text(encoding="utf-8")
    named = {name: json.loads(text)[name] for name in ("backend", "version", "source")}
    assert render({**named, **head}, rows) == text
    # An expression over a file's ending, and one that is a regular expression: they are not conditions over keys.
    lines = {"2.1.0": 2}
    assert len(uncovered(root)) == lines.get(version, 0)


def test_the_dispatcher_is_spelt_as_the_static_graph_does(tmp_path: Path) -> None:
    keys = {"moe_token_dispatcher_type": "alltoall_deredundancy", "expert_parallel": 8, "data_parallel_shard": 4}
    (found,) = read_file(written(tmp_path, changes={"parallelism": keys}), ImportOptions(version="2.1.0"))
    assert dict(found.job.backend.args)["model.model_config.moe_token_dispatcher_type"] == "alltoall_deredundency"
