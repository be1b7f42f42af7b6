"""Levels of links: a domain across nodes takes effect; a collective runs on the levels that its group crosses."""

from typing import Any

import pytest

from launcher.compose import compose
from launcher.estimate import CannotEstimate, estimate, network
from launcher.estimate.machine import Machine, read_machine
from launcher.job import with_values
from tests.estimate.estimate_jobs import MOE, job_with

MB = 1e6


def machine(nodes: int = 8, devices: int = 4, **hardware: Any) -> Machine:
    job = job_with(cluster={"nodes": nodes, "devices_per_node": devices}, hardware=hardware)
    return read_machine(job, experts=False)[0]


def spans(machine: Machine) -> list[int]:
    return [level.devices for level in machine.levels[:-1]]


LEVELS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "host and network": ({}, [4]),
    "a board larger than the host's share": ({"node_devices": 8}, [4]),
    "a host of two boards": ({"node_devices": 2}, [2]),
    "a domain of the same links": ({"domain_devices": 16}, [16]),
    "a domain of slower links": ({"domain_devices": 16, "domain_gbs": 100.0}, [4, 16]),
    "the whole job in one domain": ({"domain_devices": 72}, [72]),
    "part of each domain": ({"domain_devices": 18, "domain_used_devices": 16}, [16]),
    "a domain no larger than a host": ({"domain_devices": 4}, [4]),
    "rails": ({"rail_devices": 16, "spine_oversubscription": 2.0}, [4, 16]),
    "rails without another spine": ({"rail_devices": 16}, [4]),
    "one rail": ({"rail_devices": 32, "spine_oversubscription": 2.0}, [4]),
    "all four": ({"domain_devices": 8, "domain_gbs": 100.0, "rail_devices": 16, "spine_gbs": 10.0}, [4, 8, 16]),
    "a mesh inside a domain": ({"full_mesh": True, "domain_devices": 16}, [4, 16]),
}


@pytest.mark.parametrize(("hardware", "devices"), LEVELS.values(), ids=list(LEVELS))
def test_levels_of_a_machine(hardware: dict[str, Any], devices: list[int]) -> None:
    assert spans(machine(**hardware)) == devices


def test_a_group_inside_a_domain_does_not_use_the_network() -> None:
    plain, domain = machine(), machine(domain_devices=16)
    slow = machine(domain_devices=16, inter_node_gbs=1.0)
    for collective in (network.all_gather, network.reduce_scatter, network.all_reduce, network.all_to_all):
        assert collective(domain, 100 * MB, 16, 1) < collective(plain, 100 * MB, 16, 1)
        assert collective(domain, 100 * MB, 16, 1) == collective(slow, 100 * MB, 16, 1)
        assert collective(domain, 100 * MB, 32, 1) < collective(slow, 100 * MB, 32, 1)
    assert network.send(domain, 100 * MB, 8) < network.send(plain, 100 * MB, 8)


def test_a_level_that_a_group_does_not_cross_costs_nothing() -> None:
    fast = machine(domain_devices=8, domain_gbs=300.0, rail_devices=16, spine_gbs=40.0)
    slow = machine(domain_devices=8, domain_gbs=300.0, rail_devices=16, spine_gbs=1.0)
    for group, stride in ((4, 1), (8, 1), (16, 1), (2, 8)):
        assert network.all_reduce(fast, MB, group, stride) == network.all_reduce(slow, MB, group, stride)
        assert network.all_to_all(fast, MB, group, stride) == network.all_to_all(slow, MB, group, stride)
    assert network.all_to_all(fast, 100 * MB, 32, 1) < network.all_to_all(slow, 100 * MB, 32, 1)
    assert network.all_reduce(fast, 100 * MB, 32, 1) < network.all_reduce(slow, 100 * MB, 32, 1)


def test_three_levels_go_inside_first() -> None:
    """The outer ring carries the share that the inner levels leave, on the links of each device."""
    levels = {"domain_devices": 8, "domain_gbs": 100.0, "domain_latency_us": 0.0, "collective_latency_us": 0.0}
    wide = machine(**levels, intra_node_latency_us=0.0, inter_node_latency_us=0.0)
    size, inner = 800 * MB, network.all_gather(wide, 800 * MB, 8, 1)
    rail = 50e9 * 0.8
    assert network.all_gather(wide, size, 32, 1) == pytest.approx(inner + size / 8 * 3 / 4 / rail)


def test_an_exchange_inside_a_domain_waits_as_long_as_one_of_eight_devices() -> None:
    wide = machine(nodes=16, domain_devices=64, domain_gbs=400.0, domain_latency_us=3.0, collective_latency_us=5.0)
    assert network.all_to_all(wide, 1e-9, 64, 1) == pytest.approx(5e-6 + 7 * 3e-6)
    assert network.dispatch(wide, 1e-9, 8.0, 1.0, 64, 1) == pytest.approx(5e-6 + 7 * 3e-6)
    assert network.all_gather(wide, 1e-9, 64, 1) == pytest.approx(5e-6 + 63 * 3e-6, rel=0.2)


def test_oversubscription_divides_the_bandwidth() -> None:
    size, job = 100 * MB, {"domain_devices": 8, "rail_devices": 16}
    plain, over = machine(**job, spine_gbs=49.9), machine(**job, spine_gbs=49.9, spine_oversubscription=4.0)
    ratio = network.send(over, size, 16) / network.send(plain, size, 16)
    assert ratio == pytest.approx(4.0, rel=0.02)
    domain = {"domain_devices": 16, "domain_gbs": 450.0}
    assert network.send(machine(**domain, domain_oversubscription=2.0), size, 8) > network.send(
        machine(**domain), size, 8
    )


def test_tokens_cross_the_network_once_for_each_domain() -> None:
    """A token is sent once to each domain that holds its experts, not once to each node."""
    nodes = network.dispatch(machine(inter_node_gbs=10.0), 10 * MB, 6.0, 5.0, 32, 1)
    domains = network.dispatch(machine(inter_node_gbs=10.0, domain_devices=16), 10 * MB, 6.0, 2.0, 32, 1)
    assert domains < nodes / 2


GB = ["+recipe=qwen3_moe", "hardware=gb200", "cluster.nodes=16", "cluster.devices_per_node=4", "parallel.ep=64"]


def test_the_domain_of_an_nvl72_takes_effect() -> None:
    rack = estimate(compose([*GB, "parallel.pp=1"]), changes=False)
    hosts = estimate(compose([*GB, "parallel.pp=1", "hardware.domain_devices=null"]), changes=False)
    assert rack.time is not None
    assert hosts.time is not None
    assert rack.time.exposed_comm_s < 0.3 * hosts.time.exposed_comm_s


def test_a_node_larger_than_the_host_is_named_with_the_field_of_the_domain() -> None:
    answer = estimate(compose([*GB, "parallel.pp=1", "hardware.node_devices=72"]), changes=False)
    assert any("hardware.domain_devices=72" in note for note in answer.missing)
    quiet = estimate(compose([*GB[:1], "hardware=h100_80g", "cluster.nodes=8", "cluster.devices_per_node=4"]))
    assert not any("node_devices" in note for note in quiet.missing)


def test_the_network_is_not_assumed_inside_one_domain() -> None:
    inside = read_machine(compose(GB), experts=True)[1]
    outside = read_machine(compose([*GB, "cluster.nodes=32"]), experts=True)[1]
    assert not any("inter_node_latency_us" in note for note in inside)
    assert any("inter_node_latency_us" in note for note in outside)


FORMATS = {
    "fp8": ({"fp8_format": "hybrid"}, 2000.0),
    "fp8_blockwise": ({"fp8_format": "hybrid", "fp8_recipe": "blockwise"}, 1800.0),
    "mxfp8": ({"fp8_format": "hybrid", "fp8_recipe": "mxfp8"}, 2200.0),
    "nvfp4": ({"fp4_format": "e2m1"}, 4000.0),
}
PEAKS = {f"{name}_tflops": peak for name, (_, peak) in FORMATS.items()}


@pytest.mark.parametrize(("name", "precision", "peak"), [(n, *v) for n, v in FORMATS.items()], ids=list(FORMATS))
def test_a_number_format_has_its_own_peak_and_efficiency(name: str, precision: dict[str, Any], peak: float) -> None:
    job = job_with(precision=precision, hardware={**PEAKS, "matmul_efficiency": 0.6, "weight_gradient_efficiency": 0.5})
    plain, notes = read_machine(job, experts=False)
    assert plain.peak == peak * 1e12
    assert plain.peak_bf16 == 1000e12
    assert any(note.startswith(f"hardware.{name}_matmul_efficiency: 0.6 (that of BF16") for note in notes)
    own, notes = read_machine(with_values(job, {f"hardware.{name}_matmul_efficiency": 0.3}), experts=False)
    assert (own.matmul, own.weight_gradient) == (0.3, 0.25)
    assert not any(f"{name}_matmul" in note for note in notes)
    both = {f"hardware.{name}_matmul_efficiency": 0.3, f"hardware.{name}_weight_gradient_efficiency": 0.4}
    own, _ = read_machine(with_values(job, both), experts=False)
    assert (own.matmul, own.weight_gradient) == (0.3, 0.4)


def test_nvfp4_is_faster_and_keeps_less_than_fp8_and_bf16() -> None:
    hardware = {"hardware": {**PEAKS, "host_launch_us": 0.0}, "model": {**MOE, "hidden_size": 8192}}
    plain, eight, four = (
        estimate(job_with(**hardware, precision=precision), changes=False)
        for precision in ({}, FORMATS["fp8"][0], FORMATS["nvfp4"][0])
    )
    assert plain.time is not None
    assert eight.time is not None
    assert four.time is not None
    assert four.time.forward_s < eight.time.forward_s < plain.time.forward_s
    assert four.stages[0].activations < eight.stages[0].activations < plain.stages[0].activations


# Contradictions of a machine, and what is offered: the machine as it is, taken in other parts.
CONTRADICTIONS = {
    "part of each domain": (
        ["cluster.nodes=3", "batch.global_batch_size=96", "hardware.domain_devices=16"],
        "hardware.domain_used_devices=8",
    ),
    "links that join no whole share of a node": (
        ["cluster.nodes=4", "hardware.node_devices=3"],
        "hardware.node_devices=2",
    ),
    "part of a domain that is not there": (
        ["cluster.nodes=4", "hardware.domain_used_devices=16"],
        "hardware.domain_used_devices=null",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradictory_machine_is_refused_with_one_that_works(name: str) -> None:
    args, works = CONTRADICTIONS[name]
    words = ["+recipe=qwen3_8b", "backend=megatron", "parallel.tp=4", "hardware=h100_80g", *args]
    with pytest.raises(CannotEstimate) as caught:
        estimate(compose(words))
    (finding,) = caught.value.findings
    assert finding.rule == "EST-TOPOLOGY"
    assert [fix.overrides for fix in finding.fixes] == [(works,)]
    estimate(compose([*words, works]), changes=False)
