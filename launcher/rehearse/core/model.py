"""Build this rank's part of the model: megatron-core's GPTModel, wrapped for mixed precision and data parallelism."""

from __future__ import annotations

import dataclasses
from typing import Any

from launcher.rehearse.core.configs import ddp_config, transformer_config
from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.initial_weights import initialise, record_initialisers
from launcher.rehearse.core.options import LayerImplementation, LoraOptions
from launcher.rehearse.core.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model chunks of this rank: as megatron's schedules take them, and unwrapped."""

    config: Any
    chunks: list[Any]
    unwrapped: list[Any]
    layer_impl: str


def build(
    settings: Settings,
    *,
    vocab_size: int,
    padded_vocab_size: int,
    layer_impl: LayerImplementation,
    lora: LoraOptions | None = None,
) -> Model:
    """Build and initialise every chunk of this rank; the weights depend on the seed only, never on the layout.

    With `lora` the layers are local ones: those of Transformer Engine do not show the normalised input of an adapter;
    and with sparse attention, whose modules are put into the local ones.
    """
    import torch

    from launcher.rehearse.cpu import modules

    asked_local = settings.value("transformer_impl") == "local"
    sparse = settings.value("experimental_attention_variant") is not None
    transformer_engine = not (lora or asked_local or sparse) and _use_transformer_engine(layer_impl)
    if settings.value("fp8") and not transformer_engine:
        raise RehearsalError(
            "--fp8-format: only Transformer Engine's layers compute in fp8, and this run has local ones; works: "
            "Transformer Engine installed beside torch, without kernels.transformer_impl=local and LoRA, or no fp8"
        )
    if transformer_engine and settings.value("reset_attention_mask"):
        raise RehearsalError(
            "--reset-attention-mask: Transformer Engine's causal attention does not read the mask; works: the option "
            "layer_impl=local"
        )
    if not transformer_engine:
        modules.install()  # also beside an installed Transformer Engine, whose layers this run does not use
    config = transformer_config(settings, transformer_engine=transformer_engine)
    recorder = record_initialisers(config)
    stages = range(settings.layout.vpp) if settings.layout.vpp else [None]
    unwrapped = [
        _build_chunk(settings, config, padded_vocab_size, stage, transformer_engine=transformer_engine)
        for stage in stages
    ]
    for chunk in unwrapped:
        chunk.to(torch.cuda.current_device())
        if lora is not None:
            from launcher.rehearse.core.lora import add_adapters

            add_adapters(chunk, lora, recorder)
        initialise(chunk, recorder, seed=settings.value("seed"))
        if padded_vocab_size > vocab_size:
            mask_padding(chunk, vocab_size)
    chunks = _wrap(settings, config, unwrapped)
    kind = "transformer_engine" if transformer_engine else "local"
    return Model(config=config, chunks=chunks, unwrapped=unwrapped, layer_impl=kind)


def _use_transformer_engine(layer_impl: LayerImplementation) -> bool:
    from launcher.rehearse.cpu.megatron_core import has_transformer_engine

    return layer_impl != "local" and has_transformer_engine()


def _build_chunk(settings: Settings, config: Any, vocab: int, stage: int | None, *, transformer_engine: bool) -> Any:
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_model import GPTModel

    return GPTModel(
        config=config,
        transformer_layer_spec=_layer_spec(settings, config, stage, transformer_engine=transformer_engine),
        vocab_size=vocab,
        max_sequence_length=settings.value("max_position_embeddings"),
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage),
        fp16_lm_cross_entropy=settings.value("fp16_lm_cross_entropy"),
        share_embeddings_and_output_weights=not settings.value("untie_embeddings_and_output_weights"),
        position_embedding_type=settings.value("position_embedding_type"),
        rotary_percent=settings.value("rotary_percent"),
        rotary_base=settings.value("rotary_base"),
        rope_scaling=settings.value("use_rope_scaling"),
        rope_scaling_factor=settings.value("rope_scaling_factor"),
        seq_len_interpolation_factor=settings.value("rotary_seq_len_interpolation_factor"),
        mtp_block_spec=_mtp_spec(settings, config, stage, transformer_engine=transformer_engine),
        vp_stage=stage,
    )


def _layer_spec(settings: Settings, config: Any, stage: int | None, *, transformer_engine: bool) -> Any:
    from megatron.core.models.gpt import gpt_layer_specs as specs

    sparse = settings.value("experimental_attention_variant") == "dsa"
    if config.num_moe_experts or sparse:
        block = specs.get_gpt_decoder_block_spec(
            config,
            use_transformer_engine=transformer_engine,
            normalization=config.normalization,
            qk_l2_norm=config.qk_l2_norm,
            vp_stage=stage,
        )
        if sparse:
            from launcher.rehearse.core.sparse_attention import with_sparse_attention

            with_sparse_attention(block.layer_specs)
        return block
    common = {
        "qk_layernorm": config.qk_layernorm,
        "multi_latent_attention": config.multi_latent_attention,
        "qk_l2_norm": config.qk_l2_norm,
    }
    if transformer_engine:
        return specs.get_gpt_layer_with_transformer_engine_spec(**common)
    return specs.get_gpt_layer_local_spec(normalization=config.normalization, **common)


def _mtp_spec(settings: Settings, config: Any, stage: int | None, *, transformer_engine: bool) -> Any:
    from megatron.core.models.gpt import gpt_layer_specs as specs

    if not config.mtp_num_layers:
        return None
    layer_specs = specs.get_gpt_decoder_layer_specs(
        config,
        use_transformer_engine=transformer_engine,
        normalization=config.normalization,
        qk_l2_norm=config.qk_l2_norm,
        vp_stage=stage,
    )
    if settings.value("experimental_attention_variant") == "dsa":
        from launcher.rehearse.core.sparse_attention import with_sparse_attention

        with_sparse_attention(layer_specs)
    return specs.get_gpt_mtp_block_spec(
        config, layer_specs[-1], use_transformer_engine=transformer_engine, vp_stage=stage
    )


def mask_padding(chunk: Any, vocab_size: int) -> None:
    """Exclude the vocabulary padding from the softmax, so that the loss does not depend on the padded size.

    The padded size is a multiple of the tensor parallel size: without this, two layouts would train different models.
    """
    if getattr(chunk, "output_layer", None) is None:
        return
    import torch
    from megatron.core import parallel_state

    def mask(_module: Any, _inputs: Any, output: tuple[Any, Any]) -> tuple[Any, Any]:
        logits = output[0]
        first = parallel_state.get_tensor_model_parallel_rank() * logits.size(-1)
        kept = vocab_size - first
        if kept >= logits.size(-1):
            return output
        padding = torch.arange(logits.size(-1), device=logits.device) >= kept
        return logits.masked_fill(padding, torch.finfo(logits.dtype).min), output[1]

    chunk.output_layer.register_forward_hook(mask)


def _wrap(settings: Settings, config: Any, unwrapped: list[Any]) -> list[Any]:
    from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
    from megatron.core.transformer.module import Float16Module

    half = settings.value("fp16") or settings.value("bf16")
    modules = [Float16Module(config, chunk) if half else chunk for chunk in unwrapped]
    count = sum(parameter.numel() for chunk in unwrapped for parameter in chunk.parameters())
    wrapping = ddp_config(settings, count)
    chunks = [
        DistributedDataParallel(config, wrapping, module, disable_bucketing=index > 0)
        for index, module in enumerate(modules)
    ]
    config.finalize_model_grads_func = finalize_model_grads
    if wrapping.overlap_grad_reduce:
        config.no_sync_func = _one_or_all([chunk.no_sync for chunk in chunks])
        if wrapping.align_param_gather:
            config.grad_sync_func = _one_or_all([chunk.start_grad_sync for chunk in chunks])
    if wrapping.overlap_param_gather and wrapping.align_param_gather:
        config.param_sync_func = _one_or_all([chunk.start_param_sync for chunk in chunks])
    return chunks


def _one_or_all(functions: list[Any]) -> Any:
    return functions[0] if len(functions) == 1 else functions
