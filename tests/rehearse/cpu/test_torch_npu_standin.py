"""The plain-torch operators compute what torch_npu documents; an operator without one stops the run."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from backends.mindspeed.rehearse import op_kernels  # noqa: E402
from launcher.rehearse.cpu.torch_npu_standin import elementwise, grouped, routing  # noqa: E402

DRAW = torch.Generator()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    DRAW.manual_seed(0)


def drawn(*shape: int) -> Any:
    """Return random numbers in double precision, of which gradients are asked."""
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64, requires_grad=True)


def test_rms_norm() -> None:
    x, gamma = drawn(3, 8), drawn(8)
    mean_square = (x**2).sum(-1, keepdim=True) / 8
    found, rstd = elementwise.npu_rms_norm(x, gamma, 1e-2)
    torch.testing.assert_close(found, x / (mean_square + 1e-2) ** 0.5 * gamma, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(rstd, (1 / (mean_square + 1e-2) ** 0.5).float())


@pytest.mark.parametrize("dim", [-1, 0])
def test_swiglu(dim: int) -> None:
    x = drawn(4, 8)
    gate, up = (x[:, :4], x[:, 4:]) if dim == -1 else (x[:2], x[2:])
    expected = gate / (1 + torch.exp(-gate)) * up
    torch.testing.assert_close(elementwise.npu_swiglu(x, dim), expected)
    upstream = drawn(*expected.shape).detach()
    (gradient,) = torch.autograd.grad(expected, x, upstream)
    torch.testing.assert_close(elementwise.npu_swiglu_backward(upstream, x, dim), gradient)


def test_scaled_masked_softmax() -> None:
    x = drawn(2, 1, 3, 3)
    mask = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    exponentials = torch.exp(0.5 * x) * ~mask
    expected = exponentials / exponentials.sum(-1, keepdim=True)
    for given, fixed in ((mask, False), (torch.zeros_like(mask), True)):
        found = elementwise.npu_scaled_masked_softmax(x, given, 0.5, fixed)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


ROTATED: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "half": lambda x, cos, sin: elementwise.npu_rotary_mul(x, cos, sin),
    "half, by name": lambda x, cos, sin: elementwise.npu_rotary_mul(x, cos, sin, "half"),
    "half, of MindSpeed": lambda x, cos, sin: elementwise.npu_rotary_position_embedding(x, cos, sin),
    "neighbours": lambda x, cos, sin: elementwise.npu_rotary_mul(x, cos, sin, "interleave"),
    "neighbours, of MindSpeed": lambda x, cos, sin: elementwise.npu_rotary_position_embedding(x, cos, sin, 1),
}


@pytest.mark.parametrize("name", ROTATED)
def test_rotary_embedding(name: str) -> None:
    """Pairs are turned by their angle: (a + bi) e^(i angle)."""
    x, angle = drawn(5, 8), drawn(5, 4).detach()
    neighbours = name.startswith("neighbours")
    first, second = (x[:, 0::2], x[:, 1::2]) if neighbours else (x[:, :4], x[:, 4:])
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    if neighbours:
        wide, expected = angle.repeat_interleave(2, -1), torch.view_as_real(turned).flatten(1)
    else:
        wide, expected = torch.cat((angle, angle), -1), torch.cat((turned.real, turned.imag), -1)
    torch.testing.assert_close(ROTATED[name](x, wide.cos(), wide.sin()), expected)


@pytest.mark.parametrize("kind, numbers", [(grouped.ENDS, [2, 2, 5]), (grouped.COUNTS, [2, 0, 3])])
def test_grouped_products_of_rows(kind: int, numbers: list[int]) -> None:
    x, weight, group_list = drawn(5, 4), drawn(3, 4, 6), torch.tensor(numbers)
    expected = torch.stack([x[row] @ weight[0 if row < 2 else 2] for row in range(5)])
    for weights in ([weight], list(weight)):
        (product,) = grouped.npu_grouped_matmul([x], weights, group_list=group_list, group_type=0, group_list_type=kind)
        torch.testing.assert_close(product, expected)
    (product,) = op_kernels.npu_gmm([x], [weight], None, group_list, 0, kind)
    torch.testing.assert_close(product, expected)
    upstream = drawn(5, 6).detach()
    gradients = torch.autograd.grad(expected, (x, weight), upstream)
    ((of_x,), (of_weight,), no_bias) = op_kernels.npu_gmm_backward([upstream], [x], [weight], group_list, kind)
    (fused,), *_ = op_kernels.npu_gmm_backward_fusion([upstream], [weight], group_list, kind)
    assert no_bias == []
    for found, gradient in ((of_x, gradients[0]), (fused, gradients[0]), (of_weight, gradients[1])):
        torch.testing.assert_close(found, gradient)


def test_grouped_products_of_the_inner_dimension() -> None:
    left, right = drawn(4, 5), drawn(5, 6)
    (product,) = grouped.npu_grouped_matmul([left], [right], group_list=torch.tensor([2, 2, 5]), group_type=2)
    expected = [left[:, first:last] @ right[first:last] for first, last in ((0, 2), (2, 2), (2, 5))]
    torch.testing.assert_close(product, torch.stack(expected))


def test_products_that_are_added_to_main_gradients() -> None:
    x, upstream, ends = (torch.randn(5, 4), torch.randn(5, 6), torch.tensor([2, 2, 5]))
    expected = 1 + torch.stack([x[:2].T @ upstream[:2], torch.zeros(4, 6), x[2:].T @ upstream[2:]])
    for add in (
        lambda main: grouped.npu_groupmatmul_add_fp32(x, upstream, ends, main),
        lambda main: grouped.npu_grouped_matmul_add_(main, x, upstream, ends),
    ):
        main = torch.ones(3, 4, 6)
        add(main)
        torch.testing.assert_close(main, expected)
    main = torch.ones(6, 4)
    grouped.npu_matmul_add_fp32(upstream, x, main)
    torch.testing.assert_close(main, 1 + upstream.T @ x)


CHOSEN = torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1], [1, 2]])  # experts of five tokens
BY_EXPERT = [0, 1, 3, 1, 2, 3, 4, 0, 2, 4]  # tokens of expert 0, then of 1 and 2, in their order


def test_tokens_are_sorted_by_expert_and_come_back_weighted() -> None:
    tokens, probs = drawn(5, 3), drawn(5, 2)
    permuted, places = routing.npu_moe_token_permute(tokens, CHOSEN)
    torch.testing.assert_close(permuted, tokens[BY_EXPERT])
    torch.testing.assert_close(routing.npu_moe_token_permute(tokens, CHOSEN, 4)[0], tokens[BY_EXPERT[:4]])
    scaled = permuted * torch.arange(1.0, 11.0)[:, None]  # the expert's output differs from copy to copy
    expected = torch.stack(
        [sum(probs[token, copy] * scaled[places[2 * token + copy]] for copy in range(2)) for token in range(5)]
    )
    torch.testing.assert_close(routing.npu_moe_token_unpermute(scaled, places, probs), expected)
    assert [BY_EXPERT[place] for place in places] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_tokens_are_routed_by_a_map_and_their_gradients_come_back() -> None:
    tokens, chances = drawn(5, 3), drawn(5, 3)
    chosen = torch.zeros(5, 3, dtype=torch.bool).scatter_(1, CHOSEN, True)
    permuted, kept, rows = routing.npu_moe_token_permute_with_routing_map(tokens, chosen, probs=chances)
    experts = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert rows.tolist() == BY_EXPERT
    torch.testing.assert_close(permuted, tokens[BY_EXPERT])
    torch.testing.assert_close(kept, chances[BY_EXPERT, experts])
    upstream, of_kept = drawn(10, 3).detach(), drawn(10).detach()
    expected = torch.autograd.grad((permuted, kept), (tokens, chances), (upstream, of_kept))
    found = routing.npu_moe_token_permute_with_routing_map_grad(upstream, of_kept, rows, chosen, 3, 5)
    for each, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(each, gradient)

    outputs = drawn(10, 3)
    combined = torch.zeros(5, 3, dtype=torch.float64)
    for place, (token, expert) in enumerate(zip(BY_EXPERT, experts, strict=True)):
        combined = combined + torch.nn.functional.one_hot(torch.tensor(token), 5)[:, None] * (
            chances[token, expert] * outputs[place]
        )
    restored, *saved, _ = routing.npu_moe_token_unpermute_with_routing_map(
        outputs, rows, (5, 3), probs=chances, routing_map=chosen
    )
    torch.testing.assert_close(restored, combined)
    upstream = drawn(5, 3).detach()
    expected = torch.autograd.grad(combined, (outputs, chances), upstream)
    found = routing.npu_moe_token_unpermute_with_routing_map_grad(upstream, *saved, chosen, outputs, chances)
    for each, gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(each, gradient)
    plain, *_ = routing.npu_moe_token_unpermute_with_routing_map(outputs, rows, (5, 3))
    torch.testing.assert_close(plain, torch.zeros_like(plain).index_add(0, rows, outputs))


def test_chunks_are_sorted() -> None:
    rows, chances = drawn(6, 2), drawn(6)
    sizes, order = torch.tensor([1, 2, 3]), torch.tensor([2, 0, 1])
    places = torch.tensor([3, 4, 5, 0, 1, 2])
    found = routing.moe_sort_chunks_by_index_with_probs(rows, chances, sizes, order)
    torch.testing.assert_close(found, (rows[places], chances[places]))


def test_a_step_of_the_fused_optimizer() -> None:
    """`state_step` counts the step already, as the caller's does."""
    param = torch.nn.Parameter(drawn(4).detach())
    own, first, second = param.detach().clone(), torch.zeros(4).double(), torch.zeros(4).double()
    optimizer = torch.optim.AdamW([param], lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
    for step in (1, 2):
        param.grad = drawn(4).detach()
        optimizer.step()
        words = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8}
        op_kernels.npu_apply_fused_adamw_v2(
            own, param.grad, first, second, torch.ones(1), torch.tensor([step]), **words, amsgrad=False, maximize=False
        )
        torch.testing.assert_close(own, param.detach())


INSTALLED = """
from launcher.rehearse.cpu import torch_cuda, torch_npu_standin
torch_cuda.install(); torch_npu_standin.install()
import torch, torch_npu, acl.rt
from torch_npu.contrib import transfer_to_npu
assert torch.zeros(2, device="npu:0").device.type == "cpu" and torch.ones(1).to("npu").npu().device.type == "cpu"
assert torch.cuda.is_available() and torch.npu.get_device_name() == "Ascend910B2"
assert torch_npu.npu_swiglu(torch.ones(2)).shape == (1,)
assert torch.matmul(torch.ones(2, 3), torch.ones(3, 2).bfloat16()).dtype == torch.float32
@torch_npu.some.decorator
def kept(): return 1
assert kept() == 1 and hasattr(torch_npu, "npu_unknown")
try:
    torch_npu.npu_unknown(torch.ones(1))
except NotImplementedError as error:
    print(error)
"""


@pytest.mark.slow
def test_installed_in_a_process_of_its_own() -> None:
    result = subprocess.run([sys.executable, "-c", INSTALLED], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("torch_npu.npu_unknown has no stand-in on CPU, so this rehearsal stops here")
