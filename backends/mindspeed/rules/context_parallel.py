"""Context parallelism on Ascend: the masks, attention and caches that each algorithm supports."""

from collections.abc import Iterator

from backends.mindspeed.rules.context_parallel_sizes import (
    ALGORITHM,
    DEGREE,
    FEATURE,
    HYBRIDS,
    SIZE,
    ULYSSES,
    WINDOW,
    algorithm_of,
)
from backends.mindspeed.rules.tables import MINDSPEED, OLD_ARGUMENTS, SINCE
from launcher.rules.registry import Rule, RuleContext, Violation, rule
from launcher.rules.table import declare, needs, never

CACHE = "MindSpeed 26.1.0 features_manager/context_parallel/context_parallel_kv_cache.py"
LLM_FEATURE = "MindSpeed-LLM 26.1.0 features_manager/context_parallel/context_parallel_feature.py"


@rule(
    "MS-CP-GENERAL-MBS",
    source=f"MindSpeed-LLM parameter guide §25.5-25.8; {OLD_ARGUMENTS}:307, 320, 325, 335",
    reads="context-parallel-size context-parallel-algo micro-batch-size attention-mask-type cp-attention-mask-type",
    backends=MINDSPEED,
    stricter=True,
    enforced_until="2.1.0",
    reason="since 2.2.0 it accepts more than one sequence with a general mask, but uses one mask for all of them",
)
def general_mask_takes_one_sequence(context: RuleContext) -> Iterator[Violation]:
    """A general attention mask is one mask per micro-batch, so a micro-batch has one sequence."""
    algorithm, size = algorithm_of(context), context.number("micro-batch-size", 1)
    flag = "cp-attention-mask-type" if context.version == "2.1.0" else "attention-mask-type"
    if (
        algorithm in ("megatron_cp_algo", "adaptive_cp_algo", *HYBRIDS)
        and context.flag(flag) == "general"
        and size != 1
    ):
        yield Violation(
            message=f"the general attention mask under {algorithm} needs micro_batch_size 1, not {size}",
            flags=("micro-batch-size", flag),
        )


@rule(
    "MS-CP-NO-ADAPTIVE",
    source="MindSpeed-LLM 2.2.0: choices of --context-parallel-algo",
    reads="job.parallel.cp_algorithm context-parallel-algo",
    backends=MINDSPEED,
    since=SINCE,
)
def adaptive_algorithms_are_gone(context: RuleContext) -> Iterator[Violation]:
    """The adaptive algorithms were removed after 2.1.0; the parser rejects their names."""
    wanted = str(context.job.parallel.cp_algorithm or "")
    native = str(context.flag(ALGORITHM))
    if wanted in ("adaptive", "hybrid_adaptive") or "adaptive" in native:
        name = native if "adaptive" in native else f"{wanted}_cp_algo"
        yield Violation(
            message=f"{name} was removed after 2.1.0: use megatron, hybrid or ulysses, or backend.version=2.1.0",
            fields=("parallel.cp_algorithm",),
            flags=(ALGORITHM,),
        )


@rule(
    "MS-CP-SLIDING-ANY",
    source="MindSpeed-LLM parameter guide §25.9; MindSpeed-LLM 2.1.0 training/arguments.py:338",
    reads="sliding-window seq-length context-parallel-size context-parallel-algo",
    backends=MINDSPEED,
    stricter=True,
    enforced_until="2.1.0",
    reason="it refuses only windows shorter than the sequence; a longer one has no effect: remove it",
)
def window_excludes_context_parallelism(context: RuleContext) -> Iterator[Violation]:
    """Attention windows are not implemented under context parallelism, so the two exclude each other."""
    window = context.number("sliding-window")
    shorter = context.number("seq-length") > window and context.version != "2.1.0"
    if algorithm_of(context) is not None and window and not shorter:
        yield Violation(
            message=f"sliding_window {window} cannot be combined with cp {context.number(SIZE, 1)}",
            flags=("sliding-window", SIZE),
        )


_ALL = (
    Rule(
        id="MS-CP-UNUSED",
        when=f"{SIZE}<=1 & {ALGORITHM}?",
        doc="The algorithm of context parallelism does nothing where there is one context-parallel rank.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message=f"--{ALGORITHM} {{{ALGORITHM}}} has no effect at cp 1",
        about=(SIZE,),
    ),
    Rule(
        id="MS-CP-UNUSED-DEGREE",
        when=f"{SIZE}<=1 & {DEGREE}?",
        doc="The degree of the hybrid algorithm does nothing where there is one context-parallel rank.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message=f"--{DEGREE} {{{DEGREE}}} has no effect at cp 1",
    ),
    Rule(
        id="MS-CP-UNUSED-WINDOW",
        when=f"{SIZE}<=1 & {WINDOW}>1",
        doc="The window of a double ring does nothing where there is one context-parallel rank.",
        source="MindSpeed-LLM parameter guide §25.1",
        severity="warning",
        message=f"--{WINDOW} {{{WINDOW}}} has no effect at cp 1",
    ),
    Rule(
        id="MS-CP-KV-REPEAT-OFF",
        when=f"{SIZE}<=1",
        sets={"kv-head-repeat-before-uly-alltoall": False},
        phase="config",
        doc="Repeating key/value heads is switched off where there is one context-parallel rank.",
        source="MindSpeed-LLM 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py:21",
        severity="change",
        message="kv_head_repeat_before_uly_alltoall true → false: cp is 1",
    ),
    Rule(
        id="MS-CP-KV-REPEAT-FORCED",
        when=f"{SIZE}>1 & kv-head-repeat-before-uly-alltoall?",
        doc="The switch is store_true with the default true, so it cannot be turned off and giving it does nothing.",
        source="MindSpeed-LLM 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py:16",
        severity="warning",
        message="--kv-head-repeat-before-uly-alltoall has no effect: it is always on",
    ),
    Rule(
        id="MS-CP-FLASH",
        when=f"{SIZE}>1 & !use-flash-attn & {ALGORITHM}!=kvallgather_cp_algo",
        doc="Context parallelism works on flash attention only, which is switched on.",
        source=f"{FEATURE}:51, 80; {ULYSSES}:34; {OLD_ARGUMENTS}:288",
        severity="change",
        message="use_flash_attn false → true: context parallelism needs flash attention",
        sets={"use-flash-attn": True},
        reports_unwritten=True,
        phase="config",
        about=("use-flash-attn",),
    ),
    Rule(
        id="MS-CP-ALLGATHER-LOCAL",
        when=f"{SIZE}>1 & {ALGORITHM}=kvallgather_cp_algo & transformer-impl!=transformer_engine & "
        "!enable-dsa-indexer & !use-sparse-flash-attn & !enable-mhc",
        check=lambda context: "deepseek4_spec" not in str(context.flag("spec")),  # its layers gather themselves
        reads="spec",
        flags=("context-parallel-algo", "transformer-impl"),
        doc="Keys and values are gathered in Transformer Engine's attention only: in the local one each rank's tokens "
        "attend to those of their own rank.",
        source="MindSpeed-LLM 26.1.0 mindspeed_llm/te/pytorch/attention/dot_product_attention/"
        "te_cp_dot_product_attention.py:250; MindSpeed-LLM 26.1.0 "
        "mindspeed_llm/core/context_parallel/dot_product_attention.py:276; measured: docs/parity.md",
        message=f"cp {{{SIZE}}} with kvallgather and --transformer-impl {{transformer-impl}}: each rank attends to its "
        "own tokens only, so training is wrong without an error",
        fields=("parallel.cp_algorithm", "kernels.transformer_impl"),
        since="26.0",
        stricter=True,
        reason="it trains, and no token sees those of other ranks",
    ),
    Rule(
        id="MS-CP-DEGREE-UNUSED",
        when=f"{SIZE}>1 & {DEGREE}? & {ALGORITHM}!=hybrid_cp_algo|hybrid_adaptive_cp_algo",
        doc="Only the hybrid algorithms have a degree.",
        source=f"{FEATURE}:58",
        severity="warning",
    ),
)
declare(_ALL, backends=MINDSPEED)

# fmt: off
declare((
    needs("MS-CP-TRANSFORMER-IMPL", f"{SIZE}>1", "transformer-impl?",
          "It is read before Megatron's defaults are set, so it must be written under context parallelism.",
          f"{LLM_FEATURE}:115; features_manager/transformer/flash_attention/reset_attention_mask_feature.py:55",
          since="26.0"),
    never("MS-CP-ALIBI", f"{SIZE}>1 & position-embedding-type=alibi",
          "Context parallelism does not support ALiBi.", f"{LLM_FEATURE}:50; {FEATURE}:44, 55"),
    never("MS-CP-KV-CACHE-FLAG", f"{SIZE}>1 & use-kv-cache",
          "Context parallelism does not support the key/value cache of inference.", f"{LLM_FEATURE}:52"),
    needs("MS-CP-ALLGATHER-MASK", f"{SIZE}>1 & {ALGORITHM}=kvallgather_cp_algo", "attention-mask-type=causal",
          "The kvallgather algorithm supports the causal mask only.", f"{FEATURE}:85; {LLM_FEATURE}:61", since="26.0"),
    never("MS-CP-CACHE-POLICY", f"context-parallel-kv-cache-policy & {SIZE}<=1",
          "A key/value cache policy needs context parallelism.", f"{CACHE}:33"),
    needs("MS-CP-CACHE-POLICY-FLASH",
          f"context-parallel-kv-cache-policy & {SIZE}>1 & {ALGORITHM}=kvallgather_cp_algo|mamba_cp_algo",
          "use-flash-attn",
          "A key/value cache policy needs flash attention.", f"{CACHE}:36"),
    needs("MS-CP-CACHE-INTERVAL", "context-parallel-cache-interval!=0 & !context-parallel-kv-cache-policy",
          "context-parallel-kv-cache-policy",
          "A cache interval needs a key/value cache policy.", f"{CACHE}:42"),
    never("MS-CP-CACHE-INTERVAL-LOW", "context-parallel-cache-interval<0",
          "The interval of the key/value cache cannot be negative.", f"{CACHE}:50"),
    never("MS-CP-CACHE-INTERVAL-HIGH", "context-parallel-cache-interval>={num-layers}",
          "The interval of the key/value cache must be smaller than the number of layers.", f"{CACHE}:46",
          message="context_parallel_cache_interval {context-parallel-cache-interval} must be below num_layers "
          "{num-layers}"),
    never("MS-CP-SLIDING", f"{SIZE}>1 & sliding-window & seq-length>{{sliding-window}}",
          "An attention window shorter than the sequence is rejected under context parallelism.", f"{LLM_FEATURE}:54",
          message=f"sliding_window {{sliding-window}} is shorter than seq_length {{seq-length}}: refused under context "
          f"parallelism (cp {{{SIZE}}})", flags=("sliding-window", SIZE, "seq-length")),
    never("MS-CP-ALLGATHER-KV", f"use-ulysses-allgather-kv & {SIZE}<=1",
          "Gathering keys and values inside Ulysses needs context parallelism.", f"{CACHE}:56"),
    needs("MS-CP-ALLGATHER-KV-ULYSSES", f"use-ulysses-allgather-kv & {SIZE}>1", f"{ALGORITHM}=ulysses_cp_algo",
          "Gathering keys and values is a variant of Ulysses.", f"{CACHE}:59"),
    needs("MS-CP-ALLGATHER-KV-GQA", f"use-ulysses-allgather-kv & {SIZE}>1 & {ALGORITHM}=ulysses_cp_algo",
          "group-query-attention",
          "Gathering keys and values in Ulysses supports grouped-query attention only.", f"{CACHE}:63"),
    Rule(
    id="MS-CP-RING-PACKED",
    when=f"{SIZE}>1 & {ALGORITHM}=megatron_cp_algo & reset-attention-mask & attention-mask-type=causal",
    doc="Ring attention over packed samples lets micro-batches differ in length.",
    source="MindSpeed-LLM 26.1.0 reset_attention_mask_feature.py",
    severity="change",
    message="variable_seq_lengths false → true: packed samples with ring attention need it",
    sets={"variable-seq-lengths": True},
    reports_unwritten=True,
    phase="config", since="26.1",
),
    Rule(
    id="MS-CP-RING-UPDATE",
    when=f"use-fused-ring-attention-update & {SIZE}<=1",
    doc="The fused update of ring attention does nothing without context parallelism.",
    source="MindSpeed-LLM parameter guide §25.1",
    severity="warning",
    message="--use-fused-ring-attention-update has no effect at cp 1",
),
), backends=MINDSPEED, since=SINCE)
# fmt: on


@rule(
    "MS-CP-DEEPSEEK4",
    source=f"{LLM_FEATURE}:56",
    reads="context-parallel-size context-parallel-algo spec",
    backends=MINDSPEED,
    since="26.1",
)
def deepseek4_gathers_keys(context: RuleContext) -> Iterator[Violation]:
    """DeepSeek-V4 layers support one algorithm of context parallelism."""
    algorithm, spec = algorithm_of(context), context.flag("spec")
    text = " ".join(spec) if isinstance(spec, (list, tuple)) else str(spec)
    if algorithm not in (None, "kvallgather_cp_algo") and "deepseek4_spec" in text:
        yield Violation(
            message=f"DeepSeek-V4 layers under context parallelism need kvallgather_cp_algo, not {algorithm}",
            flags=(ALGORITHM, "spec"),
        )


# fmt: off
declare((
    never("MS-CP-RING-UPDATE-OLD", f"use-fused-ring-attention-update & {SIZE}<=1",
          "The fused update of ring attention needs context parallelism.", f"{OLD_ARGUMENTS}:284"),
    needs("MS-CP-MCORE-OLD", f"{SIZE}>1", "use-mcore-models",
          "Context parallelism works on Megatron-core models only.", f"{OLD_ARGUMENTS}:291"),
    needs("MS-CP-PACKED-RING-OLD", f"{SIZE}>1 & reset-attention-mask & attention-mask-type=causal",
          f"{ALGORITHM}=megatron_cp_algo",
          "Packed samples under context parallelism work with ring attention only.", f"{OLD_ARGUMENTS}:980"),
), backends=MINDSPEED, until="2.1.0")
# fmt: on
