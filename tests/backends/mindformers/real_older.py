"""Run by MindFormers' own interpreter: its older network (use_legacy: True) and what its loader puts into it.

python real_older.py HF_MODEL OPTIONS [CHECKPOINT]: one JSON line: parameters of the network and their shapes, and those
that the checkpoint's files do not give, or give otherwise. OPTIONS: JSON of qkv_concat, use_gmm, research (a folder).
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def _moe(config: dict[str, Any], options: dict[str, Any]) -> Any:
    from mindformers.modules.transformer.moe import MoEConfig

    experts = config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts")
    if not experts:
        return MoEConfig()
    each = config.get("moe_intermediate_size") or config["intermediate_size"]
    shared = config.get("n_shared_experts") or config.get("shared_expert_intermediate_size", 0) // each
    latent = "kv_lora_rank" in config
    return MoEConfig(
        expert_num=experts,
        num_experts_chosen=2,
        shared_expert_num=shared,
        use_shared_expert_gating=bool(config.get("shared_expert_intermediate_size")),
        use_gmm=bool(options.get("use_gmm")),
        moe_intermediate_size=each,
        first_k_dense_replace=config.get("first_k_dense_replace", 0),
        routing_policy="TopkRouterV2",
        balance_via_topk_bias=config["model_type"] == "deepseek_v3",
        topk_bias_update_rate=0.001,
        use_gating_sigmoid=config["model_type"] == "deepseek_v3",
        **({"n_group": 2, "topk_group": 1} if latent else {}),
    )


def _without_groups() -> None:
    """Let grouped experts be built by one process: nothing is computed, so that no ranks have to be joined."""
    from mindformers.modules.transformer import moev3

    moev3.get_rank = lambda: 0
    for name in [name for name in vars(moev3.FFN) if name.endswith("_group_name")]:
        setattr(moev3.FFN, name, lambda self: "none")


def network(config: dict[str, Any], options: dict[str, Any]) -> Any:
    """Build the network that a file with these settings would build."""
    from mindformers.models.llama.llama import LlamaForCausalLM
    from mindformers.models.llama.llama_config import LlamaConfig

    common = {
        "seq_length": 16,
        "hidden_size": config["hidden_size"],
        "num_layers": config["num_hidden_layers"],
        "num_heads": config["num_attention_heads"],
        "vocab_size": config["vocab_size"],
        "compute_dtype": "float32",
        "param_init_type": "float32",
        "rotary_dtype": "float32",
        "moe_config": _moe(config, options),
    }
    if "kv_lora_rank" in config:
        sys.path.insert(0, options["research"])
        research = [f"research.deepseek3.{name}" for name in ("deepseek2_model", "deepseek3_config")]
        model_of, config_of = (importlib.import_module(name) for name in research)

        names = (
            "kv_lora_rank",
            "q_lora_rank",
            "qk_rope_head_dim",
            "qk_nope_head_dim",
            "v_head_dim",
            "intermediate_size",
        )
        sizes = {name: config[name] for name in names}
        mtp = config.get("num_nextn_predict_layers", 0)
        made = config_of.DeepseekV3Config(
            **common, **sizes, n_kv_heads=config["num_key_value_heads"], mtp_depth=mtp, extend_method="None"
        )
        return model_of.DeepseekV2ForCausalLM(made)
    sparse = config.get("moe_intermediate_size")
    return LlamaForCausalLM(
        LlamaConfig(
            **common,
            n_kv_heads=config["num_key_value_heads"],
            intermediate_size=sparse or config["intermediate_size"],
            qkv_has_bias=config["model_type"] in ("qwen2", "qwen2_moe"),
            tie_word_embeddings=config.get("tie_word_embeddings", False),
            qkv_concat=bool(options.get("qkv_concat")),
        )
    )


def main(model: Path, options: dict[str, Any], checkpoint: Path | None) -> None:
    """Build, load, compare."""
    import mindspore
    import numpy as np

    _without_groups()
    made = network(json.loads((model / "config.json").read_text()), options)
    answer: dict[str, Any] = {"network": {one.name: list(one.shape) for one in made.trainable_params()}}
    answer["network"] |= {one.name: list(one.shape) for one in made.get_parameters() if one.name.endswith("topk_bias")}
    if checkpoint is not None:
        held: dict[str, Any] = {}
        for file in sorted(checkpoint.rglob("*.safetensors")):
            held |= mindspore.load_checkpoint(str(file), format="safetensors")
        lacking, unused = mindspore.load_param_into_net(made, dict(held), strict_load=True)
        loaded = {one.name: one.asnumpy() for one in made.get_parameters()}
        answer["lacking"] = [name for name in lacking if name in answer["network"]]
        answer["unused"] = list(unused)
        answer["different"] = [name for name in held if not np.array_equal(held[name].asnumpy(), loaded[name])]
    print(json.dumps(answer))


if __name__ == "__main__":
    from backends.mindformers.rehearse.cpu import install

    install("run_mindformer.py")
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
