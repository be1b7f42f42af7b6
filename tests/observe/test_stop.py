"""Requests to stop runs of a queue: which of them were passed on, and what those that were refused keep."""

import getpass
from pathlib import Path

import pytest

from launcher.executors.record import Record, read_request
from launcher.observe.state import states_of
from launcher.observe.stop import stop_runs
from tests.executors.test_slurm_state import stubs


def run(folder: Path, job: str) -> Record:
    (folder / "run").mkdir(parents=True)
    (folder / "run/run.json").touch()
    return Record(
        id="x-1", executor="slurm", folder=str(folder), host="here", user=getpass.getuser(), pid=1, start=1,
        submitted="", nodes=1, devices_per_node=1, handle={"job": job},
    )  # fmt: skip


def test_of_runs_with_one_id_only_the_one_that_is_stopped_has_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    refuses = 'case " $* " in *" 2 "*) echo not yours >&2; exit 1;; esac'
    programs = {"squeue": "printf '%s\\n' '1|RUNNING|None|n1' '2|PENDING|Resources|'", "scancel": refuses}
    stubs(tmp_path, programs, monkeypatch)
    runs = [run(tmp_path / "a", "1"), run(tmp_path / "b", "2")]
    assert [state.state for state in states_of(runs)] == ["running", "queued"]
    assert stop_runs(runs) == ["", "Slurm does not cancel job 2: not yours"]
    assert read_request(tmp_path / "a") is not None
    assert read_request(tmp_path / "b") is None
    assert not (tmp_path / "b/run/status.json").exists()
