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


@pytest.mark.parametrize(("known", "accounted", "state"), CASES.values(), ids=CASES)
def test_the_accounting_does_not_revive_a_job(
    known: str, accounted: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    programs = {
        "squeue": "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1",
        "scontrol": f"echo JobId=1 JobState={known} Reason=None" if known else "exit 1",
        "sacct": f"echo '{accounted}'",
    }
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    seen = Slurm().observe({"job": "1"})
    assert seen.asked
    assert seen.state == state
    assert ("by root" in seen.why) == ("by 0" in accounted)
