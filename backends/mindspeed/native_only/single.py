"""Descriptions of MindSpeed-LLM arguments that share a table row, and reasons why some have no field.

From mindspeed/features_manager/**, mindspeed_llm/features_manager/** and training/arguments.py at 26.1.0 and 2.1.0.
"""

from collections.abc import Mapping

from launcher.mapping.native_only import NativeOnlyArg, row, single_rows

PHRASES: Mapping[str, str] = {
    "coc-mode": "chooses how communication over computation is done (0: not at all, 1: rewritten, 2: overlapped)",
    "coc-parallel-num": "sets in how many parts a product is overlapped with its communication",
    "coc-fused-kernel": "overlaps products and communication in one kernel",
    "hccl-group-buffer": "sets HCCL's buffer of each group of ranks",
    "hccl-group-buffer-adaptive": "sizes HCCL's buffer of each group of ranks by what it sends",
    "hccl-ep-group-buffer-adaptive-factor": "scales HCCL's buffer of expert-parallel groups",
    "hccl-op-mode": "chooses where HCCL expands the collectives of each group",
    "hccl-slice-size": "sets the pieces in which HCCL gathers the optimizer's state for a checkpoint",
    "lu-lora-final-layer-index": "sets the last layer that LU-LoRA trains",
    "lu-lora-lr": "sets the learning rate of LU-LoRA's layers",
    "lu-lora-lr-ratio": "sets the ratio of the learning rates of LU-LoRA's B and A",
    "profile-export-type": "chooses how a profile is written (text, db)",
    "profile-data-simplification": "keeps the essential files of a profile only",
    "profile-with-stack": "adds call stacks to a profile",
    "profile-with-memory": "adds memory to a profile",
    "profile-record-shapes": "adds shapes to a profile",
    "profile-with-cpu": "adds the host's side to a profile",
    "rope-scaling-beta-fast": "sets YaRN's upper bound of turns (beta_fast)",
    "rope-scaling-beta-slow": "sets YaRN's lower bound of turns (beta_slow)",
    "adaptive-cp-without-coarse": "schedules adaptive context parallelism without its coarse step",
    "adaptive-cp-dynamic-attn-mask": "schedules adaptive context parallelism again for every mask",
    "adaptive-cp-only-reschedule": "moves the blocks of adaptive context parallelism without regrouping tokens",
    "adaptive-cp-manually-set-mask-list": "takes masks for adaptive context parallelism that the user's code sets",
}
SINGLE: tuple[NativeOnlyArg, ...] = (
    *single_rows(PHRASES),
    row(
        "attention-backend cp-comm-type hierarchical-context-parallel-sizes moe-enable-deepep use-pytorch-profiler",
        no_field="Code that MindSpeed-LLM replaces would read it: attention, profiler and dispatcher are its own, and "
        "their arguments have the fields.",
        source="megatron/core/models/common/language_module/language_module.py:50 @core_v0.12.1; "
        "megatron/core/transformer/moe/token_dispatcher.py:923 @core_v0.12.1; megatron/training/training.py:1714 "
        "@core_v0.12.1; megatron/training/initialize.py:348 @core_v0.12.1",
    ),
    row(
        "deterministic-mode disable-gloo-process-groups",
        no_field="MindSpeed's own argument switches it, too, and has the field (npu-deterministic, "
        "disable-gloo-group).",
        source="mindspeed/features_manager/disable_gloo_group/disable_gloo_group_feature.py:41 @26.1.0_core_r0.12.1; "
        "mindspeed_llm/core/transformer/moe/router.py:603 @26.1.0",
    ),
    row(
        "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers mscale mscale-all-dim "
        "num-virtual-stages-per-pipeline-rank optimizer-cpu-offload optimizer-offload-fraction rotary-scaling-factor "
        "use-rope-scaling",
        no_field="Megatron-core's way beside MindSpeed's own, which has the field: num-layer-list, "
        "num-layers-per-virtual-pipeline-stage, swap-optimizer, rope-scaling-*.",
        source="mindspeed/features_manager/pipeline_parallel/pipeline_model_parallel_layout_feature.py:67 "
        "@26.1.0_core_r0.12.1; mindspeed_llm/core/optimizer/__init__.py:61 @26.1.0; "
        "mindspeed/core/transformer/multi_head_latent_attention/adaptor.py:56 @26.1.0_core_r0.12.1",
    ),
    row(
        "no-bias-gelu-fusion",
        no_field="It is for GeLU; the field (kernels.bias_activation_fusion) is the same for SwiGLU, which "
        "MindSpeed-LLM's families have.",
        source="mindspeed_llm/core/transformer/mlp.py:88 @26.1.0",
    ),
    row(
        "cache-dir dataset-dir streaming",
        no_field="Only the preparation of raw data reads it (preprocess_data.py), of which training gets token files.",
        source="mindspeed_llm/tasks/preprocess/data_handler.py:1074 @26.1.0",
    ),
    row(
        "embed-layernorm",
        no_field="It adds the norm behind Bloom's embedding, which MindFormers has only in the configuration of "
        "TeleChat2, where nothing reads it.",
        source="mindspeed_llm/tasks/checkpoint/loader_mg.py:95 @2.1.0",
    ),
    row(
        "enable-cuda-graph external-cuda-graph cuda-graph-scope cuda-graph-warmup-steps",
        no_field="It captures with torch.cuda's graphs, which Ascend has not; on NVIDIA devices kernels.cuda_graph "
        "sets it.",
        source="megatron/core/transformer/cuda_graphs.py:384 @core_v0.12.1",
    ),
    row(
        "fp8-interval",
        no_field="Only MindSpeed's own delayed scaling still reads it; Transformer Engine has ignored it since 1.8.0.",
        source="mindspeed/te/pytorch/fp8/scale_data.py:82 @26.1.0_core_r0.12.1",
    ),
    row(
        "moe-extended-tp",
        no_field="Only 2.1.0 reads it: core 0.8 splits each expert over the tensor- and expert-parallel ranks; later "
        "expert-tensor-parallel-size (parallel.etp) replaced it.",
        source="megatron/core/transformer/moe/moe_layer.py:32 @core_r0.8.0; megatron/core/model_parallel_config.py:61 "
        "@core_v0.12.1",
    ),
)
