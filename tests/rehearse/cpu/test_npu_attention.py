"""The fused attention of torch_npu in plain torch is its documented formula, in each sparse mode and layout.

Documentation: op-plugin docs/context/torch_npu-npu_fusion_attention.md: softmax(scale q k^T, masked) v; a mask hides
where it is True, and without one nothing is hidden.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from launcher.rehearse.cpu.torch_npu_standin import attention  # noqa: E402

HEADS, GROUPS, QUERIES, KEYS, WIDTH, BATCH, SCALE = 4, 2, 4, 7, 8, 2, 0.3
COMPRESSED = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)
"""What modes 2 to 4 are given instead of a mask of the sequence's size."""
DRAWN = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(5)) < 0.4
DRAWN[:, 0] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One use of the operator: what it is given, and whether query i attends to key j of n queries and m keys."""

    given: Mapping[str, Any]
    attends: Callable[[int, int, int, int], bool]


MODES: Mapping[str, Mode] = {
    "0, no mask": Mode(given={"pre_tockens": 1, "next_tockens": 0}, attends=lambda i, j, n, m: True),
    "0, a mask": Mode(given={"atten_mask": DRAWN}, attends=lambda i, j, n, m: not DRAWN[i, j]),
    "0, a mask and a band from the upper left": Mode(
        given={"atten_mask": DRAWN, "pre_tockens": 3, "next_tockens": 1},
        attends=lambda i, j, n, m: not DRAWN[i, j] and i - 3 <= j <= i + 1,
    ),
    "1, a mask and no band": Mode(
        given={"sparse_mode": 1, "atten_mask": DRAWN, "pre_tockens": 0, "next_tockens": 0},
        attends=lambda i, j, n, m: not DRAWN[i, j],
    ),
    "2, causal from the upper left": Mode(
        given={"sparse_mode": 2, "atten_mask": COMPRESSED}, attends=lambda i, j, n, m: j <= i
    ),
    "2, no mask": Mode(given={"sparse_mode": 2}, attends=lambda i, j, n, m: True),
    "3, causal to the lower right": Mode(
        given={"sparse_mode": 3, "atten_mask": COMPRESSED, "pre_tockens": 0},
        attends=lambda i, j, n, m: j - m <= i - n,
    ),
    "4, a band from the lower right": Mode(
        given={"sparse_mode": 4, "atten_mask": COMPRESSED, "pre_tockens": 2, "next_tockens": 1},
        attends=lambda i, j, n, m: i - n - 2 <= j - m <= i - n + 1,
    ),
}

# From [batch, heads, tokens, width] to the layout, and back.
LAYOUTS: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "BNSD": (lambda t: t, lambda t: t),
    "BSND": (lambda t: t.transpose(1, 2), lambda t: t.transpose(1, 2)),
    "BSH": (lambda t: t.transpose(1, 2).flatten(2), lambda t: t.unflatten(2, (-1, WIDTH)).transpose(1, 2)),
    "SBH": (lambda t: t.permute(2, 0, 1, 3).flatten(2), lambda t: t.unflatten(2, (-1, WIDTH)).permute(1, 2, 0, 3)),
}


def drawn(*counts: int) -> list[Any]:
    """Return query, key and value of [batch, heads, tokens, width] in double precision."""
    draw = torch.Generator().manual_seed(0)
    shapes = ((HEADS, counts[0]), (GROUPS, counts[1]), (GROUPS, counts[1]))
    made = [torch.randn(BATCH, *shape, WIDTH, generator=draw, dtype=torch.float64) for shape in shapes]
    return [each.requires_grad_() for each in made]


def documented(query: Any, key: Any, value: Any, attends: Callable[[int, int], bool]) -> tuple[Any, Any, Any]:
    """Return output, largest score and sum of exponentials, query by query, from the pairs that attend."""
    output, largest, total = [], [], []
    for head in range(query.size(1)):
        group = head * key.size(1) // query.size(1)
        for number in range(query.size(2)):
            seen = [other for other in range(key.size(2)) if attends(number, other)]
            scores = SCALE * (key[:, group, seen] @ query[:, head, number, :, None]).squeeze(-1)
            weights = scores.exp() / scores.exp().sum(-1, keepdim=True)
            output.append((weights[:, None] @ value[:, group, seen]).squeeze(1))
            largest.append(scores.amax(-1))
            total.append((scores - scores.amax(-1, keepdim=True)).exp().sum(-1))
    shape = (query.size(1), query.size(2))
    stacked = [torch.stack(each, 1).unflatten(1, shape) for each in (output, largest, total)]
    return stacked[0], stacked[1], stacked[2]


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_mode_and_layout_is_the_documented_formula(layout: str, name: str) -> None:
    mode, (to, back) = MODES[name], LAYOUTS[layout]
    inputs = drawn(QUERIES, KEYS)
    expected, largest, total = documented(*inputs, lambda i, j: mode.attends(i, j, QUERIES, KEYS))
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = torch.autograd.grad(expected, inputs, upstream)

    given = [to(each.detach().float()).requires_grad_() for each in inputs]
    output, found_largest, found_total, *_ = attention.npu_fusion_attention(
        *given, HEADS, layout, scale=SCALE, **mode.given
    )
    torch.testing.assert_close(back(output), expected.float())
    for found, statistic in ((found_largest, largest), (found_total, total)):
        torch.testing.assert_close(found, statistic.detach().float()[..., None].expand(-1, -1, -1, 8))

    statistics = {"softmax_max": found_largest, "softmax_sum": found_total, "attention_in": output}
    *explicit, _ = attention.npu_fusion_attention_grad(
        *given, to(upstream.float()), HEADS, layout, scale_value=SCALE, **mode.given, **statistics
    )
    by_autograd = torch.autograd.grad(output, given, to(upstream.float()))
    for each, other, gradient in zip(explicit, by_autograd, gradients, strict=True):
        torch.testing.assert_close(back(each), gradient.float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(back(other), gradient.float(), rtol=1e-5, atol=1e-5)


PACKED = (
    "2, causal from the upper left",
    "3, causal to the lower right",
    "4, a band from the lower right",
    "0, no mask",
)


@pytest.mark.parametrize("name", PACKED)
def test_packed_sequences_are_attentions_of_their_own(name: str) -> None:
    mode, lengths = MODES[name], ((2, 3), (4, 4), (1, 5))
    inputs = [each[0].detach() for each in drawn(7, 12)]
    query, key, value = (each.transpose(0, 1).float().requires_grad_() for each in inputs)
    ends = [[sum(each[side] for each in lengths[: last + 1]) for last in range(len(lengths))] for side in (0, 1)]
    packed = {"actual_seq_qlen": ends[0], "actual_seq_kvlen": ends[1], **mode.given}
    output, largest, total, *_ = attention.npu_fusion_attention(query, key, value, HEADS, "TND", scale=SCALE, **packed)
    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    statistics = {"softmax_max": largest, "softmax_sum": total, "attention_in": output}
    *explicit, _ = attention.npu_fusion_attention_grad(
        query, key, value, upstream, HEADS, "TND", scale_value=SCALE, **packed, **statistics
    )
    for each, gradient in zip(explicit, torch.autograd.grad(output, (query, key, value), upstream), strict=True):
        torch.testing.assert_close(each, gradient, rtol=1e-5, atol=1e-5)
    row = column = 0
    for queries, keys in lengths:
        own = [inputs[0][None, :, row : row + queries], *(each[None, :, column : column + keys] for each in inputs[1:])]
        expected, *_ = documented(*own, lambda i, j, n=queries, m=keys: mode.attends(i, j, n, m))  # type: ignore[misc]
        torch.testing.assert_close(output[row : row + queries], expected[0].transpose(0, 1).float())
        row, column = row + queries, column + keys


UNSUPPORTED: Mapping[str, Mapping[str, Any]] = {
    "a position shift": {"pse": torch.zeros(1)},
    "a prefix": {"prefix": [1]},
    "a further mask": {"sparse_mode": 7},
}


@pytest.mark.parametrize("option", UNSUPPORTED)
def test_what_cannot_be_computed_is_refused(option: str) -> None:
    query, key, value = drawn(QUERIES, KEYS)
    with pytest.raises(NotImplementedError, match="has no stand-in on CPU"):
        attention.npu_fusion_attention(query, key, value, HEADS, "BNSD", **UNSUPPORTED[option])
