"""A plan and its plain data are inverse, so that what a run kept starts the same again."""

import json

import pytest

from launcher.executors.slurm.executor import Request
from launcher.executors.ssh.executor import Hosts
from launcher.plan import LaunchPlan, NodePlan, PlanFile, Start, Watch
from launcher.plan.executor import get_executor
from launcher.plan.stored import WrongPlan, plan_from


def node(rank: int, *more: str) -> NodePlan:
    return NodePlan(
        rank=rank, argv=("x", "--node_rank", str(rank), *more), env={"R": f"{rank}", "K": "{rank"}, workdir="w"
    )


SETTINGS = {
    "local": None,
    "ssh": Hosts(hosts=("a", "b"), options=("-p", "2")),
    "slurm": Request(options=("--nodes=2",), array_limit=3),
}


@pytest.mark.parametrize("executor", SETTINGS)
def test_a_plan_is_the_same_after_it_was_stored(executor: str):
    plan = LaunchPlan(
        nodes=(*(node(rank) for rank in range(12)), node(12, "--other")),
        files=(PlanFile(path="p", content="c ${HF_TOKEN}", mode=0o755),),
        prepare=(node(0, "prepare"),),
        output_dir="out",
        what="it",
        notes=("one", "two"),
        start=Start(executor=executor, setup=("a",), container_mounts=("m",), port=5, settings=SETTINGS[executor]),
        watch=Watch(
            checkpoints="c", trackers=(("v*", "t"), ("", "u")), iteration_line="i", figures=(("loss", "l", 1.0),)
        ),
        resume=LaunchPlan(nodes=(node(0, "again"),)),
    )
    tree = json.loads(json.dumps(plan.as_tree()))
    stored = plan_from(tree, get_executor(executor).stored_settings if SETTINGS[executor] else lambda _: None)
    assert stored.nodes == plan.nodes
    if SETTINGS[executor] is None:
        assert stored == plan
    assert stored.start == plan.start
    assert (stored.files, stored.prepare, stored.watch) == (plan.files, plan.prepare, plan.watch)


@pytest.mark.parametrize("tree", [{}, {"start": 5}, {"start": {}, "watch": {}, "what": "", "files": [{}]}])
def test_what_is_no_plan_is_refused(tree: dict[str, object]):
    with pytest.raises(WrongPlan):
        plan_from(tree, lambda found: found)
