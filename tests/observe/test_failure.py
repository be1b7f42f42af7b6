"""The first rank's error out of many, and the field to change."""

import os
from pathlib import Path

import pytest

from launcher.executors.record import Record, write_exit
from launcher.job import field_paths
from launcher.observe.failure import first_failure
from launcher.observe.reasons import REASONS


def record(folder: Path, nodes: int = 2, **more: object) -> Record:
    known = {"id": "x-1", "executor": "ssh", "host": "here", "user": "me", "pid": 1, "start": 1, "submitted": ""}
    return Record(folder=str(folder), nodes=nodes, devices_per_node=2, **{**known, **more})  # type: ignore[arg-type]


def log(folder: Path, node: int, text: str, code: int, *, after: float = 0, stopped: bool = False) -> None:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "logs" / f"node{node}.log").write_text(text)
    write_exit(folder, 0, node, code, stopped=stopped)
    path = folder / "run" / "exits" / f"0.{node}"
    os.utime(path, (1_000_000 + after, 1_000_000 + after))


LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:31000\n"
SUMMARY = """
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_13:30:01
  host      : n2
  rank      : {rank} (local_rank: 1)
  exitcode  : 1 (pid: 4711)
"""


def test_a_consequence_that_came_first_is_not_the_reason(tmp_path):
    log(tmp_path, 0, LOST + SUMMARY.format(rank=0), 1)
    log(tmp_path, 1, "[rank3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n" + LOST, 1, after=1)
    failure = first_failure(record(tmp_path))
    assert failure is not None
    assert (failure.rank, failure.node, failure.reason) == (3, 1, "device-out-of-memory")
    assert failure.lines()[0].startswith("failed first: rank 3 on ")


def test_a_node_that_was_asked_to_stop_is_not_the_first(tmp_path):
    log(tmp_path, 0, "", 143, stopped=True)
    log(tmp_path, 1, "AssertionError: heads\n", 1, after=1)
    failure = first_failure(record(tmp_path))
    assert failure is not None
    assert (failure.node, failure.reason, failure.message) == (1, "assertion", "AssertionError: heads")


def test_without_a_line_the_rank_comes_from_the_summary(tmp_path):
    log(tmp_path, 1, SUMMARY.format(rank=3), 1)
    failure = first_failure(record(tmp_path))
    assert failure is not None
    assert (failure.rank, failure.code, failure.reason) == (3, 1, "")


def test_a_source_line_of_a_traceback_is_not_the_reason(tmp_path):
    text = "[rank0]:     raise ValueError(\n[rank0]: ValueError: model type 'qwen25' is not supported\n"
    log(tmp_path, 0, text, 1)
    failure = first_failure(record(tmp_path, 1))
    assert failure.message == "ValueError: model type 'qwen25' is not supported"


def test_only_the_last_attempt_counts(tmp_path):
    text = (
        "CUDA out of memory\nlaunch: attempt 0 failed (exit code 1); restart 1 of 1\nModuleNotFoundError: No module\n"
    )
    log(tmp_path, 0, text, 1)
    failure = first_failure(record(tmp_path))
    assert failure is not None
    assert failure.reason == "missing-module"


def test_ranks_with_files_of_their_own_are_read(tmp_path):
    log(tmp_path, 0, "msrun: a worker failed\n", 1)
    (tmp_path / "msrun_log").mkdir()
    (tmp_path / "msrun_log" / "worker_1.log").write_text("RuntimeError: EI0002: notify wait timeout\n")
    (tmp_path / "msrun_log" / "worker_0.log").write_text("ValueError: the data has 3 columns\n")
    failure = first_failure(record(tmp_path, 1, rank_log="msrun_log/worker_{rank}.log"))
    assert failure is not None
    assert (failure.rank, failure.message) == (0, "ValueError: the data has 3 columns")


def test_a_run_without_failure_has_none(tmp_path):
    log(tmp_path, 0, "CUDA out of memory, or so a comment says\n", 0)
    assert first_failure(record(tmp_path)) is None


LINES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB": "device-out-of-memory",
    "RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB": "device-out-of-memory",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=3.0": "host-out-of-memory",
    "OSError: [Errno 28] No space left on device": "disk-full",
    "torch.distributed.DistNetworkError: The server socket has failed to listen: EADDRINUSE": "port-taken",
    "[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)": "collective-timeout",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'": "missing-file",
    "ModuleNotFoundError: No module named 'transformer_engine'": "missing-module",
    "pretrain_gpt.py: error: unrecognized arguments: --nonsense": "unknown-argument",
    "AssertionError: num_attention_heads must be divisible": "assertion",
    "RuntimeError: CUDA error: an illegal memory access was encountered": "device-fault",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed": "network",
}


def test_a_loss_that_is_not_a_number_is_first_looked_for_in_its_mask() -> None:
    (reason,) = [reason for reason in REASONS if reason.name == "not-a-number"]
    assert reason.fields[0].startswith("tokenizer.type or data.eod_mask_loss")


@pytest.mark.parametrize("line", LINES, ids=LINES.values())
def test_a_line_names_its_reason(line):
    first = next(reason for reason in REASONS if reason.pattern.search(line))
    assert first.name == LINES[line]


def test_every_field_that_is_named_is_a_field():
    known = set(field_paths())
    for reason in REASONS:
        assert reason.source, reason.name
        for text in reason.fields:
            for arg in text.split(" (")[0].split(" or "):
                path = arg.split("=")[0]
                assert path in known or path.startswith("backend.env."), (reason.name, path)
