"""Size checks specific to Megatron-LM: query groups, chunks, per-layer lists, intervals."""

import math
from collections.abc import Iterator, Sequence

from backends.megatron_lm.mapping.parallel import stages_of
from backends.megatron_lm.rules.versions import (
    BACKENDS,
    EVERY,
    ONLY_12,
    ONLY_16,
    PLAIN,
    SINCE_12,
    UNTIL_12,
    arguments,
    config,
)
from launcher.job import Value
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.sanity_checks import layout_fault

_CHUNK = "num-layers-per-virtual-pipeline-stage"
_STAGES = "pipeline-model-parallel-size"
_CHUNKS = "num-virtual-stages-per-pipeline-rank"
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe")


def _items(value: Value) -> Sequence[Value]:
    return value if isinstance(value, (list, tuple)) else () if value is None else (value,)


@rule(
    "MLM-SIZES",
    source=arguments("426, 607", "500, 739"),
    reads="context-parallel-size global-batch-size num-dataset-builder-threads "
    "num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank pipeline-model-parallel-size "
    "tensor-model-parallel-size train-samples",
    backends=BACKENDS,
    versions=SINCE_12,
)
def sizes_are_positive(facts: RuleContext) -> Iterator[Violation]:
    """Parallel sizes, chunks, global batch size, train samples and dataset builder threads are at least 1."""
    parallel = ("tensor-model-parallel-size", _STAGES, "context-parallel-size")
    sizes = (*parallel, _CHUNK, _CHUNKS, "global-batch-size", "train-samples", "num-dataset-builder-threads")
    for flag in sizes:
        if facts.given(flag) and facts.number(flag, 1) < 1:
            yield Violation(message=f"--{flag} {facts.flag(flag)} must be at least 1", flags=(flag,))


@rule(
    "MLM-TP-GROUPS",
    source=config(575),
    reads="num-query-groups tensor-model-parallel-size group-query-attention",
    backends=BACKENDS,
    versions=UNTIL_12,
)
def query_groups_are_a_multiple_of_tp(facts: RuleContext) -> Iterator[Violation]:
    """Up to core 0.12, query groups are a multiple of tp; fewer groups than ranks are supported later."""
    groups, tp = facts.number("num-query-groups", 1), facts.number("tensor-model-parallel-size", 1)
    # Groups that are neither a multiple nor a divisor are rejected on every backend (PAR-TP-KV-HEADS).
    if facts.flag("group-query-attention") and groups and groups % tp and tp % groups == 0:
        yield Violation(
            message=f"num_key_value_heads {groups} is not a multiple of tp {tp}",
            flags=("tensor-model-parallel-size", "num-query-groups"),
        )


@rule(
    "MLM-HEAD-SIZE",
    source=arguments(680, 814),
    reads="hidden-size num-attention-heads kv-channels",
    backends=BACKENDS,
    versions=EVERY,
)
def heads_divide_width(facts: RuleContext) -> Iterator[Violation]:
    """Without kv-channels, hidden_size is divisible by the number of attention heads."""
    hidden, heads = facts.number("hidden-size"), facts.number("num-attention-heads")
    if facts.flag("kv-channels") is None and heads and hidden % heads:
        yield Violation(
            message=f"hidden_size {hidden} is not divisible by num_attention_heads {heads}, and there is no head_dim",
            fields=("model.head_dim", "model.hidden_size", "model.num_attention_heads"),
            flags=("kv-channels", "hidden-size", "num-attention-heads"),
        )


def uneven_stages(facts: RuleContext) -> list[int]:
    """Return the layers of the first and last stage, where they are set."""
    flags = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
    return [facts.number(flag) for flag in flags if facts.flag(flag) is not None]


@rule(
    "MLM-UNEVEN-NO-MIDDLE",
    source=config(824),
    reads="pipeline-model-parallel-size decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers",
    backends=BACKENDS,
    versions=ONLY_12,
)
def uneven_stages_have_a_middle(facts: RuleContext) -> Iterator[Violation]:
    """Up to core 0.12, uneven first and last stages need a stage between them: without one it divides by zero."""
    ends, stages = uneven_stages(facts), facts.number(_STAGES, 1)
    # One stage and one uneven end are rejected on every backend that maps them (PAR-UNEVEN-PP).
    if ends and len(ends) == stages and (stages > 1 or facts.backend != "megatron_lm"):
        yield Violation(
            message=f"all {stages} stages have their own number of layers: one must be left open",
            flags=("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", _STAGES),
        )


@rule(
    "MLM-VPP-ONE-STAGE",
    source=arguments(434),
    reads="num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank "
    "pipeline-model-parallel-size job.parallel.vpp",
    backends=BACKENDS,
    versions=UNTIL_12,
)
def chunk_flag_needs_stages(facts: RuleContext) -> Iterator[Violation]:
    """Up to core 0.12, the chunk arguments are rejected with one pipeline stage, even for a single chunk."""
    given = facts.flag(_CHUNK) or facts.flag(_CHUNKS)
    # More than one chunk on one stage is rejected on every backend (PAR-VPP-PP).
    if given and facts.number(_STAGES, 1) == 1 and (facts.job.parallel.vpp or 1) == 1:
        yield Violation(
            message=f"--{_CHUNK if facts.flag(_CHUNK) else _CHUNKS} {given} needs pp of at least 2",
            flags=(_CHUNK, _CHUNKS, _STAGES),
        )


@rule(
    "MLM-LAYOUT-ONE-STAGE",
    source=arguments("", 575),
    reads="pipeline-model-parallel-layout pipeline-model-parallel-size",
    backends=BACKENDS,
    versions={"megatron_lm": ONLY_16, "mindspeed": ("26.1.0", None)},
)
def layout_needs_stages(facts: RuleContext) -> Iterator[Violation]:
    """A layout of several chunks is an interleaved schedule, which needs at least two pipeline stages."""
    layout = facts.flag("pipeline-model-parallel-layout")
    if isinstance(layout, str) and facts.number(_STAGES, 1) == 1 and stages_of(layout) > 1:
        yield Violation(
            message=f"a layout of {stages_of(layout)} stages needs pp of at least 2",
            flags=("pipeline-model-parallel-layout", _STAGES),
        )


@rule(
    "MLM-VPP-P2P",
    source=arguments(438, 579),
    reads="pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage "
    "num-virtual-stages-per-pipeline-rank no-overlap-p2p-communication",
    backends=BACKENDS,
    versions=EVERY,
)
def chunks_without_overlap_need_three_stages(facts: RuleContext) -> Iterator[Violation]:
    """Without overlapped pipeline communication, the interleaved schedule needs more than two stages."""
    stages = facts.number("pipeline-model-parallel-size", 1)
    # MindSpeed-LLM checks two stages itself, without this condition (training_basic.py:98).
    fewest = 2 if facts.backend == "megatron_lm" else 1
    chunked = facts.flag(_CHUNK) or facts.number(_CHUNKS) > 1
    if chunked and facts.flag("no-overlap-p2p-communication") and 1 < stages <= fewest:
        yield Violation(
            message=f"vpp without overlapped pipeline communication needs pp of at least 3, not {stages}",
            flags=("no-overlap-p2p-communication", "pipeline-model-parallel-size", _CHUNK, _CHUNKS),
        )


@rule(
    "MLM-VPP-CHUNK",
    source=arguments(461, 547),
    reads="num-layers num-layers-per-virtual-pipeline-stage pipeline-model-parallel-size "
    "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split",
    backends=BACKENDS,
    versions=EVERY,
)
def chunks_fill_stages(facts: RuleContext) -> Iterator[Violation]:
    """The layers per stage are divisible by the layers per chunk."""
    layers, size = facts.number("num-layers"), facts.number(_CHUNK)
    layers += sum(1 for part in ("embedding", "loss") if facts.flag(f"account-for-{part}-in-pipeline-split"))
    stage, rest = divmod(layers, max(1, facts.number("pipeline-model-parallel-size", 1)))
    if size > 0 and not rest and stage % size:
        yield Violation(
            message=f"{stage} layers per stage are not divisible by chunks of {size}",
            flags=(_CHUNK, "pipeline-model-parallel-size", "num-layers"),
        )


@rule(
    "MLM-CP-SIZES",
    source=arguments(353, 405),
    reads="hierarchical-context-parallel-sizes context-parallel-size",
    backends=BACKENDS,
    versions=SINCE_12,
)
def context_levels_make_context(facts: RuleContext) -> Iterator[Violation]:
    """The product of the hierarchical context-parallel sizes is the context-parallel size."""
    sizes, cp = _items(facts.flag("hierarchical-context-parallel-sizes")), facts.number("context-parallel-size", 1)
    if sizes and all(str(size).isdigit() for size in sizes) and math.prod(int(size) for size in sizes) != cp:
        yield Violation(
            message=f"hierarchical context sizes {' × '.join(str(size) for size in sizes)} do not make cp {cp}",
            flags=("hierarchical-context-parallel-sizes", "context-parallel-size"),
        )


@rule(
    "MLM-CP-COMM-LENGTH",
    source=config(1046, 1930),
    reads="cp-comm-type num-layers context-parallel-size",
    backends=BACKENDS,
    versions=SINCE_12,
)
def communication_per_layer_names_all(facts: RuleContext) -> Iterator[Violation]:
    """A list of context-parallel communication types has one entry per layer."""
    kinds, layers = _items(facts.flag("cp-comm-type")), facts.number("num-layers")
    if facts.number("context-parallel-size", 1) > 1 and len(kinds) > 1 and len(kinds) != layers:
        yield Violation(
            message=f"{len(kinds)} --cp-comm-type for {layers} layers", flags=("cp-comm-type", "num-layers")
        )


@rule(
    "MLM-RC-MODULES",
    source=config(730, 1208),
    reads="recompute-granularity recompute-activations recompute-modules",
    backends=BACKENDS,
    versions=SINCE_12,
)
def recomputed_modules_exist(facts: RuleContext) -> Iterator[Violation]:
    """Selective recomputation accepts only known module names."""
    if facts.flag("recompute-granularity") != "selective" and not facts.flag("recompute-activations"):
        return
    newer = facts.backend == "megatron_lm" and facts.version != "0.12.1"
    known = (*_MODULES, "shared_experts") if newer else _MODULES
    unknown = [str(name) for name in _items(facts.flag("recompute-modules")) if name not in known]
    if unknown:
        yield Violation(
            message=f"recompute.modules knows {', '.join(known)}, not {', '.join(unknown)}",
            flags=("recompute-modules",),
        )


@rule(
    "MLM-SEQ-DISPATCHER-ETP",
    source=config(950),
    reads="expert-tensor-parallel-size tensor-model-parallel-size moe-token-dispatcher-type",
    backends=BACKENDS,
    versions=UNTIL_12,
)
def older_dispatcher_keeps_tp(facts: RuleContext) -> Iterator[Violation]:
    """The alltoall_seq dispatcher requires the same tensor-parallel size for experts and dense layers."""
    etp, tp = facts.flag("expert-tensor-parallel-size"), facts.number("tensor-model-parallel-size", 1)
    if facts.flag("moe-token-dispatcher-type") == "alltoall_seq" and etp is not None and etp != tp:
        yield Violation(
            message=f"the alltoall_seq dispatcher needs etp = tp, not etp {etp} and tp {tp}",
            flags=("expert-tensor-parallel-size", "moe-token-dispatcher-type", "tensor-model-parallel-size"),
        )


@rule(
    "MLM-CPU-OFFLOAD-LAYERS",
    source=config(670, 1140),
    reads="cpu-offloading-num-layers num-layers",
    backends=BACKENDS,
    versions=SINCE_12,
)
def offloaded_layers_are_fewer(facts: RuleContext) -> Iterator[Violation]:
    """Activations of at least one layer are not offloaded."""
    count, layers = facts.number("cpu-offloading-num-layers"), facts.number("num-layers")
    if count > 0 and layers and count >= layers:
        yield Violation(
            message=f"offload.activation_layers {count} is not below the {layers} layers",
            flags=("cpu-offloading-num-layers", "num-layers"),
        )


@rule(
    "MLM-BF16-ENDS",
    source=config("596-605", "1004-1013"),
    reads="fp8-format first-last-layers-bf16 num-layers pipeline-model-parallel-size num-layers-at-end-in-bf16 "
    "num-layers-at-start-in-bf16",
    backends=BACKENDS,
    versions=SINCE_12,
)
def layers_in_bf16_fit_stage(facts: RuleContext) -> Iterator[Violation]:
    """The first and the last layers kept in bf16 each fit in one pipeline stage."""
    if not facts.flag("fp8-format") or not facts.flag("first-last-layers-bf16"):
        return
    stage = facts.number("num-layers") // max(1, facts.number("pipeline-model-parallel-size", 1))
    for flag in ("num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"):
        if not 0 <= facts.number(flag) <= stage:
            yield Violation(message=f"--{flag} {facts.number(flag)} is outside 0 … {stage} (one stage)", flags=(flag,))


@rule(
    "MLM-LAYOUT-STAGES",
    source=arguments("", 520),
    reads="pipeline-model-parallel-layout pipeline-model-parallel-size",
    backends=BACKENDS,
    versions=SINCE_12,
)
def layout_fills_stages(facts: RuleContext) -> Iterator[Violation]:
    """A layout has a whole number of chunks on every pipeline stage."""
    layout, stages = facts.flag("pipeline-model-parallel-layout"), facts.number("pipeline-model-parallel-size", 1)
    if isinstance(layout, str) and stages_of(layout) % stages:
        yield Violation(
            message=f"the layout has {stages_of(layout)} stages, which pp {stages} does not divide",
            flags=("pipeline-model-parallel-layout", "pipeline-model-parallel-size"),
        )


@rule(
    "MLM-LAYOUT-TEXT",
    source="megatron-core 0.16.1 pipeline_parallel_layer_layout.py:85-165, 320",
    reads="pipeline-model-parallel-layout pipeline-model-parallel-size mtp-num-layers",
    backends=BACKENDS,
    versions={"megatron_lm": ONLY_16, "mindspeed": ("26.1.0", None)},
)
def layout_reads_as_stages(facts: RuleContext) -> Iterator[Violation]:
    """A layout is written with E, t, m, L and |: the embedding first, the loss last, MTP layers in one chunk."""
    layout, stages = facts.flag("pipeline-model-parallel-layout"), facts.number("pipeline-model-parallel-size", 1)
    # Mismatched numbers of stages are reported by other rules.
    if not isinstance(layout, str) or stages_of(layout) % max(1, stages) or (stages == 1 and stages_of(layout) > 1):
        return
    fault = layout_fault(layout, stages, facts.number("mtp-num-layers"))
    if fault:
        yield Violation(message=f"layout {layout}: {fault}", flags=("pipeline-model-parallel-layout", "mtp-num-layers"))


@rule(
    "MLM-DECODER-SEQ",
    source=arguments(700, 834),
    reads="decoder-seq-length max-position-embeddings",
    backends=BACKENDS,
    versions=EVERY,
)
def decoder_fits_positions(facts: RuleContext) -> Iterator[Violation]:
    """The decoder sequence length may not exceed max_position_embeddings."""
    length, positions = facts.number("decoder-seq-length"), facts.number("max-position-embeddings")
    if positions and length > positions:
        yield Violation(
            message=f"decoder_seq_length {length} is beyond max_position_embeddings {positions}",
            flags=("decoder-seq-length", "max-position-embeddings"),
        )


@rule("MLM-EXPERTS-NONE", source=config(624, 1052), reads="num-experts", backends=BACKENDS, versions=SINCE_12)
def experts_are_positive(facts: RuleContext) -> Iterator[Violation]:
    """The number of experts is positive; zero means a dense model."""
    if facts.number("num-experts") < 0:
        yield Violation(message=f"num_experts {facts.number('num-experts')} is negative", flags=("num-experts",))


@rule(
    "MLM-MICRO-BATCH",
    source=arguments("419-420", "495-496"),
    reads="job.imported.backend micro-batch-size",
    backends=BACKENDS,
    versions=EVERY,
)
def micro_batch_is_written(facts: RuleContext) -> Iterator[Violation]:
    """A command line without a micro-batch size is rejected; it has no default."""
    if facts.existing and facts.number("micro-batch-size") < 1:
        yield Violation(
            message="--micro-batch-size is not set", fields=("batch.micro_batch_size",), flags=("micro-batch-size",)
        )


@rule(
    "MLM-CONNECTIONS",
    source=arguments(779, 951),
    reads="tensor-model-parallel-size context-parallel-size sequence-parallel use-torch-fsdp2 use-custom-fsdp "
    "use-megatron-fsdp job.backend.env overlap-moe-expert-parallel-comm",
    backends=BACKENDS,
    versions=EVERY,
)
def connections_are_one(facts: RuleContext) -> Iterator[Violation]:
    """Tensor and context parallelism overlap communication only with CUDA_DEVICE_MAX_CONNECTIONS=1."""
    wanted = facts.number("tensor-model-parallel-size", 1) > 1 or facts.number("context-parallel-size", 1) > 1
    if facts.version == "2.1.0":
        wanted = facts.number("tensor-model-parallel-size", 1) > 1 and bool(facts.flag("sequence-parallel"))
    own = facts.flag("use-torch-fsdp2") or facts.flag("use-custom-fsdp") or facts.flag("use-megatron-fsdp")
    given = facts.job.backend.env.get(_CONNECTIONS)
    if wanted and not own and not facts.flag("overlap-moe-expert-parallel-comm") and given not in (None, "1", 1):
        yield Violation(
            message=f"tp or cp above 1 needs {_CONNECTIONS}=1 in the environment, not {given}: leave it out, or say 1",
            fields=(f"backend.env.{_CONNECTIONS}",),
        )


@rule(
    "MLM-CONNECTIONS-MISSING",
    source=arguments(779, 951),
    reads="tensor-model-parallel-size context-parallel-size job.backend.env",
    severity="warning",
    backends=BACKENDS,
    versions=EVERY,
)
def connections_are_exported(facts: RuleContext) -> Iterator[Violation]:
    """A command line with tensor or context parallelism needs CUDA_DEVICE_MAX_CONNECTIONS=1; launch plans set it."""
    wanted = facts.number("tensor-model-parallel-size", 1) > 1 or facts.number("context-parallel-size", 1) > 1
    if facts.as_written and wanted and _CONNECTIONS not in facts.job.backend.env:
        yield Violation(
            message=f"tp or cp above 1 needs {_CONNECTIONS}=1 in the environment",
            fields=(f"backend.env.{_CONNECTIONS}",),
        )


@rule(
    "MLM-CONNECTIONS-FSDP",
    source=arguments("527, 567", "622, 687"),
    reads="job.backend.env use-custom-fsdp use-megatron-fsdp use-torch-fsdp2",
    backends=BACKENDS,
    versions=SINCE_12,
)
def connections_are_many_for_fsdp(facts: RuleContext) -> Iterator[Violation]:
    """FSDP overlaps communication only with CUDA_DEVICE_MAX_CONNECTIONS other than 1; launch plans set it."""
    flags = [name for name in ("use-torch-fsdp2", "use-custom-fsdp", "use-megatron-fsdp") if facts.flag(name)]
    given = facts.job.backend.env.get(_CONNECTIONS)
    if flags and str(given) == "1":
        yield Violation(
            message=f"--{flags[0]} needs {_CONNECTIONS} other than 1: add backend.env.{_CONNECTIONS}=8",
            fields=(f"backend.env.{_CONNECTIONS}",),
            flags=tuple(flags),
        )


@rule(
    "MLM-SAVE-RETAIN",
    source=arguments("", 842),
    reads="save-retain-interval save-interval save",
    backends=PLAIN,
    since=ONLY_16[0],
)
def retained_checkpoints_are_saved(facts: RuleContext) -> Iterator[Violation]:
    """The retain interval of checkpoints is a multiple of the save interval."""
    keep, every = facts.number("save-retain-interval"), facts.number("save-interval")
    if facts.flag("save") and keep and every and keep % every:
        yield Violation(
            message=f"save_retain_interval {keep} is not a multiple of save_interval {every}",
            flags=("save-retain-interval", "save-interval"),
        )


@rule(
    "MLM-LOG-MEMORY",
    source=arguments("", 844),
    reads="log-memory-interval log-interval",
    backends=PLAIN,
    since=ONLY_16[0],
)
def memory_is_logged_with_the_rest(facts: RuleContext) -> Iterator[Violation]:
    """The memory log interval is a multiple of the log interval."""
    memory, every = facts.number("log-memory-interval"), facts.number("log-interval", 1)
    if memory and every and memory % every:
        yield Violation(
            message=f"log_memory_interval {memory} is not a multiple of log_interval {every}",
            flags=("log-memory-interval", "log-interval"),
        )


@rule(
    "MLM-BALANCE-COEFFS",
    source=config("", 1098),
    reads="moe-router-load-balancing-type moe-aux-loss-coeff",
    backends=PLAIN,
    since=ONLY_16[0],
)
def balances_have_coefficients(facts: RuleContext) -> Iterator[Violation]:
    """Several load-balancing losses have one coefficient each."""
    kinds, weights = _items(facts.flag("moe-router-load-balancing-type")), _items(facts.flag("moe-aux-loss-coeff"))
    if len(kinds) > 1 and len(kinds) != len(weights):
        yield Violation(
            message=f"{len(kinds)} balancing losses have {len(weights)} coefficients",
            flags=("moe-router-load-balancing-type", "moe-aux-loss-coeff"),
        )
