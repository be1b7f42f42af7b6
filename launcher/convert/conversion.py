"""Options of a conversion, and its plan before any byte is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from launcher.convert.containers.dtypes import itemsize, nbytes
from launcher.convert.containers.transfer import allocated
from launcher.convert.formats.format import Draft, Format, Layout
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.logical import Logical
from launcher.convert.move import thread_count
from launcher.convert.plan import Plan
from launcher.job.model import Model
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """Options of a conversion.

    Attributes:
        source: folder of the checkpoint to convert.
        source_format, target_format: checkpoint formats.
        out: output folder; it is created only when its content is complete.
        model: architecture.
        layout: target layout; `source_layout` is the layout of the source, if its names do not determine it.
        donor: folder whose config.json and tokenizer are copied to the output.
        dtype: number format to cast floating point tensors to; None for no cast.
        verify: compare every byte afterwards.
        overwrite: replace the content of `out`.
        durable: fsync everything before the final rename.
        workers: threads; None for one for every two processors, at most 8.
        fp8: store linear layers in FP8 with blockwise scales.
        allow_overflow: finite values out of the range of `dtype` become infinite instead of raising an error.
        backend: target backend; None for any that loads the format.
    """

    source: Path
    source_format: Format
    out: Path
    target_format: Format
    model: Model
    layout: Layout
    source_layout: Layout
    donor: Path | None = None
    dtype: str | None = None
    verify: bool = True
    overwrite: bool = False
    durable: bool = False
    workers: int | None = None
    fp8: bool = False
    allow_overflow: bool = False
    backend: str | None = None

    @property
    def threads(self) -> int:
        """Number of threads to use."""
        return thread_count(self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A planned conversion: nothing has been written, and no tensor data has been read."""

    asked: Conversion
    logical: Logical
    stored: Stored
    draft: Draft
    plan: Plan
    originals: Mapping[str, Content] = field(default_factory=dict)

    def original(self, number: int) -> Content | None:
        """Return the original FP8 weight of a target tensor, as it was before training, if known."""
        boxes = self.draft.wanted[number].boxes
        return self.originals.get(boxes[0].logical) if boxes else None

    @property
    def bytes_read(self) -> int:
        """Bytes of the source tensors."""
        return sum(nbytes(content.slot) for content in self.stored.contents)

    @property
    def bytes_written(self) -> int:
        """Bytes of the target tensors, including padding."""
        sizes = zip(self.draft.wanted, self.draft.dtypes, strict=True)
        return sum(math.prod(wanted.shape) * itemsize(dtype) for wanted, dtype in sizes)

    @property
    def bytes_needed(self) -> int:
        """Disk space of the target: holes of the source stay holes if nothing is cast."""
        if self.asked.dtype is not None:
            return self.bytes_written
        files = {content.slot.path for content in self.stored.contents}
        holes = sum(file.stat().st_size for file in files) - allocated(files)
        return self.bytes_written - max(0, holes)

    @property
    def bytes_padding(self) -> int:
        """Bytes of the target that are padding."""
        sizes = zip(self.draft.wanted, self.draft.dtypes, strict=True)
        scales = {wanted.scale for wanted in self.draft.wanted}
        return sum(wanted.fill * itemsize(dtype) for wanted, dtype in sizes if wanted.name not in scales)
