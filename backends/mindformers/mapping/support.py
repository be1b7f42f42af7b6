"""Helpers for MindFormers' mapping rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from backends.mindformers.class_defaults import CLASSES
from launcher.job import Job, Value, fields, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported

MODEL = "model.model_config."

WEIGHTS = "pretrained_model_dir"
KIND = f"{MODEL}model_type"


def key(name: str) -> str:
    """Return the dotted path of a key of the model section."""
    return MODEL + name


EXPERTS = tuple(key(name) for name in ("num_experts", "n_routed_experts", "num_moe_experts", "expert_num"))
"""Keys for the number of experts."""


def first_written(view: NativeView, flags: Iterable[str]) -> str | None:
    """Return the first of several key names that is set, or None."""
    return next((flag for flag in flags if view.has(flag)), None)


def frozen(value: Value) -> Value:
    """Return the value with lists converted to tuples, so that values compare and hash."""
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Mapping):
        return {name: frozen(item) for name, item in value.items()}
    return value


def aliased(path: str, name: str, *aliases: str, default: Value = None, **row: Any) -> Row:
    """Return a row of the model section that is written under one name and read under any of its aliases.

    MindFormers accepts Hugging Face's, Megatron's and its own names for one setting, and rejects two of them at once
    (parallel_core/transformer_config_utils.py:475 @1.6.0, parallel_core/config_converter.py:266 @2.1.0). The name
    written is the one that the model's config class declares, because its default is set under that name.

    Args:
        path: canonical field.
        name: key that is written.
        aliases: other keys that are accepted when reading.
        default: written where the field is None.
    """
    flags = tuple(key(each) for each in (name, *aliases))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        value = default if value is None else value
        if value is not None:
            yield flags[0], value

    def read(view: NativeView) -> Mapping[str, Value]:
        given = first_written(view, flags)
        return {path: view.take(given)} if given is not None else {}

    return Row(fields=(path,), flags=flags, emit=emit, read=read, **row)


def always_written(path: str, flag: str, default: Value, *, absent: Value = None, **row: Any) -> Row:
    """Return a row for a value that is always written: the job's, or the launcher's default if it is unset.

    Args:
        path: canonical field.
        flag: key that is written.
        default: written where the field is None.
        absent: value of a complete file without the key; None: the same as `default`.
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        yield flag, default if value is None else value

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag):
            return {path: view.take(flag)}
        return {path: absent} if absent is not None and is_file(view) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def renamed(path: str, flag: str, names: Mapping[Value, Value], **row: Any) -> Row:
    """Return a row for an enumeration; unknown native values are passed through."""
    back = {native: canonical for canonical, native in names.items()}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, names[value]

    def read(view: NativeView) -> Mapping[str, Value]:
        written = view.peek(flag)
        known = [canonical for native, canonical in back.items() if native == written and type(native) is type(written)]
        if not known or not view.has(flag):
            return {}
        view.take(flag)
        return {path: known[0]}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def follows(flag: str, value: Value, *paths: str, **row: Any) -> Row:
    """Return a row for a key with one fixed value for every supported job.

    When reading, that value is consumed; any other is passed through.
    """

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, {flag: value})
        return {}

    return Row(fields=paths, flags=(flag,), emit=lambda job: ((flag, value),), read=read, derived=True, **row)


def drop(view: NativeView, expected: Mapping[str, Value]) -> None:
    """Consume arguments whose value is the one that the launcher would write."""
    for flag, value in expected.items():
        if view.has(flag) and frozen(view.peek(flag)) == frozen(value):
            view.take(flag)


def require(holds: bool, path: str, why: str, *works: str | tuple[str, ...]) -> None:
    """Raise Unsupported for the field at `path` unless the condition holds."""
    if not holds:
        raise Unsupported(path, why, works)


def from_directory(job: Job) -> bool:
    """Return whether the architecture is defined by config.json in a directory of weights (for an imported file)."""
    return job.model.path is not None and job.model.hidden_size is None


def written_class(view: NativeView) -> str | None:
    """Return the model class whose defaults apply to an imported file; None if config.json applies."""
    return None if view.peek(WEIGHTS) else view.peek(KIND)


def model_kind(job: Job) -> str | None:
    """Return the model class: the job's, or a MindFormers-specific one that is passed through."""
    return job.model.model_type or job.backend.passthrough.get(KIND)


def is_like_deepseek(job: Job) -> bool:
    """Return whether the class is DeepSeek-V3's, a similar one, or unknown (given by a directory)."""
    kind = model_kind(job)
    return kind is None or str(kind).startswith(("deepseek", "telechat"))


def is_legacy(job: Job) -> bool:
    """Return whether legacy models are built (use_legacy: True)."""
    return bool(job.model.legacy)


def is_file(view: NativeView) -> bool:
    """Return whether the arguments are a complete file, so that a missing key means its default."""
    return any(name in view.values for name in ("run_mode", "trainer.type", "model.arch.type"))


def legacy_file(view: NativeView) -> bool:
    """Return whether a file builds legacy models, which is the default (template.py @2.1.0)."""
    return is_file(view) and bool(view.peek("use_legacy", True))


def has_latent(view: NativeView) -> bool:
    """Return whether the model of a file has multi-head latent attention."""
    return key("kv_lora_rank") in view.values or written_class(view) == "deepseek_v3"


def is_concatenated(view: NativeView) -> bool:
    """Return whether a file's latent attention has both down projections in one matrix, which is the default."""
    return has_latent(view) and bool(view.peek(key("mla_qkv_concat"), is_file(view)))


def has_experts(view: NativeView) -> bool:
    """Return whether the model of a file has experts, as far as its keys and its class tell."""
    given = any((view.peek(name) or 1) != 1 for name in EXPERTS)
    known = CLASSES.get(str(written_class(view)), {})
    return given or any(known.get(name.removeprefix(MODEL)) for name in EXPERTS)


def dense_layers_of(view: NativeView) -> bool:
    """Return whether some layers of a file's model with experts have none."""
    known = CLASSES.get(str(written_class(view)), {})
    first = view.peek(key("first_k_dense_replace"), known.get("first_k_dense_replace"))
    return bool(first) or view.peek(key("moe_layer_freq"), 1) not in (None, 1)


def is_moe(job: Job) -> bool:
    """Return whether the model has experts."""
    return job.model.is_moe


def is_mla(job: Job) -> bool:
    """Return whether the model has multi-head latent attention."""
    return job.model.is_mla


def uses_flash(job: Job) -> bool:
    """Return whether flash attention is on, which is MindFormers' default (transformer_config.py:262 @2.1.0)."""
    return job.kernels.attention_backend not in ("unfused", "local")


def attention_dtype(job: Job, version: str) -> str:
    """Return the number format of attention: its mcore graph casts fp32 to float16 for flash attention, except for MLA.

    Source: rule MF-FLASH-HALF.
    """
    half = job.precision.dtype == "fp32" and uses_flash(job) and not job.model.is_mla and not is_legacy(job)
    return "fp16" if half else str(job.precision.dtype)


def architecture(row: Row) -> Row:
    """Return the row so that a job whose architecture is defined by config.json writes only non-default fields.

    Canonical defaults would override the values in the directory's config.json.
    """

    def differs_from_default(job: Job) -> bool:
        return not row.fields or any(value_at(job, path) != fields()[path].default for path in row.fields)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if not from_directory(job) or differs_from_default(job):
            yield from row.emit(job)

    def when(job: Job) -> bool:
        return from_directory(job) or row.when is None or row.when(job)

    return replace(row, emit=emit, when=when)
