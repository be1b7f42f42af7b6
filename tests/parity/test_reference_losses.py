"""The reference's losses and capacity are those of Megatron-core, and of a formula written out per token."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.parity.reference_losses import load_balancing, router_z, within_capacity
from tests.sampling import examples

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core.transformer.moe.moe_utils")
pytestmark = pytest.mark.slow

sizes = {"sequences": st.integers(1, 3), "length": st.integers(2, 6), "experts": st.integers(3, 6)}


def logits_of(tokens: int, experts: int, seed: int) -> "torch.Tensor":
    return torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed))


@given(**sizes, chosen=st.integers(1, 2), seed=st.integers(0, 99), scoring=st.sampled_from(["softmax", "sigmoid"]))
@examples(40)
def test_load_balancing_over_a_micro_batch_is_megatron_cores(
    sequences: int, length: int, experts: int, chosen: int, seed: int, scoring: str
) -> None:
    logits = logits_of(sequences * length, experts, seed)
    assert float(load_balancing(logits, chosen=chosen, scoring=scoring)) == pytest.approx(
        _megatron(logits, chosen, scoring), rel=1e-5
    )


@given(**sizes, chosen=st.integers(1, 2), seed=st.integers(0, 99), scoring=st.sampled_from(["softmax", "sigmoid"]))
@examples(40)
def test_load_balancing_over_sequences_is_the_mean_of_megatron_cores(
    sequences: int, length: int, experts: int, chosen: int, seed: int, scoring: str
) -> None:
    logits = logits_of(sequences * length, experts, seed)
    each = [_megatron(part, chosen, scoring) for part in logits.split(length)]
    found = load_balancing(logits, chosen=chosen, scoring=scoring, sequences=sequences)
    assert float(found) == pytest.approx(sum(each) / sequences, rel=1e-5)


def _megatron(logits: "torch.Tensor", chosen: int, scoring: str) -> float:
    from megatron.core.transformer.moe import moe_utils

    chosen_map, scores = moe_utils.compute_routing_scores_for_aux_loss(logits, chosen, scoring)
    loss = moe_utils.switch_load_balancing_loss_func(
        scores, chosen_map.sum(0), len(logits), chosen, logits.shape[1], moe_aux_loss_coeff=1.0
    )
    return float(loss)


def test_an_even_load_with_even_scores_has_loss_one() -> None:
    assert float(load_balancing(torch.zeros(8, 4), chosen=4, scoring="softmax")) == pytest.approx(1.0)


@given(tokens=st.integers(1, 8), experts=st.integers(2, 6), seed=st.integers(0, 99))
@examples(40)
def test_router_z_loss(tokens: int, experts: int, seed: int) -> None:
    from megatron.core.transformer.moe.moe_utils import z_loss_func

    logits = logits_of(tokens, experts, seed)
    by_token = [math.log(sum(math.exp(value) for value in row)) ** 2 for row in logits.tolist()]
    assert float(router_z(logits)) == pytest.approx(sum(by_token) / tokens, rel=1e-5)
    assert float(router_z(logits)) == pytest.approx(float(z_loss_func(logits, 1.0)), rel=1e-5)


@given(
    tokens=st.integers(3, 9),
    count=st.integers(3, 5),
    factor=st.sampled_from([0.3, 0.75, 1.0, 1.3]),
    seed=st.integers(0, 99),
)
@examples(60)
def test_the_most_probable_choices_within_capacity_are_megatron_cores(
    tokens: int, count: int, factor: float, seed: int
) -> None:
    from megatron.core.transformer.moe.moe_utils import apply_router_token_dropping

    weights, experts = torch.softmax(logits_of(tokens, count, seed), -1).topk(2)
    probs = torch.zeros(tokens, count).scatter(1, experts, weights)
    chosen = torch.zeros(tokens, count).int().scatter(1, experts, 1).bool()
    real, _ = apply_router_token_dropping(probs, chosen, 2, factor, drop_policy="probs")
    kept = within_capacity(weights, experts, count=count, factor=factor, policy="probs")
    assert torch.equal(torch.zeros(tokens, count).scatter(1, experts, weights * kept), real)


@given(tokens=st.integers(1, 9), count=st.integers(2, 5), factor=st.floats(0.2, 1.5), seed=st.integers(0, 99))
@examples(60)
def test_by_position_the_first_tokens_of_an_expert_are_kept(tokens: int, count: int, factor: float, seed: int) -> None:
    weights, experts = torch.softmax(logits_of(tokens, count, seed), -1).topk(2)
    kept = within_capacity(weights, experts, count=count, factor=factor, policy="position")
    room = dict.fromkeys(range(count), math.ceil(2 * tokens / count * factor))
    for token, row in enumerate(experts.tolist()):
        for slot, expert in enumerate(row):
            assert bool(kept[token, slot]) == (room[expert] > 0)
            room[expert] -= 1
