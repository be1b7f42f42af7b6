"""How far `launch estimate` is from published runs: errors of memory and time by source, device, number format, model.

    python -m tools.bench.estimate_accuracy [FILE …] [--rows] [--left] [--models] [--markdown] [--docs] [--errors FILE]

Each line of the files (by default `measured.jsonl` and `measured_bridge.jsonl` beside this one) is one run with its
source. The first table holds the runs on which no figure was fitted or chosen (`held_out.py`), on the devices that have
goals; the second all runs. Figures of fewer than ten runs are in parentheses: they are given without a claim.
"""

import argparse
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from launcher.estimate.kin import likeness
from launcher.job import as_tree
from tools.bench.measured_cases import FILES, Case, Errors, judge_all

Row = list[str]
CLAIM = 10
"""Runs below which a mean is given without a claim."""
GOALS: Mapping[str, float] = {"dense": 5.0, "MoE": 10.0}
"""Mean error of the time, in percent, that runs kept out of every fit should not exceed."""
_DEVICES = {"H100-SXM5-80GB": "H100", "B200": "B200", "B300": "B300", "GB200-NVL72": "GB200", "GB300-NVL72": "GB300"}
# The devices that the goals name.
_POOLED = ("H100", "B200", "GB200", "GB300")
PAGE = Path(__file__).parents[2] / "docs" / "estimate.md"
_MARKS = ("<!-- table: begin -->", "<!-- table: end -->")
# Models of hidden size 512: logits and constants of libraries, which are nothing beside a model of billions, decide.
TINY = ("Megatron-LM CI, tiny models", "MindSpeed-LLM CI")


def percent(errors: Sequence[float]) -> tuple[str, str]:
    """Return the mean of the sizes of errors, and the largest with its sign, in percent; few runs in parentheses."""
    if not errors:
        return "–", "–"
    made = f"{100 * statistics.mean(map(abs, errors)):.1f}", f"{100 * max(errors, key=abs):+.1f}"
    return made if len(errors) >= CLAIM else (f"({made[0]})", f"({made[1]})")


def untouched(found: Iterable[Errors]) -> list[Errors]:
    """Return the runs with a time that no figure of the estimate was fitted or chosen on.

    Runs with deterministic kernels are left out: on Blackwell Transformer Engine 2.8 takes another library's attention
    there (dot_product_attention/utils.py:986), and no estimate describes what the others cost. `report` counts them.
    """
    timed = [each for each in found if each.seconds is not None and not each.case.deterministic]
    return [each for each in timed if not each.case.used("time")]


# Two runs of one job whose times differ by more than this factor: what makes one of them slow is not in the job.
_CONTRADICTION = 1.5


def contradictions(found: Sequence[Errors]) -> list[Errors]:
    """Return the runs of which another run of the same job took 1.5 times as long, or two thirds of the time."""
    times: dict[str, list[float]] = defaultdict(list)
    keys = {id(each): _job_key(each) for each in found if each.case.seconds}
    for each in found:
        if each.case.seconds:
            times[keys[id(each)]].append(each.case.seconds)
    wide = {key for key, of in times.items() if max(of) > _CONTRADICTION * min(of)}
    return [each for each in found if keys.get(id(each)) in wide]


def _job_key(each: Errors) -> str:
    return json.dumps([each.case.source, as_tree(each.case.job)], sort_keys=True, default=str)


def headline(found: Sequence[Errors]) -> list[Row]:
    """Return the table of the times of runs kept out of every fit, its header first.

    Left out, and named by `report`: runs that contradict another one of the same job, runs with deterministic kernels.
    """
    rows = [["model", "device", "format", "runs", "mean %", "worst %", "never looked at: runs", "mean %", "goal"]]
    doubtful = {id(each) for each in contradictions(found)}
    kept = [each for each in untouched(found) if each.case.hardware in _DEVICES]
    kept = [each for each in kept if id(each) not in doubtful]
    for kind, goal in GOALS.items():
        own = [each for each in kept if each.case.kind.startswith(kind)]  # with and without FSDP
        for device, short in _DEVICES.items():
            here = [each for each in own if each.case.hardware == device]
            formats = sorted({each.case.precision for each in here})
            if len(formats) > 1:
                rows.append(_summary(kind, short, "all", here, goal))
            rows += [_summary(kind, short, f, [e for e in here if e.case.precision == f], goal) for f in formats]
        named = [each for each in own if _DEVICES[each.case.hardware] in _POOLED]
        rows.append(_summary(kind, ", ".join(_POOLED), "all", named, goal))
        rows.append(_summary(kind, "all", "all", own, goal))
    return rows


def _summary(kind: str, device: str, precision: str, found: Sequence[Errors], goal: float) -> Row:
    times = [each.seconds or 0.0 for each in found]
    mean, worst = percent(times)
    new = [each.seconds or 0.0 for each in found if not each.case.seen]
    reached = (
        "no claim" if len(times) < CLAIM else "met" if 100 * statistics.mean(map(abs, times)) <= goal else "missed"
    )
    verdict = f"≤ {goal:g}: {reached}"
    return [kind, device, precision, str(len(times)), mean, worst, str(len(new)), percent(new)[0], verdict]


def table(found: Sequence[Errors], *, models: bool = False) -> list[Row]:
    """Return the table of all runs, its header first.

    Args:
        models: a line for each model of Megatron-Bridge's tables, instead of one for dense models and one for MoE.
    """
    cells: dict[tuple[str, ...], list[Errors]] = defaultdict(list)
    for each in found:
        if not each.case.oom:
            cells[_cell(each.case, models)].append(each)
    rows = [
        ["source", "device", "format", "model", "used", "runs", "memory mean %", "worst %", "time mean %", "worst %"]
    ]
    for key in sorted(cells):
        errors = cells[key]
        memory = percent([each.memory for each in errors if each.memory is not None])
        seconds = percent([each.seconds for each in errors if each.seconds is not None])
        rows.append([*key, str(len(errors)), *memory, *seconds])
    return rows


def _cell(case: Case, models: bool) -> tuple[str, ...]:
    uses = [f"{quantity} {how}" for quantity in ("time", "memory") if (how := case.used(quantity))]
    kind = case.name.split(" ")[0] if models and case.source.endswith("Bridge tables") else case.kind
    return case.source, case.hardware, case.precision, kind, ", ".join(uses) or "–"


def verdicts(found: Sequence[Errors]) -> tuple[list[str], int, list[str], int]:
    """Return runs said not to fit though they ran, of how many; runs said to fit though out of memory, of how many.

    What is allocated after a step says nothing about the peak.
    """
    known = [each for each in found if each.fits is not None and each.case.states is None]
    ran, failed = [each for each in known if not each.case.oom], [each for each in known if each.case.oom]
    refused = [f"{each.case.name} ({each.case.source})" for each in ran if not each.fits]
    accepted = [f"{each.case.name} ({each.case.source})" for each in failed if each.fits]
    return refused, len(ran), accepted, len(failed)


def errors_text(found: Sequence[Errors]) -> str:
    """Return the runs with what makes a job their kin, a line each, for `launcher/estimate/kin.json`.

    Runs of one layout of one model (other releases, numbers of micro-batches, recomputed modules) count once, with the
    median of their errors: as many lines would make the range of another layout too narrow.
    """
    alike: dict[tuple[object, ...], list[Errors]] = defaultdict(list)
    for each in found:
        if not each.case.source.startswith(TINY) and (each.memory is not None or each.seconds is not None):
            alike[_layout(each.case)].append(each)
    rows = []
    for runs in alike.values():
        first = runs[0].case
        figures = {
            "memory": _median([each.memory for each in runs if each.memory is not None]),
            "time": _median(
                [each.seconds for each in runs if each.seconds is not None and not each.case.deterministic]
            ),
        }
        name = first.name if len(runs) == 1 else f"{first.name} and {len(runs) - 1} more"
        rows.append(json.dumps({"source": first.source, "name": name, **asdict(likeness(first.job)), **figures}))
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _layout(case: Case) -> tuple[object, ...]:
    model, parallel = case.job.model, case.job.parallel
    sizes = (model.num_hidden_layers, model.hidden_size, model.moe_intermediate_size, model.num_attention_heads)
    layout = (parallel.tp, parallel.pp, parallel.vpp, parallel.cp, parallel.ep, case.job.batch.micro_batch_size)
    machine = (case.source, case.hardware, case.precision, case.job.cluster.world_size, case.kind)
    return (*machine, *sizes, *layout)


def _median(errors: Sequence[float]) -> float | None:
    return round(statistics.median(errors), 4) if errors else None


def main() -> None:
    """Print the tables."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("measured", type=Path, nargs="*", default=FILES, help="JSON lines of measured runs")
    made.add_argument("--rows", action="store_true", help="also print every run")
    made.add_argument("--left", action="store_true", help="also print why runs have no job")
    made.add_argument("--models", action="store_true", help="a line for each model of Megatron-Bridge's tables")
    made.add_argument("--markdown", action="store_true", help="tables for the docs")
    made.add_argument("--docs", action="store_true", help="write the tables into docs/estimate.md")
    made.add_argument(
        "--errors", type=Path, metavar="FILE.json", help="write the errors from which an estimate's range is computed"
    )
    options = made.parse_args()
    found, left = judge_all(options.measured)
    if options.rows:
        for each in sorted(found, key=lambda one: abs(one.seconds or 0)):
            print(_line(each))
    for text in report(found, len(left), markdown=options.markdown, models=options.models):
        print(text)
    if options.docs:
        written = "\n".join(report(found, len(left), markdown=True))
        PAGE.write_text(between(PAGE.read_text(encoding="utf-8"), written), encoding="utf-8")
    if options.left:
        for (source, why), count in sorted(Counter(left).items()):
            print(f"{count:4}  {source}: {why}")
    if options.errors is not None:
        options.errors.write_text(errors_text(found), encoding="utf-8")


def between(page: str, text: str) -> str:
    """Return a page with `text` between the marks of its table."""
    before, _, rest = page.partition(_MARKS[0])
    return f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}"


def report(found: Sequence[Errors], left: int, *, markdown: bool, models: bool = False) -> list[str]:
    """Return what the command prints: counts, both tables, the errors of the verdict."""
    write: Callable[[list[Row]], str] = as_markdown if markdown else aligned
    refused, ran, accepted, failed = verdicts(found)
    doubtful = [f"{each.case.name}: {each.case.seconds:.3g} s" for each in contradictions(found)]
    repeatable = [
        f"{each.case.name}: {100 * each.seconds:+.1f} %"
        for each in found
        if each.case.deterministic and each.seconds is not None
    ]
    return [
        f"{len(found) + left} published runs, {len(found)} of them judged\n",
        write(headline(found)) + "\n",
        write(table(found, models=models)) + "\n",
        _listed(
            f"not in the first table, because two runs of one job differ by more than 1.5: {len(doubtful)}", doubtful
        ),
        _listed(f"not in the first table, because they run deterministic kernels: {len(repeatable)}", repeatable),
        _listed(f"said not to fit though it ran: {len(refused)} of {ran}", refused),
        _listed(f"said to fit though published as out of memory: {len(accepted)} of {failed}", accepted),
    ]


def _listed(title: str, names: Sequence[str]) -> str:
    lines = [f"- {name} × {n}" if n > 1 else f"- {name}" for name, n in Counter(names).items()]
    return "\n".join([f"{title}\n", *lines, ""])


def _line(each: Errors) -> str:
    memory = f"{100 * each.memory:+7.2f} %" if each.memory is not None else "        –"
    seconds = f"{100 * each.seconds:+7.2f} %" if each.seconds is not None else "        –"
    stages = " ".join(f"{100 * value:+.2f}" for value in each.stages)
    fits = "" if each.fits is None or each.fits else "  does not fit"
    return f"memory {memory}  time {seconds}  {each.case.source}  {each.case.name}{fits}  {stages}"


def as_markdown(rows: list[Row]) -> str:
    """Return a table for the docs; the columns of figures are set right."""
    first = next(number for number, name in enumerate(rows[0]) if name in ("runs", "rank"))
    rule = "|---" * first + "|--:" * (len(rows[0]) - first) + "|"
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], rule, *lines[1:]])


def aligned(rows: list[Row]) -> str:
    """Return a table for a terminal."""
    first = next(number for number, name in enumerate(rows[0]) if name in ("runs", "rank"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < first else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


if __name__ == "__main__":
    main()
