"""Rows of SimuMax's published Megatron-LM runs as jobs of ours."""

from collections.abc import Mapping
from typing import Any

_MODELS = {
    "llama3-70b": "llama3_70b",
    "llama3-8b": "llama3_8b",
    "llama3-405b": "llama3_405b",
    "deepseekv2": "deepseek_v2",
    "deepseekv3": "deepseek_v3",
}


def overrides(row: Mapping[str, Any]) -> list[str] | None:
    """Return the overrides that describe one row; None where a preset is missing."""
    preset = _MODELS.get(row["model"])
    if preset is None:
        return None
    hardware = "b200" if row["system"].startswith("b200") else "a100_80g_pcie"
    moe = preset.startswith("deepseek")
    args = [
        f"model={preset}",
        f"hardware={hardware}",
        f"model.num_hidden_layers={row['layer_num']}",
        f"parallel.tp={row['tp']}",
        f"parallel.pp={row['pp']}",
        f"parallel.cp={row['cp']}",
        f"parallel.sequence_parallel={str(row['sequence_parallel'] and row['tp'] > 1).lower()}",
        f"parallel.distributed_optimizer={str(row['zero'] > 0).lower()}",
        f"batch.micro_batch_size={row['mbs']}",
        f"batch.global_batch_size={row['gbs']}",
        f"batch.seq_length={row['seq_len']}",
        f"cluster.nodes={max(1, row['world_size'] // 8)}",
        f"cluster.devices_per_node={min(8, row['world_size'])}",
        f"precision.grad_reduce_in_fp32={str(row['grad_dtype'] == 'fp32').lower()}",
        "tokenizer.make_vocab_size_divisible_by=128",
        "kernels.attention_backend=flash",
        "kernels.transformer_impl=transformer_engine",
    ]
    if row["cp"] > 1:
        args.append("parallel.cp_algorithm=ulysses")
    if row["vpp"] and row["vpp"] > 1:
        args.append(f"parallel.vpp={row['vpp']}")
    if row["ce_fusion"]:
        args += ["kernels.cross_entropy_fusion=true", f"kernels.cross_entropy_fusion_impl={row['ce_fusion']}"]
    if moe:
        args += [
            f"parallel.ep={row['ep']}",
            f"parallel.etp={row['etp']}",
            f"model.first_k_dense_replace={row['dense_layers']}",
            "model.num_nextn_predict_layers=0",
            "moe.permute_fusion=true",
        ]
    if row["recompute"] not in ("none", None):
        return None
    return args


def measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured: bytes (peak, and per stage), seconds."""
    gib = 1024**3
    stages = row.get("real_mem_gb_by_stage") or {}
    # The same run with more micro-batches repeats its memory: each value counts once.
    counts = row["mem_independent"] if row["mem_independent"] is not None else row["mbc"] == 4
    return {
        "memory": row["real_mem_gb"] * gib if counts else None,
        "stages": {int(stage): value * gib for stage, value in stages.items()} if counts else {},
        "seconds": row["real_iter_ms"] / 1000,
    }
