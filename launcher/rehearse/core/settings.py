"""Megatron-LM's arguments with every derived value filled in, checked before heavy imports.

The derivations follow `validate_args` of Megatron-LM core 0.16.1 (megatron/training/arguments.py:293-1286).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from launcher.job.width import megatron_width
from launcher.rehearse.core.arguments import Arguments
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.rules import problems_of
from launcher.rehearse.core.stages import virtual_stages


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the ranks are divided; dp counts data parallel replicas without context parallelism."""

    world_size: int
    tp: int
    pp: int
    vpp: int | None
    cp: int
    ep: int
    etp: int
    dp: int
    sequence_parallel: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One run, fully derived: layout, batch arithmetic and schedule; `arguments` keeps the rest."""

    arguments: Arguments
    layout: Layout
    seq_length: int
    micro_batch_size: int
    global_batch_size: int
    num_microbatches: int
    train_iters: int
    lr_warmup_steps: float
    """Warm-up, decay and weight decay increments count samples, as megatron's OptimizerParamScheduler does."""
    lr_decay_steps: int
    wsd_decay_steps: int | None
    overrides: dict[str, Any]
    """Values that replace those of arguments: derived, or disabled here."""

    def value(self, dest: str) -> Any:
        """Read an argument, derived values first."""
        return self.overrides[dest] if dest in self.overrides else getattr(self.arguments, dest)


def resolve(arguments: Arguments, world_size: int) -> Settings:
    """Derive a run from its arguments; RehearsalError lists all problems."""
    problems = problems_of(arguments, world_size)
    if problems:
        raise RehearsalError(*problems)
    layout = _layout(arguments, world_size)
    micro, seq_length = arguments.micro_batch_size, arguments.seq_length or arguments.encoder_seq_length
    batch = arguments.global_batch_size or micro * layout.dp
    iterations = arguments.train_iters or arguments.train_samples // batch
    warmup, decay, wsd = _schedule(arguments, batch, iterations)
    return Settings(
        arguments=arguments,
        layout=layout,
        seq_length=seq_length,
        micro_batch_size=micro,
        global_batch_size=batch,
        num_microbatches=batch // (micro * layout.dp),
        train_iters=iterations,
        lr_warmup_steps=warmup,
        lr_decay_steps=decay,
        wsd_decay_steps=wsd,
        overrides=_overrides(arguments, layout),
    )


def _layout(arguments: Arguments, world_size: int) -> Layout:
    tp, pp, cp = (
        arguments.tensor_model_parallel_size,
        arguments.pipeline_model_parallel_size,
        arguments.context_parallel_size,
    )
    return Layout(
        world_size=world_size,
        tp=tp,
        pp=pp,
        vpp=virtual_stages(arguments),
        cp=cp,
        ep=arguments.expert_model_parallel_size,
        etp=arguments.expert_tensor_parallel_size or tp,
        dp=world_size // (tp * pp * cp),
        sequence_parallel=arguments.sequence_parallel and tp > 1,
    )


def _schedule(arguments: Arguments, batch: int, iterations: int) -> tuple[float, int, int | None]:
    if arguments.train_iters:
        decay = (arguments.lr_decay_iters or iterations) * batch
        warmup: float = arguments.lr_warmup_iters * batch
        wsd = arguments.lr_wsd_decay_iters * batch if arguments.lr_wsd_decay_iters is not None else None
    else:
        decay = arguments.lr_decay_samples or arguments.train_samples
        warmup, wsd = arguments.lr_warmup_samples, arguments.lr_wsd_decay_samples
    if arguments.lr_warmup_fraction is not None:
        warmup = arguments.lr_warmup_fraction * decay
    return warmup, decay, wsd


def _overrides(arguments: Arguments, layout: Layout) -> dict[str, Any]:
    """Fill in what Megatron-LM derives; the keys are argument names."""
    hidden, heads = arguments.hidden_size, arguments.num_attention_heads
    ffn = arguments.ffn_hidden_size or megatron_width(hidden, gated=bool(arguments.swiglu))
    experts = arguments.num_experts or None
    selective = arguments.recompute_activations
    loss_scaled = arguments.fp16 and not arguments.loss_scale
    return {
        "num_layers": arguments.num_layers or arguments.encoder_num_layers,
        "ffn_hidden_size": ffn,
        "kv_channels": arguments.kv_channels or hidden // heads,
        "num_experts": experts,
        "moe_ffn_hidden_size": (arguments.moe_ffn_hidden_size or ffn) if experts else None,
        "expert_tensor_parallel_size": layout.etp,
        "sequence_parallel": layout.sequence_parallel,
        "add_qkv_bias": arguments.add_qkv_bias or arguments.add_bias_linear,
        "recompute_granularity": "selective" if selective else arguments.recompute_granularity,
        "num_query_groups": arguments.num_query_groups if arguments.group_query_attention else None,
        "moe_router_load_balancing_type": _single(arguments.moe_router_load_balancing_type),
        "moe_aux_loss_coeff": _single(arguments.moe_aux_loss_coeff),
        "moe_token_dispatcher_type": _dispatcher(arguments.moe_token_dispatcher_type),
        "overlap_p2p_comm": arguments.overlap_p2p_comm and layout.vpp is not None,
        "align_param_gather": arguments.align_param_gather and layout.vpp is not None,
        "position_embedding_type": _position_embedding(arguments),
        "check_for_nan_in_loss_and_grad": arguments.check_for_nan_in_loss_and_grad and not loss_scaled,
        "accumulate_allreduce_grads_in_fp32": arguments.accumulate_allreduce_grads_in_fp32
        or (arguments.bf16 and not arguments.grad_reduce_in_bf16),
        "start_weight_decay": arguments.weight_decay
        if arguments.weight_decay_incr_style == "constant"
        else arguments.start_weight_decay,
        "end_weight_decay": arguments.weight_decay
        if arguments.weight_decay_incr_style == "constant"
        else arguments.end_weight_decay,
        "apply_wd_to_qk_layernorm": arguments.apply_wd_to_qk_layernorm
        or arguments.no_weight_decay_cond_type == "apply_wd_to_qk_layernorm",
    }


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _dispatcher(name: str) -> str:
    return "alltoall" if name == "flex" else name


def _position_embedding(arguments: Arguments) -> str:
    if arguments.use_rotary_position_embeddings:
        return "rope"
    return str(arguments.position_embedding_type)


def padded_vocabulary(settings: Settings, tokenizer_size: int | None) -> tuple[int, int]:
    """Return the vocabulary size and its padded size (megatron/training/tokenizer: a multiple of divisor times tp).

    `tokenizer_size` is None where the data is tokenised already. RehearsalError where the model has fewer tokens than
    the tokenizer, or where no size is given.
    """
    arguments = settings.arguments
    multiple = arguments.make_vocab_size_divisible_by * settings.layout.tp
    size = arguments.vocab_size or arguments.padded_vocab_size or tokenizer_size
    if size is None:
        raise RehearsalError(
            "tokenised data needs the size of its vocabulary; works: --vocab-size or --padded-vocab-size"
        )
    if arguments.vocab_size and arguments.tokenizer_type == "NullTokenizer":
        size += 1  # it adds the end-of-document token
    padded = arguments.padded_vocab_size or math.ceil(size / multiple) * multiple
    needed = tokenizer_size or size
    if needed > padded:
        raise RehearsalError(
            f"the tokenizer has {needed} tokens, but the model's vocabulary is {padded}; works: --vocab-size {needed} "
            f"or more, or a tokenizer with at most {padded} tokens"
        )
    return min(max(size, needed), padded), padded
