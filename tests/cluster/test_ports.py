"""Two jobs that start at once, in folders of their own, with the same choice of a port: both live."""

import subprocess
import sys

import pytest

from tests.cluster.machines import Site, lacking
from tests.waiting import STUCK_SECONDS

pytestmark = [pytest.mark.sample(keep=10, of="cluster"), pytest.mark.slow]

# As torchrun does after its imports: node 0 binds the port some seconds after it was chosen, and keeps it.
BINDS = """if [ "$NODE_RANK" = 0 ]; then
  sleep 3
  python3 -c "
import socket, time
held = socket.create_server(('', $MASTER_PORT))
time.sleep(5)" || exit 9
else
  sleep 8
fi
step 1"""


def both(site: Site, executor: str, *more: str) -> tuple[list[int], list[str]]:
    """Start a job twice at once, with the same id: each has its own folder of states; return their codes and ports."""
    site.program(BINDS)
    args = [arg for arg in site.args(executor) if not arg.startswith("output_dir=")]
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "launcher", "run", *args, f"output_dir=out{number}", *more],
            cwd=site.folder,
            env={**site.environ, "LAUNCH_HOME": f"{site.folder}.launch{number}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in (1, 2)
    ]
    said = [run.communicate(timeout=STUCK_SECONDS)[0] for run in runs]
    codes = [run.returncode for run in runs]
    ports = [site.log_of(f"out{number}").partition(", load")[0].rpartition(":")[2] for number in (1, 2)]
    print(*said, sep="\n")
    return codes, ports


def test_over_ssh(site: Site):
    codes, ports = both(site, "ssh")
    assert codes == [0, 0], site.log_of("out1") + site.log_of("out2")
    assert len(set(ports)) == 2


def test_over_ssh_one_of_two_has_a_port_that_both_ask_for(site: Site):
    codes, _ = both(site, "ssh", "cluster.master_port=23456")
    assert sorted(codes) == [0, 1]


@pytest.mark.skipif(bool(lacking(slurm=True)), reason=lacking(slurm=True) or "-")
def test_in_slurm(site: Site):
    codes, ports = both(site, "slurm", "--wait", "cluster.cpus_per_task=1")
    assert codes == [0, 0], site.log_of("out1") + site.log_of("out2")
    assert len(set(ports)) == 2
