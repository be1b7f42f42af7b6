"""Runs `launch parity` over a matrix of jobs and writes docs/parity.md.

    python -m tools.parity --backends megatron_lm,megatron,mindspeed --python megatron=DIR/bin/python [--only NAME …]
    python -m tools.parity --backends mindformers@1.6.0 --python mindformers@1.6.0=DIR/bin/python

Each job is compared with transformers on the backends that are named; one that cannot run here is an empty column. The
page is written only by a run of the whole matrix; `--only` prints its rows.
"""

import argparse
import datetime
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template
from typing import Any

from launcher.parity.tolerance import ROUNDING, SPREADS
from tools.parity.versions import python_words, words_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "parity.md"
HEAD = Path(__file__).with_name("head.md")
_DENSE, _MOE = "+recipe=tiny_qwen3", "+recipe=tiny_qwen3_moe"
_LATENT = ("+recipe=tiny_deepseek_v3", "moe.aux_loss_coeff=0", "model.num_nextn_predict_layers=0")
_PRETRAIN = ("task=pretrain", "precision.dtype=fp32", "kernels.cross_entropy_fusion=false")


def _on(devices: int, *words: str) -> tuple[str, ...]:
    return (f"cluster.devices_per_node={devices}", *words)


CASES: Mapping[str, Sequence[str]] = {
    "Qwen3": (_DENSE,),
    "Qwen3, tied embeddings": (_DENSE, "model.tie_word_embeddings=true"),
    "Qwen3, recomputation of every layer": (
        _DENSE,
        "recompute.granularity=full",
        "recompute.method=uniform",
        "recompute.num_layers=1",
    ),
    "Qwen3, gradients clipped at 0.1": (_DENSE, "optimizer.clip_grad=0.1"),
    "Qwen3, tp 2": (_DENSE, *_on(2, "parallel.tp=2", "parallel.sequence_parallel=true")),
    "Qwen3, pp 2": (_DENSE, *_on(2, "parallel.pp=2")),
    "Qwen3, cp 2": (_DENSE, *_on(2, "parallel.cp=2")),
    "Qwen3, cp 2, loss per token": (_DENSE, *_on(2, "parallel.cp=2", "precision.calculate_per_token_loss=true")),
    "Qwen3, dp 2": (_DENSE, *_on(2)),
    "Qwen2.5 (biases)": ("+recipe=qwen2_5_7b_sft", *_PRETRAIN, "parallel.tp=1", *_on(1)),
    "Llama 3": ("+recipe=llama3_8b", *_PRETRAIN, "parallel.tp=1", "parallel.sequence_parallel=false", *_on(1)),
    "Qwen3-MoE": (_MOE,),
    "Qwen3-MoE, top-k not normalised": (_MOE, "model.norm_topk_prob=false"),
    "Qwen3-MoE, ep 2": (_MOE, *_on(2, "parallel.ep=2")),
    "Qwen3-MoE, tp 2": (_MOE, *_on(2, "parallel.tp=2", "parallel.etp=2", "parallel.sequence_parallel=true")),
    "DeepSeek-V3 (MLA, expert bias, shared experts)": _LATENT,
    "DeepSeek-V3, ep 2": (*_LATENT, *_on(2, "parallel.ep=2")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job: what each backend's training said."""

    name: str
    cells: tuple[str, ...]
    seconds: float
    agrees: bool


def main() -> int:
    """Measure, and print or write the table; exit 1 if a backend differs from transformers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", required=True, help="A,B[,C]")
    parser.add_argument("--python", action="append", default=[], metavar="BACKEND=PATH")
    parser.add_argument("--env", action="append", default=[], metavar="BACKEND:NAME=VALUE", help="its environment")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=CASES, help="this job only")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="keep rows there, and do not measure those that it has"
    )
    options = parser.parse_args()
    backends = options.backends.split(",")
    rows = []
    for name in options.only or CASES:
        row = _kept(name, options.rows) or _row(name, backends, options)
        _keep(row, options.rows)
        print(" | ".join((row.name, *row.cells, f"{row.seconds:.0f} s")), flush=True)
        rows.append(row)
    if not options.only:
        PAGE.write_text(_page(rows, backends, options.iterations), encoding="utf-8")
    return 0 if all(row.agrees for row in rows) else 1


def _kept(name: str, file: Path | None) -> Row | None:
    """Return a row that an earlier run measured; None: it has to be measured."""
    if file is None or not file.exists():
        return None
    kept = json.loads(file.read_text(encoding="utf-8")).get(name)
    return None if kept is None else Row(**{**kept, "cells": tuple(kept["cells"])})


def _keep(row: Row, file: Path | None) -> None:
    if file is not None:
        rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        file.write_text(json.dumps({**rows, row.name: asdict(row)}, indent=2) + "\n", encoding="utf-8")


def _row(name: str, backends: Sequence[str], options: argparse.Namespace) -> Row:
    """Compare one backend after another, so that one that refuses the job costs no other one its row."""
    started = datetime.datetime.now(tz=datetime.UTC)
    cells, agrees = [], True
    for backend in backends:
        found = _compared((*CASES[name], *words_of(backend, name)), backend, options)
        cells.append(_cell(found))
        agrees = agrees and bool(found.get("ok"))
    seconds = (datetime.datetime.now(tz=datetime.UTC) - started).total_seconds()
    return Row(name=name, cells=tuple(cells), seconds=seconds, agrees=agrees)


def _compared(words: Sequence[str], backend: str, options: argparse.Namespace) -> dict[str, Any]:
    named = [word for pair in options.env if pair.startswith(f"{backend}:") for word in ("--env", pair)]
    own = python_words(backend, options.python)
    with tempfile.TemporaryDirectory(prefix="parity-") as folder:
        command = [sys.executable, "-m", "launcher", "parity", *words, "--backends", backend, *own, *named, "--json"]
        asked = [
            "--reference",
            "transformers",
            "--iterations",
            str(options.iterations),
            "--locate",
            "-o",
            f"{folder}/out",
        ]
        done = subprocess.run([*command, *asked], capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"ok": False, "message": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return found


def _cell(found: Mapping[str, Any]) -> str:
    if "compared" not in found:
        findings = [each["message"] for each in found.get("findings", ())]
        return f"refused: {(findings or [found.get('message', '')])[0]}"
    (each,) = found["compared"]
    if each["problem"]:
        return f"failed: {each['problem']}"
    sizes = each["largest_relative_difference"]
    shown = f"{sizes['loss']:.0e} / {sizes['grad_norm']:.0e}"
    if each["agrees"]:
        return shown
    where = next((one["stage"] for one in found["located"].values() if one["stage"]), "not in one process")
    part = each["differs_at"]
    return f"**{shown}**, from iteration {part['iteration']} ({part['quantity']}); first difference: {where}"


def _page(rows: Sequence[Row], backends: Sequence[str], iterations: int) -> str:
    return "\n".join([head(), "", *_table(rows, backends, iterations)]) + "\n"


def head() -> str:
    """Return the text above the table, with the tolerances of `launch parity`."""
    sizes = [
        f"{_exponent(each.loss)} of the loss and {_exponent(each.grad_norm)} of the gradient norm in {dtype}"
        for dtype, each in ROUNDING.items()
    ]
    text = Template(HEAD.read_text(encoding="utf-8"))
    return text.substitute(tolerances=", ".join(sizes), spreads=f"{SPREADS:g}").rstrip()


def _exponent(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-")


def _table(rows: Sequence[Row], backends: Sequence[str], iterations: int) -> Iterator[str]:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    yield (
        f"`python -m tools.parity`, {today}, {platform.machine()}, CPU: largest relative difference of loss / gradient "
        f"norm from transformers over {iterations} iterations in fp32."
    )
    yield ""
    yield " | ".join(("| job", *backends)) + " |"
    yield "|---" * (len(backends) + 1) + "|"
    for row in rows:
        yield " | ".join((f"| {row.name}", *row.cells)) + " |"


if __name__ == "__main__":
    sys.exit(main())
