"""A checkpoint continues its training at the same layout and at others; a stop leaves a complete one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from core_world import DENSE, MOE, Zygote, split_args

from launcher.rehearse.core.options import TrainerOptions
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
HALF = split_args("--save-interval 3 --exit-interval 3")
DISTRIBUTED = "--use-distributed-optimizer"

# name: model, layout and ranks that save, layout and ranks that continue
CASES = {
    "alone to alone": (DENSE, "", 1, "", 1),
    "alone to TP2": (DENSE, "", 1, "--tensor-model-parallel-size 2 --sequence-parallel", 2),
    "DP2 distributed optimizer to PP2 VPP2": (
        DENSE,
        DISTRIBUTED,
        2,
        f"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 {DISTRIBUTED}",
        2,
    ),
    "MoE alone to EP2": ([*DENSE, *MOE], "", 1, "--expert-model-parallel-size 2", 2),
    "MoE EP2 distributed optimizer to alone": (
        [*DENSE, *MOE],
        f"--expert-model-parallel-size 2 {DISTRIBUTED}",
        2,
        DISTRIBUTED,
        1,
    ),
}


Losses = dict[int, list[float]]


@pytest.fixture(scope="module")
def uninterrupted(zygote: Zygote) -> Losses:
    """The losses of each model without a stop, by the length of its command line."""
    return {len(model): zygote.run(model).losses for model in (DENSE, [*DENSE, *MOE])}


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("model,saving,savers,loading,loaders", CASES.values(), ids=CASES.keys())
def test_a_checkpoint_continues_at_another_layout(
    zygote: Zygote,
    tmp_path: Path,
    uninterrupted: Losses,
    model: list[str],
    saving: str,
    savers: int,
    loading: str,
    loaders: int,
) -> None:
    whole = uninterrupted[len(model)]
    saved = zygote.run([*model, *saving.split(), *HALF, "--save", f"{tmp_path}/saved"], ranks=savers)
    assert saved.losses == pytest.approx(whole[:3], abs=TOLERANCE)
    assert (tmp_path / "saved" / "latest_checkpointed_iteration.txt").read_text() == "3"
    assert (tmp_path / "saved" / "iter_0000003" / "metadata.json").is_file()
    continued = zygote.run([*model, *loading.split(), "--load", f"{tmp_path}/saved"], ranks=loaders)
    assert continued.summary["first_iteration"] == 4
    assert continued.losses == pytest.approx(whole[3:], abs=TOLERANCE)


def test_weights_are_gathered_before_they_are_saved(zygote: Zygote, tmp_path: Path, uninterrupted: Losses) -> None:
    """With --overlap-param-gather a rank's copy of the others' weights is from before the last step."""
    overlapped = f"{DISTRIBUTED} --overlap-grad-reduce --overlap-param-gather".split()
    zygote.run([*DENSE, *overlapped, *HALF, "--save", f"{tmp_path}/saved"], ranks=2)
    continued = zygote.run([*DENSE, "--load", f"{tmp_path}/saved", "--no-load-optim", "--exit-interval", "4"])
    assert continued.losses[0] == pytest.approx(uninterrupted[len(DENSE)][3], abs=TOLERANCE)


def test_what_does_not_fit_is_refused_with_what_would_work(zygote: Zygote, tmp_path: Path) -> None:
    saved = f"{tmp_path}/saved"
    zygote.run([*DENSE, *HALF, "--save", saved])
    other = zygote.run([*DENSE, DISTRIBUTED, "--load", saved])
    assert other.exit_codes == [1]
    assert "--no-load-optim" in other.output
    assert zygote.run([*DENSE, DISTRIBUTED, "--load", saved, "--no-load-optim"]).losses
    wider = zygote.run([*DENSE, "--load", saved, "--ffn-hidden-size", "96"])
    assert wider.exit_codes == [1]
    assert "does not fit this run" in wider.output
    assert "Traceback" not in wider.output


def test_another_schedule_is_refused_unless_asked_for(zygote: Zygote, tmp_path: Path) -> None:
    saved = f"{tmp_path}/saved"
    zygote.run([*DENSE, *HALF, "--save", saved])
    longer = [*DENSE, *split_args("--train-iters 8"), "--load", saved]
    refused = zygote.run(longer)
    assert refused.exit_codes == [1]
    assert "--override-opt_param-scheduler" in refused.output
    assert len(zygote.run([*longer, "--override-opt_param-scheduler"]).losses) == 5


def test_nothing_is_overwritten(zygote: Zygote, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    refused = zygote.run([*DENSE, *HALF, "--save", str(foreign)])
    assert refused.exit_codes == [1]
    assert "not empty" in refused.output
    saved = f"{tmp_path}/saved"
    assert zygote.run([*DENSE, *HALF, "--save", saved]).exit_codes == [0]
    again = zygote.run([*DENSE, *HALF, "--save", saved])
    assert again.exit_codes == [1]
    assert f"--load {saved}" in again.output
    missing = zygote.run([*DENSE, "--load", f"{tmp_path}/nothing"])
    assert missing.exit_codes == [1]
    assert "latest_checkpointed_iteration.txt" in missing.output


def test_old_checkpoints_go_when_asked(zygote: Zygote, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    zygote.run([*DENSE, "--save", str(saved), "--save-interval", "1", "--save-retain-interval", "3"])
    assert sorted(path.name for path in saved.glob("iter_*")) == ["iter_0000003", "iter_0000006"]


OURS = ["launcher.rehearse.core", "--ranks", "2"]
TORCHRUN = split_args("torch.distributed.run --standalone --nproc_per_node 2 -m launcher.rehearse.core")

# name: how the run is started, the signal, whether the terminal's whole group gets it, exit code (torchrun has its own)
STOPS = {
    "Ctrl-C": (OURS, signal.SIGINT, True, 130),
    "SIGTERM to the launcher": (OURS, signal.SIGTERM, False, 143),
    "one rank, Ctrl-C": (["launcher.rehearse.core"], signal.SIGINT, True, 130),
    "torchrun, Ctrl-C": (TORCHRUN, signal.SIGINT, True, None),
    "torchrun, SIGTERM": (TORCHRUN, signal.SIGTERM, False, None),
}


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("start,number,everyone,exit_code", STOPS.values(), ids=STOPS.keys())
def test_a_stop_leaves_a_complete_checkpoint_and_no_process(
    tmp_path: Path, start: list[str], number: signal.Signals, everyone: bool, exit_code: int | None
) -> None:
    process, log = _start(tmp_path, start, "--save-interval 100000")
    (os.killpg if everyone else os.kill)(process.pid, number)
    code = process.wait(timeout=STUCK_SECONDS)
    assert code == exit_code or (exit_code is None and code != 0), log.read_text()
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["interrupted"] in ("SIGINT", "SIGTERM")
    assert (tmp_path / "saved" / "latest_checkpointed_iteration.txt").read_text() == str(result["iterations"])
    assert not list((tmp_path / "saved").glob("*.partial"))
    assert not _processes_of(process.pid)


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    process, _log = _start(tmp_path, OURS, "--save-interval 100000")
    for _ in range(2):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.05)
    assert process.wait(timeout=STUCK_SECONDS) == 130
    assert not _processes_of(process.pid)


def test_a_killed_run_leaves_its_last_checkpoint_complete(tmp_path: Path) -> None:
    process, _log = _start(tmp_path, OURS, "--save-interval 2")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=STUCK_SECONDS)
    iteration = int((tmp_path / "saved" / "latest_checkpointed_iteration.txt").read_text())
    assert (tmp_path / "saved" / f"iter_{iteration:07d}" / "metadata.json").is_file()


def _start(tmp_path: Path, start: list[str], saving: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start an endless run and wait for its third iteration."""
    options, log = tmp_path / "options.json", tmp_path / "log"
    options.write_text(TrainerOptions(output_dir=str(tmp_path / "out")).to_json())
    argv = [*DENSE, *split_args("--train-iters 100000"), "--save", f"{tmp_path}/saved", *saving.split()]
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *start, "--options", str(options), "--", *argv],
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    wait_until(lambda: "iteration      3/" in log.read_text() or process.poll() is not None, log.read_text)
    return process, log


def _processes_of(group: int) -> list[str]:
    listing = subprocess.run(["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return [row[2] for row in rows if row[0] == str(group) and not row[1].startswith("Z")]
