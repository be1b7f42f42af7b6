"""The command line of the conversion that a job needs before it can start; no side effects or heavy imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from shlex import join
from typing import Any, Final

from launcher.job import Job, value_at
from launcher.job.model import Model
from launcher.mapping.backend import Backend
from launcher.records import dataclass

# Fields that `layout_of` (launcher/convert/formats/format.py) reads from a job, without backend.args.
_LAYOUT: Final = (
    "parallel.tp",
    "parallel.pp",
    "parallel.vpp",
    "parallel.schedule",
    "parallel.ep",
    "parallel.etp",
    "parallel.first_stage_layers",
    "parallel.last_stage_layers",
    "parallel.layout",
    "parallel.noop_layers",
    "parallel.account_for_embedding",
    "parallel.account_for_loss",
    "tokenizer.padded_vocab_size",
    "tokenizer.make_vocab_size_divisible_by",
    "moe.grouped_gemm",
    "moe.tp_extend_ep",
    "kernels.transformer_impl",
    "kernels.qkv_concat",
    "model.legacy",
)
_ONE: Final = ("parallel.tp", "parallel.pp", "parallel.ep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A conversion to run before the job.

    Attributes:
        command: the command's arguments.
        folder: its output folder.
        overrides: overrides that make the job start from that folder.
        why: the reason, one sentence.
    """

    command: tuple[str, ...]
    folder: str
    overrides: tuple[str, ...]
    why: str

    @property
    def line(self) -> str:
        """Return the command line."""
        return join(self.command)

    @property
    def text(self) -> str:
        """Return the command line and the overrides, human-readable."""
        return self.line + (f", then: {' '.join(self.overrides)}" if self.overrides else "")

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {"command": list(self.command), "overrides": list(self.overrides), "why": self.why}


def offered(
    job: Job, backend: Backend, version: str, *, exists: Callable[[str], bool] = lambda path: Path(path).exists()
) -> Offer | None:
    """Return the conversion that a job needs; None if it needs none or its result exists.

    Args:
        job: the checked job.
        backend: its backend, at `version`.
        exists: whether a path exists on the local machine.
    """
    if backend.checkpoint_format is None:
        return None
    if job.checkpoint.load is None:
        known = backend.converted_folder(job, version)
        if known is None or (known and exists(known)):
            return None
        folder = known or sibling_folder(job.model, backend.name)
        why = f"{backend.title} {version} does not read Hugging Face weights"
        named = () if known else (f"checkpoint.load={folder}", "checkpoint.finetune=true")
        return Offer(command=_command(job, backend, version, folder), folder=folder, overrides=named, why=why)
    folder = job.checkpoint.load
    weights = job.model.path is not None and job.model.pretrained is not False
    if not weights or job.checkpoint.finetune is not True or "$" in folder or exists(folder):
        return None
    why = f"checkpoint.load={folder} does not exist yet"
    return Offer(command=_command(job, backend, version, folder), folder=folder, overrides=(), why=why)


def adapter_command(job: Job, backend: Backend, version: str, *, adapter: str, folder: str) -> tuple[str, ...]:
    """Return the command that writes a PEFT adapter of the job's model in the format of its backend."""
    return (*_command(job, backend, version, folder), "--adapter", adapter)


def sibling_folder(model: Model, backend: str) -> str:
    """Return the folder of converted weights: `/models/Qwen3-8B` -> `Qwen3-8B-BACKEND`, in the current folder."""
    named = (model.path or model.hub_id or "model").rstrip("/")
    name = PurePosixPath(named).name
    return f"{name if '$' not in name else 'model'}-{backend}"


def _command(job: Job, backend: Backend, version: str, folder: str) -> tuple[str, ...]:
    source = job.model.path or "${MODEL_PATH}"
    head = ("launch", "convert", "hf-to-mcore", "--model", source, "--out", folder, "--backend", backend.name)
    newest = () if version == backend.default_version else (f"backend.version={version}",)
    return (*head, *newest, *_layout_words(job))


def _layout_words(job: Job) -> Iterator[str]:
    for path in _LAYOUT:
        value = value_at(job, path)
        if value is None or value is False or value == () or (path in _ONE and value == 1):
            continue
        yield f"{path}={_word(value)}"
    for name, value in job.backend.args.items():
        yield f"backend.args.{name}={_word(value)}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return "[" + ",".join(_word(item) for item in value) + "]"
    text = str(value)
    return f"'{text}'" if any(sign in text for sign in "|*, =()[]{}") else text
