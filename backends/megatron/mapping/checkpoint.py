"""Rows for checkpoints that differ from Megatron-LM's."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping.factories import FOUR, THREE, only
from backends.megatron.mapping.model import from_pretrained
from backends.megatron.mapping.options import option
from backends.megatron.mapping.sharding import format_row
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, mapped


def rows(version: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows by the canonical field whose Megatron-LM rows they replace."""
    return {
        "checkpoint.save": option(
            "checkpoint.save", "save", version, note="swift adds v<k>-<time> below it (add_version)"
        ),
        "checkpoint.save_interval": option("checkpoint.save_interval", "save_interval", version),
        "checkpoint.finetune": (_finetune(version),),
        "checkpoint.format": (
            mapped(
                "checkpoint.format",
                "ckpt_format",
                _torch_format,
                lambda value: value,
                until=THREE,
                note="safetensors: checkpoint.save_safetensors, since 3.10",
            ),
            only(
                "checkpoint.format",
                ("torch_dist",),
                "it writes torch_dist checkpoints only",
                ("checkpoint.format=torch_dist",),
                since=FOUR,
                until="4.4.99",
            ),
            format_row(),
            *option("checkpoint.save_safetensors", "save_safetensors", version),
            *option("checkpoint.save_total_limit", "save_total_limit", version),
        ),
        "checkpoint.exit_on_missing": option("checkpoint.exit_on_missing", "exit_on_missing_checkpoint", version)
        or (
            only(
                "checkpoint.exit_on_missing",
                (True,),
                "4.x always stops when the checkpoint is missing",
                ("checkpoint.exit_on_missing=true",),
            ),
        ),
    }


def _torch_format(value: str) -> str:
    if value not in ("torch_dist", "torch", "zarr"):
        why = "a training checkpoint is of torch_dist, torch or zarr"
        raise Unsupported("checkpoint.format", why, ("checkpoint.format=torch_dist",))
    return value


def _finetune(version: str) -> Row:
    """Return the row of finetune, written explicitly: its default changed from false to true at 4.0."""
    default = in_range(version, FOUR, None)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = job.checkpoint.finetune
        if value is None:
            value = job.checkpoint.load is None
        if value or job.checkpoint.load is not None or from_pretrained(job) or default:
            yield "finetune", value

    def read(view: NativeView) -> Mapping[str, Value]:
        value = view.take("finetune", default)
        resumes = view.peek("mcore_model" if default else "load") is not None
        converted = f"{str(view.peek('model')).rsplit('/', 1)[-1]}-mcore"
        if in_range(version, None, "3.9") and view.peek("load") == converted:
            resumes = False
        return {} if value is not resumes else {"checkpoint.finetune": value}

    return Row(
        fields=("checkpoint.finetune", "checkpoint.load"),
        flags=("finetune",),
        emit=emit,
        read=read,
        note="not given: a named checkpoint is resumed, the weights of a model are a new start",
    )
