"""`launch run` and its sweeps: nothing starts that cannot end as intended, and the messages about it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, Launch
from tests.waiting import STUCK_SECONDS, wait_until

DATA = ("data.format=messages", "data.paths=[train.jsonl]")
NATIVE = ("+recipe=qwen3_8b", "backend=megatron", "runtime=native", "estimate.enforce=false")
Install = Callable[[str], str]


@pytest.fixture
def installed(tmp_path: Path) -> Install:
    """Make an environment with a `megatron` program; return the override that chooses it."""

    def install(script: str) -> str:
        program = tmp_path / "env" / "bin" / "megatron"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/usr/bin/env bash\n{script}\n")
        program.chmod(0o755)
        (tmp_path / "train.jsonl").write_text('{"messages": []}\n' * 2000)
        return f"cluster.python={program.parent}/python"

    return install


def test_a_native_run_starts_and_reports_its_exit_code(launch: Launch, installed: Install, tmp_path: Path):
    done = launch("run", *NATIVE, *DATA, installed("echo trained; exit 3"), "output_dir=out", "--json")
    assert done.code == 1, done
    assert done.json["exit_code"] == 3
    assert (tmp_path / "out/logs/node0.log").read_text() == "trained\n"


def test_a_program_that_is_ended_by_a_signal_has_failed(launch: Launch, installed: Install):
    """Nobody asked the run to stop: its exit code is not that of a run that was."""
    done = launch("run", *NATIVE, *DATA, installed("kill -TERM $$"), "output_dir=out", "--json")
    assert (done.code, done.json["exit_code"], done.json["failure"]["reason"]) == (1, 143, "terminated"), done


def test_a_native_run_without_data_is_refused(launch: Launch, installed: Install, tmp_path: Path):
    done = launch("run", *NATIVE, installed("echo trained"), "output_dir=out")
    assert done.code == 1, done
    assert "the job needs data to start" in done.err
    assert "DATA-MISSING" in done.err
    assert not (tmp_path / "out").exists()


def test_a_native_run_without_its_backend_says_what_would_work(launch: Launch, tmp_path: Path):
    args = ("+recipe=tiny_qwen3", "backend=megatron_lm", "runtime=native", "data.paths=[x]", "data.format=megatron")
    done = launch("run", *args, "output_dir=out", env={"MEGATRON_LM_PATH": "/none"})
    assert done.code == 1, done
    for text in ("MEGATRON_LM_PATH (a checkout) is missing", "git clone", "launch dry-run", "rehearse.shrink=true"):
        assert text in done.err
    assert not (tmp_path / "out").exists()


def test_a_program_that_is_not_there_leaves_no_folder_and_the_retry_works(launch: Launch, installed: Install, tmp_path):
    args = ("run", *NATIVE, *DATA, "output_dir=out")
    installed("")  # the data are there
    done = launch(*args, "cluster.python=/none/bin/python")
    assert done.code == 1, done
    assert "/none/bin/megatron does not exist" in done.err
    assert not (tmp_path / "out").exists()
    assert launch(*args, installed("echo trained")).code == 0


def test_jobs_of_a_sweep_get_folders_of_their_own_and_one_json_array(launch: Launch, installed: Install, tmp_path):
    python = installed('echo "$@"; [[ "$*" != *1e-05* ]]')
    done = launch("run", "-m", *NATIVE, *DATA, python, "optimizer.lr=1e-5,2e-5", "output_dir=out", "--json")
    assert done.code == 1, done
    assert [(row["job"], row["ok"], row["exit_code"]) for row in done.json] == [(1, False, 1), (2, True, 0)]
    assert [row["overrides"][-2] for row in done.json] == ["optimizer.lr=1e-05", "optimizer.lr=2e-05"]
    for number, rate in ((1, "1e-05"), (2, "2e-05")):
        log = (tmp_path / f"out/{number}/logs/node0.log").read_text()
        assert f"--lr {rate}" in log
        assert f"out/{number}/checkpoints" in log


def test_jobs_of_a_sweep_without_output_dir_do_not_share_one(launch: Launch, installed: Install, tmp_path: Path):
    done = launch("run", "-m", *NATIVE, *DATA, installed("echo trained"), "optimizer.lr=1e-5,2e-5")
    assert done.code == 0, done
    assert sorted(path.name for path in (tmp_path / "launch_output").iterdir()) == ["qwen3_8b", "qwen3_8b-2"]


def test_a_folder_given_for_each_job_is_kept(launch: Launch, installed: Install, tmp_path: Path):
    done = launch("run", "-m", *NATIVE, *DATA, installed("echo trained"), "output_dir=a,b")
    assert done.code == 0, done
    assert (tmp_path / "a/logs/node0.log").exists()
    assert (tmp_path / "b/logs/node0.log").exists()


REFUSED = {
    "a rule": (("parallel.tp=1,3",), 1, "PAR-TP-HEADS"),
    "a mistake": (("batch.micro_batch_size=1,0",), 2, "batch.micro_batch_size 0 is below 1"),
    "a program": (("cluster.python={python},/none/bin/python",), 1, "/none/bin/megatron does not exist"),
    "a folder in use": (("output_dir=out,env",), 1, "env is not empty"),
}


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_sweep_with_one_refused_job_starts_none(launch: Launch, installed: Install, tmp_path: Path, case):
    swept, code, text = case
    python = installed("touch started").removeprefix("cluster.python=")
    args = [*NATIVE, *DATA, f"cluster.python={python}", "output_dir=out"]
    for arg in swept:
        key = arg.partition("=")[0]
        args = [old for old in args if not old.startswith(f"{key}=")] + [arg.format(python=python)]
    done = launch("run", "-m", *args)
    assert done.code == code, done
    assert "# job 2 of 2" in done.err
    assert "# job 1 of 2" not in done.err
    assert text in done.err
    assert "1 of 2 jobs refused; none was started" in done.err
    result = launch("run", "-m", *args, "--json")
    assert result.code == code
    assert [row["job"] for row in result.json] == [1, 2]
    assert text in json.dumps(result.json[1])
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "out").exists()


def test_an_argument_that_is_no_override_is_a_json_array_too(launch: Launch):
    done = launch("run", "-m", "paralel.tp=1,2", "--json")
    assert done.code == 2
    assert done.json[0]["mistakes"][0]["works"][0] == "parallel.tp"


@pytest.mark.slow
def test_an_interrupt_ends_the_whole_sweep(installed: Install, tmp_path: Path):
    # No program before exec: bash goes on where one ends well just as the signal comes.
    args = (*NATIVE, *DATA, installed(": >ready-$$; exec sleep 600"), "optimizer.lr=1e-5,2e-5", "output_dir=out")
    process = subprocess.Popen(
        [sys.executable, "-m", "launcher", "run", "-m", *args, "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list(tmp_path.glob("ready-*")))
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=STUCK_SECONDS)
    assert process.returncode == 130
    first, second = json.loads(out)
    assert (first["exit_code"], first["ok"]) == (130, False)
    assert "interrupted" in second["message"]
    assert len(list(tmp_path.glob("ready-*"))) == 1
    assert not (tmp_path / "out/2").exists()
