"""Figures of a running training: read from each backend's own log lines, shown, written for Prometheus, and posted."""

import dataclasses
import json
import math
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import watch as watching
from launcher.executors.record import Record, read_record, record_from
from launcher.mapping.backend import get_backend
from launcher.observe.notice import Notice, send
from launcher.observe.prometheus import text_of
from launcher.observe.state import State
from launcher.observe.training import Expected, Figures, Training, figures_of, training_of
from tests.conftest import Launch

LINES = Path(__file__).parent / "training"
# Megatron-LM: github.com/NVIDIA/Megatron-LM/issues/756, iterations 43 to 45; memory and stragglers by the formats
# of megatron/training/utils.py, report_memory, and megatron/core/utils.py, StragglerDetector.report @core_v0.16.1.
MEGATRON = (LINES / "megatron.txt").read_text()
# swift/megatron/callbacks/print.py, on_log @4.6.0
SWIFT = (LINES / "swift.txt").read_text()
# mindformers/core/callback/callback.py, MFLossMonitor.print_output_info @1.6.0
MINDFORMERS = (LINES / "mindformers.txt").read_text()
LOGS: dict[str, tuple[str, str, Figures]] = {
    "megatron_lm": (
        "logs/node1.log",
        MEGATRON,
        Figures(
            iteration=45,
            iterations=100,
            loss=1.834162,
            grad_norm=1.611,
            step_s=5.5338,
            tflops_per_device=228.4,
            memory_gib=65.0,
            skipped=2,
            slowest_rank=11,
        ),
    ),
    "mindspeed": ("logs/node0.log", MEGATRON.splitlines()[1], Figures(
        iteration=43, iterations=100, loss=1.825991, grad_norm=1.426, step_s=5.4449, tflops_per_device=239.8,
        skipped=0)),
    "megatron": ("logs/node1.log", SWIFT, Figures(
        iteration=2, iterations=94, loss=0.4850769, grad_norm=25.86640167, step_s=17.5375, memory_gib=69.19)),
    "mindformers": ("msrun_log/worker_15.log", MINDFORMERS, Figures(
        iteration=8, iterations=100, loss=9.5, grad_norm=2.5, step_s=2.6, tflops_per_device=172.6)),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_figures_are_read_from_the_backend_s_own_lines(name: str, tmp_path: Path):
    file, text, expected = LOGS[name]
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"started\n{text}saving\n")
    found = figures_of(record(tmp_path, name))
    assert found is not None
    for field in Figures.__dataclass_fields__:
        wanted = getattr(expected, field)
        assert getattr(found, field) == (wanted if wanted is None else pytest.approx(wanted)), field


def test_a_training_without_iterations_has_no_figures(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/node0.log").write_text("loading\n")
    assert figures_of(record(tmp_path, "megatron_lm")) is None


def record(folder: Path, backend: str) -> Record:
    watch = get_backend(backend).watch
    return Record(
        id="run-1",
        executor="local",
        folder=str(folder),
        host="here",
        user="me",
        pid=1,
        start=1,
        submitted="",
        nodes=2,
        devices_per_node=8,
        iteration_line=watch.iteration_line,
        rank_log=watch.rank_log,
        figures=watch.figures,
    )


@pytest.fixture
def overrides(tmp_path: Path) -> tuple[str, ...]:
    """A job whose trainer prints what Megatron-SWIFT prints."""
    program = tmp_path / "env" / "bin" / "megatron"
    program.parent.mkdir(parents=True)
    (tmp_path / "lines.txt").write_text(SWIFT)
    program.write_text(f"#!/usr/bin/env bash\ncat {tmp_path}/lines.txt\n")
    program.chmod(0o755)
    (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
    return (
        *("+recipe=qwen3_8b", "backend=megatron", "runtime=native", "data.format=messages", "data.paths=[train.jsonl]"),
        *("estimate.enforce=false", "hardware=h100_80g", f"cluster.python={program.parent}/python", "output_dir=out"),
    )


@pytest.mark.slow
def test_status_shows_measured_beside_expected(launch: Launch, overrides: tuple[str, ...], tmp_path: Path):
    assert launch("run", *overrides).code == 0
    tree = launch("status", "out", "--json").json["training"]
    job = json.loads((tmp_path / "out/run/job.json").read_text())
    tokens = job["batch"]["global_batch_size"] * job["batch"]["seq_length"]
    devices = job["cluster"]["nodes"] * job["cluster"]["devices_per_node"]
    assert tree["tokens_per_s_per_device"] == pytest.approx(tokens / devices / 17.5375)
    assert tree["eta_s"] is None, "it has ended, after 2 of 94 iterations"
    kept = read_record(tmp_path / "out")
    assert kept is not None
    going = training_of(kept, Expected)
    assert going is not None
    assert dict(watching.training_rows(going))["left"] == "26 min 53 s"
    expected = launch("estimate", f"+job={tmp_path}/out/run/job.json", "--json").json
    assert tree["expected_step_s"] == pytest.approx(expected["time"]["step_s"])
    assert tree["mfu"] == pytest.approx(expected["mfu"] * expected["time"]["step_s"] / 17.5375)
    shown = launch("status", "out").out
    for line in (
        "iteration   2 of 94",
        "loss        0.485077, grad norm 25.87",
        "memory      69.2 GiB",
    ):
        assert line in shown, shown
    assert "\nleft " not in shown


@pytest.mark.slow
def test_a_watched_run_is_lines_of_json_a_file_for_prometheus_and_a_notice(
    launch: Launch, overrides: tuple[str, ...], tmp_path: Path, hook: "Hook"
):
    assert launch("run", *overrides).code == 0
    watched = launch(
        "status", "out", "-w", "--every", "0.1", "--json", "--textfile", "run.prom", env={"LAUNCH_WEBHOOK": hook.url}
    )
    assert watched.code == 0, watched
    last = json.loads(watched.out.splitlines()[-1])
    assert (last["state"], last["training"]["iteration"]) == ("done", 2)
    (notice,) = hook.received
    assert notice["text"] == f"{last['id']}: done"
    assert notice["run"]["training"]["loss"] == pytest.approx(0.4850769)
    metrics = dict(line.rsplit(" ", 1) for line in (tmp_path / "run.prom").read_text().splitlines() if line[0] != "#")
    assert float(metrics[f'launch_run_state{{run="{last["id"]}",state="done"}}']) == 1
    assert float(metrics[f'launch_memory_bytes{{run="{last["id"]}"}}']) == pytest.approx(69.19 * 2**30)


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no time between looks": (("-w", "--every", "0"), "--every is a number of seconds above 0"),
    "no end of a look": (("-w", "--every", "inf"), "up to 86400, not inf"),
    "no host": (("-w", "--webhook", "http://["), "takes a URL that begins with"),
    "no port": (("-w", "--webhook", "http://x:y/"), "takes a URL that begins with"),
    "a webhook without a watch": (("--webhook", "http://localhost/x"), "add -w"),
    "no URL": (("-w", "--webhook", "localhost"), "takes a URL that begins with http or https://"),
    "another file": (("--textfile", "notes.prom"), "notes.prom"),
    "another ending": (("--textfile", "run.txt"), "must end in .prom"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_that_cannot_be_are_refused(name: str, launch: Launch, tmp_path: Path):
    (tmp_path / "notes.prom").write_text("mine\n")
    words, message = WRONG[name]
    done = launch("status", "out", *words)
    assert done.code in (1, 2)
    assert message in done.err, done
    assert (tmp_path / "notes.prom").read_text() == "mine\n"


@pytest.mark.slow
def test_a_hang_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: "Hook"):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/node1.log").write_text(MEGATRON.replace("5718.6", "1.0").replace("5533.8", "1.0"))
    monkeypatch.setattr(watching, "_SILENT_SECONDS", 0.3)
    states = iter([*["running"] * 30, "failed"])
    monkeypatch.setattr(watching, "state_of", lambda record: State(state=next(states), why="node 1 failed"))
    watching.watch(record(tmp_path, "megatron_lm"), every=0.05, as_json=True, textfile=None, webhook=hook.url)
    first, second = (notice["text"] for notice in hook.received)
    assert first.startswith("run-1: no new iteration for ")
    assert second == "run-1: failed: node 1 failed"


def test_a_notice_that_fails_does_not_end_the_watch_or_show_its_url(hook: "Hook"):
    notice = Notice(text="x", run={})
    assert send(hook.url, notice) == ""
    assert send(f"{hook.url}/s3 cret", notice) == "InvalidURL"
    assert send(f"{hook.url}/s3cr\xe9t", notice) == "UnicodeEncodeError"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.sendall(b"nonsense\r\n\r\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert send(f"http://127.0.0.1:{server.getsockname()[1]}/s3cret", notice) == "BadStatusLine"


def test_a_file_that_cannot_be_written_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    states = iter(["running", "running", "done"])
    monkeypatch.setattr(watching, "state_of", lambda record: State(state=next(states)))
    file = tmp_path / "gone" / "run.prom"
    watching.watch(record(tmp_path, "megatron_lm"), every=0.01, as_json=True, textfile=file, webhook=None)
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3
    assert shown.err == f"launch: {file} was not written: No such file or directory\n"


def test_labels_and_numbers_are_those_of_prometheus(tmp_path: Path):
    odd = Training(
        figures=Figures(loss=math.nan, iteration=1e12),
        eta_s=None,
        tokens_per_s_per_device=math.inf,
        mfu=None,
        expected_step_s=None,
        missing="",
    )
    text = text_of(record(tmp_path, "megatron_lm"), State(state="running"), odd)
    assert 'launch_loss{run="run-1"} NaN' in text
    assert 'launch_iteration{run="run-1"} 1e+12' in text
    assert 'launch_tokens_per_second_per_device{run="run-1"} +Inf' in text
    assert "launch_mfu_ratio" not in text


class Hook:
    """A real HTTP server that keeps what is posted to it."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        received = self.received

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()


ODD: dict[str, tuple[str, object]] = {
    "a group that takes no part": ("(x)?iteration", 1.0),
    "no group": ("iteration", 1.0),
    "no finite number": (r"(iteration)", "inf"),
}


@pytest.mark.parametrize("name", ODD)
def test_patterns_of_another_user_s_record_give_no_figure(name: str, tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/node1.log").write_text(MEGATRON)
    pattern, scale = ODD[name]
    tree = {**record(tmp_path, "megatron_lm").as_tree(), "figures": [["loss", pattern, scale]]}
    odd = record_from(tree, tmp_path, "")
    assert odd is not None
    assert figures_of(odd) == Figures()


def test_a_pace_that_is_no_number_leaves_no_time(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/node1.log").write_text(MEGATRON.replace("5718.6", "inf").replace("5533.8", "inf"))
    found = training_of(
        dataclasses.replace(record(tmp_path, "megatron_lm"), figures=(
            ("step_s", r"elapsed time per iteration \(ms\): (inf|[0-9.]+)", 1e3),
            ("iteration", r"iteration +(\d+)/", 1.0), ("iterations", r"iteration +\d+/ *(\d+)", 1.0),
        )), lambda: Expected(tokens=1),
    )  # fmt: skip
    assert found is not None
    assert json.loads(json.dumps(watching.training_tree(found), allow_nan=False))["eta_s"] is None
    assert dict(watching.training_rows(found))["step"] == "inf s"


def test_a_folder_of_another_run_has_no_figures_of_this_one(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/node1.log").write_text(MEGATRON)
    assert figures_of(dataclasses.replace(record(tmp_path, "megatron_lm"), gone=True)) is None
