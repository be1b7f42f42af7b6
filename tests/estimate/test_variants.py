"""Layers that are no softmax attention over all keys: linear attention, sparse attention, Mamba-2, mixed windows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from launcher.compose import compose
from launcher.estimate import Estimate, estimate
from launcher.estimate.parameters import Counts, chunk_parameters
from launcher.estimate.placement import place
from launcher.estimate.sizes import read_sizes
from launcher.families.config_json import config_from_model
from launcher.job import Job
from tests.estimate.estimate_jobs import job_with

_NEXT: dict[str, Any] = {
    "model_type": "qwen3_next",
    "num_hidden_layers": 8,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "qk_layernorm": True,
    "norm_zero_centered": True,
    "partial_rotary_factor": 0.25,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 64,
    "shared_expert_gate": True,
    "experimental_attention_variant": "gated_delta_net",
    "attention_output_gate": True,
    "full_attention_interval": 4,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
}
_GLM: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "num_hidden_layers": 8,
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "qk_layernorm": True,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "shared_expert_intermediate_size": 48,
    "first_k_dense_replace": 1,
    "scoring_func": "sigmoid",
    "router_expert_bias": True,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "experimental_attention_variant": "dsa",
    "index_n_heads": 4,
    "index_head_dim": 16,
    "index_topk": 64,
}
FAMILIES = {
    "linear attention": _NEXT,
    "linear attention in every layer but the second": {**_NEXT, "full_attention_interval": 2},
    "other heads": {**_NEXT, "linear_num_key_heads": 8, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 3},
    "sparse attention": _GLM,
    "indexers in some layers": {**_GLM, "index_topk_freq": 4, "index_skip_topk_offset": 3},
}


def alone(model: dict[str, Any], **parallel: int) -> Job:
    return job_with(
        model={**dict.fromkeys(("num_key_value_heads", "head_dim")), **model},
        parallel=parallel,
        tokenizer={"make_vocab_size_divisible_by": 1},
    )


def total(job: Job) -> int:
    number = estimate(job, changes=False).parameters["total"]
    assert isinstance(number, int)
    return number


@pytest.mark.parametrize("model", FAMILIES.values(), ids=list(FAMILIES))
def test_parameters_are_those_of_the_real_model(model: dict[str, Any]) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    job = alone(model)
    with torch.device("meta"):
        config = transformers.AutoConfig.for_model(**config_from_model(job.model))
        built = transformers.AutoModelForCausalLM.from_config(config)
    assert total(job) == sum(weight.numel() for weight in built.parameters())


_MAMBA: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 256,
    "mamba": True,
    "mamba_num_heads": 16,
    "mamba_head_dim": 16,
    "mamba_state_dim": 32,
    "mamba_num_groups": 4,
    "position_embedding": "none",
}
_HYBRID = {**_MAMBA, "hidden_act": "relu2", "num_hidden_layers": 6, "hybrid_override_pattern": "M*-MM-"}


@pytest.mark.parametrize("pattern", ["M", "MMM", "M*-MM-", "*-*-"])
def test_state_spaces_have_the_parameters_of_the_real_model(pattern: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.NemotronHConfig(
        vocab_size=512,
        hidden_size=128,
        hybrid_override_pattern=pattern,
        num_hidden_layers=len(pattern),
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=16,
        intermediate_size=96,
        mamba_num_heads=16,
        mamba_head_dim=16,
        ssm_state_size=32,
        n_groups=4,
        conv_kernel=4,
        use_bias=False,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    model = {**_HYBRID, "num_hidden_layers": len(pattern), "hybrid_override_pattern": pattern}
    assert total(alone(model)) == sum(weight.numel() for weight in built.parameters())


def test_mamba_without_a_pattern_is_mamba_in_every_layer() -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.Mamba2Config(
        num_heads=16,
        head_dim=16,
        vocab_size=512,
        hidden_size=128,
        state_size=32,
        num_hidden_layers=3,
        n_groups=4,
        use_bias=False,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    assert total(alone({**_MAMBA, "num_hidden_layers": 3})) == sum(weight.numel() for weight in built.parameters())


SPLIT = {"linear attention": _NEXT, "sparse attention": _GLM, "state spaces": _HYBRID}


@pytest.mark.parametrize("model", SPLIT.values(), ids=list(SPLIT))
def test_ranks_of_tensor_parallelism_hold_all_weights_together(model: dict[str, Any]) -> None:
    """What is on two ranks is the model once, and once more what each rank repeats: norms, routers, indexers, MLA."""
    one, two = (_ranks(alone(model, tp=tp)) for tp in (1, 2))
    assert one.rank < 2 * two.rank < 2 * one.rank
    repeated = 2 * two.rank - one.rank
    assert repeated < 0.4 * one.rank
    assert two.total == one.total


def _ranks(job: Job) -> Counts:
    sizes = read_sizes(job)[0]
    return sum((chunk_parameters(sizes, chunk) for stage in place(job, sizes) for chunk in stage), Counts())


def of(model: dict[str, Any], **sections: dict[str, Any]) -> Estimate:
    long = {"batch": {"seq_length": 65536, "global_batch_size": 8}, "hardware": {"memory_gib": 100000.0}}
    return estimate(job_with(model=model, **{**long, **sections}), changes=False)


_LINEAR = {"experimental_attention_variant": "gated_delta_net", "attention_output_gate": False}
_DSA = {
    "q_lora_rank": 768,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_key_value_heads": 16,
}
FASTER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear attention": ({}, _LINEAR),
    "more linear layers": ({**_LINEAR, "full_attention_interval": 2}, {**_LINEAR, "full_attention_interval": 8}),
    "smaller linear heads": (
        {**_LINEAR, "linear_value_head_dim": 256},
        {**_LINEAR, "linear_value_head_dim": 64},
    ),
    "sparse attention": (_DSA, {**_DSA, "experimental_attention_variant": "dsa"}),
    "fewer chosen keys": (
        {**_DSA, "experimental_attention_variant": "dsa", "index_topk": 16384},
        {**_DSA, "experimental_attention_variant": "dsa", "index_topk": 1024},
    ),
    "fewer indexers": (
        {**_DSA, "experimental_attention_variant": "dsa"},
        {**_DSA, "experimental_attention_variant": "dsa", "index_topk_freq": 4},
    ),
    "state spaces": ({}, {"mamba": True}),
    "a window in half of the layers": ({}, {"sliding_window": 1024, "window_attn_skip_freq": 2}),
    "a window in more layers": (
        {"sliding_window": 1024, "window_attn_skip_freq": 2},
        {"sliding_window": 1024, "window_attn_skip_freq": 8},
    ),
    "no output gate": ({"attention_output_gate": True}, {}),
}


@pytest.mark.parametrize(("slow", "fast"), FASTER.values(), ids=list(FASTER))
def test_long_sequences_are_faster_with(slow: dict[str, Any], fast: dict[str, Any]) -> None:
    first, second = of(slow), of(fast)
    assert first.time is not None
    assert second.time is not None
    assert second.time.step_s < first.time.step_s


@pytest.mark.parametrize("model", [{}, _LINEAR, {**_DSA, "experimental_attention_variant": "dsa"}, {"mamba": True}])
def test_the_share_of_the_peak_stays_a_share(model: dict[str, Any]) -> None:
    assert 0 < (of(model).mfu or 0) < 1


NAMED = {
    "gated delta net": _LINEAR,
    "sparse attention": {**_DSA, "experimental_attention_variant": "dsa"},
    "Mamba-2": {"mamba": True},
}


@pytest.mark.parametrize(("args", "model"), NAMED.items(), ids=list(NAMED))
def test_what_nobody_measured_is_named(args: str, model: dict[str, Any]) -> None:
    notes = [note for note in of(model).missing if args in note]
    assert len(notes) == 1
    assert re.search("by formula, not measured", notes[0])
    assert not any("by formula" in note for note in of({}).missing)


def test_linear_attention_keeps_a_token_the_same_bytes_at_any_length() -> None:
    """Its activations grow with the tokens alone, where softmax without a fused kernel grows with their square."""
    sections = {"kernels": {"attention_backend": "unfused"}}

    def kept(model: dict[str, Any], length: int) -> int:
        batch = {"seq_length": length, "global_batch_size": 8}
        return of(model, batch=batch, **sections).fullest.activations

    linear = {**_LINEAR, "full_attention_interval": 100}
    assert kept(linear, 32768) < 2.1 * kept(linear, 16384)
    assert kept({}, 32768) > 3 * kept({}, 16384)


@pytest.mark.parametrize("preset", ["deepseek_v4_flash", "llama_4_maverick", "llama_4_scout"])
def test_presets_have_the_parameters_of_transformers_classes(preset: str) -> None:
    counted = json.loads(Path(__file__).parents[1].joinpath("families", "parameters.json").read_text(encoding="utf-8"))
    job = compose(
        [
            f"model={preset}",
            "model.num_nextn_predict_layers=0",
            "backend=megatron_lm",
            "data.format=mock",
            "batch.seq_length=4096",
            "batch.global_batch_size=8",
            "tokenizer.make_vocab_size_divisible_by=1",
        ]
    )
    assert estimate(job).parameters["total"] == counted[preset]
