"""The stand-in for Transformer Engine computes what its unfused counterparts in torch and megatron-core compute."""

import importlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest

torch = pytest.importorskip("torch")

attention: Any = None
experts: Any = None
functions: Any = None
norm: Any = None
optimizer: Any = None
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True, scope="module")
def standin() -> None:
    """Import the stand-in when its tests begin: megatron-core takes seconds, and every worker collects this file."""
    pytest.importorskip("megatron.core")
    for name in ("attention", "experts", "functions", "norm", "optimizer"):
        globals()[name] = importlib.import_module(f"launcher.rehearse.cpu.transformer_engine_standin.{name}")


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def heads(length: int, batch: int = 2, count: int = 4, groups: int = 2, size: int = 8) -> tuple[Any, Any, Any]:
    """Return a random query [length, batch, count, size] and key and value [length, batch, groups, size]."""
    shape = (length, batch)
    return (
        torch.randn(*shape, count, size),
        torch.randn(*shape, groups, size),
        torch.randn(*shape, groups, size),
    )


def by_hand(query: Any, key: Any, value: Any, visible: Any) -> Any:
    """Attend with explicit scores; ``visible`` [queries, keys] is True where a query sees a key."""
    repeats = query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(repeats, 2), value.repeat_interleave(repeats, 2)
    scores = torch.einsum("sbhd,tbhd->bhst", query, key) * query.shape[-1] ** -0.5
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    return torch.einsum("bhst,tbhd->sbhd", weights, value).flatten(2)


def causal(length: int) -> Any:
    return torch.ones(length, length, dtype=torch.bool).tril()


def core(**changes: Any) -> Any:
    return attention.DotProductAttention(4, 8, num_gqa_groups=2, **changes)


def test_causal_attention_in_both_dense_layouts() -> None:
    query, key, value = heads(6)
    expected = by_hand(query, key, value, causal(6))
    torch.testing.assert_close(core()(query, key, value), expected, **CLOSE)
    turned = core()(*(tensor.transpose(0, 1) for tensor in (query, key, value)), qkv_format="bshd")
    torch.testing.assert_close(turned.transpose(0, 1), expected, **CLOSE)


def test_packed_sequences_do_not_see_each_other() -> None:
    query, key, value = heads(10, batch=1)
    packed = [tensor.squeeze(1) for tensor in (query, key, value)]
    edges = torch.tensor([0, 4, 9])  # the last token is padding
    result = core()(*packed, qkv_format="thd", attn_mask_type="padding_causal", cu_seqlens_q=edges)
    for start, end in ((0, 4), (4, 9)):
        alone = by_hand(query[start:end], key[start:end], value[start:end], causal(end - start))
        torch.testing.assert_close(result[start:end], alone.squeeze(1), **CLOSE)


def test_sliding_window_and_padding_mask() -> None:
    query, key, value = heads(6)
    window = causal(6) & ~causal(6).tril(-3)  # two tokens to the left
    torch.testing.assert_close(core(window_size=(2, 0))(query, key, value), by_hand(query, key, value, window), **CLOSE)
    hidden = torch.zeros(2, 1, 1, 6, dtype=torch.bool)
    hidden[1, ..., 4:] = True
    result = core()(query, key, value, hidden, attn_mask_type="padding_causal")
    visible = causal(6) & ~hidden
    torch.testing.assert_close(result[:4], by_hand(query, key, value, visible)[:4], **CLOSE)


@pytest.mark.parametrize("window", [None, (2, 0)], ids=str)
def test_a_learned_sink_takes_a_part_of_the_softmax(window: tuple[int, int] | None) -> None:
    """Each head's sink is one more score, whose value is zero (gpt-oss)."""
    query, key, value = heads(6)
    attend = core(softmax_type="learnable", window_size=window)
    assert attend.softmax_offset.shape == (4,)
    attend.softmax_offset.data.copy_(torch.tensor([-1.0, 0.0, 1.0, 3.0]))
    visible = causal(6) if window is None else causal(6) & ~causal(6).tril(-3)
    scores = torch.einsum("sbhd,tbhd->bhst", query, key.repeat_interleave(2, 2)) * 8**-0.5
    sink = attend.softmax_offset.view(1, 4, 1, 1).expand(2, 4, 6, 1)
    weights = torch.cat([scores.masked_fill(~visible, float("-inf")), sink], -1).softmax(-1)[..., :-1]
    by_sinks = torch.einsum("bhst,tbhd->sbhd", weights, value.repeat_interleave(2, 2)).flatten(2)
    torch.testing.assert_close(attend(query, key, value), by_sinks, **CLOSE)


@pytest.mark.parametrize("option", [{"softmax_type": "off-by-one"}, {"return_max_logit": True}], ids=str)
def test_what_is_not_imitated_is_refused_with_a_reason(option: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match="the CPU rehearsal's stand-in for Transformer Engine has no"):
        core(**option)


def test_zigzag_covers_every_position_once() -> None:
    held = [attention.zigzag([0, 8, 12], 2, rank).tolist() for rank in range(2)]
    assert held == [[0, 1, 6, 7, 8, 11], [2, 3, 4, 5, 9, 10]]


def test_rotary_embedding_is_megatrons_unfused_one() -> None:
    from megatron.core.models.common.embeddings.rope_utils import _apply_rotary_pos_emb_bshd as unfused

    hidden, freqs = torch.randn(8, 2, 4, 16), torch.randn(12, 1, 1, 8)
    for interleaved in (False, True):
        expected = unfused(hidden, freqs[:8], rotary_interleaved=interleaved)
        torch.testing.assert_close(functions.apply_rotary_pos_emb(hidden, freqs, interleaved=interleaved), expected)
    packed = functions.apply_rotary_pos_emb(
        hidden[:, 0], freqs, tensor_format="thd", cu_seqlens=torch.tensor([0, 3, 8])
    )
    torch.testing.assert_close(packed[3:], unfused(hidden[3:, :1], freqs[:5]).squeeze(1))


def test_adam_is_torchs_adamw() -> None:
    start = torch.randn(5)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    options: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
    pair = (optimizer.FusedAdam([ours], **options), torch.optim.AdamW([theirs], **options))
    for _ in range(5):
        gradient = torch.randn(5)
        for parameter, adam in zip((ours, theirs), pair, strict=True):
            parameter.grad = gradient.clone()
            adam.step()
    torch.testing.assert_close(ours, theirs, **CLOSE)
    assert pair[0].param_groups[0]["step"] == 5
    assert set(pair[0].state[ours]) == {"exp_avg", "exp_avg_sq"}


def test_precision_aware_adam_keeps_a_float32_master() -> None:
    parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    options = {"master_weights": True, "use_decoupled_grad": True, "exp_avg_dtype": torch.bfloat16}
    adam = optimizer.FusedAdam([parameter], lr=1e-4, **options)
    parameter.decoupled_grad = torch.ones(4)
    for _ in range(3):
        adam.step()
    state = adam.state[parameter]
    assert state["exp_avg"].dtype == torch.bfloat16
    torch.testing.assert_close(state["master_param"], torch.full((4,), 1 - 3e-4))
    assert parameter.dtype == torch.bfloat16


def test_expert_permutation_and_its_inverse_are_megatrons_unfused_ones() -> None:
    from megatron.core.transformer.moe.moe_utils import permute, unpermute

    tokens, probs = torch.randn(6, 8), torch.rand(6, 4)
    routing = torch.zeros(6, 4, dtype=torch.bool)
    routing[torch.arange(6), torch.arange(6) % 4] = routing[torch.arange(6), (torch.arange(6) + 1) % 4] = True
    expected = permute(tokens, routing, probs=probs)
    sorted_tokens, chosen, rows = experts.moe_permute_with_probs(tokens, probs, routing, num_out_tokens=12)
    torch.testing.assert_close(sorted_tokens, expected[0])
    torch.testing.assert_close(chosen, expected[1])
    whole = experts.moe_unpermute(sorted_tokens, rows, restore_shape=tokens.shape)
    torch.testing.assert_close(whole, unpermute(expected[0], expected[2], restore_shape=tokens.shape))


def test_norms_compute_in_float32_and_know_zero_centred_weights() -> None:
    hidden = torch.randn(3, 16, dtype=torch.bfloat16)
    plain = torch.nn.functional.rms_norm(hidden.float(), (16,), None, 1e-6).to(torch.bfloat16)
    for zero_centered in (False, True):
        layer = norm.RMSNorm(16, eps=1e-6, zero_centered_gamma=zero_centered, params_dtype=torch.bfloat16)
        torch.testing.assert_close(layer(hidden), plain)
        assert set(layer.state_dict()) == {"weight", "_extra_state"}


@pytest.mark.slow
def test_megatron_core_believes_in_transformer_engine() -> None:
    """Registered in a fresh process, every import that megatron-core guards succeeds: specs are those of a GPU."""
    script = """
        from launcher.rehearse.cpu import transformer_engine_standin
        transformer_engine_standin.register()
        transformer_engine_standin.register()
        from megatron.core import utils
        from megatron.core.extensions import transformer_engine as extension
        from megatron.core.models.gpt import gpt_layer_specs
        from megatron.core.transformer.moe import moe_utils
        from megatron.core.optimizer import Adam, distrib_optimizer
        assert str(utils.get_te_version()) == transformer_engine_standin.VERSION
        assert extension.HAVE_TE and gpt_layer_specs.HAVE_TE and moe_utils.HAVE_TE and distrib_optimizer.HAVE_APEX_OR_TE
        for name in ("fused_permute", "fused_topk_with_score_function", "te_parallel_cross_entropy", "TEGroupedLinear"):
            assert getattr(extension, name) is not None, name
        assert Adam.__name__ == "FusedAdam"
        gpt_layer_specs.get_gpt_layer_with_transformer_engine_spec(num_experts=8, moe_grouped_gemm=True)
        print("specs built")
    """
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert process.stdout.endswith("specs built\n"), process.stderr
