"""Jobs that were imported, over the corpus: a user's override counts, and the file is judged as its script is."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.compose import compose
from launcher.importing.imported import Imported
from launcher.importing.job_file import job_yaml
from launcher.importing.judge import judge_existing
from launcher.importing.read_argv import read_argv
from launcher.job import Job, Origin, Value, value_at, with_values
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import Translation, translate
from launcher.pipeline import judge
from launcher.rules.engine import load
from tests.effective import differing
from tools.bench.corpus import CORPORA, outcomes

FACTS = Path(os.environ.get("LAUNCH_FACTS", Path(__file__).resolve().parents[3] / "shared" / "facts"))
# CI takes every third record, LAUNCH_EVERY=1 all of them (minutes more).
EVERY = int(os.environ.get("LAUNCH_EVERY", "3"))
needs_corpus = pytest.mark.skipif(not FACTS.is_dir(), reason="no corpus here")

# Fields that people change most, with values that no script has.
OVERRIDES: dict[str, Value] = {
    "data.paths": ("/other/data",),
    "optimizer.lr": 7.7e-6,
    "optimizer.weight_decay": 0.037,
    "batch.micro_batch_size": 3,
    "batch.global_batch_size": 960,
    "batch.seq_length": 5120,
    "parallel.tp": 3,
    "parallel.pp": 3,
    "parallel.cp": 3,
    "checkpoint.save": "/other/save",
    "checkpoint.load": "/other/load",
    "checkpoint.save_interval": 77,
    "schedule.train_iters": 777,
}
# A file without a model or data of its own (a template, a part of a test) has nothing that these could change.
_NO_LENGTH = ("run_general_task.yaml", "test_build.yaml", "test_trainer_config.yaml", "finetune_telechat3_1_8b.yaml")
# Parts of upstream's own tests, which a program completes: as files they say no class, no length, or no batch.
_PARTS = ("test_build.yaml", "telechat3_train.yaml", "deepseekv3_train.yaml", "run_general_task.yaml")
# What says the same in other words: a mistake of reading is one of writing, too.
_SAME = {
    "ARG-UNKNOWN": "IMPORT",
    "ARG-VALUE": "IMPORT",
    "MAP-UNSUPPORTED": "MS-CONVERT-FORMAT MF-OFFSET-SUM",
    "PAR-PP-LAYERS": "MF-OFFSET-SUM",
}


def imports(backend: str) -> Iterator[tuple[str, Imported]]:
    name = next(name for name, (each, _) in CORPORA.items() if each == backend)
    for outcome in list(outcomes(FACTS / name, *CORPORA[name]))[::EVERY]:
        if outcome.imported is not None:
            yield outcome.path, outcome.imported


def composed(imported: Imported, folder: Path) -> Job:
    (folder / "job.yaml").write_text(job_yaml(imported, "x", with_version=True), encoding="utf-8")
    return compose([f"+job={folder}/job.yaml"])


def translated(job: Job, imported: Imported) -> Translation:
    backend = get_backend(imported.backend)
    return translate(backend.prepare(job, imported.version), backend, imported.version)


def arguments(translation: Translation) -> dict[str, Value]:
    return {arg.flag: arg.value for arg in translation.native}


@pytest.mark.sample(keep=1)
@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["megatron", "mindspeed", "mindformers"])
def test_an_override_of_an_imported_job_counts(backend: str, tmp_path: Path) -> None:
    bad = []
    for path, imported in imports(backend):
        job = composed(imported, tmp_path)
        before = translated(job, imported)
        for field, value in OVERRIDES.items():
            changed = with_values(job, {field: value}, Origin(kind="override", where=field))
            after = translated(changed, imported)
            if any(each.rule == "ARG-CONTRADICTION" for each in after.findings):
                bad.append(f"{path}: {field} contradicts")
            same = value_at(job, field) == value or (field == "batch.seq_length" and path.endswith(_NO_LENGTH))
            if same or differing(job, imported.backend, imported.version, arguments(before), arguments(after)):
                continue
            if not any(field in each.fields for each in judge(changed, fixes=False).findings):
                bad.append(f"{path}: {field} changes nothing, and nothing is told")
    assert not bad


@pytest.mark.sample(keep=1)
@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["megatron", "mindspeed", "mindformers"])
def test_the_file_of_an_import_is_refused_only_where_its_script_is(backend: str, tmp_path: Path) -> None:
    load(get_backend(backend).rules)
    bad = []
    for path, imported in imports(backend):
        before = {each.rule for each in judge_existing(imported).findings if each.severity == "error"}
        for each in judge(composed(imported, tmp_path), fixes=False).findings:
            alike = {each.rule, *_SAME.get(each.rule, "").split()}
            if each.severity == "error" and not alike & before and not path.endswith(_PARTS):
                bad.append(f"{path}: {each.rule} {each.message}")
    assert not bad


_SHAPE = "--num-layers 80 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
NPU = f"torchrun --nproc_per_node 8 pretrain_gpt.py {_SHAPE} --micro-batch-size 1 --lr 1e-4 --train-iters 10"


def test_an_interval_that_the_import_passes_through_gives_way(tmp_path: Path) -> None:
    """Without a folder nothing is saved: the import keeps the interval as it is, until the user says one."""
    imported = read_argv([*NPU.split(), "--save-interval", "1000"], backend="mindspeed")
    assert imported.job.backend.args["save-interval"] == 1000
    composed(imported, tmp_path)
    file = f"+job={tmp_path}/job.yaml"
    kept, typed, both = (
        judge(compose([file, *args]), fixes=False)
        for args in (
            [],
            ["checkpoint.save_interval=77"],
            ["checkpoint.save_interval=77", "backend.args.save-interval=5"],
        )
    )
    assert [each.native.get("save-interval") for each in (kept, typed)] == [1000, 77]
    reported = next(each for each in typed.findings if each.rule == "ARG-REPLACED")
    assert reported.severity == "change"
    assert "is replaced by checkpoint.save_interval=77" in reported.message
    assert "ARG-CONTRADICTION" in {each.rule for each in both.findings}


LISTS = {
    "first and last stage": ("21,20,20,19", (21, 19), None, (1, 0, 0, -1)),
    "every stage its own": ("17,20,22,21", (None, None), "Et*17|t*20|t*22|t*21L", (-3, 0, 2, 1)),
}


@pytest.mark.parametrize("version", ["26.1.0", "2.1.0"])
@pytest.mark.parametrize("case", LISTS.values(), ids=LISTS.keys())
def test_layers_per_stage_go_to_other_backends_and_come_back(
    case: tuple[str, tuple[int | None, int | None], str | None, tuple[int, ...]], version: str, tmp_path: Path
) -> None:
    text, ends, layout, offset = case
    args = [*NPU.split(), "--pipeline-model-parallel-size", "4", "--num-layer-list", text]
    imported = read_argv(args, backend="mindspeed", version=version)
    parallel = imported.job.parallel
    assert ((parallel.first_stage_layers, parallel.last_stage_layers), parallel.layout) == (ends, layout)
    composed(imported, tmp_path)
    file = f"+job={tmp_path}/job.yaml"
    back = judge(compose([file]), fixes=False).native
    assert (back.get("num-layer-list"), back.has("pipeline-model-parallel-layout")) == (text, False)
    plain = judge(compose([file, "backend=megatron_lm"]), fixes=False).native
    assert plain.get("pipeline-model-parallel-layout") == layout
    graph = judge(compose([file, "backend=mindformers"]), fixes=False).native
    assert graph.get("model.model_config.offset") == offset
