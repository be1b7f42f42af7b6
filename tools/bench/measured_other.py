"""Rows of model guides (Megatron-Bridge's skills), Megatron-LM's Llama example and MindSpeed-LLM's table as jobs."""

from collections.abc import Mapping
from typing import Any

# Megatron-Bridge's recipe of Moonlight (600d069b src/megatron/bridge/recipes/moonlight/h100/moonlight_16b.py). Its
# MixedPrecisionConfig hands the optimizer its default FP8 recipe, although no FP8 is used (mixed_precision.py, setup).
_MOONLIGHT_RECIPE = [
    "precision.fp8_recipe=tensorwise",
    "optimizer.precision_aware=true",
    "optimizer.exp_avg_dtype=bf16",
    "optimizer.exp_avg_sq_dtype=bf16",
    "precision.grad_reduce_in_fp32=false",
    "moe.shared_expert_overlap=true",
]
# Moonlight-16B-A3B, https://huggingface.co/moonshotai/Moonlight-16B-A3B config.json (architecture of DeepSeek-V3).
_MOONLIGHT = {
    "num_hidden_layers": 27,
    "hidden_size": 2048,
    "intermediate_size": 11264,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 163840,
    "max_position_embeddings": 8192,
    "num_experts": 64,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 2816,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_layernorm": "true",
    "model_type": "deepseek_v3",
}
# Megatron-LM examples/llama (d98e8a64): 405B is described by its sizes, with stages that count embedding and loss.
_LLAMA: dict[str, list[str]] = {
    "LLAMA3-8B": ["model=llama3_8b"],
    "LLAMA3-70B": ["model=llama3_70b"],
    "LLAMA3-405B": [
        *("model=llama3_70b", "model.num_hidden_layers=126", "model.hidden_size=16384"),
        *("model.intermediate_size=53248", "model.num_attention_heads=128"),
        *("parallel.account_for_embedding=true", "parallel.account_for_loss=true"),
    ],
}
# Rows of MindSpeed-LLM's table: what its scripts set beyond the layout (examples/mcore, c77308a1).
_MINDSPEED: dict[str, list[str]] = {
    "Qwen3-30B-A3B": ["model=qwen3_30b_a3b"],
    "Qwen3-8B": ["model=qwen3_8b", "overlap.grad_reduce=true", "overlap.param_gather=true"],
}
_ASCEND = {"Atlas 900 A2": "ascend_910b", "Atlas 900 A3": "ascend_910c"}


def _mindspeed(row: Mapping[str, Any]) -> list[str]:
    args = [f"hardware={_ASCEND[row['hw']]}", f"cluster.nodes={row['nodes']}"]
    args += [f"cluster.devices_per_node={row['gpus'] // row['nodes']}", "parallel.distributed_optimizer=true"]
    args += [f"parallel.tp={row['tp']}", f"parallel.pp={row['pp']}", f"parallel.ep={row['ep']}", "parallel.etp=1"]
    args += [f"batch.micro_batch_size={row['mbs']}", f"batch.global_batch_size={row['gbs']}"]
    args += [f"batch.seq_length={row['seq_len']}", "kernels.attention_backend=flash"]
    if row["recompute"] != "none":
        granularity, method, layers = row["recompute"].split("/")
        args += [f"recompute.granularity={granularity}", f"recompute.method={method}"]
        args.append(f"recompute.num_layers={layers}")
    return args + _MINDSPEED[row["model"]]


def overrides(row: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Return the source of a row and the overrides that describe it; None for what the estimate does not describe."""
    model = str(row.get("model", ""))
    if "args" in row and "skills" in row["source"]:
        return "Megatron-Bridge guides", list(row["args"])
    if "skills" in row["source"] and model.startswith("Moonlight"):
        kind, _, modules = str(row["recompute"]).partition(":")
        args = [f"model.{name}={value}" for name, value in _MOONLIGHT.items()]
        if kind != "none":
            args += [f"recompute.granularity={kind}", f"recompute.modules=[{modules}]"]
        return "Megatron-Bridge guides", args + _MOONLIGHT_RECIPE + _common(row)
    if "moe-hardware-configs" in row["source"] and model == "Qwen3-30B-A3B":
        args = [
            "model=qwen3_30b_a3b",
            *("moe.batch_overlap=true", "moe.token_dispatcher_type=flex", "moe.deepep=true", "moe.router_fusion=true"),
            *_common(row),
            "hardware.host_launch_us=0",  # CUDA graphs
        ]
        return "Megatron-Bridge guides", args
    if "MindSpeed-LLM" in row["source"] and model in _MINDSPEED and row.get("tokens_per_s_per_device"):
        return "MindSpeed-LLM table", _mindspeed(row)
    if "examples/llama" not in row["source"] or not row["parallel_valid"] or model not in _LLAMA:
        return None
    args = [*_LLAMA[model], *_common(row), "overlap.tp_comm=true"]
    if row["precision"] != "BF16":
        # train_llama3_8b_h100_fp8.sh sets a history of maxima and no --fp8-recipe, whose default is delayed.
        args += ["precision.fp8_format=hybrid", "precision.fp8_recipe=delayed", "precision.fp8_param_gather=true"]
    return "Megatron-LM examples", args


def name_of(row: Mapping[str, Any]) -> str:
    """Return a run's name: with what it recomputes, where that is what differs."""
    model = str(row.get("name") or row.get("model"))
    return f"{model} {row['recompute']}" if model.startswith("Moonlight") else model


def _common(row: Mapping[str, Any]) -> list[str]:
    args = [
        "hardware=h100_80g",
        f"parallel.tp={row['tp']}",
        f"parallel.pp={row['pp']}",
        f"parallel.cp={row['cp'] or 1}",
        f"parallel.ep={row['ep'] or 1}",
        "parallel.etp=1",
        f"parallel.sequence_parallel={str(row['tp'] > 1).lower()}",
        "parallel.distributed_optimizer=true",
        f"batch.micro_batch_size={row['mbs']}",
        f"batch.global_batch_size={row['gbs']}",
        f"batch.seq_length={row['seq_len']}",
        f"cluster.nodes={max(1, row['gpus'] // 8)}",
        f"cluster.devices_per_node={min(8, row['gpus'])}",
        "kernels.attention_backend=flash",
        "kernels.cross_entropy_fusion=true",
        "kernels.cross_entropy_fusion_impl=te",
        "moe.permute_fusion=true",
        "overlap.grad_reduce=true",
        "overlap.param_gather=true",
    ]
    if (row.get("vpp") or 1) > 1:
        args.append(f"parallel.vpp={row['vpp']}")
    return args


def measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured: bytes, seconds; or that the run went out of memory."""
    if row.get("oom") or row.get("ran"):
        return {"oom": bool(row.get("oom"))}
    seconds = row["real_iter_ms"] / 1000 if row.get("real_iter_ms") else row.get("iter_s_derived")
    if row.get("tokens_per_s_per_device"):
        seconds = row["gbs"] * row["seq_len"] / row["tokens_per_s_per_device"] / row["gpus"]
    # Megatron-Bridge prints bytes x 1e-9 (train_utils.report_memory) where the source does not say GiB.
    unit = 2**30 if "allocated GiB" in row.get("notes", "") else 1e9
    return {"memory": row["real_mem_gb"] * unit if row.get("real_mem_gb") else None, "seconds": seconds}
