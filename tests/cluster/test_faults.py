"""Each fault in each way to start nodes: how it ends, what is left, which exit code, and the loss after going on."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.machines import Machines, Site, lacking, sites
from tests.cluster.trainings import losses, overrides, rank_processes
from tests.waiting import wait_until
from tools.bench.faults.case import Case, Result
from tools.bench.faults.cases import CASES
from tools.bench.faults.lanes import LANES
from tools.bench.faults.lanes import lacking as lacking_for

pytestmark = [
    pytest.mark.sample(keep=10, of="cluster"),
    pytest.mark.slow,
    pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-"),
]


@pytest.fixture(autouse=True, scope="module")
def _heard() -> Iterator[None]:
    """A suite that a shell started in the background ignores SIGQUIT, and so would what it starts."""
    before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.fixture(scope="module")
def whole(machines: Machines, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, str]]:
    """The losses of a run that nothing interrupted."""
    for site in sites(tmp_path_factory.mktemp("whole"), machines):
        done = site.launch("run", *overrides(site, "ssh", 2, 1, "out"), "--json", timeout=600)
        assert done.code == 0, done
        found = losses(site, "out")
        assert len(found) == 12
        yield found


def status(site: Site, folder: str = "out") -> dict[str, object]:
    return site.launch("status", folder, "--json").json  # type: ignore[no-any-return]


def has_come(site: Site, iteration: int) -> bool:
    return any(f"iteration {iteration:2}/12" in site.log(node) for node in (0, 1))


def job_of(site: Site) -> str:
    return str(json.loads((site.folder / "out/run/run.json").read_text())["handle"]["job"])


def test_slurm_a_killed_rank_costs_time_and_nothing_else(site: Site, whole: dict[int, str]):
    process = site.start("run", *overrides(site, "slurm", 2, 1, "out"), "fault_tolerance.max_restarts=1", "--wait")
    wait_until(lambda: has_come(site, 6))
    os.kill(rank_processes(site, "n2")[-1], signal.SIGKILL)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    shown = status(site)
    assert (shown["state"], shown["code"], shown["restarts"]) == ("done", 0, 1)
    assert losses(site, "out") == whole
    assert not site.left()


def test_slurm_a_killed_rank_without_restarts_is_the_job_s_failure(site: Site):
    process = site.start("run", *overrides(site, "slurm", 2, 1, "out"), "cluster.requeue=false", "--wait")
    wait_until(lambda: has_come(site, 2))
    os.kill(rank_processes(site, "n2")[-1], signal.SIGKILL)
    process.communicate(timeout=600)
    assert process.returncode == 1
    shown = status(site)
    assert shown["state"] == "failed"
    first = min((end for end in shown["exits"] if end["code"]), key=lambda end: end["at"])  # type: ignore[attr-defined]
    assert shown["code"] == first["code"]
    wait_until(lambda: not site.left(), site.left)


def test_ssh_a_lost_connection_costs_time_and_nothing_else(site: Site, whole: dict[int, str]):
    process = site.start("run", *overrides(site, "ssh", 2, 1, "out"), "fault_tolerance.max_restarts=1")
    wait_until(lambda: has_come(site, 6))
    try:
        assert site.machines.kill("n2", "sshd")
    finally:
        site.machines.call("sshd", "n2")
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    assert "the connection is lost" in out
    assert losses(site, "out") == whole
    shown = status(site)
    assert (shown["state"], shown["restarts"]) == ("done", 1)
    assert (shown["exits"][0]["node"], shown["exits"][0]["code"]) == (1, 255)  # type: ignore[index]
    assert not site.left()


def goes_on(site: Site, executor: str, whole: dict[int, str]) -> None:
    """Start the job again from what the one before left, and compare."""
    words_of = [*overrides(site, executor, 2, 1, "again"), "checkpoint.load=out/checkpoints"]
    done = site.launch("run", *words_of, "--wait", "--json", timeout=600)
    assert done.code == 0, done
    later = losses(site, "again")
    if not later:  # a busy machine: all was trained when the stop arrived
        assert max(losses(site, "out")) == 12
        assert {**whole, **losses(site, "out")} == whole
        return
    assert min(later) > 4, "it goes on, and does not begin anew"
    # A line that was on its way when its reader was killed is lost; none may differ.
    assert {**whole, **losses(site, "out"), **later} == whole
    assert set(later) == set(range(min(later), 13))
    assert not site.left()


@pytest.mark.parametrize("by", ["scancel", "stop"])
def test_slurm_a_cancelled_job_goes_on_later_with_the_same_loss(site: Site, whole: dict[int, str], by: str):
    assert site.launch("run", *overrides(site, "slurm", 2, 1, "out")).code == 0
    wait_until(lambda: has_come(site, 6))
    if by == "stop":
        assert site.launch("stop", "out").code == 0
    else:
        site.machines.slurm("scancel", job_of(site))
    wait_until(lambda: status(site)["state"] == "stopped")
    assert status(site)["code"] in (130, 143)
    wait_until(lambda: not site.left(), site.left)
    goes_on(site, "slurm", whole)


def test_ssh_a_killed_launcher_leaves_nothing_and_the_job_goes_on_later(site: Site, whole: dict[int, str]):
    process = site.start("run", *overrides(site, "ssh", 2, 1, "out"))
    wait_until(lambda: has_come(site, 6))
    process.kill()
    wait_until(lambda: not site.left(), site.left)
    wait_until(lambda: status(site)["state"] == "stopped")
    goes_on(site, "ssh", whole)


def test_slurm_a_killed_launcher_harms_nothing(site: Site, whole: dict[int, str]):
    process = site.start("run", *overrides(site, "slurm", 2, 1, "out"), "--wait")
    wait_until(lambda: has_come(site, 2))
    process.kill()
    wait_until(lambda: status(site)["state"] == "done")
    assert losses(site, "out") == whole
    assert not site.left()


HOLD = """
import socket, time
held = [socket.create_server(("", 23457))]
print("held", flush=True)
time.sleep(120)
"""


def test_slurm_a_demanded_port_that_is_taken_ends_the_job_before_a_rank_starts(site: Site):
    with site.machines.holding("n1", HOLD):
        words_of = [*overrides(site, "slurm", 2, 1, "out"), "cluster.master_port=23457"]
        done = site.launch("run", *words_of, "--wait", "--json")
    assert done.code == 1, done
    assert (done.json["exit_code"], done.json["state"]) == (73, "failed")
    assert status(site)["why"] == "port 23457 is taken"
    assert not list(Path(site.folder / "out/logs").glob("node*.log"))
    assert not site.left()


@pytest.mark.sample(keep=1, by="executor")
@pytest.mark.parametrize(("executor", "case"), [pytest.param(each.executor, each, id=each.key) for each in CASES])
def test_a_fault_of_the_list_in_the_documentation(tmp_path: Path, executor: str, case: Case):
    """The stub trainer; `python -m tools.bench.faults` does all of them."""
    if why := lacking_for(executor):
        pytest.skip(why)
    found: list[Result] = []
    lane, _ = LANES[executor]
    lane(tmp_path / "faults", [case], lambda _, result: found.append(result))
    if not found[0].right:
        pytest.fail("\n".join([case.key, *found[0].wrong]))
