"""What MindFormers keeps and does: MindSpore compiles the step to a graph, with weights in fp32 and its own ZeRO."""

from launcher.job import Job
from launcher.mapping.stack_figure import StackFigure

_HSDP = "mindspore 2.7.0 parallel/auto_parallel.py:440 (hsdp), context.py:1092"


def _is_graph(job: Job) -> bool:
    return job.graph.mode != "eager"


def _is_legacy_graph(job: Job) -> bool:
    return bool(job.model.legacy) and _is_graph(job)


ROWS = (
    StackFigure(
        name="host_launch",
        value=0.0,
        source="the step is one graph, started by threads of the runtime ahead of the device (mindspore 2.7.0 "
        "context.py, jit_level O0 and O1) or held by it (O2); what a start costs is not published, counted as 0",
        when=_is_graph,
    ),
    StackFigure(
        name="placeholder_gradients",
        value=False,
        source="products are MindSpore's MatMul; there is no Transformer Engine",
    ),
    StackFigure(name="grouped_workspaces", value=0, source="one kernel (GroupedMatmul) for all experts"),
    StackFigure(
        name="weights_are_main",
        value=True,
        source="mindformers 1.6.0 core/optim/adamw.py:44, 174: the update casts the weights themselves to fp32, states "
        "are fp32; 2.1.0 parallel_core/training_graph/tensor_parallel/layers.py:308 (params_dtype)",
    ),
    StackFigure(
        name="weight_bytes",
        value=2,
        source="mindformers 1.6.0 models/llama/llama_config.py, param_init_type: weights in bf16, fp32 states",
        when=lambda job: job.backend.passthrough.get("model.model_config.param_init_type") == "bfloat16",
    ),
    StackFigure(
        name="experts_over_tp",
        value=True,
        source="mindformers 1.6.0 modules/transformer/transformer.py:1021: weights of experts split (ep, 1, mp)",
        when=lambda job: bool(job.model.legacy) and not job.moe.grouped_gemm,
    ),
    StackFigure(
        name="grouped_experts",
        value=False,
        source="mindformers 1.6.0 modules/layers.py:475: BatchMatMul, a product of the same size for each expert",
        when=lambda job: bool(job.model.legacy),
    ),
    StackFigure(
        name="pads_to_capacity",
        value=True,
        source="mindformers 1.3.2, 1.6.0 modules/transformer/moe.py (calculate_expert_capacity_v2, "
        "TopkRouterV2.dispatch): the tokens of an expert are a tensor of constant size, filled up with zeros",
        when=lambda job: bool(job.model.legacy) and not job.moe.grouped_gemm,
    ),
    StackFigure(
        name="fragments",
        value=False,
        source="mindspore.cn docs r2.9.0, Memory Management: static reuse near the optimum, the pool is defragmented",
    ),
    StackFigure(
        name="weights_follow_optimizer", value=True, source=f"{_HSDP}: level1 splits weights and optimizer state"
    ),
    StackFigure(
        name="gradient_buffer",
        value=False,
        source="mindformers 1.6.0 wrapper/wrapper.py (accu_grads of the cells that accumulate, clones of the weights)",
        when=_is_graph,
    ),
    StackFigure(
        name="gradient_groups",
        value=4,
        source="mindformers 1.6.0 modules/transformer/transformer.py:568, gradient_aggregation_group",
        when=_is_graph,
    ),
    StackFigure(
        name="update_copies",
        value=False,
        source="mindformers 1.6.0 core/optim/adamw.py:44: one weight after the other",
    ),
    StackFigure(
        name="overlaps_data_parallel",
        value=True,
        source="collectives of a graph run on streams of their own, in groups (gradient_aggregation_group)",
        when=_is_graph,
    ),
    StackFigure(
        name="parts_exposed",
        value=0.7,
        source="fine_grain_interleave (mindformers 1.6.0 models/llama/llama.py:177); fitted on five rows of "
        "tools/bench/measured.jsonl that are not held out: codellama_34b_16p, 32p, llama2_70b_bf16_32p, qwen1_5_14b, "
        "telechat_115b",
        when=_is_graph,
    ),
    StackFigure(
        name="repeats_unread",
        value=False,
        source="mindspore nn/cell.py:3603 (2.7.0), ccsrc/frontend/optimizer/recompute.cc @08c54eb9 "
        "(InsertRecomputedNodes): what feeds the backward is made again, with its inputs; the last product of a layer, "
        "which is added to the layer's input, feeds nothing of it",
        when=_is_graph,
    ),
    StackFigure(
        name="rope_bytes",
        value=13.0,
        source="mindformers 1.6.0 modules/layers.py (RotaryEmbedding.construct): halves are swapped by a BatchMatMul; "
        "two products and their sum are counted as one kernel; 10 bytes forward, 16 backward",
        when=_is_legacy_graph,
    ),
    StackFigure(
        name="rope_bytes",
        value=26.0,
        source="the same in rotary_dtype float32: query and key are cast first and last; 24 bytes forward, 28 backward",
        when=lambda job: _is_legacy_graph(job) and bool(job.precision.rope_in_fp32),
    ),
    StackFigure(
        name="late_weights",
        value=True,
        source="mindspore ccsrc/frontend/parallel/pipeline_transformer/zero_bubble_v.cc (steps 7 and 8: nWB0, nW)",
        when=lambda job: job.parallel.schedule == "dualpipev",
    ),
    StackFigure(
        name="cuda_graphs", value=False, source="MindSpore's own graphs are graph.mode (mindspore 2.7.0 context.py)"
    ),
    StackFigure(
        name="pool_gib",
        value=58.0,
        source="mindformers 2.1.0 tools/register/template.py:426, 1.6.0 :423: max_device_memory",
    ),
)


def rows() -> tuple[StackFigure, ...]:
    """Return MindFormers' differences."""
    return ROWS
