"""A config.json that cannot be read exactly is refused with the file, the key and what is needed, all at once."""

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.families.config_json import config_from_model, model_from_config
from launcher.families.source import ModelConfigError
from launcher.job import build

HERE = Path(__file__).with_name("published")


def published(name: str, **changes: Any) -> dict[str, Any]:
    """A published file with some keys (those of its text_config, too) changed; `...` removes a key."""
    whole = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    if "text_config" in whole and "text_config" in changes:
        changes["text_config"] = {**whole["text_config"], **changes["text_config"]}
    config = {**whole, **changes}
    return {key: value for key, value in config.items() if value is not ...}


REFUSED = {
    "unknown architecture": ("qwen3_8b", {"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM"),
    "misspelt architecture": ("qwen3_8b", {"architectures": ["Qwen3ForCausaLM"]}, "did you mean Qwen3ForCausalLM?"),
    "unknown model_type": ("qwen3_8b", {"architectures": ..., "model_type": "gemma"}, "known family"),
    "architecture against model_type": ("qwen3_8b", {"model_type": "qwen2"}, "contradict each other"),
    "neither": ("qwen3_8b", {"architectures": ..., "model_type": ...}, "neither architectures nor model_type"),
    "no hidden_size": ("qwen3_8b", {"hidden_size": ...}, "the key hidden_size is needed"),
    "no rope base": ("qwen3_8b", {"rope_theta": ...}, "the key rope_theta is needed"),
    "no key/value heads": ("qwen3_8b", {"num_key_value_heads": ...}, "the key num_key_value_heads is needed"),
    "no experts": ("qwen3_30b_a3b", {"num_experts": ...}, "num_experts (or num_local_experts) is needed"),
    "two numbers of experts": ("qwen3_30b_a3b", {"num_local_experts": 64}, "contradict each other"),
    "no query rank": ("deepseek_v3", {"q_lora_rank": ...}, "the key q_lora_rank is needed"),
    "no groups": ("deepseek_v3", {"n_group": ...}, "the key n_group is needed"),
    "negative size": ("llama3_8b", {"hidden_size": -1}, "hidden_size: -1 is below 1"),
    "text for a number": ("llama3_8b", {"num_hidden_layers": "32"}, "num_hidden_layers: needs a whole number"),
    "layer types for half of the layers": ("qwen2_5_7b", {"layer_types": ["full_attention"] * 14}, "14 of 28 layers"),
    "chunked layer types": ("qwen2_5_7b", {"layer_types": ["chunked_attention"] * 28}, "chunked_attention"),
    "sliding layer types": (
        "qwen3_8b",
        {"layer_types": ["full_attention", "sliding_attention"] * 18},
        "sliding_attention",
    ),
    "attention sinks": ("qwen3_8b", {"attention_sinks": 4}, "attention_sinks=4 is not known"),
    "gelu": ("llama3_8b", {"hidden_act": "gelu"}, "hidden_act='gelu'"),
    "biases in MLPs only": ("llama3_8b", {"mlp_bias": True}, "attention_bias to true or mlp_bias to false"),
    "sparse every zeroth layer": ("qwen3_30b_a3b", {"decoder_sparse_step": 0}, "decoder_sparse_step=0"),
    "linear layers without a rule": (
        "qwen3_next_80b_a3b",
        {"full_attention_interval": ..., "layer_types": ["full_attention"] + ["linear_attention"] * 47},
        "every n-th layer may be full_attention",
    ),
    "an interval against its list": (
        "qwen3_next_80b_a3b",
        {"layer_types": ["linear_attention", "full_attention"] * 24},
        "full_attention_interval=4 and layer_types contradict",
    ),
    "dense layers behind sparse ones": (
        "deepseek_v3_2",
        {"mlp_layer_types": ["sparse"] * 60 + ["dense"]},
        "only the first layers may be dense",
    ),
    "no indexer": ("deepseek_v3_2", {"index_topk": ...}, "the key index_topk is needed"),
    "other rotation of the indexer": ("glm_5", {"indexer_rope_interleave": False}, "indexer_rope_interleave=False"),
    "rounded YaRN in GPT-OSS": (
        "gpt_oss_20b",
        {"rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}},
        "truncate=true",
    ),
    "no biases in GPT-OSS": ("gpt_oss_20b", {"attention_bias": False}, "attention_bias=False"),
    "vision": (
        "qwen3_8b",
        {"hidden_size": ..., "text_config": {}, "vision_config": {"depth": 1}},
        "only language models",
    ),
    "sections in another order": (
        "qwen3_5_27b",
        {"text_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "mrope_interleaved": False}}},
        "mrope_interleaved=False cannot be expressed",
    ),
    "embeddings tied in one of two places": (
        "qwen3_5_27b",
        {"text_config": {"tie_word_embeddings": True}},
        "works: text_config.tie_word_embeddings=false",
    ),
    "the language model of another family": (
        "qwen3_5_27b",
        {"text_config": {"model_type": "qwen3_5_moe_text"}},
        "only 'qwen3_5_text' is known there",
    ),
    "an unknown key around the language model": ("qwen3_5_27b", {"audio_config": {"depth": 1}}, "the key audio_config"),
    "no gate": ("qwen3_5_27b", {"text_config": {"attn_output_gate": False}}, "attn_output_gate=False"),
    "unknown routing": ("deepseek_v3", {"topk_method": "greedy"}, "topk_method='greedy'"),
    "unknown scores": ("deepseek_v2", {"scoring_func": "sigmoid"}, "scoring_func='sigmoid'"),
    "partly rotated": ("llama3_8b", {"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
    "multi-modal positions": ("qwen2_5_7b", {"use_mrope": True}, "use_mrope=True"),
    "unknown scaling": ("llama3_8b", {"rope_scaling": {"rope_type": "longrope"}}, "rope_scaling.rope_type='longrope'"),
    "scaling without factor": ("llama3_8b", {"rope_scaling": {"rope_type": "linear"}}, "the key factor is needed"),
    "scaling without type": ("llama3_8b", {"rope_scaling": {"factor": 2.0}}, "the key rope_type is needed"),
    "scaling with an unknown key": (
        "qwen3_8b",
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 2.0}},
        "rope_scaling.attention_factor=2.0",
    ),
    "two rope bases": ("qwen3_8b", {"rope_parameters": {"rope_theta": 5e6}}, "contradict each other"),
    "heads that do not divide": (
        "llama3_8b",
        {"num_attention_heads": 30, "num_key_value_heads": 6},
        "head_dim is needed",
    ),
    "a model that sees": (
        "qwen3_8b",
        {"hidden_size": ..., "text_config": {"hidden_size": 64}, "vision_config": {"depth": 2}},
        "only language models are known",
    ),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_it_is_refused_and_says_why(case: str) -> None:
    name, changes, expected = REFUSED[case]
    with pytest.raises(ModelConfigError) as caught:
        model_from_config(published(name, **changes), "some/config.json")
    assert expected in str(caught.value)
    assert all(line.startswith("some/config.json: ") for line in str(caught.value).splitlines())


def test_everything_wrong_is_reported_at_once() -> None:
    config = published("qwen3_30b_a3b", hidden_size=..., vocab_size="many", hidden_act="gelu", strange=1)
    with pytest.raises(ModelConfigError) as caught:
        model_from_config(config)
    reported = "\n".join(caught.value.problems)
    assert all(key in reported for key in ("hidden_size", "vocab_size", "hidden_act", "strange"))


READ = {
    "key/value heads of an old Llama": ("llama2_7b", {"num_key_value_heads": ...}, "num_key_value_heads", 32),
    "a window in all layers": (
        "qwen2_5_7b",
        {"use_sliding_window": True, "max_window_layers": 0},
        "sliding_window",
        131072,
    ),
    "a window in the last layers": (
        "qwen2_5_7b",
        {"use_sliding_window": True, "max_window_layers": 14},
        "full_attention_layers",
        tuple(range(14)),
    ),
    "a window in listed layers": (
        "qwen3_8b",
        {
            "use_sliding_window": True,
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"] * 18,
        },
        "full_attention_layers",
        tuple(range(1, 36, 2)),
    ),
    # Its class, unlike Qwen2's, has the window in every second of the first layers.
    "Qwen2-MoE's window": (
        "qwen1_5_moe_a2_7b",
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 4},
        "full_attention_layers",
        (1, *range(3, 24)),
    ),
    "Qwen3-MoE's window": (
        "qwen3_30b_a3b",
        {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 4},
        "full_attention_layers",
        (),
    ),
    "a window that is off": ("qwen2_5_7b", {}, "sliding_window", None),
    "a window above the last layer": ("qwen2_5_7b", {"use_sliding_window": True}, "sliding_window", None),
    "Mixtral's window": ("mixtral_8x7b", {"sliding_window": 4096}, "sliding_window", 4096),
    "first layers dense": ("qwen3_30b_a3b", {"mlp_only_layers": [0, 1]}, "first_k_dense_replace", 2),
    "dense layers in between": ("qwen3_30b_a3b", {"mlp_only_layers": [3, 5]}, "mlp_only_layers", (3, 5)),
    "sparse every second layer": (
        "qwen3_30b_a3b",
        {"decoder_sparse_step": 2},
        "mlp_only_layers",
        tuple(range(0, 48, 2)),
    ),
    "bias on the output projection": ("qwen3_8b", {"attention_bias": True}, "attention_output_bias", True),
    "biases in attention only": ("llama3_8b", {"attention_bias": True}, "linear_bias", False),
    "biases everywhere": ("llama3_8b", {"attention_bias": True, "mlp_bias": True}, "linear_bias", True),
    "a head size of its own": ("llama3_8b", {"head_dim": 64}, "head_dim", 64),
    "a head size that is the quotient": ("llama3_8b", {"head_dim": 128}, "head_dim", None),
    "one group is no group": ("deepseek_v3", {"n_group": 1, "topk_group": 1}, "n_group", None),
    "no shared expert": ("deepseek_v3", {"n_shared_experts": None}, "shared_expert_intermediate_size", None),
    "two shared experts": ("deepseek_v2", {}, "shared_expert_intermediate_size", 3072),
    "no prediction layers named": ("deepseek_v3", {"num_nextn_predict_layers": ...}, "num_nextn_predict_layers", 0),
    "routing left out (V3)": ("deepseek_v3", {"scoring_func": ..., "topk_method": ...}, "scoring_func", "sigmoid"),
    "routing left out (V2)": ("deepseek_v2_lite", {"scoring_func": ..., "topk_method": ...}, "scoring_func", "softmax"),
    "a name of the family only": ("qwen3_8b", {"architectures": ...}, "model_type", "qwen3"),
    "a reward model's body": ("qwen3_8b", {"architectures": ["Qwen3ForSequenceClassification"]}, "model_type", "qwen3"),
}


@pytest.mark.parametrize("case", READ, ids=str)
def test_it_is_read(case: str) -> None:
    name, changes, field, expected = READ[case]
    assert model_from_config(published(name, **changes))[field] == expected


def test_a_nested_language_model_is_read() -> None:
    inner = published("qwen3_8b")
    outer = {"architectures": ["SomethingForConditionalGeneration"], "model_type": "something", "text_config": inner}
    assert model_from_config(outer) == model_from_config(inner)


def test_yarn_takes_the_defaults_of_transformers() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    read = model_from_config(published("qwen3_8b", rope_scaling=scaling))["rope_scaling"]
    assert (read["type"], read["beta_fast"], read["beta_slow"]) == ("yarn", 32.0, 1.0)


CANNOT_BE_SAID = {
    "shared expert in Qwen3-MoE": ("qwen3_30b_a3b", {"shared_expert_intermediate_size": 768}),
    "prediction layers in Qwen3": ("qwen3_8b", {"num_nextn_predict_layers": 1}),
    "no norm on queries in Qwen3": ("qwen3_8b", {"qk_layernorm": False}),
    "sigmoid scores in Mixtral": ("mixtral_8x7b", {"scoring_func": "sigmoid"}),
    "half a shared expert": ("deepseek_v3", {"shared_expert_intermediate_size": 1000}),
    "LayerNorm": ("llama3_8b", {"normalization": "LayerNorm"}),
    "a window in Llama": ("llama3_8b", {"sliding_window": 4096}),
    "no family": ("llama3_8b", {"model_type": None}),
    "no width": ("llama3_8b", {"hidden_size": None}),
}


@pytest.mark.parametrize("case", CANNOT_BE_SAID, ids=str)
def test_a_model_that_config_json_cannot_say_is_not_written(case: str) -> None:
    name, changes = CANNOT_BE_SAID[case]
    job, problems = build({"model": {**model_from_config(published(name)), **changes}})
    assert not problems
    with pytest.raises(ModelConfigError) as caught:
        config_from_model(job.model)
    assert next(iter(changes)) in str(caught.value)
