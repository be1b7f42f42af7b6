"""What the pairs of rules of Megatron-SWIFT are made of: changes of one job, shared by several rules."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Changes = Mapping[str, Any]

MOE: Changes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "model_type": "qwen3_moe"}
LATENT: Changes = {
    **MOE,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "kv_lora_rank": 32,
    "q_lora_rank": 64,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "scoring_func": "sigmoid",
}
SPARSE: Changes = {
    **LATENT,
    "model_type": "deepseek_v32",
    "experimental_attention_variant": "dsa",
    "index_n_heads": 2,
    "index_head_dim": 16,
    "index_topk": 8,
}
DPO: Changes = {"type": "dpo"}
GRPO: Changes = {"type": "grpo"}
RC: Changes = {"granularity": "selective"}


@dataclass(frozen=True, slots=True)
class Pair:
    """One rule's pair.

    Attributes:
        broken, passing: changes of the base job; `args` is short for `backend.args`, `env` for `backend.env`.
        version: for which they are judged.
    """

    broken: Changes
    passing: Changes
    version: str = "4.6.0"


def args(**values: Any) -> Changes:
    """Return a job with passed-through options."""
    return {"args": values}
