"""What each backend runs: the same small job, on the shared model and data."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from launcher.compose import compose
from launcher.convert.offer import offered
from launcher.importing.job_file import job_tree
from launcher.job import Job, Origin, Value, fields, value_at, with_values
from launcher.job.file_text import job_file_text
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend
from launcher.mapping.engine import translate
from launcher.parity.data import TEXT, TOKENS
from launcher.parity.tolerance import number_format
from launcher.pipeline import chosen_backend
from launcher.rehearse.sample_data import END_OF_DOCUMENT
from launcher.rehearse.shrink import shrink

Entry = Literal["native", "core"]
_ORIGIN = Origin(kind="derived", where="parity")


class CannotCompare(Exception):
    """The comparison cannot be made: a sentence for the user, what would work, and findings about a job."""

    def __init__(self, message: str, *works: str, findings: Sequence[Finding] = (), job: Job | None = None) -> None:
        super().__init__(message)
        self.message, self.works, self.findings, self.job = message, works, tuple(findings), job


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One training of the comparison.

    Attributes:
        label: its name in tables and folders: the backend, and its entry where it is not the backend's own.
        backend, version: what it runs on.
        entry: the backend's own entry point, or the embedded trainer on megatron-core.
        python: interpreter of its ranks; None: the one that runs this program.
        environ: environment variables of its ranks, beside those of this program.
        job: the small job, before paths are filled in.
        notes: what is smaller than in the user's job, a line each.
    """

    label: str
    backend: Backend
    version: str
    entry: Entry
    python: str | None
    environ: Mapping[str, str]
    job: Job
    notes: tuple[str, ...]

    @property
    def number_format(self) -> str:
        """Row of the table of tolerances: some backends compute attention in another format than the job's."""
        dtype = str(self.job.precision.dtype)
        attention = self.backend.attention_dtype(self.job, self.version) if self.entry == "native" else dtype
        return number_format(dtype, attention)


def side_of(
    overrides: Sequence[str],
    backend: str,
    *,
    entry: Entry,
    python: str | None,
    environ: Mapping[str, str],
    config_dirs: Sequence[str],
    iterations: int,
) -> Side:
    """Compose the user's job for a backend and make it small.

    Args:
        backend: NAME or NAME@VERSION.
        iterations: iterations to train.

    Raises:
        ComposeError: the overrides do not describe a job.
        Refused: there is no such backend or version.
        CannotCompare: it is not pre-training.
    """
    name, _, version = backend.partition("@")
    words = [*overrides, f"backend={name}", *([f"backend.version={version}"] if version else [])]
    job = with_values(compose(words, config_dirs), {"rehearse.entry": entry, "cluster.python": python}, _ORIGIN)
    chosen, number = chosen_backend(job)
    if job.task.type != "pretrain":
        raise CannotCompare(f"task.type={job.task.type}: only pre-training is compared", "task=pretrain", job=job)
    small = shrink(with_values(job, {"schedule.train_iters": iterations}), cores=os.cpu_count())
    training: dict[str, Value] = {"schedule.train_iters": iterations}
    fraction = small.job.schedule.lr_warmup_fraction
    if (small.job.schedule.lr_warmup_iters or 0) >= iterations:
        training["schedule.lr_warmup_iters"] = iterations - 1
    elif fraction and not (fraction * iterations).is_integer():
        # Of so few iterations a fraction is none: Megatron keeps it, MindFormers rounds it down (MF-WARMUP-WHOLE).
        training |= {"schedule.lr_warmup_iters": math.floor(fraction * iterations), "schedule.lr_warmup_fraction": None}
    return Side(
        label=backend if entry == "native" else f"{backend} (core)",
        backend=chosen,
        version=number,
        entry=entry,
        python=python,
        environ=environ,
        job=with_values(small.job, training),
        notes=(*(line for line in small.report if line.split()[0] not in training), *_warm_up(job, training)),
    )


def _warm_up(job: Job, training: Mapping[str, Value]) -> Iterator[str]:
    path = "schedule.lr_warmup_iters"
    if path in training:
        yield f"{path} {value_at(job, path)} → {training[path]}"


def in_one_process(job: Job) -> Job:
    """Return the job without parallelism."""
    sizes: dict[str, Value] = dict.fromkeys(("parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep"), 1)
    values = {path: info.default for path, info in fields().items() if path.startswith("parallel.")} | sizes
    batch = (job.batch.global_batch_size or 1) // (job.parallel.dp or 1)
    return with_values(job, {**values, "cluster.devices_per_node": 1, "batch.global_batch_size": batch}, _ORIGIN)


def on_shared(side: Side, *, model: Path, data: Path, folder: Path) -> Job:
    """Return the job of a side with the shared model and data, and outputs below its folder."""
    values: dict[str, Value] = {path: info.default for path, info in fields().items() if path.startswith("data.")}
    values |= {
        "name": f"parity-{side.backend.name}",
        "runtime": "rehearsal",
        "rehearse.entry": side.entry,
        "rehearse.shrink": False,
        "output_dir": str(folder / "run"),
        "cluster.python": side.python,
        "model.path": str(model),
        "model.hub_id": None,
        "model.pretrained": True,
        "tokenizer.path": None,
        "tokenizer.type": None,
        "data.cache_path": str(folder / "cache"),
        "checkpoint.load": None,
        "checkpoint.save": str(folder / "checkpoints"),
        "checkpoint.save_interval": side.job.schedule.train_iters,
        "logging.interval": 1,
        "logging.tensorboard_dir": None,
        "evaluation.iters": 0,
    }
    job = with_values(side.job, values, _ORIGIN)
    job = with_values(job, _data(job, side, data), _ORIGIN)
    job = with_values(job, _readable(job, side), _ORIGIN)
    weights = offered(job, side.backend, side.version, exists=lambda _path: False)
    if weights is None:
        return job
    return with_values(job, {"checkpoint.load": str(folder / "weights"), "checkpoint.finetune": True}, _ORIGIN)


def _readable(job: Job, side: Side) -> Mapping[str, Value]:
    """Return the field with which a backend saves what `launch convert` reads, where it has another format, too."""
    form: dict[str, Value] = {"checkpoint.format": "safetensors"}
    return form if _accepts(with_values(job, form, _ORIGIN), side, form) else {}


def _accepts(job: Job, side: Side, values: Mapping[str, Value]) -> bool:
    findings = translate(side.backend.prepare(job, side.version), side.backend, side.version).findings
    return not any(values.keys() & set(finding.fields) for finding in findings)


def _data(job: Job, side: Side, data: Path) -> Mapping[str, Value]:
    """Return the fields that make a backend read the shared data, in the format that it has."""
    tokens: dict[str, Value] = {
        "data.format": "megatron",
        "data.paths": (str(data / TOKENS),),
        "data.split": "100,0,0",
        "data.eod_mask_loss": True,
    }
    forms: tuple[dict[str, Value], ...] = (
        # The end of a document by its number, where it is not the tokenizer's.
        {**tokens, "data.eod_token_id": END_OF_DOCUMENT},
        tokens,
        {"data.format": "text", "data.paths": (str(data / TEXT),), "data.shuffle": False},
    )
    for form in forms:
        if _accepts(with_values(job, form, _ORIGIN), side, form):
            return form
    raise CannotCompare(f"{side.backend.title} reads neither token files nor texts", job=job)


def conversion_of(side: Side, job: Job) -> tuple[str, ...]:
    """Return the `launch convert` command that writes the side's weights; () where it reads Hugging Face's."""
    offer = offered(job, side.backend, side.version)
    return () if offer is None else offer.command


def job_file(side: Side, job: Job) -> str:
    """Return the text of the side's job file: `launch run +job=FILE` repeats its training."""
    tree = job_tree(job, tuple(path for path in _STATED))
    tree.setdefault("backend", {})["version"] = side.version
    tree["backend"].pop("name", None)
    return job_file_text({"defaults": [{"override /backend": side.backend.name}], **tree})


# Written although they equal the default, as the choices of the defaults list would fill them otherwise.
_STATED = ("data.split",)
