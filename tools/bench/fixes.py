"""Whether `launch check --fix` mends broken jobs as an engineer would.

    python -m tools.bench.fixes [--count N] [--seed S] [--json]
    python -m tools.bench.fixes --real --megatron-lm DIR      also ask the backends' own validators

Breaks recipes on every backend, and their command lines as scripts, by one to three mistakes; runs `check --fix -o`
in this process; applies what it wrote as a user would and checks again. Beside it stands a brute force over layouts of
small ranges and over all pairs of changes of the fields that errors name: whether any layout passes, so that training
can stay as it is, and the fewest fields that have to change. Goals: accepted 98 % of those with a solution, by the real
validator 100 %, training unchanged 95 % of those where a layout does it. Exit code 1 if one is missed.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from launcher.cli import main as launch
from launcher.compose import ComposeError, compose
from launcher.job import Job
from launcher.mapping.backend import backend_names
from launcher.pipeline import judge
from tools.bench.fixes_brute_force import fewest_changes
from tools.bench.fixes_faults import CLASSES, fuzzed
from tools.bench.fixes_result import Result

RECIPES = (
    "qwen3_moe",
    "qwen3_8b",
    "llama3_8b",
    "llama3_70b",
    "deepseek_v3",
    "qwen1_5_moe_sft",
    "qwen2_5_7b_sft",
    "tiny_qwen3",
    "tiny_qwen3_moe",
    "qwen3_moe_235b",
    "qwen3_8b_lora",
)
GOALS = {"accepted": 98.0, "real": 100.0, "unchanged": 95.0}
# What a user answers where a fix asks.
ANSWERS = {
    "schedule.train_iters": "1000",
    "optimizer.lr": "1e-5",
    "batch.seq_length": "512",
    "batch.global_batch_size": "128",
    "model.max_position_embeddings": "131072",
}
_FUZZ, _SCRIPTS = 0.3, 0.3


def main() -> int:
    """Print figures and what failed; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=120, metavar="N", help="broken jobs")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--json", action="store_true", help="all results as JSON")
    parser.add_argument("--real", action="store_true", help="also ask the real validators (environments of the tests)")
    parser.add_argument("--megatron-lm", metavar="DIR", help="checkout of Megatron-LM for --real")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="launch-fixes-") as folder, contextlib.chdir(folder):
        jobs: dict[str, Job] = {}
        results = list(_results(options.count, options.seed, Path(folder), jobs))
        if options.real:
            from tools.bench.fixes_real import ask

            ask(results, jobs, Path(folder), options.megatron_lm)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=1))
        return 0
    return _report(results)


def _results(count: int, seed: int, folder: Path, jobs: dict[str, Job]) -> Iterator[Result]:
    done = number = 0
    while done < count:
        draw = random.Random(seed * 1_000_003 + number)
        number += 1
        found = _one(draw, number, folder, jobs)
        if found is not None:
            done += 1
            if done % 20 == 0:
                print(f"{done} of {count}", file=sys.stderr, flush=True)
            yield found


def _one(draw: random.Random, number: int, folder: Path, jobs: dict[str, Job]) -> Result | None:
    """Break one job and mend it; None: it is not broken, or the words contradict each other."""
    backend, recipe = draw.choice(backend_names()), draw.choice(RECIPES)
    start = [f"+recipe={recipe}", f"backend={backend}"]
    try:
        job = compose(start)
        if not judge(job, fixes=False).ok:
            # What the backend cannot do of the recipe at all is another question.
            start += _launch("check", *start, "--fix", "--json")[1]["fixed"]["overrides"]
            job = compose(start)
        if not judge(job, fixes=False).ok:
            return None
        classes, words = _broken(job, draw)
        broken = compose([*start, *words])
        outcome = judge(broken, fixes=False)
    except (ComposeError, ArithmeticError):
        return None
    if outcome.ok:
        return None
    typed = [*start, *words]
    is_script = draw.random() < _SCRIPTS
    if is_script:
        script = _script(broken, folder / str(number))
        if script is None:
            return None
        typed = [script]
    return _mended(f"{number}", backend, classes, typed, is_script, folder, jobs)


def _broken(job: Job, draw: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if draw.random() < _FUZZ:
        return ("fuzz",), fuzzed(job, draw)
    classes = tuple(draw.sample(list(CLASSES), draw.choice((1, 1, 2, 3))))
    by_path: dict[str, str] = {}
    for name in classes:
        for arg in CLASSES[name](job, draw):
            by_path.setdefault(arg.partition("=")[0], arg)
    return classes, tuple(by_path.values())


def _script(job: Job, folder: Path) -> str | None:
    """Write the command line of the first node as a script; None where the job is refused before it has one."""
    try:
        plan = judge(job, fixes=False).plan()
    except (ArithmeticError, TypeError, ValueError, LookupError):
        return None
    folder.mkdir(parents=True)
    for file in plan.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content, encoding="utf-8")
    node = plan.nodes[0]
    exports = "".join(f"export {name}={shlex.quote(str(value))}\n" for name, value in node.env.items())
    words = " ".join(arg if arg.startswith("${") else shlex.quote(arg) for arg in node.argv)
    (folder / "train.sh").write_text(f"{exports}{words}\n", encoding="utf-8")
    return str(folder / "train.sh")


def _mended(
    name: str,
    backend: str,
    classes: tuple[str, ...],
    typed: Sequence[str],
    is_script: bool,
    folder: Path,
    jobs: dict[str, Job],
) -> Result | None:
    written = folder / f"{name}-fixes.yaml"
    if is_script:
        os.chdir(Path(typed[0]).parent)
    begin = time.process_time()
    code, reported = _launch("check", *typed, "--fix", "-o", str(written), "--json")
    seconds = time.process_time() - begin
    if code != 1 or "fixed" not in reported:
        return None
    fixed = reported["fixed"]
    answers = [f"{path}={ANSWERS.get(path, '1')}" for path in (ask.partition("=")[0] for ask in fixed.get("ask", ()))]
    changed = {arg.partition("=")[0] for arg in (*fixed["overrides"], *answers)}
    kept = [arg for arg in typed if arg.partition("=")[0] not in changed]
    again = [*kept, *fixed["overrides"], *answers] if is_script else [*kept, f"+strategy={written}", *answers]
    code, after = _launch("check", *again, "--json")
    job, whole = _job(typed, answers, is_script), _job(again, (), is_script)
    if whole is not None and code == 0:
        jobs[name] = whole
    brute = fewest_changes(job) if job is not None else None
    return Result(
        name=name,
        backend=backend,
        classes=classes,
        words=tuple(typed),
        is_script=is_script,
        errors=_rules(reported),
        fixes=tuple(fixed["overrides"]),
        answers=tuple(answers),
        accepted=code == 0,
        left=() if code == 0 else _rules(after),
        trains=bool(fixed.get("affects_training", _trains(fixed["overrides"]))),
        layout=brute is not None and brute.same_training,
        fewest=brute.fewest if brute is not None else None,
        seconds=seconds,
    )


def _trains(overrides: Sequence[str]) -> bool:
    from launcher.job import fields

    known = (fields().get(arg.partition("=")[0]) for arg in overrides)
    return any(info is None or info.meta.affects_training for info in known)


def _job(typed: Sequence[str], more: Sequence[str], is_script: bool) -> Job | None:
    if not is_script:
        names = {arg.partition("=")[0] for arg in more}
        return compose([*(arg for arg in typed if arg.partition("=")[0] not in names), *more])
    from launcher.api import import_file
    from launcher.importing.job_file import job_yaml

    file = Path("imported.yaml")
    file.write_text(job_yaml(import_file(typed[0]), typed[0], with_version=True), encoding="utf-8")
    return compose([f"+job={file.absolute()}", *typed[1:], *more])


def _rules(reported: Mapping[str, Any]) -> tuple[str, ...]:
    found = {finding["rule"] for finding in reported.get("findings", ()) if finding["severity"] == "error"}
    return tuple(sorted(found))


def _launch(*words: str) -> tuple[int, dict[str, Any]]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = launch(words)
    try:
        return code, json.loads(out.getvalue())
    except ValueError:
        return code, {}


def _report(results: Sequence[Result]) -> int:
    solvable = [result for result in results if result.solvable]
    layout = [result for result in solvable if result.layout]
    real = [result for result in results if result.real is not None]
    figures = {
        "accepted": _share([result.accepted for result in solvable]),
        "real": _share([not result.real for result in real]),
        "unchanged": _share([result.accepted and not result.trains for result in layout]),
    }
    more = [len(r.fixes) - r.fewest for r in results if r.accepted and r.fewest is not None]
    seconds = [result.seconds for result in results]
    scripts = sum(result.is_script for result in results)
    print(f"broken jobs: {len(results)} ({scripts} scripts), with a known solution: {len(solvable)}")
    print(f"accepted after --fix: {figures['accepted']:.1f} % (goal {GOALS['accepted']:g})")
    print(f"accepted by the real validator: {figures['real']:.1f} % of {len(real)} (goal {GOALS['real']:g})")
    print(f"training unchanged: {figures['unchanged']:.1f} % of {len(layout)} where a layout does it (goal 95)")
    print(f"fields changed beyond the fewest: {dict(sorted(Counter(more).items()))}")
    print(f"seconds: median {statistics.median(seconds):.2f}, most {max(seconds):.2f}")
    machines = [result for result in results if any(fix.startswith("cluster.") for fix in result.fixes)]
    print(f"machines changed: {len(machines)}")
    print("\n| class | jobs | accepted | training kept where it can be |\n|---|---|---|---|")
    for name in sorted({name for result in solvable for name in result.classes}):
        own = [result for result in solvable if name in result.classes]
        kept = [not result.trains for result in own if result.layout and result.accepted]
        print(f"| {name} | {len(own)} | {sum(r.accepted for r in own)} | {sum(kept)} of {len(kept)} |")
    for result in results:
        reported = _failure(result)
        if reported:
            print(f"\n{reported}: {result.backend} {', '.join(result.classes)}\n  {' '.join(result.words)}")
            print(f"  errors {', '.join(result.errors)}; fixes {' '.join(result.fixes)} {' '.join(result.answers)}")
    return 1 if any(figures[name] < goal for name, goal in GOALS.items()) else 0


def _failure(result: Result) -> str:
    if not result.accepted:
        return f"{'not accepted' if result.solvable else 'no solution known'} ({', '.join(result.left)})"
    if result.real:
        return f"refused by the real validator ({result.real[:200]})"
    if result.layout and result.trains:
        return "training changed"
    return "machines changed" if any(fix.startswith("cluster.") for fix in result.fixes) else ""


def _share(passed: Sequence[bool]) -> float:
    return 100 * sum(passed) / len(passed) if passed else 100.0


if __name__ == "__main__":
    raise SystemExit(main())
