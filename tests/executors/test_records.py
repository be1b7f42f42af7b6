"""Records of a run directory that another user may have written: odd values make no record, and no crash."""

import json
from pathlib import Path

import pytest

from launcher.executors.record import Record, read_record, read_status

ODD: dict[str, dict[str, object]] = {
    "a figure without a name": {"figures": [[["loss"], "x", 1]]},
    "a factor that is too large": {"figures": [["loss", "x", 10**400]]},
    "a repetition that is too large": {"figures": [["loss", "x{99999999999999999999}", 1]]},
    "groups in groups": {"iteration_line": "(" * 3000 + ")" * 3000},
    "a pattern that is no folder's": {"rank_log": "**a{rank}"},
    "every folder": {"rank_log": "**/{rank}"},
    "a folder outside": {"rank_log": "../{rank}"},
    "a name with NUL": {"rank_log": "a\0{rank}"},
    "a command of numbers": {"command": [1]},
    "less than no nodes": {"nodes": -1, "devices_per_node": -1},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_make_no_record(name: str, tmp_path: Path):
    known = Record(
        id="x-1", executor="local", folder=str(tmp_path), host="here", user="me", pid=1, start=1, submitted="",
        nodes=1, devices_per_node=1, rank_log="logs/{rank}.log", figures=(("loss", "x", 1.0),), command=("run",),
    )  # fmt: skip
    (tmp_path / "run").mkdir()
    path = tmp_path / "run/run.json"
    path.write_text(known.as_json())
    assert read_record(tmp_path) == known
    path.write_text(json.dumps({**known.as_tree(), **ODD[name]}))
    assert read_record(tmp_path) is None


@pytest.mark.parametrize("restarts", ["1e999", "-1", str(10**400), '"2"'])
def test_odd_counts_make_no_status(restarts: str, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/status.json").write_text(f'{{"state": "running", "restarts": {restarts}}}')
    assert read_status(tmp_path) == {}
