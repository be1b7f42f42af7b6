"""Variables of backends: set where their conditions hold, overridden by the user, with the origin of each."""

import pytest

from launcher.cli.explain_variables import VARIABLES
from launcher.mapping.backend import backend_names, get_backend
from launcher.mapping.environment import Variable, environment, explained
from launcher.pipeline import judge
from tests.conftest import Launch, make_job

ROW = Variable(name="X", value="1", source="a test")
ALWAYS, NPU = ROW, Variable(name="X", value="2", devices=("npu",), source="a test")
MANY = Variable(name="X", value="3", nodes=2, source="a test")
MINUTES = Variable(name="X", field="fault_tolerance.timeout_minutes", scale=60, source="a test")
WITH = Variable(name="X", value="4", argument="bf16", source="a test")
ABSENT = Variable(name="X", value="5", argument="deterministic-mode", source="a test")
NODES = {"nodes": 2, "master_addr": "node0"}


@pytest.mark.parametrize(
    "rows, changes, value",
    [
        ((ALWAYS,), {}, "1"),
        ((ALWAYS, NPU), {}, "1"),
        ((ALWAYS, NPU), {"hardware": {"device": "npu"}}, "2"),
        ((MANY,), {}, None),
        ((MANY,), {"cluster": NODES}, "3"),
        ((MINUTES,), {}, None),
        ((MINUTES,), {"fault_tolerance": {"timeout_minutes": 5}}, "300"),
        ((WITH,), {}, "4"),
        ((ABSENT,), {}, None),
        ((ALWAYS,), {"backend": {"env": {"X": "mine"}}}, "mine"),
    ],
)
def test_conditions(rows, changes, value):
    outcome = judge(make_job(changes), fixes=False)
    job = make_job({**changes, "backend": {"name": "megatron_lm", **changes.get("backend", {})}})
    assert environment(rows, job, outcome.native).get("X") == value


def test_every_variable_says_who_sets_it():
    job = make_job({"backend": {"name": "megatron_lm", "env": {"MINE": "1"}}})
    native = judge(job, fixes=False).native
    found = explained({"X": "1", "MINE": "1", "MASTER_PORT": "2"}, (ALWAYS,), job, native, VARIABLES)
    assert [(each.name, each.origin) for each in found] == [
        ("X", "backend"),
        ("MINE", "user"),
        ("MASTER_PORT", "launcher"),
    ]
    assert found[0].source == "a test"
    assert found[2].meaning


@pytest.mark.parametrize("name", backend_names())
def test_every_row_of_a_backend_has_a_meaning_and_a_source(name):
    for row in get_backend(name).environment:
        assert row.source
        assert row.meaning or VARIABLES[row.name].meaning, row.name
        assert (row.value is None) == bool(row.field)


def test_a_dry_run_shows_them_with_their_origin(launch: Launch):
    args = ("+recipe=tiny_qwen3", "backend=megatron", "backend.env.NCCL_DEBUG=INFO")
    tree = {row["name"]: row for row in launch("dry-run", *args, "--json").json["environment"]}
    assert (tree["NCCL_DEBUG"]["origin"], tree["NCCL_DEBUG"]["where"]) == ("user", "backend.env.NCCL_DEBUG=INFO")
    assert tree["PYTORCH_CUDA_ALLOC_CONF"]["origin"] == "backend"
    assert "112 Megatron scripts" in tree["PYTORCH_CUDA_ALLOC_CONF"]["source"]
    assert tree["NPROC_PER_NODE"]["origin"] == "launcher"


def test_args_and_explain_name_what_is_set(launch: Launch):
    listed = launch("args", "mindspeed", "--environment", "HCCL_CONNECT", "--json").json["set"]
    assert [(row["name"], row["value"]) for row in listed] == [("HCCL_CONNECT_TIMEOUT", "3600")]
    shown = launch("explain", "HCCL_CONNECT_TIMEOUT").out
    assert "7200  with 2 nodes or more" in shown
    assert launch("explain", "CPU_AFFINITY_CONF").code == 0
