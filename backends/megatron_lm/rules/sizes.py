"""Size checks specific to Megatron-LM: query groups, chunks, per-layer lists, intervals."""

import math
from collections.abc import Iterator, Sequence

from backends.megatron_lm.mapping.chunks import chunks_of
from backends.megatron_lm.mapping.parallel import stages_of
from backends.megatron_lm.rules.versions import (
    BACKENDS,
    BEFORE_14,
    BEFORE_16,
    EVERY,
    ONLY_12,
    ONLY_16,
    PLAIN,
    SINCE_12,
    SINCE_12_TO_18,
    SINCE_13,
    SINCE_14,
    UNTIL_12,
    UNTIL_16,
    arguments,
    config,
)
from launcher.catalogue.versions import in_range
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext, Violation, lower, rule
from launcher.rules.sanity_checks import layout_error
from launcher.rules.table import declare, never
from launcher.syntax import is_count

_CHUNK = "num-layers-per-virtual-pipeline-stage"
_STAGES = "pipeline-model-parallel-size"
_TP = "tensor-model-parallel-size"
_CONTEXT, _EXPERTS = "context-parallel-size", "expert-model-parallel-size"
_EXPERT_TENSOR = "expert-tensor-parallel-size"
_CHUNKS = "num-virtual-stages-per-pipeline-rank"
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"

# fmt: off
declare((
    # Groups that are neither a multiple nor a divisor are rejected on every backend (PAR-TP-KV-HEADS).
    never("MLM-TP-GROUPS", "group-query-attention & num-query-groups & num-query-groups%{tensor-model-parallel-size} & "
          "!tensor-model-parallel-size%{num-query-groups}",
          "Up to core 0.15, query groups are a multiple of tp; fewer groups than ranks are supported later.",
          config(575),
          message="num_key_value_heads {num-query-groups} is not a multiple of tp {tensor-model-parallel-size}",
          flags=(_TP, "num-query-groups"), versions=BEFORE_16),
    never("MLM-HEAD-SIZE", "!kv-channels? & num-attention-heads & hidden-size%{num-attention-heads}",
          "Without kv-channels, hidden_size is divisible by the number of attention heads.", arguments(680, 814),
          message="hidden_size {hidden-size} is not divisible by num_attention_heads {num-attention-heads}, and "
          "head_dim is not set", flags=("kv-channels", "hidden-size", "num-attention-heads"),
          fields=("model.head_dim", "model.hidden_size", "model.num_attention_heads")),
    never("MLM-DECODER-SEQ", "decoder-seq-length>{max-position-embeddings} & max-position-embeddings",
          "The decoder sequence length may not exceed max_position_embeddings.", arguments(700, 834),
          message="decoder_seq_length {decoder-seq-length} is above max_position_embeddings "
          "{max-position-embeddings}"),
    never("MLM-SEQ-DISPATCHER-ETP",
          "expert-tensor-parallel-size!={tensor-model-parallel-size} & moe-token-dispatcher-type=alltoall_seq",
          "The alltoall_seq dispatcher requires the same tensor-parallel size for experts and dense layers.",
          config(950),
          message="the alltoall_seq dispatcher needs etp = tp, not etp {expert-tensor-parallel-size} and tp "
          "{tensor-model-parallel-size}", flags=("expert-tensor-parallel-size", "moe-token-dispatcher-type", _TP),
          versions=UNTIL_12),
    never("MLM-EXPERTS-NONE", "num-experts<0",
          "The number of experts is positive; zero means a dense model.", config(624, 1052),
          message="num_experts {num-experts} is negative", versions=SINCE_12),
), backends=BACKENDS, versions=EVERY)
declare((
    Rule(
        id="MLM-ETP-REPLICAS",
        doc="Without expert parallelism, experts must be split like the other layers: core reduces their gradients "
        "over the data-parallel group of dense layers, so replicas of experts on tensor-parallel ranks each keep the "
        "gradient of a part of the tokens and drift apart, and other splits add up gradients of different shards.",
        source="Megatron-LM core_v0.12.1 megatron/core/tensor_parallel/layers.py:809, 1115; megatron-core 0.16.1 "
        "megatron/core/tensor_parallel/layers.py:886, 1209, corrected in 0.19.0; MindSpeed 26.1.0 "
        "te/pytorch/module/grouped_linear.py:228; measured: tests/backends/megatron_lm/test_expert_gradients.py",
        when="num-experts>0 & expert-model-parallel-size<=1 & expert-tensor-parallel-size? & !job.moe.tp_extend_ep & "
        "expert-tensor-parallel-size!={tensor-model-parallel-size}",
        message="etp {expert-tensor-parallel-size} with tp {tensor-model-parallel-size} and ep 1: gradients of experts "
        "are not reduced over all ranks that hold them, so training is wrong without an error",
        flags=("expert-tensor-parallel-size", _TP, "expert-model-parallel-size"),
        stricter=True,
        reason="it trains, with wrong gradients of experts",
    ),
), backends=BACKENDS, versions=SINCE_12_TO_18)
declare((
    never("MLM-CPU-OFFLOAD-LAYERS", "cpu-offloading-num-layers>0 & cpu-offloading-num-layers>={num-layers}",
          "Activations of at least one layer are not offloaded.", config(670, 1140),
          message="offload.activation_layers {cpu-offloading-num-layers} must be below num_layers {num-layers}"),
), backends=PLAIN)
declare((
    never("MLM-SAVE-RETAIN", "save & save-interval & save-retain-interval%{save-interval}",
          "The retain interval of checkpoints is a multiple of the save interval.", arguments("", 842),
          message="save_retain_interval {save-retain-interval} is not a multiple of save_interval {save-interval}",
          flags=("save-retain-interval", "save-interval"), since=SINCE_14),
    never("MLM-LOG-MEMORY", "log-interval & log-memory-interval%{log-interval}",
          "The memory log interval is a multiple of the log interval.", arguments("", 844),
          message="log_memory_interval {log-memory-interval} is not a multiple of log_interval {log-interval}",
          flags=("log-memory-interval", "log-interval")),
), backends=PLAIN, since=ONLY_16[0])
# fmt: on

for _backend in BACKENDS:
    lower("MLM-ETP-REPLICAS", _backend, "the script runs as it is", when=lambda context: context.existing)


@rule(
    "MLM-DP-OUTERMOST",
    source="Megatron-LM core_v0.12.1 megatron/core/parallel_state.py:716; megatron-core 0.16.1 parallel_state.py:808 "
    "initialize_model_parallel",
    reads="use-tp-pp-dp-mapping num-experts pipeline-model-parallel-size tensor-model-parallel-size "
    "context-parallel-size expert-model-parallel-size expert-tensor-parallel-size",
    backends=BACKENDS,
    versions=SINCE_12,
)
def replicas_are_outermost_for_all(context: RuleContext) -> Iterator[Violation]:
    """With data parallel ranks numbered last, experts have as many replicas as the other layers."""
    if not context.flag("use-tp-pp-dp-mapping") or not context.number("num-experts") or context.number(_STAGES, 1) == 1:
        return
    tp, cp, ep = context.number(_TP, 1), context.number(_CONTEXT, 1), context.number(_EXPERTS, 1)
    etp = context.number(_EXPERT_TENSOR, tp)
    if tp * cp != ep * etp:
        yield Violation(
            message=f"--use-tp-pp-dp-mapping needs tp × cp = ep × etp, not {tp} × {cp} and {ep} × {etp}: experts and "
            "the other layers then have the same number of replicas",
            flags=("use-tp-pp-dp-mapping", _EXPERTS, _EXPERT_TENSOR, _TP, _CONTEXT),
        )


@rule(
    "MLM-RC-UNIFORM-CHUNK",
    source="megatron-core 0.16.1 transformer/transformer_block.py:539",
    reads="recompute-granularity recompute-method recompute-num-layers num-layers pipeline-model-parallel-layout "
    "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split "
    "account-for-loss-in-pipeline-split pipeline-model-parallel-size job.parallel.vpp",
    backends=PLAIN,
    until=UNTIL_16,
)
def uniform_recomputation_divides_every_chunk(context: RuleContext) -> Iterator[Violation]:
    """Up to core 0.16, uniform recomputation reads past the end of a model chunk that it does not divide."""
    size = context.number("recompute-num-layers", 1)
    if context.flag("recompute-granularity") != "full" or context.flag("recompute-method") != "uniform" or size <= 1:
        return
    odd = [count for count in _layers_of_chunks(context) if count % size]
    if odd:
        yield Violation(
            message=f"recompute_num_layers {size} does not divide the {odd[0]} layers of a model chunk: uniform "
            "recomputation reads past its end",
            flags=("recompute-num-layers", "recompute-method"),
            fields=("recompute.num_layers", "recompute.method"),
        )


def _layers_of_chunks(context: RuleContext) -> list[int]:
    """Return the transformer layers of model chunks; none where they do not follow from even or uneven stages."""
    layers, stages, chunks = context.number("num-layers"), context.number(_STAGES, 1), context.job.parallel.vpp or 1
    accounts = ("account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split")
    if context.flag("pipeline-model-parallel-layout") or any(context.flag(each) for each in accounts):
        return []
    ends = uneven_stages(context)
    middle = stages - len(ends)
    # What does not divide is refused by other rules.
    rest = [(layers - sum(ends)) // middle] if middle > 0 and (layers - sum(ends)) % middle == 0 else []
    return [count // chunks for count in (*ends, *rest) if count % chunks == 0]


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
def sizes_are_positive(context: RuleContext) -> Iterator[Violation]:
    """Parallel sizes, chunks, global batch size, train samples and dataset builder threads are at least 1."""
    parallel = ("tensor-model-parallel-size", _STAGES, "context-parallel-size")
    sizes = (*parallel, _CHUNK, _CHUNKS, "global-batch-size", "train-samples", "num-dataset-builder-threads")
    for flag in sizes:
        if context.given(flag) and context.number(flag, 1) < 1:
            yield Violation(message=f"--{flag} {context.flag(flag)} must be at least 1", flags=(flag,))


def uneven_stages(context: RuleContext) -> list[int]:
    """Return the layers of the first and last stage, where they are set."""
    flags = ("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers")
    return [context.number(flag) for flag in flags if context.flag(flag) is not None]


@rule(
    "MLM-UNEVEN-NO-MIDDLE",
    source=config(824),
    reads="pipeline-model-parallel-size decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers",
    backends=BACKENDS,
    versions=ONLY_12,
)
def uneven_stages_have_a_middle(context: RuleContext) -> Iterator[Violation]:
    """Up to core 0.12, uneven first and last stages need a stage between them: without one it divides by zero."""
    ends, stages = uneven_stages(context), context.number(_STAGES, 1)
    # One stage and one uneven end are rejected on every backend that maps them (PAR-UNEVEN-PP).
    if ends and len(ends) == stages and (stages > 1 or context.backend != "megatron_lm"):
        yield Violation(
            message=f"all {stages} stages have a fixed number of layers: one stage must have none",
            flags=("decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers", _STAGES),
        )


@rule(
    "MLM-VPP-ONE-STAGE",
    source=arguments(434),
    reads="num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank "
    "pipeline-model-parallel-size job.parallel.vpp",
    backends=BACKENDS,
    versions=BEFORE_14,
)
def chunk_flag_needs_stages(context: RuleContext) -> Iterator[Violation]:
    """Up to core 0.13, the chunk arguments are rejected with one pipeline stage, even for a single chunk."""
    given = context.flag(_CHUNK) or context.flag(_CHUNKS)
    # More than one chunk on one stage is rejected on every backend (PAR-VPP-PP).
    if given and context.number(_STAGES, 1) == 1 and (context.job.parallel.vpp or 1) == 1:
        yield Violation(
            message=f"--{_CHUNK if context.flag(_CHUNK) else _CHUNKS} {given} needs pp of at least 2",
            flags=(_CHUNK, _CHUNKS, _STAGES),
        )


@rule(
    "MLM-LAYOUT-ONE-STAGE",
    source=arguments("", 575),
    reads="pipeline-model-parallel-layout pipeline-model-parallel-size",
    backends=BACKENDS,
    versions={"megatron_lm": (SINCE_13, None), "mindspeed": ("26.1", None)},
)
def layout_needs_stages(context: RuleContext) -> Iterator[Violation]:
    """A layout of several chunks is an interleaved schedule, which needs at least two pipeline stages."""
    layout = context.flag("pipeline-model-parallel-layout")
    if isinstance(layout, str) and context.number(_STAGES, 1) == 1 and stages_of(layout) > 1:
        yield Violation(
            message=f"a layout of {stages_of(layout)} chunks needs pp of at least 2",
            flags=("pipeline-model-parallel-layout", _STAGES),
        )


@rule(
    "MLM-VPP-P2P",
    source=arguments(438, 579),
    reads="pipeline-model-parallel-size num-layers-per-virtual-pipeline-stage num-layers encoder-num-layers "
    "num-virtual-stages-per-pipeline-rank no-overlap-p2p-communication decoder-first-pipeline-num-layers "
    "decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split",
    backends=BACKENDS,
    versions=EVERY,
)
def chunks_without_overlap_need_three_stages(context: RuleContext) -> Iterator[Violation]:
    """Without overlapped pipeline communication, the interleaved schedule needs more than two stages."""
    stages = context.number("pipeline-model-parallel-size", 1)
    # MindSpeed-LLM checks two stages itself, without this condition (training_basic.py:98).
    fewest = 2 if context.backend == "megatron_lm" else 1
    chunked = bool(context.flag(_CHUNK)) or context.flag(_CHUNKS) is not None
    # One chunk is none since 0.14 (arguments.py:516 @core_v0.14.0).
    if chunked and in_range(context.version or "", SINCE_14, None):
        chunked = (chunks_of(context.values) or context.number(_CHUNKS, 1)) > 1
    if chunked and context.flag("no-overlap-p2p-communication") and 1 < stages <= fewest:
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
def chunks_fill_stages(context: RuleContext) -> Iterator[Violation]:
    """The layers per stage are divisible by the layers per chunk."""
    layers, size = context.number("num-layers"), context.number(_CHUNK)
    layers += sum(1 for part in ("embedding", "loss") if context.flag(f"account-for-{part}-in-pipeline-split"))
    stage, rest = divmod(layers, max(1, context.number("pipeline-model-parallel-size", 1)))
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
def context_levels_make_context(context: RuleContext) -> Iterator[Violation]:
    """The product of the hierarchical context-parallel sizes is the context-parallel size."""
    sizes, cp = _items(context.flag("hierarchical-context-parallel-sizes")), context.number("context-parallel-size", 1)
    if sizes and all(is_count(str(size)) for size in sizes) and math.prod(int(size) for size in sizes) != cp:
        yield Violation(
            message=f"hierarchical_context_parallel_sizes {' × '.join(str(size) for size in sizes)} is not cp {cp}",
            flags=("hierarchical-context-parallel-sizes", "context-parallel-size"),
        )


@rule(
    "MLM-CP-COMM-LENGTH",
    source=config(1046, 1930),
    reads="cp-comm-type num-layers context-parallel-size",
    backends=BACKENDS,
    versions=SINCE_12,
)
def communication_per_layer_names_all(context: RuleContext) -> Iterator[Violation]:
    """A list of context-parallel communication types has one entry per layer."""
    kinds, layers = _items(context.flag("cp-comm-type")), context.number("num-layers")
    if context.number("context-parallel-size", 1) > 1 and len(kinds) > 1 and len(kinds) != layers:
        yield Violation(
            message=f"--cp-comm-type has {len(kinds)} values for {layers} layers", flags=("cp-comm-type", "num-layers")
        )


@rule(
    "MLM-BF16-ENDS",
    source=config("596-605", "1004-1013"),
    reads="fp8-format first-last-layers-bf16 num-layers pipeline-model-parallel-size num-layers-at-end-in-bf16 "
    "num-layers-at-start-in-bf16",
    backends=BACKENDS,
    versions=SINCE_12,
)
def layers_in_bf16_fit_stage(context: RuleContext) -> Iterator[Violation]:
    """The first and the last layers kept in bf16 each fit in one pipeline stage."""
    if not context.flag("fp8-format") or not context.flag("first-last-layers-bf16"):
        return
    stage = context.number("num-layers") // max(1, context.number("pipeline-model-parallel-size", 1))
    for flag in ("num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"):
        if not 0 <= context.number(flag) <= stage:
            yield Violation(
                message=f"--{flag} {context.number(flag)} is outside 0 … {stage} (one stage)", flags=(flag,)
            )


@rule(
    "MLM-LAYOUT-STAGES",
    source=arguments("", 520),
    reads="pipeline-model-parallel-layout pipeline-model-parallel-size",
    backends=BACKENDS,
    versions=SINCE_12,
)
def layout_fills_stages(context: RuleContext) -> Iterator[Violation]:
    """A layout has a whole number of chunks on every pipeline stage."""
    layout, stages = context.flag("pipeline-model-parallel-layout"), context.number("pipeline-model-parallel-size", 1)
    if isinstance(layout, str) and stages_of(layout) % stages:
        yield Violation(
            message=f"the layout has {stages_of(layout)} chunks, which is not a multiple of pp {stages}",
            flags=("pipeline-model-parallel-layout", "pipeline-model-parallel-size"),
        )


@rule(
    "MLM-LAYOUT-TEXT",
    source="megatron-core 0.16.1 pipeline_parallel_layer_layout.py:85-165, 320",
    reads="pipeline-model-parallel-layout pipeline-model-parallel-size mtp-num-layers",
    backends=BACKENDS,
    versions={"megatron_lm": (SINCE_13, None), "mindspeed": ("26.1", None)},
)
def layout_reads_as_stages(context: RuleContext) -> Iterator[Violation]:
    """A layout is written with E, t, m, L and |: the embedding first, the loss last, MTP layers in one chunk."""
    layout, stages = context.flag("pipeline-model-parallel-layout"), context.number("pipeline-model-parallel-size", 1)
    # Mismatched numbers of stages are reported by other rules.
    if not isinstance(layout, str) or stages_of(layout) % max(1, stages) or (stages == 1 and stages_of(layout) > 1):
        return
    fault = layout_error(layout, stages, context.number("mtp-num-layers"))
    if fault:
        yield Violation(message=f"layout {layout}: {fault}", flags=("pipeline-model-parallel-layout", "mtp-num-layers"))


@rule(
    "MLM-MICRO-BATCH",
    source=arguments("419-420", "495-496"),
    reads="job.imported.backend micro-batch-size",
    backends=BACKENDS,
    versions=EVERY,
)
def micro_batch_is_written(context: RuleContext) -> Iterator[Violation]:
    """A command line without a micro-batch size is rejected; it has no default."""
    if context.existing and context.number("micro-batch-size") < 1:
        yield Violation(
            message="--micro-batch-size is not set",
            fields=("batch.micro_batch_size",),
            flags=("micro-batch-size",),
            asks=("batch.micro_batch_size=N",),
        )


@rule(
    "MLM-CONNECTIONS",
    source=arguments(779, 951),
    reads="tensor-model-parallel-size context-parallel-size sequence-parallel use-torch-fsdp2 use-custom-fsdp "
    "use-megatron-fsdp job.backend.env overlap-moe-expert-parallel-comm",
    backends=BACKENDS,
    versions=EVERY,
)
def connections_are_one(context: RuleContext) -> Iterator[Violation]:
    """Tensor and context parallelism overlap communication only with CUDA_DEVICE_MAX_CONNECTIONS=1."""
    wanted = context.number("tensor-model-parallel-size", 1) > 1 or context.number("context-parallel-size", 1) > 1
    if context.version == "2.1.0":
        wanted = context.number("tensor-model-parallel-size", 1) > 1 and bool(context.flag("sequence-parallel"))
    own = context.flag("use-torch-fsdp2") or context.flag("use-custom-fsdp") or context.flag("use-megatron-fsdp")
    given = context.job.backend.env.get(_CONNECTIONS)
    if wanted and not own and not context.flag("overlap-moe-expert-parallel-comm") and given not in (None, "1", 1):
        yield Violation(
            message=f"tp or cp above 1 needs {_CONNECTIONS}=1 in the environment, not {given}: remove it or set "
            "it to 1",
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
def connections_are_exported(context: RuleContext) -> Iterator[Violation]:
    """A command line with tensor or context parallelism needs CUDA_DEVICE_MAX_CONNECTIONS=1; launch plans set it."""
    wanted = context.number("tensor-model-parallel-size", 1) > 1 or context.number("context-parallel-size", 1) > 1
    if context.as_written and wanted and _CONNECTIONS not in context.job.backend.env:
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
def connections_are_many_for_fsdp(context: RuleContext) -> Iterator[Violation]:
    """FSDP overlaps communication only with CUDA_DEVICE_MAX_CONNECTIONS other than 1; launch plans set it."""
    flags = [name for name in ("use-torch-fsdp2", "use-custom-fsdp", "use-megatron-fsdp") if context.flag(name)]
    given = context.job.backend.env.get(_CONNECTIONS)
    if flags and str(given) == "1":
        yield Violation(
            message=f"--{flags[0]} needs {_CONNECTIONS} other than 1: set backend.env.{_CONNECTIONS}=8",
            fields=(f"backend.env.{_CONNECTIONS}",),
            flags=tuple(flags),
        )


@rule(
    "MLM-BALANCE-COEFFS",
    source=config("", 1098),
    reads="moe-router-load-balancing-type moe-aux-loss-coeff",
    backends=PLAIN,
    since=SINCE_14,
)
def balances_have_coefficients(context: RuleContext) -> Iterator[Violation]:
    """Several load-balancing losses have one coefficient each."""
    kinds, weights = _items(context.flag("moe-router-load-balancing-type")), _items(context.flag("moe-aux-loss-coeff"))
    if len(kinds) > 1 and len(kinds) != len(weights):
        yield Violation(
            message=f"--moe-router-load-balancing-type has {len(kinds)} values, --moe-aux-loss-coeff {len(weights)}",
            flags=("moe-router-load-balancing-type", "moe-aux-loss-coeff"),
        )
