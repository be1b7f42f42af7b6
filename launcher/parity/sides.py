"""What each backend runs: the same small job, on the shared model and data."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from backends import CORE_BACKEND
from launcher.compose import compose
from launcher.convert.offer import offered
from launcher.importing.job_file import job_tree
from launcher.job import Job, Origin, Value, fields, value_at, with_values
from launcher.job.file_text import job_file_text
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend
from launcher.mapping.engine import translate
from launcher.parity import adapter
from launcher.parity.conversations import CONVERSATIONS, STRIDED, STRIDED_TOKENIZED, TOKENIZED
from launcher.parity.data import STRIDED_TEXT, TEXT, TOKENS
from launcher.parity.preference import PAIRS, STRIDED_PAIRS
from launcher.parity.tolerance import number_format
from launcher.pipeline import chosen_backend
from launcher.rehearse.native import NativeOnCpu
from launcher.rehearse.sample_data import END_OF_DOCUMENT
from launcher.rehearse.shrink import shrink

Entry = Literal["native", "core"]
TASKS = ("pretrain", "sft", "dpo")
SEQUENCE = 128  # tokens that a conversation in any known chat template leaves room for
_ORIGIN = Origin(kind="derived", where="parity")
SHARED = "shared"
"""Folder of a comparison with the model that all sides start from."""
RANDOM_WEIGHTS = "rehearse.shrink=true (a small model of the same kind, with random weights)"
"""What works where the user's own weights cannot be compared."""
# A batch that is trained as it is.
_MICRO_BATCH, _MICRO_BATCHES = 2, 4


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
        lacking: why the embedded trainer runs in place of the backend's own entry point; (): it was asked for, or not.
    """

    label: str
    backend: Backend
    version: str
    entry: Entry
    python: str | None
    environ: Mapping[str, str]
    job: Job
    notes: tuple[str, ...]
    lacking: tuple[str, ...] = ()

    @property
    def loss_mean(self) -> str:
        """What the loss that it reports is the mean of: `tokens` or `micro_batches`."""
        native = self._native()
        return "tokens" if native is None or self.job.precision.calculate_per_token_loss else native.loss_mean

    @property
    def strided(self) -> bool:
        """Whether a rank reads samples that are as far apart as there are ranks."""
        native = self._native()
        return native is not None and native.strided_samples

    def _native(self) -> NativeOnCpu | None:
        if self.entry == "core" or self.backend.native_cpu is None:
            return None
        native: NativeOnCpu = import_module(self.backend.native_cpu).NATIVE_CPU
        return native

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
        CannotCompare: its task is not compared, or its ranks are simulated.
    """
    name, _, version = backend.partition("@")
    words = [*overrides, f"backend={name}", *([f"backend.version={version}"] if version else [])]
    job = with_values(compose(words, config_dirs), {"rehearse.entry": entry, "cluster.python": python}, _ORIGIN)
    chosen, number = chosen_backend(job)
    if job.task.type not in TASKS:
        works = [f"task={name}" for name in TASKS]
        raise CannotCompare(f"task.type={job.task.type}: only {', '.join(TASKS)} are compared", *works, job=job)
    if job.rehearse.fake_world:
        why = "rehearse.fake_world=true: simulated ranks exchange nothing, and run one iteration"
        raise CannotCompare(why, "rehearse.fake_world=false", job=job)
    small = shrink(with_values(job, {"schedule.train_iters": iterations}), cores=os.cpu_count())
    training: dict[str, Value] = {"schedule.train_iters": iterations, **dict(_kept(job, small.job, iterations))}
    warm_up = training.get("schedule.lr_warmup_iters", small.job.schedule.lr_warmup_iters)
    fraction = small.job.schedule.lr_warmup_fraction
    if isinstance(warm_up, int) and warm_up >= iterations:
        training["schedule.lr_warmup_iters"] = iterations - 1
    elif fraction and not warm_up and not (fraction * iterations).is_integer():
        # Of so few iterations a fraction is none: Megatron keeps it, MindFormers rounds it down (MF-WARMUP-WHOLE).
        training |= {"schedule.lr_warmup_iters": math.floor(fraction * iterations), "schedule.lr_warmup_fraction": None}
    if job.task.type != "pretrain":
        training |= _batches(job, small.job)
    if own_weights(job) is not None:
        training |= {path: value_at(job, path) for path in fields() if path.startswith("model.")}
    return Side(
        label=backend,
        backend=chosen,
        version=number,
        entry=entry,
        python=python,
        environ=environ,
        job=with_values(small.job, training),
        notes=(*(line for line in small.report if line.split()[0] not in training), *_changed(job, training)),
    )


def own_weights(job: Job) -> Path | None:
    """Return the folder of the user's weights, whose model is compared as it is; None: random weights are made.

    With `rehearse.shrink` a small model of the same kind is made.
    """
    folder = None if job.model.path is None or job.rehearse.shrink else Path(job.model.path).expanduser()
    return folder if folder is not None and folder.is_dir() else None


def _changed(job: Job, training: Mapping[str, Value]) -> Iterator[str]:
    """Yield a line for each value that differs from the job's."""
    for path, value in training.items():
        if path != "schedule.train_iters" and value != value_at(job, path):
            yield f"{path} {value_at(job, path)} → {value}"


def _kept(job: Job, small: Job, iterations: int) -> Iterator[tuple[str, Value]]:
    """Yield what `shrink` makes smaller although it is small enough: batch, and points of the schedule."""
    warmup, decay, batch = job.schedule.lr_warmup_iters, job.schedule.lr_decay_iters, job.batch
    if warmup is not None and warmup < iterations:
        yield "schedule.lr_warmup_iters", warmup
    if decay is not None and decay <= iterations:
        yield "schedule.lr_decay_iters", decay
    sequences = (batch.global_batch_size or 0) // (small.parallel.dp or 1)
    if batch.micro_batch_size <= _MICRO_BATCH and 0 < sequences <= _MICRO_BATCHES * batch.micro_batch_size:
        yield "batch.micro_batch_size", batch.micro_batch_size
        yield "batch.global_batch_size", batch.global_batch_size


def _batches(job: Job, small: Job) -> dict[str, Value]:
    """Return sizes with which samples of one micro-batch are padded to the longest, and micro-batches differ."""
    micro = min(2, job.batch.micro_batch_size)
    return {
        "batch.micro_batch_size": micro,
        "batch.global_batch_size": 2 * micro * (small.parallel.dp or 1),
        "batch.seq_length": min(job.batch.seq_length or SEQUENCE, SEQUENCE),
    }


def check_means(sides: Sequence[Side]) -> None:
    """Refuse sides whose losses are means of different things, where these differ.

    Raises:
        CannotCompare: one reports the mean of tokens and another the mean of micro-batches with more or fewer tokens.
    """
    job = sides[0].job
    means = {side.loss_mean: side.label for side in sides}
    if job.task.type != "sft" or job.batch.packing or len(means) < 2:  # DPO's loss is a mean of pairs everywhere
        return
    raise CannotCompare(
        f"{means['tokens']} reports the mean loss of all predicted tokens and {means['micro_batches']} that of "
        "micro-batches, which predict different numbers of tokens",
        "--reference transformers (it computes both)",
        "precision.calculate_per_token_loss=true",
        job=job,
    )


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
        **adapter.loaded_from(side.job, side.backend, model, folder, core=side.entry == "core"),
    }
    job = with_values(side.job, values, _ORIGIN)
    job = with_values(job, _data(job, side, data), _ORIGIN)
    job = with_values(job, _readable(job, side), _ORIGIN)
    if _converts_itself(side):
        return job
    weights = offered(job, side.backend, side.version, exists=lambda _path: False)
    if weights is None and not adapter.joins_weights(job, side.backend):
        return job
    return with_values(job, {"checkpoint.load": str(folder / "weights"), "checkpoint.finetune": True}, _ORIGIN)


def is_set_here(job: Job, path: str) -> bool:
    """Return whether `on_shared` chose the value of a field."""
    return job.origin(path).where == _ORIGIN.where


def _readable(job: Job, side: Side) -> Mapping[str, Value]:
    """Return the field with which a backend saves what `launch convert` reads, where it has another format, too."""
    form: dict[str, Value] = {"checkpoint.format": "safetensors"}
    return form if _accepts(with_values(job, form, _ORIGIN), side, form) else {}


def _accepts(job: Job, side: Side, values: Mapping[str, Value]) -> bool:
    findings = translate(side.backend.prepare(job, side.version), side.backend, side.version).findings
    return not any(values.keys() & set(finding.fields) for finding in findings)


# What a backend puts around messages.
_FORMATTING = ("data.template", "data.system", "data.enable_thinking")


# By task, and whether the ranks of the backend read every n-th sample.
_MESSAGES = {
    ("sft", False): CONVERSATIONS,
    ("sft", True): STRIDED,
    ("dpo", False): PAIRS,
    ("dpo", True): STRIDED_PAIRS,
}


def _data(job: Job, side: Side, data: Path) -> Mapping[str, Value]:
    """Return the fields that make a backend read the shared data, in the format that it has."""
    if job.task.type != "pretrain":
        messages: dict[str, Value] = {
            "data.format": "messages",
            "data.paths": (str(data / _MESSAGES[job.task.type, side.strided]),),
            "data.shuffle": False,
            "data.split": "100,0,0",
            **{path: value_at(side.job, path) for path in _FORMATTING},
        }
        formatted: dict[str, Value] = {
            "data.format": "tokenized",
            "data.paths": (str(data / (STRIDED_TOKENIZED if side.strided else TOKENIZED)),),
            "data.shuffle": False,
        }
        reads_tokens = job.task.type == "sft" and not job.batch.packing and side.entry == "native"
        if reads_tokens and not _accepts(with_values(job, messages, _ORIGIN), side, messages):
            return formatted if _accepts(with_values(job, formatted, _ORIGIN), side, formatted) else messages
        return messages
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
        {
            "data.format": "text",
            "data.paths": (str(data / (STRIDED_TEXT if side.strided else TEXT)),),
            "data.shuffle": False,
        },
    )
    # The embedded trainer joins texts to samples of its own.
    for form in forms[:2] if side.entry == "core" else forms:
        if _accepts(with_values(job, form, _ORIGIN), side, form):
            return form
    if side.entry == "core":
        why = (
            f"--entry core: {side.backend.title} reads no token files, and the embedded trainer splits texts elsewhere"
        )
        raise CannotCompare(why, "without --entry", job=job)
    raise CannotCompare(f"{side.backend.title} reads neither token files nor texts", job=job)


def _converts_itself(side: Side) -> bool:
    """Return whether the embedded trainer runs another backend's job: it converts Hugging Face's files itself."""
    return side.entry == "core" and side.backend.name != CORE_BACKEND[0]


def conversions_of(side: Side, job: Job) -> Sequence[tuple[str, ...]]:
    """Return the `launch convert` commands that write the side's weights and its adapter.

    Nothing is written for a side that reads Hugging Face's and PEFT's files.
    """
    if _converts_itself(side):
        return ()
    offer = offered(job, side.backend, side.version)
    weights = () if offer is None else offer.command
    return [command for command in (weights, adapter.conversion_of(job, side.backend, side.version)) if command]


def job_file(side: Side, job: Job) -> str:
    """Return the text of the side's job file: `launch run +job=FILE` repeats its training."""
    tree = job_tree(job, tuple(path for path in _STATED))
    tree.setdefault("backend", {})["version"] = side.version
    tree["backend"].pop("name", None)
    return job_file_text({"defaults": [{"override /backend": side.backend.name}], **tree})


# Written although they equal the default, as the choices of the defaults list would fill them otherwise.
_STATED = ("data.split",)
