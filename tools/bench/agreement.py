"""How often our verdict and the real validators' agree, on jobs and command lines drawn at random.

    python -m tools.bench.agreement                        what needs no checkout, 200 jobs each
    python -m tools.bench.agreement --count 600 --facts DIR --megatron-lm DIR --megatron-lm DIR -o docs/agreement.md
    python -m tools.bench.agreement --backend mindspeed --mindspeed LLM MINDSPEED MEGATRON --facts DIR

Runs ms-swift 4.6.0's argument classes with mcore-bridge's configuration, MindFormers 1.6.0's checks and classes, and
megatron-core's TransformerConfig, the first two in environments of their own (made from PyPI once;
LAUNCH_TEST_PYTHON_SWIFT and LAUNCH_TEST_PYTHON_MINDFORMERS16 name others); Megatron-LM's parser, validate_args and
configuration from checkouts (--megatron-lm; whole ones also give the command lines of its functional tests),
MindSpeed-LLM's from --mindspeed, else those that MINDSPEED_LLM_PATH, MINDSPEED_PATH and MEGATRON_LM_PATH name.
With --cache, answers are kept as they come: a run that broke off, or another seed, asks only what is new.
`later`: we tell what shows only when the model is built or trains; each such rule is listed with its reason in
tests/backends/*/verdicts.py.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.backends.verdicts import KINDS, Verdict
from tools.bench.agreement_parts import Part, Settings, first_words, named_checkouts, parts

BACKENDS = ("megatron", "mindformers", "core", "megatron_lm", "mindspeed")
HEAD = """# Agreement with the real validators

Written by `python -m tools.bench.agreement {words}`.
Jobs and command lines are drawn at random, the same ones from the same seed; a validator's figures leave out jobs that
it cannot express. *same*: accepted by both or refused by both. *later*: we refuse what these classes do not see,
because it shows when the model is built or trains, or never (each rule with its reason in
`tests/backends/*/verdicts.py`; for TransformerConfig other parts of Megatron refuse it). *machine*: only the machine
decides: a file, a package, an environment variable. *false*: we refuse what runs. *missed*: we accept what is refused.
Changed command lines are upstream's own examples with one to three things changed (sizes, switches, what is written at
all, the number of devices; `tests/backends/mutated.py`), judged by `launcher.api.check(import_argv(…))`. Megatron-LM is
also asked about every argument of its catalogue alone and every corner of `tests/backends/megatron_lm/fuzzed.py`.
Findings that are known to be stricter than the version (`rules.strict=upstream` lowers them) do not count as refusals.
Seconds are ours and those of answers that no earlier run had kept (`--cache`), on a loaded machine.

"""
CORPUS = """Every command line and file of the corpus, judged as it is written. An example with an error is listed with
the reason: upstream refuses it too, or why we do all the same. What is said of MindSpeed-LLM's examples was seen: its
parser and validators (26.1.0) refused these very command lines, with folders put in for placeholders (the row *its own
examples as written* above); the two of `MS-RC-PER-RANK` they accepted. Examples of MindSpeed-LLM with `--ai-framework
mindspore` are under *machine* there: they import MindSpore's own transformers.
"""


def main() -> int:
    """Print the table; exit 1 if a verdict differs without a reason, or a validator could not be asked."""
    options = _options()
    settings = _settings(options)
    lines = ["| validator | asked about | cases | accepted | " + " | ".join(KINDS) + " | agreement | seconds |"]
    lines.append("|---|---|" + "---|" * (len(KINDS) + 4))
    print("\n".join(lines), flush=True)
    differing: list[tuple[Part, Verdict]] = []
    broken = 0
    for part in parts(settings):
        if options.backend and part.backend not in options.backend:
            continue
        start = time.perf_counter()
        try:
            verdicts = part.run()
        except (RuntimeError, OSError) as error:
            broken += 1
            print(f"{part.validator}: {error}", file=sys.stderr)
            continue
        lines.append(_row(part, verdicts, time.perf_counter() - start))
        print(lines[-1], flush=True)
        differing += [(part, verdict) for verdict in verdicts if verdict.kind in ("false", "missed")]
    if differing:
        lines += ["", "## Where the verdicts differ", "", *_differences(differing)]
    false = 0
    if options.facts:
        from tools.bench.corpus_check import markdown

        corpus, false = markdown(options.facts)
        lines += ["", "## Upstream's own examples", "", CORPUS, corpus]
        print(corpus)
    if options.output:
        head = HEAD.format(words=_words(options))
        options.output.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    for _, verdict in differing:
        print(f"{verdict.kind}: {verdict.name}: {_said(verdict)}", file=sys.stderr)
    return 1 if differing or false or broken else 0


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
    words = [f"--count {options.count}"]
    words += [f"--mindspeed-count {options.mindspeed_count}"] if options.mindspeed_count is not None else []
    words += ["--facts DIR"] if options.facts else []
    words += [f"--seed {options.seed}"]
    words += [f"--mindspeed-seed {options.mindspeed_seed}"] if options.mindspeed_seed is not None else []
    words += ["--megatron-lm DIR"] * len(options.megatron_lm)
    words += ["--mindspeed LLM MINDSPEED MEGATRON"] * len(options.mindspeed)
    return " ".join([*words, "-o docs/agreement.md"])


def _row(part: Part, verdicts: Sequence[Verdict], seconds: float) -> str:
    kinds = Counter(verdict.kind for verdict in verdicts)
    accepted = sum(verdict.real is None for verdict in verdicts)
    share = 100 * (len(verdicts) - kinds["false"] - kinds["missed"]) / max(1, len(verdicts))
    counts = " | ".join(str(kinds[kind]) for kind in KINDS)
    shown = f"| {part.validator} | {part.asked} | {len(verdicts)} | {accepted} | {counts} |"
    return f"{shown} {share:.1f} % | {seconds:.0f} |"


def _differences(differing: Sequence[tuple[Part, Verdict]]) -> list[str]:
    lines = ["| validator | kind | case | we say | it says |", "|---|---|---|---|---|"]
    for part, verdict in differing:
        ours, _, real = _said(verdict).partition(" against ")
        case = verdict.name.replace("|", "\\|")
        lines.append(f"| {part.validator.partition(' parser')[0]} | {verdict.kind} | `{case}` | {ours} | {real} |")
    return lines


def _said(verdict: Verdict) -> str:
    return f"{', '.join(verdict.ours) or 'nothing'} against {first_words(verdict.real or 'accepted')}"


if __name__ == "__main__":
    raise SystemExit(main())
