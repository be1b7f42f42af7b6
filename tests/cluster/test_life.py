"""A run's life: restarts that wait, a start that hangs, signals on which ranks save first."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.machines import Site, lacking
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = [pytest.mark.sample(keep=10, of="cluster"), pytest.mark.slow]
SLURM = pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-")

# An agent that kills its rank soon after it is told to end, as torchrun does; a rank that saves for longer, and
# whose data loader's worker may not die before it.
SAVES = """cat >rank.$NODE_RANK <<'RANK'
sleep 3333 & worker=$!
saved() {
  kill -0 $worker || { echo "the worker is dead"; exit 1; }
  sleep 4; echo "rank $RANK saved"; kill $worker; exit 0
}
trap saved TERM
while :; do sleep 0.2; done
RANK
RANK=$NODE_RANK LOCAL_RANK=0 bash rank.$NODE_RANK & rank=$!
trap 'echo "agent told to end"; kill -KILL $rank; exit 143' TERM
wait $rank
echo "agent ends by itself"
exit 0"""


def megatron_lm(site: Site, executor: str) -> list[str]:
    """Return the overrides of a job of Megatron-LM, whose torchrun is the program."""
    site.program(SAVES)
    program = site.folder / "env" / "bin" / "megatron"
    program.rename(program.with_name("torchrun"))
    (site.folder / "mlm").mkdir()
    (site.folder / "mlm" / "pretrain_gpt.py").touch()
    kept = [arg for arg in site.args(executor) if not arg.startswith(("backend=", "data."))]
    more = [
        "backend=megatron_lm",
        "data.format=mock",
        "model.pretrained=false",
        "fault_tolerance.exit_on_signal=true",
        "checkpoint.save=ckpt",
    ]
    return [*kept, *more, "tokenizer.type=NullTokenizer", "fault_tolerance.save_seconds=20"]


def status(site: Site) -> dict[str, object]:
    return site.launch("status", "out", "--json").json  # type: ignore[no-any-return]


def env(site: Site) -> dict[str, str]:
    return {"MEGATRON_LM_PATH": f"{site.folder}/mlm"}


@SLURM
def test_in_slurm_ranks_save_before_the_time_limit(site: Site):
    args = megatron_lm(site, "slurm")
    done = site.launch("run", *args, "cluster.time_limit=2", env=env(site))
    assert done.code == 0, done
    assert "#SBATCH --signal=B:TERM@50" in (site.folder / "out/run/job.sbatch").read_text()
    wait_until(lambda: status(site)["state"] not in ("queued", "running"), lambda: site.log(0))
    assert [f"rank {node} saved" in site.log(node) for node in (0, 1)] == [True, True], site.log(0)
    shown = status(site)
    assert (shown["state"], str(shown["why"]).partition(":")[0]) == ("stopped", "preempted"), shown
    assert not site.left()


@SLURM
def test_in_slurm_a_stop_lets_ranks_save_for_longer_than_their_agent_would(site: Site):
    assert site.launch("run", *megatron_lm(site, "slurm"), env=env(site)).code == 0
    wait_until(lambda: "rank 0 of" in site.log(0) and "rank 1 of" in site.log(1))
    time.sleep(1)
    assert site.launch("stop", "qwen3_8b-1").code == 0
    wait_until(lambda: status(site)["state"] == "stopped")
    wait_until(lambda: not site.left(), site.left)
    assert [f"rank {node} saved" in site.log(node) for node in (0, 1)] == [True, True], site.log(0)
    assert "agent told to end" not in site.log(0)


def test_over_ssh_a_signal_to_the_controller_lets_ranks_save(site: Site):
    args = megatron_lm(site, "ssh")
    os.environ["MEGATRON_LM_PATH"] = f"{site.folder}/mlm"
    try:
        run = site.start("run", *args)
    finally:
        del os.environ["MEGATRON_LM_PATH"]
    wait_until(lambda: "rank 0 of" in site.log(0) and "rank 1 of" in site.log(1))
    time.sleep(1)
    run.terminate()
    assert run.wait(timeout=STUCK_SECONDS) == 143
    assert [f"rank {node} saved" in site.log(node) for node in (0, 1)] == [True, True], site.log(0)
    assert str(status(site)["why"]).startswith("preempted")


def test_a_start_without_a_first_iteration_is_ended_and_restarts_wait(site: Site):
    site.program('[ "$ATTEMPT" = 1 ] || sleep 3050; step 1')
    limits = ["fault_tolerance.startup_minutes=0.05", "fault_tolerance.max_restarts=1"]
    run = site.start("run", *site.args("ssh", 1), *limits, "fault_tolerance.restart_wait_seconds=8")
    wait_until(lambda: "waits until" in str(seen(site).get("reason")))
    assert status(site)["why"].endswith("before restart 1 of 1 (exit code 124)")  # type: ignore[attr-defined]
    assert run.wait(timeout=STUCK_SECONDS) == 0
    assert "no first iteration for" in (run.stdout.read() if run.stdout else "")


def test_a_launcher_that_is_killed_while_a_restart_waits_is_the_reason(site: Site):
    site.program("exit 3")
    more = ["fault_tolerance.max_restarts=1", "fault_tolerance.restart_wait_seconds=60"]
    run = site.start("run", *site.args("ssh", 1), *more)
    wait_until(lambda: "waits until" in str(seen(site).get("reason")))
    run.kill()
    run.wait()
    wait_until(lambda: seen(site).get("state") != "running")
    assert (seen(site)["state"], seen(site)["reason"]) == ("stopped", "the program that started it was killed")


RESUMES = """if [ -z "$load" ]; then checkpoint 5; step 5; exit 3; fi
step 10"""


def test_a_run_whose_nodes_still_save_is_not_resumed(site: Site):
    site.program(RESUMES)
    assert site.launch("run", *site.args("ssh")).code == 1
    run = f"{site.folder}/out/run"
    number = subprocess.run(["cksum"], input=run, capture_output=True, text=True, check=True).stdout.split()[0]
    code = f"import os, subprocess; os.environ['LAUNCH_RUN'] = 'qwen3_8b-1.{number}/1/0'; print(1, flush=True); "
    with site.machines.holding("n2", code + "subprocess.run(['sleep', '3999'])"):
        refused = site.launch("resume", "qwen3_8b-1")
        assert refused.code == 1, refused
        assert "n2: 1 processes of the run are left" in refused.err
        assert "launch clean qwen3_8b-1" in refused.err
        assert site.launch("clean", "qwen3_8b-1").code == 0
        assert site.launch("resume", "qwen3_8b-1").code == 0


def seen(site: Site) -> dict[str, object]:
    path = Path(site.folder / "out/run/status.json")
    return json.loads(path.read_text()) if path.exists() else {}
