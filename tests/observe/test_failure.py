"""The first rank's reason out of many, by what is left of a run: exits, logs, error files, the words of its queue."""

import json
import os
from pathlib import Path

import pytest

from launcher.executors.end_reasons import HUNG, NO_ITERATION
from launcher.executors.record import Record, write_causes, write_exit, write_status
from launcher.observe.failure import Failure, first_failure
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


def failure(folder: Path, nodes: int = 2, **more: object) -> Failure:
    found = first_failure(record(folder, nodes, **more))
    assert found is not None
    return found


LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:31000\n"
SUMMARY = """
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_13:30:01
  host      : n2
  rank      : {rank} (local_rank: 1)
  exitcode  : {code} (pid: 4711)
"""


def test_a_consequence_that_came_first_is_not_the_reason(tmp_path):
    log(tmp_path, 0, LOST + SUMMARY.format(rank=0, code=1), 1)
    log(tmp_path, 1, "[rank3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n" + LOST, 1, after=1)
    found = failure(tmp_path)
    assert (found.rank, found.node, found.reason) == (3, 1, "device-out-of-memory")
    assert found.evidence == f"{tmp_path}/logs/node1.log:1"
    assert found.lines()[0].startswith("failed first: rank 3 on ")


def test_a_node_that_was_asked_to_stop_is_not_the_first(tmp_path):
    log(tmp_path, 0, "", 143, stopped=True)
    log(tmp_path, 1, "AssertionError: heads\n", 1, after=1)
    found = failure(tmp_path)
    assert (found.node, found.reason, found.message) == (1, "assertion", "AssertionError: heads")


def test_without_a_line_the_rank_comes_from_the_summary_and_the_reason_is_unknown(tmp_path):
    log(tmp_path, 1, SUMMARY.format(rank=3, code=1), 1)
    found = failure(tmp_path)
    assert (found.rank, found.code, found.reason) == (3, 1, "")
    assert "unknown reason" in found.lines()[0]


def test_where_the_reason_is_unknown_the_last_error_that_the_rank_wrote_is_shown(tmp_path):
    odd = "[rank3] ERROR: flux capacitor failed\n[rank3] WARNING: 3 errors\n[rank2] ERROR: something else\n"
    log(tmp_path, 1, odd + SUMMARY.format(rank=3, code=1), 1)
    found = failure(tmp_path)
    assert (found.rank, found.reason, found.message) == (3, "", "ERROR: flux capacitor failed")
    assert found.evidence == f"{tmp_path}/logs/node1.log:1"
    assert "unknown reason" in found.lines()[0]
    assert found.lines()[1] == "  the last error in its log: ERROR: flux capacitor failed"


def test_a_rank_that_ended_without_a_word_is_not_explained_by_what_others_raised(tmp_path):
    text = f"[rank2] ValueError: something odd\n[rank2] {LOST}[rank3] step 3\n" + SUMMARY.format(rank=3, code=1)
    log(tmp_path, 1, text, 1)
    assert (failure(tmp_path).rank, failure(tmp_path).reason) == (3, "")


def test_a_rank_that_lost_its_peer_gives_way_to_the_one_that_raised(tmp_path):
    raised = "[rank3] Traceback (most recent call last):\n[rank3]   File \"x\", line 1\n[rank3] KeyError: 'layers'\n"
    log(tmp_path, 1, f"[rank2] {LOST}{raised}" + SUMMARY.format(rank=2, code=1), 1)
    found = failure(tmp_path)
    assert (found.rank, found.reason, found.message) == (3, "exception", "KeyError: 'layers'")


def test_a_rank_that_was_killed_is_the_reason_and_not_what_the_others_saw(tmp_path):
    log(tmp_path, 1, f"[rank2] {LOST}" + SUMMARY.format(rank=3, code=-9), 1)
    assert (failure(tmp_path).rank, failure(tmp_path).reason) == (3, "killed")


OOM_COUNTED = "cgroup: oom_kill 1 (/sys/fs/cgroup/memory.events)"
FELL_OFF = "[ 12.5] NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
KERNEL = "[ 12.5] Out of memory: Killed process 7 (python) UID:0"
WARNING = "[rank0]:[W326 09:37:44.7 ProcessGroupNCCL.cpp:1487] Warning: destroy_process_group() was not called"
EVIDENCE = {
    "killed and counted": (137, "", [OOM_COUNTED], "", "host-out-of-memory"),
    "counted, but not killed": (1, "ValueError: x", [OOM_COUNTED], "", "exception"),
    "killed, the kernel says why": (137, "", [KERNEL], "", "host-out-of-memory"),
    "the kernel killed another program": (
        1,
        "ModuleNotFoundError: No module named 'x'",
        [KERNEL],
        "",
        "missing-module",
    ),
    "a device fell off": (1, "RuntimeError: CUDA error: unknown error", [FELL_OFF], "", "device-fault"),
    "a device fell off, and a fault of the program": (1, "KeyError: 'x'", [FELL_OFF], "", "exception"),
    "the application's own Xid": (
        1,
        "",
        ["[ 12.5] NVRM: Xid (PCI:0000:02:00): 31, pid=7, name=python"],
        "",
        "device-kernel",
    ),
    "the pod's reason": (137, "", ["OOMKilled"], "", "host-out-of-memory"),
    "the queue's word": (137, "", [], "Slurm: OUT_OF_MEMORY", "host-out-of-memory"),
    "the queue's time limit": (143, "", [], "Slurm: TIMEOUT", "time-limit"),
    "killed, nobody says by whom": (137, "", [], "Slurm: FAILED NonZeroExitCode", "killed"),
    "segmentation fault": (139, "", [], "", "segmentation-fault"),
    "aborted": (134, "", [], "", "aborted"),
    "asked to end": (143, "", [], "", "terminated"),
    "no such program": (127, "bash: line 1: torchrun: command not found", [], "", "missing-program"),
    "deepspeed's word": (1, "[ERROR] [launch.py:434:sigkill_handler] exits with return code = -9", [], "", "killed"),
    "255 says nothing": (255, "", [], "", ""),
    "benign lines": (1, WARNING, [], "", ""),
}


@pytest.mark.parametrize("name", EVIDENCE)
def test_evidence_beside_the_log(name, tmp_path):
    code, text, causes, queue, reason = EVIDENCE[name]
    log(tmp_path, 0, text + "\n", code)
    write_causes(tmp_path, 0, 0, causes)
    write_status(tmp_path, "failed", code, why=queue)
    assert failure(tmp_path, 1).reason == reason


def test_a_connection_that_broke_is_said_of_its_node(tmp_path):
    log(tmp_path, 1, "step 3\n", 255)
    path = tmp_path / "run" / "exits" / "0.1"
    path.write_text("255 n2 lost\n")
    found = failure(tmp_path)
    assert (found.node, found.reason, found.rank) == (1, "node-lost", None)


def test_what_the_queue_says_stands_alone_where_all_nodes_were_asked_to_end(tmp_path):
    log(tmp_path, 0, "", 143, stopped=True)
    write_status(tmp_path, "failed", 143)
    found = first_failure(record(tmp_path), "Slurm: TIMEOUT")
    assert found is not None
    assert (found.reason, found.rank, found.node) == ("time-limit", None, None)
    assert found.lines()[0].startswith("failed first: the job, exit code 143: the time limit of the queue")


@pytest.mark.parametrize("why", ["hung", HUNG % (NO_ITERATION % ("first", 9))])
def test_a_hang_is_a_reason(tmp_path, why):
    log(tmp_path, 0, "", 143, stopped=True)
    write_status(tmp_path, "failed", 124, why=why)
    assert failure(tmp_path).reason == "hang"


def test_a_hang_that_a_pod_ended_is_in_its_log(tmp_path):
    log(tmp_path, 0, "{'iteration': '6/10'}\nlaunch: no new iteration for 4 s: the ranks are ended\n", 124)
    write_status(tmp_path, "failed", 124, why="BackoffLimitExceeded: Job has reached the specified backoff limit")
    found = failure(tmp_path)
    assert (found.reason, found.evidence.rpartition(":")[2]) == ("hang", "2")


def error_file(folder: Path, rank: int, text: str, at: int) -> None:
    place = folder / "logs" / "ranks" / "node1" / "none_x" / "attempt_0" / str(rank)
    place.mkdir(parents=True)
    message = {"message": text, "extraInfo": {"py_callstack": f"Traceback\n{text}", "timestamp": str(at)}}
    (place / "error.json").write_text(json.dumps({"message": message}))


def test_the_earliest_error_file_is_of_the_first_rank(tmp_path):
    log(tmp_path, 1, "nothing\n", 1)
    error_file(tmp_path, 0, "RuntimeError: Connection reset by peer", 1000)
    error_file(tmp_path, 1, "FileNotFoundError: [Errno 2] No such file or directory: 'x.idx'", 1001)
    found = failure(tmp_path)
    assert (found.rank, found.reason) == (3, "missing-file")
    assert found.evidence.endswith("attempt_0/1/error.json:1")


def test_a_broken_error_file_is_no_error_file(tmp_path):
    log(tmp_path, 1, "[rank3] KeyError: 'x'\n", 1)
    error_file(tmp_path, 0, "x", 1000)
    (tmp_path / "logs/ranks/node1/none_x/attempt_0/0/error.json").write_text("{")
    assert failure(tmp_path).reason == "exception"


CHAINED = """[rank1]: Traceback (most recent call last):
[rank1]:   File "a.py", line 1, in f
[rank1]:     open(path)
[rank1]: FileNotFoundError: [Errno 2] No such file or directory: '/data/x.bin'

[rank1]: The above exception was the direct cause of the following exception:

[rank1]: Traceback (most recent call last):
[rank1]:   File "b.py", line 1, in g
[rank1]:     raise my.package.DataSetFailed(path) from error
[rank1]: my.package.DataSetFailed: x
"""


def test_an_earlier_exception_of_a_chain_tells_more(tmp_path):
    log(tmp_path, 0, CHAINED, 1)
    found = failure(tmp_path, 1)
    assert (found.rank, found.reason, found.evidence[-2:]) == (1, "missing-file", ":4")


def test_a_dotted_exception_of_any_name_is_one(tmp_path):
    log(tmp_path, 0, CHAINED.replace("FileNotFoundError: [Errno 2] No such file or directory", "KeyError"), 1)
    assert failure(tmp_path, 1).message == "my.package.DataSetFailed: x"


@pytest.mark.parametrize("host", ["", "n1: ", "2026-11-20T13:30:01 "])
@pytest.mark.parametrize(
    "text, reason",
    [
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
            "checkpoint-broken",
        ),
        ("RuntimeError: Error(s) in loading state_dict for GPTModel:", "checkpoint-mismatch"),
        ("OSError: Error no file named model.safetensors", "missing-file"),
    ],
)
def test_a_type_before_a_text_that_begins_with_error_is_no_host(tmp_path, host: str, text: str, reason: str):
    log(
        tmp_path,
        1,
        "".join(f"{host}{line}\n" for line in ("Traceback (most recent call last):", '  File "x", line 1', text)),
        1,
    )
    assert (failure(tmp_path).reason, failure(tmp_path).message) == (reason, text)


def test_a_source_line_of_a_traceback_is_not_the_reason(tmp_path):
    text = "[rank0]:     raise ValueError(\n[rank0]: ValueError: model type 'qwen25' is not supported\n"
    log(tmp_path, 0, text, 1)
    assert failure(tmp_path, 1).message == "ValueError: model type 'qwen25' is not supported"


TRACEBACK = 'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: [Errno 28] No space left on device\n'


def test_an_exception_after_which_the_rank_went_on_training_is_not_the_reason(tmp_path):
    log(tmp_path, 0, f"{TRACEBACK} iteration 5/ 10\n[rank1] ready\n", 1)
    assert failure(tmp_path, 1, iteration_line=r"iteration +\d+").reason == ""


def test_a_warning_with_a_traceback_counts_only_if_nothing_follows(tmp_path):
    log(tmp_path, 0, f"WARNING: saving failed, retrying\n{TRACEBACK}saved\n", 1)
    assert failure(tmp_path, 1).reason == ""
    log(tmp_path, 0, f"UserWarning: this is slow\n{TRACEBACK}", 1)
    assert failure(tmp_path, 1).reason == "disk-full"


def test_a_warning_long_before_does_not_hide_an_exception(tmp_path):
    log(tmp_path, 0, f"WARNING: odd\nstep 1\n{TRACEBACK}step 2\n", 1)
    assert failure(tmp_path, 1).reason == "disk-full"


def test_only_the_last_attempt_counts(tmp_path):
    text = (
        "CUDA out of memory\nlaunch: attempt 0 failed (exit code 1); restart 1 of 1\nModuleNotFoundError: No module\n"
    )
    log(tmp_path, 0, text, 1)
    found = failure(tmp_path)
    assert (found.reason, found.evidence) == ("missing-module", f"{tmp_path}/logs/node0.log:3")


@pytest.mark.slow
def test_the_line_is_counted_from_the_beginning_of_a_long_log(tmp_path):
    log(tmp_path, 0, "step\n" * 1_000_000 + "MemoryError\n", 1)
    found = failure(tmp_path, 1)
    assert (found.reason, found.evidence) == ("host-out-of-memory", f"{tmp_path}/logs/node0.log:1000001")


def test_ranks_with_files_of_their_own_are_read(tmp_path):
    log(tmp_path, 0, "msrun: a worker failed\n", 1)
    (tmp_path / "msrun_log").mkdir()
    (tmp_path / "msrun_log" / "worker_1.log").write_text("RuntimeError: EI0002: notify wait timeout\n")
    (tmp_path / "msrun_log" / "worker_0.log").write_text("ValueError: the data has 3 columns\n")
    found = failure(tmp_path, 1, rank_log="msrun_log/worker_{rank}.log")
    assert (found.rank, found.message) == (0, "ValueError: the data has 3 columns")
    assert found.evidence == f"{tmp_path}/msrun_log/worker_0.log:1"


def test_a_run_without_failure_has_none(tmp_path):
    log(tmp_path, 0, "CUDA out of memory, or so a comment says\n", 0)
    assert first_failure(record(tmp_path)) is None


def test_secrets_are_not_quoted(tmp_path):
    log(tmp_path, 0, "ValueError: bad token hf_abcdefghijklmnopqrstuvwxyzABCDEFGH\n", 1)
    assert "hf_abc" not in failure(tmp_path, 1).message


def test_a_loss_that_is_not_a_number_is_first_looked_for_in_its_mask() -> None:
    (reason,) = [reason for reason in REASONS if reason.name == "not-a-number"]
    assert reason.fields[0].startswith("tokenizer.type or data.eod_mask_loss")


def test_of_many_nodes_that_lost_their_peer_only_those_that_say_more_are_read(tmp_path):
    (tmp_path / "logs").mkdir()
    for node in range(60):
        write_exit(tmp_path, 0, node, 1, stopped=False)
        path = tmp_path / "run/exits" / f"0.{node}"
        cause = "[rank81] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate\n" if node == 40 else ""
        path.write_text(f"1 n{node}\n{LOST}{SUMMARY.format(rank=node, code=1)}{cause}")
        os.utime(path, (1_000_000 + node, 1_000_000 + node))
        if node < 16 or node == 40:
            (tmp_path / "logs" / f"node{node}.log").write_text(LOST + cause)
        else:
            os.mkfifo(tmp_path / "logs" / f"node{node}.log")
    found = failure(tmp_path, 60)
    assert (found.rank, found.node, found.host, found.reason) == (81, 40, "n40", "device-out-of-memory")
    (tmp_path / "run/exits/0.40").write_text(f"1 n40\n{LOST}")
    assert failure(tmp_path, 60).node == 0


def test_an_attempt_in_which_no_node_ended_is_not_explained_by_the_one_before(tmp_path):
    log(tmp_path, 0, "MemoryError\n", 1)
    write_status(tmp_path, "failed", 1, attempt=0)
    assert failure(tmp_path, 1).reason == "host-out-of-memory"
    write_status(tmp_path, "failed", 75, attempt=1, why="the master cannot be asked")
    assert failure(tmp_path, 1).reason == "no-rendezvous"


@pytest.mark.slow
def test_a_log_that_names_very_many_ranks_is_read_once(tmp_path):
    text = "".join(f"[rank{rank}]: x\n" for rank in range(150_000))
    log(tmp_path, 0, f"{text}[rank{'7' * 5000}]: MemoryError\n", 1)
    assert failure(tmp_path, 1).code == 1
