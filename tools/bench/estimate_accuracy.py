"""How far `launch estimate` is from real runs: mean and worst error of memory and time, source by source.

    python -m tools.bench.estimate_accuracy [MEASURED.jsonl] [--rows] [--markdown] [--errors FILE.json]

Each line of the file (by default `measured.jsonl` beside this one) is one measured run with its source. A row's job is
written from what the source says, nothing else: no row has a factor of its own. Rows of models or stacks that the
estimate does not describe are counted as such.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launcher.compose import compose
from launcher.estimate import CannotEstimate, estimate
from launcher.estimate.kin import likeness
from launcher.job import Job
from tools.bench import measured_ascend, measured_megatron, measured_other, measured_simumax

GIB = 1024**3
ROWS = Path(__file__).with_name("measured.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured run as a job, and what was measured."""

    group: str
    name: str
    job: Job
    memory: float | None = None
    last_stage: float | None = None
    states: float | None = None
    stages: Mapping[int, float]
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Signed relative errors of one run; None where nothing was measured."""

    case: Case
    memory: float | None
    stages: tuple[float, ...]
    seconds: float | None
    fits: bool | None


def case_of(row: Mapping[str, Any], hardware: Mapping[str, Mapping[str, Any]]) -> Case | None:
    """Return the job of a measured row; None for what the estimate does not describe."""
    source = row["source"]
    if source.startswith("SimuMax"):
        args = measured_simumax.overrides(row)
        if args is None:
            return None
        machine = "B200" if row["system"].startswith("b200") else "A100 PCIe"
        return Case(
            group=f"SimuMax 1.2, {machine}", name=row["id"], job=compose(args), **measured_simumax.measured(row)
        )
    if source.startswith("Megatron-LM") and "golden" in row:
        name = measured_megatron.hardware_of(row)
        job = measured_megatron.job_of(row, hardware[name or "a100_80g"])
        if job is None:
            return None
        size = "7B and MoE" if "memory_speed" in row["case"] else "tiny models"
        if "dracooci" in row["golden"]:
            size = "tiny models, values of one cluster that contradict the others'"
        last = row["mem_max_allocated_bytes"]
        timed = row["iter_time_s_median"] if "memory_speed" in row["case"] and name and row["hw"] != "GB200" else None
        return Case(
            group=f"Megatron-LM CI, {size}",
            name=f"{row['case']} {row['hw']}",
            job=job,
            last_stage=last,
            stages={},
            seconds=timed,
        )
    if measured_ascend.is_row(row):
        ascend = measured_ascend.case(row)
        if ascend is None:
            return None
        return Case(stages={}, **ascend)
    found = measured_other.overrides(row)
    if found is None:
        return None
    group, args = found
    return Case(group=group, name=str(row.get("model")), job=compose(args), stages={}, **measured_other.measured(row))


def judge(case: Case) -> Errors:
    """Estimate a case and return its errors.

    Raises:
        CannotEstimate: the job is not one that we can estimate.
    """
    answer = estimate(case.job)
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


def percent(errors: Sequence[float]) -> tuple[str, str]:
    """Return the mean of the sizes of errors, and the largest with its sign, in percent."""
    if not errors:
        return "–", "–"
    return f"{100 * statistics.mean(map(abs, errors)):.2f}", f"{100 * max(errors, key=abs):+.2f}"


def table(groups: Mapping[str, Sequence[Errors]], left: Mapping[str, int]) -> list[list[str]]:
    """Return the rows of the table, its header first."""
    rows = [["source", "runs", "memory mean %", "worst %", "stages mean %", "worst %", "time mean %", "worst %"]]
    for group, errors in groups.items():
        memory = percent([each.memory for each in errors if each.memory is not None])
        stages = percent([value for each in errors for value in each.stages])
        seconds = percent([each.seconds for each in errors if each.seconds is not None])
        rows.append([group, str(len(errors)), *memory, *stages, *seconds])
    rows += [[f"{source}: not described", str(count), *["–"] * 6] for source, count in left.items()]
    return rows


def main() -> None:
    """Print the table."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("measured", type=Path, nargs="?", default=ROWS, help="JSON lines of measured runs")
    made.add_argument("--rows", action="store_true", help="also print every run")
    made.add_argument("--markdown", action="store_true", help="a table for the docs")
    made.add_argument(
        "--errors", type=Path, metavar="FILE.json", help="write the errors from which an estimate's range is computed"
    )
    options = made.parse_args()
    hardware = {name: _hardware(name) for name in ("a100_80g", "h100_80g", "b200")}
    groups: dict[str, list[Errors]] = defaultdict(list)
    left: dict[str, int] = defaultdict(int)
    for line in options.measured.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        case = case_of(row, hardware)
        if case is None:
            left[row["source"].split(" (")[0][:60]] += 1
            continue
        try:
            errors = judge(case)
        except CannotEstimate as error:
            left[row["source"].split(" (")[0][:60]] += 1
            if options.rows:
                print(f"refused  {case.name}: {error}")
            continue
        groups[case.group].append(errors)
        if options.rows:
            _print_row(errors)
    _print(table(groups, left), markdown=options.markdown)
    print(_verdicts([each for group in groups.values() for each in group]))
    if options.errors is not None:
        options.errors.write_text(errors_text([each for group in groups.values() for each in group]), encoding="utf-8")


def _verdicts(found: Sequence[Errors]) -> str:
    """Return how many runs are said not to fit; all rows ran, none of these sources publishes a run out of memory.

    What is allocated after a step says nothing about the peak.
    """
    known = [each for each in found if each.fits is not None and each.case.states is None]
    refused, judged = [f"{each.case.name} ({each.case.group})" for each in known if not each.fits], len(known)
    return "\n  ".join([f"said not to fit though it ran: {len(refused)} of {judged}", *refused])


# Models of hidden size 512: logits and constants of libraries, which are nothing beside a model of billions, decide.
_TINY = ("Megatron-LM CI, tiny models", "MindSpeed-LLM CI")


def errors_text(found: Sequence[Errors]) -> str:
    """Return the runs with what makes a job their kin, a line each, for `launcher/estimate/kin.json`."""
    rows = []
    for each in found:
        if each.case.group.startswith(_TINY):
            continue
        kin = asdict(likeness(each.case.job))
        figures = {
            name: None if value is None else round(value, 4)
            for name, value in (("memory", each.memory), ("time", each.seconds))
        }
        rows.append(json.dumps({"source": each.case.group, "name": each.case.name, **kin, **figures}))
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _hardware(name: str) -> dict[str, Any]:
    from launcher.job import as_tree

    section = as_tree(compose([f"hardware={name}"]))["hardware"]
    assert isinstance(section, dict)
    return section


def _print_row(errors: Errors) -> None:
    memory = f"{100 * errors.memory:+7.2f} %" if errors.memory is not None else "        –"
    seconds = f"{100 * errors.seconds:+7.2f} %" if errors.seconds is not None else "        –"
    stages = " ".join(f"{100 * value:+.2f}" for value in errors.stages)
    print(f"memory {memory}  time {seconds}  {errors.case.group}  {errors.case.name}  {stages}")


def _print(rows: list[list[str]], *, markdown: bool) -> None:
    if markdown:
        for number, row in enumerate(rows):
            print("| " + " | ".join(row) + " |")
            if number == 0:
                print("|---" + "|--:" * (len(row) - 1) + "|")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  ".join(
                cell.ljust(width) if not column else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )


if __name__ == "__main__":
    main()
