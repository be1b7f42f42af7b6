"""Compares the parameters after training: how far apart two trainings took them, beside how far they were moved."""

import json
import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launcher.parity.reordered import reverse_neurons
from launcher.parity.runs import launch_words
from launcher.parity.tolerance import SPREADS, WIDEST
from launcher.plan import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterDifference:
    """The tensor in which two trainings differ most, measured by its tolerance.

    Attributes:
        name: Hugging Face's name of the tensor; "" where none was compared.
        relative: norm of the difference over the norm of the reference's movement.
        tolerance: what is rounding.
        compared: number of tensors.
        absent: tensors of the start that one of them did not save.
        problem: why there is no comparison; "" where there is one.
    """

    name: str = ""
    relative: float = 0.0
    tolerance: float = 0.0
    compared: int = 0
    absent: tuple[str, ...] = ()
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the difference is rounding; a comparison that could not be made is no disagreement."""
        return self.relative <= self.tolerance

    def line(self) -> str:
        """Return a sentence."""
        if self.problem:
            return f"parameters not compared: {self.problem}"
        verb = "agree" if self.agrees else "differ"
        return (
            f"parameters after training {verb}: {self.name} by {self.relative:.1e} of its movement at most "
            f"({self.compared} tensors, tolerance {self.tolerance:.0e}){self._not_compared()}"
        )

    def _not_compared(self) -> str:
        if not self.absent:
            return ""
        more = f" and {len(self.absent) - 1} more" if self.absent[1:] else ""
        return f"; not compared, as one side did not save it: {self.absent[0]}{more}"

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "tensor": self.name or None,
            "relative_to_movement": self.relative if math.isfinite(self.relative) else None,
            "tolerance": self.tolerance,
            "tensors": self.compared,
            "not_compared": list(self.absent),
            "problem": self.problem or None,
        }


class NotSaved(Exception):
    """A training left no weights that can be read: one sentence."""


def trained_weights(
    run: Path, watch: Watch, model: Path, out: Path, *, alpha: float | None = None, source: Sequence[str] = ()
) -> Path:
    """Return a folder with the weights that a run saved last, in Hugging Face's names.

    Args:
        watch: where the backend reports its checkpoints.
        model: folder with config.json, for the conversion.
        out: folder that the conversion writes.
        alpha: of the adapter that was trained, which no factor contains; None: the weights were.
        source: overrides that name the backend and its version, for safetensors files with a backend's own names.

    Raises:
        NotSaved: there is no checkpoint, or it cannot be converted.
    """
    found = [
        file.parents[tracker.count("/")]
        for pattern, tracker in watch.trackers
        for file in run.glob(f"checkpoints/{pattern}/{tracker}" if pattern else f"checkpoints/{tracker}")
    ]
    saved = max(found, key=lambda folder: folder.stat().st_mtime, default=None)
    if saved is None:
        raise NotSaved("no checkpoint was saved")
    named = any(saved.rglob("*.safetensors"))
    # A directory of transformers or of PEFT.
    if named and any((saved / name).is_file() for name in ("config.json", "adapter_config.json")):
        return saved
    own = [word for override in source if named for word in ("--source", override)]
    own += [] if alpha is None else ["--set", f"alpha={alpha}"]
    command = (*launch_words(), "convert", "mcore-to-hf", "--checkpoint", str(saved), "--model", str(model), *own)
    done = subprocess.run([*command, "--out", str(out), "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotSaved(f"launch convert mcore-to-hf: {_said(done.stdout, done.stderr)}")
    return out


def _said(stdout: str, stderr: str) -> str:
    try:
        findings: Sequence[Mapping[str, str]] = json.loads(stdout).get("findings", [])
    except json.JSONDecodeError:
        findings = []
    return findings[0]["message"] if findings else (stderr.strip().splitlines() or ["no message"])[-1]


def compare_parameters(
    initial: Path,
    reference: Callable[[], Path],
    side: Callable[[], Path],
    *,
    allowed: float,
    again: Callable[[], Path] | None = None,
) -> ParameterDifference:
    """Compare the weights of two trainings that started from the same ones.

    Args:
        allowed: tolerance.
        again: weights of the reference trained from the model with the neurons of its MLPs reversed. Ten times their
            difference is allowed, too: Adam amplifies rounding where a gradient is 0 but for it, as that of a key's
            bias. None: not measured.
    """
    try:
        start, one, other = (_tensors(folder) for folder in (initial, reference(), side()))
    except NotSaved as error:
        return ParameterDifference(problem=str(error))
    names = sorted(start.keys() & one.keys() & other.keys())
    if not names:
        return ParameterDifference(problem="the checkpoints have no tensor in common")
    second = _second(again)
    found = {name: _relative(start[name], one[name], other[name]) for name in names}
    limits = {name: _allowed(name, start, one, second, allowed) for name in names}
    worst = max(names, key=lambda name: (math.isnan(found[name]), _excess(found[name], limits[name])))
    relative = math.inf if math.isnan(found[worst]) else found[worst]
    absent = tuple(sorted(start.keys() - set(names)))
    return ParameterDifference(
        name=worst, relative=relative, tolerance=limits[worst], compared=len(names), absent=absent
    )


def _excess(relative: float, limit: float) -> float:
    """Return a difference over its tolerance, which may be 0."""
    return relative / limit if limit else (math.inf if relative else 0.0)


def _second(again: Callable[[], Path] | None) -> dict[str, Any]:
    """Return the weights of the second training in the order of the first; none where they were not saved."""
    try:
        tensors = _tensors(again()) if again is not None else {}
    except NotSaved:
        return {}
    reverse_neurons(tensors)
    return tensors


def _allowed(
    name: str, start: Mapping[str, Any], one: Mapping[str, Any], second: Mapping[str, Any], own: float
) -> float:
    if name not in second:
        return own
    return max(own, min(SPREADS * _relative(start[name], one[name], second[name]), WIDEST * own))


def _tensors(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(load_file(file))
    return found


def _relative(start: Any, one: Any, other: Any) -> float:
    if one.shape != other.shape or one.shape != start.shape:
        return math.inf
    # A side that saves fp32 beside one that saves 16 bits: no element of theirs is equal before it is rounded as well.
    one, other = (each.to(min((one.dtype, other.dtype), key=lambda dtype: dtype.itemsize)) for each in (one, other))
    moved = float((one.double() - start.double()).norm())
    difference = float(_beyond_rounding(start, one, other).norm())
    return difference / moved if moved else (0.0 if difference == 0.0 else math.inf)


def _beyond_rounding(start: Any, one: Any, other: Any) -> Any:
    """Return how far apart two tensors are; in 16 bits, without what rounding may make of one value.

    The spacing of bf16 at 1 is 0.008: a norm's weight that moves by less is stored as one of two neighbours, and two
    trainings that are one store some of them differently. A tensor that only one of them trains differs from the other
    by as little, but in all that moved: where more than half of it differs by a step, the steps count.
    """
    import torch

    difference = (other.double() - one.double()).abs()
    if one.dtype not in (torch.bfloat16, torch.float16):
        return difference
    info = torch.finfo(one.dtype)
    exponent = torch.frexp(torch.maximum(one.double().abs(), other.double().abs())).exponent
    step = torch.ldexp(torch.full_like(difference, info.eps), exponent - 1).clamp(min=info.eps * info.tiny)
    moved = (one != start) | (other != start)
    neighbours = (difference > 0) & (difference <= step)
    if 2 * int(neighbours.sum()) > int(moved.sum()):
        return difference
    return (difference - step).clamp(min=0.0)
