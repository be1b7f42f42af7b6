"""What a user asks of a conversion, on the command line or in Python, before any folder is looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher.convert.errors import WrongWord
from launcher.convert.layouts.core import Naming
from launcher.job import Job
from launcher.records import dataclass

if TYPE_CHECKING:
    from launcher.convert.formats.format import Format


def _silent(text: str) -> None:
    """Ignore a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options of `launch convert hf-to-mcore`, `mcore-to-hf` and `reshard`; the source is `checkpoint`, else `model`.

    Attributes:
        out: folder to write.
        to_hf: write a Hugging Face model (or a PEFT adapter); otherwise a training checkpoint.
        model: Hugging Face model to read, or folder with config.json and tokenizer of the checkpoint's model.
        checkpoint: training checkpoint to read.
        adapter: LoRA adapter to convert instead of the model.
        rewrite: write an equal adapter, of higher rank or another alpha, where a stack cannot store it as it is.
        job: its layout is written; `source_job`: its layout is assumed of the source.
        backend: write the format that this backend loads.
        format: torch_dist, legacy …; None: the backend's own.
        layers: naming of layers (transformer_engine, local); None: the format's.
        options: NAME=VALUE of the target format.
        fp8: `blockwise`: linear layers in FP8 with blockwise scales; None: as they are.
        dtype: bf16, fp16 or fp32; None: no cast.
        allow_overflow: finite values that do not fit `dtype` become infinite.
        workers: threads; None: one for every two processors, at most 8.
        dry_run: nothing is written beside `out`.
        warn: called with what the user should know.
    """

    out: str
    to_hf: bool
    model: str | None = None
    checkpoint: str | None = None
    adapter: str | None = None
    rewrite: bool = False
    job: Job | None = None
    source_job: Job | None = None
    backend: str | None = None
    format: str | None = None
    layers: Naming | None = None
    options: tuple[str, ...] = ()
    fp8: str | None = None
    dtype: str | None = None
    verify: bool = True
    overwrite: bool = False
    durable: bool = False
    allow_overflow: bool = False
    workers: int | None = None
    dry_run: bool = False
    warn: Callable[[str], None] = _silent


def check_words(asked: Asked, target: Format, source: Format | None = None) -> None:
    """Refuse options of `--set` and `--layers` that the target (of an adapter: or the source) would ignore.

    Raises:
        WrongWord: the format has no option of that name.
    """
    known = list(dict.fromkeys((*target.options, *(source.options if source is not None else ()))))
    for word in asked.options:
        name = word.partition("=")[0].replace("-", "_")
        if name and name not in known:
            works = ", ".join(f"--set {each}=…" for each in known) or "without --set"
            raise WrongWord(f"--set {word}: {target.title} has no option {name}; works: {works}")
    layers = asked.layers
    if layers is not None and layers not in target.layers:
        works = " or ".join(f"--layers {each}" for each in target.layers) or "without --layers"
        raise WrongWord(f"--layers {layers}: {target.title} is not written with these names; works: {works}")
