"""All measured runs as jobs: the rows of `measured.jsonl` and `measured_bridge.jsonl`, and how far the estimate is off.

A row's job is written from what its source says, nothing else: no row has a factor of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.compose import compose
from launcher.estimate import CannotEstimate
from launcher.estimate.as_run import as_run
from launcher.estimate.check import problems
from launcher.estimate.estimate import quick
from launcher.job import Job
from launcher.job.number_formats import format_of
from tools.bench import held_out, measured_ascend, measured_bridge, measured_megatron, measured_other, measured_simumax

FILES = (Path(__file__).with_name("measured.jsonl"), measured_bridge.ROWS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A published run as a job, and what was measured.

    Attributes:
        source: where it is published, as the tables name it.
        memory, last_stage, states: bytes: peak of the fullest device, peak of the last stage, what is allocated
            between steps.
        stages: peaks by stage.
        seconds: of a step.
        oom: whether it is published as out of memory.
        seen: whether the project was developed on it.
        deterministic: it ran with deterministic kernels only, whose time the estimate does not describe.
    """

    source: str
    name: str
    job: Job
    memory: float | None = None
    last_stage: float | None = None
    states: float | None = None
    stages: Mapping[int, float] = field(default_factory=dict)
    seconds: float | None = None
    oom: bool = False
    seen: bool = True
    deterministic: bool = False

    @property
    def hardware(self) -> str:
        """The device's name."""
        return self.job.hardware.name or "not stated"

    @property
    def precision(self) -> str:
        """Name of the number format of matrix products."""
        return format_of(self.job.precision).name

    @property
    def kind(self) -> str:
        """What the table distinguishes of models: dense, dense with FSDP, or with experts."""
        if self.job.model.is_moe:
            return "MoE"
        return "dense, FSDP" if self.job.parallel.fsdp.implementation else "dense"

    def used(self, quantity: held_out.Quantity) -> str:
        """Return whether a figure of the estimate was fitted or chosen on this run's time or memory."""
        return held_out.used(
            source=self.source,
            hardware=self.hardware,
            experts=self.job.model.is_moe,
            kind=self.kind,
            name=self.name,
            seen=self.seen,
            quantity=quantity,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Signed relative errors of one run; None where nothing was measured."""

    case: Case
    memory: float | None
    stages: tuple[float, ...]
    seconds: float | None
    fits: bool | None


def rows(files: Sequence[Path] = FILES) -> Iterator[dict[str, Any]]:
    """Yield the rows of the files."""
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def reason(row: Mapping[str, Any]) -> str | None:
    """Return why no job is formed of a row, where its transcription says so."""
    if measured_bridge.is_row(row):
        return measured_bridge.excluded(row)
    found: str | None = row.get("excluded")
    return found


def case_of(row: Mapping[str, Any]) -> Case | None:
    """Return the job of a measured row; None for what the estimate does not describe."""
    source = row["source"]
    if measured_bridge.is_row(row):
        bridge = measured_bridge.case(row)
        return None if bridge is None else Case(**bridge, seen=bool(row.get("seen")))
    if source.startswith("SimuMax"):
        args = measured_simumax.overrides(row)
        if args is None:
            return None
        return Case(source="SimuMax 1.2", name=row["id"], job=compose(args), **measured_simumax.measured(row))
    if source.startswith("Megatron-LM") and "golden" in row:
        return _golden(row)
    if measured_ascend.is_row(row):
        ascend = measured_ascend.case(row)
        return None if ascend is None else Case(**ascend)
    found = measured_other.overrides(row)
    if found is None:
        return None
    group, args = found
    return Case(source=group, name=measured_other.name_of(row), job=compose(args), **measured_other.measured(row))


def _golden(row: Mapping[str, Any]) -> Case | None:
    """Return the job of a test of Megatron-LM's CI; its time counts for models of billions only."""
    name, large = measured_megatron.hardware_of(row), "memory_speed" in row["case"]
    job = measured_megatron.job_of(row, hardware_section(name or "a100_80g"))
    if job is None:
        return None
    size = "7B and MoE, deterministic kernels" if large else "tiny models"
    if "dracooci" in row["golden"]:
        size = "tiny models, one cluster that contradicts the others"
    return Case(
        source=f"Megatron-LM CI, {size}",
        name=f"{row['case']} {row['hw']}",
        job=job,
        last_stage=row["mem_max_allocated_bytes"],
        seconds=row["iter_time_s_median"] if large and name else None,
        deterministic=bool(row.get("deterministic")),
    )


_SECTIONS: dict[str, dict[str, Any]] = {}


def hardware_section(name: str) -> dict[str, Any]:
    """Return the fields of a hardware file."""
    from launcher.job import as_tree

    if name not in _SECTIONS:
        section = as_tree(compose([f"hardware={name}"]))["hardware"]
        assert isinstance(section, dict)
        _SECTIONS[name] = section
    return _SECTIONS[name]


def judge(case: Case) -> Errors:
    """Estimate a case and return its errors.

    Raises:
        CannotEstimate: the job is not one that we can estimate.
    """
    # As `launch estimate`, without trying out which fields have no effect.
    job, _ = as_run(case.job)
    found = problems(job)
    if found:
        raise CannotEstimate(found)
    answer = quick(job, exact=True)
    peaks = {stage.stage: stage.peak_allocated for stage in answer.stages}
    memory = None
    if case.memory:
        memory = max(peaks.values()) / case.memory - 1
    elif case.states:
        memory = max(each.weights + each.gradients + each.optimizer for each in answer.stages) / case.states - 1
    elif case.last_stage:
        memory = peaks[len(peaks) - 1] / case.last_stage - 1
    stages = tuple(peaks[stage] / real - 1 for stage, real in case.stages.items())
    seconds = answer.time.step_s / case.seconds - 1 if case.seconds and answer.time else None
    return Errors(case=case, memory=memory, stages=stages, seconds=seconds, fits=answer.fits)


def judge_all(files: Sequence[Path] = FILES) -> tuple[list[Errors], list[tuple[str, str]]]:
    """Return the errors of all rows of which a job can be formed, and (source, why) of the others."""
    judged, left = [], []
    for row in rows(files):
        case = case_of(row)
        source = row["source"].split(" (")[0][:60]
        if case is None:
            left.append((source, reason(row) or "not described by the estimate"))
            continue
        try:
            judged.append(judge(case))
        except CannotEstimate as error:
            left.append((source, f"refused: {error}"))
    return judged, left
