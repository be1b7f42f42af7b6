"""Whether `launch search` contains published layouts, at which rank, and what separates them from its fastest layout.

    python -m tools.bench.search_published [NAME …] [--markdown]

Each case is a row of Megatron-Bridge's tables (`measured_bridge.jsonl`) as the job that the estimate judges; the search
varies its axes around that job, CUDA graphs and offloaded modules excepted, as `launch search --compare` does. Both
times are estimates; the measured time and the estimate's error on the published layout stand beside them.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launcher.compose import compose
from launcher.job import Job, with_values
from launcher.search.begin import begin, unasked
from launcher.search.compare import Comparison, comparison, errors_of
from launcher.search.points import own
from launcher.search.search import Search
from tools.bench.estimate_accuracy import aligned, as_markdown
from tools.bench.measured_bridge import ROWS, overrides
from tools.bench.measured_cases import Case, case_of

# Name: model, devices, GPU, release of the row.
CASES: Mapping[str, tuple[str, int, str, str]] = {
    "Llama 3 70B, 64 H100": ("LLAMA3_70B", 64, "h100", "26.04.01"),
    "Llama 3.1 405B, 1,024 H100": ("LLAMA3.1_405B", 1024, "h100", "26.06"),
    "Qwen3-30B-A3B, 16 H100": ("Qwen3_30B_a3B", 16, "h100", "26.06"),
    "Qwen3-235B-A22B, 256 H100": ("Qwen3_235B_a22B", 256, "h100", "26.04.01"),
    "DeepSeek-V3, 1,024 H100": ("DeepSeekV3", 1024, "h100", "25.09"),
    "DeepSeek-V3, 256 B200": ("DeepSeekV3", 256, "b200", "26.04"),
}
# CUDA graphs and offloaded modules stay as published.
_REQUIRED = ("tokenizer.type=NullTokenizer", "model.pretrained=false", "search.fix=[cuda_graphs,offload_modules]")
_SHORT = {
    "forward_s": "forward",
    "backward_s": "backward",
    "bubble_s": "bubble",
    "exposed_comm_s": "communication",
    "optimizer_s": "optimizer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A published layout in the search of its job.

    Attributes:
        contained: whether the search's space has the layout and the rules accept it.
        seconds: measured, of a step.
        took: seconds of the search.
    """

    name: str
    contained: bool
    seconds: float
    compared: Comparison
    took: float

    @property
    def faster(self) -> float:
        """How much less time the winner takes than the published layout, by the estimate."""
        winner = self.compared.winner
        return 0.0 if winner is None else 1 - winner.step_s / self.compared.own.step_s


def published(name: str) -> Case:
    """Return the row of a case."""
    model, devices, gpu, release = CASES[name]
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        if (row["model"], row["gpus"], row["gpu"], row["release"], row["task"]) == (
            model,
            devices,
            gpu,
            release,
            "pretrain",
        ):
            found = case_of(row)
            if found is not None:
                # Megatron-Bridge trains with megatron-core: Megatron-LM's rules and arguments.
                return replace(found, job=compose([*overrides(row), "backend=megatron_lm", *_REQUIRED]))
    raise LookupError(f"no row of {name}")


def in_space(search: Search, job: Job) -> bool:
    """Return whether the space of a search has a job's own layout."""
    point = own(job)
    paths = list(search.layouts[0])
    wanted = [point[path] or 1 for path in paths]
    sizes = search.space.choices["batch.micro_batch_size"]
    return job.batch.micro_batch_size in sizes and any(
        [layout[path] or 1 for path in paths] == wanted for layout in search.layouts
    )


def searched(name: str) -> Result:
    """Search the job of a case and rank its published layout."""
    case = published(name)
    job: Job = case.job
    start = time.monotonic()
    search = begin(job)
    legal = not errors_of(with_values(job, unasked(job)))
    known = in_space(search, job)
    search.rank_own(own(job))
    for _ in search.run():
        pass
    return Result(
        name=name,
        contained=legal and known,
        seconds=case.seconds or 0.0,
        compared=comparison(search),
        took=time.monotonic() - start,
    )


def rows_of(result: Result) -> Iterator[list[str]]:
    """Yield the lines of a result."""
    found = result.compared
    winner = found.winner or found.own
    rank = "–" if found.rank is None else f"{found.rank:,}"
    terms = [
        f"{_SHORT[name]} {mine:.3g} → {its:.3g}"
        for name, (mine, its) in found.terms.items()
        if abs(its - mine) > 0.01 * found.own.step_s
    ]
    yield [
        result.name,
        "yes" if result.contained else "no",
        rank,
        f"{result.seconds:.3g}",
        f"{found.own.step_s:.3g}",
        f"{winner.step_s:.3g}",
        f"{100 * result.faster:.0f} %",
        "; ".join(terms) or "–",
    ]


def values_of(result: Result) -> str:
    """Return what the winner sets otherwise, in one line."""
    pairs = sorted(result.compared.values.items())
    return f"{result.name}: " + ", ".join(f"{path} {mine} → {its}" for path, (mine, its) in pairs)


HEADER = [
    "case",
    "in the space",
    "runs",
    "measured s",
    "estimated s",
    "fastest s",
    "faster",
    "seconds of a step, published → fastest",
]


def main() -> None:
    """Print the table."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("names", nargs="*", help="parts of cases' names; by default all")
    made.add_argument("--markdown", action="store_true", help="a table for the docs")
    options = made.parse_args()
    wanted = [name for name in CASES if not options.names or any(part in name for part in options.names)]
    results = []
    for name in wanted:
        results.append(searched(name))
        print(values_of(results[-1]) + f" ({results[-1].took:.0f} s)", flush=True)
    header = [name if name != "runs" else "rank" for name in HEADER]
    table = [header, *(line for result in results for line in rows_of(result))]
    print((as_markdown if options.markdown else aligned)(table))


if __name__ == "__main__":
    main()
