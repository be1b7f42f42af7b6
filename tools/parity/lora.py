"""Jobs that train adapters."""

from collections.abc import Mapping

from tools.parity.case import Case, unfused

_DENSE, _MOE = ("+recipe=tiny_qwen3", "lora.rank=4"), ("+recipe=tiny_qwen3_moe", "lora.rank=4")
_LATENT = ("+recipe=tiny_deepseek_v3", "moe.aux_loss_coeff=0", "model.num_nextn_predict_layers=0", "lora.rank=4")
_RECIPE = ("+recipe=qwen3_8b_lora",)
_ONE, _TWO = "cluster.devices_per_node=1", "cluster.devices_per_node=2"
_ATTENTION = "lora.target_modules=[linear_qkv,linear_proj]"
_UP = "lora.target_modules=[linear_q_up_proj,linear_kv_up_proj,linear_proj]"
# The only dispatcher with which MindSpeed-LLM trains adapters of a MoE model (features_manager/finetune/lora.py:63).
_MINDSPEED = "moe.token_dispatcher_type=alltoall_seq"

CASES: Mapping[str, Case] = {
    "LoRA, Qwen3": unfused(*_DENSE),
    "LoRA, Qwen3, tp 2": unfused(*_DENSE, _TWO, "parallel.tp=2", megatron="SW-LORA-TP-NORM"),
    "LoRA, Qwen3, tp 2, sequence parallelism": unfused(
        *_DENSE, _TWO, "parallel.tp=2", "parallel.sequence_parallel=true", megatron="SW-LORA-TP-NORM"
    ),
    "LoRA, Qwen3, pp 2": unfused(*_DENSE, _TWO, "parallel.pp=2"),
    "LoRA, Qwen3, dp 2": unfused(*_DENSE, _TWO),
    "LoRA, Qwen3, SFT": unfused(*_DENSE, "task=sft"),
    "LoRA, recipe qwen3_8b_lora (SFT)": unfused(*_RECIPE, "precision.dtype=fp32", "parallel.pp=1", _ONE),
    "LoRA, Qwen3-MoE, attention": unfused(*_MOE, _ATTENTION),
    "LoRA, Qwen3-MoE, attention, alltoall_seq": unfused(*_MOE, _ATTENTION, _MINDSPEED),
    "LoRA, DeepSeek-V3, up projections": unfused(*_LATENT, _UP, megatron="SW-LORA-BIAS"),
    "LoRA, DeepSeek-V3, up projections, expert bias fixed": unfused(*_LATENT, _UP, "moe.bias_update_rate=0"),
    "LoRA, DeepSeek-V3, up projections, alltoall_seq": unfused(*_LATENT, _UP, _MINDSPEED),
}
