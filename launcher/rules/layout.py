"""Arithmetic of the parallel layout: every size must divide what it splits."""

from collections.abc import Iterator
from dataclasses import replace

from launcher.job import Job
from launcher.rules.registry import RuleContext, Violation, rule

_STATE = "megatron-core 0.16.1 parallel_state.py"
_CONFIG = "megatron-core 0.16.1 transformer_config.py"


def _indivisible(value: int, size: int, what: str, by: str, fields: tuple[str, ...]) -> Iterator[Violation]:
    if value % size:
        yield Violation(message=f"{what} {value} is not divisible by {by} = {size}", fields=fields)


@rule(
    "PAR-WORLD",
    source=f"{_STATE}:741",
    reads="job.cluster.world_size job.parallel.tp job.parallel.pp job.parallel.cp",
    covers=("parallel.dp",),
)
def world_size_divides(context: RuleContext) -> Iterator[Violation]:
    """The world size must be a multiple of tp x pp x cp; the quotient is the data parallel size."""
    job = context.job
    world, size = job.cluster.world_size, job.parallel.tp * job.parallel.pp * job.parallel.cp
    fields = ("parallel.tp", "parallel.pp", "parallel.cp", "cluster.nodes", "cluster.devices_per_node")
    by = f"tp {job.parallel.tp} × pp {job.parallel.pp} × cp {job.parallel.cp}"
    yield from _indivisible(world, size, "world size", by, fields)


@rule(
    "PAR-DP",
    source="launch: dp is derived",
    reads="job.cluster.world_size job.parallel.tp job.parallel.pp job.parallel.cp job.parallel.dp",
)
def data_parallel_size_agrees(context: RuleContext) -> Iterator[Violation]:
    """parallel.dp follows from the world size; a given value must agree with it."""
    job = context.job
    derived, rest = divmod(job.cluster.world_size, job.parallel.tp * job.parallel.pp * job.parallel.cp)
    if job.parallel.dp is not None and not rest and job.parallel.dp != derived:
        yield Violation(
            message=f"parallel.dp={job.parallel.dp}, but {job.cluster.world_size} devices with tp {job.parallel.tp}, "
            f"pp {job.parallel.pp}, cp {job.parallel.cp} make dp {derived}",
            fields=("parallel.dp", "cluster.nodes", "cluster.devices_per_node"),
        )


def _expert_tensor(context: RuleContext) -> int:
    """Return the tensor-parallel size of experts: as given, else the backend's default, else that of the rest."""
    if context.job.parallel.etp is not None:
        return context.job.parallel.etp
    flag = next((flag for flag, path in context.fields_by_flag.items() if path == "parallel.etp"), None)
    default = context.flag(flag) if flag is not None else None
    return default if isinstance(default, int) and default > 0 else context.job.parallel.tp


@rule(
    "PAR-EXPERT-WORLD",
    source=f"{_STATE}:793",
    reads="job.model.is_moe job.parallel.ep job.parallel.etp job.parallel.tp job.parallel.pp job.cluster.world_size ",
)
def expert_world_divides(context: RuleContext) -> Iterator[Violation]:
    """Expert ranks are etp x ep x pp, whatever the model; the world size must be a multiple of them."""
    job = context.job
    if not job.model.is_moe and job.parallel.ep == 1 and job.parallel.etp is None:
        return
    etp = _expert_tensor(context)
    size = etp * job.parallel.ep * job.parallel.pp
    by = f"etp {etp} × ep {job.parallel.ep} × pp {job.parallel.pp}"
    fields = ("parallel.ep", "parallel.etp", "parallel.pp", "cluster.nodes", "cluster.devices_per_node")
    yield from _indivisible(job.cluster.world_size, size, "world size", by, fields)


@rule("PAR-TP-HEADS", source=f"{_CONFIG}:924", reads="job.model.num_attention_heads job.parallel.tp")
def heads_divide_by_tp(context: RuleContext) -> Iterator[Violation]:
    """Each tensor-parallel rank holds whole attention heads."""
    heads, tp = context.job.model.num_attention_heads, context.job.parallel.tp
    if heads is not None:
        yield from _indivisible(heads, tp, "num_attention_heads", "tp", ("parallel.tp", "model.num_attention_heads"))


@rule(
    "PAR-TP-KV-HEADS", source=f"{_CONFIG}:939", reads="job.model.num_key_value_heads job.parallel.tp job.model.is_mla"
)
def query_groups_fit_tp(context: RuleContext) -> Iterator[Violation]:
    """Query groups must be a multiple or a divisor of tp."""
    groups, tp = context.job.model.num_key_value_heads, context.job.parallel.tp
    if groups is not None and not context.job.model.is_mla and groups % tp and tp % groups:
        yield Violation(
            message=f"num_key_value_heads {groups} is neither a multiple nor a divisor of tp {tp}",
            fields=("parallel.tp", "model.num_key_value_heads"),
        )


@rule(
    "PAR-TP-FFN",
    source="megatron-core 0.16.1 tensor_parallel/utils.py divide",
    reads="job.parallel.etp job.parallel.tp job.model.intermediate_size job.model.is_moe "
    "job.model.first_k_dense_replace job.model.moe_layer_freq job.model.mlp_only_layers job.model.num_hidden_layers "
    "job.model.moe_intermediate_size ",
)
def feed_forward_divides_by_tp(context: RuleContext) -> Iterator[Violation]:
    """Each tensor-parallel rank holds an equal share of the feed-forward width."""
    job = context.job
    etp = _expert_tensor(context)
    if job.model.intermediate_size is not None and (not job.model.is_moe or job.model.mixes_dense_layers):
        fields = ("parallel.tp", "model.intermediate_size")
        yield from _indivisible(job.model.intermediate_size, job.parallel.tp, "intermediate_size", "tp", fields)
    if job.model.is_moe and job.model.moe_intermediate_size is not None:
        fields = ("parallel.etp" if job.parallel.etp else "parallel.tp", "model.moe_intermediate_size")
        yield from _indivisible(job.model.moe_intermediate_size, etp, "moe_intermediate_size", "etp", fields)


@rule(
    "PAR-SP-TP",
    source="Megatron-LM arguments.py: sequence_parallel is switched off at tp 1",
    reads="job.parallel.sequence_parallel job.parallel.tp",
    severity="change",
)
def sequence_parallel_needs_tp(context: RuleContext) -> Iterator[Violation]:
    """Sequence parallelism splits over tensor-parallel ranks; with one rank it is switched off."""
    if context.job.parallel.sequence_parallel and context.job.parallel.tp == 1:
        yield Violation(
            message="sequence_parallel true → false: it needs tp above 1",
            fields=("parallel.sequence_parallel",),
        )


@rule("PAR-VPP-PP", source=f"{_STATE}:747", reads="job.parallel.vpp job.parallel.pp")
def virtual_stages_need_stages(context: RuleContext) -> Iterator[Violation]:
    """The interleaved schedule needs at least two pipeline stages."""
    parallel = context.job.parallel
    if parallel.vpp is not None and parallel.vpp > 1 and parallel.pp == 1:
        yield Violation(message=f"vpp {parallel.vpp} needs pp of at least 2", fields=("parallel.vpp", "parallel.pp"))


@rule(
    "PAR-UNEVEN-PP",
    source=f"{_CONFIG}:1294",
    reads="job.parallel.pp job.model.num_hidden_layers job.parallel.first_stage_layers job.parallel.last_stage_layers",
)
def uneven_stages_need_stages(context: RuleContext) -> Iterator[Violation]:
    """First and last stage can only differ from the others where there are several stages."""
    parallel = context.job.parallel
    for name in ("first_stage_layers", "last_stage_layers"):
        size = getattr(parallel, name)
        if size is not None and parallel.pp == 1 and size != context.job.model.num_hidden_layers:
            yield Violation(
                message=f"parallel.{name} needs pp of at least 2", fields=(f"parallel.{name}", "parallel.pp")
            )


@rule(
    "PAR-PP-LAYERS",
    source="megatron-core 0.16.1 transformer_block.py:155, transformer_config.py:1294-1480",
    reads="job.imported.backend job.model.num_hidden_layers job.parallel.layout job.parallel.pp job.parallel.vpp "
    "job.parallel.first_stage_layers job.parallel.last_stage_layers job.parallel.account_for_embedding "
    "job.parallel.account_for_loss job.parallel.noop_layers job.model.num_nextn_predict_layers",
    covers=("parallel.pp", "parallel.vpp"),
)
def layers_divide_by_stages(context: RuleContext) -> Iterator[Violation]:
    """Layers outside uneven first and last stages are spread evenly over stages and chunks."""
    job = context.job
    layers, parallel = job.model.num_hidden_layers, job.parallel
    # An existing file may split layers in the backend's own way, which the backend's rules check.
    if layers is None or parallel.layout is not None or parallel.pp == 1 or _is_existing_file(context):
        return
    vpp = parallel.vpp or 1
    fixed = [size for size in (parallel.first_stage_layers, parallel.last_stage_layers) if size is not None]
    rest, stages = layers + _extra_layers(job) - sum(fixed), parallel.pp - len(fixed)
    fields = ("parallel.pp", "parallel.vpp", "parallel.first_stage_layers", "parallel.last_stage_layers")
    if rest < 0 or (rest and not stages):
        yield Violation(
            message=f"first and last stage have {sum(fixed)} layers, but the model has {layers}", fields=fields
        )
    elif stages:
        by = f"{stages} stages × {vpp} chunks" if vpp > 1 else f"{stages} stages"
        for violation in _indivisible(rest, stages * vpp, "layers", by, fields):
            yield replace(violation, works=_explicit(job, vpp) if vpp > 1 and layers % vpp and not fixed else ())
    for size in fixed:
        if size % vpp:
            yield Violation(message=f"an uneven stage of {size} layers is not divisible by vpp {vpp}", fields=fields)


def _explicit(job: Job, vpp: int) -> tuple[str, ...]:
    """Return the layout with chunks as even as they can be: whole stages of `vpp` chunks have no place for the rest."""
    chunks, layers = job.parallel.pp * vpp, job.model.num_hidden_layers or 0
    if layers < chunks or _extra_layers(job):
        return ()
    least, larger = divmod(layers, chunks)
    # The first and the last chunk have the embedding and the loss beside their layers.
    first = (chunks - larger + 1) // 2
    sizes = [least + (first <= index < first + larger) for index in range(chunks)]
    text = "|".join(f"t*{size}" for size in sizes)
    return (f"parallel.layout=E{text}{'m' * (job.model.num_nextn_predict_layers or 0)}L",)


def _extra_layers(job: Job) -> int:
    accounted = bool(job.parallel.account_for_embedding) + bool(job.parallel.account_for_loss)
    return accounted + len(job.parallel.noop_layers)


@rule("PAR-CP-SEQ", source="Megatron-LM core_v0.12.1 arguments.py:684", reads="job.batch.seq_length job.parallel.cp")
def sequence_divides_by_context(context: RuleContext) -> Iterator[Violation]:
    """Causal load balance cuts a sequence into 2 x cp pieces."""
    job = context.job
    if job.batch.seq_length is not None and job.parallel.cp > 1:
        fields = ("batch.seq_length", "parallel.cp")
        yield from _indivisible(
            job.batch.seq_length, 2 * job.parallel.cp, "seq_length", f"2 × cp {job.parallel.cp}", fields
        )


@rule(
    "PAR-SP-SEQ",
    source="megatron-core 0.16.1 tensor_parallel/mappings.py _split_along_first_dim",
    reads="job.batch.seq_length job.parallel.sequence_parallel job.parallel.tp job.parallel.cp",
)
def sequence_divides_by_tp(context: RuleContext) -> Iterator[Violation]:
    """Sequence parallelism gives each tensor-parallel rank an equal piece of the (context-parallel) sequence."""
    job = context.job
    if job.batch.seq_length is None or not job.parallel.sequence_parallel or job.parallel.tp == 1:
        return
    size = job.parallel.tp * job.parallel.cp
    fields = ("batch.seq_length", "parallel.tp", "parallel.cp")
    yield from _indivisible(
        job.batch.seq_length, size, "seq_length", f"tp {job.parallel.tp} × cp {job.parallel.cp}", fields
    )


def _is_existing_file(context: RuleContext) -> bool:
    return context.existing and context.catalogue is not None and context.catalogue.style == "yaml"


@rule(
    "MOE-EP-DENSE",
    source="Megatron-LM core_v0.12.1 arguments.py:851",
    reads="job.imported.backend job.model.path job.model.hub_id job.checkpoint.load job.model.hidden_size "
    "job.model.model_type "
    "job.parallel.ep job.model.is_moe",
)
def expert_parallel_needs_experts(context: RuleContext) -> Iterator[Violation]:
    """Expert parallelism splits experts; a dense model has none."""
    model = context.job.model
    named = model.path or model.hub_id or context.job.checkpoint.load
    # An existing file may name a class that only the backend defines.
    unknown = (model.hidden_size is None and named) or (_is_existing_file(context) and model.model_type is None)
    if context.job.parallel.ep > 1 and not model.is_moe and not unknown:
        yield Violation(
            message=f"ep {context.job.parallel.ep} needs experts, but the model is dense", fields=("parallel.ep",)
        )


@rule(
    "MOE-EP-EXPERTS", source="megatron-core 0.16.1 moe/moe_layer.py:101", reads="job.model.num_experts job.parallel.ep"
)
def experts_divide_by_ep(context: RuleContext) -> Iterator[Violation]:
    """Each expert-parallel rank holds the same number of experts."""
    experts, ep = context.job.model.num_experts, context.job.parallel.ep
    if experts is not None:
        yield from _indivisible(experts, ep, "num_experts", "ep", ("parallel.ep", "model.num_experts"))


@rule(
    "MOE-TP-SP",
    source="megatron-core 0.16.1 moe/moe_layer.py:379, in the first forward pass",
    reads="job.model.is_moe job.parallel.tp job.parallel.sequence_parallel",
)
def experts_with_tp_need_sequence_parallel(context: RuleContext) -> Iterator[Violation]:
    """With tensor parallelism, MoE layers need sequence parallelism; backends only report this in the first step."""
    job = context.job
    if job.model.is_moe and job.parallel.tp > 1 and not job.parallel.sequence_parallel:
        yield Violation(
            message=f"an MoE model with tp {job.parallel.tp} needs parallel.sequence_parallel=true",
            fields=("parallel.sequence_parallel", "parallel.tp"),
        )
