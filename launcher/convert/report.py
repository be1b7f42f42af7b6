"""Report of a conversion: tensors, shapes, bytes, times, digests; as text, as JSON, and as a file with the result."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from launcher.convert.containers.dtypes import itemsize
from launcher.convert.layouts.torch_dist import stacks_layers
from launcher.convert.losses import Values
from launcher.convert.progress import size
from launcher.records import dataclass
from launcher.terminal import duration

if TYPE_CHECKING:
    from launcher.convert.conversion import Prepared
    from launcher.convert.prove import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures of one conversion.

    Attributes:
        source, target: folders; `source_format`, `target_format`: their formats.
        model_type: family.
        parameters: elements of all logical tensors.
        tensors_read, tensors_written: stored tensors.
        bytes_read, bytes_written, bytes_padding: their sizes; padding is part of `bytes_written`.
        dropped: stored tensor to the reason why it was not converted.
        repeats: stored tensors that repeat others (compared, not copied).
        notes: assumptions about the source.
        seconds: time to copy; `verify_seconds`: time to verify.
        values: value statistics: rounded, NaN, infinite.
        verified: every byte was compared; None if not requested.
        digests: XXH3 (128 bits) of each tensor written, by file and name.
        files: files written beside the report, to recognise them later: size of each, SHA-256 of small ones.
    """

    source: str
    source_format: str
    target: str
    target_format: str
    model_type: str | None
    parameters: int
    tensors_read: int
    tensors_written: int
    bytes_read: int
    bytes_written: int
    bytes_padding: int
    dropped: Mapping[str, str] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    verify_seconds: float = 0.0
    values: Values = Values()
    verified: bool | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @staticmethod
    def of(prepared: Prepared, *, seconds: float = 0.0, values: Values | None = None) -> Report:
        """Return the report of a planned or finished conversion."""
        asked, stored = prepared.asked, prepared.stored
        return Report(
            source=str(asked.source),
            source_format=asked.source_format.name,
            target=str(asked.out),
            target_format=asked.target_format.name,
            model_type=prepared.logical.model.model_type,
            parameters=sum(math.prod(shape) for shape in prepared.logical.tensors.values()),
            tensors_read=len(stored.contents) + len(stored.dropped),
            tensors_written=len(prepared.draft.wanted),
            bytes_read=prepared.bytes_read,
            bytes_written=prepared.bytes_written,
            bytes_padding=prepared.bytes_padding,
            dropped=dict(stored.dropped),
            repeats=tuple(stored.contents[index].slot.name for index in prepared.plan.repeats),
            notes=(*stored.notes, *prepared.draft.notes, *_padding_note(prepared), *_notes_on_backends(prepared)),
            seconds=round(seconds, 3),
            values=values or Values(),
        )

    def proved(self, proof: Proof) -> Report:
        """Return the report with the result of the verification."""
        return dataclasses.replace(
            self,
            verified=not proof.problems,
            verify_seconds=round(proof.seconds, 3),
            digests=proof.digests,
            values=self.values.with_copied(proof.nan, proof.infinite),
        )

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {**dataclasses.asdict(self), "values": self.values.as_tree()}

    def as_json(self) -> str:
        """Return the text of the report file."""
        return json.dumps(self.as_tree(), indent=1, ensure_ascii=False) + "\n"

    def lines(self) -> list[str]:
        """Return the report as human-readable lines."""
        found = [
            f"{self.source} ({self.source_format}) -> {self.target} ({self.target_format})",
            f"  {self.model_type}, {self.parameters:,} parameters",
            f"  read     {self.tensors_read:7,} tensors  {size(self.bytes_read)}",
            f"  written  {self.tensors_written:7,} tensors  {size(self.bytes_written)}"
            + (f", of which {size(self.bytes_padding)} padding" if self.bytes_padding else ""),
        ]
        found += [f"  note     {note}" for note in self.notes]
        found += _grouped("dropped", self.dropped)
        if self.repeats:
            found.append(f"  repeats  {len(self.repeats)} tensors that others also hold: {', '.join(self.repeats[:3])}")
        return found

    def times(self) -> list[str]:
        """Return the durations as human-readable lines."""
        rate = size(self.bytes_written / max(self.seconds, 1e-9))
        found = [f"  moved in {duration(self.seconds)} ({rate}/s)", *self.values.lines()]
        if self.verified is not None:
            outcome = "every byte matches" if self.verified else "it differs"
            found.append(f"  verified in {duration(self.verify_seconds)}: {outcome}")
        else:
            found.append("  not verified (--no-verify): NaN and inf in tensors copied without a cast are not counted")
        return found


def _notes_on_backends(prepared: Prepared) -> tuple[str, ...]:
    from launcher.convert.builds import notes

    asked = prepared.asked
    if asked.backend is not None or asked.target_format.kind != "mcore":
        return ()
    stack = asked.layout.stack if asked.layout.stack is not None else stacks_layers(prepared.logical)
    return notes(asked.target_format, prepared.logical.model, stack)


def _padding_note(prepared: Prepared) -> list[str]:
    padding = sum(content.fill * itemsize(content.slot.dtype) for content in prepared.stored.contents)
    return [f"{size(padding)} of vocabulary padding in the source are dropped"] if padding else []


def _grouped(label: str, named: Mapping[str, str]) -> list[str]:
    """Return one line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in named.items():
        by_reason.setdefault(reason, []).append(name)
    return [
        f"  {label:8} {len(names)} tensors ({reason}): {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
        for reason, names in by_reason.items()
    ]
