"""Constraints on Ascend between pipelines, 2-D tensor parallelism and fused communication."""

from backends.mindspeed.rules.tables import FEATURES, LLM, MINDSPEED, OLD, OLD_ARGUMENTS, SINCE, excludes
from launcher.rules.table import declare, needs, never

_CHUNK = "num-layers-per-virtual-pipeline-stage"
_DUAL = f"{FEATURES}/pipeline_parallel/dualpipev_feature.py"
_LAYOUT = f"{FEATURES}/pipeline_parallel/pipeline_model_parallel_layout_feature.py"
_LIST = f"{LLM}/pipeline_parallel/num_layer_list.py"
_TE = f"{LLM}/megatron_basic/transformer_engine_basic.py"
_TP2D = f"{FEATURES}/tensor_parallel/tp_2d.py"

# fmt: off
declare((
    needs("MS-LIST-PP", "num-layer-list", "pipeline-model-parallel-size>1",
          "Layers per stage need several stages.", f"{_LIST}:30; {OLD_ARGUMENTS}:1145"),
    never("MS-LIST-VPP", f"num-layer-list & {_CHUNK}",
          "A list of layers per stage does not support the interleaved schedule.", f"{_LIST}:32; {OLD_ARGUMENTS}:1147"),
    *excludes("MS-TP2D", "tp-2d", ("sequence-parallel", "use-fused-rmsnorm", "use-ascend-coc"),
              "2-D tensor parallelism", f"{_TP2D}:29-32; {OLD_ARGUMENTS}:1359-1369"),
    needs("MS-TP2D-CP", "tp-2d", "context-parallel-algo=megatron_cp_algo|ulysses_cp_algo",
          "2-D tensor parallelism supports two algorithms of context parallelism.",
          f"{_TP2D}:36; {OLD_ARGUMENTS}:1367"),
    never("MS-TP2D-EP", "tp-2d & expert-model-parallel-size>1",
          "2-D tensor parallelism does not support expert parallelism.", f"{_TP2D}:42; {OLD_ARGUMENTS}:1373"),
    *excludes("MS-DUALPIPE", "schedules-method=dualpipev", ("overlap-grad-reduce", "swap-attention", "tp-2d", _CHUNK),
              "The DualPipeV schedule", f"{_DUAL}:22-51"),
    needs("MS-DUALPIPE-TIED", "schedules-method=dualpipev", "untie-embeddings-and-output-weights",
          "The DualPipeV schedule does not support tied embeddings.", f"{_DUAL}:29"),
    never("MS-DUALPIPE-CP", "schedules-method=dualpipev & context-parallel-size>1",
          "The DualPipeV schedule does not support context parallelism.", f"{_DUAL}:35"),
    needs("MS-DUALPIPE-PP", "schedules-method=dualpipev", "pipeline-model-parallel-size>1",
          "The DualPipeV schedule needs several stages.", f"{_DUAL}:41"),
    never("MS-MC2-COC", "use-ascend-mc2 & use-ascend-coc",
          "Both implement fused tensor-parallel communication: keep one.",
          f"{FEATURES}/tensor_parallel/mc2.py:22; {OLD_ARGUMENTS}:1150"),
), backends=MINDSPEED)
declare((
    never("MS-LIST-DUALPIPE", "num-layer-list & schedules-method=dualpipev",
          "A list of layers per stage does not support the DualPipeV schedule.", f"{_LIST}:34"),
    never("MS-LIST-UNALIGNED", "num-layer-list & pipeline-num-transformer-layers",
          "The layers per stage are given by one argument only.",
          f"{FEATURES}/pipeline_parallel/unaligned_pineline_feature.py:43"),
    never("MS-LIST-NOOP", "num-layer-list & noop-layers",
          "No-op layers with a list of layers per stage end in a TypeError.", f"{_LIST}:37"),
    never("MS-STEP-GATHER-TWO", f"overlap-param-gather-with-optimizer-step & {_CHUNK} & pipeline-model-parallel-size=2",
          "With two stages MindSpeed-LLM removes the chunks before Megatron-LM's check, which needs them.",
          f"{LLM}/megatron_basic/training_basic.py:72; Megatron-LM core_v0.12.1 arguments.py:535"),
    never("MS-NOOP-UNALIGNED", "noop-layers & pipeline-num-transformer-layers",
          "No-op layers need stages of equal size.", f"{FEATURES}/pipeline_parallel/unaligned_pineline_feature.py:42"),
    *excludes("MS-DUALPIPE", "schedules-method=dualpipev", ("use-custom-fsdp",), "The DualPipeV "
        "schedule", f"{_DUAL}:22-51", since="2.3"),
    never("MS-LAYOUT-DUALPIPE", "pipeline-model-parallel-layout & schedules-method=dualpipev",
          "An explicit layout does not support the DualPipeV schedule.", f"{_LAYOUT}:104", since="26.1"),
    *excludes("MS-LAYOUT", "pipeline-model-parallel-layout",
              ("pipeline-num-transformer-layers", "noop-layers", "recompute-in-bubble", "recompute-in-advance", _CHUNK,
               "num-virtual-stages-per-pipeline-rank"),
              "An explicit layout", f"{_LAYOUT}:104-127", since="26.1"),
    needs("MS-MC2-TP", "use-ascend-mc2", "tensor-model-parallel-size>1 & sequence-parallel",
          "Fused tensor-parallel communication needs tp above 1 and sequence parallelism.",
          f"{FEATURES}/tensor_parallel/mc2.py:24", since="26.0"),
    never("MS-MC2-EXPERTS", "use-ascend-mc2 & num-experts>0 & moe-grouped-gemm",
          "Fused tensor-parallel communication excludes grouped GEMM of experts.",
          f"{LLM}/transformer/transformer_block.py:21"),
    needs("MS-MC2-FP8", "use-ascend-mc2 & fp8-format", "fp8-recipe=mxfp8",
          "Fused tensor-parallel communication multiplies in FP8 with the mxfp8 recipe only.", f"{_TE}:58",
          since="26.0"),
    never("MS-COC-TE", "use-ascend-coc & transformer-impl=transformer_engine",
          "Pipelined tensor-parallel communication (CoC) supports transformer-impl local only.", f"{_TE}:56",
          since="26.0"),
    never("MS-COC-LORA", "use-ascend-coc & lora-target-modules",
          "Pipelined tensor-parallel communication (CoC) does not support LoRA.", f"{LLM}/tensor_parallel/coc.py:13"),
    never("MS-TE-LEGACY", "transformer-impl=transformer_engine & use-legacy-models",
          "Transformer Engine's layers need Megatron-core models, not legacy ones.", f"{_TE}:62", since="26.0"),
    never("MS-DEFER-EMBEDDING", "defer-embedding-wgrad-compute",
          "Deferring the embedding's weight gradient is not supported on Ascend.",
          f"{FEATURES}/megatron_basic/megatron_basic.py:34", since="2.3"),
), backends=MINDSPEED, since=SINCE)
declare((
    never("MS-LIST-NOOP-OLD", "num-layer-list & noop-layers",
          "A list of layers per stage does not support no-op layers.", f"{OLD_ARGUMENTS}:1147"),
    needs("MS-DUALPIPE-OVERLAP-OLD", "schedules-method=dualpipev", "moe-fb-overlap",
          "The DualPipeV schedule needs moe-fb-overlap.", f"{OLD_ARGUMENTS}:243"),
    never("MS-MC2-EXPERTS-OLD", "use-mc2 & num-experts>0 & moe-grouped-gemm",
          "Fused tensor-parallel communication excludes grouped GEMM of experts.", f"{OLD_ARGUMENTS}:1139"),
    never("MS-MC2-COC-OLD", "use-mc2 & use-ascend-coc",
          "Both implement fused tensor-parallel communication: keep one.",
          f"{OLD_ARGUMENTS}:1150"),
), backends=MINDSPEED, until=OLD)
# fmt: on
