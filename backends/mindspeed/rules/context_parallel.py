"""Context parallelism on Ascend: divisibility and the windows, masks and attention that each algorithm supports."""

from collections.abc import Iterator

from launcher.rules.registry import Rule, RuleContext, Violation, rule
from launcher.rules.table import declare

_MINDSPEED = ("mindspeed",)
_FEATURE = "MindSpeed 26.1.0 features_manager/context_parallel/context_parallel_feature.py"
_ULYSSES = "MindSpeed 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py"
_CACHE = "MindSpeed 26.1.0 features_manager/context_parallel/context_parallel_kv_cache.py"
_LLM = "MindSpeed-LLM 26.1.0 features_manager/context_parallel/context_parallel_feature.py"
_OLD = "MindSpeed-LLM 2.1.0 training/arguments.py"

_ALGORITHM = "context-parallel-algo"
_SIZE = "context-parallel-size"
_DEGREE = "ulysses-degree-in-cp"
_WINDOW = "cp-window-size"
_HYBRIDS = ("hybrid_cp_algo", "hybrid_adaptive_cp_algo")


def _algorithm(facts: RuleContext) -> str | None:
    """Return the algorithm in use; None without context parallelism."""
    return str(facts.flag(_ALGORITHM)) if facts.number(_SIZE, 1) > 1 else None


def _ring(facts: RuleContext) -> int | None:
    """Return the size of the rings; None if there are none or the sizes do not fit."""
    algorithm, size = _algorithm(facts), facts.number(_SIZE, 1)
    if algorithm == "megatron_cp_algo":
        return size
    degree = facts.number(_DEGREE)
    if algorithm != "hybrid_cp_algo" or degree < 1 or size % degree or size == degree:
        return None
    return size // degree


def _head_fault(facts: RuleContext, share: int, flag: str) -> Iterator[Violation]:
    heads, tp = facts.number("num-attention-heads"), facts.number("tensor-model-parallel-size", 1)
    if heads and share > 0 and heads % (share * tp):
        yield Violation(
            message=f"num_attention_heads {heads} is not divisible by {flag} {share} × tp {tp}",
            flags=(flag, "tensor-model-parallel-size", "num-attention-heads"),
        )


@rule(
    "MS-CP-ULYSSES-HEADS",
    source=f"{_ULYSSES}:33; {_OLD}:264",
    reads="context-parallel-size context-parallel-algo num-attention-heads tensor-model-parallel-size",
    backends=_MINDSPEED,
)
def ulysses_divides_heads(facts: RuleContext) -> Iterator[Violation]:
    """Ulysses gives every context-parallel rank whole heads: heads must be a multiple of cp x tp."""
    if _algorithm(facts) == "ulysses_cp_algo":
        yield from _head_fault(facts, facts.number(_SIZE, 1), _SIZE)


@rule(
    "MS-CP-MAMBA-HEADS",
    source="MindSpeed-LLM 26.1.0 features_manager/context_parallel/mamba_context_parallel.py:28",
    reads="context-parallel-size context-parallel-algo num-attention-heads tensor-model-parallel-size",
    backends=_MINDSPEED,
    since="26.1.0",
)
def mamba_divides_heads(facts: RuleContext) -> Iterator[Violation]:
    """Mamba's context parallelism gives every rank whole heads: heads must be a multiple of cp x tp."""
    if _algorithm(facts) == "mamba_cp_algo":
        yield from _head_fault(facts, facts.number(_SIZE, 1), _SIZE)


@rule(
    "MS-CP-KV-REPEAT",
    source=f"{_OLD}:269 (the switch cannot be turned off)",
    reads="context-parallel-size context-parallel-algo num-query-groups ulysses-degree-in-cp "
    "tensor-model-parallel-size group-query-attention",
    severity="change",
    backends=_MINDSPEED,
)
def ulysses_repeats_key_value_heads(facts: RuleContext) -> Iterator[Violation]:
    """With fewer query groups than cp x tp, Ulysses repeats key/value heads before its all-to-all."""
    algorithm, groups = _algorithm(facts), facts.number("num-query-groups")
    share = facts.number(_SIZE, 1) if algorithm == "ulysses_cp_algo" else facts.number(_DEGREE)
    tp = facts.number("tensor-model-parallel-size", 1)
    known = algorithm == "ulysses_cp_algo" or algorithm in _HYBRIDS
    cut = share * tp
    if known and share and facts.flag("group-query-attention") and 0 < groups < cut and cut % groups == 0:
        yield Violation(
            message=f"num_key_value_heads {groups} → repeated to {cut} (Ulysses share {share} × tp {tp}) before the "
            "all-to-all: more memory and communication",
            flags=("num-query-groups", _SIZE, _DEGREE, "tensor-model-parallel-size"),
        )


@rule(
    "MS-CP-GROUPS-TP",
    source=f"{_OLD}:267",
    reads="num-query-groups tensor-model-parallel-size context-parallel-size context-parallel-algo "
    "group-query-attention",
    backends=_MINDSPEED,
    until="2.1.0",
)
def groups_divide_by_tp_under_context_parallelism(facts: RuleContext) -> Iterator[Violation]:
    """Under Ulysses and hybrid context parallelism, tensor parallelism splits the query groups evenly."""
    groups, tp = facts.number("num-query-groups", 1), facts.number("tensor-model-parallel-size", 1)
    known = _algorithm(facts) in ("ulysses_cp_algo", "hybrid_cp_algo")
    if known and facts.flag("group-query-attention") and groups >= 1 and groups % tp:
        yield Violation(
            message=f"num_key_value_heads {groups} is not divisible by tp {tp}",
            flags=("num-query-groups", "tensor-model-parallel-size"),
        )


@rule(
    "MS-CP-RING-WINDOW",
    source=f"{_FEATURE}:47; {_OLD}:300",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=_MINDSPEED,
)
def window_is_smaller_than_ring(facts: RuleContext) -> Iterator[Violation]:
    """The inner window of a double ring is at least 1 and smaller than the ring."""
    yield from _window_fault(facts, "megatron_cp_algo")


@rule(
    "MS-CP-RING-WINDOW-DIVIDES",
    source=f"{_FEATURE}:50; {_OLD}:302",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=_MINDSPEED,
)
def window_divides_ring(facts: RuleContext) -> Iterator[Violation]:
    """The ring size is a multiple of the window."""
    yield from _window_rest(facts, "megatron_cp_algo")


@rule(
    "MS-CP-HYBRID-WINDOW",
    source=f"{_FEATURE}:76; {_OLD}:315",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=_MINDSPEED,
)
def hybrid_window_is_smaller_than_ring(facts: RuleContext) -> Iterator[Violation]:
    """Under the hybrid algorithm the ring has cp / ulysses_degree ranks, and the window is smaller than that."""
    yield from _window_fault(facts, "hybrid_cp_algo")


@rule(
    "MS-CP-HYBRID-WINDOW-DIVIDES",
    source=f"{_FEATURE}:79; {_OLD}:317",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=_MINDSPEED,
)
def hybrid_window_divides_ring(facts: RuleContext) -> Iterator[Violation]:
    """Under the hybrid algorithm the ring size cp / ulysses_degree is a multiple of the window."""
    yield from _window_rest(facts, "hybrid_cp_algo")


def _window_fault(facts: RuleContext, algorithm: str) -> Iterator[Violation]:
    ring, window = _ring(facts), facts.number(_WINDOW, 1)
    if _algorithm(facts) == algorithm and ring is not None and not 1 <= window < ring:
        yield Violation(
            message=f"cp_window {window} is outside 1 … {ring - 1}, for a ring of {ring}",
            flags=(_WINDOW, _SIZE, *((_DEGREE,) if algorithm == "hybrid_cp_algo" else ())),
        )


def _window_rest(facts: RuleContext, algorithm: str) -> Iterator[Violation]:
    ring, window = _ring(facts), facts.number(_WINDOW, 1)
    if _algorithm(facts) == algorithm and ring is not None and 1 <= window < ring and ring % window:
        yield Violation(
            message=f"a ring of {ring} is not divisible by cp_window {window}",
            flags=(_WINDOW, _SIZE, *((_DEGREE,) if algorithm == "hybrid_cp_algo" else ())),
        )


@rule(
    "MS-CP-HYBRID-DEGREE",
    source=f"{_FEATURE}:60; {_OLD}:310, 328",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp",
    backends=_MINDSPEED,
)
def hybrid_has_degree(facts: RuleContext) -> Iterator[Violation]:
    """The hybrid algorithms need the number of devices of the all-to-all part."""
    algorithm = _algorithm(facts)
    if algorithm in _HYBRIDS and facts.flag(_DEGREE) is None:
        yield Violation(message=f"{algorithm} needs parallel.ulysses_degree (--{_DEGREE})", flags=(_DEGREE, _ALGORITHM))


@rule(
    "MS-CP-HYBRID-DIVIDES",
    source=f"{_FEATURE}:63; {_OLD}:312, 330",
    reads="context-parallel-size ulysses-degree-in-cp context-parallel-algo",
    backends=_MINDSPEED,
)
def hybrid_degree_divides(facts: RuleContext) -> Iterator[Violation]:
    """The all-to-all part divides cp and leaves rings of at least two: else use ulysses or megatron instead."""
    size, degree = facts.number(_SIZE, 1), facts.number(_DEGREE)
    if _algorithm(facts) not in _HYBRIDS or facts.flag(_DEGREE) is None:
        return
    if degree < 1 or size % degree:
        yield Violation(message=f"cp {size} is not divisible by ulysses_degree {degree}", flags=(_DEGREE, _SIZE))
    elif size == degree:
        yield Violation(
            message=f"ulysses_degree {degree} = cp leaves rings of 1: use cp_algorithm ulysses, or a smaller degree",
            flags=(_DEGREE, _SIZE, _ALGORITHM),
        )


@rule(
    "MS-CP-HYBRID-HEADS",
    source=f"{_FEATURE}:70; {_OLD}:264, 332",
    reads="context-parallel-size context-parallel-algo num-attention-heads tensor-model-parallel-size "
    "ulysses-degree-in-cp",
    backends=_MINDSPEED,
)
def hybrid_divides_heads(facts: RuleContext) -> Iterator[Violation]:
    """The all-to-all part gives every rank whole heads: heads must be a multiple of ulysses_degree x tp."""
    if _algorithm(facts) in _HYBRIDS:
        yield from _head_fault(facts, facts.number(_DEGREE), _DEGREE)


@rule(
    "MS-CP-GENERAL-MBS",
    source=f"MindSpeed-LLM parameter guide §25.5-25.8; {_OLD}:307, 320, 325, 335",
    reads="context-parallel-size context-parallel-algo micro-batch-size attention-mask-type cp-attention-mask-type",
    backends=_MINDSPEED,
    stricter=True,
    enforced_until="2.1.0",
    reason="it accepts a general mask with more than one sequence since 2.2.0, but one mask is shared by all",
)
def general_mask_takes_one_sequence(facts: RuleContext) -> Iterator[Violation]:
    """A general attention mask is one mask per micro-batch, so a micro-batch holds one sequence."""
    algorithm, size = _algorithm(facts), facts.number("micro-batch-size", 1)
    flag = "cp-attention-mask-type" if facts.version == "2.1.0" else "attention-mask-type"
    if algorithm in ("megatron_cp_algo", "adaptive_cp_algo", *_HYBRIDS) and facts.flag(flag) == "general" and size != 1:
        yield Violation(
            message=f"the general attention mask under {algorithm} needs micro_batch_size 1, not {size}",
            flags=("micro-batch-size", flag),
        )


@rule(
    "MS-CP-NO-ADAPTIVE",
    source="MindSpeed-LLM 2.2.0: choices of --context-parallel-algo",
    reads="job.parallel.cp_algorithm context-parallel-algo",
    backends=_MINDSPEED,
    since="26.1.0",
)
def adaptive_algorithms_are_gone(facts: RuleContext) -> Iterator[Violation]:
    """The adaptive algorithms were removed after 2.1.0; the parser rejects their names."""
    wanted = str(facts.job.parallel.cp_algorithm or "")
    native = str(facts.flag(_ALGORITHM))
    if wanted in ("adaptive", "hybrid_adaptive") or "adaptive" in native:
        name = native if "adaptive" in native else f"{wanted}_cp_algo"
        yield Violation(
            message=f"{name} was removed after 2.1.0: use megatron, hybrid or ulysses, or backend.version=2.1.0",
            fields=("parallel.cp_algorithm",),
            flags=(_ALGORITHM,),
        )


@rule(
    "MS-CP-SLIDING-ANY",
    source="MindSpeed-LLM parameter guide §25.9; MindSpeed-LLM 2.1.0 training/arguments.py:338",
    reads="sliding-window seq-length context-parallel-size context-parallel-algo",
    backends=_MINDSPEED,
    stricter=True,
    enforced_until="2.1.0",
    reason="it refuses only windows shorter than the sequence; a longer one does nothing, so drop it",
)
def window_excludes_context_parallelism(facts: RuleContext) -> Iterator[Violation]:
    """Attention windows are not implemented under context parallelism, so the two exclude each other."""
    window = facts.number("sliding-window")
    shorter = facts.number("seq-length") > window and facts.version != "2.1.0"
    if _algorithm(facts) is not None and window and not shorter:
        yield Violation(
            message=f"sliding_window {window} under context parallelism (cp {facts.number(_SIZE, 1)})",
            flags=("sliding-window", _SIZE),
        )


@rule(
    "MS-CP-SLIDING",
    source=f"{_LLM}:54",
    reads="sliding-window seq-length context-parallel-size context-parallel-algo",
    backends=_MINDSPEED,
    since="26.1.0",
)
def short_window_excludes_context_parallelism(facts: RuleContext) -> Iterator[Violation]:
    """An attention window shorter than the sequence is rejected under context parallelism."""
    window, length = facts.number("sliding-window"), facts.number("seq-length")
    if _algorithm(facts) is not None and window and length > window:
        yield Violation(
            message=f"sliding_window {window} is shorter than seq_length {length}: refused under context parallelism "
            f"(cp {facts.number(_SIZE, 1)})",
            flags=("sliding-window", _SIZE, "seq-length"),
        )


_ALL = (
    Rule(
        id="MS-CP-UNUSED",
        when=f"{_SIZE}<=1 & {_ALGORITHM}?",
        doc="The algorithm of context parallelism does nothing where there is one context-parallel rank.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message=f"--{_ALGORITHM} {{{_ALGORITHM}}} has no effect at cp 1",
        about=(_SIZE,),
    ),
    Rule(
        id="MS-CP-UNUSED-DEGREE",
        when=f"{_SIZE}<=1 & {_DEGREE}?",
        doc="The degree of the hybrid algorithm does nothing where there is one context-parallel rank.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message=f"--{_DEGREE} {{{_DEGREE}}} has no effect at cp 1",
    ),
    Rule(
        id="MS-CP-UNUSED-WINDOW",
        when=f"{_SIZE}<=1 & {_WINDOW}>1",
        doc="The window of a double ring does nothing where there is one context-parallel rank.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message=f"--{_WINDOW} {{{_WINDOW}}} has no effect at cp 1",
    ),
    Rule(
        id="MS-CP-KV-REPEAT-OFF",
        when=f"{_SIZE}<=1 & kv-head-repeat-before-uly-alltoall?",
        doc="Repeating key/value heads is switched off where there is one context-parallel rank.",
        source="MindSpeed-LLM 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py:21",
        severity="change",
        message="kv_head_repeat_before_uly_alltoall true → false: there is no context parallelism",
    ),
    Rule(
        id="MS-CP-KV-REPEAT-FORCED",
        when=f"{_SIZE}>1 & kv-head-repeat-before-uly-alltoall?",
        doc="The switch is store_true with the default true, so it cannot be turned off and giving it does nothing.",
        source="MindSpeed-LLM 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py:16",
        severity="warning",
        message="--kv-head-repeat-before-uly-alltoall is always on and cannot be switched off: it can be left out",
    ),
    Rule(
        id="MS-CP-FLASH",
        when=f"{_SIZE}>1 & !use-flash-attn & {_ALGORITHM}!=kvallgather_cp_algo",
        doc="Context parallelism works on flash attention only, which is switched on.",
        source=f"{_FEATURE}:51, 80; {_ULYSSES}:34; {_OLD}:288",
        severity="change",
        message="use_flash_attn false → true: context parallelism works on flash attention only",
        about=("use-flash-attn",),
    ),
    Rule(
        id="MS-CP-DEGREE-UNUSED",
        when=f"{_SIZE}>1 & {_DEGREE}? & {_ALGORITHM}!=hybrid_cp_algo|hybrid_adaptive_cp_algo",
        doc="Only the hybrid algorithms have a degree.",
        source=f"{_FEATURE}:58",
        severity="warning",
    ),
)
declare(_ALL, backends=_MINDSPEED)

_NEW = (
    Rule(
        id="MS-CP-TRANSFORMER-IMPL",
        when=f"{_SIZE}>1",
        then="transformer-impl?",
        doc="It is read before Megatron's defaults exist, so it must be written out under context parallelism.",
        source=f"{_LLM}:115; features_manager/transformer/flash_attention/reset_attention_mask_feature.py:55",
    ),
    Rule(
        id="MS-CP-ALIBI",
        when=f"{_SIZE}>1 & position-embedding-type=alibi",
        doc="ALiBi positions are refused under context parallelism.",
        source=f"{_LLM}:50; {_FEATURE}:44, 55",
    ),
    Rule(
        id="MS-CP-KV-CACHE-FLAG",
        when=f"{_SIZE}>1 & use-kv-cache",
        doc="The key/value cache of inference is refused under context parallelism.",
        source=f"{_LLM}:52",
    ),
    Rule(
        id="MS-CP-ALLGATHER-MASK",
        when=f"{_SIZE}>1 & {_ALGORITHM}=kvallgather_cp_algo",
        then="attention-mask-type=causal",
        doc="Gathering keys and values is written for the causal mask only.",
        source=f"{_FEATURE}:85; {_LLM}:61",
    ),
    Rule(
        id="MS-CP-CACHE-POLICY",
        when=f"context-parallel-kv-cache-policy & {_SIZE}<=1",
        doc="A policy for keeping keys and values needs context parallelism.",
        source=f"{_CACHE}:33",
    ),
    Rule(
        id="MS-CP-CACHE-POLICY-FLASH",
        when=f"context-parallel-kv-cache-policy & {_SIZE}>1 & {_ALGORITHM}=kvallgather_cp_algo|mamba_cp_algo",
        then="use-flash-attn",
        doc="A policy for keeping keys and values needs flash attention.",
        source=f"{_CACHE}:36",
    ),
    Rule(
        id="MS-CP-CACHE-INTERVAL",
        when="context-parallel-cache-interval!=0 & !context-parallel-kv-cache-policy",
        then="context-parallel-kv-cache-policy",
        doc="An interval belongs to a policy for keeping keys and values.",
        source=f"{_CACHE}:42",
    ),
    Rule(
        id="MS-CP-CACHE-INTERVAL-LOW",
        when="context-parallel-cache-interval<0",
        doc="The interval of the key/value cache cannot be negative.",
        source=f"{_CACHE}:50",
    ),
    Rule(
        id="MS-CP-ALLGATHER-KV",
        when=f"use-ulysses-allgather-kv & {_SIZE}<=1",
        doc="Gathering keys and values inside Ulysses needs context parallelism.",
        source=f"{_CACHE}:56",
    ),
    Rule(
        id="MS-CP-ALLGATHER-KV-ULYSSES",
        when=f"use-ulysses-allgather-kv & {_SIZE}>1",
        then=f"{_ALGORITHM}=ulysses_cp_algo",
        doc="Gathering keys and values is a variant of Ulysses.",
        source=f"{_CACHE}:59",
    ),
    Rule(
        id="MS-CP-ALLGATHER-KV-GQA",
        when=f"use-ulysses-allgather-kv & {_SIZE}>1 & {_ALGORITHM}=ulysses_cp_algo",
        then="group-query-attention",
        doc="Gathering keys and values is worth it, and written, for grouped queries only.",
        source=f"{_CACHE}:63",
    ),
    Rule(
        id="MS-CP-RING-PACKED",
        when=f"{_SIZE}>1 & {_ALGORITHM}=megatron_cp_algo & reset-attention-mask & attention-mask-type=causal",
        doc="Ring attention over packed samples lets micro-batches differ in length.",
        source="MindSpeed-LLM 26.1.0 reset_attention_mask_feature.py",
        severity="change",
        message="variable_seq_lengths false → true: ring attention over packed samples",
    ),
    Rule(
        id="MS-CP-RING-UPDATE",
        when=f"use-fused-ring-attention-update & {_SIZE}<=1",
        doc="The fused update of ring attention does nothing without context parallelism.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message="--use-fused-ring-attention-update has no effect at cp 1",
    ),
)
declare(_NEW, backends=_MINDSPEED, since="26.1.0")


@rule(
    "MS-CP-CACHE-INTERVAL-HIGH",
    source=f"{_CACHE}:46",
    reads="context-parallel-cache-interval num-layers",
    backends=_MINDSPEED,
    since="26.1.0",
)
def cache_interval_is_below_layers(facts: RuleContext) -> Iterator[Violation]:
    """The interval of the key/value cache must be smaller than the number of layers."""
    interval, layers = facts.number("context-parallel-cache-interval"), facts.number("num-layers")
    if interval and layers and interval >= layers:
        yield Violation(
            message=f"context_parallel_cache_interval {interval} is not below the {layers} layers",
            flags=("context-parallel-cache-interval", "num-layers"),
        )


@rule(
    "MS-CP-DEEPSEEK4",
    source=f"{_LLM}:56",
    reads="context-parallel-size context-parallel-algo spec",
    backends=_MINDSPEED,
    since="26.1.0",
)
def deepseek4_gathers_keys(facts: RuleContext) -> Iterator[Violation]:
    """DeepSeek-V4 layers support one algorithm of context parallelism."""
    algorithm, spec = _algorithm(facts), facts.flag("spec")
    text = " ".join(spec) if isinstance(spec, (list, tuple)) else str(spec)
    if algorithm not in (None, "kvallgather_cp_algo") and "deepseek4_spec" in text:
        yield Violation(
            message=f"DeepSeek-V4 layers under context parallelism need kvallgather_cp_algo, not {algorithm}",
            flags=(_ALGORITHM, "spec"),
        )


_WAS = (
    Rule(
        id="MS-CP-RING-UPDATE-OLD",
        when=f"use-fused-ring-attention-update & {_SIZE}<=1",
        doc="The fused update of ring attention needs context parallelism.",
        source=f"{_OLD}:284",
    ),
    Rule(
        id="MS-CP-MCORE-OLD",
        when=f"{_SIZE}>1",
        then="use-mcore-models",
        doc="Context parallelism works on Megatron-core models only.",
        source=f"{_OLD}:291",
    ),
    Rule(
        id="MS-CP-PACKED-RING-OLD",
        when=f"{_SIZE}>1 & reset-attention-mask & attention-mask-type=causal",
        then=f"{_ALGORITHM}=megatron_cp_algo",
        doc="Packed samples under context parallelism work with ring attention only.",
        source=f"{_OLD}:980",
    ),
)
declare(_WAS, backends=_MINDSPEED, until="2.1.0")
