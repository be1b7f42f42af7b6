"""Imports every strategy x model x system of a SimuMax checkout, and compares the estimate with SimuMax's own answer.

    python -m tools.bench.simumax CHECKOUT --python PYTHON [--show N]
    python -m tools.bench.simumax CHECKOUT --python PYTHON --measured

PYTHON runs SimuMax (it needs pandas, numpy, matplotlib, sympy and tabulate); CHECKOUT is a work tree of
MooreThreads/SimuMax. SimuMax accepts a triple if its own run ends with a memory and a time. Differences are between two
models of the same run, not errors of either; --measured compares both with SimuMax's published runs (measured.jsonl).
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.compose import compose
from launcher.compose.errors import ComposeError
from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.importing.notes import ImportRefused
from launcher.importing.simumax.files import Described, describe, job_text, simumax_files

_KINDS = ("strategy", "models", "system")
# Run by SimuMax's Python: reads triples of paths, one JSON list a line, and prints one JSON object for each.
_WORKER = """
import contextlib, io, json, re, sys, warnings
warnings.filterwarnings("ignore")
from simumax.core.config import ModelConfig, StrategyConfig, SystemConfig
from simumax.core.perf_llm import PerfLLM
def run(strategy, model, system):
    perf = PerfLLM()
    perf.configure(
        strategy_config=StrategyConfig.init_from_config_file(strategy),
        model_config=ModelConfig.init_from_config_file(model),
        system_config=SystemConfig.init_from_config_file(system),
    )
    perf.run_estimate()
    def plain(found):
        return getattr(found, "data", found)
    return plain(perf.analysis_mem()), plain(perf.analysis_cost())
out = sys.stdout
for line in sys.stdin:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            memory, cost = run(*json.loads(line))
        answer = {"memory": memory, "cost": cost}
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"[:200]}
    print(json.dumps(answer, default=str), file=out, flush=True)
"""
_UNITS = {"B": 1.0, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "TB": 2.0**40, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def answers(checkout: Path, python: str, triples: Sequence[tuple[Path, ...]]) -> list[Mapping[str, Any]]:
    """Return SimuMax's own answer to each triple, or its error."""
    lines = "".join(json.dumps([str(path) for path in triple]) + "\n" for triple in triples)
    done = subprocess.run(
        [python, "-c", _WORKER],
        input=lines,
        env={"PYTHONPATH": str(checkout), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if len(found) != len(triples):
        raise SystemExit(f"SimuMax ended after {len(found)} of {len(triples)}:\n{done.stderr[-2000:]}")
    return found


def quantity(text: str) -> float:
    """Return `50.8 GB` or `1.4 s` in bytes or seconds."""
    match = re.fullmatch(r"([\d.eE+-]+) (\w+)", str(text).strip())
    return float(match[1]) * _UNITS[match[2]] if match else float(text)


def peak_and_step(answer: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return bytes at the peak of the fullest stage, and seconds of a step; None: SimuMax gave none."""
    if "error" in answer:
        return None
    memory, cost = answer["memory"], answer["cost"]
    stages = [stage for stage in memory.values() if isinstance(stage, dict) and "peak_mem" in stage] or [memory]
    try:
        return max(quantity(stage["peak_mem"]) for stage in stages), quantity(cost["duration_time_per_iter"])
    except (KeyError, ValueError):
        return None


def ours(triple: Sequence[Path], folder: Path) -> tuple[Described, float, float]:
    """Return the import of a triple, and the estimate of the job file: bytes at the peak, seconds of a step.

    Raises:
        ImportRefused, ComposeError, CannotEstimate: it is refused on the way.
    """
    files = simumax_files([str(path) for path in triple])
    assert files is not None
    described = describe(files)
    file = folder / "job.yaml"
    file.write_text(job_text(described), encoding="utf-8")
    found = estimate(compose([f"+job={file}"]), changes=False)
    assert found.time is not None
    return described, max(stage.peak_allocated for stage in found.stages), found.time.step_s


_MEASURED = Path(__file__).with_name("measured.jsonl")
_SYSTEMS = {"b200": "b200_bf16_ceperm.json", "a100": "a100_pcie.json"}


def measured_triples(checkout: Path, folder: Path) -> Iterator[tuple[Mapping[str, Any], tuple[Path, ...]]]:
    """Yield SimuMax's published runs, each with the three files that describe it."""
    lines = map(json.loads, _MEASURED.read_text(encoding="utf-8").splitlines())
    for number, row in enumerate(line for line in lines if line["source"].startswith("SimuMax")):
        sizes = {f"{name}_size": row[name] for name in ("tp", "pp", "cp", "ep", "etp")}
        strategy = sizes | {
            "seq_len": row["seq_len"],
            "micro_batch_size": row["mbs"],
            "micro_batch_num": row["mbc"],
            "world_size": row["world_size"],
            "interleaving_size": row["vpp"] or 1,
            "zero_state": row["zero"],
            "enable_sequence_parallel": row["sequence_parallel"],
            "grad_reduce_in_bf16": row["grad_dtype"] != "fp32",
            "cross_entropy_loss_fusion": bool(row["ce_fusion"]),
            "enable_recompute": False,
            "dispatch_probs": True,
            "te_version": "2.11.0" if row["system"].startswith("b200") else "2.1.0",
        }
        model = json.loads((checkout / "configs" / "models" / f"{row['model']}.json").read_text(encoding="utf-8"))
        model |= {"layer_num": row["layer_num"], "dense_layers": row["dense_layers"]}
        paths = folder / f"{number}_strategy.json", folder / f"{number}_model.json"
        for path, tree in zip(paths, (strategy, model), strict=True):
            path.write_text(json.dumps(tree), encoding="utf-8")
        yield row, (*paths, checkout / "configs" / "system" / _SYSTEMS[row["system"][:4]])


def print_measured(checkout: Path, python: str) -> None:
    """Print the errors of both models against SimuMax's published runs."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = list(measured_triples(checkout, Path(folder)))
        theirs = [peak_and_step(answer) for answer in answers(checkout, python, [triple for _, triple in pairs])]
        errors: dict[tuple[str, str], list[float]] = {}
        for (row, triple), answer in zip(pairs, theirs, strict=True):
            _, memory, step = ours(triple, Path(folder))
            real = row["real_mem_gb"] * 2**30, row["real_iter_ms"] / 1e3
            for name, found in (("Launch, files imported", (memory, step)), ("SimuMax itself", answer)):
                for what, value, truth in zip(("memory", "time"), found or (), real, strict=bool(found)):
                    for group in ("all", row["system"][:4], row["model"]):
                        errors.setdefault((f"{group:12} {what:7}", name), []).append(value / truth - 1)
        for (group, name), values in sorted(errors.items()):
            mean = statistics.mean(map(abs, values))
            print(f"{group} {name:24} {len(values):3} runs, mean error {mean:6.1%}, worst {max(values, key=abs):+.1%}")


def _percent(values: Sequence[float]) -> str:
    low, high = statistics.quantiles(values, n=20)[0], statistics.quantiles(values, n=20)[-1]
    return f"median {statistics.median(values):+.1%}, 90 % between {low:+.1%} and {high:+.1%}"


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:150]


def main() -> None:
    """Print how many triples SimuMax accepts, how many of them are answered, and how far the answers differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="work tree of MooreThreads/SimuMax")
    parser.add_argument("--python", default=sys.executable, help="Python that has what SimuMax needs")
    parser.add_argument("--show", type=int, default=0, metavar="N", help="triples with the largest differences")
    parser.add_argument("--measured", action="store_true", help="compare both with SimuMax's published runs")
    options = parser.parse_args()
    if options.measured:
        print_measured(options.checkout, options.python)
        return
    folders = [sorted((options.checkout / "configs" / kind).glob("*.json")) for kind in _KINDS]
    triples = list(itertools.product(*folders))
    said = answers(options.checkout, options.python, triples)
    sizes = " x ".join(f"{len(paths)} {kind}" for kind, paths in zip(_KINDS, folders, strict=True))
    print(f"{len(triples)} triples: {sizes}")
    theirs = [peak_and_step(answer) for answer in said]
    errors = Counter(
        re.sub(r"[\d.]+", "N", answer.get("error", "no figure"))[:90]
        for answer, t in zip(said, theirs, strict=True)
        if t is None
    )
    print(f"SimuMax accepts {sum(t is not None for t in theirs)}")
    for text, count in errors.most_common(8):
        print(f"  refused {count:4}: {text}")
    rows = list(_compared(triples, theirs))
    refused = Counter(row["refused"] for row in rows if row["accepted"] and "refused" in row)
    done = [row for row in rows if row["accepted"] and "refused" not in row]
    print(f"imported, composed and estimated: {len(done)} of {sum(row['accepted'] for row in rows)}")
    for text, count in refused.most_common(12):
        print(f"  not answered {count:4}: {text}")
    print(f"answered although SimuMax refuses: {sum(not row['accepted'] and 'refused' not in row for row in rows)}")
    fields = sum(len(row["fields"]) for row in done)
    print(f"fields of these files: {fields}, unknown: {sum(row['unknown'] for row in done)}")
    for title, group in _groups(done):
        if len(group) > 1:
            print(f"{title} ({len(group)})")
            print(f"  peak memory against SimuMax: {_percent([row['memory'] for row in group])}")
            print(f"  step time against SimuMax:   {_percent([row['time'] for row in group])}")
    for row in sorted(done, key=lambda row: -max(abs(row["memory"]), abs(row["time"])))[: options.show]:
        print(f"  memory {row['memory']:+.1%} time {row['time']:+.1%}  {' '.join(path.stem for path in row['triple'])}")


def _compared(
    triples: Sequence[tuple[Path, ...]], theirs: Sequence[tuple[float, float] | None]
) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        for triple, answer in zip(triples, theirs, strict=True):
            row: dict[str, Any] = {"triple": triple, "accepted": answer is not None}
            try:
                described, memory, step = ours(triple, Path(folder))
            except (ImportRefused, ComposeError) as error:
                yield row | {"refused": _reason(error)}
                continue
            except CannotEstimate as error:
                yield row | {"refused": "; ".join(f"{each.rule}: {each.message}" for each in error.findings)[:150]}
                continue
            row["fields"] = [each.field for each in described.rows if each.given]
            row["unknown"] = sum(each.status == "unknown" for each in described.rows)
            if answer is not None:
                row |= {"memory": memory / answer[0] - 1, "time": step / answer[1] - 1}
            row["recompute"] = described.job.recompute.granularity
            row["moe"] = described.job.model.is_moe
            yield row


def _groups(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "all", list(rows)
    for system in sorted({row["triple"][2].stem for row in rows}):
        yield system, [row for row in rows if row["triple"][2].stem == system]
    for moe in (False, True):
        for granularity in (None, "full", "selective"):
            text = f"{'experts' if moe else 'dense'}, recomputation {granularity or 'none'}"
            yield text, [row for row in rows if row["moe"] == moe and row["recompute"] == granularity]


if __name__ == "__main__":
    main()
