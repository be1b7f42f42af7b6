"""Parallel sizes and uneven pipeline stages."""

from launcher.job.layout import Communication, Fsdp
from launcher.job.option import option
from launcher.job.sources import ARGUMENTS, DDP_CONFIG, MODEL_PARALLEL_CONFIG, TRANSFORMER_CONFIG
from launcher.records import dataclass

_ASCEND = "Ascend MindSpeed features"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The parallel strategy. World size = dp x tp x pp x cp; experts are spread over ep x etp of it."""

    tp: int = option(
        1,
        "Tensor parallel size.",
        unit="devices",
        source=f"{MODEL_PARALLEL_CONFIG}.tensor_model_parallel_size",
        minimum=1,
    )
    pp: int = option(
        1,
        "Pipeline parallel size.",
        unit="stages",
        source=f"{MODEL_PARALLEL_CONFIG}.pipeline_model_parallel_size",
        minimum=1,
    )
    vpp: int | None = option(
        None,
        "Virtual pipeline size: model chunks per stage (interleaved schedule).",
        unit="chunks",
        source=f"{MODEL_PARALLEL_CONFIG}.virtual_pipeline_model_parallel_size",
        minimum=1,
    )
    cp: int = option(
        1, "Context parallel size.", unit="devices", source=f"{MODEL_PARALLEL_CONFIG}.context_parallel_size", minimum=1
    )
    ep: int = option(
        1,
        "Expert parallel size.",
        unit="devices",
        source=f"{MODEL_PARALLEL_CONFIG}.expert_model_parallel_size",
        minimum=1,
    )
    etp: int | None = option(
        None,
        "Tensor parallel size inside experts; none: the backend's choice.",
        unit="devices",
        source=f"{MODEL_PARALLEL_CONFIG}.expert_tensor_parallel_size",
        minimum=1,
    )
    dp: int | None = option(
        None,
        "Data parallel size; derived from the world size; a given value is only checked.",
        unit="devices",
        minimum=1,
    )
    split_vocabulary: bool | None = option(
        None, "Split the embedding over tp; none: yes.", source="MindFormers vocab_emb_dp"
    )
    sequence_parallel: bool | None = option(
        None,
        "Split activations outside tensor-parallel layers over tp.",
        source=f"{MODEL_PARALLEL_CONFIG}.sequence_parallel",
    )
    cp_algorithm: str | None = option(
        None,
        "Algorithm of context parallelism.",
        source="Megatron cp_comm_type; MindSpeed --context-parallel-algo",
        choices=("megatron", "ulysses", "hybrid", "adaptive", "hybrid_adaptive", "allgather"),
    )
    ulysses_degree: int | None = option(
        None, "Hybrid context parallelism: devices of the all-to-all part.", unit="devices", source=_ASCEND, minimum=1
    )
    cp_window: int | None = option(
        None, "Ring attention: size of the inner window (double ring).", unit="devices", source=_ASCEND, minimum=1
    )
    cp_mask_type: str | None = option(
        None,
        "Attention mask under context parallelism.",
        source=_ASCEND,
        choices=("causal", "general"),
        affects_training=True,
    )
    first_stage_layers: int | None = option(
        None,
        "Layers of the first pipeline stage; none: even.",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.num_layers_in_first_pipeline_stage",
        minimum=0,
    )
    last_stage_layers: int | None = option(
        None,
        "Layers of the last pipeline stage; none: even.",
        unit="layers",
        source=f"{TRANSFORMER_CONFIG}.num_layers_in_last_pipeline_stage",
        minimum=0,
    )
    layout: str | None = option(
        None,
        "Explicit layers per stage and chunk, such as Et*3|(tt|)*29,m|L.",
        source=f"{TRANSFORMER_CONFIG}.pipeline_model_parallel_layout",
    )
    noop_layers: tuple[int, ...] = option(
        (), "Empty layers that fill the last stages, counted from 0 within all layers.", unit="layer", source=_ASCEND
    )
    account_for_embedding: bool | None = option(
        None,
        "Count the embedding as a layer when splitting stages.",
        source=f"{TRANSFORMER_CONFIG}.account_for_embedding_in_pipeline_split",
    )
    account_for_loss: bool | None = option(
        None,
        "Count the output layer as a layer when splitting stages.",
        source=f"{TRANSFORMER_CONFIG}.account_for_loss_in_pipeline_split",
    )
    microbatch_group_size: int | None = option(
        None,
        "Micro-batches that one chunk runs consecutively (interleaved schedule).",
        source=f"{MODEL_PARALLEL_CONFIG}.microbatch_group_size_per_vp_stage",
        minimum=1,
    )
    schedule: str | None = option(
        None,
        "Order in which pipeline stages run micro-batches; none: 1f1b.",
        source="MindSpore pipeline_scheduler (dualpipev: zero_bubble_v), MindSpeed --schedules-method",
        choices=("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "dualpipev"),
    )
    dw_detach: bool | None = option(
        None,
        "Compute weight gradients of the last micro-batches after the gradients of all inputs (dualpipev).",
        source="MindSpeed --dualpipev-dw-detach",
    )
    distributed_optimizer: bool | None = option(
        None,
        "Shard optimizer states over data-parallel ranks (ZeRO 1).",
        source=f"{DDP_CONFIG}.use_distributed_optimizer",
    )
    zero_stage: int | None = option(
        None, "ZeRO stage beyond the distributed optimizer (2, 3: sharded gradients, weights).", minimum=0
    )
    optimizer_shard_size: int | None = option(
        None,
        "Devices over which optimizer states are sharded; none: all that hold the same weights.",
        unit="devices",
        source="MindSpore optimizer_weight_shard_size",
        minimum=1,
    )
    optimizer_instances: int | None = option(
        None,
        "Groups of data-parallel ranks that each hold the whole optimizer.",
        source=f"{DDP_CONFIG}.num_distributed_optimizer_instances",
        minimum=1,
    )
    dp_outermost: bool | None = option(
        None,
        "Ranks are numbered tensor, pipeline, then data parallel.",
        source=f"{ARGUMENTS} --use-tp-pp-dp-mapping",
    )
    gloo: bool | None = option(
        None,
        "Create gloo groups for communication on the CPU too.",
        source=f"{ARGUMENTS} --disable-gloo-process-groups",
    )
    communication: Communication = Communication()
    fsdp: Fsdp = Fsdp()
    tp_2d_x: int | None = option(None, "2-D tensor parallelism: first dimension.", source=_ASCEND, minimum=1)
    tp_2d_y: int | None = option(None, "2-D tensor parallelism: second dimension.", source=_ASCEND, minimum=1)
