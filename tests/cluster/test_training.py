"""The real megatron-core on several machines: interrupted and resumed, it ends with the loss of a run in one piece."""

import json
import os
import signal

import pytest

from tests.cluster.machines import Site, lacking
from tests.cluster.trainings import losses, overrides, rank_processes
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = [
    pytest.mark.sample(keep=10, of="cluster"),
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-"),
]


def test_a_killed_rank_costs_time_and_nothing_else(site: Site):
    """Uninterrupted through Slurm, interrupted over ssh: the same losses to the last digit."""
    whole = site.launch("run", *overrides(site, "slurm", 2, 2, "whole"), "--wait", "--json", timeout=300)
    assert whole.code == 0, whole
    process = site.start("run", *overrides(site, "ssh", 2, 2, "broken"), "fault_tolerance.max_restarts=1")
    log = site.folder / "broken" / "logs" / "node0.log"
    wait_until(lambda: log.exists() and "iteration  6/12" in log.read_text())
    os.kill(rank_processes(site, "n2")[-1], signal.SIGKILL)
    out, _ = process.communicate(timeout=STUCK_SECONDS)
    assert process.returncode == 0, out
    assert "resumes from" in out
    assert len(losses(site, "whole")) == 12
    assert losses(site, "broken") == losses(site, "whole")
    status = json.loads((site.folder / "broken/run/status.json").read_text())
    assert (status["state"], status["restarts"]) == ("done", 1)
    assert not site.left()


def test_three_nodes_through_slurm_go_on_after_a_node_is_gone(site: Site):
    whole = site.launch("run", *overrides(site, "ssh", 3, 1, "whole"), "--json", timeout=300)
    assert whole.code == 0, whole
    done = site.launch("run", *overrides(site, "slurm", 3, 1, "out"), "--json")
    assert done.code == 0, done
    run_id = done.json["id"]

    def state() -> str:
        return str(site.launch("status", run_id, "--json").json["state"])

    wait_until(lambda: "iteration  6/12" in site.log(0))
    job = json.loads((site.folder / "out/run/run.json").read_text())["handle"]["job"]
    try:
        for text in ("run/node.sh", "slurm", "torchrun", "rehearse.core"):
            site.machines.kill("n3", text)
        wait_until(lambda: state() == "queued")
        # Down first: a node that came back unnoticed would get the signals that were meant for the run before.
        site.machines.slurm("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test")
        site.machines.call("slurmd", "n3")
        site.machines.slurm("scontrol", "update", "NodeName=n3", "State=RESUME")
        wait_until(lambda: "idle" in site.machines.slurm("sinfo", "-h", "-n", "n3", "-o", "%t"))

        def is_done() -> bool:
            now = state()
            if now == "queued":  # Slurm would wait two minutes
                site.machines.slurm("scontrol", "update", f"JobId={job}", "StartTime=now")
            return now == "done"

        wait_until(is_done, lambda: site.log(0)[-3000:])
    finally:
        site.machines.call("slurmd", "n3", check=False)
    assert losses(site, "out") == losses(site, "whole")
    assert len(losses(site, "out")) == 12


def test_a_failure_of_one_rank_is_reported_as_that_rank_s(site: Site):
    """Rank 1 alone cannot write its checkpoint: the others only lose their connection."""
    process = site.start("run", *overrides(site, "ssh", 2, 2, "out"))
    wait_until(lambda: "iteration  2/12" in site.log(0))
    os.kill(rank_processes(site, "n1")[-1], signal.SIGSEGV)
    out, _ = process.communicate(timeout=STUCK_SECONDS)
    assert process.returncode == 1
    shown = site.launch("status", "out", "--json").json
    assert shown["failure"]["rank"] == 1, (shown, out[-3000:])
    assert shown["failure"]["host"] == "n1"
