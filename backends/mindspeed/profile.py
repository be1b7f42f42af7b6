"""What MindSpeed-LLM keeps and does otherwise than Megatron-LM, on Ascend devices without Transformer Engine."""

from backends.megatron_lm.profile import ROWS
from launcher.job import Job
from launcher.mapping.stack_figure import StackFigure


def _reuses_main_weights(job: Job) -> bool:
    return bool(job.backend.passthrough.get("reuse-fp32-param"))


_OWN = (
    StackFigure(
        name="placeholder_gradients",
        value=False,
        source="MindSpeed 26.1.0 has no Transformer Engine on the device, whose layers keep them; Megatron-LM's own "
        "make one for each product and free it (megatron/core/tensor_parallel/layers.py @core_v0.12.1)",
    ),
    StackFigure(
        name="grouped_workspaces",
        value=0,
        source="MindSpeed 26.1.0 mindspeed/ops/gmm.py: one kernel (npu_gmm) for all experts",
    ),
    StackFigure(
        name="main_weight_bytes",
        value=2,
        source="MindSpeed 26.1.0 mindspeed/features_manager/memory/reuse_fp32_param.py: --reuse-fp32-param keeps fp32 "
        "main weights as bf16 weights and two bytes more",
        when=_reuses_main_weights,
    ),
    StackFigure(
        name="offload_smallest",
        value=2.0**19,
        source="MindSpeed 26.1.0 mindspeed/core/memory/swap_attention/prefetch.py, no_swap_tensor: twice a "
        "tensor's bytes below 1 MiB",
    ),
    StackFigure(
        name="cuda_graphs",
        value=False,
        source="graphs are captured with torch.cuda's, which Ascend has not (megatron-core 0.12.1 "
        "megatron/core/transformer/cuda_graphs.py:384)",
    ),
    StackFigure(
        name="fragments",
        value=False,
        source="PYTORCH_NPU_ALLOC_CONF=expandable_segments:True, set for its jobs (backends/mindspeed/environment.py), "
        "as 109 of its own scripts set it (26.1.0 examples)",
    ),
    StackFigure(
        name="group_buffer_gib",
        value=0.390625,
        source="two buffers of HCCL_BUFFSIZE, 200 MiB by default, a communication domain (MindSpeed 26.1.0 "
        "docs/zh/features/hccl-group-buffer-set.md:5; CANN, HCCL_BUFFSIZE)",
    ),
    StackFigure(
        name="context_gib",
        value=1.0,
        source="assumed: runtime and kernels of CANN; no published figure was found",
    ),
)


def rows() -> tuple[StackFigure, ...]:
    """Return MindSpeed-LLM's differences."""
    return (*ROWS, *_OWN)
