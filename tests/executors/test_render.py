"""Rendered files: plain bash that says everything, of a size that does not grow with what nodes have in common."""

import subprocess
from pathlib import Path

import pytest

from launcher.executors import BUILT_IN
from launcher.executors.failure import CannotStart
from launcher.executors.slurm.executor import EXECUTOR, Request
from launcher.executors.ssh.executor import Hosts
from launcher.plan import LaunchPlan, NodePlan, Start, Watch
from launcher.plan.executor import Place, get_executor

PLACE = Place(id="job-1", folder="/shared/it's here/out", launch_dir="/shared/it's here")


def plan(nodes: int, **start: object) -> LaunchPlan:
    def node(rank: int, *more: str) -> NodePlan:
        args = ("torchrun", "--node_rank", str(rank), "--master_addr", "${MASTER_ADDR}", "--master_port", "20001")
        return NodePlan(rank=rank, argv=(*args, "x.py", "--pattern", "([0]*3+[1]*58)", *more))

    hosts = tuple(f"node{rank}" for rank in range(nodes))
    settings = Hosts(hosts=hosts) if start["executor"] == "ssh" else Request(options=(f"--nodes={nodes}",))
    known = {"devices_per_node": 8, "settings": settings, **start}
    resume = LaunchPlan(nodes=tuple(node(rank, "--load", "${LAUNCH_RESUME}") for rank in range(nodes)))
    watch = Watch(checkpoints="out/checkpoints", trackers=(("", "latest"),), iteration_line="iteration +[0-9]+")
    return LaunchPlan(
        nodes=tuple(node(rank) for rank in range(nodes)),
        output_dir="out",
        start=Start(**known),  # type: ignore[arg-type]
        resume=resume,
        watch=watch,
    )


def rendered(name: str, nodes: int, **start: object) -> dict[str, str]:
    executor = get_executor(name)
    return {Path(file.path).name: file.content for file in executor.render(plan(nodes, executor=name, **start), PLACE)}


@pytest.mark.parametrize("name", ["ssh", "slurm"])
def test_every_file_is_bash(name):
    for file, text in rendered(
        name, 3, setup=('source "/opt/it is/env.sh"',), max_restarts=2, hang_seconds=60.0
    ).items():
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0, (file, done.stderr)


def test_all_executors_are_there():
    assert [get_executor(name).name for name in BUILT_IN] == list(BUILT_IN)


def test_the_port_is_found_at_the_start_unless_the_user_chose_it():
    assert '--master_port "${MASTER_PORT}"' in rendered("ssh", 2)["command.sh"]
    assert "--master_port 20001" in rendered("ssh", 2, port=20001)["command.sh"]


def test_a_sites_options_are_in_the_batch_script():
    options = ("--nodes=2", "--partition=a b", "--gres=npu:8", "--exclusive")
    text = rendered("slurm", 2, settings=Request(options=options))["job.sbatch"]
    for line in ("#SBATCH --partition='a b'", "#SBATCH --gres=npu:8", "#SBATCH --exclusive", "#SBATCH --comment=job-1"):
        assert line in text.splitlines()
    assert text.index("#SBATCH") < text.index("\nid=")
    assert "srun=(srun)" in text


# run directory, what is mounted beside the user's own folder
MOUNTED = {
    "below the launch folder": ("/shared/here/out", "/shared/here:/shared/here"),
    "elsewhere": ("/runs/out", "/shared/here:/shared/here,/runs/out:/runs/out"),
    "beside": ("/shared/here2", "/shared/here:/shared/here,/shared/here2:/shared/here2"),
}


@pytest.mark.parametrize("case", MOUNTED.values(), ids=MOUNTED.keys())
def test_a_container_sees_the_launcher_s_files_and_the_user_s(case):
    folder, mounts = case
    place = Place(id="job-1", folder=folder, launch_dir="/shared/here")
    made = plan(2, executor="slurm", container="reg#img:1", container_mounts=("/data:/data:ro",))
    files = {Path(file.path).name: file.content for file in EXECUTOR.render(made, place)}
    args = f"srun=(srun '--container-image=reg#img:1' --container-mounts={mounts},/data:/data:ro)"
    assert args in files["job.sbatch"].splitlines()
    assert "HF_HOME" in next(line for line in files["job.sbatch"].splitlines() if line.startswith("carry="))
    assert "first_path=''" in files["node.sh"].splitlines(), "the image says which Python there is"


def test_a_folder_that_no_mount_can_name_is_refused():
    with pytest.raises(CannotStart, match="it's here cannot be mounted"):
        rendered("slurm", 2, container="img.sqsh")


@pytest.mark.parametrize("name", ["ssh", "slurm"])
def test_size_is_linear_in_nodes_with_a_small_slope(name):
    def size(nodes: int) -> int:
        return sum(len(text) for text in rendered(name, nodes).values())

    small, large = size(100), size(1000)
    assert (large - small) / 900 < 20, "a node costs its name, and nothing else"
