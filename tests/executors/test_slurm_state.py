"""State of a Slurm job that the controller has purged or cancelled, by what the accounting says."""

from pathlib import Path

import pytest

from launcher.executors.slurm.executor import Slurm

CASES = {
    "purged, ended": ("", "COMPLETED|None|n1", "done"),
    "purged, of an unknown end": ("", "RUNNING|None|n1", ""),
    "purged, cancelled": ("", "CANCELLED by 0|None|n1", "stopped"),
    "cancelled, and the accounting lags": ("CANCELLED", "RUNNING|None|n1", "stopped"),
    "cancelled, and by whom is known": ("CANCELLED", "CANCELLED by 0|None|n1", "stopped"),
}


def stubs(folder: Path, programs: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for Slurm's commands; their calls are logged."""
    for name, line in programs.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{folder}/calls\n{line}\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(("known", "accounted", "state"), CASES.values(), ids=CASES)
def test_the_accounting_does_not_revive_a_job(
    known: str, accounted: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = {
        "squeue": "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1",
        "scontrol": f"echo JobId=1 JobState={known} Reason=None" if known else "exit 1",
        "sacct": f"echo '1|{accounted}'",
    }
    stubs(tmp_path, programs, monkeypatch)
    seen = Slurm().observe({"job": "1"})
    assert seen.asked
    assert seen.state == state
    assert ("by root" in seen.why) == ("by 0" in accounted)


def test_many_jobs_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines = {
        "squeue": ("12_0|RUNNING|None|n1", "12_1|PENDING|Resources|", "7|CANCELLED|None|n2"),
        "scontrol": ("JobId=14 ArrayJobId=12 ArrayTaskId=2 JobState=TIMEOUT Reason=TimeLimit NodeList=n3",),
        "sacct": ("7|CANCELLED by 0|None|n2", "8|FAILED|None|n1", "8|NODE_FAIL|None|n1", "9|RUNNING|None|n1"),
    }
    stubs(tmp_path, {name: f"printf '%s\\n' {' '.join(map(repr, text))}" for name, text in lines.items()}, monkeypatch)
    jobs = ("12_0", "12_1", "12_2", "7", "8", "9", "x")
    seen = dict(zip(jobs, Slurm().observe_all([{"job": job} for job in jobs]), strict=True))
    expected = {"12_0": "running", "12_1": "queued", "12_2": "failed", "7": "stopped", "8": "failed", "9": "", "x": ""}
    assert {job: each.state for job, each in seen.items()} == expected
    assert seen["12_1"].why == "Slurm: PENDING Resources"
    assert seen["7"].why == "Slurm: CANCELLED by root"
    assert seen["8"].final
    assert not seen["x"].asked
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["squeue", "scontrol", "sacct"]
    assert "-j 12_0,12_1,12_2,7,8,9 " in calls[0]
