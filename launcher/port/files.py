"""Files of a job that a target backend reads differently or not at all: checkpoints, instruction data, models."""

import shlex
from collections.abc import Iterator

from launcher.job import Job
from launcher.job.finding import Finding, Fix
from launcher.port.dropped import PortRoute, expressible

CHECKPOINT, DATA, MODEL = "PORT-CHECKPOINT", "PORT-DATA", "PORT-MODEL"
_RAW = ("messages", "hub", "text")


def files(route: PortRoute, job: Job) -> Iterator[Finding]:
    """Yield findings for files in the source's own formats that the target does not read as the source does."""
    if route.source.name != route.target.name:
        yield from _checkpoint(route, job)
        yield from _instructions(route, job)
        yield from _multimodal(route, job)


def _checkpoint(route: PortRoute, job: Job) -> Iterator[Finding]:
    """Yield a finding for a training checkpoint in the source's format."""
    load = job.checkpoint.load
    if load is None or route.source.checkpoint_format == route.target.checkpoint_format:
        return
    where = shlex.quote(load)
    command = f"launch convert mcore-to-hf --checkpoint {where} --model HF_DIR --out NEW_DIR"
    then = "model.path=NEW_DIR checkpoint.load=null"
    if not route.target.reads_hub:
        command += f"; launch convert hf-to-mcore --backend {route.target.name} --model NEW_DIR --out LOAD_DIR"
        then = "checkpoint.load=LOAD_DIR"
    again = ", and the job saves to the same folder" if load == job.checkpoint.save else ""
    yield Finding(
        rule=CHECKPOINT,
        severity="warning",
        message=f"checkpoint.load={load} was saved by {route.source.title}{again}: {route.there} writes "
        "another format, and may not read this one. "
        f"Convert weights with {command}, then {then} (optimizer and step do not); "
        "to start without it: checkpoint.load=null",
        fields=("checkpoint.load",),
        source="checkpoint formats of the backends",
    )


def _instructions(route: PortRoute, job: Job) -> Iterator[Finding]:
    """Yield a finding for token files for fine-tuning: each stack stores prompts and answers in its own format."""
    if job.data.format != "megatron" or job.task.type == "pretrain" or not expressible(route, "data.format=megatron"):
        return
    works = [f"data.format={name}" for name in _RAW if expressible(route, f"data.format={name}")]
    yield Finding(
        rule=DATA,
        severity="error",
        message=f"task.type={job.task.type} with data.format=megatron: {route.source.title} and {route.target.title} "
        "store prompts and answers differently in token files, so that it would train on other tokens. "
        "Set data.paths to the raw data in a format that it reads, or train on plain text (task.type=pretrain)",
        fields=("data.format", "task.type"),
        fixes=tuple(Fix(overrides=(word,)) for word in works),
        source="mindspeed_llm/tasks/posttrain/sft/sft_trainer.py @26.1.0; mindformers dataset/blended_datasets @2.1.0",
    )


def _multimodal(route: PortRoute, job: Job) -> Iterator[Finding]:
    """Yield a finding for a multimodal model on a target that trains language models only."""
    is_multimodal = route.source.multimodal
    if is_multimodal is None or route.target.multimodal is not None or not is_multimodal(job):
        return
    yield Finding(
        rule=MODEL,
        severity="error",
        message=f"{job.model.hub_id or job.model.path} also reads images, audio or video: {route.target.title} "
        "trains language models only",
        fields=("model.hub_id" if job.model.hub_id else "model.path",),
        source=f"families of {route.target.name}",
    )
