"""The plain-torch operators compute what torch_npu documents; an operator without one stops the run."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from launcher.rehearse.cpu.torch_npu_standin import attention, elementwise, grouped, routing  # noqa: E402

HEADS, GROUPS, TOKENS, WIDTH, BATCH = 4, 2, 6, 8, 2


def heads_first(layout: str) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
    """Return random query, key and value in ``layout``, and the way from it to [batch, heads, tokens, width]."""
    draw = torch.Generator().manual_seed(0)
    shapes = {
        "BNSD": lambda n: (BATCH, n, TOKENS, WIDTH),
        "BSND": lambda n: (BATCH, TOKENS, n, WIDTH),
        "BSH": lambda n: (BATCH, TOKENS, n * WIDTH),
        "SBH": lambda n: (TOKENS, BATCH, n * WIDTH),
    }
    first = {
        "BNSD": lambda t: t,
        "BSND": lambda t: t.transpose(1, 2),
        "BSH": lambda t: t.unflatten(2, (-1, WIDTH)).transpose(1, 2),
        "SBH": lambda t: t.unflatten(2, (-1, WIDTH)).permute(1, 2, 0, 3),
    }
    tensors = [torch.randn(shapes[layout](n), generator=draw, requires_grad=True) for n in (HEADS, GROUPS, GROUPS)]
    return tensors[0], tensors[1], tensors[2], first[layout]


CAUSAL = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)
MASKS: Mapping[str, Mapping[str, Any]] = {
    "a mask as given": {"atten_mask": CAUSAL, "sparse_mode": 0},
    "causal from the upper left": {"sparse_mode": 2},
    "causal to the lower right": {"sparse_mode": 3},
    "a band": {"sparse_mode": 4, "pre_tockens": TOKENS, "next_tockens": 0},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_fused_attention_is_attention(layout: str, mask: str) -> None:
    query, key, value, first = heads_first(layout)
    output, largest, total, *_ = attention.npu_fusion_attention(
        query, key, value, HEADS, layout, scale=0.3, **MASKS[mask]
    )
    repeated = [first(t).repeat_interleave(HEADS // GROUPS, 1) for t in (key, value)]
    expected = torch.nn.functional.scaled_dot_product_attention(first(query), *repeated, is_causal=True, scale=0.3)
    torch.testing.assert_close(first(output), expected)
    assert largest.shape == total.shape == (BATCH, HEADS, TOKENS, 8)


@pytest.mark.parametrize("layout", ["BNSD", "BSND", "BSH", "SBH"])
def test_the_explicit_gradient_is_autograds(layout: str) -> None:
    query, key, value, _ = heads_first(layout)
    output, largest, total, *_ = attention.npu_fusion_attention(
        query, key, value, HEADS, layout, scale=0.3, sparse_mode=2
    )
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(output, (query, key, value), upstream)
    statistics = {"softmax_max": largest, "softmax_sum": total, "attention_in": output}
    *grads, _ = attention.npu_fusion_attention_grad(
        query, key, value, upstream, HEADS, layout, scale_value=0.3, sparse_mode=2, **statistics
    )
    for grad, reference in zip(grads, expected, strict=True):
        torch.testing.assert_close(grad, reference)


def test_packed_sequences_do_not_see_each_other() -> None:
    query, key, value, _ = heads_first("BSND")
    packed = [t.flatten(0, 1) for t in (query, key, value)]
    ends = [TOKENS, 2 * TOKENS]
    output = attention.npu_fusion_attention(
        *packed, HEADS, "TND", scale=0.3, sparse_mode=3, actual_seq_qlen=ends, actual_seq_kvlen=ends
    )[0]
    expected = attention.npu_fusion_attention(query, key, value, HEADS, "BSND", scale=0.3, sparse_mode=3)[0]
    torch.testing.assert_close(output, expected.flatten(0, 1))


UNSUPPORTED: Mapping[str, Mapping[str, Any]] = {
    "a position shift": {"pse": torch.zeros(1)},
    "a prefix": {"prefix": [1]},
    "a further mask": {"sparse_mode": 7},
}


@pytest.mark.parametrize("option", UNSUPPORTED)
def test_attention_refuses_what_it_cannot_compute(option: str) -> None:
    query, key, value, _ = heads_first("BNSD")
    with pytest.raises(NotImplementedError, match="has no stand-in on CPU"):
        attention.npu_fusion_attention(query, key, value, HEADS, "BNSD", **UNSUPPORTED[option])


def test_elementwise_operators() -> None:
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), requires_grad=True)
    gamma = torch.rand(8)
    torch.testing.assert_close(
        elementwise.npu_rms_norm(x, gamma, 1e-6)[0], torch.nn.functional.rms_norm(x, (8,), gamma, 1e-6)
    )
    y = elementwise.npu_swiglu(x)
    upstream = torch.ones_like(y)
    (expected,) = torch.autograd.grad(y, x, upstream)
    torch.testing.assert_close(elementwise.npu_swiglu_backward(upstream, x), expected)
    mask = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    softmax = elementwise.npu_scaled_masked_softmax(torch.zeros(1, 3, 3), mask)
    torch.testing.assert_close(softmax[0, 1], torch.tensor([0.5, 0.5, 0.0]))
    angle = torch.tensor(0.3)
    cos, sin = angle.cos().expand(3, 8), angle.sin().expand(3, 8)
    for mode in ("half", "interleave"):
        turned = elementwise.npu_rotary_mul(x, cos, sin, mode)
        torch.testing.assert_close(turned.norm(), x.norm())
        torch.testing.assert_close(elementwise.npu_rotary_mul(turned, cos, -sin, mode), x)


@pytest.mark.parametrize("kind, numbers", [(grouped.ENDS, [2, 2, 5]), (grouped.COUNTS, [2, 0, 3])])
def test_grouped_products(kind: int, numbers: list[int]) -> None:
    x, weight = torch.randn(5, 4), torch.randn(3, 4, 6)
    product = grouped.npu_grouped_matmul(
        [x], [weight], group_list=torch.tensor(numbers), group_type=0, group_list_type=kind
    )[0]
    torch.testing.assert_close(product, torch.cat([x[:2] @ weight[0], x[2:] @ weight[2]]))
    main_grad = torch.ones(3, 4, 6)
    ends = torch.tensor([2, 2, 5])
    grouped.npu_groupmatmul_add_fp32(x, product, ends, main_grad)
    torch.testing.assert_close(main_grad[2], 1 + x[2:].T @ product[2:])
    torch.testing.assert_close(main_grad[1], torch.ones(4, 6))


def test_tokens_come_back_to_their_places() -> None:
    tokens = torch.randn(5, 3)
    chosen = torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1], [1, 2]])
    probs = torch.rand(5, 2)
    permuted, places = routing.npu_moe_token_permute(tokens, chosen)
    torch.testing.assert_close(
        routing.npu_moe_token_unpermute(permuted, places, probs), tokens * probs.sum(1, keepdim=True)
    )
    by_map = torch.zeros(5, 3, dtype=torch.bool).scatter_(1, chosen, True)
    weights = torch.zeros(5, 3).scatter_(1, chosen, probs)
    sorted_tokens, _, rows = routing.npu_moe_token_permute_with_routing_map(tokens, by_map)
    restored = routing.npu_moe_token_unpermute_with_routing_map(
        sorted_tokens, rows, (5, 3), probs=weights, routing_map=by_map
    )[0]
    torch.testing.assert_close(restored, tokens * probs.sum(1, keepdim=True))


INSTALLED = """
from launcher.rehearse.cpu import torch_cuda, torch_npu_standin
torch_cuda.install(); torch_npu_standin.install()
import torch, torch_npu, acl.rt
from torch_npu.contrib import transfer_to_npu
assert torch.zeros(2, device="npu:0").device.type == "cpu" and torch.ones(1).to("npu").npu().device.type == "cpu"
assert torch.cuda.is_available() and torch.npu.get_device_name() == "Ascend910B2"
assert torch_npu.npu_swiglu(torch.ones(2)).shape == (1,)
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
