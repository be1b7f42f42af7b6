"""Rows for batch, schedule, training loop and seed."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import (
    BEFORE_0_18,
    ONLY_MEGATRON_LOOP,
    added_in_0_9,
    chosen,
    listed,
    many,
    valued,
    when_set,
)
from backends.megatron_lm.mapping.ramp import Ramp
from launcher.job import Job, Value
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, switch, switch_off, warning

_RAMPUP, _RAMPUP_FLAG = "batch.rampup_batch_size", "rampup-batch-size"
_BATCH = "batch.global_batch_size"
_NUMBERS = "it takes three numbers: first size, step, sequences"


def batch() -> tuple[Row, ...]:
    """Return the rows of batch sizes, sequence length, packing and batch size ramp-up."""
    return (
        valued("batch.micro_batch_size", "micro-batch-size", None),
        when_set(_BATCH, "global-batch-size", until=BEFORE_0_18),
        when_set(_BATCH, "global-batch-size", when=lambda job: not job.batch.rampup_batch_size, since="0.18"),
        when_set("batch.seq_length", "seq-length"),
        packing(),
        rampup(int, since="0.16", until=BEFORE_0_18),
        rampup(str, until="0.15.9"),
        batch_schedule(),
    )


def packing() -> Row:
    """Return the row that rejects unpacked pre-training: Megatron's token dataset always fills its sequences."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.batch.packing is False and job.task.type == "pretrain":
            raise Unsupported("batch.packing", "token files are cut into full sequences", ("batch.packing=true",))
        if job.batch.packing and job.task.type == "sft":
            why = "--sft packs only what one line of the JSONL holds"
            raise Unsupported("batch.packing", why, ("batch.packing=false",))
        return ()

    return Row(fields=("batch.packing", "task.type"), flags=(), emit=emit)


def rampup(number: type, since: str | None = None, until: str | None = None) -> Row:
    """Return the row of the batch size ramp-up; before 0.16 the parser keeps its three numbers as strings."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.batch.rampup_batch_size
        if not wanted:
            return
        if len(wanted) != 3:
            raise Unsupported(_RAMPUP, _NUMBERS, (f"{_RAMPUP}=[]",))
        yield _RAMPUP_FLAG, tuple(number(each) for each in wanted)

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(_RAMPUP_FLAG):
            return {}
        numbers = tuple(int(number) for number in many(view.peek(_RAMPUP_FLAG)))
        view.take(_RAMPUP_FLAG)
        return {_RAMPUP: numbers}

    return Row(fields=(_RAMPUP,), flags=(_RAMPUP_FLAG,), emit=emit, read=read, since=since, until=until)


def batch_schedule() -> Row:
    """Return the row of the batch size ramp-up where it is a schedule of batch sizes in tokens."""
    flags = ("step-batch-size-schedule", "eval-global-batch-size")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        batch, length = job.batch.global_batch_size, job.batch.seq_length
        if not job.batch.rampup_batch_size:
            return
        constant = (f"{_RAMPUP}=[]",)
        if job.schedule.train_samples is None:
            why = "a job whose batch grows is counted in samples (schedule.train_samples)"
            raise Unsupported(_RAMPUP, why, constant)
        if batch is None or length is None:
            raise Unsupported(_RAMPUP, f"it needs {_BATCH} and batch.seq_length", constant)
        if len(job.batch.rampup_batch_size) != 3:
            raise Unsupported(_RAMPUP, _NUMBERS, constant)
        start, step, samples = job.batch.rampup_batch_size
        try:
            ramp = Ramp(start=start, step=step, samples=samples, batch=batch)
        except ValueError as error:
            raise Unsupported(_RAMPUP, str(error), constant) from None
        yield flags[0], ramp.schedule(length)
        if flags[1] not in job.backend.passthrough:
            yield flags[1], batch

    def read(view: NativeView) -> Mapping[str, Value]:
        length = view.peek("seq-length")
        ramp = Ramp.of(str(view.peek(flags[0], "")), length) if isinstance(length, int) and length > 0 else None
        # Without it evaluation has a batch of one micro-batch for each replica (arguments.py:706 @core_v0.18.2).
        if ramp is None or view.peek(flags[1]) != ramp.batch or view.has("global-batch-size"):
            return {}
        view.take(flags[0])
        view.take(flags[1])
        return {_RAMPUP: (ramp.start, ramp.step, ramp.samples), _BATCH: ramp.batch}

    return Row(
        fields=(_RAMPUP, _BATCH, "batch.seq_length", "schedule.train_samples"),
        flags=flags,
        emit=emit,
        read=read,
        since="0.18",
        derived=True,
        note="The same sizes at the same samples; the schedule gives the global batch size, and evaluation its own.",
    )


def schedule() -> tuple[Row, ...]:
    """Return the rows of length and learning-rate schedule; sample-based jobs count their schedule in samples."""
    return (
        when_set("schedule.train_iters", "train-iters"),
        when_set("schedule.train_samples", "train-samples"),
        valued("schedule.lr_decay_style", "lr-decay-style", "linear", note="Megatron's own default is linear."),
        _counted("lr_decay", "lr-decay"),
        _counted("lr_warmup", "lr-warmup"),
        when_set("schedule.lr_warmup_fraction", "lr-warmup-fraction"),
        when_set("schedule.lr_warmup_init", "lr-warmup-init"),
        *wsd(),
        *training_loop(),
    )


def wsd() -> tuple[Row, ...]:
    """Return the rows of the warm-up, stable, decay schedule."""
    styles = ("exponential", "linear", "cosine", "minus_sqrt")
    return (
        chosen("schedule.lr_wsd_decay_style", "lr-wsd-decay-style", {name: name for name in styles}, since="0.13"),
        chosen(
            "schedule.lr_wsd_decay_style", "lr-wsd-decay-style", {name: name for name in styles[:3]}, until="0.12.9"
        ),
        _counted("lr_wsd_decay", "lr-wsd-decay"),
    )


def _counted(name: str, flag: str) -> Row:
    """Return a row for a length that is `FLAG-iters`, or `FLAG-samples` where training is counted in samples."""
    steps, samples = f"schedule.{name}_iters", f"schedule.{name}_samples"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        iterations, given = getattr(job.schedule, f"{name}_iters"), getattr(job.schedule, f"{name}_samples")
        if given is not None and iterations is not None:
            raise Unsupported(samples, f"{steps}={iterations} is set too", (f"{samples}=null", f"{steps}=null"))
        if given is not None:
            yield f"{flag}-samples", given
        elif iterations is None:
            return
        elif job.schedule.train_samples is None:
            yield f"{flag}-iters", iterations
        elif job.batch.global_batch_size is None or job.batch.rampup_batch_size:
            why = "with schedule.train_samples it is counted in samples"
            raise Unsupported(steps, f"{why}: set {samples}")
        else:
            yield f"{flag}-samples", iterations * job.batch.global_batch_size

    def read(view: NativeView) -> Mapping[str, Value]:
        found = {steps: f"{flag}-iters", samples: f"{flag}-samples"}
        return {path: view.take(given) for path, given in found.items() if view.has(given)}

    return Row(
        fields=(steps, samples, "schedule.train_samples", "batch.global_batch_size", "batch.rampup_batch_size"),
        flags=(f"{flag}-iters", f"{flag}-samples"),
        emit=emit,
        read=read,
    )


def training_loop() -> tuple[Row, ...]:
    """Return the rows of skipped iterations, early exit, evaluation only, synchronization and garbage collection."""
    return (
        listed("schedule.skip_iterations", "iterations-to-skip", since="0.12"),
        when_set("schedule.exit_interval", "exit-interval"),
        when_set("schedule.exit_minutes", "exit-duration-in-mins"),
        switch("batch.decrease_batch_size_if_needed", "decrease-batch-size-if-needed", since="0.12"),
        switch("schedule.skip_train", "skip-train"),
        when_set("schedule.sync_interval", "train-sync-interval", since="0.12"),
        switch_off("kernels.manual_gc_eval", "no-manual-gc-eval"),
    )


def seed() -> Row:
    """Return the row of the seed."""
    return valued("seed", "seed", 1234, note="Megatron's own default is 1234.")


UNSUPPORTED: Mapping[str, Gap] = {
    "batch.padding_free": warning("samples of a batch are separated", False),
    "batch.variable_seq_lengths": warning("training resets it to false (validate_args)", False),
    "schedule.epochs": Gap(why="training is counted in steps or samples", works=("schedule.train_iters=1000",)),
}
BEFORE_0_12: Mapping[str, Gap] = {
    "batch.decrease_batch_size_if_needed": added_in_0_9(False),
    "schedule.sync_interval": added_in_0_9(severity="warning"),
}
# For backends without Megatron-LM's training loop.
WITHOUT_MEGATRON_LOOP: Mapping[str, Gap] = {
    "schedule.sync_interval": warning(ONLY_MEGATRON_LOOP),
    "kernels.manual_gc_eval": warning("it has no such switch; training is unaffected", True),
    "schedule.skip_train": Gap(why="it trains", neutral=(False,), works=("schedule.skip_train=false",)),
    "batch.decrease_batch_size_if_needed": Gap(
        why="the processes must divide the global batch", neutral=(False,), works=("batch.global_batch_size=…",)
    ),
}
