"""Interface of a checkpoint format: how it is recognised, read, and laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.layouts.content import Content, Stored, Wanted
from launcher.convert.layouts.core import Naming, padded_vocabulary
from launcher.convert.logical import Logical
from launcher.job import Job
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the training splits the model, and how its layers are built. Defaults: one process.

    Attributes:
        tp, pp, vpp, ep, etp: parallel sizes; vpp is model chunks per stage, etp None uses the format's default.
        first_stage_layers, last_stage_layers, layout, noop_layers: uneven stages, as fields of `parallel`.
        account_for_embedding, account_for_loss: the first or the last stage holds one layer less.
        vocabulary: rows of the embedding and the output layer; None pads to a multiple of
            `vocabulary_multiple` times tp.
        naming: layer implementation (Transformer Engine or local); None uses the format's default.
        grouped_experts: experts as one grouped GEMM; None uses the format's default.
        experts_over_tp: experts are not split; they are distributed over tensor-parallel and expert-parallel ranks.
        stack: torch_dist: all layers as one tensor; None follows megatron-core.
        folded: the second chunks are on the stages in reverse order (dualpipev).
        options: format-specific options (`mla_mm_split` …), from `--set NAME=VALUE`.
        args: native arguments of the job (`backend.passthrough`), for the arguments that a format stores.
        version: version of the backend; None for its newest.
        qkv_concat: one fused matrix instead of separate projections; None uses the backend's default.
        legacy: the backend's model classes from before Megatron-core; None for those that train the model.
    """

    tp: int = 1
    pp: int = 1
    vpp: int | None = None
    folded: bool = False
    ep: int = 1
    etp: int | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    layout: str | None = None
    noop_layers: tuple[int, ...] = ()
    account_for_embedding: bool = False
    account_for_loss: bool = False
    vocabulary: int | None = None
    vocabulary_multiple: int = 1
    naming: Naming | None = None
    grouped_experts: bool | None = None
    experts_over_tp: bool = False
    stack: bool | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict)
    version: str | None = None
    qkv_concat: bool | None = None
    legacy: bool | None = None


def layout_of(job: Job, *, naming: Naming | None = None, options: Mapping[str, str] | None = None) -> Layout:
    """Return the layout in which a job trains."""
    parallel = job.parallel
    return Layout(
        tp=parallel.tp,
        pp=parallel.pp,
        vpp=parallel.vpp,
        folded=parallel.schedule == "dualpipev",
        ep=parallel.ep,
        etp=parallel.etp,
        first_stage_layers=parallel.first_stage_layers,
        last_stage_layers=parallel.last_stage_layers,
        layout=parallel.layout,
        noop_layers=parallel.noop_layers,
        account_for_embedding=bool(parallel.account_for_embedding),
        account_for_loss=bool(parallel.account_for_loss),
        vocabulary=job.tokenizer.padded_vocab_size,
        vocabulary_multiple=job.tokenizer.make_vocab_size_divisible_by or 1,
        naming=naming or _naming(job),
        grouped_experts=job.moe.grouped_gemm,
        experts_over_tp=bool(job.moe.tp_extend_ep),
        options=dict(options or {}),
        args=dict(job.backend.passthrough),
        version=job.backend.version,
        qkv_concat=job.kernels.qkv_concat,
        legacy=job.model.legacy,
    )


def _naming(job: Job) -> Naming | None:
    names: dict[str | None, Naming] = {"local": "local", "transformer_engine": "transformer_engine"}
    return names.get(job.kernels.transformer_impl)


def vocabulary_of(logical: Logical, layout: Layout) -> int:
    """Return the rows of the embedding and the output layer, including padding.

    Raises:
        ConvertError: the layout has fewer than the model.
    """
    padded, own = padded_vocabulary(logical.model, multiple=layout.vocabulary_multiple, tp=layout.tp), layout.vocabulary
    if own is not None and own < (logical.model.vocab_size or 0):
        raise ConvertError(
            f"tokenizer.padded_vocab_size={own}: the model has a vocabulary of {logical.model.vocab_size}; works:"
            f" tokenizer.padded_vocab_size={padded}"
        )
    return padded if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The checkpoint to write.

    Attributes:
        logical: the model.
        dtypes: logical tensor to its stored number format.
        layout: the layout.
        donor: folder whose config.json, tokenizer and generation files are copied, if any.
        fp8: logical tensors to store in FP8 with blockwise scales.
    """

    logical: Logical
    dtypes: Mapping[str, str]
    layout: Layout
    donor: Path | None = None
    fp8: frozenset[str] = frozenset()

    @property
    def matrix_dtype(self) -> str | None:
        """Number format of the model's matrices, except those that keep theirs in every cast; None if several."""
        kept = {
            name
            for instance in self.logical.instances
            if instance.row.exact or instance.row.integer is not None
            for name in instance.logical
        }
        found = {
            self.dtypes[name] for name, shape in self.logical.tensors.items() if len(shape) == 2 and name not in kept
        }
        return found.pop() if len(found) == 1 else None

    def dtypes_of(self, parts: Sequence[tuple[str, Wanted]]) -> tuple[str, ...]:
        """Return the number formats of the parts of tensors, each with its tensor's name.

        A part that is nothing but padding (of a vocabulary, on the last ranks) has that of the other parts.

        Raises:
            ConvertError: a part consists of tensors of several formats.
        """
        known = {name: self.dtype(wanted) for name, wanted in reversed(parts) if wanted.boxes}
        return tuple(self.dtype(wanted) if wanted.boxes else known[name] for name, wanted in parts)

    def dtype(self, wanted: Wanted) -> str:
        """Return the number format of a tensor to store.

        Raises:
            ConvertError: it consists of tensors of several formats.
        """
        found = {self.dtypes[box.logical] for box in wanted.boxes}
        if len(found) != 1:
            names = ", ".join(sorted(f"{box.logical} is {self.dtypes[box.logical]}" for box in wanted.boxes)[:3])
            raise ConvertError(f"{wanted.name} would mix number formats ({names}); works: --dtype bf16|fp16|fp32")
        return found.pop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A planned checkpoint: all of its tensors, and how they are allocated.

    Attributes:
        wanted: the tensors.
        dtypes: their number formats, in the same order.
        create: lays everything out in an existing empty directory: files with holes, and whatever else the
            format needs (arguments, tracker, configuration). Returns the slots, in the same order.
        files: approximate number of files.
        notes: sentences for the report (choices that the layout leaves open).
    """

    wanted: tuple[Wanted, ...]
    dtypes: tuple[str, ...]
    create: Callable[[Path], list[Slot]]
    files: int
    notes: tuple[str, ...] = ()

    def contents(self, slots: list[Slot]) -> tuple[Content, ...]:
        """Return the tensors with their slots."""
        named = {slot.name: slot for slot in slots} if any(wanted.scale for wanted in self.wanted) else {}
        return tuple(
            Content(
                slot=slot,
                boxes=wanted.boxes,
                fill=wanted.fill,
                scale=named[wanted.scale] if wanted.scale is not None else None,
            )
            for slot, wanted in zip(slots, self.wanted, strict=True)
        )

    def placeless(self) -> tuple[Content, ...]:
        """Return the tensors with placeholder slots, to plan before anything is written."""
        nowhere = Path()
        return tuple(
            Content(
                slot=Slot(name=wanted.name, shape=wanted.shape, dtype=dtype, path=nowhere, offset=0),
                boxes=wanted.boxes,
                fill=wanted.fill,
            )
            for wanted, dtype in zip(self.wanted, self.dtypes, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A checkpoint format.

    Attributes:
        name: value of `--format`.
        title: display name.
        kind: `hf` for formats that transformers reads, `mcore` for formats that a training stack reads.
        recognises: whether a folder holds such a checkpoint; checks names only.
        read: maps folder and model to the stored tensors; drops layers from the model that the folder lacks.
        draft: maps a target to the planned checkpoint.
        config: maps a folder to the folder that holds its config.json, if any.
        options: names that `--set` accepts when it is written (for adapters also when read).
        layers: layer implementations whose names it can use; empty if it has its own names.
        holds: relative paths (fnmatch pattern per component) of all files that such a checkpoint may consist of;
            `--overwrite` replaces nothing else. Documents and code are omitted: they may be the user's.
        requires: files that a folder must have to count as such a checkpoint, for `--overwrite`.
        checkpoint_format: value of `checkpoint.format` with which a job starts from it; empty: its name.
    """

    name: str
    title: str
    kind: Literal["hf", "mcore"]
    recognises: Callable[[Path], bool]
    read: Callable[[Path, Logical, Layout], tuple[Logical, Stored]]
    draft: Callable[[Target], Draft]
    config: Callable[[Path], Path | None]
    options: tuple[str, ...] = ()
    layers: tuple[Naming, ...] = ()
    holds: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    checkpoint_format: str = ""


def below(folder: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return patterns of files in a folder."""
    return tuple(f"{folder}/{name}" for name in names)
