"""What is asked before a start: a busy or drained Slurm is a warning, a request that can never run a refusal."""

import json
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.machines import Machines, Site, lacking
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.sample(keep=10, of="cluster"),
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-"),
]
NODES = ("n1", "n2", "n3")


@pytest.fixture
def drained(machines: Machines) -> Iterator[None]:
    machines.slurm("scontrol", "update", "NodeName=n[1-3]", "State=DRAIN", "Reason=new disks")
    yield
    up(machines)


def up(machines: Machines) -> None:
    machines.slurm("scontrol", "update", "NodeName=n[1-3]", "State=RESUME")
    wait_until(lambda: "drain" not in machines.slurm("sinfo", "-h", "-o", "%T"))


@pytest.fixture
def busy(machines: Machines) -> Iterator[None]:
    machines.slurm("sbatch", "--nodes=3", "--exclusive", "--time=30", "-o", "/dev/null", "--wrap", "sleep 1800")
    wait_until(lambda: "R" in machines.slurm("squeue", "-h", "-o", "%t").split())
    yield
    machines.slurm("scancel", "--me")
    wait_until(
        lambda: machines.slurm("sinfo", "-h", "-N", "-p", "debug", "-o", "%t").split() == ["idle"] * 3,
        lambda: machines.slurm("sinfo", "-h", "-N", "-p", "debug", "-o", "%N %T %E") + machines.slurm("squeue", "-h"),
    )


@pytest.mark.usefixtures("busy")
def test_busy_nodes_are_a_warning_with_the_expected_start(site: Site):
    site.program("step 1")
    done = site.launch("run", *site.args("slurm"), "cluster.exclusive=true", "--json")
    assert done.code == 0, done
    assert "slurm warns: the nodes are busy: expected start 20" in done.err
    site.machines.slurm("scancel", "--name=wrap")
    wait_until(lambda: site.launch("status", "out", "--json").json["state"] == "done")


@pytest.mark.usefixtures("drained")
def test_drained_nodes_are_a_warning_and_the_job_runs_when_they_are_up(site: Site):
    site.program("step 1")
    done = site.launch("run", *site.args("slurm"))
    assert done.code == 0, done
    assert "3 drained (n[1-3]: new disks)" in done.err
    assert site.launch("status", "out", "--json").json["state"] == "queued"
    up(site.machines)
    wait_until(lambda: site.launch("status", "out", "--json").json["state"] == "done")


@pytest.mark.usefixtures("drained")
def test_more_nodes_than_there_are_is_refused_although_some_are_drained(site: Site):
    site.program("step 1")
    done = site.launch("run", *site.args("slurm"), "cluster.nodes=12")
    assert done.code == 1, done
    assert "Requested node configuration is not available" in done.err
    assert not (site.folder / "out").exists()
    assert site.machines.slurm("squeue", "-h") == ""


def test_a_time_limit_above_the_partition_s_is_a_warning(site: Site):
    site.program("step 1")
    site.machines.slurm("scontrol", "update", "PartitionName=debug", "MaxTime=30")
    try:
        done = site.launch("doctor", *site.args("slurm"), "cluster.time_limit=2:00:00", "--json")
        (row,) = [check for check in done.json["checks"] if check["what"] == "Slurm"]
        assert row["verdict"] == "warning"
        assert "works: cluster.time_limit=30:00" in row["found"]
    finally:
        site.machines.slurm("scontrol", "update", "PartitionName=debug", "MaxTime=INFINITE")


def rows(text: str) -> dict[str, tuple[str, str]]:
    return {check["what"]: (check["verdict"], check["found"]) for check in json.loads(text)["checks"]}


def test_doctor_asks_slurm_and_with_nodes_also_the_nodes(site: Site):
    site.program("step 1")
    python = site.folder / "env" / "bin" / "python"
    python.symlink_to(sys.executable)
    asked = site.launch("doctor", *site.args("slurm"), "--json")
    assert rows(asked.out)["Slurm"] == ("ok", "it accepts the job")
    seen = rows(site.launch("doctor", *site.args("slurm"), "--nodes", "--json").out)
    assert "the same software on 2 hosts" in seen["hosts"][1]
    (site.folder / "dead.conf").write_text(
        "".join(
            "SlurmctldPort=1\n" if "SlurmctldPort" in line else f"{line}\n"
            for line in (site.machines.root / "slurm.conf").read_text().splitlines()
        )
    )
    dead = site.launch("doctor", *site.args("slurm"), "--json", env={"SLURM_CONF": f"{site.folder}/dead.conf"})
    assert dead.code == 1
    assert rows(dead.out)["Slurm"][0] == "error"


def test_a_folder_that_a_host_does_not_share_is_refused(site: Site):
    site.program("step 1")
    folder = site.folder / "data"
    folder.mkdir()
    args = [arg for arg in site.args("ssh") if not arg.startswith("output_dir=")]
    site.machines.on("n2", "mount", "-t", "tmpfs", "none", str(folder))
    try:
        done = site.launch("run", *args, "output_dir=data/out")
        assert done.code == 1, done
        assert f"shared folder: {folder} is another folder, or none, on n2" in done.err
        assert not (folder / "out").exists()
    finally:
        site.machines.on("n2", "umount", str(folder))
    assert site.launch("run", *args, "output_dir=data/out").code == 0
