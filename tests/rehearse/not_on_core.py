"""Recipes that `rehearse.entry=core` refuses, and what its refusal names."""

_TASK = "trains pretrain and sft and dpo"
_ATTENTION = "linear attention"

NOT_ON_CORE = {
    "qwen2_5_7b_kto": _TASK,
    "qwen3_moe_kto_lora": _TASK,
    "qwen3_moe_rm_lora": _TASK,
    "qwen3_moe_grpo": _TASK,
    "qwen3_moe_grpo_lora": _TASK,
    "qwen3_8b_gkd": _TASK,
    "qwen3_next": _ATTENTION,
    "llama3_70b_fp8": "fp8 needs Transformer Engine on a GPU",
    "gpt_oss_120b": "yarn scaling of ordinary attention has no argument",
    "kimi_k2": "YaRN is built with 32",
    "deepseek_v4_flash": "compressed attention came after core 0.16",
    "gemma_2_9b": "the outputs of its layers are not normalised",
    "minimax_m2": "query and key heads are normalised one by one",
    "olmoe_1b_7b": "query and key heads are normalised one by one",
    "glm4_7_flash_grpo": _TASK,
    **dict.fromkeys(("qwen3_5_27b_sft", "qwen3_5_moe_32k", "qwen3_5_moe_lora"), _ATTENTION),
}
