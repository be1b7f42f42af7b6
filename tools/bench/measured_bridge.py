"""Rows of Megatron-Bridge's performance tables (`measured_bridge.jsonl`) as jobs of ours.

A job is the layout of a table's row, what the recipe of that release and layout sets, and what the recipes of that
model all set (`_COMMON`). Sources: Megatron-Bridge v0.1.0rc4 scripts/performance/run_script.py (25.09),
scripts/performance/configs and utils/overrides.py of v0.2.0 to v0.5.1, src/megatron/bridge/perf_recipes of v0.6.0.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.compose import compose

ROWS = Path(__file__).with_name("measured_bridge.jsonl")
_PRESETS: dict[str, list[str]] = {
    "LLAMA3_8B": ["model=llama3_8b"],
    "LLAMA3_70B": ["model=llama3_70b"],
    "LLAMA3.1_405B": [
        *("model=llama3_70b", "model.num_hidden_layers=126", "model.hidden_size=16384"),
        *("model.intermediate_size=53248", "model.num_attention_heads=128"),
        *("parallel.account_for_embedding=true", "parallel.account_for_loss=true"),
    ],
    "DeepSeekV3": ["model=deepseek_v3"],
    "GPT OSS 120B": ["model=gpt_oss_120b"],
    "Qwen3_30B_a3B": ["model=qwen3_30b_a3b"],
    "Qwen3_235B_a22B": [
        "model=qwen3_235b_a22b",
        *("parallel.account_for_embedding=true", "parallel.account_for_loss=true"),
    ],
}
_HARDWARE = {"h100": "h100_80g", "b200": "b200", "b300": "b300", "gb200": "gb200", "gb300": "gb300"}
_PRECISION: dict[str, list[str]] = {
    "bf16": [],
    "fp8_cs": ["precision.fp8_format=hybrid", "precision.fp8_recipe=tensorwise", "precision.fp8_param_gather=true"],
    "fp8_mx": ["precision.fp8_format=e4m3", "precision.fp8_recipe=mxfp8", "precision.fp8_param_gather=true"],
    "fp8_sc": ["precision.fp8_format=hybrid", "precision.fp8_recipe=blockwise"],
    "nvfp4": ["precision.fp4_format=e2m1", "precision.fp4_recipe=nvfp4"],
}
_MOE = {
    "moe.permute_fusion": "true",
    "moe.router_fusion": "true",
    "moe.force_load_balancing": "true",
    "parallel.etp": "1",
}
_COMMON: dict[str, str] = {
    "parallel.distributed_optimizer": "true",
    "precision.grad_reduce_in_fp32": "false",
    "kernels.attention_backend": "flash",
    "kernels.cross_entropy_fusion": "true",
    "kernels.cross_entropy_fusion_impl": "te",
    "kernels.rope_fusion": "true",
    "overlap.grad_reduce": "true",
    "overlap.param_gather": "true",
}
# deepseek_v3.py: optimizer of every release's recipe; layouts that it chooses by (pp, virtual stages).
_DEEPSEEK = {
    "optimizer.precision_aware": "true",
    "optimizer.exp_avg_dtype": "bf16",
    "optimizer.exp_avg_sq_dtype": "bf16",
}
_DEEPSEEK_STAGES = {16: "Et*4|(t*4|)*14t{}L", 8: "Et*8|(t*8|)*6t*5{}L"}
_FSDP = {
    "parallel.fsdp.implementation": "megatron",
    "parallel.zero_stage": "3",
    "parallel.fsdp.keep_fp8_transpose_cache": "false",
    "kernels.gradient_accumulation_fusion": "true",
}
# What Llama's recipes set where they use FSDP ("disabled to avoid functional errors"): run_script.py:165-177 of
# v0.1.0rc4, llama3_llm_pretrain.py of the later releases. 405B keeps the fusion in its only row, which is of 25.09.
_FSDP_OF: Mapping[str, Mapping[str, str]] = {
    "LLAMA3_8B": {"kernels.gradient_accumulation_fusion": "false"},
    "LLAMA3_70B": {
        "kernels.gradient_accumulation_fusion": "false",
        "parallel.fsdp.communication_unit_size": "800000000",
    },
}


def is_row(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one of these."""
    return str(row["source"]).startswith("Megatron-Bridge docs/performance-summary")


def excluded(row: Mapping[str, Any]) -> str | None:
    """Return why no job is formed of a row; None where one is."""
    if row["task"] != "pretrain":
        return "fine-tuning: packed samples of unstated length"
    if row["model"].startswith(("Nemotron", "DeepSeekV4")):
        return "hybrid or compressed attention with latent experts: no preset"
    if row["model"].startswith("Kimi"):
        return "Muon with a layer-wise distributed optimizer"
    if row["model"].startswith("GPT OSS") and row["release"] == "26.06.01":
        return "published as a regression of that container (NVIDIA/cudnn-frontend issue 256)"
    if "recipe" not in row:
        return "no recipe of the release has this layout: recomputation, graphs, dispatcher would be guessed"
    return None


def overrides(row: Mapping[str, Any]) -> list[str]:
    """Return the overrides that describe a row of which a job can be formed."""
    recipe: Mapping[str, Any] = row["recipe"]
    node = 4 if row["gpu"].startswith("gb") else 8
    tp, vpp = row["tp"], row.get("vp") or 1
    fields: dict[str, str] = {
        **_COMMON,
        "parallel.tp": str(tp),
        "parallel.pp": str(row["pp"]),
        "parallel.cp": str(row.get("cp") or 1),
        "parallel.sequence_parallel": str(tp > 1).lower(),
        "batch.micro_batch_size": str(row["mbs"]),
        "batch.global_batch_size": str(row["gbs"]),
        "batch.seq_length": str(row["seq_len"]),
        "cluster.nodes": str(max(1, row["gpus"] // node)),
        "cluster.devices_per_node": str(min(node, row["gpus"])),
    }
    if vpp > 1:
        fields["parallel.vpp"] = str(vpp)
    if tp > 1 and row["precision"] != "nvfp4":
        fields["overlap.tp_comm"] = "true"
    if (row.get("ep") or 1) > 1:
        fields |= {**_MOE, "parallel.ep": str(row["ep"]), **_exchange(row, recipe)}
    if row["model"] == "DeepSeekV3":
        fields |= _deepseek(row, recipe)
    if row.get("fsdp"):
        fields |= {**_FSDP, **_FSDP_OF.get(row["model"], {})}
    fields |= _recipe(recipe)
    if _has_cudnn_norms(row):
        fields["+backend.env.NVTE_NORM_FWD_USE_CUDNN"] = "'1'"
    made = [f"{name}={value}" for name, value in fields.items()]
    return [*_PRESETS[row["model"]], f"hardware={_HARDWARE[row['gpu']]}", *_PRECISION[row["precision"]], *made]


# Norms are cuDNN's where the release's scripts leave NVTE_NORM_FWD_USE_CUDNN set (del_cudnn_ln, v0.2.0
# scripts/performance/perf_plugins.py:245-265, v0.3.0 :278-294, v0.4.0 :301-320; v0.6.0 perf_recipes): model, precision,
# machines, first release. In 25.09 tensorwise norms find the maximum all the same (Transformer Engine 2.7
# common/normalization/rmsnorm/rmsnorm_api.cpp:54).
_CUDNN_NORMS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("LLAMA3_8B", "fp8_cs", ("h100",), "25.11"),
    ("LLAMA3_70B", "fp8_cs", ("gb200", "gb300"), "25.11"),
    ("LLAMA3.1_405B", "fp8_cs", ("gb200", "gb300"), "25.11"),
    ("DeepSeekV3", "fp8_mx", ("gb200", "gb300"), "26.02"),
    ("DeepSeekV3", "fp8_mx", ("b300",), "26.08"),
)


def _has_cudnn_norms(row: Mapping[str, Any]) -> bool:
    """Return whether the norms of a run are cuDNN's."""
    return any(
        (row["model"], row["precision"]) == (model, precision) and row["gpu"] in gpus and row["release"] >= since
        for model, precision, gpus, since in _CUDNN_NORMS
    )


# Releases whose recipes name DeepEP or HybridEP for a model and machines, but leave the plain dispatcher in place:
# GPT-OSS' functions never apply the setting (25.11 to 26.02.01), Qwen3-235B's set alltoall after it (26.02.01, v0.3.1
# configs/qwen/qwen3_llm_pretrain.py), and HybridEP is refused outside of NVL72 (v0.2.0 flex_dispatcher_backend.py).
_PLAIN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("v0.2.", "GPT OSS 120B", ("h100", "b200", "b300", "gb200", "gb300")),
    ("v0.3.", "GPT OSS 120B", ("h100", "b200", "b300", "gb200", "gb300")),
    ("v0.3.1", "Qwen3_235B_a22B", ("h100", "b200", "b300")),
)


def _dispatcher(row: Mapping[str, Any], recipe: Mapping[str, Any]) -> bool:
    """Return whether tokens are sent by DeepEP or HybridEP."""
    backend = recipe.get("moe_flex_dispatcher_backend")
    if row["release"] == "25.09":
        return (row["gpu"], row["model"]) == ("h100", "DeepSeekV3")
    if backend == "hybridep" and recipe["of"].startswith("v0.2.") and not row["gpu"].startswith("gb"):
        return False
    plain = any(recipe["of"].startswith(t) and row["model"] == m and row["gpu"] in gpus for t, m, gpus in _PLAIN)
    return bool(backend) and not plain


def _exchange(row: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of the token dispatcher: the recipe's, or what run_script.py chooses in 25.09."""
    flex, beside = _dispatcher(row, recipe), recipe.get("moe_a2a_overlap")
    if row["release"] == "25.09":
        beside = flex
    found: dict[str, str] = {}
    if flex:
        found |= {"moe.token_dispatcher_type": "flex", "moe.deepep": "true"}
    if beside:
        found["moe.batch_overlap"] = "true"
    if row.get("note") == "tokendrop":
        found |= {"moe.capacity_factor": "1.0", "moe.pad_to_capacity": "true"}
    if row["model"] == "DeepSeekV3" and not flex and not beside:
        found["moe.shared_expert_overlap"] = "true"
    return found


def _deepseek(row: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of DeepSeek-V3's recipes: prediction layers, layout, optimizer."""
    mtp = 0 if row.get("note") == "w/o MTP" else 1
    found = {**_DEEPSEEK, "model.num_nextn_predict_layers": str(mtp)}
    stages = row["pp"] * (row.get("vp") or 1)
    layout = recipe.get("pp_layout")
    if layout is None and row["gpu"] == "h100" and row["release"] in ("25.09", "25.11"):
        layout = "Et|(tt|)*30mL"
    if layout is None and stages in _DEEPSEEK_STAGES:
        layout = _DEEPSEEK_STAGES[stages].format("m" * mtp)
    if layout is not None:
        found["parallel.layout"] = f"'{layout}'"
    if row["release"] == "25.09":
        modules = "[mla_up_proj,mlp]" if row["gpu"] == "h100" else "[mla_up_proj]"
        found |= {"recompute.granularity": "selective", "recompute.modules": modules}
    return found


def _recipe(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of what a recipe sets beside layout and dispatcher."""
    found: dict[str, str] = {}
    if modules := recipe.get("recompute_modules"):
        found |= {"recompute.granularity": "selective", "recompute.modules": f"[{','.join(modules)}]"}
    if layers := recipe.get("recompute_num_layers"):
        found |= {"recompute.granularity": "full", "recompute.method": "block", "recompute.num_layers": str(layers)}
    if layers := recipe.get("cpu_offloading_num_layers"):
        found["offload.activation_layers"] = str(layers)
    if modules := recipe.get("offload_modules"):
        found["offload.modules"] = f"[{','.join(modules)}]"
    impl, scope = recipe.get("cuda_graph_impl"), recipe.get("cuda_graph_scope") or []
    scope = [scope] if isinstance(scope, str) else list(scope)
    if impl and impl != "none":
        whole = impl == "full_iteration" or "full_iteration" in scope or not scope
        found["kernels.cuda_graph.impl"] = "transformer_engine" if impl == "transformer_engine" else "local"
        found["kernels.cuda_graph.scope"] = "[full_iteration]" if whole else f"[{','.join(scope)}]"
        if whole:
            found["hardware.host_launch_us"] = "0"
    return found


def case(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return source, name, job and the seconds of a step; None where no job can be formed (`excluded`)."""
    if excluded(row):
        return None
    seconds = row["gbs"] * row["seq_len"] / row["tokens_per_s_per_gpu"] / row["gpus"]
    name = f"{row['model']} {row['gpus']} {row['gpu']} {row['precision']} {row['release']}"
    layout = f"tp{row['tp']} pp{row['pp']}x{row.get('vp') or 1} cp{row.get('cp') or 1} ep{row.get('ep') or 1}"
    return {
        "source": "Megatron-Bridge tables",
        "name": f"{name} {layout}",
        "job": compose(overrides(row)),
        "seconds": seconds,
    }
