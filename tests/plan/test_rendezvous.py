"""How processes find each other: never a fixed port, never loopback across nodes."""

from launcher.plan.rendezvous import MASTER_ADDR_UNSET, master_addr, master_port, torchrun
from tests.conftest import make_job


def test_one_node_meets_on_loopback_and_several_need_an_address():
    assert master_addr(make_job()) == "127.0.0.1"
    assert master_addr(make_job({"cluster": {"nodes": 2}})) == MASTER_ADDR_UNSET
    assert master_addr(make_job({"cluster": {"nodes": 2, "master_addr": "10.0.0.1"}})) == "10.0.0.1"


def test_port_is_the_same_on_every_node_and_differs_between_jobs():
    one, two = make_job({"name": "one"}), make_job({"name": "two"})
    assert master_port(one) == master_port(make_job({"name": "one"}))
    assert master_port(one) != master_port(two)
    assert master_port(one) != 29500
    assert master_port(make_job({"cluster": {"master_port": 4242}})) == 4242


def test_torchrun_names_every_size():
    args = torchrun(make_job({"cluster": {"nodes": 2}, "fault_tolerance": {"max_restarts": 3}}), 1, ("x.py", "--a"))
    assert args[:7] == ("torchrun", "--nproc_per_node", "8", "--nnodes", "2", "--node_rank", "1")
    assert args[-2:] == ("x.py", "--a")
    assert "--max-restarts" not in args, "it would start one node's ranks again, alone and without their checkpoint"
