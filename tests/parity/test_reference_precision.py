"""bf16 training of the reference: gradients are added and weights updated in fp32."""

import pytest

torch = pytest.importorskip("torch")

from launcher.parity.reference_precision import MainParameters  # noqa: E402


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
