"""How often our verdict and the real validators' agree, on jobs and command lines drawn at random.

    python -m tools.bench.agreement                        what needs no checkout, 200 jobs each
    python -m tools.bench.agreement --count 300 --shell 50 --facts DIR --megatron-lm DIR -o docs/agreement.md
    python -m tools.bench.agreement --backend mindspeed --mindspeed LLM MINDSPEED MEGATRON --facts DIR

Each case is written as a file and judged by the command's `main(["check", FILE, "--json"])` in this process; with
--shell N, so many of each validator's cases also by the installed `launch`, whose answer must be the same.

Runs ms-swift 4.6.0's argument classes with mcore-bridge's configuration, MindFormers 1.6.0's checks and classes, and
megatron-core's TransformerConfig, the first two in environments of their own (made from PyPI once;
LAUNCH_TEST_PYTHON_SWIFT and LAUNCH_TEST_PYTHON_MINDFORMERS16 name others); Megatron-LM's parser, validate_args and
configuration from checkouts (--megatron-lm; whole ones also give the command lines of its functional tests),
MindSpeed-LLM's from --mindspeed, else those that MINDSPEED_LLM_PATH, MINDSPEED_PATH and MEGATRON_LM_PATH name.
With --cache, the validators' answers are kept as they come: a run that broke off, or another seed, asks only what is
new. `later`: we tell what shows only when the model is built or trains; each such rule is listed with its reason in
tests/backends/*/verdicts.py.
"""

import argparse
import datetime
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import NormalDist

from tests.backends.users_path import UsersPath
from tests.backends.verdicts import WRONG, Verdict
from tools.bench.agreement_parts import Part, Settings, first_words, named_checkouts, parts
from tools.docs.written import marked

BACKENDS = ("megatron", "mindformers", "core", "megatron_lm", "mindspeed")
HEAD = """# Agreement with the real validators

Written by `python -m tools.bench.agreement {words}` ({day}).

Jobs and command lines are drawn at random, the same ones from the same seed. Each is judged where users stand: a
command line as a script (`torchrun … pretrain_gpt.py …`, `NPROC_PER_NODE=8 megatron sft …`), a configuration as a YAML
file that `msrun` starts, a job as a job file, by `launch check FILE --json` (its `main(argv)` in one process). No size
of a model is given beside the file: it stands in the script, in the config.json of a folder that the script names, or
in the preset of a hub id. Another version than the default one is set by `backend.version=`; IMPORT-VERSION counts as
a refusal by the default version. A validator's figures leave out jobs that it cannot express.

*same*: accepted by both or refused by both. *missed*: we accept what the real one refuses. *stricter*: we refuse what
it accepts; *later* of these: what shows when the model is built or trains, or a rule that is stricter on purpose, each
with its reason below; *unexplained*: the others. *machine*: only the machine decides (a file, a package, an environment
variable); left out of the agreement. *agreement*: the share that is neither missed nor unexplained, with the 95 %
interval (Wilson). *shell*: cases that the installed command answered alike, of those that it was asked.
TransformerConfig sees a part of the arguments only: each stricter case is *later* there, so that none is unexplained.
Changed command lines are upstream's own examples with one to three things changed (sizes, switches, what is written at
all, the number of devices; `tests/backends/mutated.py`). Megatron-LM is also asked about arguments of its
catalogue alone and corners of `tests/backends/megatron_lm/fuzzed.py`. Seconds are ours and those of the
validators' answers that no earlier run had kept (`--cache`), on a loaded machine.

"""
CORPUS = """Every command line and file of the corpus, judged as it is written. An example with an error is listed with
the reason: upstream refuses it too, or why we do all the same. What is said of MindSpeed-LLM's examples was seen: its
parser and validators (26.1.0) refused these very command lines, with folders put in for placeholders (the row *its own
examples as written* above); the two of `MS-RC-PER-RANK` they accepted. Examples of MindSpeed-LLM with `--ai-framework
mindspore` are under *machine* there: they import MindSpore's own transformers.
"""

# Parts that the Chinese page shows as they are.
PARTS = {
    "written": "Written by `python -m tools.bench.agreement",
    "verdicts": "| validator | asked about |",
    "differences": "| validator | kind |",
    "reasons": "| validator | rule |",
    "examples": "| backend | records |",
    "refused": "| why | rules |",
}
GOAL = 0.99
_COLUMNS = (
    *("validator", "asked about", "n", "accepted", "same", "missed", "stricter", "later", "unexplained", "machine"),
    *("agreement", "shell", "seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One part with its verdicts.

    Attributes:
        typed: number of cases that the installed command was asked about.
        otherwise: what it answered otherwise.
    """

    part: Part
    verdicts: Sequence[Verdict]
    typed: int
    otherwise: Sequence[str]
    seconds: float


def main() -> int:
    """Print the table; exit 1 if a verdict is unexplained, a backend is below the goal, or something was not asked."""
    options = _options()
    settings = _settings(options)
    known = [part for part in parts(settings) if not options.backend or part.backend in options.backend]
    shares = Counter(part.validator for part in known)
    lines = [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    print("\n".join(lines), flush=True)
    rows: list[Row] = []
    broken = 0
    for part in known:
        try:
            rows.append(_asked(part, settings.folder / "typed", -(-options.shell // shares[part.validator])))
        except (RuntimeError, OSError) as error:
            broken += 1
            print(f"{part.validator}: {error}", file=sys.stderr)
            continue
        lines.append(_line(part.validator, part.asked, [rows[-1]]))
        print(lines[-1], flush=True)
    totals, below = _totals(rows)
    lines += totals
    lines += _differences(rows) + _reasons(rows)
    false = 0
    if options.facts:
        from tools.bench.corpus_check import markdown

        corpus, false = markdown(options.facts)
        lines += ["", "## Upstream's own examples", "", CORPUS, corpus]
    print("\n".join(totals))
    if options.output:
        head = HEAD.format(words=_words(options), day=f"{datetime.date.today()}")
        options.output.write_text(marked(head + "\n".join(lines) + "\n", PARTS), encoding="utf-8")
    for row in rows:
        for verdict in row.verdicts:
            if verdict.kind in WRONG:
                print(f"{verdict.kind}: {verdict.name}: {_said(verdict)}", file=sys.stderr)
        for otherwise in row.otherwise:
            print(f"otherwise in the shell: {otherwise}", file=sys.stderr)
    unexplained = any(verdict.kind == "unexplained" for row in rows for verdict in row.verdicts)
    return 1 if unexplained or below or false or broken or any(row.otherwise for row in rows) else 0


def _asked(part: Part, folder: Path, shell: int) -> Row:
    start = time.perf_counter()
    path = UsersPath(folder=folder)
    verdicts = part.run(path)
    seconds = time.perf_counter() - start
    otherwise = list(path.differing(shell))
    return Row(part=part, verdicts=verdicts, typed=min(shell, len(path.asked)), otherwise=otherwise, seconds=seconds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=BACKENDS, action="append", help="only this one; may be repeated")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="jobs and changed lines of each validator")
    parser.add_argument("--mindspeed-count", type=int, metavar="N", help="the same for MindSpeed-LLM, seconds each")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--mindspeed-seed", type=int, metavar="N", help="the same for MindSpeed-LLM")
    parser.add_argument("--megatron-lm", action="append", default=[], metavar="DIR", help="checkout; may be repeated")
    parser.add_argument(
        "--mindspeed", action="append", nargs=3, default=[], metavar=("LLM", "MINDSPEED", "MEGATRON"), help="checkouts"
    )
    parser.add_argument("--facts", type=Path, metavar="DIR", help="also the corpus: folder with corpus_*.jsonl")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="keep answers there, and take known ones from it")
    parser.add_argument("--shell", type=int, default=0, metavar="N", help="so many of a validator's cases in a shell")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes of a slow validator")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table there, too")
    return parser.parse_args()


def _settings(options: argparse.Namespace) -> Settings:
    if options.cache is not None:
        folder = options.cache.resolve().parent / "agreement-files"
    else:
        folder = Path(tempfile.mkdtemp(prefix="launch-agreement-"))
    folder.mkdir(parents=True, exist_ok=True)
    return Settings(
        count=options.count,
        slow=options.count if options.mindspeed_count is None else options.mindspeed_count,
        seed=options.seed,
        slow_seed=options.seed if options.mindspeed_seed is None else options.mindspeed_seed,
        folder=folder,
        cache=options.cache,
        workers=options.workers,
        megatron_lm=options.megatron_lm,
        mindspeed=options.mindspeed or named_checkouts(),
        facts=options.facts,
    )


def _words(options: argparse.Namespace) -> str:
    """Return the command without the folders of this machine."""
    args = [f"--count {options.count}"]
    args += [f"--mindspeed-count {options.mindspeed_count}"] if options.mindspeed_count is not None else []
    args += ["--facts DIR"] if options.facts else []
    args += [f"--seed {options.seed}"]
    args += [f"--mindspeed-seed {options.mindspeed_seed}"] if options.mindspeed_seed is not None else []
    args += ["--megatron-lm DIR"] * len(options.megatron_lm)
    args += ["--mindspeed LLM MINDSPEED MEGATRON"] * len(options.mindspeed)
    args += [f"--shell {options.shell}"] if options.shell else []
    return " ".join([*args, "-o docs/agreement.md"])


def _line(validator: str, asked: str, rows: Sequence[Row]) -> str:
    verdicts = [verdict for row in rows for verdict in row.verdicts]
    kinds = Counter(verdict.kind for verdict in verdicts)
    accepted = sum(verdict.real is None for verdict in verdicts)
    typed, otherwise = sum(row.typed for row in rows), sum(len(row.otherwise) for row in rows)
    share, low, high = agreement(verdicts)
    cells = (
        *(validator, asked, len(verdicts), accepted, kinds["same"], kinds["missed"]),
        *(kinds["later"] + kinds["unexplained"], kinds["later"], kinds["unexplained"], kinds["machine"]),
        f"{100 * share:.1f} % ({100 * low:.1f}–{100 * high:.1f})",
        *(f"{typed - otherwise} of {typed}", f"{sum(row.seconds for row in rows):.0f}"),
    )
    return f"| {' | '.join(map(str, cells))} |"


def agreement(verdicts: Sequence[Verdict]) -> tuple[float, float, float]:
    """Return the share that is neither missed nor unexplained, and its 95 % interval by Wilson."""
    judged = [verdict for verdict in verdicts if verdict.kind != "machine"]
    count = len(judged)
    if not count:
        return 0.0, 0.0, 1.0
    share = sum(verdict.kind not in WRONG for verdict in judged) / count
    z = NormalDist().inv_cdf(0.975)
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return share, max(0.0, middle - half), min(1.0, middle + half)


def _totals(rows: Sequence[Row]) -> tuple[list[str], bool]:
    """Return a line for each validator that was asked about several kinds, and whether one is below the goal."""
    lines, below = [], False
    for validator in dict.fromkeys(row.part.validator for row in rows):
        own = [row for row in rows if row.part.validator == validator]
        below |= agreement([verdict for row in own for verdict in row.verdicts])[0] < GOAL
        if len(own) > 1:
            lines.append(_line(validator, "**together**", own))
    return lines, below


def _differences(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        for verdict in row.verdicts:
            if verdict.kind in WRONG:
                ours, _, real = _said(verdict).partition(" against ")
                case = verdict.name.replace("|", "\\|")
                validator = row.part.validator.partition(" parser")[0]
                lines.append(f"| {validator} | {verdict.kind} | `{case}` | {ours} | {real} |")
    head = [
        "",
        "## Where the verdicts differ",
        "",
        "| validator | kind | case | we say | it says |",
        "|---|---|---|---|---|",
    ]
    return [*head, *lines] if lines else []


def _reasons(rows: Sequence[Row]) -> list[str]:
    """Return why rules refuse what a validator accepts, with the number of cases."""
    count: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        for verdict in row.verdicts:
            if verdict.kind == "later":
                validator = row.part.validator.partition(" parser")[0]
                count.update((validator, rule, verdict.later[rule]) for rule in set(verdict.ours))
    lines = [f"| {validator} | `{rule}` | {times} | {why} |" for (validator, rule, why), times in sorted(count.items())]
    head = [
        "",
        "## Why we refuse what the validators accept",
        "",
        "| validator | rule | cases | why |",
        "|---|---|---|---|",
    ]
    return [*head, *lines] if lines else []


def _said(verdict: Verdict) -> str:
    return f"{', '.join(verdict.ours) or 'nothing'} against {first_words(verdict.real or 'accepted')}"


if __name__ == "__main__":
    raise SystemExit(main())
