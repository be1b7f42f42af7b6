"""Rows of what a file holds beside training: evaluation, generation, the tokenizer of prompts, rates by layer."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping_legacy import older
from backends.mindformers.mapping_support import key
from launcher.job import Job, Value, value_at
from launcher.translate.rows import NativeView, Row, same

_EVALUATES, _STEPS, _EPOCHS = "do_eval", "eval_step_interval", "eval_epoch_interval"
_NEVER = -1
_PROMPTS = "processor.tokenizer."
# Of model.model_config of the older models, read by generate() only (generation/generation_config.py @1.6.0).
_GENERATION = {
    "do_sample": "do_sample",
    "top_k": "top_k",
    "top_p": "top_p",
    "repetition_penalty": "repetition_penalty",
    "max_length": "max_decode_length",
    "use_cache": "use_past",
    "batch_size": "batch_size",
}
_TOKENIZER = {
    "vocab_file": "vocab_file",
    "merge_file": "merges_file",
    "bos_token": "bos_token",
    "eos_token": "eos_token",
    "pad_token": "pad_token",
    "unk_token": "unk_token",
}


def _no_evaluation() -> Row:
    path = "evaluation.iters"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.evaluation.iters == 0:
            yield _EVALUATES, False

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(_EVALUATES, False) is not False:
            return {}
        view.take(_EVALUATES)
        return {path: 0}

    note = "false: no evaluation, which is what a file means that does not say it (tools/register/template.py @2.1.0)"
    return Row(fields=(path,), flags=(_EVALUATES,), emit=emit, read=read, note=note)


def _intervals() -> Row:
    fields = ("evaluation.interval", "evaluation.epochs")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = [value_at(job, path) for path in fields]
        if job.evaluation.iters == 0 and any(given):
            yield _STEPS, given[0] or _NEVER
            yield _EPOCHS, given[1] or _NEVER

    def read(view: NativeView) -> Mapping[str, Value]:
        written = [view.peek(flag) for flag in (_STEPS, _EPOCHS)]
        counts = [value for value in written if type(value) is int and (value > 0 or value == _NEVER)]
        if view.peek(_EVALUATES, False) is not False or len(counts) < 2 or counts == [_NEVER, _NEVER]:
            return {}
        taken = [view.take(flag) for flag in (_STEPS, _EPOCHS)]
        return {path: None if value == _NEVER else value for path, value in zip(fields, taken, strict=True)}

    note = "-1: not after steps, or not after passes (trainer/base_trainer.py:1176 @1.6.0); read while do_eval is true"
    return Row(fields=fields, flags=(_STEPS, _EPOCHS), emit=emit, read=read, note=note)


def _token(name: str, native: str) -> Row:
    path, flag = f"tokenizer.{name}", f"{_PROMPTS}{native}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) and isinstance(view.peek(flag), str) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, note="of prompts; training reads tokenized data")


def beside_rows() -> tuple[Row, ...]:
    """Return the rows of evaluation, of generation with the older models, and of learning rates that differ."""
    return (
        older(_no_evaluation()),
        older(_intervals()),
        same("evaluation.metric", "metric.type"),
        same("schedule.layerwise", "layer_scale"),
        same("schedule.layer_decay", "layer_decay"),
        same("schedule.scale_by_batch", "lr_scale"),
        same("schedule.reference_batch_size", "lr_scale_factor"),
        same("data.ignore_token_id", key("ignore_token_id")),
        *(older(same(f"generation.{name}", key(native))) for name, native in _GENERATION.items()),
        *(older(_token(name, native)) for name, native in _TOKENIZER.items()),
    )
