"""The record of a native rehearsal, and the sitecustomize that acts on it: in ranks only, whole or not at all."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher.rehearse.native import (
    INJECT,
    Checkout,
    NativeOnCpu,
    Requirement,
    announcement,
    environment,
    missing,
    untested,
)

NATIVE = NativeOnCpu(
    address="fake_backend:NATIVE_CPU",
    install="fake_backend:install",
    script="*/job.py",
    title="fake {pip}",
    stand_ins=("CUDA", "TransformerEngine", "triton"),
    requires=(Requirement(distribution="pip", version="1.0"), Requirement(distribution="no-such-distribution")),
    tested_with=(Requirement(distribution="pip", version="1.0"),),
    checkouts=(Checkout(variable="FAKE_PATH", holds="train.py", what="the fake trainer"),),
    env=(("OMP_NUM_THREADS", "1"),),
    extra="fake",
)

MODULE = """
import os
from launcher.rehearse.native import NativeOnCpu, Requirement

NATIVE_CPU = NativeOnCpu(
    address="fake_backend:NATIVE_CPU", install="fake_backend:install", script="*/job.py", title="fake",
    stand_ins=("A", "B"), tested_with=(Requirement(distribution="pip", version="0"),),
)

def install(script):
    if "FAIL" in os.environ:
        raise ImportError("no such kernel")
    print("installed before", os.path.basename(script), flush=True)
"""


def test_environment_adds_only_the_injection_folder_and_our_variables() -> None:
    added = environment(NATIVE, {"PYTHONPATH": "/theirs", "OTHER": "x"})
    assert added == {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{INJECT}{os.pathsep}/theirs",
        "LAUNCH_REHEARSAL_NATIVE": "fake_backend:NATIVE_CPU",
        "LAUNCH_REHEARSAL_SCRIPT": "*/job.py",
        "LAUNCH_REHEARSAL_RANK": "RANK",
    }
    assert [file.name for file in INJECT.glob("*.py")] == ["sitecustomize.py"]


def test_missing_names_what_to_install_and_what_to_check_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert missing(NATIVE, {"FAKE_PATH": str(tmp_path)}) == [
        "no-such-distribution is not installed (tested with no-such-distribution); "
        "install it with: pip install 'launch-llm[fake]'"
    ]
    everything = {"version_of": lambda _name: "1.0"}
    assert missing(NATIVE, {}, **everything) == ["FAKE_PATH is not set: it must name a checkout of the fake trainer"]
    assert missing(NATIVE, {"FAKE_PATH": "/nowhere"}, **everything) == [
        "FAKE_PATH=/nowhere has no train.py: it must name a checkout of the fake trainer"
    ]


def test_another_version_is_reported_and_a_local_build_is_not() -> None:
    assert untested(NATIVE, version_of=lambda _name: "2.0") == [
        "pip 2.0 is not the version the stand-ins were tested with (1.0)"
    ]
    assert untested(NATIVE, version_of=lambda _name: "1.0+cpu") == []


def test_announcement_names_the_version_and_the_stand_ins() -> None:
    assert announcement(NATIVE, version_of=lambda _name: "1.0") == (
        "fake 1.0 itself, unmodified, on CPU through stand-ins for CUDA, TransformerEngine and triton"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fake_backend.py").write_text(MODULE)
    for name in ("job.py", "other.py"):
        (tmp_path / name).write_text("print('the script ran')\n")
    return tmp_path


def run(folder: Path, *argv: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in ``folder`` with the environment of a native rehearsal."""
    env = {**os.environ, **environment(NATIVE, {"PYTHONPATH": str(folder)}), **variables}
    return subprocess.run([sys.executable, *argv], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_rank_gets_the_stand_ins_before_its_script_and_says_so_once(folder: Path) -> None:
    first, second = run(folder, "-u", "job.py", RANK="0"), run(folder, "job.py", RANK="1")
    for process in (first, second):
        assert process.stdout.splitlines() == ["installed before job.py", "the script ran"]
    assert first.stderr.splitlines()[-1] == "rehearsal: fake itself, unmodified, on CPU through stand-ins for A and B"
    assert "not the version the stand-ins were tested with (0)" in first.stderr
    assert second.stderr == ""


LEFT_ALONE: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "no rank: the command line or torchrun itself": (("job.py",), {}),
    "a rank of something else": (("other.py",), {"RANK": "0"}),
    "a worker of the rank": (("-c", "print('the script ran')"), {"RANK": "0"}),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_every_other_process_is_left_alone(folder: Path, case: str) -> None:
    argv, variables = LEFT_ALONE[case]
    process = run(folder, *argv, **variables)
    assert (process.stdout, process.stderr, process.returncode) == ("the script ran\n", "", 0)


@pytest.mark.slow
def test_a_failed_installation_ends_the_rank_before_its_script(folder: Path) -> None:
    process = run(folder, "job.py", RANK="3", FAIL="1")
    assert process.returncode == 1
    assert process.stdout == ""
    assert "rehearsal: rank 3 was not started" in process.stderr
    assert "ImportError: no such kernel" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_another_sitecustomize_still_runs(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text("print('theirs ran')\n")
    process = run(folder, "job.py", RANK="0")
    assert process.stdout.splitlines() == ["theirs ran", "installed before job.py", "the script ran"]
