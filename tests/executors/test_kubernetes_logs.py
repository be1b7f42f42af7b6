"""The output of pods: no line is lost or repeated, whatever the cluster answers."""

from pathlib import Path

import pytest

from launcher.executors.kubernetes.logs import fetch_logs, lines_after
from launcher.executors.kubernetes.pods_seen import pods_in
from tests.executors.test_kubernetes_seen import pod, program, record


def stamped(second: int, text: str) -> str:
    return f"2026-01-01T00:00:{second:02d}.000000000Z {text}\n"


def test_lines_without_a_time_move_no_mark():
    """A carriage return within a line begins no line; text that looks like no time is never a time."""
    text = stamped(1, "a\rzzz b\x0bc\u2028d") + "zzz unable to retrieve container logs\n" + stamped(2, "e")
    fresh, last = lines_after(text, "")
    assert fresh == ["a\rzzz b\x0bc\u2028d", "zzz unable to retrieve container logs", "e"]
    assert last.startswith("2026-01-01T00:00:02")
    assert lines_after(text, last) == ([], last)


def test_an_answer_larger_than_the_limit_loses_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from launcher.executors.kubernetes import logs

    handle = record(tmp_path / "out")
    text = "".join(stamped(number, f"line {number} " + "x" * 40) for number in range(20))
    (tmp_path / "log").write_text(text)
    monkeypatch.setattr(logs, "_MOST_BYTES", 200)
    # As the API server: from that time on, and no more bytes than asked for.
    body = f"""for word in "$@"; do case $word in --since-time=*) since=${{word#*=}};; esac; done
awk -v since="$since" '$1 >= since' {tmp_path}/log | head -c 200"""
    program(tmp_path, monkeypatch, body)
    pods = pods_in([pod(phase="Running")])
    for _ in range(30):
        fetch_logs(handle, tmp_path / "out", pods)
    assert (tmp_path / "out/logs/node0.log").read_text().splitlines() == [
        line.partition(" ")[2] for line in text.splitlines()
    ]


def test_the_lines_of_a_container_that_was_started_again_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The first container ended unseen, and wrote more than one answer holds."""
    from launcher.executors.kubernetes import logs

    handle = record(tmp_path / "out")
    (tmp_path / "before").write_text("".join(stamped(number, f"first {number} " + "x" * 40) for number in range(8)))
    (tmp_path / "log").write_text(stamped(20, "second"))
    monkeypatch.setattr(logs, "_MOST_BYTES", 200)
    program(
        tmp_path,
        monkeypatch,
        f"""echo "$*" >>{tmp_path}/calls; file={tmp_path}/log
for word in "$@"; do case $word in --since-time=*) since=${{word#*=}};; --previous) file={tmp_path}/before;; esac; done
awk -v since="$since" '$1 >= since' $file | head -c 200""",
    )
    last = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:07Z"}}
    status = {"name": "node", "restartCount": 1, "state": {"running": {}}, "lastState": last}
    pods = pods_in([pod(phase="Running", containerStatuses=[status])])
    for _ in range(2):
        fetch_logs(handle, tmp_path / "out", pods)
    lines = [line.split()[:2] for line in (tmp_path / "out/logs/node0.log").read_text().splitlines()]
    assert lines == [*(["first", str(number)] for number in range(8)), ["second"]]
    again = (tmp_path / "calls").read_text().splitlines()[-1]
    assert "--previous" not in again, "what was read is not asked for again"
