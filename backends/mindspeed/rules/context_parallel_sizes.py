"""Sizes of context parallelism on Ascend: heads, rings, windows and degrees divide one another."""

from collections.abc import Iterator

from backends.mindspeed.rules.tables import MINDSPEED, OLD_ARGUMENTS
from launcher.rules.registry import RuleContext, Violation, rule

FEATURE = "MindSpeed 26.1.0 features_manager/context_parallel/context_parallel_feature.py"
ULYSSES = "MindSpeed 26.1.0 features_manager/context_parallel/ulysses_context_parallel.py"

ALGORITHM = "context-parallel-algo"
SIZE = "context-parallel-size"
DEGREE = "ulysses-degree-in-cp"
WINDOW = "cp-window-size"
HYBRIDS = ("hybrid_cp_algo", "hybrid_adaptive_cp_algo")


def algorithm_of(facts: RuleContext) -> str | None:
    """Return the algorithm in use; None without context parallelism."""
    return str(facts.flag(ALGORITHM)) if facts.number(SIZE, 1) > 1 else None


def _ring(facts: RuleContext) -> int | None:
    """Return the size of the rings; None if there are none or the sizes do not fit."""
    algorithm, size = algorithm_of(facts), facts.number(SIZE, 1)
    if algorithm == "megatron_cp_algo":
        return size
    degree = facts.number(DEGREE)
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
    source=f"{ULYSSES}:33; {OLD_ARGUMENTS}:264",
    reads="context-parallel-size context-parallel-algo num-attention-heads tensor-model-parallel-size",
    backends=MINDSPEED,
)
def ulysses_divides_heads(facts: RuleContext) -> Iterator[Violation]:
    """Ulysses gives every context-parallel rank whole heads: heads must be a multiple of cp x tp."""
    if algorithm_of(facts) == "ulysses_cp_algo":
        yield from _head_fault(facts, facts.number(SIZE, 1), SIZE)


@rule(
    "MS-CP-MAMBA-HEADS",
    source="MindSpeed-LLM 26.1.0 features_manager/context_parallel/mamba_context_parallel.py:28",
    reads="context-parallel-size context-parallel-algo num-attention-heads tensor-model-parallel-size",
    backends=MINDSPEED,
    since="26.1.0",
)
def mamba_divides_heads(facts: RuleContext) -> Iterator[Violation]:
    """Mamba's context parallelism gives every rank whole heads: heads must be a multiple of cp x tp."""
    if algorithm_of(facts) == "mamba_cp_algo":
        yield from _head_fault(facts, facts.number(SIZE, 1), SIZE)


@rule(
    "MS-CP-KV-REPEAT",
    source=f"{OLD_ARGUMENTS}:269 (the switch cannot be turned off)",
    reads="context-parallel-size context-parallel-algo num-query-groups ulysses-degree-in-cp "
    "tensor-model-parallel-size group-query-attention",
    severity="change",
    backends=MINDSPEED,
)
def ulysses_repeats_key_value_heads(facts: RuleContext) -> Iterator[Violation]:
    """With fewer query groups than cp x tp, Ulysses repeats key/value heads before its all-to-all."""
    algorithm, groups = algorithm_of(facts), facts.number("num-query-groups")
    share = facts.number(SIZE, 1) if algorithm == "ulysses_cp_algo" else facts.number(DEGREE)
    tp = facts.number("tensor-model-parallel-size", 1)
    known = algorithm == "ulysses_cp_algo" or algorithm in HYBRIDS
    cut = share * tp
    if known and share and facts.flag("group-query-attention") and 0 < groups < cut and cut % groups == 0:
        yield Violation(
            message=f"num_key_value_heads {groups} → repeated to {cut} (Ulysses share {share} × tp {tp}) before the "
            "all-to-all: more memory and communication",
            flags=("num-query-groups", SIZE, DEGREE, "tensor-model-parallel-size"),
        )


@rule(
    "MS-CP-GROUPS-TP",
    source=f"{OLD_ARGUMENTS}:267",
    reads="num-query-groups tensor-model-parallel-size context-parallel-size context-parallel-algo "
    "group-query-attention",
    backends=MINDSPEED,
    until="2.1.0",
)
def groups_divide_by_tp_under_context_parallelism(facts: RuleContext) -> Iterator[Violation]:
    """Under Ulysses and hybrid context parallelism, tensor parallelism splits the query groups evenly."""
    groups, tp = facts.number("num-query-groups", 1), facts.number("tensor-model-parallel-size", 1)
    known = algorithm_of(facts) in ("ulysses_cp_algo", "hybrid_cp_algo")
    if known and facts.flag("group-query-attention") and groups >= 1 and groups % tp:
        yield Violation(
            message=f"num_key_value_heads {groups} is not divisible by tp {tp}",
            flags=("num-query-groups", "tensor-model-parallel-size"),
        )


@rule(
    "MS-CP-RING-WINDOW",
    source=f"{FEATURE}:47; {OLD_ARGUMENTS}:300",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=MINDSPEED,
)
def window_is_smaller_than_ring(facts: RuleContext) -> Iterator[Violation]:
    """The inner window of a double ring is at least 1 and smaller than the ring."""
    yield from _window_fault(facts, "megatron_cp_algo")


@rule(
    "MS-CP-RING-WINDOW-DIVIDES",
    source=f"{FEATURE}:50; {OLD_ARGUMENTS}:302",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=MINDSPEED,
)
def window_divides_ring(facts: RuleContext) -> Iterator[Violation]:
    """The ring size is a multiple of the window."""
    yield from _window_rest(facts, "megatron_cp_algo")


@rule(
    "MS-CP-HYBRID-WINDOW",
    source=f"{FEATURE}:76; {OLD_ARGUMENTS}:315",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=MINDSPEED,
)
def hybrid_window_is_smaller_than_ring(facts: RuleContext) -> Iterator[Violation]:
    """Under the hybrid algorithm the ring has cp / ulysses_degree ranks, and the window is smaller than that."""
    yield from _window_fault(facts, "hybrid_cp_algo")


@rule(
    "MS-CP-HYBRID-WINDOW-DIVIDES",
    source=f"{FEATURE}:79; {OLD_ARGUMENTS}:317",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp cp-window-size",
    backends=MINDSPEED,
)
def hybrid_window_divides_ring(facts: RuleContext) -> Iterator[Violation]:
    """Under the hybrid algorithm the ring size cp / ulysses_degree is a multiple of the window."""
    yield from _window_rest(facts, "hybrid_cp_algo")


def _window_fault(facts: RuleContext, algorithm: str) -> Iterator[Violation]:
    ring, window = _ring(facts), facts.number(WINDOW, 1)
    if algorithm_of(facts) == algorithm and ring is not None and not 1 <= window < ring:
        yield Violation(
            message=f"cp_window {window} is outside 1 … {ring - 1}, for a ring of {ring}",
            flags=(WINDOW, SIZE, *((DEGREE,) if algorithm == "hybrid_cp_algo" else ())),
        )


def _window_rest(facts: RuleContext, algorithm: str) -> Iterator[Violation]:
    ring, window = _ring(facts), facts.number(WINDOW, 1)
    if algorithm_of(facts) == algorithm and ring is not None and 1 <= window < ring and ring % window:
        yield Violation(
            message=f"a ring of {ring} is not divisible by cp_window {window}",
            flags=(WINDOW, SIZE, *((DEGREE,) if algorithm == "hybrid_cp_algo" else ())),
        )


@rule(
    "MS-CP-HYBRID-DEGREE",
    source=f"{FEATURE}:60; {OLD_ARGUMENTS}:310, 328",
    reads="context-parallel-size context-parallel-algo ulysses-degree-in-cp",
    backends=MINDSPEED,
)
def hybrid_has_degree(facts: RuleContext) -> Iterator[Violation]:
    """The hybrid algorithms need the number of devices of the all-to-all part."""
    algorithm = algorithm_of(facts)
    if algorithm in HYBRIDS and facts.flag(DEGREE) is None:
        yield Violation(message=f"{algorithm} needs parallel.ulysses_degree (--{DEGREE})", flags=(DEGREE, ALGORITHM))


@rule(
    "MS-CP-HYBRID-DIVIDES",
    source=f"{FEATURE}:63; {OLD_ARGUMENTS}:312, 330",
    reads="context-parallel-size ulysses-degree-in-cp context-parallel-algo",
    backends=MINDSPEED,
)
def hybrid_degree_divides(facts: RuleContext) -> Iterator[Violation]:
    """The all-to-all part divides cp and leaves rings of at least two: else use ulysses or megatron instead."""
    size, degree = facts.number(SIZE, 1), facts.number(DEGREE)
    if algorithm_of(facts) not in HYBRIDS or facts.flag(DEGREE) is None:
        return
    if degree < 1 or size % degree:
        yield Violation(message=f"cp {size} is not divisible by ulysses_degree {degree}", flags=(DEGREE, SIZE))
    elif size == degree:
        yield Violation(
            message=f"ulysses_degree {degree} = cp leaves rings of 1: use cp_algorithm ulysses, or a smaller degree",
            flags=(DEGREE, SIZE, ALGORITHM),
        )


@rule(
    "MS-CP-HYBRID-HEADS",
    source=f"{FEATURE}:70; {OLD_ARGUMENTS}:264, 332",
    reads="context-parallel-size context-parallel-algo num-attention-heads tensor-model-parallel-size "
    "ulysses-degree-in-cp",
    backends=MINDSPEED,
)
def hybrid_divides_heads(facts: RuleContext) -> Iterator[Violation]:
    """The all-to-all part gives every rank whole heads: heads must be a multiple of ulysses_degree x tp."""
    if algorithm_of(facts) in HYBRIDS:
        yield from _head_fault(facts, facts.number(DEGREE), DEGREE)
