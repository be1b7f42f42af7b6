"""Recipes that `rehearse.entry=core` refuses, and what its refusal names."""

_TASK = "trains pretrain and sft and dpo"
_ATTENTION = "experimental attention"

NOT_ON_CORE = {
    "qwen2_5_7b_kto": _TASK,
    "qwen3_moe_kto_lora": _TASK,
    "qwen3_moe_rm_lora": _TASK,
    "qwen3_moe_grpo": _TASK,
    "qwen3_moe_grpo_lora": _TASK,
    "qwen3_8b_gkd": _TASK,
    "qwen3_next": _ATTENTION,
    "deepseek_v3_2": _ATTENTION,
    "glm_5": _ATTENTION,
    "llama3_70b_fp8": "fp8 needs Transformer Engine on a GPU",
    "gpt_oss_120b": "yarn scaling of ordinary attention has no argument",
    "kimi_k2": "YaRN is built with 32",
    "deepseek_v4_flash": "compressed attention came after core 0.16",
    "gemma_2_9b": "the outputs of its layers are not normalised",
    "minimax_m2": "query and key heads are normalised one by one",
    "olmoe_1b_7b": "query and key heads are normalised one by one",
    "glm4_7_flash_grpo": _TASK,
    **dict.fromkeys(
        (
            "qwen2_5_vl_7b_sft",
            "qwen3_5_27b_sft",
            "qwen3_5_moe_32k",
            "qwen3_5_moe_lora",
            "qwen3_vl_8b_sft",
            "qwen3_vl_moe_sft",
        ),
        "position_embedding=mrope",
    ),
    "deepseek_v3_lora": "it knows alltoall, allgather, flex",
}
