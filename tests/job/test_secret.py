"""Words of a command line are kept and shown without the values of secrets, in whatever form these come."""

import pytest

from launcher.executors.record import record_of
from launcher.job.secret import without_secrets
from launcher.plan import LaunchPlan, NodePlan, Start
from launcher.plan.executor import Place

# word: what is shown of it
ARGS = {
    "backend.env.HF_TOKEN=S": "backend.env.HF_TOKEN=…",
    "++backend.env.DB_CREDENTIALS=S": "++backend.env.DB_CREDENTIALS=…",
    "backend.args.hub_token=S": "backend.args.hub_token=…",
    "++backend.env={HF_TOKEN:S}": "++backend.env={HF_TOKEN:…}",
    "backend.env= {'HF_TOKEN': S}": "backend.env= {'HF_TOKEN': …}",
    "backend.env={HF_TOKEN:S},{HF_TOKEN:S}": "backend.env={HF_TOKEN:…},{HF_TOKEN:…}",
    "backend.args={hub_token:S,seed:1}": "backend.args={hub_token:…,seed:1}",
    "+backend={env:{HF_TOKEN:S}}": "+backend=…",
    "backend.args.kwargs={a:{token:S}}": "backend.args.kwargs=…",
    'backend.args.kwargs={"api_key": S}': "backend.args.kwargs=…",
    "backend.args.kwargs={a:1}": "backend.args.kwargs={a:1}",
    "backend.env.CACHE=${HOME}/x": "backend.env.CACHE=${HOME}/x",
    "backend=megatron": "backend=megatron",
    "parallel.tp=2": "parallel.tp=2",
}


@pytest.mark.parametrize(("arg", "shown"), ARGS.items(), ids=ARGS)
def test_an_argument_is_shown_without_its_secret(arg: str, shown: str) -> None:
    assert without_secrets([arg]) == [shown]


def test_a_record_keeps_the_arguments_without_secrets() -> None:
    plan = LaunchPlan(nodes=(NodePlan(rank=0, argv=("true",)),), start=Start(executor="local"))
    place = Place(id="x-1", folder="/x", launch_dir="/")
    assert list(record_of(plan, place, ("launch", "run", *ARGS)).command) == ["launch", "run", *ARGS.values()]
