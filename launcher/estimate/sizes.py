"""Resolves a job to the plain numbers that the estimate needs, and the assumptions made for them."""

from dataclasses import fields
from functools import lru_cache
from operator import attrgetter

from launcher.estimate.kinds import Kind, Variants, kind_at, read_variants
from launcher.estimate.profile import profile_of
from launcher.estimate.stored import (
    BYTES,
    bucket_copy,
    capacity_of,
    captured_scope,
    copy_bytes,
    exposed_tp,
    fsdp_of,
    gradient_groups,
    instances,
    offloaded_modules,
    optimizer_bytes,
    received_tokens,
    resident_optimizer,
    step_bytes,
    stored_bytes,
)
from launcher.job import Job
from launcher.job.number_formats import copies_of, format_of
from launcher.job.quantisation import Recipe
from launcher.job.recompute import SELECTIVE_MODULES
from launcher.pipeline_schedule.layout import parse_layout
from launcher.pipeline_schedule.order import PLAIN as PLAIN_SCHEDULE
from launcher.pipeline_schedule.order import SIMULATED
from launcher.records import record

_TOKEN_MULTIPLE = 128  # Megatron-LM --make-vocab-size-divisible-by


@record(eq=False)
class Sizes:
    """A job's architecture, layout and switches, every default filled in.

    Instances compare by identity, because the layer caches look them up often.
    """

    # -- architecture
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    vocab_unpadded: int
    positions: int
    gated: bool
    layer_norm: bool
    qk_norm: bool
    wide_qk_norm: bool
    output_norms: bool
    qkv_bias: bool
    linear_bias: bool
    output_bias: bool
    clamped: bool
    tied: bool
    learned_positions: bool
    dropout: bool
    window: int | None
    mla: bool
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int
    experts: int
    topk: int
    moe_ffn: int
    shared_ffn: int
    shared_gate: bool
    dense_first: int
    moe_every: int
    dense_at: tuple[int, ...]
    mtp: int
    variants: Variants
    # -- layout
    world: int
    node: int
    tp: int
    pp: int
    vpp: int
    schedule: str
    late_weights: bool
    cp: int
    ep: int
    etp: int
    dp: int
    edp: int
    sp: bool
    cp_algorithm: str
    ulysses: int
    microbatch_group: int
    dp_outermost: bool
    noop: int
    # -- batch
    mbs: int
    micro_batches: int
    seq: int
    # -- numbers
    dtype: int
    gemm_bytes: float
    fp8_weights: bool
    quantisation: Recipe | None
    quantised_copies: int
    cudnn_norm: bool
    stored_bytes: int
    copy_bytes: int
    grad_bytes: int
    grad_groups: int
    bucket_copy: int
    zero: int
    zero_weights: bool
    instances: int
    fsdp: str
    fsdp_unit: int
    master_bytes: int
    state_bytes: int
    step_bytes: int
    optimizer_fraction: float
    # -- memory switches
    recompute: str
    recompute_modules: tuple[str, ...]
    recompute_layers: int
    per_stage: bool
    saved_over_tp: bool
    repeats_unread: bool
    copied_gradients: bool
    offload_modules: tuple[str, ...]
    offload_smallest: float
    offload_layers: int
    # -- kernels
    npu: bool
    flash: bool
    fused_activation: bool
    fused_ce: bool
    te_ce: bool
    placeholders: bool
    grouped_workspaces: int
    separate_norm: bool
    local: bool
    composed_norm: bool
    duplicated_mla: bool
    fused_router: bool
    fused_rope: bool
    rope_bytes: float
    grouped: bool
    captured: tuple[str, ...]
    # -- experts
    dispatcher: str
    flex: bool
    groups: int
    topk_groups: int
    capacity: float | None
    padded_capacity: bool
    received: float
    probs: bool
    # -- overlap
    overlap_grad: bool
    overlap_param: bool
    exposed_tp: float
    overlap_batch: bool
    overlap_dispatch: bool
    overlap_shared: bool
    overlap_p2p: bool
    # -- options
    sparsity: float
    skip_last: bool
    lora: int

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one rank before tensor parallelism."""
        return self.mbs * self.seq // self.cp

    @property
    def local_tokens(self) -> int:
        """Tokens per rank outside tensor-parallel layers: split once more with sequence parallelism."""
        return self.tokens // self.tp if self.sp else self.tokens

    @property
    def fp8(self) -> bool:
        """Whether products are in fewer bits than activations: FP8, or NVFP4."""
        return self.quantisation is not None

    @property
    def act(self) -> int:
        """Bytes of an activation element."""
        return self.dtype

    def is_moe_layer(self, index: int) -> bool:
        """Return whether layer `index` (from 0) has experts: see `Transformer.has_experts_at`."""
        dense = index < self.dense_first or index in self.dense_at
        return self.experts > 0 and not dense and index % self.moe_every == 0

    def kind(self, index: int) -> Kind:
        """Return the kind of layer `index` (from 0)."""
        return kind_at(self.variants, index, self.is_moe_layer(index))


# Sizes that no kernel depends on: depth of the pipeline, replicas and micro-batches, optimizer, overlap beyond a layer.
_BEYOND_KERNELS = frozenset(
    {
        "world",
        "pp",
        "vpp",
        "schedule",
        "late_weights",
        "dp",
        "edp",
        "microbatch_group",
        "dp_outermost",
        "noop",
        "micro_batches",
        "stored_bytes",
        "copy_bytes",
        "grad_groups",
        "zero",
        "zero_weights",
        "instances",
        "fsdp",
        "fsdp_unit",
        "grouped_workspaces",
        "master_bytes",
        "state_bytes",
        "step_bytes",
        "copied_gradients",
        "optimizer_fraction",
        "overlap_grad",
        "overlap_param",
        "overlap_p2p",
        "vocab_unpadded",
    }
)
_RECOMPUTE = frozenset({"recompute", "recompute_modules", "recompute_layers", "per_stage", "saved_over_tp"})
_KERNEL_KEY = attrgetter(*(field.name for field in fields(Sizes) if field.name not in _BEYOND_KERNELS))
_PLAIN_KEY = attrgetter(*(field.name for field in fields(Sizes) if field.name not in _BEYOND_KERNELS | _RECOMPUTE))
_KERNELS: dict[tuple[object, ...], Sizes] = {}
_PLAIN: dict[tuple[object, ...], Sizes] = {}
_MOST_KERNELS = 2048


def kernel_sizes(sizes: Sizes) -> Sizes:
    """Return the first sizes seen with the same kernels, so that jobs of a search share layer costs."""
    return _first(sizes, _KERNEL_KEY(sizes), _KERNELS)


@lru_cache(maxsize=_MOST_KERNELS)
def plain_sizes(sizes: Sizes) -> Sizes:
    """Return the first sizes seen that differ from these at most in what is recomputed."""
    return _first(sizes, _PLAIN_KEY(sizes), _PLAIN)


def _first(sizes: Sizes, key: tuple[object, ...], seen: dict[tuple[object, ...], Sizes]) -> Sizes:
    found = seen.get(key)
    if found is None:
        if len(seen) >= _MOST_KERNELS:
            seen.clear()
        found = seen[key] = sizes
    return found


def read_sizes(job: Job) -> tuple[Sizes, list[str]]:
    """Resolve a job; assumes that the rules of `launcher.estimate.check` found no error.

    Returns:
        The sizes, and a list of assumptions for values that the job leaves to the backend.
    """
    assumed: list[str] = []
    model, parallel, batch, moe = job.model, job.parallel, job.batch, job.moe
    profile = profile_of(job)
    tp, pp, cp, ep = parallel.tp, parallel.pp, parallel.cp, parallel.ep
    world = job.cluster.world_size
    dp = max(1, world // (tp * pp * cp))
    is_moe = model.is_moe
    etp = (parallel.etp if parallel.etp is not None and not profile.experts_over_tp else tp) if is_moe else 1
    ep = ep if is_moe else 1
    if is_moe and parallel.etp is None and tp > 1:
        assumed.append(f"parallel.etp: {tp}, the same as tp (Megatron-core's default)")
    hidden, heads = model.hidden_size or 0, model.num_attention_heads or 1
    seq, mbs = batch.seq_length or 1, batch.micro_batch_size
    global_batch = batch.global_batch_size or mbs * dp
    micro_batches = max(1, global_batch // (mbs * dp))
    precision, kernels = job.precision, job.kernels
    dtype = BYTES[precision.dtype]
    stored = stored_bytes(job, dtype, profile)
    grad_fp32 = precision.grad_reduce_in_fp32
    if profile.weights_are_main:
        grad_fp32 = stored == 4  # gradients have the format of the weights
    elif parallel.fsdp.implementation == "torch":
        grad_fp32 = False  # FSDP2 without a policy: gradients have the format of the weights
    elif grad_fp32 is None:
        grad_fp32 = precision.dtype == "bf16"
        if precision.dtype == "bf16":
            assumed.append("precision.grad_reduce_in_fp32: true (Megatron-LM's default for bf16)")
    without_stage = 3 if parallel.fsdp.implementation is not None else int(bool(parallel.distributed_optimizer))
    zero = parallel.zero_stage if parallel.zero_stage is not None else without_stage
    if parallel.distributed_optimizer is None and parallel.zero_stage is None and not zero:
        assumed.append("parallel.distributed_optimizer: false (Megatron-core's default)")
    master, state = optimizer_bytes(job, dtype, profile)
    zero_weights = zero >= 3 or (profile.weights_follow_optimizer and zero >= 1 and dp * cp > 1)
    grad_bytes = 4 if grad_fp32 or dtype == 4 else dtype
    fsdp = fsdp_of(job, zero, dp * cp, profile)
    algorithm = parallel.cp_algorithm or "megatron"
    if cp > 1 and parallel.cp_algorithm is None:
        assumed.append("parallel.cp_algorithm: megatron (ring)")
    recompute, modules = _recompute(job)
    attention = kernels.attention_backend
    plain = kernels.transformer_impl == "local" and attention in (None, "auto")
    flash = attention not in ("unfused", "local") and not plain
    if attention is None:
        assumed.append(f"kernels.attention_backend: {'flash' if flash else 'unfused'}")
    fused_ce = kernels.cross_entropy_fusion
    products = format_of(precision)
    variants, missing = read_variants(model)
    assumed += missing
    padded = bool(moe.capacity_factor and (moe.pad_to_capacity or profile.pads_to_capacity))
    if is_moe and not padded and not moe.force_load_balancing and job.estimate.expert_imbalance == 1:
        assumed.append("routing: every expert gets the same number of tokens")
    sizes = Sizes(
        layers=model.num_hidden_layers or 0,
        hidden=hidden,
        ffn=model.intermediate_size or 0,
        heads=heads,
        kv_heads=model.num_key_value_heads or heads,
        head_dim=model.head_size or 1,
        vocab=padded_vocabulary(job),
        vocab_unpadded=model.vocab_size or 0,
        positions=model.max_position_embeddings or seq,
        gated=model.hidden_act in ("silu", "quick_geglu", "geglu_tanh"),
        layer_norm=model.normalization == "LayerNorm",
        qk_norm=model.qk_layernorm,
        wide_qk_norm=model.normalises_all_heads,
        output_norms=bool(model.norms_of_outputs),
        qkv_bias=model.attention_bias or model.linear_bias,
        linear_bias=model.linear_bias,
        output_bias=model.has_attention_output_bias,
        clamped=model.swiglu_limit is not None,
        tied=model.tie_word_embeddings,
        learned_positions=model.position_embedding == "learned_absolute",
        dropout=model.hidden_dropout > 0 or model.attention_dropout > 0,
        window=model.sliding_window,
        mla=model.is_mla,
        q_rank=model.q_lora_rank,
        kv_rank=model.kv_lora_rank or 0,
        nope_dim=model.qk_nope_head_dim or 0,
        rope_dim=model.qk_rope_head_dim or 0,
        v_dim=model.v_head_dim or 0,
        experts=model.num_experts or 0,
        topk=(model.num_experts_per_tok or 1) if is_moe else 0,
        moe_ffn=(model.moe_intermediate_size or model.intermediate_size or 0) if is_moe else 0,
        shared_ffn=model.shared_expert_intermediate_size or 0,
        shared_gate=model.shared_expert_gate,
        dense_first=model.first_k_dense_replace,
        moe_every=model.moe_layer_freq,
        dense_at=model.mlp_only_layers,
        mtp=model.num_nextn_predict_layers,
        variants=variants,
        world=world,
        node=job.cluster.devices_per_node,
        tp=tp,
        pp=pp,
        vpp=_chunks_per_stage(job),
        schedule=parallel.schedule if pp > 1 and parallel.schedule in SIMULATED else PLAIN_SCHEDULE,
        late_weights=profile.late_weights if parallel.dw_detach is None else parallel.dw_detach,
        cp=cp,
        ep=ep,
        etp=etp,
        dp=dp,
        edp=max(1, world // (pp * ep * etp)) if is_moe else dp * cp,
        sp=bool(parallel.sequence_parallel) and tp > 1,
        cp_algorithm=algorithm,
        ulysses=parallel.ulysses_degree or (cp if algorithm == "ulysses" else 1),
        microbatch_group=parallel.microbatch_group_size or pp,
        dp_outermost=bool(parallel.dp_outermost),
        noop=len(parallel.noop_layers),
        mbs=mbs,
        micro_batches=micro_batches,
        seq=seq,
        dtype=dtype,
        gemm_bytes=dtype if products.kept_bytes is None else products.kept_bytes,
        fp8_weights=precision.fp8_format is not None and bool(precision.fp8_param_gather),
        quantisation=products.recipe,
        quantised_copies=copies_of(job.hardware, products),
        cudnn_norm=job.backend.env.get("NVTE_NORM_FWD_USE_CUDNN", "0") not in ("", "0"),
        stored_bytes=stored,
        copy_bytes=copy_bytes(job, dtype, stored, zero_weights=zero_weights, profile=profile),
        grad_bytes=grad_bytes,
        grad_groups=gradient_groups(job, micro_batches, profile),
        bucket_copy=bucket_copy(job, dtype, grad_bytes, fsdp),
        zero=zero,
        zero_weights=zero_weights,
        instances=instances(job, dp * cp),
        fsdp=fsdp,
        fsdp_unit=parallel.fsdp.communication_unit_size or 0,
        master_bytes=master,
        state_bytes=state,
        step_bytes=step_bytes(job, grad_bytes) if profile.update_copies else 0,
        optimizer_fraction=resident_optimizer(job),
        recompute=recompute,
        recompute_modules=modules,
        recompute_layers=job.recompute.num_layers or 1,
        per_stage=bool(job.recompute.per_pp_rank),
        saved_over_tp=bool(job.recompute.distribute_saved_activations),
        repeats_unread=profile.repeats_unread,
        copied_gradients=job.hardware.reduce_scatter_copies,
        offload_modules=offloaded_modules(job),
        offload_smallest=profile.offload_smallest,
        offload_layers=job.offload.activation_layers or 0,
        npu=job.hardware.device == "npu",
        flash=flash,
        fused_activation=kernels.bias_activation_fusion is not False,
        fused_ce=fused_ce,
        te_ce=fused_ce and kernels.cross_entropy_fusion_impl == "te",
        placeholders=profile.placeholder_gradients and kernels.gradient_accumulation_fusion is not False,
        grouped_workspaces=profile.grouped_workspaces,
        separate_norm=kernels.transformer_impl == "local",
        local=kernels.transformer_impl == "local",
        composed_norm=kernels.rmsnorm_fusion is False and model.normalization != "LayerNorm",
        duplicated_mla=kernels.transformer_impl != "local",
        fused_router=bool(moe.router_fusion),
        # For MLA the kernel supports YaRN only (megatron-core 0.16.1 transformer_config.py:2068).
        fused_rope=kernels.rope_fusion is not False and not (model.is_mla and model.rope_scaling.type != "yarn"),
        rope_bytes=profile.rope_bytes,
        grouped=profile.grouped_experts if moe.grouped_gemm is None else moe.grouped_gemm,
        captured=captured_scope(job, profile),
        dispatcher=moe.token_dispatcher_type,
        flex=moe.token_dispatcher_type == "flex" or bool(moe.deepep),
        groups=(model.n_group or 1) if is_moe else 1,
        topk_groups=(model.topk_group or model.n_group or 1) if is_moe else 1,
        capacity=capacity_of(job, padded=padded),
        padded_capacity=padded,
        received=received_tokens(job, ep, padded=padded),
        probs=job.estimate.dispatch_probs,
        overlap_grad=bool(job.overlap.grad_reduce) or profile.overlaps_data_parallel,
        overlap_param=bool(job.overlap.param_gather) or profile.overlaps_data_parallel,
        exposed_tp=exposed_tp(job, profile),
        overlap_batch=bool(moe.batch_overlap),
        overlap_dispatch=bool(moe.dispatch_overlap),
        overlap_shared=bool(moe.shared_expert_overlap),
        overlap_p2p=job.overlap.p2p is not False and _chunks_per_stage(job) > 1,
        sparsity=job.estimate.attention_sparsity,
        skip_last=job.estimate.discard_last_output,
        lora=job.lora.rank or 0,
    )
    return sizes, assumed


def _chunks_per_stage(job: Job) -> int:
    """Return the virtual pipeline size, as set or as in an explicit layout."""
    parallel = job.parallel
    if parallel.pp == 1:
        return 1
    if parallel.layout:
        return max(1, len(parse_layout(parallel.layout)) // parallel.pp)
    return parallel.vpp or 1


def padded_vocabulary(job: Job) -> int:
    """Return the vocabulary as the embedding holds it: a multiple of `make_vocab_size_divisible_by` times tp."""
    if job.tokenizer.padded_vocab_size is not None:
        return job.tokenizer.padded_vocab_size
    multiple = (job.tokenizer.make_vocab_size_divisible_by or _TOKEN_MULTIPLE) * job.parallel.tp
    return -(-(job.model.vocab_size or 1) // multiple) * multiple


def _recompute(job: Job) -> tuple[str, tuple[str, ...]]:
    """Return the kind (none, full, block, selective) and the modules that are recomputed or discarded."""
    recompute = job.recompute
    # With full recomputation, modules are recomputed only where the job sets the number of layers.
    chosen = recompute.granularity == "selective" or (recompute.granularity and recompute.selective_layers_per_chunk)
    modules = set(recompute.modules) if chosen else set()
    if recompute.activation:
        modules.add("activation")
    if recompute.norm:
        modules.add("layernorm")
    if recompute.granularity == "full":
        return ("block" if recompute.method == "block" else "full"), tuple(sorted(modules))
    if recompute.granularity == "selective" and not recompute.modules:
        modules.update(SELECTIVE_MODULES)
    return ("selective" if modules else "none"), tuple(sorted(modules))
