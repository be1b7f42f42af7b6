"""MindSpeed-LLM mapping rows for task, preference losses and deprecated names."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.factories import reworded, when_set
from backends.mindspeed.versions import accepts, choices, deprecated_names
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed

# Arguments beside --stage that the trainer of that stage needs. Source: docs/zh/pytorch/training @26.1.0.
_STAGES = {"sft": "is-instruction-dataset", "dpo": "is-pairwise-dataset", "simpo": "is-pairwise-dataset"}
_PAIRWISE_STAGES = ("dpo", "simpo")
# Canonical tasks by name of --stage, and the argument without which a trainer fails (simpo_trainer.py:113 @2.2.0).
_TASKS = {"sft": "sft", "dpo": "dpo", "simpo": "simpo", "orm": "reward_model"}
_NEEDED = {"simpo": "simpo-beta"}


def stages(version: str) -> tuple[str, ...]:
    """Return the values of --stage that a job can express and a trainer exists for."""
    known = choices(version, "stage")
    return tuple(name for name in _TASKS if name in known and accepts(version, *filter(None, (_NEEDED.get(name),))))


def task(version: str) -> Row:
    """Return the row of the training task; posttrain_gpt.py takes it as --stage."""
    known = ("pretrain", *(_TASKS[name] for name in stages(version)))
    names = {"reward_model": "orm"}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind = job.task.type
        if kind not in known:
            works = tuple(f"task.type={name}" for name in known)
            raise Unsupported("task.type", f"its trainers are {', '.join(known)} (posttrain/launcher.py)", works)
        if kind != "pretrain":
            yield "stage", names.get(kind, kind)
            yield _STAGES.get(kind, "is-pairwise-dataset"), True

    def read(view: NativeView) -> Mapping[str, Value]:
        back = {names.get(kind, kind): kind for kind in known}
        kind = back.get(str(view.peek("stage")))
        if kind is None:
            return {"task.type": "pretrain"}
        view.take("stage")
        view.take(_STAGES.get(kind, "is-pairwise-dataset"))
        return {"task.type": kind}

    return computed(("task.type",), ("stage", "is-instruction-dataset", "is-pairwise-dataset"), emit, read)


def preference(version: str) -> tuple[Row, ...]:
    """Return the rows of DPO, and in 2.1.0 of SimPO."""
    old = "simpo" in stages(version)
    rows = (
        _loss("task.beta", "beta", old),
        _loss("task.loss_type", "loss-type", old),
        _loss("task.label_smoothing", "label-smoothing", old),
        when_set("task.rpo_alpha", "pref-ftx", when=lambda job: job.task.type == "dpo"),
        _reference(),
    )
    return (*rows, _margin()) if old else rows


def _reference() -> Row:
    row = when_set("task.reference_model", "ref-model", when=lambda job: job.task.type == "dpo")
    return replace(row, read=lambda view: {"task.reference_model": view.take("ref-model")} if _is_dpo(view) else {})


def _is_dpo(view: NativeView) -> bool:
    return view.peek("stage") == "dpo" and view.has("ref-model")


def _loss(path: str, name: str, old: bool) -> Row:
    """Return a row for a loss setting that each preference stage spells with its own prefix."""
    stages = _PAIRWISE_STAGES if old else ("dpo",)
    field = path.rsplit(".", maxsplit=1)[-1]

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = getattr(job.task, field)
        if value is not None and job.task.type in stages:
            yield f"{job.task.type}-{name}", value

    def read(view: NativeView) -> Mapping[str, Value]:
        found = [view.take(f"{stage}-{name}") for stage in stages if view.has(f"{stage}-{name}")]
        return {path: found[0]} if found else {}

    return Row(fields=(path, "task.type"), flags=tuple(f"{stage}-{name}" for stage in stages), emit=emit, read=read)


def _margin() -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.task.simpo_gamma is None or job.task.type != "simpo":
            return
        if not job.task.beta:
            raise Unsupported("task.simpo_gamma", "it is given as a share of beta", ("task.beta=2.5",))
        yield "gamma-beta-ratio", job.task.simpo_gamma / job.task.beta

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("gamma-beta-ratio") or not view.peek("simpo-beta"):
            return {}
        return {"task.simpo_gamma": view.take("gamma-beta-ratio") * view.peek("simpo-beta")}

    return computed(("task.simpo_gamma", "task.beta"), ("gamma-beta-ratio",), emit, read)


def aliases(version: str) -> Row:
    """Return the row that reads deprecated names as their replacements."""
    return reworded(
        deprecated_names(version), {}, note="Copied to the new name with a warning (deprecated_args.py @26.1.0)."
    )
