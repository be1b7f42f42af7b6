"""Rows for task, batch, schedule, optimizer, precision and seed."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.factories import chosen, flag_on, valued, when_given
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch


def task() -> tuple[Row, ...]:
    """Return the rows of the task type."""
    return (
        computed(
            ("task.type",),
            ("sft",),
            lambda job: (("sft", True),) if _task(job, ("pretrain", "sft")) == "sft" else (),
            lambda view: {"task.type": "sft"} if view.take("sft", False) else {"task.type": "pretrain"},
            since="0.15",
            note="--sft reads chats from JSONL instead of token files (megatron/training/datasets/sft_dataset.py).",
        ),
        computed(
            ("task.type",),
            (),
            _only_pretrain,
            lambda view: {"task.type": "pretrain"},
            until="0.14.9",
        ),
    )


def _only_pretrain(job: Job) -> Iterable[tuple[str, Value]]:
    _task(job, ("pretrain",))
    return ()


def _task(job: Job, known: tuple[str, ...]) -> str:
    if job.task.type not in known:
        raise Unsupported(
            "task.type",
            f"its trainers are {' and '.join(known)}",
            tuple(f"task.type={name}" for name in known),
        )
    return job.task.type


def batch() -> tuple[Row, ...]:
    """Return the rows of batch sizes and sequence length."""
    return (
        valued("batch.micro_batch_size", "micro-batch-size", None),
        when_given("batch.global_batch_size", "global-batch-size"),
        when_given("batch.seq_length", "seq-length"),
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


def schedule() -> tuple[Row, ...]:
    """Return the rows of length and learning-rate schedule; sample-based jobs count their schedule in samples."""
    return (
        when_given("schedule.train_iters", "train-iters"),
        when_given("schedule.train_samples", "train-samples"),
        valued("schedule.lr_decay_style", "lr-decay-style", "linear", note="Megatron's own default is linear."),
        _counted("lr_decay", "lr-decay"),
        _counted("lr_warmup", "lr-warmup"),
        when_given("schedule.lr_warmup_fraction", "lr-warmup-fraction"),
        when_given("schedule.lr_warmup_init", "lr-warmup-init"),
        *wsd(),
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
            raise Unsupported(samples, f"{steps}={iterations} says it too", (f"{samples}=null", f"{steps}=null"))
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


def optimizer() -> tuple[Row, ...]:
    """Return the rows of the optimizer."""
    return (
        chosen("optimizer.type", "optimizer", {"adam": None, "sgd": "sgd", "muon": "muon"}, "adam", since="0.16"),
        chosen("optimizer.type", "optimizer", {"adam": None, "sgd": "sgd"}, "adam", until="0.15.9"),
        when_given("optimizer.lr", "lr"),
        valued("optimizer.min_lr", "min-lr", 0.0),
        valued("optimizer.weight_decay", "weight-decay", 0.01, note="Megatron's own default is 0.01."),
        valued("optimizer.adam_beta1", "adam-beta1", 0.9),
        valued("optimizer.adam_beta2", "adam-beta2", 0.999, note="Megatron's own default is 0.999."),
        valued("optimizer.adam_eps", "adam-eps", 1e-8, quiet=True),
        when_given("optimizer.sgd_momentum", "sgd-momentum"),
        valued("optimizer.clip_grad", "clip-grad", 1.0),
        switch("optimizer.precision_aware", "use-precision-aware-optimizer"),
        when_given("optimizer.main_grads_dtype", "main-grads-dtype"),
        when_given("optimizer.main_params_dtype", "main-params-dtype"),
        *_moments("fp32", "fp16", "bf16", "fp8", since="0.13"),
        *_moments("fp32", "fp16", "fp8", until="0.12.9"),
    )


def _moments(*names: str, since: str | None = None, until: str | None = None) -> tuple[Row, ...]:
    same = {name: name for name in names}
    return (
        chosen("optimizer.exp_avg_dtype", "exp-avg-dtype", same, since=since, until=until),
        chosen("optimizer.exp_avg_sq_dtype", "exp-avg-sq-dtype", same, since=since, until=until),
    )


def precision() -> tuple[Row, ...]:
    """Return the rows of the precision."""
    recipes = ("delayed", "tensorwise", "mxfp8", "blockwise")
    return (
        computed(
            ("precision.dtype",),
            ("bf16", "fp16"),
            lambda job: () if job.precision.dtype == "fp32" else ((job.precision.dtype, True),),
            _read_dtype,
        ),
        when_given("precision.fp8_format", "fp8-format"),
        chosen("precision.fp8_recipe", "fp8-recipe", {name: name for name in recipes}, since="0.13"),
        chosen("precision.fp8_recipe", "fp8-recipe", {name: name for name in recipes[:3]}, until="0.12.9"),
        switch("precision.fp8_param_gather", "fp8-param-gather"),
        reduction(),
        flag_on("precision.attention_softmax_in_fp32", "attention-softmax-in-fp32"),
        switch("precision.apply_query_key_layer_scaling", "apply-query-key-layer-scaling"),
        switch("precision.residual_in_fp32", "fp32-residual-connection"),
        when_given("precision.initial_loss_scale", "initial-loss-scale"),
        when_given("precision.loss_scale_window", "loss-scale-window"),
        when_given("precision.loss_scale", "loss-scale"),
        switch("precision.calculate_per_token_loss", "calculate-per-token-loss"),
    )


def _read_dtype(view: NativeView) -> Mapping[str, Value]:
    for name in ("bf16", "fp16"):
        if view.take(name, False):
            return {"precision.dtype": name}
    return {"precision.dtype": "fp32"}


def reduction() -> Row:
    """Return the row of the precision of gradient reduction; with bf16, Megatron's default is fp32."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.precision.grad_reduce_in_fp32
        if wanted:
            yield "accumulate-allreduce-grads-in-fp32", True
        elif wanted is False and job.precision.dtype == "bf16":
            yield "grad-reduce-in-bf16", True

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.take("grad-reduce-in-bf16", False):
            return {"precision.grad_reduce_in_fp32": False}
        return {"precision.grad_reduce_in_fp32": True} if view.take("accumulate-allreduce-grads-in-fp32", False) else {}

    return Row(
        fields=("precision.grad_reduce_in_fp32", "precision.dtype"),
        flags=("accumulate-allreduce-grads-in-fp32", "grad-reduce-in-bf16"),
        emit=emit,
        read=read,
    )


def seed() -> tuple[Row, ...]:
    """Return the row of the seed."""
    return (valued("seed", "seed", 1234, note="Megatron's own default is 1234."),)
