"""The jobs that are measured: by kind of training, a name and the words of `launch parity`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.parity import fine_tuning

_DENSE, _MOE = "+recipe=tiny_qwen3", "+recipe=tiny_qwen3_moe"
# Megatron-LM's fused rotary embedding of latent attention is a Triton kernel, which no CPU runs.
_LATENT = ("+recipe=tiny_deepseek_v3", "kernels.rope_fusion=false")
_PRETRAIN = ("task=pretrain", "precision.dtype=fp32")
_ONE = ("parallel.tp=1", "parallel.sequence_parallel=false", "cluster.devices_per_node=1")
_UNBALANCED = ("moe.aux_loss_coeff=0", "model.num_nextn_predict_layers=0")
_BALANCED = "moe.aux_loss_coeff=1"  # large enough to be seen in the gradient norm
_TWO = ("batch.micro_batch_size=2", "batch.global_batch_size=4")  # a micro-batch is more than a sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job.

    Attributes:
        words: overrides.
        iterations: how many are trained: enough to cross what the job changes.
    """

    words: Sequence[str]
    iterations: int = 4


def _case(*words: str, iterations: int = 4) -> Case:
    return Case(words=(*words, "kernels.cross_entropy_fusion=false"), iterations=iterations)


def _on(devices: int, *words: str) -> tuple[str, ...]:
    return (f"cluster.devices_per_node={devices}", *words)


_PRETRAINING: Mapping[str, Case] = {
    "Qwen3": _case(_DENSE),
    "Qwen3, tied embeddings": _case(_DENSE, "model.tie_word_embeddings=true"),
    "Qwen3, recomputation of every layer": _case(
        _DENSE, "recompute.granularity=full", "recompute.method=uniform", "recompute.num_layers=1"
    ),
    "Qwen3, recomputation of the attention": _case(
        _DENSE, "recompute.granularity=selective", "recompute.modules=[core_attn]"
    ),
    "Qwen3, gradients clipped at 0.1": _case(_DENSE, "optimizer.clip_grad=0.1"),
    "Qwen3, micro-batches of 2, 4 of them": _case(
        _DENSE, "batch.micro_batch_size=2", "batch.global_batch_size=8", iterations=3
    ),
    "Qwen3, weight decay 0.5": _case(_DENSE, "optimizer.weight_decay=0.5"),
    "Qwen3, warm-up for 2 iterations, cosine to the 4th": _case(
        _DENSE, "schedule.lr_warmup_iters=2", "schedule.lr_decay_iters=4", "schedule.train_iters=6", iterations=6
    ),
    "Qwen3, warm-up from 1e-3, linear": _case(
        _DENSE, "schedule.lr_warmup_iters=3", "schedule.lr_warmup_init=1e-3", "schedule.lr_decay_style=linear"
    ),
    "Qwen3, Adam's epsilon 1e-3, beta2 0.5": _case(_DENSE, "optimizer.adam_eps=1e-3", "optimizer.adam_beta2=0.5"),
    "Qwen3, tp 2": _case(_DENSE, *_on(2, "parallel.tp=2", "parallel.sequence_parallel=true")),
    "Qwen3, pp 2": _case(_DENSE, *_on(2, "parallel.pp=2")),
    "Qwen3, cp 2": _case(_DENSE, *_on(2, "parallel.cp=2")),
    "Qwen3, cp 2, loss per token": _case(_DENSE, *_on(2, "parallel.cp=2", "precision.calculate_per_token_loss=true")),
    "Qwen3, dp 2": _case(_DENSE, *_on(2)),
    "Qwen2.5 (biases)": _case("+recipe=qwen2_5_7b_sft", *_PRETRAIN, *_ONE),
    "Qwen2.5, tied embeddings": _case("+recipe=qwen2_5_7b_sft", *_PRETRAIN, *_ONE, "model.tie_word_embeddings=true"),
    "Llama 3": _case("+recipe=llama3_8b", *_PRETRAIN, *_ONE),
    "Llama 3, tied embeddings": _case("+recipe=llama3_8b", *_PRETRAIN, *_ONE, "model.tie_word_embeddings=true"),
    "Qwen3-MoE": _case(_MOE),
    "Qwen3-MoE, top-k not normalised": _case(_MOE, "model.norm_topk_prob=false"),
    "Qwen3-MoE, ep 2": _case(_MOE, *_on(2, "parallel.ep=2")),
    "Qwen3-MoE, tp 2": _case(_MOE, *_on(2, "parallel.tp=2", "parallel.etp=2", "parallel.sequence_parallel=true")),
    "Qwen3-MoE, cp 2, loss per token": _case(
        _MOE, *_on(2, "parallel.cp=2", "precision.calculate_per_token_loss=true"), "moe.aux_loss_coeff=0"
    ),
    "Qwen3-MoE, router z-loss 0.1": _case(_MOE, "moe.z_loss_coeff=0.1"),
    "Qwen3-MoE, load balancing 1": _case(_MOE, _BALANCED, *_TWO),
    "Qwen3-MoE, sequence-wise load balancing 1": _case(_MOE, "moe.load_balancing_type=seq_aux_loss", _BALANCED, *_TWO),
    "Qwen3-MoE, capacity 0.75, least probable dropped": _case(
        _MOE, "moe.capacity_factor=0.75", "moe.token_drop_policy=probs"
    ),
    "Qwen3-MoE, capacity 0.75, padded": _case(
        _MOE, "moe.capacity_factor=0.75", "moe.token_drop_policy=probs", "moe.pad_to_capacity=true"
    ),
    "Qwen3-MoE, capacity 0.75, last dropped": _case(_MOE, "moe.capacity_factor=0.75", "moe.token_drop_policy=position"),
    "Qwen1.5-MoE (shared experts with a gate)": _case(
        "+recipe=qwen1_5_moe_sft",
        *_PRETRAIN,
        *_ONE,
        "parallel.ep=1",
        "precision.calculate_per_token_loss=false",
    ),
    "DeepSeek-V3 (MLA, expert bias, shared experts)": _case(*_LATENT, *_UNBALANCED),
    "DeepSeek-V3, ep 2": _case(*_LATENT, *_UNBALANCED, *_on(2, "parallel.ep=2")),
    "DeepSeek-V3, sequence-wise load balancing 1": _case(
        *_LATENT, _BALANCED, *_TWO, "model.num_nextn_predict_layers=0"
    ),
    "DeepSeek-V3, multi-token prediction": _case(*_LATENT, "moe.aux_loss_coeff=0"),
    "DeepSeek-V3, multi-token prediction, sequence-wise load balancing 1": _case(*_LATENT, _BALANCED, *_TWO),
}

KINDS: Mapping[str, Mapping[str, Case]] = {
    "Pre-training": _PRETRAINING,
    "Supervised fine-tuning": {name: _case(*words) for name, words in fine_tuning.CASES.items()},
}
"""Kind of training, as the page names it, to its jobs by name; a name is in one kind."""


def case_of(name: str) -> tuple[str, Case]:
    """Return the kind of a job and the job."""
    return next((kind, cases[name]) for kind, cases in KINDS.items() if name in cases)


def names() -> list[str]:
    """Return the names of all jobs, in the order of the page."""
    return [name for cases in KINDS.values() for name in cases]
