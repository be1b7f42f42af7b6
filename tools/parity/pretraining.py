"""The jobs of pre-training that are measured: a name and the words of `launch parity`."""

from collections.abc import Mapping

from tools.parity.case import Case, unfused

_DENSE, _MOE = "+recipe=tiny_qwen3", "+recipe=tiny_qwen3_moe"
# Megatron-LM's fused rotary embedding of latent attention is a Triton kernel, which no CPU runs.
_LATENT = ("+recipe=tiny_deepseek_v3", "kernels.rope_fusion=false")
_PRETRAIN = ("task=pretrain", "precision.dtype=fp32")
_ONE = ("parallel.tp=1", "parallel.sequence_parallel=false", "cluster.devices_per_node=1")
# MindSpeed-LLM, the only backend that builds it, caps no attention logits; its window needs the data loader's masks.
_GEMMA = (
    *("+recipe=llama3_8b", "model=gemma_2_9b", *_PRETRAIN, "model.attn_logit_softcapping=null"),
    *("model.sliding_window=16", "parallel.cp_mask_type=general"),
)
_UNBALANCED = ("moe.aux_loss_coeff=0", "model.num_nextn_predict_layers=0")
_BALANCED = "moe.aux_loss_coeff=1"  # large enough to be seen in the gradient norm
_TWO = ("batch.micro_batch_size=2", "batch.global_batch_size=4")  # a micro-batch is more than a sequence


def _on(devices: int, *words: str) -> tuple[str, ...]:
    return (f"cluster.devices_per_node={devices}", *words)


CASES: Mapping[str, Case] = {
    "Qwen3": unfused(_DENSE),
    "Qwen3, tied embeddings": unfused(_DENSE, "model.tie_word_embeddings=true"),
    "Qwen3, recomputation of every layer": unfused(
        _DENSE, "recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=1"
    ),
    "Qwen3, recomputation of the attention": unfused(
        _DENSE, "recompute.granularity=selective", "recompute.modules=[core_attn]"
    ),
    "Qwen3, gradients clipped at 0.1": unfused(_DENSE, "optimizer.clip_grad=0.1"),
    "Qwen3, micro-batches of 2, 4 of them": unfused(_DENSE, "batch.micro_batch_size=2", "batch.global_batch_size=8"),
    "Qwen3, bf16": unfused(_DENSE, "precision.dtype=bf16"),
    # It overflows in iterations 1, 2 and 4, so that updates with two scales follow skipped ones.
    "Qwen3, fp16, initial loss scale 393216": unfused(
        _DENSE, "precision.dtype=fp16", "precision.initial_loss_scale=393216"
    ),
    "Qwen3, weight decay 0.5": unfused(_DENSE, "optimizer.weight_decay=0.5"),
    "Qwen3, warm-up for 2 iterations, cosine to the 4th": unfused(
        _DENSE, "schedule.lr_warmup_iters=2", "schedule.lr_decay_iters=4"
    ),
    "Qwen3, warm-up from 1e-3, linear": unfused(
        _DENSE, "schedule.lr_warmup_iters=3", "schedule.lr_warmup_init=1e-3", "schedule.lr_decay_style=linear"
    ),
    "Qwen3, Adam's epsilon 1e-3, beta2 0.5": unfused(_DENSE, "optimizer.adam_eps=1e-3", "optimizer.adam_beta2=0.5"),
    "Qwen3, tp 2": unfused(_DENSE, *_on(2, "parallel.tp=2", "parallel.sequence_parallel=true")),
    "Qwen3, pp 2": unfused(_DENSE, *_on(2, "parallel.pp=2")),
    "Qwen3, cp 2": unfused(_DENSE, *_on(2, "parallel.cp=2"), megatron_lm="MLM-CP-MEAN", megatron="SW-CP-MEAN"),
    "Qwen3, cp 2, loss per token": unfused(_DENSE, *_on(2, "parallel.cp=2", "precision.calculate_per_token_loss=true")),
    "Qwen3, dp 2": unfused(_DENSE, *_on(2)),
    "Qwen2.5 (biases)": unfused("+recipe=qwen2_5_7b_sft", *_PRETRAIN, *_ONE),
    "Qwen2.5, tied embeddings": unfused("+recipe=qwen2_5_7b_sft", *_PRETRAIN, *_ONE, "model.tie_word_embeddings=true"),
    "Llama 3": unfused("+recipe=llama3_8b", *_PRETRAIN, *_ONE),
    "Llama 3, tied embeddings": unfused("+recipe=llama3_8b", *_PRETRAIN, *_ONE, "model.tie_word_embeddings=true"),
    "Gemma 2 without caps of attention": unfused(*_GEMMA, *_ONE),
    "Gemma 2 without caps of attention, tp 2": unfused(
        *_GEMMA, *_on(2, "parallel.tp=2", "parallel.sequence_parallel=true")
    ),
    "Qwen3-MoE": unfused(_MOE),
    "Qwen3-MoE, top-k not normalised": unfused(_MOE, "model.norm_topk_prob=false"),
    "Qwen3-MoE, ep 2": unfused(_MOE, *_on(2, "parallel.ep=2")),
    "Qwen3-MoE, tp 2": unfused(_MOE, *_on(2, "parallel.tp=2", "parallel.etp=2", "parallel.sequence_parallel=true")),
    "Qwen3-MoE, cp 2, loss per token": unfused(
        _MOE, *_on(2, "parallel.cp=2", "precision.calculate_per_token_loss=true"), "moe.aux_loss_coeff=0"
    ),
    "Qwen3-MoE, router z-loss 0.1": unfused(_MOE, "moe.z_loss_coeff=0.1"),
    "Qwen3-MoE, load balancing 1": unfused(_MOE, _BALANCED, *_TWO),
    "Qwen3-MoE, sequence-wise load balancing 1": unfused(
        _MOE, "moe.load_balancing_type=seq_aux_loss", _BALANCED, *_TWO, megatron="SW-SEQUENCE-BALANCE"
    ),
    "Qwen3-MoE, capacity 0.75, least probable dropped": unfused(
        _MOE, "moe.capacity_factor=0.75", "moe.token_drop_policy=probs"
    ),
    "Qwen3-MoE, capacity 0.75, padded": unfused(
        _MOE, "moe.capacity_factor=0.75", "moe.token_drop_policy=probs", "moe.pad_to_capacity=true"
    ),
    "Qwen3-MoE, capacity 0.75, last dropped": unfused(
        *(_MOE, "moe.capacity_factor=0.75", "moe.token_drop_policy=position"),
        megatron_lm="MLM-DROP-POSITION",
        megatron="SW-DROP-POSITION",
        mindspeed="MLM-DROP-POSITION",
    ),
    "Qwen1.5-MoE (shared experts with a gate)": unfused(
        "+recipe=qwen1_5_moe_sft", *_PRETRAIN, *_ONE, "parallel.ep=1", "precision.calculate_per_token_loss=false"
    ),
    "DeepSeek-V3 (MLA, expert bias, shared experts)": unfused(*_LATENT, *_UNBALANCED),
    "DeepSeek-V3, ep 2": unfused(*_LATENT, *_UNBALANCED, *_on(2, "parallel.ep=2")),
    "DeepSeek-V3, sequence-wise load balancing 1": unfused(
        *(*_LATENT, _BALANCED, *_TWO, "model.num_nextn_predict_layers=0"),
        megatron="SW-SEQUENCE-BALANCE",
        mindspeed="COMPUTES-BALANCE-CHOICE",
    ),
    "DeepSeek-V3, multi-token prediction": unfused(*_LATENT, "moe.aux_loss_coeff=0", mindspeed="MS-MTP-NORM"),
    "DeepSeek-V3, multi-token prediction, sequence-wise load balancing 1": unfused(
        *(*_LATENT, _BALANCED, *_TWO),
        megatron="SW-SEQUENCE-BALANCE",
        mindspeed="MS-MTP-NORM COMPUTES-BALANCE-CHOICE",
    ),
}
