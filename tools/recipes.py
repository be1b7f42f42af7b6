"""Tries every recipe on every backend: check, dry-run and estimate; with --rehearse also a shrunken training.

    python -m tools.recipes [--only TEXT] [--backend B] [--hardware H] [--rehearse] [--fresh]

Goes on where it was stopped: what passed at this state of the sources is not done again (--fresh: all again). A
rehearsal is one per recipe, on the first backend that takes it, by `launch run` with rehearse.shrink=true; what the
embedded trainer refuses is listed with its reason. Exit code 1 if something failed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher import api
from launcher.compose import compose
from launcher.job.shipped import shipped
from launcher.mapping.backend import backend_names
from launcher.pipeline import judge
from launcher.rehearse.refusal import RehearsalRefused
from launcher.runtime import planned
from tools.resumable import ROOT, digest, load, save, state_file

STATE = state_file("recipes")
PASSED, REFUSED, FAILED = "passed", "refused", "failed"
SHRUNKEN = "rehearse.shrink=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What became of a recipe on a backend: passed, refused with the reason, or failed; and what was seen."""

    verdict: str
    seen: str


def main() -> int:
    """Try what is left and print a line for each; return 1 if something failed."""
    options = _options()
    sources = digest()
    known = {} if options.fresh else load(STATE, sources, lambda values: Tried(**values))
    count: Counter[str] = Counter()
    for recipe in sorted(path.stem for path in shipped("recipes").glob("*.yaml")):
        if options.only not in recipe:
            continue
        backends = [options.backend] if options.backend else backend_names()
        for name, args, rehearsed in _steps(recipe, backends, options.hardware, options.rehearse):
            key = " ".join(args) + rehearsed * " rehearsed"
            if key not in known or known[key].verdict == FAILED:
                known[key] = rehearse(args) if rehearsed else tried(args)
                save(STATE, sources, known)
            count[known[key].verdict] += 1
            print(f"{recipe:22} {name:12} {known[key].verdict:8} {known[key].seen}", flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in count.items()))
    return int(bool(count[FAILED]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only recipes whose name holds this")
    parser.add_argument("--backend", choices=backend_names(), help="only this backend")
    parser.add_argument("--hardware", default="h100_80g", metavar="H", help="devices of the estimate")
    parser.add_argument("--rehearse", action="store_true", help="also train each recipe, shrunken, on this machine")
    parser.add_argument("--fresh", action="store_true", help="forget what passed before")
    return parser.parse_args()


def _steps(
    recipe: str, backends: Sequence[str], hardware: str, rehearsals: bool
) -> list[tuple[str, tuple[str, ...], bool]]:
    """Return what is to be tried of a recipe: name, overrides, and whether it is a rehearsal."""
    steps: list[tuple[str, tuple[str, ...], bool]] = [
        (name, (f"+recipe={recipe}", f"backend={name}", f"hardware={hardware}"), False) for name in backends
    ]
    if not rehearsals:
        return steps
    taken = [name for name in backends if judge(compose([f"+recipe={recipe}", f"backend={name}"]), fixes=False).ok]
    return [*steps, *(("rehearsal", (f"+recipe={recipe}", f"backend={name}", SHRUNKEN), True) for name in taken[:1])]


def tried(args: Sequence[str]) -> Tried:
    """Check a job, make its launch plan and estimate it."""
    outcome = judge(compose(list(args)), fixes=False)
    if not outcome.ok:
        errors = [finding for finding in outcome.findings if finding.severity == "error"]
        refused = dict.fromkeys(field for finding in errors for field in finding.fields)
        return Tried(verdict=REFUSED, seen=", ".join(refused) or errors[0].message)
    try:
        plan = planned(outcome)
        found = api.estimate(outcome.job)
    except Exception as error:  # a failure is a result here
        return Tried(verdict=FAILED, seen=f"{type(error).__name__}: {error}"[:200])
    fullest = max(stage.peak_reserved for stage in found.stages) / 2**30
    time = "" if found.time is None else f", {found.time.step_s:.1f} s/step"
    fits = "" if found.fits is not False else ", does not fit"
    return Tried(verdict=PASSED, seen=f"{len(plan.nodes)} nodes, {fullest:.1f} GiB{time}{fits}")


def rehearse(args: Sequence[str]) -> Tried:
    """Train a shrunken job here; a job that the embedded trainer does not train as it stands is refused."""
    try:
        planned(judge(compose(list(args)), fixes=False))
    except RehearsalRefused as refused:
        return Tried(verdict=REFUSED, seen=str(refused)[:150])
    with tempfile.TemporaryDirectory(prefix="recipe-") as folder:
        command = [sys.executable, "-m", "launcher", "run", *args, f"output_dir={folder}/out"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        result = Path(folder) / "out" / "result.json"
        if done.returncode != 0 or not result.exists():
            lines = (done.stdout + done.stderr).strip().splitlines()
            return Tried(verdict=FAILED, seen=f"exit code {done.returncode}: {' / '.join(lines[-3:])}"[:300])
        losses = json.loads(result.read_text(encoding="utf-8"))["losses"]
    return Tried(verdict=PASSED, seen=f"{len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}")


if __name__ == "__main__":
    raise SystemExit(main())
