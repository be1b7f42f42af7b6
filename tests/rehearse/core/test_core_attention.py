"""Attention in the place of Transformer Engine: packed sequences and sliding windows, in context parallel too."""

import itertools
import types
from typing import Any

import pytest
from core_world import Zygote

LENGTHS = (8, 4, 12)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("window", ["none", "5"])
def test_packed_attention_is_attention_of_each_sequence(zygote: Zygote, ranks: int, window: str) -> None:
    exit_codes, output = zygote.call("test_core_attention:compare_packed", [window], ranks=ranks)
    assert exit_codes == [0] * ranks, output


def compare_packed() -> int:
    """Compare packed attention of this rank, and its gradient, with a plain softmax; runs in a rank."""
    import os
    import sys

    import torch
    from megatron.core import parallel_state
    from megatron.core.transformer.enums import AttnMaskType

    from launcher.rehearse.cpu.modules import CoreAttention, zigzag_positions

    world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    parallel_state.initialize_model_parallel(context_parallel_size=world)
    window = None if sys.argv[1] == "none" else (int(sys.argv[1]), 0)
    config: Any = types.SimpleNamespace(
        kv_channels=16,
        attention_dropout=0.0,
        window_size=window,
        window_attn_skip_freq=None,
        context_parallel_size=world,
        softmax_type="vanilla",
        num_attention_heads=4,
        tensor_model_parallel_size=1,
        sequence_parallel=False,
    )
    attention = CoreAttention(config, 1, AttnMaskType.padding_causal, "self")
    torch.manual_seed(0)
    total = sum(LENGTHS)
    query, key, value = torch.randn(total, 4, 16), torch.randn(total, 2, 16), torch.randn(total, 2, 16)
    edges = [0, *torch.tensor(LENGTHS).cumsum(0).tolist()]
    mine = zigzag_positions(edges, world, rank)
    inputs = [tensor[mine].clone().requires_grad_() for tensor in (query, key, value)]
    packed = types.SimpleNamespace(cu_seqlens_q=torch.tensor(edges, dtype=torch.int32))
    output = attention(*inputs, None, packed_seq_params=packed).squeeze(1)
    output.square().sum().backward()
    whole = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    expected = plain_attention(whole, edges, window)
    expected.square().sum().backward()
    torch.testing.assert_close(output, expected[mine])
    for tensor, reference in zip(inputs, whole, strict=True):
        assert reference.grad is not None
        torch.testing.assert_close(tensor.grad, reference.grad[mine], atol=1e-4, rtol=1e-4)
    return 0


def plain_attention(inputs: list[Any], edges: list[int], window: tuple[int, int] | None) -> Any:
    """Attend within each sequence with an explicit softmax; [t, heads * dim]."""
    import torch

    outputs = []
    for start, end in itertools.pairwise(edges):
        q, k, v = (tensor[start:end].transpose(0, 1) for tensor in inputs)
        k, v = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
        places = torch.arange(end - start)
        hidden = places[None, :] > places[:, None]
        if window is not None:
            hidden = hidden | (places[:, None] - places[None, :] > window[0])
        scores = (q @ k.transpose(1, 2) / 4.0).masked_fill(hidden, float("-inf"))
        outputs.append((scores.softmax(-1) @ v).transpose(0, 1).reshape(end - start, -1))
    return torch.cat(outputs)
