"""Runs whose record somebody else wrote, or whose machine is gone: nothing foreign is signalled or applied."""

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.executors.processes import identified
from launcher.executors.record import HEARTBEAT, RUN, Record, read_record, user_name, write_record, write_status
from launcher.mapping.backend import get_backend
from launcher.observe.find import find_run
from launcher.observe.state import state_of
from launcher.observe.stop import CannotStop, stop_run
from tests.waiting import ended_if_stuck

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def record(folder: Path, **values: object) -> Record:
    made = Record(
        id="x-1",
        executor="ssh",
        folder=str(folder),
        host=os.uname().nodename,
        user=user_name(),
        pid=1,
        start=1,
        submitted="2026-11-28T00:00:00Z",
        nodes=1,
        devices_per_node=1,
    )
    made = replace(made, **values)  # type: ignore[arg-type]
    write_record(made)
    return made


@ROOT
def test_a_process_that_a_foreign_record_names_is_not_signalled(tmp_path: Path):
    with subprocess.Popen(["sleep", "60"]) as process:
        own = identified(process.pid)
        assert own is not None
        record(tmp_path, pid=own.pid, start=own.start)
        for path in (tmp_path / RUN, *(tmp_path / RUN).iterdir()):
            os.chown(path, 4242, 4242)
        with pytest.raises(CannotStop, match="is another user's"):
            stop_run(find_run(str(tmp_path)))
        assert process.poll() is None
        process.kill()


@ROOT
def test_expressions_of_a_foreign_record_are_those_of_a_backend_or_none(tmp_path: Path):
    watch = get_backend("megatron_lm").watch
    evil = "(a+)+$"
    figures = (("loss", evil, 1.0), watch.figures[0])
    record(tmp_path, iteration_line=evil, figures=figures)
    assert find_run(str(tmp_path)).iteration_line == evil, "one's own are applied"
    os.chown(tmp_path / RUN / "run.json", 4242, 4242)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "node0.log").write_text("a" * 60 + "!\n")
    found = find_run(str(tmp_path))
    assert (found.iteration_line, found.figures) == ("", (watch.figures[0],))
    with ended_if_stuck():
        state_of(found)
    record(tmp_path, iteration_line=watch.iteration_line)
    os.chown(tmp_path / RUN / "run.json", 4242, 4242)
    assert find_run(str(tmp_path)).iteration_line == watch.iteration_line


@pytest.mark.parametrize(
    ("age", "text"), [(30, "last known state"), (4000, "unknown since 20")], ids=["now", "long ago"]
)
def test_a_run_of_a_machine_that_shows_no_sign_is_unknown_since_then(tmp_path: Path, age: int, text: str):
    made = record(tmp_path, host="vanished")
    write_status(tmp_path, "running", None)
    sign = tmp_path / RUN / HEARTBEAT
    sign.touch()
    os.utime(sign, (time.time() - age, time.time() - age))
    state = state_of(made)
    assert (state.state, state.why.startswith(text), "vanished" in state.why) == ("running", True, True)


def test_a_record_is_read_as_it_was_written(tmp_path: Path):
    made = record(tmp_path)
    assert json.loads((tmp_path / RUN / "run.json").read_text())["id"] == "x-1"
    assert read_record(tmp_path) == made
