"""Training in 16 bits: sums and updates of gradients in fp32, and fp16's loss scale is Megatron-core's."""

from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.parity.reference_precision import LossScale, MainParameters
from tests.sampling import examples

torch = pytest.importorskip("torch")


def test_small_gradients_and_updates_are_not_lost_to_bf16() -> None:
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    model = torch.nn.ParameterList([weight])
    main = MainParameters(torch, model)
    (copy,) = main
    for slope in (1.0, 2.0**-10):  # in bf16, 1 + 2^-10 is 1
        (weight * slope).sum().backward()
    assert weight.grad is None
    assert copy.grad.item() == 1.0 + 2.0**-10
    optimizer = torch.optim.SGD([copy], lr=2.0**-10)
    for _ in range(8):
        optimizer.step()
    assert copy.item() < 1.0 - 2.0**-8
    main.write_back()
    assert weight.item() == pytest.approx(copy.item(), abs=2.0**-8)
    assert weight.dtype == torch.bfloat16


def test_a_model_in_fp32_is_optimized_itself() -> None:
    model = torch.nn.Linear(2, 2)
    assert [id(each) for each in MainParameters(torch, model)] == [id(each) for each in model.parameters()]


# Slopes of two micro-batches, whether they are added in fp32, the loss scale, and the gradient without it.
SUMS = {
    "fp32": ((1.0, 2.0**-12), True, 4.0, 1.0 + 2.0**-12),
    "fp16 loses the smaller one": ((1.0, 2.0**-12), False, 4.0, 1.0),
    "the sum overflows in fp16 only": ((1.0, 1.0), True, 40000.0, 2.0),
    "as it does here": ((1.0, 1.0), False, 40000.0, None),
    "each overflows": ((1.0, 1.0), True, 2.0**32, None),
}


@pytest.mark.parametrize("name", SUMS)
def test_gradients_of_a_scaled_loss(name: str) -> None:
    slopes, sums_in_fp32, scale, expected = SUMS[name]
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.float16))
    main = MainParameters(torch, torch.nn.ParameterList([weight]), sums_in_fp32=sums_in_fp32)
    for slope in slopes:
        ((weight * slope).float().sum() * scale).backward()
    assert main.gather(scale) == (expected is not None)
    (copy,) = main
    assert expected is None or copy.grad.item() == pytest.approx(expected, rel=1e-6)
    assert weight.grad is None


@given(
    overflows=st.lists(st.booleans(), max_size=40),
    first=st.sampled_from([1.0, 3.0, 2.0**20]),
    least=st.sampled_from([0.25, 1.0]),
    window=st.integers(1, 5),
    hysteresis=st.integers(1, 3),
)
@examples(50)
def test_the_loss_scale_is_megatron_cores(
    overflows: list[bool], first: float, least: float, window: int, hysteresis: int
) -> None:
    module = pytest.importorskip("megatron.core.optimizer.grad_scaler")
    on_cpu = SimpleNamespace(
        tensor=lambda values, dtype, device: torch.tensor(values, dtype=dtype), float=torch.float, max=torch.max
    )
    ours = LossScale(value=first, window=window, hysteresis=hysteresis, least=least)
    with mock.patch.object(module, "torch", on_cpu):
        real = module.DynamicGradScaler(
            initial_scale=first,
            min_scale=least,
            growth_factor=2.0,
            backoff_factor=0.5,
            growth_interval=window,
            hysteresis=hysteresis,
        )
        for overflow in overflows:
            real.update(overflow)
            ours = ours.update(overflow)
            assert ours.value == real.scale.item()


def test_a_fixed_loss_scale_stays() -> None:
    scale = LossScale(value=8.0, dynamic=False, hysteresis=1)
    assert scale.update(True).update(True).value == 8.0
