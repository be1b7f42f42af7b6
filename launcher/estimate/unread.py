"""Fields that the estimate ignores although they could be expected to matter: reported where set."""

from functools import lru_cache
from operator import attrgetter

from launcher.estimate.profile import profile_of
from launcher.estimate.stored import captured_scope
from launcher.job import Job, field_at
from launcher.pipeline_schedule.order import SIMULATED

_UNREAD = {
    "batch.interleave": "micro-batches are counted one after the other",
    "batch.rampup_batch_size": "every step is counted with the whole global batch",
    "data.reset_attention_mask": "attention is counted over the whole sequence",
    "kernels.attention_mask": "the mask is counted as one inside the kernel",
    "kernels.bias_dropout_fusion": "counted as fused",
    "kernels.clone_scatter_output_in_embedding": "the embedding's output is counted without the copy's original",
    "kernels.cuda_graph.impl": "this stack captures no CUDA graphs",
    "kernels.cuda_graph.scope": "this stack captures no CUDA graphs",
    "kernels.deterministic": "counted with the fastest kernels",
    "kernels.empty_cache_level": "memory is counted as kept by the allocator",
    "kernels.masked_softmax_fusion": "counted as fused",
    "kernels.persist_layer_norm": "normalisations are counted as one fused kernel",
    "kernels.qkv_concat": "query, key and value are counted as one product",
    "kernels.rope_fusion": "counted as fused",
    "kernels.use_fused_mhc": "hyper-connections are not counted",
    "lora.quantization": "frozen weights are counted in the job's number format",
    "model.enable_hyper_connections": "one residual stream is counted",
    "model.experimental_attention_variant": "attention is counted as softmax over all keys",
    "model.heterogeneous_layers_config_encoded_json": "layers are counted as if all had one shape",
    "model.heterogeneous_layers_config_path": "layers are counted as if all had one shape",
    "model.hybrid_attention_ratio": "every layer is counted as Mamba without model.hybrid_override_pattern",
    "model.hybrid_mlp_ratio": "every layer is counted as Mamba without model.hybrid_override_pattern",
    "model.mrope_section": "a vision tower, whole on each rank of the first stage, is not counted",
    "model.o_lora_rank": "the output projection is counted as one product",
    "moe.permute_fusion": "counted as fused",
    "moe.router_dtype": "scores are counted in fp32",
    "moe.token_drop_policy": "tokens are counted as evenly spread",
    "moe.tp_extend_ep": "experts are counted as split over etp",
    "moe.use_legacy_grouped_gemm": "experts are counted with the fastest kernel",
    "offload.optimizer_times": "the swapped optimizer is counted as moved at once",
    "offload.overlap_cpu_optimizer_d2h_h2d": "copies to and from the host are counted one after the other",
    "offload.pin_cpu_grads": "copies are counted as from page-locked memory",
    "offload.pin_cpu_params": "copies are counted as from page-locked memory",
    "offload.torch_optimizer": "the step on the host is counted as that of an optimizer made for it",
    "optimizer.main_grads_dtype": "precision.grad_reduce_in_fp32 decides about gradients",
    "optimizer.main_params_dtype": "main weights are counted with what they add to bf16, two bytes",
    "optimizer.muon_matmul_precision": "products of the update are not counted",
    "optimizer.muon_ns_steps": "products of the update are not counted",
    "optimizer.muon_scalar_optimizer": "embeddings, norms and biases are counted with two moments, as Adam has them",
    "optimizer.muon_tp_mode": "communication of the update is not counted",
    "overlap.align_grad_reduce": "stages are counted as in step",
    "overlap.align_param_gather": "stages are counted as in step",
    "overlap.embedding_wgrad": "gradients of the output layer are counted where they arise",
    "overlap.embedding_wgrad_limit": "gradients of the output layer are counted where they arise",
    "overlap.grad_bucket_size": "gradients are counted as reduced at once",
    "overlap.grad_buckets": "gradients are counted as reduced at once",
    "overlap.gradient_reduce_div_fusion": "the division of gradients is counted as free",
    "overlap.p2p_warmup_flush": "no communication of the first and last phase is counted as hidden",
    "overlap.pad_buckets": "buckets of gradients are counted without padding",
    "overlap.param_gather_with_optimizer_step": "weights are counted as gathered after the optimizer step",
    "overlap.sequence_parts": "no communication is counted as hidden by it",
    "overlap.tp.bulk_dgrad": "overlap.tp_comm is counted as a whole",
    "overlap.tp.bulk_wgrad": "overlap.tp_comm is counted as a whole",
    "overlap.tp.config": "overlap.tp_comm is counted as a whole",
    "overlap.tp.overlap_ag": "overlap.tp_comm is counted as a whole",
    "overlap.tp.overlap_rs": "overlap.tp_comm is counted as a whole",
    "overlap.tp.overlap_rs_dgrad": "overlap.tp_comm is counted as a whole",
    "overlap.tp.split_ag": "overlap.tp_comm is counted as a whole",
    "overlap.tp.split_rs": "overlap.tp_comm is counted as a whole",
    "overlap.tp_allreduce": "overlap.tp_comm alone decides what is hidden",
    "parallel.communication.backend": "collectives are counted at the speed of the links",
    "parallel.communication.nccl_config": "collectives are counted at the speed of the links",
    "parallel.communication.pipeline_backend": "collectives are counted at the speed of the links",
    "parallel.communication.ring_exchange_p2p": "collectives are counted at the speed of the links",
    "parallel.cp_mask_type": "attention is counted as causal",
    "parallel.cp_window": "rings are counted as one ring",
    "parallel.fsdp.keep_fp8_transpose_cache": "transposed FP8 weights are not counted",
    "parallel.optimizer_shard_size": "optimizer states are counted as spread over all that hold the same weights",
    "parallel.schedule": "parts of sequences are counted as whole micro-batches, in the order of 1F1B",
    "parallel.split_vocabulary": "the vocabulary is counted as split over tp",
    "parallel.tp_2d_x": "2-D tensor parallelism is counted as one-dimensional",
    "parallel.tp_2d_y": "2-D tensor parallelism is counted as one-dimensional",
    "precision.apply_query_key_layer_scaling": "counted as part of the softmax",
    "precision.attention_softmax_in_fp32": "softmax is counted as the kernels do it, in fp32 inside",
    "precision.first_last_layers_bf16": "all layers are counted with FP8 products",
    "precision.fp16_lm_cross_entropy": "logits are counted in fp32",
    "precision.fp4_param_gather": "weights are counted in the job's number format",
    "precision.fp4_recipe": "recipes of one's own are counted as nvfp4",
    "precision.fp8_wgrad": "gradients of weights are counted with FP8 products",
    "precision.norm_in_fp32": "normalisations are counted in the job's number format",
    "precision.num_layers_at_end_in_bf16": "all layers are counted in FP8",
    "precision.num_layers_at_start_in_bf16": "all layers are counted in FP8",
    "precision.residual_in_fp32": "residual connections are counted in the job's number format",
    "precision.rope_in_fp32": "rotary positions are counted in the job's number format",
    "recompute.activation_num_layers": "the activation function is counted as recomputed in every layer",
    "recompute.communication": "communication is counted as repeated",
    "recompute.in_advance": "recomputation is counted in full",
    "recompute.in_bubble": "recomputation is counted in full",
    "recompute.norm_num_layers": "normalisations are counted as recomputed in every layer",
    "recompute.optimizer_communication": "weights are counted as gathered once in forward and once in backward",
}
# Values equivalent to what is counted; for other fields these are unset, false and empty.
_SAME: dict[str, tuple[object, ...]] = {
    "kernels.attention_mask": (None, "compressed"),
    "model.experimental_attention_variant": (None, "gated_delta_net", "dsa"),
    "kernels.bias_dropout_fusion": (None, True),
    "kernels.clone_scatter_output_in_embedding": (None, True),
    "kernels.cuda_graph.impl": (None, "none"),
    "kernels.empty_cache_level": (None, 0),
    "kernels.masked_softmax_fusion": (None, True),
    "kernels.qkv_concat": (None, True),
    "kernels.rope_fusion": (None, True),
    "moe.permute_fusion": (None, True),
    "offload.pin_cpu_grads": (None, True),
    "offload.pin_cpu_params": (None, True),
    "optimizer.muon_scalar_optimizer": (None, "adam"),
    "overlap.align_grad_reduce": (None, True),
    "overlap.align_param_gather": (None, True),
    "overlap.gradient_reduce_div_fusion": (None, True),
    "overlap.tp.bulk_dgrad": (None, True),
    "overlap.tp.bulk_wgrad": (None, True),
    "overlap.tp.overlap_ag": (None, True),
    "overlap.tp.overlap_rs": (None, True),
    "overlap.tp.split_ag": (None, True),
    "overlap.tp.split_rs": (None, True),
    "overlap.tp_allreduce": (None, True),
    "parallel.communication.backend": (None, "nccl"),
    "parallel.communication.pipeline_backend": (None, "nccl"),
    "parallel.schedule": (None, *SIMULATED),
    "precision.fp4_recipe": (None, "nvfp4"),
    "parallel.split_vocabulary": (None, True),
    "precision.attention_softmax_in_fp32": (True,),
    "precision.fp8_wgrad": (None, True),
    "recompute.communication": (None, True),
}
_NOTHING: tuple[object, ...] = (None, False, ())


_READ = attrgetter(*_UNREAD)
_COUNTED = tuple((*_SAME.get(path, _NOTHING), field_at(path).default) for path in _UNREAD)


def unread(job: Job) -> tuple[str, ...]:
    """Return a note for every field that the user has set and that does not change the estimate."""
    profile = profile_of(job)
    read = (
        ("kernels.masked_softmax_fusion", job.kernels.attention_backend not in ("unfused", "local")),
        ("kernels.cuda_graph.impl", bool(captured_scope(job, profile))),
        ("kernels.cuda_graph.scope", bool(captured_scope(job, profile))),
        ("overlap.sequence_parts", profile.parts_exposed < 1),
        ("optimizer.main_params_dtype", profile.weights_are_main),
    )
    return _notes(_READ(job), read)


@lru_cache(maxsize=256)
def _notes(values: tuple[object, ...], read: tuple[tuple[str, bool], ...]) -> tuple[str, ...]:
    silent = {path for path, counted in read if counted}
    return tuple(
        f"{path}: does not change the estimate ({reason})"
        for (path, reason), value, counted in zip(_UNREAD.items(), values, _COUNTED, strict=True)
        if value not in counted and path not in silent
    )
