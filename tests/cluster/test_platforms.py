"""Inside a platform's job: every node runs the same command, and what is set there makes them train together."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.cluster.machines import SCRIPT, Site, lacking
from tests.cluster.trainings import JOB, losses, overrides, rank_processes
from tests.waiting import STUCK_SECONDS, wait_until

pytestmark = [
    pytest.mark.sample(keep=10, of="cluster"),
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-"),
]

PORT = "23456"
# What each platform sets on node R of two with one process each; N is the node's own number where it differs.
PLATFORMS: dict[str, dict[str, str]] = {
    "TrainJob": {
        "PET_NNODES": "2",
        "PET_NODE_RANK": "R",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "n1",
        "PET_MASTER_PORT": PORT,
    },
    "PyTorchJob": {
        "PYTHONUNBUFFERED": "1",
        "WORLD_SIZE": "2",
        "RANK": "R",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": PORT,
        "PET_NNODES": "2",
        "PET_NODE_RANK": "R",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "n1",
        "PET_MASTER_PORT": PORT,
    },
    "PAI": {"WORLD_SIZE": "2", "RANK": "R", "MASTER_ADDR": "n1", "MASTER_PORT": PORT, "NPROC_PER_NODE": "1"},
    "ModelArts": {"MA_NUM_HOSTS": "2", "MA_NUM_GPUS": "1", "VC_TASK_INDEX": "R", "VC_WORKER_HOSTS": "n1,n2"},
    "Volcano": {"VC_WORKER_NUM": "2", "VC_TASK_INDEX": "R", "VC_WORKER_HOSTS": "n1,n2"},
}
STEPS = ("schedule.train_iters=6", "checkpoint.save_interval=3")


def command(folder: str, *more: str) -> list[str]:
    size = ("cluster=environment", "cluster.nodes=2", "cluster.devices_per_node=1", f"output_dir={folder}")
    return [sys.executable, "-m", "launcher", "run", *JOB, *size, *more]


def start(site: Site, rank: int, reported: Mapping[str, str], *overrides: str) -> "subprocess.Popen[str]":
    """Start the job's command on a machine, as its platform would."""
    # Another mount namespace begins at the root.
    there = ["bash", "-c", 'cd "$0" && exec "$@"', str(site.folder)]
    place = [str(SCRIPT), "in", str(site.machines.root), f"n{rank + 1}", *there]
    process = subprocess.Popen(
        [*place, *overrides],
        cwd=site.folder,
        env={**site.environ, **{name: value.replace("R", str(rank)) for name, value in reported.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    site.started.append(process)
    return process


def ended(nodes: "list[subprocess.Popen[str]]") -> list[str]:
    return [node.communicate(timeout=600)[0] for node in nodes]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_two_nodes_of_a_platform_train_together(site: Site, platform: str):
    nodes = [start(site, rank, PLATFORMS[platform], *command("out", *STEPS)) for rank in (0, 1)]
    out = ended(nodes)
    assert [node.returncode for node in nodes] == [0, 0], out
    printed = "".join(path.read_text() for path in (site.folder / "out/logs").glob("node*.log"))
    assert "iteration  6/6" in printed or "iteration 6/6" in printed, printed[-2000:]
    assert (site.folder / "out/checkpoints/latest_checkpointed_iteration.txt").read_text().strip() == "6"
    shown = site.launch("status", "out", "--json").json
    assert (shown["state"], [end["code"] for end in shown["exits"]]) == ("done", [0, 0])
    assert not site.left()


def test_srun_is_a_platform_too(site: Site):
    done = subprocess.run(
        ["srun", "--nodes=2", "--ntasks-per-node=1", "--kill-on-bad-exit=1", *command("out", *STEPS)],
        cwd=site.folder,
        env=site.environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done
    assert (site.folder / "out/checkpoints/latest_checkpointed_iteration.txt").read_text().strip() == "6"
    assert not site.left()


def test_a_node_that_the_job_does_not_count_on_is_refused_on_every_node(site: Site):
    reported = {**PLATFORMS["PAI"], "WORLD_SIZE": "3"}
    nodes = [start(site, rank, reported, *command("out", *STEPS)) for rank in (0, 1)]
    out = ended(nodes)
    assert [node.returncode for node in nodes] == [1, 1]
    assert all("WORLD_SIZE=3, but the job has cluster.nodes=2" in text for text in out)
    assert not (site.folder / "out").exists()


def test_a_job_that_its_platform_restarts_goes_on_with_the_same_loss(site: Site):
    """The platform starts all pods again after a failure of one, as PyTorchJob and TrainJob do."""
    whole = site.launch("run", *overrides(site, "ssh", 2, 1, "whole"), "--json", timeout=600)
    assert whole.code == 0, whole
    reported = PLATFORMS["PyTorchJob"]
    nodes = [start(site, rank, reported, *command("out")) for rank in (0, 1)]
    wait_until(lambda: any("iteration  6/12" in site.log(node) for node in (0, 1)))
    os.kill(rank_processes(site, "n2")[-1], signal.SIGKILL)
    wait_until(lambda: nodes[1].poll() is not None)
    nodes[0].wait(timeout=STUCK_SECONDS)
    assert all(node.returncode for node in nodes)
    wait_until(lambda: not site.left(), site.left)
    again = [start(site, rank, reported, *command("out")) for rank in (0, 1)]
    out = ended(again)
    assert [node.returncode for node in again] == [0, 0], out
    assert "resumes from" in "".join(out)
    assert losses(site, "out") == losses(site, "whole")
    assert len(losses(site, "out")) == 12
