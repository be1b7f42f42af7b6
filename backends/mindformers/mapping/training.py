"""Rows of training: mode, schedule, optimizer, step wrapper, precision, kernels, LoRA."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.batch_arithmetic import global_batch, steps_of
from backends.mindformers.mapping.data_pipeline import seed_row
from backends.mindformers.mapping.support import (
    KIND,
    always_written,
    drop,
    first_written,
    follows,
    is_file,
    is_legacy,
    key,
    model_kind,
    require,
)
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported, choice, same
from launcher.mapping.schedule_units import in_steps

_MODES = {"pretrain": "train", "sft": "finetune"}
_TYPE = "lr_schedule.type"
_LR, _END, _TOTAL = "lr_schedule.learning_rate", "lr_schedule.lr_end", "lr_schedule.total_steps"
_STEPS, _RATIO, _INIT = "lr_schedule.warmup_steps", "lr_schedule.warmup_ratio", "lr_schedule.warmup_lr_init"
_POWER, _DECAY_START = "lr_schedule.power", "lr_schedule.decay_start_steps"
_STYLES = {
    "ConstantWarmUpLR": "constant",
    "CosineWithWarmUpLR": "cosine",
    "LinearWithWarmUpLR": "linear",
    "PolynomialWithWarmUpLR": "linear",
    "WarmUpStableDecayLR": "WSD",
}


def general_rows() -> tuple[Row, ...]:
    """Return the top-level rows of the file."""
    return (
        _legacy(),
        choice("task.type", "run_mode", _MODES, why="MindFormers' trainer pre-trains and fine-tunes, nothing else"),
        seed_row(),
        always_written(
            "graph.distributed",
            "use_parallel",
            True,
            absent=False,
            note="else parallel_mode is left out and accumulation is silently 1",
        ),
    )


def _legacy() -> Row:
    path, flag = "model.legacy", "use_legacy"

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag) and not is_file(view):
            return {}
        return {path: True if view.take(flag, True) else None}

    note = "false is the mcore static graph; true builds the older models, and so does a file without it"
    return Row(fields=(path,), flags=(flag,), emit=lambda job: ((flag, is_legacy(job)),), read=read, note=note)


def trainer_rows() -> tuple[Row, ...]:
    """Return the rows of the section trainer."""
    flag, path = "trainer.model_name", "model.label"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flag, job.model.label or model_kind(job) or "llm"

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: view.peek(KIND, "llm")})
        return {path: view.take(flag)} if view.has(flag) else {}

    name = Row(fields=(path, "model.model_type"), flags=(flag,), emit=emit, read=read, note="a label of logs")
    return (follows("trainer.type", "CausalLanguageModelingTrainer", "task.type"), name)


def _decay_steps(job: Job) -> int | None:
    """Return the steps until min_lr; None if only epochs are given, which MindFormers converts to steps."""
    schedule = job.schedule
    decay = in_steps(job, "lr_decay")
    if decay is not None:
        return decay
    if schedule.train_iters is not None:
        return schedule.train_iters
    size = global_batch(job)
    if schedule.train_samples is not None and size and schedule.epochs is None:
        return schedule.train_samples // size
    return None


def _schedule_type(job: Job) -> str:
    style = job.schedule.lr_decay_style
    if style == "linear":
        return "LinearWithWarmUpLR" if job.optimizer.min_lr == 0 else "PolynomialWithWarmUpLR"
    names = {"constant": "ConstantWarmUpLR", "cosine": "CosineWithWarmUpLR", "WSD": "WarmUpStableDecayLR"}
    if style not in names:
        works = ("schedule.lr_decay_style=cosine", "schedule.lr_decay_style=linear")
        raise Unsupported("schedule.lr_decay_style", f"its schedules have no {style} (core/lr/lr_schedule.py)", works)
    return names[style]


def _warm_up(job: Job, total: int | None) -> tuple[str, Value]:
    schedule = job.schedule
    steps = in_steps(job, "lr_warmup")
    if steps is not None or schedule.lr_warmup_fraction is None:
        return _STEPS, steps or 0
    fraction = schedule.lr_warmup_fraction
    if total is not None and int(total * fraction) != round(total * fraction):
        exact = total * fraction
        if abs(exact - round(exact)) < 1e-6:
            # int() of the product would lose a step to rounding (lr_schedule.py:_get_lr_steps)
            return _STEPS, round(exact)
    return _RATIO, fraction


def _check_stable_decay(job: Job, total: int | None) -> int:
    schedule, path = job.schedule, "schedule.lr_wsd_decay_iters"
    style = schedule.lr_wsd_decay_style
    why = "its stable-decay schedule anneals linearly (core/lr/lr_schedule.py: WarmUpStableDecayLR)"
    require(style in (None, "linear"), "schedule.lr_wsd_decay_style", why, "schedule.lr_wsd_decay_style=linear")
    annealing = in_steps(job, "lr_wsd_decay")
    require(annealing is not None, path, "WSD needs the length of its annealing")
    require(total is not None, "schedule.train_iters", "WSD needs the length of training")
    why = "its stable phase divides step 0 by itself: without warm-up the first learning rate is not a number"
    require(bool(in_steps(job, "lr_warmup")), "schedule.lr_warmup_iters", why, "schedule.lr_warmup_iters=1")
    beyond = schedule.train_iters is not None and total is not None and schedule.train_iters > total
    why = "after lr_decay_iters its learning rate goes on falling below min_lr"
    require(not beyond, "schedule.lr_decay_iters", why, f"schedule.lr_decay_iters={schedule.train_iters}")
    return (total or 0) - (annealing or 0)


def _schedule() -> Row:
    names = ("lr_decay_style", "lr_decay_iters", "lr_warmup_iters", "lr_warmup_fraction", "lr_warmup_init")
    wsd = ("lr_wsd_decay_style", "lr_wsd_decay_iters")
    samples = ("lr_decay_samples", "lr_warmup_samples", "lr_wsd_decay_samples")
    fields = (*(f"schedule.{name}" for name in (*names, *wsd, *samples)), "optimizer.min_lr")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind, total = _schedule_type(job), _decay_steps(job)
        low, top = job.optimizer.min_lr, job.optimizer.lr
        yield _TYPE, kind
        if kind in ("PolynomialWithWarmUpLR", "WarmUpStableDecayLR"):
            why = f"its schedule needs lr_end {low} below the learning rate {top}"
            require(top is None or low < top, "optimizer.min_lr", why, "schedule.lr_decay_style=constant")
        if kind in ("CosineWithWarmUpLR", "WarmUpStableDecayLR") or low:
            yield _END, low
        if kind == "PolynomialWithWarmUpLR":
            yield _POWER, 1.0
        if kind == "WarmUpStableDecayLR":
            yield _DECAY_START, _check_stable_decay(job, total)
        yield _warm_up(job, total)
        if job.schedule.lr_warmup_init is not None:
            yield _INIT, job.schedule.lr_warmup_init
        yield _TOTAL, -1 if total is None else total

    return Row(
        fields=fields,
        flags=(_TYPE, _END, _POWER, _DECAY_START, _STEPS, _RATIO, _INIT, _TOTAL),
        emit=emit,
        read=_read_schedule,
        when=lambda job: _TYPE not in job.backend.passthrough,
        note="the whole section is always written: MindFormers' defaults hold only where it is missing; "
        "total_steps is Megatron's lr_decay_iters, the formulas are the same",
    )


def _read_schedule(view: NativeView) -> Mapping[str, Value]:
    kind = view.peek(_TYPE)
    if kind not in _STYLES:
        return {}
    if kind == "PolynomialWithWarmUpLR" and view.peek(_POWER, 1.0) != 1.0:
        return {}
    view.take(_TYPE)
    view.take(_POWER)
    found: dict[str, Value] = {"schedule.lr_decay_style": _STYLES[kind]}
    # If omitted, the end is 0 for cosine and 1e-7 for the other decaying schedules (core/lr/lr_schedule.py).
    default = 1e-7 if kind in ("PolynomialWithWarmUpLR", "WarmUpStableDecayLR") else None
    if kind != "LinearWithWarmUpLR":  # It decays to 0 and ignores lr_end.
        found["optimizer.min_lr"] = view.take(_END, default)
    if view.has(_RATIO) and view.peek(_RATIO) is not None:
        ratio = view.take(_RATIO)
        found["schedule.lr_warmup_fraction"] = ratio or None
        drop(view, {_STEPS: 0})
    elif view.has(_STEPS):
        found["schedule.lr_warmup_iters"] = view.take(_STEPS) or None
    if view.has(_INIT):
        found["schedule.lr_warmup_init"] = view.take(_INIT)
    total = view.take(_TOTAL)
    if isinstance(total, int) and total > 0 and total != steps_of(view):
        found["schedule.lr_decay_iters"] = total
    start = view.peek(_DECAY_START)
    if kind == "WarmUpStableDecayLR" and isinstance(start, int) and isinstance(total, int):
        view.take(_DECAY_START)
        found |= {"schedule.lr_wsd_decay_iters": total - start, "schedule.lr_wsd_decay_style": "linear"}
    return found


def schedule_rows() -> tuple[Row, ...]:
    """Return the rows of the section lr_schedule."""
    return (same("optimizer.lr", _LR), _schedule())


def optimizer_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of the sections optimizer and runner_wrapper."""
    why = "its SGD and Muon need settings that the job does not have"
    rows = (
        choice("optimizer.type", "optimizer.type", {"adam": "AdamW"}, why=why),
        _betas(),
        same("optimizer.adam_eps", "optimizer.eps"),
        same("optimizer.weight_decay", "optimizer.weight_decay", note="default would be 0"),
    )
    return (*rows, _optimizer_swap(version), *_wrapper_rows())


def _betas() -> Row:
    flag, paths = "optimizer.betas", ("optimizer.adam_beta1", "optimizer.adam_beta2")

    def read(view: NativeView) -> Mapping[str, Value]:
        written = view.peek(flag)
        if not isinstance(written, (list, tuple)) or len(written) != 2:
            return {}
        return dict(zip(paths, view.take(flag), strict=True))

    return Row(
        fields=paths,
        flags=(flag,),
        emit=lambda job: ((flag, (job.optimizer.adam_beta1, job.optimizer.adam_beta2)),),
        read=read,
        when=lambda job: "optimizer.type" not in job.backend.passthrough,
        note="default would be 0.9 and 0.999",
    )


def _optimizer_swap(version: str) -> Row:
    flag, path = "optimizer.swap", "offload.optimizer"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.offload.optimizer
        require(not wanted or version != "1.6.0", path, "version 1.6's AdamW has no swap", "backend.version=2.1.0")
        if wanted is not None and version != "1.6.0":
            yield flag, wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) else {}

    flags = () if version == "1.6.0" else (flag,)
    note = "needs MS_DEV_RUNTIME_CONF=switch_inline:False, which the launch sets"
    return Row(fields=(path,), flags=flags, emit=emit, read=read, note=note)


def _wrapper_rows() -> tuple[Row, ...]:
    clip, norm, path = "runner_wrapper.use_clip_grad", "runner_wrapper.max_grad_norm", "optimizer.clip_grad"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield clip, job.optimizer.clip_grad > 0
        if job.optimizer.clip_grad > 0:
            yield norm, job.optimizer.clip_grad

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(clip):
            return {}
        return {path: view.take(norm, 1.0) if view.take(clip) else 0.0}

    kind = follows(
        "runner_wrapper.type",
        "MFTrainOneStepCell",
        "optimizer.clip_grad",
        "precision.loss_scale",
        note="the step that clips and scales; with pipeline stages MindFormers replaces it",
    )
    return (kind, Row(fields=(path,), flags=(clip, norm), emit=emit, read=read), _loss_scale())


_DYNAMIC = "runner_wrapper.scale_sense."
_KIND = "DynamicLossScaleUpdateCell"
_FIRST_SCALE = 65536.0  # MindFormers' template (tools/register/template.py:478 @2.1.0)
_GROWTH = {"scale_factor": 2, "scale_window": 1000}


def _loss_scale() -> Row:
    flag = "runner_wrapper.scale_sense"
    names = ("loss_scale", "initial_loss_scale", "loss_scale_factor", "loss_scale_window")
    paths = tuple(f"precision.{name}" for name in names)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        precision = job.precision
        # Other stacks read loss scales with fp16 only; MindFormers applies them with every dtype.
        if precision.dtype != "fp16" and job.imported.backend not in (None, "mindformers"):
            yield flag, 1.0
            return
        dynamic = precision.dtype == "fp16" or precision.initial_loss_scale is not None
        if not dynamic or precision.loss_scale is not None:
            yield flag, 1.0 if precision.loss_scale is None else precision.loss_scale
            return
        yield f"{_DYNAMIC}type", _KIND
        yield f"{_DYNAMIC}loss_scale_value", int(precision.initial_loss_scale or _FIRST_SCALE)
        yield f"{_DYNAMIC}scale_factor", precision.loss_scale_factor or _GROWTH["scale_factor"]
        yield f"{_DYNAMIC}scale_window", precision.loss_scale_window or _GROWTH["scale_window"]

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag) and isinstance(view.peek(flag), (int, float)):
            scale = view.take(flag)
            return {} if scale == 1 else {paths[0]: float(scale)}
        if view.peek(f"{_DYNAMIC}type") != _KIND:
            return {}
        view.take(f"{_DYNAMIC}type")
        first = view.take(f"{_DYNAMIC}loss_scale_value", _FIRST_SCALE)
        fallback = first == _FIRST_SCALE and view.peek(key("compute_dtype")) in ("float16", "fp16")
        found: dict[str, Value] = {} if fallback else {paths[1]: float(first)}
        for path, (name, default) in zip(paths[2:], _GROWTH.items(), strict=True):
            value = view.take(f"{_DYNAMIC}{name}", default)
            found[path] = None if value == default else value
        return found

    flags = (flag, *(f"{_DYNAMIC}{name}" for name in ("type", "loss_scale_value", *_GROWTH)))
    note = "a scale counts in bf16 and fp32, too, unless the job is a port; fp16 scales dynamically without a fixed one"
    return Row(fields=paths, flags=flags, emit=emit, read=read, note=note)


_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def _compute_dtype() -> Row:
    flag = key("compute_dtype")
    names = {**{native: name for name, native in _DTYPES.items()}, **{name: name for name in _DTYPES}}

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"precision.dtype": names[view.take(flag)]} if view.peek(flag) in names and view.has(flag) else {}

    return Row(
        fields=("precision.dtype",),
        flags=(flag,),
        emit=lambda job: ((flag, _DTYPES[job.precision.dtype]),),
        read=read,
        note="weights stay fp32 (params_dtype), as Megatron's main weights do; only arithmetic is in this type",
    )


def _softmax_dtype() -> Row:
    flags = (key("softmax_compute_dtype"), key("attention_softmax_in_fp32"))
    path = "precision.attention_softmax_in_fp32"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flags[0], "float32" if job.precision.attention_softmax_in_fp32 else _DTYPES[job.precision.dtype]

    def read(view: NativeView) -> Mapping[str, Value]:
        for flag in flags:
            if view.has(flag):
                value = view.take(flag)
                return {path: value if isinstance(value, bool) else value in ("float32", "fp32")}
        return {}

    return Row(fields=(path,), flags=flags, emit=emit, read=read)


def _weight_dtype() -> Row:
    flags, path = (key("params_dtype"), key("param_init_type")), "optimizer.main_params_dtype"

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        names = {"float32": "fp32", "fp32": "fp32", "float16": "fp16", "fp16": "fp16"}
        if given is None or view.peek(given) not in names:
            return {}
        return {path: names[view.take(given)]}

    return Row(
        fields=(path,),
        flags=flags,
        emit=lambda job: ((flags[0], _DTYPES[job.optimizer.main_params_dtype or "fp32"]),),
        read=read,
        note="the one copy of the weights, and with it gradients and optimizer states",
    )


def _computation_dtype(path: str, *names: str) -> Row:
    """Return a row of a computation dtype that is fp32 unless the job sets it to false."""
    flags = tuple(key(name) for name in names)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        yield flags[0], _DTYPES[job.precision.dtype] if value_at(job, path) is False else "float32"

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        if given is None or view.peek(given) not in (*_DTYPES.values(), *_DTYPES):
            return {}
        return {path: view.take(given) in ("float32", "fp32")}

    return Row(fields=(path,), flags=flags, emit=emit, read=read)


def precision_rows() -> tuple[Row, ...]:
    """Return the rows of dtypes in the model section."""
    return (
        _weight_dtype(),
        _compute_dtype(),
        _computation_dtype("precision.norm_in_fp32", "layernorm_compute_dtype", "layernorm_compute_type"),
        _softmax_dtype(),
        _computation_dtype("precision.rope_in_fp32", "rotary_dtype"),
        same("precision.residual_in_fp32", key("fp32_residual_connection")),
        same("precision.apply_query_key_layer_scaling", key("apply_query_key_layer_scaling")),
    )


def layerwise_rate_rows() -> tuple[Row, ...]:
    """Return the rows of layer-wise learning rates, and of learning rates scaled by the batch."""
    return (
        same("schedule.layerwise", "layer_scale"),
        same("schedule.layer_decay", "layer_decay"),
        same("schedule.scale_by_batch", "lr_scale"),
        same("schedule.reference_batch_size", "lr_scale_factor"),
    )
