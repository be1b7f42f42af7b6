"""What runs beside training, and data, answers and steps: each field in every backend's words, back, or refused."""

from typing import Any

import pytest

from launcher.api import check, import_argv
from launcher.importing.read_command import ImportOptions
from launcher.importing.read_file import read_file
from launcher.job import Job, value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import read_back
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.mapping.native_only_index import native_only_index_of
from launcher.rules.effects import meaning
from launcher.rules.native import effective_of
from tests.backends.small_jobs import LM, LM_12, MF, MF_OLD, MS, MS_OLD, SWIFT, SWIFT_3, SWIFT_36, job_of, written

Where = tuple[str, str]
MEGATRON_BACKENDS = (LM, LM_12, MS, MS_OLD)
LATER = (LM, LM_12, MS)
# The loop and the data sets that are Megatron-LM's own.
ITS_OWN = (LM, LM_12)


def everywhere(places: tuple[Where, ...], flag: str, value: Any) -> dict[Where, tuple[str, Any]]:
    """Return the same argument for several backends."""
    return dict.fromkeys(places, (flag, value))


# Field, value -> on which backend it is which argument.
FIELDS: list[tuple[str, Any, dict[Where, tuple[str, Any]]]] = [
    ("batch.decrease_batch_size_if_needed", True, everywhere(LATER, "decrease-batch-size-if-needed", True)),
    ("schedule.skip_train", True, everywhere(MEGATRON_BACKENDS, "skip-train", True)),
    ("schedule.sync_interval", 5, everywhere(ITS_OWN, "train-sync-interval", 5)),
    (
        "kernels.manual_gc_eval",
        False,
        {**everywhere(MEGATRON_BACKENDS, "no-manual-gc-eval", True), SWIFT: ("manual_gc_eval", False)},
    ),
    ("data.split_paths_file", "paths.json", everywhere(ITS_OWN, "per-split-data-args-path", "paths.json")),
    (
        "data.object_storage_cache",
        "/cache",
        {
            LM: ("object-storage-cache-path", "/cache"),
            LM_12: ("s3-cache-path", "/cache"),
            **everywhere((MF, MF_OLD), "train_dataset.data_loader.config.s3_cache_path", "/cache"),
        },
    ),
    (
        "data.shuffle_buffer_size",
        100,
        {
            **everywhere((SWIFT, SWIFT_3, SWIFT_36), "shuffle_buffer_size", 100),
            **everywhere((MF, MF_OLD), "train_dataset.data_loader.shuffle_buffer_size", 100),
        },
    ),
    (
        "data.enable_thinking",
        False,
        {**everywhere((SWIFT, SWIFT_3), "enable_thinking", False), MS: ("enable-thinking", "false")},
    ),
    ("logging.timer_barrier", False, everywhere(MEGATRON_BACKENDS, "no-barrier-with-level-1-timing", True)),
    ("logging.config_dir", "/out", everywhere(LATER, "config-logger-dir", "/out")),
    ("logging.one_logger.enabled", False, everywhere(MEGATRON_BACKENDS, "no-one-logger", True)),
    ("logging.one_logger.project", "p", everywhere(MEGATRON_BACKENDS, "one-logger-project", "p")),
    ("logging.one_logger.name", "n", everywhere(MEGATRON_BACKENDS, "one-logger-run-name", "n")),
    ("logging.one_logger.asynchronous", True, everywhere(MEGATRON_BACKENDS, "one-logger-async", True)),
    ("logging.one_logger.app_tag", "t", everywhere(MEGATRON_BACKENDS, "app-tag-run-name", "t")),
    ("logging.one_logger.app_version", "1.0.0", everywhere(MEGATRON_BACKENDS, "app-tag-run-version", "1.0.0")),
    ("logging.straggler.enabled", True, everywhere(ITS_OWN, "log-straggler", True)),
    ("logging.straggler.at_start", False, everywhere(ITS_OWN, "disable-straggler-on-startup", True)),
    ("logging.straggler.port", 6000, everywhere(ITS_OWN, "straggler-ctrlr-port", 6000)),
    ("logging.straggler.count", 2, everywhere(ITS_OWN, "straggler-minmax-count", 2)),
    ("profiler.workload_inspector", True, everywhere(ITS_OWN, "run-workload-inspector-server", True)),
    (
        "profiler.level",
        1,
        {**everywhere((MS, MS_OLD), "profile-level", "level1"), **everywhere((MF, MF_OLD), "profiler_level", 1)},
    ),
    ("fault_tolerance.rejected_results", "r.txt", everywhere(LATER, "result-rejected-tracker-filename", "r.txt")),
    ("fault_tolerance.error_injection.rate", 10, everywhere(LATER, "error-injection-rate", 10)),
    (
        "fault_tolerance.error_injection.type",
        "persistent_error",
        everywhere(LATER, "error-injection-type", "persistent_error"),
    ),
    ("fault_tolerance.test_mode", True, everywhere(MEGATRON_BACKENDS, "test-mode", True)),
    ("fault_tolerance.ft_package", True, everywhere(ITS_OWN, "enable-ft-package", True)),
    ("fault_tolerance.ft_timeouts", True, everywhere(ITS_OWN, "calc-ft-timeouts", True)),
    ("fault_tolerance.autoresume", True, everywhere(MEGATRON_BACKENDS, "adlr-autoresume", True)),
    ("fault_tolerance.autoresume_interval", 7, everywhere(MEGATRON_BACKENDS, "adlr-autoresume-interval", 7)),
    ("optimizer.qk_clip", True, {LM: ("qk-clip", True)}),
    ("optimizer.qk_clip_alpha", 0.4, {LM: ("qk-clip-alpha", 0.4)}),
    ("optimizer.qk_clip_threshold", 50.0, {LM: ("qk-clip-threshold", 50.0)}),
    (
        "kernels.sparse_mode",
        2,
        {**everywhere((MS, MS_OLD), "sparse-mode", 2), MF: ("model.model_config.sparse_mode", 2)},
    ),
    ("model.sliding_window", 256, {LM: ("window-size", "(255,0)"), MF: ("model.model_config.window_size", (255, 0))}),
    (
        "generation.temperature",
        0.5,
        {
            **everywhere((SWIFT, SWIFT_3, SWIFT_36), "temperature", 0.5),
            **everywhere((MS, MS_OLD), "temperature", 0.5),
        },
    ),
    ("generation.top_k", 5, {SWIFT: ("top_k", 5), MS: ("top-k", 5), MS_OLD: ("top-k", 5)}),
    ("generation.top_p", 0.5, {SWIFT_36: ("top_p", 0.5), MS: ("top-p", 0.5)}),
    ("generation.repetition_penalty", 1.1, {SWIFT: ("repetition_penalty", 1.1)}),
    ("generation.max_new_tokens", 64, {SWIFT: ("max_new_tokens", 64), MS_OLD: ("max-new-tokens", 64)}),
    ("generation.max_length", 64, {MS: ("max-length", 64), MS_OLD: ("max-length", 64)}),
    ("generation.do_sample", True, {MS_OLD: ("do-sample", True)}),
    ("task.reward_models", ("a", "b"), {SWIFT: ("reward_model", ("a", "b")), SWIFT_3: ("reward_model", ("a", "b"))}),
]
CASES = [(path, value, where, wanted) for path, value, places in FIELDS for where, wanted in places.items()]


@pytest.mark.parametrize(
    ("path", "value", "where", "wanted"), CASES, ids=[f"{path}-{'-'.join(where)}" for path, _, where, _ in CASES]
)
def test_a_field_is_the_same_setting_everywhere(path: str, value: Any, where: Where, wanted: Any) -> None:
    given, refused = written(job_of(**{path.replace(".", "__"): value}), where)
    assert given[wanted[0]] == wanted[1]
    assert path not in refused
    assert value_at(read_back(given, get_backend(where[0]), where[1]).job, path) == value


REFUSED: list[tuple[str, Any, dict[Where, str]]] = [
    ("batch.decrease_batch_size_if_needed", True, {MS_OLD: "error", SWIFT: "error", MF: "error"}),
    ("schedule.skip_train", True, {SWIFT: "error", MF: "error"}),
    ("schedule.sync_interval", 5, {MS: "warning", MS_OLD: "warning", SWIFT: "warning", MF: "warning"}),
    ("data.paths_file", "p.txt", {MS: "error", MS_OLD: "error", SWIFT: "error", MF: "error"}),
    ("data.object_storage_cache", "/cache", {MS: "error", MS_OLD: "error", SWIFT: "error"}),
    ("data.split_paths_file", "p.json", {MS: "error", MS_OLD: "error", SWIFT: "error", MF: "error"}),
    ("data.enable_thinking", False, {LM: "error", MS_OLD: "error", SWIFT_36: "error"}),
    ("logging.straggler.enabled", True, {MS: "warning", MS_OLD: "warning", SWIFT: "warning", MF: "warning"}),
    ("checkpoint.non_persistent.save_interval", 10, {MS: "warning", MS_OLD: "warning"}),
    ("fault_tolerance.weight_hash_interval", 20, {MS: "warning", MS_OLD: "warning"}),
    ("fault_tolerance.ft_package", True, {MS: "warning", MS_OLD: "warning", SWIFT: "warning", MF: "warning"}),
    ("optimizer.qk_clip", True, {LM_12: "error", MS: "error", SWIFT: "error", MF: "error"}),
    ("kernels.sparse_mode", 4, {LM: "error", SWIFT: "error"}),
    ("profiler.level", 2, {LM: "warning"}),
    ("task.reward_models", ("a",), {LM: "error", MS: "error", SWIFT_36: "error", MF: "error"}),
    ("model.sliding_window", 256, {MF_OLD: "error"}),
]


@pytest.mark.parametrize(("path", "value", "verdicts"), REFUSED, ids=[path for path, _, _ in REFUSED])
def test_what_a_backend_cannot_express_is_reported(path: str, value: Any, verdicts: dict[Where, str]) -> None:
    for where, severity in verdicts.items():
        _, refused = written(job_of(**{path.replace(".", "__"): value}), where)
        assert refused.get(path) == severity, where


@pytest.mark.parametrize(("written_as", "severity"), [("messages", "error"), ("tokenized", None)])
def test_how_chats_are_written_is_reported_where_training_writes_them(written_as: str, severity: str | None) -> None:
    _, refused = written(job_of(data__format=written_as, data__enable_thinking=False), MF)
    assert refused.get("data.enable_thinking") == severity


@pytest.mark.parametrize("where", [LM_12, MS, SWIFT, MF], ids=str)
def test_numbers_of_a_switch_that_is_off_are_not_missed(where: Where) -> None:
    _, refused = written(job_of(optimizer__qk_clip_threshold=50.0), where)
    assert "optimizer.qk_clip_threshold" not in refused


@pytest.mark.parametrize("where", MEGATRON_BACKENDS, ids=str)
def test_sizes_of_an_encoder_are_those_of_a_language_model(where: Where) -> None:
    """Its parser gives num_layers and seq_length these values (arguments.py:787-827 @core_v0.16.1)."""
    backend = get_backend(where[0])
    found = read_back({"encoder-num-layers": 4, "encoder-seq-length": 128}, backend, where[1])
    assert (found.job.model.num_hidden_layers, found.job.batch.seq_length) == (4, 128)
    assert not [left.flag for left in found.unmapped if left.flag.startswith("encoder")]
    both = {"encoder-seq-length": 128, "seq-length": 64}
    given = NativeArgs(backend=where[0], version=where[1], args=(NativeArg(flag="encoder-seq-length", value=128),))
    assert effective_of(Job(), backend, where[1], given, as_written=True).read()["seq_length"] == 128
    assert "encoder-seq-length" in {left.flag for left in read_back(both, backend, where[1]).unmapped}


@pytest.mark.parametrize("names", [("encoder-num-layers", "seq-length"), ("num-layers", "encoder-seq-length")])
@pytest.mark.parametrize("where", [LM_12, MS], ids=str)
def test_the_older_name_of_a_size_alone_is_not_given_twice(where: Where, names: tuple[str, str]) -> None:
    layers, length = names
    argv = [f"--{layers}", "4", f"--{length}", "128"]
    one, both = (
        {finding.rule for finding in check(import_argv(words, backend=where[0], version=where[1]))}
        for words in (argv, [*argv, "--num-layers", "4", "--seq-length", "128"])
    )
    assert not one & {"MLM-LAYERS-TWICE", "MLM-SEQ-TWICE"}
    assert len(both & {"MLM-LAYERS-TWICE", "MLM-SEQ-TWICE"}) == 1


@pytest.mark.parametrize(
    ("argument", "wanted"), [("true", True), ("False", False), ("none", None)], ids=["with", "without", "as it is"]
)
def test_thinking_is_read_from_the_words_of_the_parser(argument: str, wanted: bool | None) -> None:
    found = read_back({"enable-thinking": argument}, get_backend("mindspeed"), MS[1])
    assert found.job.data.enable_thinking is wanted
    assert not found.unmapped


GONE = {
    "batch-size 4": "--micro-batch-size",
    "warmup 1": "--lr-warmup-fraction",
    "model-parallel-size 2": "--tensor-model-parallel-size",
    "checkpoint-activations": "--recompute-granularity",
}


@pytest.mark.parametrize(("given", "instead"), GONE.items(), ids=GONE)
def test_a_name_that_its_own_parser_refuses_is_reported_with_its_successor(given: str, instead: str, tmp_path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64 --micro-batch-size 1 --{given}\n")
    (found,) = read_file(script, ImportOptions(backend="megatron_lm"))
    (note,) = [each for each in found.warnings if given.split()[0] in each.message]
    assert "refused by its own parser" in note.message
    assert note.works == (instead,)


def test_what_no_training_reads_is_kept_with_a_reason() -> None:
    left = read_back({"mask-prob": 0.2}, get_backend("megatron_lm"), LM[1]).unmapped
    assert "mask-prob" in [arg.flag for arg in left]
    row = native_only_index_of("megatron_lm").reason("mask_prob")
    assert row is not None
    assert "BERT" in row.no_field
    assert native_only_index_of("megatron_lm").reason("num-layers") is None


@pytest.mark.parametrize(
    ("task", "wanted"), [("sft", None), ("grpo", 0.9)], ids=["no answers are drawn", "answers are drawn"]
)
def test_a_default_is_reported_where_something_reads_it(task: str, wanted: float | None) -> None:
    reported = meaning(job_of(task__type=task), get_backend(SWIFT[0]), SWIFT[1]).fields
    assert reported["generation.temperature"].value == wanted
