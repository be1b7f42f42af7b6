"""Parameters per stage and rank are those of the real megatron-core model, for every family and kind of layout."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.estimate.parameters import Counts, chunk_parameters
from launcher.estimate.placement import place
from launcher.estimate.sizes import read_sizes
from launcher.job import Job, build

HERE = Path(__file__).parent

_COMMON: dict[str, Any] = {
    "num_hidden_layers": 8,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 8,
    "vocab_size": 500,
    "max_position_embeddings": 128,
}
_MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_MLA = {
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "qk_layernorm": True,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama2": {**_COMMON},
    "llama3": {**_COMMON, "num_key_value_heads": 2},
    "qwen2": {**_COMMON, "num_key_value_heads": 2, "attention_bias": True, "tie_word_embeddings": True},
    "qwen3": {**_COMMON, "num_key_value_heads": 4, "head_dim": 16, "qk_layernorm": True},
    "qwen3 tied": {**_COMMON, "num_key_value_heads": 4, "qk_layernorm": True, "tie_word_embeddings": True},
    "gpt": {
        **_COMMON,
        "hidden_act": "gelu",
        "normalization": "LayerNorm",
        "linear_bias": True,
        "position_embedding": "learned_absolute",
        "tie_word_embeddings": True,
    },
    "mixtral": {**_COMMON, **_MOE, "num_key_value_heads": 2, "moe_intermediate_size": 96},
    "qwen3_moe": {**_COMMON, **_MOE, "num_key_value_heads": 4, "qk_layernorm": True},
    "qwen2_moe": {
        **_COMMON,
        **_MOE,
        "attention_bias": True,
        "shared_expert_intermediate_size": 64,
        "shared_expert_gate": True,
    },
    "deepseek_v2": {
        **_COMMON,
        **_MOE,
        **_MLA,
        "first_k_dense_replace": 1,
        "shared_expert_intermediate_size": 96,
    },
    "deepseek_v2_lite": {
        **_COMMON,
        **_MOE,
        **_MLA,
        "q_lora_rank": None,
        "first_k_dense_replace": 1,
        "shared_expert_intermediate_size": 96,
    },
    "deepseek_v3": {
        **_COMMON,
        **_MOE,
        **_MLA,
        "first_k_dense_replace": 3,
        "shared_expert_intermediate_size": 48,
        "num_nextn_predict_layers": 1,
    },
    "deepseek_v3 tied": {
        **_COMMON,
        **_MOE,
        **_MLA,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": True,
    },
}

LAYOUTS: dict[str, dict[str, Any]] = {
    "one device": {},
    "tp2": {"tp": 2},
    "tp4 beyond kv heads": {"tp": 4},
    "pp2": {"pp": 2},
    "pp4": {"pp": 4},
    "tp2 pp2 vpp2": {"tp": 2, "pp": 2, "vpp": 2},
    "pp2 uneven first": {"pp": 2, "first_stage_layers": 3},
    "pp4 uneven both": {"pp": 4, "first_stage_layers": 1, "last_stage_layers": 3},
    "pp3 uneven vpp2": {"pp": 3, "vpp": 2, "first_stage_layers": 2, "last_stage_layers": 2},
    "pp5 embedding and loss count": {"pp": 5, "account_for_embedding": True, "account_for_loss": True},
    "cp2 tp2": {"cp": 2, "tp": 2},
    "ep2": {"ep": 2, "dp_times": 2},
    "ep4 pp2": {"ep": 4, "pp": 2, "dp_times": 4},
    "tp2 ep2 etp1": {"tp": 2, "ep": 2, "etp": 1, "dp_times": 2},
    "tp2 ep2 etp2": {"tp": 2, "ep": 2, "etp": 2, "dp_times": 2},
    "tp4 ep8 etp1 pp2 vpp4": {"tp": 4, "ep": 8, "etp": 1, "pp": 2, "vpp": 4, "dp_times": 2},
    "layout": {"pp": 2, "layout": "Ettt|tttttL"},
    "layout vpp": {"pp": 2, "layout": "Ett|ttt|t|ttL"},
}


def cases() -> list[tuple[str, str]]:
    """Every family on every layout that it can have."""
    found = []
    for family, model in FAMILIES.items():
        for layout, parallel in LAYOUTS.items():
            moe = "num_experts" in model
            if ("ep" in parallel) != moe and ("ep" in parallel or layout in ("one device", "tp2")):
                continue
            groups = model.get("num_key_value_heads", 8)
            if parallel.get("tp", 1) > groups and "qwen3_moe" not in family and "llama3" not in family:
                continue
            if "layout" in parallel and model.get("num_nextn_predict_layers"):
                continue
            found.append((family, layout))
    return found


def job_of(family: str, layout: str) -> Job:
    """Return the job of a case; the world has what the layout needs."""
    parallel = dict(LAYOUTS[layout])
    times = parallel.pop("dp_times", 1)
    world = parallel.get("tp", 1) * parallel.get("pp", 1) * parallel.get("cp", 1) * times
    job, problems = build(
        {
            "model": FAMILIES[family],
            "parallel": parallel,
            "batch": {"seq_length": 128, "global_batch_size": 64},
            "cluster": {"nodes": 1, "devices_per_node": world},
            "tokenizer": {"make_vocab_size_divisible_by": 8},
            "kernels": {"transformer_impl": "local"},
        }
    )
    assert not problems
    return job


def megatron_case(job: Job) -> dict[str, Any]:
    """Return what the child process builds for a job."""
    model, parallel = job.model, job.parallel
    sizes = read_sizes(job)[0]
    config: dict[str, Any] = {
        "num_layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "ffn_hidden_size": model.intermediate_size,
        "num_attention_heads": model.num_attention_heads,
        "num_query_groups": model.num_key_value_heads or model.num_attention_heads,
        "kv_channels": model.head_size,
        "gated_linear_unit": model.hidden_act == "silu",
        "normalization": model.normalization,
        "add_bias_linear": model.linear_bias,
        "add_qkv_bias": model.attention_bias,
        "qk_layernorm": model.qk_layernorm,
        "tensor_model_parallel_size": parallel.tp,
        "pipeline_model_parallel_size": parallel.pp,
        "virtual_pipeline_model_parallel_size": sizes.vpp if sizes.vpp > 1 else None,
        "context_parallel_size": parallel.cp,
        "num_layers_in_first_pipeline_stage": parallel.first_stage_layers,
        "num_layers_in_last_pipeline_stage": parallel.last_stage_layers,
        "account_for_embedding_in_pipeline_split": bool(parallel.account_for_embedding),
        "account_for_loss_in_pipeline_split": bool(parallel.account_for_loss),
        "pipeline_model_parallel_layout": parallel.layout,
        "mtp_num_layers": model.num_nextn_predict_layers or None,
    }
    if model.is_moe:
        dense = model.first_k_dense_replace
        config |= {
            "num_moe_experts": model.num_experts,
            "moe_router_topk": model.num_experts_per_tok,
            "moe_ffn_hidden_size": model.moe_intermediate_size,
            "moe_shared_expert_intermediate_size": model.shared_expert_intermediate_size,
            "moe_shared_expert_gate": model.shared_expert_gate,
            "moe_layer_freq": [0] * dense + [1] * (sizes.layers - dense),
            "expert_model_parallel_size": parallel.ep,
            "expert_tensor_parallel_size": sizes.etp,
            "moe_token_dispatcher_type": "alltoall",
            "sequence_parallel": parallel.tp > 1,
            "add_bias_linear": False,
        }
    if model.is_mla:
        config |= {
            "multi_latent_attention": True,
            "q_lora_rank": model.q_lora_rank,
            "kv_lora_rank": model.kv_lora_rank,
            "qk_head_dim": model.qk_nope_head_dim,
            "qk_pos_emb_head_dim": model.qk_rope_head_dim,
            "v_head_dim": model.v_head_dim,
            "rope_type": "rope",
        }
    world = job.cluster.world_size
    return {
        "config": config,
        "model": {
            "vocab_size": sizes.vocab,
            "max_sequence_length": model.max_position_embeddings,
            "share_embeddings_and_output_weights": model.tie_word_embeddings,
            "position_embedding_type": model.position_embedding,
        },
        "world": world,
        "layout": {
            "tensor_model_parallel_size": parallel.tp,
            "pipeline_model_parallel_size": parallel.pp,
            "virtual_pipeline_model_parallel_size": sizes.vpp if sizes.vpp > 1 else None,
            "context_parallel_size": parallel.cp,
            "expert_model_parallel_size": parallel.ep,
            "expert_tensor_parallel_size": sizes.etp if model.is_moe else None,
        },
        "ranks": [stage * (world // parallel.pp) for stage in range(parallel.pp)],
        "vpp": sizes.vpp if sizes.vpp > 1 else None,
    }


def counted(job: Job) -> list[int]:
    """Return our own numbers, stage by stage."""
    sizes = read_sizes(job)[0]
    stages = place(job, sizes)
    return [sum((chunk_parameters(sizes, chunk) for chunk in stage), Counts()).rank for stage in stages]


@pytest.fixture(scope="module")
def real() -> dict[tuple[str, str], Any]:
    """What megatron-core allocates, for all cases from one process."""
    pytest.importorskip("megatron.core")
    table = cases()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1])}
    process = subprocess.run(
        [sys.executable, str(HERE / "megatron_counts.py")],
        input=json.dumps([megatron_case(job_of(*case)) for case in table]),
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return dict(zip(table, json.loads(process.stdout.splitlines()[-1]), strict=True))


@pytest.mark.sample(keep=60)
@pytest.mark.slow
@pytest.mark.parametrize(("family", "layout"), cases(), ids=[", ".join(case) for case in cases()])
def test_parameters_equal_the_real_model(family: str, layout: str, real: dict[tuple[str, str], Any]) -> None:
    assert counted(job_of(family, layout)) == real[family, layout]


_NUMBERS = HERE.parent / "families" / "parameters.json"
PUBLISHED: dict[str, int] = json.loads(_NUMBERS.read_text(encoding="utf-8"))


@pytest.mark.sample(keep=16)
@pytest.mark.parametrize(("preset", "number"), PUBLISHED.items(), ids=list(PUBLISHED))
def test_totals_are_those_of_the_published_weights(preset: str, number: int) -> None:
    from launcher.compose import compose
    from launcher.estimate import estimate

    args = [f"model={preset}", "batch.seq_length=128", "batch.global_batch_size=8"]
    # Published numbers are without the layers of multi-token prediction.
    args += ["tokenizer.make_vocab_size_divisible_by=1", "model.num_nextn_predict_layers=0"]
    assert estimate(compose(args), changes=False).parameters["total"] == number
