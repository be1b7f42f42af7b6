"""Batch size ramp-up: checks of Megatron-core's num_microbatches_calculator when training starts."""

import itertools
import math
from collections.abc import Iterator

from backends.megatron_lm.mapping.ramp import parse_schedule
from backends.megatron_lm.rules.versions import BACKENDS, BEFORE_18, PLAIN, SINCE_18
from launcher.rules.registry import RuleContext, Violation, rule

_SCHEDULE = "step-batch-size-schedule"


def _source(*lines: int) -> str:
    # The file is the same in both versions.
    return f"Megatron-core 0.12.1 and 0.16.1 num_microbatches_calculator.py:{', '.join(map(str, lines))}"


def _numbers(context: RuleContext) -> tuple[int, int, int] | None:
    """Return initial size, increment and samples; None without a ramp-up, or if it is not three numbers."""
    given = context.flag("rampup-batch-size")
    words = given if isinstance(given, (list, tuple)) else str(given or "").strip("[] ").split()
    try:
        start, step, samples = (int(str(word).strip("[],")) for word in words)
    except ValueError:
        return None
    return start, step, samples


@rule(
    "MLM-RAMPUP-NUMBERS",
    source=_source(233, 401, 404, 407),
    reads="rampup-batch-size",
    backends=BACKENDS,
    versions=BEFORE_18,
)
def ramp_is_three_numbers(context: RuleContext) -> Iterator[Violation]:
    """The ramp-up is three numbers: initial batch size, increment and number of sequences."""
    if not context.flag("rampup-batch-size"):
        return
    numbers = _numbers(context)
    if numbers is None or numbers[0] < 1 or numbers[1] < 1 or numbers[2] < 0:
        said = context.flag("rampup-batch-size")
        yield Violation(
            message=f"rampup_batch_size {said} must be three numbers: initial batch size, increment, samples",
            flags=("rampup-batch-size",),
            fields=("batch.rampup_batch_size",),
        )


@rule(
    "MLM-RAMPUP-STEPS",
    source=_source(425, 429, 436),
    reads="rampup-batch-size global-batch-size",
    backends=BACKENDS,
    versions=BEFORE_18,
)
def ramp_reaches_the_batch(context: RuleContext) -> Iterator[Violation]:
    """The global batch size is the initial size plus one or more increments; zero increments divide by zero."""
    numbers, batch = _numbers(context), context.number("global-batch-size")
    if numbers is None or not batch or numbers[1] < 1:
        return
    start, step, _ = numbers
    if batch <= start or (batch - start) % step:
        yield Violation(
            message=f"global_batch_size {batch} is not the initial {start} plus one or more increments of {step}",
            flags=("rampup-batch-size", "global-batch-size"),
            fields=("batch.rampup_batch_size", "batch.global_batch_size"),
        )


@rule(
    "MLM-RAMPUP-RANKS",
    source=_source(475),
    reads="rampup-batch-size job.parallel.dp global-batch-size micro-batch-size decrease-batch-size-if-needed",
    backends=BACKENDS,
    versions=BEFORE_18,
)
def ramp_fits_the_ranks(context: RuleContext) -> Iterator[Violation]:
    """Every batch size of the ramp-up is a multiple of micro_batch_size × dp."""
    numbers, dp = _numbers(context), context.job.parallel.dp
    batch, at_once = context.number("global-batch-size"), context.number("micro-batch-size", 1) * (dp or 0)
    if numbers is None or not at_once or context.flag("decrease-batch-size-if-needed"):
        return
    start, step, samples = numbers
    if step < 1 or batch <= start or (batch - start) % step:
        return  # reported by MLM-RAMPUP-STEPS
    uneven = next((size for size in _sizes(start, step, samples, batch) if size % at_once), None)
    if uneven is not None:
        yield Violation(
            message=f"batch size {uneven} of the ramp-up is not a multiple of micro_batch_size × dp = {at_once}",
            flags=("rampup-batch-size", "micro-batch-size"),
            fields=("batch.rampup_batch_size", "batch.micro_batch_size", "parallel.dp"),
        )


def _sizes(start: int, step: int, samples: int, batch: int) -> Iterator[int]:
    """Yield the batch sizes of the ramp-up, each once: a short increment may be skipped."""
    length, consumed = samples / ((batch - start) // step), 0
    while consumed <= samples:
        rank = int(consumed / length) if length else 0
        size = start + rank * step
        yield size
        consumed += size * max(1, math.ceil(((rank + 1) * length - consumed) / size))


def _schedule(context: RuleContext) -> list[tuple[int, int]] | None:
    """Return samples and size of each entry of the schedule; None: it has a wrong form."""
    length = context.flag("seq-length")
    return parse_schedule(str(context.flag(_SCHEDULE) or ""), length if isinstance(length, int) and length else None)


@rule(
    "MLM-STEP-VALUES",
    source="megatron-core 0.18.2 num_microbatches_calculator.py:518, 538, 539, 545, 555",
    reads=f"{_SCHEDULE} seq-length",
    backends=PLAIN,
    since=SINCE_18,
)
def schedule_has_growing_thresholds(context: RuleContext) -> Iterator[Violation]:
    """A schedule is `TOKENS:SIZE …`; the first threshold is 0, the next ones are one sequence or more apart."""
    if context.flag(_SCHEDULE) is None:
        return
    entries, wrong = _schedule(context), ""
    if not entries:
        wrong = "is not THRESHOLD:SIZE THRESHOLD:SIZE …"
    elif entries[0][0] != 0:
        wrong = "has no batch size at the start: its first threshold must be 0"
    elif any(later <= earlier for (earlier, _), (later, _) in itertools.pairwise(entries)):
        wrong = "has two batch sizes within one sequence"
    elif any(size < 1 for _, size in entries):
        wrong = "has a batch size below 1"
    if wrong:
        yield Violation(message=f"--{_SCHEDULE} {context.flag(_SCHEDULE)} {wrong}", flags=(_SCHEDULE,))


@rule(
    "MLM-STEP-RANKS",
    source="megatron-core 0.18.2 num_microbatches_calculator.py:582",
    reads=f"{_SCHEDULE} seq-length job.parallel.dp micro-batch-size train-samples",
    backends=PLAIN,
    since=SINCE_18,
)
def schedule_fits_the_ranks(context: RuleContext) -> Iterator[Violation]:
    """Every batch size that the schedule reaches is a multiple of micro_batch_size × dp."""
    entries, at_once = _schedule(context), context.number("micro-batch-size", 1) * (context.job.parallel.dp or 0)
    if not entries or not at_once or any(size < 1 for _, size in entries):
        return
    uneven = next((size for size in _reached(entries, context.number("train-samples")) if size % at_once), None)
    if uneven is not None:
        yield Violation(
            message=f"batch size {uneven} of the schedule is not a multiple of micro_batch_size × dp = {at_once}",
            flags=(_SCHEDULE, "micro-batch-size"),
            fields=("batch.rampup_batch_size", "batch.micro_batch_size", "parallel.dp"),
        )


def _reached(entries: list[tuple[int, int]], last: int) -> Iterator[int]:
    """Yield the batch sizes of a schedule with which some step trains; `last`: number of sequences, 0: unknown."""
    consumed = 0
    for at, (start, size) in enumerate(entries):
        end = entries[at + 1][0] if at + 1 < len(entries) else None
        if consumed < start or (end is not None and consumed >= end) or (last and consumed >= last):
            continue
        yield size
        if end is not None:
            consumed += size * math.ceil((end - consumed) / size)
