"""Any model of a known family survives being written as config.json and read again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.families.config_json import config_from_model, model_from_config
from launcher.families.parts import (
    ALTERNATE_WINDOW,
    ATTENTION_BIAS,
    LATENT_HEADS,
    LATER_WINDOW,
    LLAMA_BIASES,
    SPARSE_LAYERS,
    WHOLE_WINDOW,
)
from launcher.families.registry import FAMILIES
from launcher.job import build
from tests.sampling import examples

_SCALINGS = st.sampled_from(
    [
        {},
        {"type": "linear", "factor": 2.0},
        {"type": "dynamic", "factor": 4.0},
        {
            "type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        {
            "type": "llama3",
            "factor": 8.0,
            "original_max_position_embeddings": 8192,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
        },
    ]
)


@st.composite
def models(draw: st.DrawFn, family: str) -> dict[str, Any]:
    """A `model` section of the family, with everything that the family can vary."""
    heads, head = draw(st.sampled_from([4, 8, 12])), draw(st.sampled_from([16, 64]))
    values: dict[str, Any] = {
        "model_type": family,
        "num_hidden_layers": draw(st.integers(1, 100)),
        "hidden_size": heads * head,
        "intermediate_size": draw(st.integers(1, 9999)),
        "num_attention_heads": heads,
        "vocab_size": draw(st.integers(1, 999999)),
        "max_position_embeddings": draw(st.integers(1, 999999)),
        "rms_norm_eps": draw(st.sampled_from([1e-5, 1e-6])),
        "initializer_range": draw(st.sampled_from([0.01, 0.02])),
        "attention_dropout": draw(st.sampled_from([0.0, 0.1])),
        "rope_theta": draw(st.sampled_from([1e4, 1e6])),
        "rope_scaling": draw(_SCALINGS),
    }
    record = FAMILIES[family]
    if record.decides("tie_word_embeddings"):
        values["tie_word_embeddings"] = draw(st.booleans())
    latent = LATENT_HEADS in record.parts
    if not latent:
        values["num_key_value_heads"] = draw(st.sampled_from([heads, heads // 2, None]))
        values["head_dim"] = draw(st.sampled_from([None, head, 2 * head]))
    window = {LATER_WINDOW, ALTERNATE_WINDOW, WHOLE_WINDOW} & set(record.parts)
    if window or any(key.field == "sliding_window" for key in record.keys):
        values["sliding_window"] = draw(st.sampled_from([None, 1024]))
    layers = st.lists(st.integers(0, values["num_hidden_layers"] - 1), unique=True, max_size=3)
    if values.get("sliding_window") and window and WHOLE_WINDOW not in record.parts and values["num_hidden_layers"] > 3:
        values["full_attention_layers"] = tuple(sorted(draw(layers)))
    if family.startswith("gemma") and values["num_hidden_layers"] > 3:
        values["sliding_window"] = draw(st.sampled_from([None, 1024]))
        values["full_attention_layers"] = tuple(sorted(draw(layers))) if values["sliding_window"] else ()
    values["qk_layernorm"] = (
        latent
        or family in ("olmoe", "minimax_m2")
        or family.startswith("qwen3")
        or (family == "glm4_moe" and draw(st.booleans()))
    )
    values["attention_bias"] = family in ("qwen2", "qwen2_5_vl", "gpt_oss") or (
        family in ("llama", "qwen2_moe", "glm4_moe", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe")
        and draw(st.booleans())
    )
    values["linear_bias"] = family == "gpt_oss" or (
        family == "llama" and values["attention_bias"] and draw(st.booleans())
    )
    if {ATTENTION_BIAS, LLAMA_BIASES} & set(record.parts):
        values["attention_output_bias"] = values["attention_bias"] or None
    if family in ("olmoe", "minimax_m2"):
        values["qk_norm_type"] = "per_layer"
    if record.has_experts:
        values.update(draw(_experts(family)))
        if SPARSE_LAYERS in record.parts and draw(st.booleans()):
            dense = tuple(sorted(draw(layers)))
            if dense != tuple(range(len(dense))):
                values.update(first_k_dense_replace=0, mlp_only_layers=dense)
            else:
                values["first_k_dense_replace"] = min(values["first_k_dense_replace"], values["num_hidden_layers"])
    if latent:
        values.update(draw(_latent()))
    values.update(record.fixed)
    if family in _VARIANTS:
        values.update(draw(_VARIANTS[family]))
    return values


_PARTIAL = st.sampled_from([0.25, 0.5, 1.0])
_INDEXED = {
    "experimental_attention_variant": st.just("dsa"),
    "index_n_heads": st.integers(1, 64),
    "index_head_dim": st.integers(1, 128),
    "index_topk": st.integers(1, 4096),
    "index_topk_freq": st.sampled_from([None, 1, 4]),
    "index_skip_topk_offset": st.sampled_from([None, 3]),
    "indexer_types": st.sampled_from([(), ("shared",) * 3 + ("full",)]),
}
_CAPS = st.sampled_from([None, 30.0, 50.0])
_GEMMA = {
    "hidden_act": st.just("geglu_tanh"),
    "norm_zero_centered": st.just(True),
    "norms_of_outputs": st.just(True),
    "scale_embeddings": st.just(True),
    "query_pre_attn_scalar": st.sampled_from([144, 256]),
    "attn_logit_softcapping": _CAPS,
    "final_logit_softcapping": _CAPS,
}
_LINEAR = {
    "experimental_attention_variant": st.just("gated_delta_net"),
    "attention_output_gate": st.just(True),
    "norm_zero_centered": st.just(True),
    "partial_rotary_factor": _PARTIAL,
    "full_attention_interval": st.integers(1, 8),
    "linear_num_key_heads": st.sampled_from([1, 16]),
    "linear_num_value_heads": st.sampled_from([16, 32]),
    "linear_key_head_dim": st.integers(1, 128),
    "linear_value_head_dim": st.integers(1, 128),
    "linear_conv_kernel_dim": st.integers(1, 8),
}
_POSITIONS = {"position_embedding": st.just("mrope"), "mrope_section": st.sampled_from([(11, 11, 10), (24, 20, 20)])}
_QWEN3_5 = {**_LINEAR, **_POSITIONS, "num_nextn_predict_layers": st.integers(0, 1)}
# What families have besides heads, experts and latent attention.
_VARIANTS = {
    "deepseek_v32": st.fixed_dictionaries(_INDEXED),
    "glm_moe_dsa": st.fixed_dictionaries(_INDEXED),
    "gemma2": st.fixed_dictionaries(_GEMMA),
    "gemma3_text": st.fixed_dictionaries(
        {**_GEMMA, "qk_layernorm": st.just(True), "rope_local_theta": st.sampled_from([1e4, 1e5])}
    ),
    "deepseek_v4": st.builds(
        lambda head, rotated, ratios, **values: {
            **values,
            "num_hidden_layers": len(ratios),
            "num_hash_layers": min(values["num_hash_layers"], len(ratios)),
            "compress_ratios": tuple(ratios),
            "v_head_dim": head,
            "kv_lora_rank": head,
            "qk_rope_head_dim": rotated,
            "qk_nope_head_dim": head - rotated,
            "intermediate_size": values["moe_intermediate_size"],
            "shared_expert_intermediate_size": 2 * values["moe_intermediate_size"],
            "head_dim": None,
            "num_key_value_heads": 1,
            "first_k_dense_replace": 0,
            "moe_layer_freq": 1,
            "n_group": None,
            "topk_group": None,
            "router_expert_bias": True,
            "qk_layernorm": True,
            "experimental_attention_variant": "dsv4_hybrid",
            "enable_hyper_connections": True,
        },
        head=st.sampled_from([96, 512]),
        rotated=st.sampled_from([16, 64]),
        ratios=st.lists(st.sampled_from([0, 4, 128]), min_size=1, max_size=50),
        num_hash_layers=st.integers(0, 4),
        moe_intermediate_size=st.integers(1, 999),
        scoring_func=st.sampled_from(["sqrtsoftplus", "sigmoid"]),
        q_lora_rank=st.integers(1, 99),
        csa_window_size=st.integers(1, 999),
        compress_rope_theta=st.sampled_from([40000.0, 160000.0]),
        o_groups=st.integers(1, 16),
        o_lora_rank=st.integers(1, 999),
        index_n_heads=st.integers(1, 64),
        index_head_dim=st.integers(1, 128),
        index_topk=st.integers(1, 4096),
        hc_mult=st.integers(1, 8),
        hc_sinkhorn_iters=st.integers(1, 20),
        hc_eps=st.sampled_from([1e-6, 1e-5]),
        swiglu_limit=st.sampled_from([7.0, 10.0]),
    ),
    "llama4_text": st.fixed_dictionaries(
        {
            "scoring_func": st.just("sigmoid"),
            "rotary_interleaved": st.just(True),
            "apply_probs_on_input": st.just(True),
            "norm_topk_prob": st.just(False),
            "num_experts_per_tok": st.just(1),
            "shared_expert_intermediate_size": st.just(77),
            "moe_intermediate_size": st.just(77),
            "no_rope_freq": st.sampled_from([None, 1]),
            "attention_chunk_size": st.sampled_from([None, 8192]),
            "attn_scale": st.just(0.1),
            "floor_scale": st.sampled_from([4096, 8192]),
            "qk_l2_norm": st.just(True),
            "qk_l2_norm_rope_only": st.just(True),
        }
    ),
    "minimax_m2": st.fixed_dictionaries(
        {
            "partial_rotary_factor": _PARTIAL,
            "scoring_func": st.just("sigmoid"),
            "router_expert_bias": st.just(True),
        }
    ),
    "ernie4_5": st.booleans().map(
        lambda bias: {"attention_bias": bias, "linear_bias": bias, "attention_output_bias": bias or None}
    ),
    "glm4_moe": st.fixed_dictionaries({"partial_rotary_factor": _PARTIAL}),
    "qwen3_next": st.fixed_dictionaries(_LINEAR),
    "qwen2_5_vl": st.fixed_dictionaries(_POSITIONS),
    "qwen3_vl": st.fixed_dictionaries(_POSITIONS),
    "qwen3_vl_moe": st.fixed_dictionaries(_POSITIONS),
    "qwen3_5": st.fixed_dictionaries(_QWEN3_5),
    "qwen3_5_moe": st.fixed_dictionaries({**_QWEN3_5, "intermediate_size": st.none()}),
    "gpt_oss": st.fixed_dictionaries(
        {
            "hidden_act": st.just("quick_geglu"),
            "glu_linear_offset": st.just(1.0),
            "softmax_type": st.just("learnable"),
            "swiglu_limit": st.sampled_from([7.0, 10.0]),
            "sliding_window": st.integers(1, 4096),
            "window_attn_skip_freq": st.just(2),
        }
    ),
}


@st.composite
def _experts(draw: st.DrawFn, family: str) -> dict[str, Any]:
    width = draw(st.integers(1, 999))
    values: dict[str, Any] = {
        "num_experts": draw(st.sampled_from([8, 64])),
        "num_experts_per_tok": draw(st.integers(1, 8)),
        "moe_intermediate_size": width,
        "norm_topk_prob": family in ("mixtral", "gpt_oss", "minimax_m2", "qwen3_5_moe", "qwen3_vl_moe")
        or draw(st.booleans()),
    }
    if family not in ("mixtral", "gpt_oss", "olmoe", "minimax_m2", "qwen3_5_moe"):
        values["first_k_dense_replace"] = draw(st.integers(0, 3))
    if family in ("qwen2_moe", "qwen3_next", "qwen3_5_moe"):
        values.update(shared_expert_intermediate_size=draw(st.integers(1, 999)), shared_expert_gate=True)
    if family.startswith(("deepseek", "glm")):
        v3 = family != "deepseek_v2"
        groups = draw(st.sampled_from([None, 4]))
        values.update(
            shared_expert_intermediate_size=draw(st.sampled_from([None, width, 2 * width])),
            scoring_func="sigmoid" if v3 else "softmax",
            router_expert_bias=v3,
            n_group=groups,
            topk_group=None if groups is None else 2,
            routed_scaling_factor=draw(st.sampled_from([1.0, 2.5])),
            num_nextn_predict_layers=draw(st.integers(0, 2)),
            moe_layer_freq=draw(st.integers(1, 2)) if family.startswith("deepseek") else 1,
        )
    return values


@st.composite
def _latent(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "q_lora_rank": draw(st.sampled_from([None, 48])),
        "kv_lora_rank": draw(st.integers(1, 512)),
        "qk_nope_head_dim": draw(st.integers(1, 128)),
        "qk_rope_head_dim": draw(st.sampled_from([16, 64])),
        "v_head_dim": draw(st.integers(1, 128)),
    }


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@examples(40)
def test_reading_what_was_written_gives_the_model(family: str, data: st.DataObject) -> None:
    values = data.draw(models(family))
    job, problems = build({"model": values})
    assert not problems
    config = config_from_model(job.model)
    read = model_from_config(config)
    for name, value in values.items():
        if name == "rope_scaling":
            assert {key: read[name][key] for key in value} == value
        elif name == "head_dim":
            assert (read[name] or values["hidden_size"] // values["num_attention_heads"]) == (
                value or values["hidden_size"] // values["num_attention_heads"]
            )
        elif name == "num_key_value_heads":
            assert read[name] == (value or values["num_attention_heads"])
        elif name == "intermediate_size" and family in ("mixtral", "gpt_oss", "olmoe", "minimax_m2"):
            assert read[name] == values["moe_intermediate_size"]  # one key for both: there is no dense layer
        elif name == "first_k_dense_replace":  # as a list of layers, it is at most their number
            layers = values["num_hidden_layers"]
            assert min(read[name], layers) == min(value, layers)
        else:
            assert read[name] == value, name


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@examples(10)
def test_writing_what_was_read_gives_the_same_file(family: str, data: st.DataObject) -> None:
    job, _ = build({"model": data.draw(models(family))})
    config = config_from_model(job.model)
    again, _ = build({"model": model_from_config(config)})
    assert config_from_model(again.model) == config
