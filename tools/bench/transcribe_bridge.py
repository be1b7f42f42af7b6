"""Transcribes Megatron-Bridge's performance tables into `measured_bridge.jsonl`: figures and settings, no text.

    python -m tools.bench.transcribe_bridge GIT_DIRECTORY --seen measured_dev.jsonl

GIT_DIRECTORY is a clone of NVIDIA-NeMo/Megatron-Bridge with its tags. Each line is one run: what the table says, and of
the recipe of the same release and layout what the table omits (`tools/bench/bridge_recipes.py`). A cell such as
`37556 (36108)` is two runs; a footnote names the number format of the second. A run without `recipe` has a layout that
no recipe of its release has. `seen` marks the runs that this project was developed on (the project's file of facts);
the others were transcribed later.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench.bridge_recipes import KEPT, Recipe, Release, recipes
from tools.bench.measured_bridge import ROWS

COMMIT = "067f987df"
_PAGES = ("docs/performance-summary.md", "docs/performance-summary-archive.md")
# The tag that each container was released with; 26.02.01, 26.04.01, 26.06.01 are followed by the tag of their repairs.
_TAGS = {
    "25.09": ("v0.1.0rc4",),
    "25.11": ("v0.2.0", "v0.2.1"),
    "26.02": ("v0.3.0", "v0.3.1"),
    "26.02.01": ("v0.3.1", "v0.3.0", "v0.4.0"),
    "26.04": ("v0.4.0", "v0.4.1"),
    "26.04.01": ("v0.4.1", "v0.4.2", "v0.4.0"),
    "26.06": ("v0.5.0", "v0.5.1"),
    "26.06.01": ("v0.5.1", "v0.5.0"),
    "26.08": ("v0.6.0",),
}
_MODELS = {
    "LLAMA3_8B": "llama3_8b",
    "LLAMA3_70B": "llama3_70b",
    "LLAMA3.1_405B": "llama31_405b",
    "DeepSeekV3": "deepseek_v3",
    "GPT OSS 120B": "gpt_oss_120b",
    "Qwen3_30B_a3B": "qwen3_30b_a3b",
    "Qwen3_235B_a22B": "qwen3_235b_a22b",
    "Kimi_K2": "kimi_k2",
}
_COLUMNS = {
    "#-GPUs": "gpus",
    "GBS": "gbs",
    "MBS": "mbs",
    "Sequence Length": "seq_len",
    "FSDP": "fsdp",
    "TP": "tp",
    "PP": "pp",
    "CP": "cp",
    "VP": "vp",
    "EP": "ep",
    "Tokens / sec / GPU": "tokens_per_s_per_gpu",
    "Model TFLOP / sec / GPU": "tflops_per_gpu",
}
_FORMATS = {
    "FP8": "fp8_cs",
    "FP8-CS": "fp8_cs",
    "MXFP8": "fp8_mx",
    "FP8-MX": "fp8_mx",
    "BF16": "bf16",
    "NVFP4": "nvfp4",
}
_TASKS = {"Pre-Training Performance": "pretrain", "SFT Performance": "sft", "LoRA Performance": "lora"}


def rows(text: str, page: str) -> Iterator[dict[str, Any]]:
    """Yield the runs of a page's tables."""
    release = task = topic = ""
    header: list[str] = []
    for line in text.splitlines():
        if found := re.match(r"## ([0-9.]+) NeMo Container", line):
            release = found[1]
        elif line.startswith("### "):
            task = _TASKS[line[4:].strip()]
        elif line.startswith("#### "):
            topic, header = line.partition(": ")[2].strip(), []
        elif line.startswith("|") and release:
            cells = [re.sub(r"\[\^.*?\]", "", cell).strip() for cell in line.strip("|").split("|")]
            if not header:
                header = cells
            elif not cells[0].startswith("---"):
                named = dict(zip(header, cells, strict=True))
                named.setdefault("Model", topic)
                named.setdefault("System", topic)
                for variant in (0, 1):
                    if variant == 0 or "(" in named["Tokens / sec / GPU"]:
                        yield {"page": page, "release": release, "task": task, **_run(named, variant)}


def _run(cells: dict[str, str], variant: int) -> dict[str, Any]:
    """Return one run of a row: of `A (B)` the first or the second, in every cell that has both."""

    def part(text: str) -> str:
        pair = re.fullmatch(r"(\S+) \((\S+)\)", text)
        return pair[1 + variant] if pair else text

    model, _, note = cells["Model"].partition(" (")
    gpu = cells["System"].removeprefix("DGX-").lower()
    stated = part(cells["Precision"]) if "Precision" in cells else None
    second = "fp8_sc" if gpu == "h100" else "fp8_mx"
    made: dict[str, Any] = {
        "model": model.strip(),
        "note": note.strip(")") or None,
        "gpu": gpu,
        "precision": _FORMATS[stated] if stated else (second if variant else "fp8_cs"),
    }
    for column, name in _COLUMNS.items():
        text = part(cells.get(column, "n/a")).split(" ")[0]
        made[name] = None if text == "n/a" else int(text)
    return made


def recipe_of(run: dict[str, Any], known: Sequence[tuple[Release, Sequence[Recipe]]]) -> dict[str, Any] | None:
    """Return the first recipe with a run's layout, and how it was found; None where no release has one."""
    name = _MODELS.get(run["model"])
    for strict in (True, False):
        for release, found in known:
            for each in found:
                if (each["model"], each["gpu"], each["task"]) != (name, run["gpu"], run["task"]):
                    continue
                if each["precision"] != run["precision"] or re.search(
                    r"large_scale|_dev_|hsdp", each["symbol"].lower()
                ):
                    continue
                same = all((each[k] or 1) == (run[k] or 1) for k in ("tp", "pp", "cp", "vp", "ep", "mbs"))
                same &= bool(each.get("use_megatron_fsdp")) == bool(run["fsdp"])
                if not same or (strict and (each["gpus"], each["gbs"]) != (run["gpus"], run["gbs"])):
                    continue
                kept = {k: each[k] for k in KEPT if each.get(k) not in (None, False, [])}
                where = f"{release.tag} {each['file']} {each['symbol']}"
                return {"of": where, "commit": release.commit[:9], "batch_differs": not strict, **kept}
    return None


def _key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a run in the file of facts, whose rows name systems and formats as the tables do."""
    gpu = run.get("gpu") or str(run["system"]).removeprefix("DGX-").lower()
    precision = str(run["precision"]).split(" ")[0]
    model = str(run["model"]).partition(" (")[0].strip()
    layout = (run.get(name) or 1 for name in ("gpus", "gbs", "mbs", "tp", "pp", "cp", "ep"))
    return (
        run["release"],
        model,
        gpu,
        _FORMATS.get(precision, precision),
        *layout,
        run.get("vp") or run.get("vpp") or 1,
    )


def main() -> None:
    """Write the rows."""
    made = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    made.add_argument("git", type=Path, help="git directory of Megatron-Bridge")
    made.add_argument("--seen", type=Path, help="JSON lines of the runs that this project was developed on")
    options = made.parse_args()
    facts = options.seen.read_text(encoding="utf-8").splitlines() if options.seen else []
    seen = {_key(row) for row in map(json.loads, facts) if "docs/performance-summary" in row["source"]}
    pages = Release(options.git, COMMIT)
    tags = {tag for each in _TAGS.values() for tag in each}
    releases = {tag: Release(options.git, tag) for tag in sorted(tags)}
    known = {tag: list(recipes(release)) for tag, release in releases.items()}
    lines = []
    for page in _PAGES:
        for run in rows(pages.read(page), page):
            where = run.pop("page")
            source = f"Megatron-Bridge {where} ({COMMIT})"
            own = [(releases[tag], known[tag]) for tag in _TAGS[run["release"]]]
            run = {"source": source, **run, "seen": _key(run) in seen or None, "recipe": recipe_of(run, own)}
            lines.append(json.dumps({name: value for name, value in run.items() if value is not None}))
    ROWS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} runs written to {ROWS.name}")


if __name__ == "__main__":
    main()
