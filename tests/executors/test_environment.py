"""Inside a platform's job: every node knows its place, and sizes that contradict the job are refused."""

import pytest

from launcher.executors.environment.nodes import here, plan_of_node
from launcher.executors.failure import CannotStart
from launcher.plan import LaunchPlan, NodePlan, Start


def plan(nodes: int = 2, devices: int = 8, **start: object) -> LaunchPlan:
    def node(rank: int) -> NodePlan:
        args = (
            "torchrun",
            "--node_rank",
            str(rank),
            "--master_addr",
            "${MASTER_ADDR}",
            "--master_port",
            "20001",
            "x.py",
        )
        return NodePlan(rank=rank, argv=args, env={"MASTER_ADDR": "${MASTER_ADDR}", "MASTER_PORT": "20001"})

    more = Start(devices_per_node=devices, **start)  # type: ignore[arg-type]
    prepare = (NodePlan(rank=0, argv=("true",)),)
    return LaunchPlan(nodes=tuple(node(rank) for rank in range(nodes)), prepare=prepare, start=more)


TOLD = {
    "TrainJob": (
        {
            "PET_NNODES": "2",
            "PET_NODE_RANK": "1",
            "PET_NPROC_PER_NODE": "8",
            "PET_MASTER_ADDR": "job-node-0-0.job",
            "PET_MASTER_PORT": "29400",
        },
        ("job-node-0-0.job", "29400"),
    ),
    "PyTorchJob sets both": (
        {
            "PET_NNODES": "2",
            "PET_NODE_RANK": "1",
            "PET_NPROC_PER_NODE": "auto",
            "WORLD_SIZE": "16",
            "RANK": "1",
            "PET_MASTER_ADDR": "m",
            "PET_MASTER_PORT": "1",
        },
        ("m", "1"),
    ),
    "PAI": (
        {"WORLD_SIZE": "2", "RANK": "1", "NPROC_PER_NODE": "8", "MASTER_ADDR": "dlc-master-0", "MASTER_PORT": "23456"},
        ("dlc-master-0", "23456"),
    ),
    "ModelArts": (
        {"MA_NUM_HOSTS": "2", "VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "job-0.job,job-1.job", "MA_NUM_GPUS": "8"},
        ("job-0.job", "20001"),
    ),
    "Volcano": (
        {"VC_WORKER_NUM": "2", "VC_TASK_INDEX": "1", "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j"},
        ("j-worker-0.j", "20001"),
    ),
    "Volcano's pytorch plug-in": (
        {
            "VC_WORKER_NUM": "1",
            "VC_TASK_INDEX": "0",
            "VC_WORKER_HOSTS": "j-worker-0.j",
            "WORLD_SIZE": "2",
            "RANK": "1",
            "MASTER_ADDR": "j-master-0.j",
            "MASTER_PORT": "23456",
        },
        ("j-master-0.j", "23456"),
    ),
    "Volcengine": (
        {
            "MLP_WORKER_NUM": "2",
            "MLP_ROLE_INDEX": "1",
            "MLP_WORKER_GPU": "8",
            "MLP_WORKER_0_HOST": "10.1.0.1",
            "MLP_WORKER_0_PORT": "9006",
        },
        ("10.1.0.1", "9006"),
    ),
    "Slurm": (
        {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_JOB_NODELIST": "gpu[03-04]"},
        ("gpu03", "20001"),
    ),
    "plain": (
        {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4242"},
        ("10.0.0.1", "4242"),
    ),
}


@pytest.mark.parametrize("case", TOLD.values(), ids=TOLD.keys())
def test_a_node_finds_its_place(case):
    environ, (address, port) = case
    part = plan_of_node(plan(), here(plan(), environ))
    (node,) = part.nodes
    assert node.argv[1:7] == ("--node_rank", "1", "--master_addr", address, "--master_port", port)
    assert node.env == {"MASTER_ADDR": address, "MASTER_PORT": port}
    assert part.prepare == ()


def test_only_node_0_prepares():
    environ = {**TOLD["PAI"][0], "RANK": "0"}
    assert plan_of_node(plan(), here(plan(), environ)).prepare


def test_what_the_user_says_of_the_rendezvous_wins():
    chosen = plan(address="mine", port=20001)
    node = plan_of_node(chosen, here(chosen, TOLD["PAI"][0])).nodes[0]
    assert node.argv[6] == "20001"


REFUSED = {
    "nothing is said": ({}, "does not identify this node"),
    "too many nodes": ({**TOLD["PAI"][0], "WORLD_SIZE": "4"}, "WORLD_SIZE=4, but the job has cluster.nodes=2 x"),
    "processes instead of nodes": (
        {**TOLD["PAI"][0], "WORLD_SIZE": "16"},
        "nodes x devices must match the platform",
    ),
    "other devices": ({**TOLD["PAI"][0], "NPROC_PER_NODE": "4"}, "NPROC_PER_NODE=4, but the job has"),
    "rank beyond": ({**TOLD["PAI"][0], "RANK": "2"}, "RANK=2 is not one of 2 nodes"),
    "rank no number": ({**TOLD["PAI"][0], "RANK": "master"}, "RANK='master' in the environment is not a number"),
    "no master": ({"NNODES": "2", "NODE_RANK": "1"}, "MASTER_ADDR does not name the host of node 0"),
    "a rank already": ({**TOLD["PAI"][0], "LOCAL_RANK": "0"}, "start launch once on every node"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_contradicts_the_job_is_refused(case):
    environ, message = case
    with pytest.raises(CannotStart, match=message):
        here(plan(), environ)
