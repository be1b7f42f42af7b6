"""Rows of Megatron-LM's own CI (tiny models, golden values) as jobs of ours."""

from collections.abc import Mapping
from typing import Any

from launcher.job import Job, build, derive

# What the estimate does not describe: other model families, other data parallelism, reinforcement learning.
_OTHER = ("hybrid", "bert", "t5", "mimo", "multimodal", "grpo", "muon", "offloading", "cudagraph", "megatron-fsdp")
_HARDWARE = {"A100": "a100_80g", "H100": "h100_80g", "GB200": "gb200"}
# These runs say --microbatch-group-size-per-virtual-pipeline-stage 5, which the rows do not repeat.
_TUNABLE, _GROUPS = "tunable_overlap", 5
_VOCABULARY = 50257  # gpt2's vocab.json, which these tests read


def hardware_of(row: Mapping[str, Any]) -> str | None:
    """Return the hardware file of a row; None where it is not known."""
    return _HARDWARE.get(row["hw"])


def job_of(row: Mapping[str, Any], hardware: Mapping[str, Any]) -> Job | None:
    """Return the job of one row; None for what the estimate does not describe."""
    args = row["args"]
    if any(arg in row["case"] for arg in _OTHER) or args.get("use-megatron-fsdp") or "num-layers" not in args:
        return None
    if args.get("num-distributed-optimizer-instances", 1) > 1 or args.get("defer-embedding-wgrad-compute"):
        return None
    if args.get("hybrid-layer-pattern") or args.get("spec") or ("vocab-size" in args and "vocab-file" in args):
        return None
    tree: dict[str, Any] = {
        "model": _model(args),
        "parallel": _parallel(args) | {"microbatch_group_size": _GROUPS if _TUNABLE in row["case"] else None},
        "batch": {
            "micro_batch_size": args["micro-batch-size"],
            "global_batch_size": args["global-batch-size"],
            "seq_length": args["seq-length"],
        },
        "precision": {"dtype": "bf16" if args.get("bf16") else "fp16" if args.get("fp16") else "fp32"},
        "kernels": _kernels(args),
        "recompute": _recompute(args),
        "moe": {"grouped_gemm": bool(args.get("moe-grouped-gemm")), **_dispatcher(args)},
        "tokenizer": {"make_vocab_size_divisible_by": args.get("make-vocab-size-divisible-by", 128)},
        "cluster": {"nodes": row["nodes"], "devices_per_node": row["world_size"] // row["nodes"]},
        "hardware": hardware,
    }
    if args.get("fp8-format"):
        tree["precision"] |= {"fp8_format": args["fp8-format"], "fp8_recipe": args.get("fp8-recipe", "delayed")}
        tree["precision"]["fp8_param_gather"] = bool(args.get("fp8-param-gather"))
    job, problems = build(tree)
    return derive(job) if not problems else None


def _model(args: Mapping[str, Any]) -> dict[str, Any]:
    hidden, heads = args["hidden-size"], args["num-attention-heads"]
    swiglu = bool(args.get("swiglu"))
    ffn = args.get("ffn-hidden-size") or (int(4 * hidden * 2 / 3) // 64 * 64 if swiglu else 4 * hidden)
    model: dict[str, Any] = {
        "num_hidden_layers": args["num-layers"],
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": args.get("num-query-groups") if args.get("group-query-attention") else heads,
        "head_dim": args.get("kv-channels"),
        "vocab_size": args.get("vocab-size") or _VOCABULARY,
        "max_position_embeddings": args["seq-length"],
        "hidden_act": "silu" if swiglu else "gelu",
        "normalization": args.get("normalization", "LayerNorm"),
        "linear_bias": not args.get("disable-bias-linear"),
        "tie_word_embeddings": not args.get("untie-embeddings-and-output-weights"),
        "position_embedding": args.get("position-embedding-type", "learned_absolute"),
        "qk_layernorm": bool(args.get("qk-layernorm")),
        "attention_dropout": float(args.get("attention-dropout", 0.1)),
        "hidden_dropout": float(args.get("hidden-dropout", 0.1)),
    }
    if args.get("num-experts"):
        model |= {
            "num_experts": args["num-experts"],
            "num_experts_per_tok": args.get("moe-router-topk", 2),
            "moe_intermediate_size": args.get("moe-ffn-hidden-size") or ffn,
            "shared_expert_intermediate_size": args.get("moe-shared-expert-intermediate-size"),
        }
        frequency = args.get("moe-layer-freq")
        if isinstance(frequency, str) and "[" in frequency:
            model["first_k_dense_replace"] = _leading_dense(frequency)
    if args.get("multi-latent-attention"):
        model |= {
            "q_lora_rank": args.get("q-lora-rank"),
            "kv_lora_rank": args.get("kv-lora-rank", 32),
            "qk_nope_head_dim": args.get("qk-head-dim", 128),
            "qk_rope_head_dim": args.get("qk-pos-emb-head-dim", 64),
            "v_head_dim": args.get("v-head-dim", 128),
        }
    model["num_nextn_predict_layers"] = args.get("mtp-num-layers", 0)
    return model


def _leading_dense(pattern: str) -> int:
    from launcher.families.layer_pattern import expand

    layers = expand(pattern) or []
    return layers.index(1) if 1 in layers else 0


def _parallel(args: Mapping[str, Any]) -> dict[str, Any]:
    pp = args.get("pipeline-model-parallel-size", 1)
    vpp = args.get("num-virtual-stages-per-pipeline-rank")
    if args.get("num-layers-per-virtual-pipeline-stage"):
        vpp = args["num-layers"] // pp // args["num-layers-per-virtual-pipeline-stage"]
    tp = args.get("tensor-model-parallel-size", 1)
    return {
        "tp": tp,
        "pp": pp,
        "vpp": vpp,
        "cp": args.get("context-parallel-size", 1),
        "ep": args.get("expert-model-parallel-size", 1),
        "etp": args.get("expert-tensor-parallel-size"),
        "sequence_parallel": bool(args.get("sequence-parallel")),
        "distributed_optimizer": bool(args.get("use-distributed-optimizer")),
        "first_stage_layers": args.get("decoder-first-pipeline-num-layers"),
        "last_stage_layers": args.get("decoder-last-pipeline-num-layers"),
        "account_for_embedding": bool(args.get("account-for-embedding-in-pipeline-split")),
        "account_for_loss": bool(args.get("account-for-loss-in-pipeline-split")),
        "layout": args.get("pipeline-model-parallel-layout"),
    }


def _kernels(args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "attention_backend": args.get("attention-backend", "auto"),
        "transformer_impl": args.get("transformer-impl", "transformer_engine"),
        "gradient_accumulation_fusion": not args.get("no-gradient-accumulation-fusion"),
        "cross_entropy_fusion": bool(args.get("cross-entropy-loss-fusion")),
        "cross_entropy_fusion_impl": args.get("cross-entropy-fusion-impl", "native"),
    }


def _recompute(args: Mapping[str, Any]) -> dict[str, Any]:
    modules = args.get("recompute-modules", [])
    return {
        "granularity": args.get("recompute-granularity"),
        "method": args.get("recompute-method"),
        "num_layers": args.get("recompute-num-layers"),
        "modules": modules.split() if isinstance(modules, str) else modules,
    }


def _dispatcher(args: Mapping[str, Any]) -> dict[str, Any]:
    return {"token_dispatcher_type": args.get("moe-token-dispatcher-type", "allgather")}


def measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured: bytes on the last rank (so of the last stage), seconds."""
    return {"memory": None, "last": row["mem_max_allocated_bytes"], "seconds": row["iter_time_s_median"]}
