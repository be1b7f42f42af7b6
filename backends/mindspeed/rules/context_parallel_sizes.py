"""Sizes of context parallelism on Ascend: heads, rings, windows and degrees divide one another."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import MINDSPEED, OLD_ARGUMENTS, SINCE
from launcher.rules.registry import RuleContext, Violation, rule
from launcher.rules.table import checked, declare, needs, never

FEATURE = "MindSpeed 26.1.0 features_manager/context_parallel/context_parallel_feature.py"
ULYSSES = "MindSpeed 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py"

ALGORITHM = "context-parallel-algo"
SIZE = "context-parallel-size"
DEGREE = "ulysses-degree-in-cp"
WINDOW = "cp-window-size"
TP = "tensor-model-parallel-size"
HYBRIDS = ("hybrid_cp_algo", "hybrid_adaptive_cp_algo")


def algorithm_of(context: RuleContext) -> str | None:
    """Return the algorithm in use; None without context parallelism."""
    return str(context.flag(ALGORITHM)) if context.number(SIZE, 1) > 1 else None


def _ring(context: RuleContext) -> int | None:
    """Return the size of the rings; None if there are none or the sizes do not fit."""
    algorithm, size = algorithm_of(context), context.number(SIZE, 1)
    if algorithm == "megatron_cp_algo":
        return size
    degree = context.number(DEGREE)
    if algorithm != "hybrid_cp_algo" or degree < 1 or size % degree or size == degree:
        return None
    return size // degree


@rule(
    "MS-CP-KV-REPEAT",
    source=f"{OLD_ARGUMENTS}:269 (the switch cannot be turned off)",
    reads="context-parallel-size context-parallel-algo num-query-groups ulysses-degree-in-cp "
    "tensor-model-parallel-size group-query-attention",
    severity="change",
    backends=MINDSPEED,
)
def ulysses_repeats_key_value_heads(context: RuleContext) -> Iterator[Violation]:
    """With fewer query groups than cp x tp, Ulysses repeats key/value heads before its all-to-all."""
    algorithm, groups = algorithm_of(context), context.number("num-query-groups")
    share = context.number(SIZE, 1) if algorithm == "ulysses_cp_algo" else context.number(DEGREE)
    tp = context.number("tensor-model-parallel-size", 1)
    known = algorithm == "ulysses_cp_algo" or algorithm in HYBRIDS
    cut = share * tp
    if known and share and context.flag("group-query-attention") and 0 < groups < cut and cut % groups == 0:
        yield Violation(
            message=f"num_key_value_heads {groups} → repeated to {cut} (Ulysses share {share} × tp {tp}) before the "
            "all-to-all: more memory and communication",
            flags=("num-query-groups", SIZE, DEGREE, "tensor-model-parallel-size"),
        )


@rule(
    "MS-CP-HYBRID-DIVIDES",
    source=f"{FEATURE}:63; {OLD_ARGUMENTS}:312, 330",
    reads="context-parallel-size ulysses-degree-in-cp context-parallel-algo",
    backends=MINDSPEED,
)
def hybrid_degree_divides(context: RuleContext) -> Iterator[Violation]:
    """The all-to-all part divides cp and leaves rings of at least two: else use ulysses or megatron instead."""
    size, degree = context.number(SIZE, 1), context.number(DEGREE)
    if algorithm_of(context) not in HYBRIDS or context.flag(DEGREE) is None:
        return
    if degree < 1 or size % degree:
        yield Violation(message=f"cp {size} is not divisible by ulysses_degree {degree}", flags=(DEGREE, SIZE))
    elif size == degree:
        yield Violation(
            message=f"ulysses_degree {degree} = cp leaves rings of 1: use cp_algorithm ulysses, or a smaller degree",
            flags=(DEGREE, SIZE, ALGORITHM),
        )


def _window_outside(context: RuleContext) -> str:
    ring, window = _ring(context), context.number(WINDOW, 1)
    outside = ring is not None and not 1 <= window < ring
    return f"cp_window {window} is outside 1 … {ring - 1}, for a ring of {ring}" if ring and outside else ""


def _window_remainder(context: RuleContext) -> str:
    ring, window = _ring(context), context.number(WINDOW, 1)
    uneven = ring is not None and 1 <= window < ring and ring % window
    return f"a ring of {ring} is not divisible by cp_window {window}" if uneven else ""


_RING, _HYBRID = f"{ALGORITHM}=megatron_cp_algo", f"{ALGORITHM}=hybrid_cp_algo"
_ANY_HYBRID = f"{ALGORITHM}={'|'.join(HYBRIDS)}"
# fmt: off
declare((
    never("MS-CP-ULYSSES-HEADS", f"{ALGORITHM}=ulysses_cp_algo & num-attention-heads%{{{SIZE}}}*{{{TP}}}",
          "Ulysses gives every context-parallel rank whole heads: heads must be a multiple of cp x tp.",
          f"{ULYSSES}:33; {OLD_ARGUMENTS}:264", flags=(SIZE, TP, "num-attention-heads"),
          message=f"num_attention_heads {{num-attention-heads}} is not divisible by {SIZE} {{{SIZE}}} × tp {{{TP}}}"),
    never("MS-CP-MAMBA-HEADS", f"{ALGORITHM}=mamba_cp_algo & num-attention-heads%{{{SIZE}}}*{{{TP}}}",
          "Mamba's context parallelism gives every rank whole heads: heads must be a multiple of cp x tp.",
          "MindSpeed-LLM 26.1.0 features_manager/context_parallel/mamba_context_parallel.py:28", since=SINCE,
          message=f"num_attention_heads {{num-attention-heads}} is not divisible by {SIZE} {{{SIZE}}} × tp {{{TP}}}",
          flags=(SIZE, TP, "num-attention-heads")),
    never("MS-CP-HYBRID-HEADS", f"{_ANY_HYBRID} & {DEGREE}>0 & num-attention-heads%{{{DEGREE}}}*{{{TP}}}",
          "The all-to-all part gives every rank whole heads: heads must be a multiple of ulysses_degree x tp.",
          f"{FEATURE}:70; {OLD_ARGUMENTS}:264, 332", flags=(DEGREE, TP, "num-attention-heads"),
          message=f"num_attention_heads {{num-attention-heads}} is not divisible by {DEGREE} {{{DEGREE}}} × tp "
          f"{{{TP}}}"),
    never("MS-CP-GROUPS-TP",
          f"{ALGORITHM}=ulysses_cp_algo|hybrid_cp_algo & group-query-attention & num-query-groups%{{{TP}}}",
          "Under Ulysses and hybrid context parallelism, tensor parallelism splits the query groups evenly.",
          f"{OLD_ARGUMENTS}:267", flags=("num-query-groups", TP), until="2.1.0",
          message=f"num_key_value_heads {{num-query-groups}} is not divisible by tp {{{TP}}}"),
    needs("MS-CP-HYBRID-DEGREE", _ANY_HYBRID, f"{DEGREE}?",
          "The hybrid algorithms need the number of devices of the all-to-all part.",
          f"{FEATURE}:60; {OLD_ARGUMENTS}:310, 328", flags=(DEGREE, ALGORITHM),
          message=f"{{{ALGORITHM}}} needs parallel.ulysses_degree (--{DEGREE})"),
    checked("MS-CP-RING-WINDOW", _window_outside,
            "The inner window of a double ring is at least 1 and smaller than the ring.",
            f"{FEATURE}:47; {OLD_ARGUMENTS}:300", when=_RING, flags=(WINDOW, SIZE)),
    checked("MS-CP-RING-WINDOW-DIVIDES", _window_remainder,
            "The ring size is a multiple of the window.", f"{FEATURE}:50; {OLD_ARGUMENTS}:302", when=_RING,
            flags=(WINDOW, SIZE)),
    checked("MS-CP-HYBRID-WINDOW", _window_outside,
            "Under the hybrid algorithm the ring has cp / ulysses_degree ranks, and the window is smaller than that.",
            f"{FEATURE}:76; {OLD_ARGUMENTS}:315", when=_HYBRID, flags=(WINDOW, SIZE, DEGREE)),
    checked("MS-CP-HYBRID-WINDOW-DIVIDES", _window_remainder,
            "Under the hybrid algorithm the ring size cp / ulysses_degree is a multiple of the window.",
            f"{FEATURE}:79; {OLD_ARGUMENTS}:317", when=_HYBRID, flags=(WINDOW, SIZE, DEGREE)),
), backends=MINDSPEED, when=f"{SIZE}>1")
# fmt: on
