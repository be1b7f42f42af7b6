"""How the job is spread over devices and memory: parallelism, recompute, offload, experts, kernels."""

from dataclasses import dataclass

from launcher.job.layout import Communication, CudaGraph, Fsdp
from launcher.job.option import option

_CORE = "Megatron-core ModelParallelConfig"
_TRANSFORMER = "Megatron-core TransformerConfig"
_MEGATRON = "Megatron-LM arguments.py"
_DDP = "Megatron-core DistributedDataParallelConfig"
_OPTIMIZER = "Megatron-core OptimizerConfig"
_ASCEND = "Ascend MindSpeed features"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """The parallel strategy. World size = dp x tp x pp x cp; experts are spread over ep x etp of it."""

    tp: int = option(
        1, "Tensor parallel size.", unit="devices", source=f"{_CORE}.tensor_model_parallel_size", minimum=1
    )
    pp: int = option(
        1, "Pipeline parallel size.", unit="stages", source=f"{_CORE}.pipeline_model_parallel_size", minimum=1
    )
    vpp: int | None = option(
        None,
        "Virtual pipeline size: model chunks per stage (interleaved schedule).",
        unit="chunks",
        source=f"{_CORE}.virtual_pipeline_model_parallel_size",
        minimum=1,
    )
    cp: int = option(1, "Context parallel size.", unit="devices", source=f"{_CORE}.context_parallel_size", minimum=1)
    ep: int = option(
        1, "Expert parallel size.", unit="devices", source=f"{_CORE}.expert_model_parallel_size", minimum=1
    )
    etp: int | None = option(
        None,
        "Tensor parallel size inside experts; none: the backend's choice.",
        unit="devices",
        source=f"{_CORE}.expert_tensor_parallel_size",
        minimum=1,
    )
    dp: int | None = option(
        None, "Data parallel size; derived from the world size, given only to be checked.", unit="devices", minimum=1
    )
    split_vocabulary: bool | None = option(
        None, "Split the embedding over tp; none: yes.", source="MindFormers vocab_emb_dp"
    )
    sequence_parallel: bool | None = option(
        None, "Split activations outside tensor-parallel layers over tp.", source=f"{_CORE}.sequence_parallel"
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
        source=f"{_TRANSFORMER}.num_layers_in_first_pipeline_stage",
        minimum=0,
    )
    last_stage_layers: int | None = option(
        None,
        "Layers of the last pipeline stage; none: even.",
        unit="layers",
        source=f"{_TRANSFORMER}.num_layers_in_last_pipeline_stage",
        minimum=0,
    )
    layout: str | None = option(
        None,
        "Explicit layers per stage and chunk, such as Et*3|(tt|)*29,m|L.",
        source=f"{_TRANSFORMER}.pipeline_model_parallel_layout",
    )
    noop_layers: tuple[int, ...] = option(
        (), "Empty layers that fill the last stages, counted from 0 within all layers.", unit="layer", source=_ASCEND
    )
    account_for_embedding: bool | None = option(
        None,
        "Count the embedding as a layer when splitting stages.",
        source=f"{_TRANSFORMER}.account_for_embedding_in_pipeline_split",
    )
    account_for_loss: bool | None = option(
        None,
        "Count the output layer as a layer when splitting stages.",
        source=f"{_TRANSFORMER}.account_for_loss_in_pipeline_split",
    )
    microbatch_group_size: int | None = option(
        None,
        "Micro-batches that one chunk runs in a row (interleaved schedule).",
        source=f"{_CORE}.microbatch_group_size_per_vp_stage",
        minimum=1,
    )
    schedule: str | None = option(
        None,
        "Order in which pipeline stages run micro-batches; none: 1f1b.",
        source="MindSpore pipeline_scheduler",
        choices=("1f1b", "gpipe", "seqpipe", "seqvpp", "seqsmartvpp", "zero_bubble_v"),
    )
    distributed_optimizer: bool | None = option(
        None, "Shard optimizer states over data-parallel ranks (ZeRO 1).", source=f"{_DDP}.use_distributed_optimizer"
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
        source=f"{_DDP}.num_distributed_optimizer_instances",
        minimum=1,
    )
    dp_outermost: bool | None = option(
        None,
        "Ranks are numbered tensor, pipeline, then data parallel.",
        source=f"{_MEGATRON} --use-tp-pp-dp-mapping",
    )
    gloo: bool | None = option(
        None,
        "Groups for communication on the CPU besides those of the devices.",
        source=f"{_MEGATRON} --disable-gloo-process-groups",
    )
    communication: Communication = Communication()
    fsdp: Fsdp = Fsdp()
    tp_2d_x: int | None = option(None, "2-D tensor parallelism: first dimension.", source=_ASCEND, minimum=1)
    tp_2d_y: int | None = option(None, "2-D tensor parallelism: second dimension.", source=_ASCEND, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Activations computed again in the backward pass instead of being kept."""

    granularity: str | None = option(
        None,
        "What is recomputed: whole layers or chosen modules.",
        source=f"{_TRANSFORMER}.recompute_granularity",
        choices=("full", "selective"),
    )
    method: str | None = option(
        None,
        "full: in uniform groups of num_layers, or the first num_layers of each stage (block).",
        source=f"{_TRANSFORMER}.recompute_method",
        choices=("uniform", "block"),
    )
    num_layers: int | None = option(
        None,
        "full: layers per group (uniform) or per stage (block).",
        unit="layers",
        source=f"{_TRANSFORMER}.recompute_num_layers",
        minimum=1,
    )
    layers_per_chunk: tuple[int, ...] = option(
        (),
        "full, block: layers of each chunk, in the model's order, at most num_layers; none: num_layers in all.",
        unit="layers",
        source="MindFormers recompute_config.recompute",
    )
    selective_layers_per_chunk: tuple[int, ...] = option(
        (),
        "modules, activation, norm: layers of each chunk, after those recomputed in full; none: all that are left.",
        unit="layers",
        source="MindFormers recompute_config.select_recompute",
    )
    modules: tuple[str, ...] = option(
        (),
        "selective: what to recompute.",
        source=f"{_TRANSFORMER}.recompute_modules",
        choices=("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"),
    )
    activation: bool | None = option(
        None, "Recompute the activation function.", source=f"{_ASCEND} --recompute-activation-function"
    )
    activation_num_layers: int | None = option(
        None, "Layers whose activation function is recomputed.", unit="layers", source=_ASCEND, minimum=0
    )
    norm: bool | None = option(None, "Recompute normalisations.", source=f"{_ASCEND} --recompute-norm")
    norm_num_layers: int | None = option(
        None, "Layers whose normalisations are recomputed.", unit="layers", source=_ASCEND, minimum=0
    )
    per_pp_rank: bool | None = option(
        None, "num_layers counts per stage, not per chunk.", source=f"{_ASCEND} --enable-recompute-layers-per-pp-rank"
    )
    in_bubble: bool | None = option(None, "Recompute inside pipeline bubbles.", source=_ASCEND)
    in_advance: bool | None = option(None, "Recompute before the gradient arrives.", source=_ASCEND)
    distribute_saved_activations: bool | None = option(
        None, "Spread kept activations over tp.", source=f"{_TRANSFORMER}.distribute_saved_activations"
    )
    communication: bool | None = option(
        None, "Repeat tensor-parallel communication while recomputing.", source="MindFormers mp_comm_recompute"
    )
    optimizer_communication: bool | None = option(
        None,
        "Repeat the gathering of sharded weights while recomputing.",
        source="MindFormers parallel_optimizer_comm_recompute",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """State moved to host memory while it is not needed."""

    attention: bool | None = option(None, "Swap attention activations.", source=f"{_ASCEND} --swap-attention")
    modules: tuple[str, ...] = option((), "Modules whose activations are swapped.", source=f"{_ASCEND} --swap-modules")
    optimizer: bool | None = option(
        None,
        "Keep optimizer states on the host.",
        source="Megatron --optimizer-cpu-offload; MindSpeed --swap-optimizer",
    )
    optimizer_fraction: float | None = option(
        None,
        "Share of optimizer states on the host.",
        source=f"{_OPTIMIZER}.optimizer_offload_fraction",
        minimum=0,
    )
    optimizer_times: int | None = option(
        None, "Pieces in which the optimizer is swapped.", source=f"{_ASCEND} --swap-optimizer-times", minimum=1
    )
    torch_optimizer: bool | None = option(
        None,
        "torch's own optimizer steps on the host, instead of one made for it.",
        source=f"{_OPTIMIZER}.use_torch_optimizer_for_cpu_offload",
    )
    overlap_cpu_optimizer_d2h_h2d: bool | None = option(
        None,
        "Copy gradients and weights while the host steps.",
        source=f"{_OPTIMIZER}.overlap_cpu_optimizer_d2h_h2d",
    )
    pin_cpu_grads: bool | None = option(
        None, "Page-lock the host's gradients, for faster copies.", source=f"{_OPTIMIZER}.pin_cpu_grads"
    )
    pin_cpu_params: bool | None = option(
        None, "Page-lock the host's weights, for faster copies.", source=f"{_OPTIMIZER}.pin_cpu_params"
    )
    activation_layers: int | None = option(
        None,
        "Layers whose activations go to the host.",
        unit="layers",
        source=f"{_CORE}.cpu_offloading_num_layers",
        minimum=0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """Training of experts: routing, balance, dispatch."""

    apply_probs_on_input: bool | None = option(
        None,
        "Router weights scale what experts receive instead of what they return (Llama 4).",
        source=f"{_TRANSFORMER}.moe_apply_probs_on_input",
        affects_training=True,
    )
    use_upcycling: bool | None = option(
        None,
        "Make experts of a dense checkpoint, once.",
        source=f"{_MEGATRON} --moe-use-upcycling",
        affects_training=True,
    )
    token_dispatcher_type: str = option(
        "alltoall",
        "How tokens reach their experts.",
        source=f"{_TRANSFORMER}.moe_token_dispatcher_type",
        choices=("alltoall", "allgather", "flex", "alltoall_seq"),
        affects_training=True,
    )
    grouped_gemm: bool | None = option(
        None, "One kernel for all local experts.", source=f"{_TRANSFORMER}.moe_grouped_gemm"
    )
    use_legacy_grouped_gemm: bool | None = option(
        None,
        "Megatron's older kernel for all local experts instead of Transformer Engine's.",
        source=f"{_TRANSFORMER}.moe_use_legacy_grouped_gemm",
    )
    permute_fusion: bool | None = option(None, "Fused token permutation.", source=f"{_TRANSFORMER}.moe_permute_fusion")
    shared_expert_overlap: bool | None = option(
        None, "Overlap the shared expert with dispatch.", source=f"{_TRANSFORMER}.moe_shared_expert_overlap"
    )
    dispatch_overlap: bool | None = option(
        None, "Overlap dispatch communication with computation.", source=f"{_ASCEND} --moe-permutation-async-comm"
    )
    batch_overlap: bool | None = option(
        None,
        "Overlap one micro-batch's dispatch with another's computation.",
        source="Megatron overlap_moe_expert_parallel_comm; MindSpeed --moe-fb-overlap",
    )
    load_balancing_type: str = option(
        "aux_loss",
        "How the load of experts is balanced.",
        source=f"{_TRANSFORMER}.moe_router_load_balancing_type",
        choices=("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"),
        affects_training=True,
    )
    aux_loss_coeff: float = option(
        0.0,
        "Weight of the balancing loss.",
        source=f"{_TRANSFORMER}.moe_aux_loss_coeff",
        minimum=0,
        affects_training=True,
    )
    z_loss_coeff: float | None = option(
        None,
        "Weight of the router's z-loss.",
        source=f"{_TRANSFORMER}.moe_z_loss_coeff",
        minimum=0,
        affects_training=True,
    )
    bias_update_rate: float | None = option(
        None,
        "Step of the learned expert bias.",
        source=f"{_TRANSFORMER}.moe_router_bias_update_rate",
        minimum=0,
        affects_training=True,
    )
    router_dtype: str = option(
        "fp32",
        "Precision of routing.",
        source=f"{_TRANSFORMER}.moe_router_dtype",
        choices=("fp32", "fp64", "model"),
        affects_training=True,
    )
    capacity_factor: float | None = option(
        None,
        "Tokens an expert takes, relative to an even share; none: no token is dropped.",
        source=f"{_TRANSFORMER}.moe_expert_capacity_factor",
        minimum=0,
        affects_training=True,
    )
    pad_to_capacity: bool | None = option(
        None,
        "Pad each expert's input to its capacity.",
        source=f"{_TRANSFORMER}.moe_pad_expert_input_to_capacity",
    )
    token_drop_policy: str | None = option(
        None,
        "Which tokens beyond capacity are dropped.",
        source=f"{_TRANSFORMER}.moe_token_drop_policy",
        choices=("probs", "position"),
        affects_training=True,
    )
    input_jitter_eps: float | None = option(
        None, "Noise on router inputs.", source=f"{_TRANSFORMER}.moe_input_jitter_eps", minimum=0, affects_training=True
    )
    deepep: bool | None = option(None, "DeepEP kernels for dispatch.", source=f"{_TRANSFORMER}.moe_enable_deepep")
    router_fusion: bool | None = option(None, "Fused choice of experts.", source=f"{_TRANSFORMER}.moe_router_fusion")
    force_load_balancing: bool | None = option(
        None,
        "Spread tokens evenly, whatever the router says: to measure speed, not to train.",
        source=f"{_TRANSFORMER}.moe_router_force_load_balancing",
        affects_training=True,
    )
    tp_extend_ep: bool | None = option(
        None,
        "Use the tensor-parallel ranks as expert-parallel ranks inside experts.",
        source=f"{_ASCEND} --moe-tp-extend-ep",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Fused kernels and implementations; they change speed, not what is learned."""

    attention_backend: str | None = option(
        None,
        "Implementation of attention.",
        source=f"{_TRANSFORMER}.attention_backend",
        choices=("flash", "fused", "unfused", "local", "auto"),
    )
    attention_mask: str | None = option(
        None,
        "Causal mask: inside the kernel, by the loader, or from the tokens, which hides padding; none: plain.",
        source="MindFormers use_attn_mask_compression",
        choices=("compressed", "full", "tokens"),
        affects_training=True,
    )
    transformer_impl: str | None = option(
        None, "Layer library.", source=f"{_MEGATRON} --transformer-impl", choices=("transformer_engine", "local")
    )
    masked_softmax_fusion: bool | None = option(
        None, "Fused masked softmax.", source=f"{_TRANSFORMER}.masked_softmax_fusion"
    )
    bias_activation_fusion: bool | None = option(
        None, "Fused bias and activation (SwiGLU).", source=f"{_TRANSFORMER}.bias_activation_fusion"
    )
    bias_dropout_fusion: bool | None = option(
        None, "Fused bias and dropout.", source=f"{_TRANSFORMER}.bias_dropout_fusion"
    )
    rope_fusion: bool | None = option(None, "Fused rotary embedding.", source=f"{_TRANSFORMER}.apply_rope_fusion")
    rmsnorm_fusion: bool | None = option(None, "Fused RMSNorm.", source=f"{_ASCEND} --use-fused-rmsnorm")
    gradient_accumulation_fusion: bool | None = option(
        None, "Accumulate weight gradients inside the GEMM.", source=f"{_CORE}.gradient_accumulation_fusion"
    )
    cross_entropy_fusion: bool | None = option(
        None, "Fused cross entropy.", source=f"{_CORE}.cross_entropy_loss_fusion"
    )
    cross_entropy_fusion_impl: str | None = option(
        None,
        "Implementation of the fused cross entropy.",
        source=f"{_CORE}.cross_entropy_fusion_impl",
        choices=("native", "te"),
    )
    qkv_concat: bool | None = option(
        None,
        "One matrix for query, key and value (MLA: for both down projections).",
        source="MindFormers qkv_concat, mla_qkv_concat",
    )
    persist_layer_norm: bool | None = option(
        None, "Apex's persistent kernel of LayerNorm.", source=f"{_TRANSFORMER}.persist_layer_norm"
    )
    te_rng_tracker: bool | None = option(
        None, "Transformer Engine's random states, which CUDA graphs need.", source=f"{_MEGATRON} --te-rng-tracker"
    )
    inference_rng_tracker: bool | None = option(
        None,
        "No random states of their own for parallel regions: ranks draw the same weights and dropout for their parts.",
        source=f"{_TRANSFORMER}.inference_rng_tracker",
        affects_training=True,
    )
    use_fused_mhc: bool | None = option(
        None, "Hyper-connections in fused kernels.", source=f"{_TRANSFORMER}.use_fused_mhc"
    )
    clone_scatter_output_in_embedding: bool | None = option(
        None,
        "Copy a rank's share of the embedding's output, so that the whole can be freed.",
        source=f"{_TRANSFORMER}.clone_scatter_output_in_embedding",
    )
    cuda_graph: CudaGraph = CudaGraph()
    empty_cache_level: int | None = option(
        None,
        "Give unused device memory back: 1 each step, 2 more often.",
        source=f"{_MEGATRON} --empty-unused-memory-level",
        minimum=0,
    )
    deterministic: bool | None = option(
        None, "Only kernels that give the same bits each time.", source=f"{_TRANSFORMER}.deterministic_mode"
    )
    manual_gc_interval: int | None = option(
        None,
        "Collect Python garbage every n steps instead of at random.",
        unit="iterations",
        source=f"{_MEGATRON} --manual-gc-interval",
        minimum=0,
    )
    sparse_mode: int | None = option(
        None,
        "Scores that CANN's fused attention computes: 0 the mask's, 2 those of a compressed causal mask, 4 a band.",
        source="CANN npu_fusion_attention sparse_mode",
        minimum=0,
        affects_training=True,
    )
    manual_gc_eval: bool | None = option(
        None, "Collect garbage around evaluations too.", source=f"{_MEGATRON} --no-manual-gc-eval"
    )
