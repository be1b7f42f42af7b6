"""How tokens reach their experts: what each dispatcher sends, and what hides behind computation."""

from typing import Any

import pytest

from launcher.estimate import CannotEstimate, Estimate, estimate
from tests.estimate.estimate_jobs import MOE, job_with

LAYOUT = {"ep": 32, "etp": 1}
MANY = {**MOE, "num_experts": 64, "num_experts_per_tok": 8, "hidden_size": 4096}


def on_nodes(model: dict[str, int] = MANY, **moe: object) -> Estimate:
    """Return the estimate of experts that are spread over four nodes."""
    batch = {"global_batch_size": 256}
    hardware = {"host_launch_us": 0.0}
    return estimate(
        job_with(model=model, parallel=LAYOUT, cluster={"nodes": 4}, moe=moe, batch=batch, hardware=hardware)
    )


def comm(answer: Estimate) -> float:
    assert answer.time is not None
    return answer.time.exposed_comm_s


def step(answer: Estimate) -> float:
    assert answer.time is not None
    return answer.time.step_s


def test_a_token_crosses_the_network_once_for_each_node() -> None:
    """Eight experts on four nodes: 8 x 3/4 copies by all-to-all, 4 x (1 - (3/4)^8) x 3/4 with DeepEP."""
    plain, once = on_nodes(), on_nodes(token_dispatcher_type="flex", deepep=True)
    saved = 6 / (4 * (1 - 0.75**8) * 0.75)
    assert comm(plain) / comm(once) == pytest.approx(saved, rel=0.1)


def test_groups_of_experts_limit_the_nodes_that_a_token_reaches() -> None:
    flex: dict[str, Any] = {"token_dispatcher_type": "flex", "deepep": True}
    grouped = on_nodes({**MANY, "n_group": 4, "topk_group": 2}, **flex)
    assert comm(grouped) < 0.7 * comm(on_nodes(**flex))


def test_gathering_sends_each_token_to_all_however_many_experts_it_visits() -> None:
    one, eight = {**MANY, "num_experts_per_tok": 1}, MANY
    assert comm(on_nodes(one)) < 0.3 * comm(on_nodes(eight))
    assert comm(on_nodes(one, token_dispatcher_type="allgather")) > comm(on_nodes(one))
    assert comm(on_nodes(one, token_dispatcher_type="allgather")) == pytest.approx(
        comm(on_nodes(eight, token_dispatcher_type="allgather")), rel=0.05
    )


def test_beside_another_micro_batch_no_more_hides_than_there_is_computation() -> None:
    plain, beside = on_nodes(), on_nodes(batch_overlap=True)
    assert plain.time is not None
    assert beside.time is not None
    work = plain.time.forward_s + plain.time.backward_s
    assert comm(plain) > work
    assert comm(beside) > comm(plain) - work
    assert step(beside) < step(plain)


def test_a_short_exchange_hides_almost_wholly() -> None:
    near: dict[str, Any] = {"parallel": {"ep": 8, "etp": 1}, "model": MOE, "hardware": {"host_launch_us": 0.0}}
    plain, beside = estimate(job_with(**near)), estimate(job_with(**near, moe={"batch_overlap": True}))
    assert 0.1 * comm(plain) < comm(beside) < 0.6 * comm(plain)


def test_fused_routing_and_dispatch_start_fewer_kernels() -> None:
    """A model this small is bound by the host."""
    small: dict[str, Any] = {"parallel": {"ep": 8, "etp": 1}, "model": MOE, "batch": {"seq_length": 512}}
    plain = step(estimate(job_with(**small)))
    router = step(estimate(job_with(**small, moe={"router_fusion": True})))
    both = step(estimate(job_with(**small, moe={"router_fusion": True, "deepep": True})))
    assert plain > router > both


def test_experts_cast_their_tokens_to_fp8() -> None:
    """The recipe that looks for the largest value first reads every token once more."""
    made: dict[str, Any] = {
        "parallel": {"ep": 8, "etp": 1},
        "model": MOE,
        "hardware": {"host_launch_us": 0.0, "fp8_tflops": 2000.0},
    }
    steps = [
        step(estimate(job_with(**made, precision={"fp8_format": "hybrid", "fp8_recipe": recipe})))
        for recipe in ("delayed", "tensorwise")
    ]
    assert steps[0] < steps[1]


def test_forced_balance_needs_no_assumption_about_routing() -> None:
    assert any(note.startswith("routing:") for note in on_nodes().missing)
    assert not any(note.startswith("routing:") for note in on_nodes(force_load_balancing=True).missing)


def test_the_busiest_device_decides_the_time_and_the_memory_of_experts() -> None:
    def unequal(factor: float, **moe: object) -> Estimate:
        job = job_with(
            model=MANY,
            parallel=LAYOUT,
            cluster={"nodes": 4},
            moe=moe,
            batch={"global_batch_size": 256},
            hardware={"host_launch_us": 0.0},
            estimate={"expert_imbalance": factor},
        )
        return estimate(job)

    even, more, most = unequal(1.0), unequal(1.3), unequal(2.0)
    assert step(even) < step(more) < step(most)
    assert comm(more) == pytest.approx(1.3 * comm(even), rel=0.05)
    assert even.stages[0].activations < more.stages[0].activations
    assert even.imbalance is not None
    assert even.imbalance.step_s == pytest.approx(step(more))
    assert even.imbalance.peak_reserved == more.fullest.peak_reserved
    assert more.imbalance is None
    # A capacity limits what an expert gets; padded to it, all get the same.
    limited = unequal(2.0, capacity_factor=1.3, token_drop_policy="probs")
    assert step(limited) == pytest.approx(step(unequal(1.3, capacity_factor=1.3)))
    padded = [step(unequal(factor, capacity_factor=1.3, pad_to_capacity=True)) for factor in (1.0, 2.0)]
    assert padded[0] == padded[1]


def test_more_tokens_than_all_have_are_refused() -> None:
    with pytest.raises(CannotEstimate, match=r"expert_imbalance 40 is above parallel\.ep 32"):
        estimate(job_with(model=MANY, parallel=LAYOUT, cluster={"nodes": 4}, estimate={"expert_imbalance": 40.0}))
