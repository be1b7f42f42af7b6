"""Routing flips: how many of the experts that routers choose differ between two trainings, iteration by iteration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.job import Job, fields, value_at
from launcher.parity.runs import Trained
from launcher.parity.sides import in_one_process
from launcher.rehearse.cpu.routing import VARIABLE

_FOLDER = "routing"
AGAIN = "reference again"
"""Key of the reference, trained again with the sums of its MLPs in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Differing choices of experts.

    Attributes:
        counts: by iteration, how many choices differ, and how many there are (tokens x experts of a token, over all
            layers).
        problem: why they are not counted; "" where they are.
    """

    counts: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    problem: str = ""

    def line(self) -> str:
        """Return a sentence."""
        if self.problem:
            return f"routing flips not counted: {self.problem}"
        return f"routing flips (choices of experts that differ): {self.counted}"

    @property
    def counted(self) -> str:
        """How many differ of how many, and the first iteration in which some do."""
        changed, all_ = (sum(each[index] for each in self.counts.values()) for index in (0, 1))
        first = next((number for number, each in self.counts.items() if each[0]), None)
        return f"{changed} of {all_}" + ("" if first is None else f" (from iteration {first})")

    def as_tree(self) -> dict[str, Any]:
        """Return plain data for --json."""
        each = [
            {"iteration": number, "differ": changed, "choices": all_} for number, (changed, all_) in self.counts.items()
        ]
        return {"iterations": each, "problem": self.problem or None}


def recorded_in(job: Job, folder: Path) -> dict[str, str]:
    """Return the variable with which a training of the job records its choices below `folder`; {}: it has none."""
    return {VARIABLE: str(folder / _FOLDER)} if job.model.is_moe and not _split(job) else {}


def between(job: Job, trained: Sequence[Trained], again: Trained | None = None) -> dict[str, Flips]:
    """Return the flips between the first training and each other one, by its label; {} for a model without routers.

    Args:
        job: of the trainings; its layout is theirs.
        trained: finished trainings.
        again: the second run of the first one, whose key is AGAIN; None: there is none.
    """
    if not job.model.is_moe:
        return {}
    others = {each.label: each for each in trained[1:]} | ({} if again is None else {AGAIN: again})
    if _split(job):
        ranks = f"tokens or layers are split over {job.cluster.world_size} ranks"
        split = Flips(problem=f"{ranks}; works: {' '.join(_without_split(job))}")
        return dict.fromkeys(others, split)
    return {name: _flips(trained[0], each) for name, each in others.items()}


def _flips(reference: Trained, side: Trained) -> Flips:
    names = (reference.label, side.label)
    found = [_read(Path(each.log).parent / _FOLDER) for each in (reference, side)]
    for name, choices in zip(names, found, strict=True):
        if not choices:
            return Flips(problem=f"{name} records no routers; works: --backends without it")
    counts = {}
    for number in sorted(found[0].keys() & found[1].keys()):
        count = _differing(found[0][number], found[1][number])
        if count is None:
            other = f"the routers of {names[0]} and {names[1]} see other tokens at iteration {number}"
            return Flips(problem=f"{other}; works: task=pretrain (samples of one length, without padding)")
        counts[number] = count
    return Flips(counts=counts)


def _split(job: Job) -> bool:
    """Return whether tokens of a micro-batch are on several ranks, or layers are."""
    return (job.cluster.world_size or 1) > 1


def _without_split(job: Job) -> Iterator[str]:
    """Yield the overrides with which the job runs in one process."""
    one = in_one_process(job)
    for path in fields():
        value = value_at(one, path)
        if path.startswith("parallel.") and path != "parallel.dp" and value != value_at(job, path):
            yield f"{path}={'null' if value is None else str(value).lower()}"
    yield from (["cluster.nodes=1"] if job.cluster.nodes > 1 else [])
    yield "cluster.devices_per_node=1"


def _read(folder: Path) -> dict[int, dict[str, Any]]:
    """Return by iteration the choices of each router."""
    import numpy

    found = {}
    for file in folder.glob("*.npz"):
        with numpy.load(file) as content:
            found[int(file.stem)] = dict(content)
    return found


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return how many choices of the first are not in the second, and how many there are; None: other tokens."""
    if one.keys() != other.keys() or any(one[name].shape != other[name].shape for name in one):
        return None
    changed = sum(int((each & ~other[name]).sum()) for name, each in one.items())
    return changed, sum(int(each.sum()) for each in one.values())
