"""How often our verdict and the real validators' agree, on jobs drawn at random.

    python -m tools.bench.agreement                        all validators, 200 jobs each
    python -m tools.bench.agreement --count 600 -o docs/agreement.md
    python -m tools.bench.agreement --backend megatron --count 1000 --seed 3
    python -m tools.bench.agreement --backend megatron_lm --megatron-lm DIR --megatron-lm DIR
    python -m tools.bench.agreement --facts DIR             also the corpus of upstream's examples

Runs ms-swift 4.6.0's argument classes with mcore-bridge's configuration, MindFormers 1.6.0's checks and classes, and
megatron-core's TransformerConfig, the first two in environments of their own (made from PyPI once;
LAUNCH_TEST_PYTHON_SWIFT and LAUNCH_TEST_PYTHON_MINDFORMERS16 name others); Megatron-LM's parser, validate_args and
configuration from checkouts (--megatron-lm, else MEGATRON_LM_PATH), MindSpeed-LLM's from those that MINDSPEED_LLM_PATH,
MINDSPEED_PATH and MEGATRON_LM_PATH name; a validator without its checkout is left out, and said to be. `later`: we tell
what shows only when the model is built or trains; each such rule is listed with its reason in
tests/backends/*/verdicts.py.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol


class _Verdict(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def ours(self) -> tuple[str, ...]: ...
    @property
    def real(self) -> str | None: ...
    @property
    def kind(self) -> str: ...


_KINDS = ("same", "later", "machine", "false", "missed")
_CHECKOUTS: list[str] = []
_TITLES = {
    "megatron": "Megatron-SWIFT 4.6.0 argument classes",
    "mindformers": "MindFormers 1.6.0 checks and classes",
    "core": "megatron-core 0.16.1 TransformerConfig",
    "megatron_lm": "Megatron-LM parser, validate_args and configuration",
    "mindspeed": "MindSpeed-LLM 26.1.0 parser, validators and configuration",
}


def _swift(count: int, seed: int, folder: Path) -> Sequence[_Verdict]:
    from tests.backends.megatron.environment import swift_python
    from tests.backends.megatron.fuzzed import jobs
    from tests.backends.megatron.verdicts import compare

    return compare(jobs(count, seed), swift_python(), folder)


def _mindformers(count: int, seed: int, folder: Path) -> Sequence[_Verdict]:
    from tests.backends.mindformers.verdicts import compare
    from tests.rehearse.native.environments import python_with

    python = python_with("mindformers16", ("mindspore==2.7.0", "mindformers==1.6.0", "setuptools<81"))
    return compare(count, seed, python, folder)


def _core(count: int, seed: int, folder: Path) -> Sequence[_Verdict]:
    from tests.rules.core_verdicts import compare

    return compare(count, seed)


def _megatron_lm(count: int, seed: int, folder: Path) -> Sequence[_Verdict]:
    from tests.backends.megatron_lm.test_megatron_lm_parser import version_of
    from tests.backends.megatron_lm.verdicts import compare, drawn

    found: list[_Verdict] = []
    for checkout in _CHECKOUTS or [os.environ.get("MEGATRON_LM_PATH", "")]:
        version = version_of(checkout)
        if version is not None:
            found += compare("megatron_lm", version, [checkout], drawn("megatron_lm", version, count, seed))
    return found


def _mindspeed(count: int, seed: int, folder: Path) -> Sequence[_Verdict]:
    from backends.mindspeed.rehearse import NATIVE_CPU
    from tests.backends.megatron_lm.verdicts import compare, drawn
    from tests.rehearse.native.environments import python_with, torch_pin

    if not all(os.environ.get(tree.variable) for tree in NATIVE_CPU.checkouts):
        return []
    rest = [str(need) for need in NATIVE_CPU.requires if need.distribution != "torch"]
    python = python_with("mindspeed", (torch_pin(),), (torch_pin(), *rest))
    return compare("mindspeed", "26.1.0", [], drawn("mindspeed", "26.1.0", count, seed), str(python))


_BACKENDS: dict[str, Callable[[int, int, Path], Sequence[_Verdict]]] = {
    "megatron": _swift,
    "mindformers": _mindformers,
    "core": _core,
    "megatron_lm": _megatron_lm,
    "mindspeed": _mindspeed,
}
HEAD = """# Agreement with the real validators

Written by `python -m tools.bench.agreement --count {count} --seed {seed} -o docs/agreement.md`.
Jobs are drawn at random, the same ones from the same seed; a validator's figures leave out jobs that it cannot express.
*same*: accepted by both or refused by both. *later*: we refuse what these classes do not see, because it shows when the
model is built or trains, or never (each rule with its reason in `tests/backends/*/verdicts.py`; for TransformerConfig
other parts of Megatron refuse it). *machine*: only the machine decides. *false*: we refuse what runs. *missed*: we
accept what is refused. Megatron-LM is asked about every argument of its catalogue alone, about every corner of
`tests/backends/megatron_lm/fuzzed.py`, and about mixtures of these.

"""
CORPUS = """Every command line and file of the corpus, judged as it is written. An example with an error is listed with
the reason: upstream refuses it too, by its own source, or why we do all the same.
"""


def main() -> int:
    """Print the table; exit 1 if a verdict differs without a reason."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=tuple(_BACKENDS), action="append")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="jobs for each backend")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--megatron-lm", action="append", default=[], metavar="DIR", help="checkout; may be repeated")
    parser.add_argument("--facts", type=Path, metavar="DIR", help="also the corpus: folder with corpus_*.jsonl")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table there, too")
    options = parser.parse_args()
    _CHECKOUTS.extend(options.megatron_lm)
    lines = ["| validator | jobs | accepted | " + " | ".join(_KINDS) + " | agreement | seconds |"]
    lines.append("|---|" + "---|" * (len(_KINDS) + 4))
    print("\n".join(lines))
    differing: list[_Verdict] = []
    for backend in options.backend or _BACKENDS:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            verdicts = _BACKENDS[backend](options.count, options.seed, Path(folder))
        if not verdicts:
            print(f"{_TITLES[backend]}: left out, its checkout is not named", file=sys.stderr)
            continue
        lines.append(_row(_TITLES[backend], verdicts, time.perf_counter() - start))
        print(lines[-1], flush=True)
        differing += [verdict for verdict in verdicts if verdict.kind in ("false", "missed")]
    false = 0
    if options.facts:
        from tools.bench.corpus_check import markdown

        corpus, false = markdown(options.facts)
        lines += ["", "## Upstream's own examples", "", CORPUS, corpus]
        print(corpus)
    if options.output:
        head = HEAD.format(count=options.count, seed=options.seed)
        options.output.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    for verdict in differing:
        said = (verdict.real or "accepted").splitlines()[0][:160]
        print(
            f"{verdict.kind}: {verdict.name}: {', '.join(verdict.ours) or 'no error'} against: {said}", file=sys.stderr
        )
    return 1 if differing or false else 0


def _row(title: str, verdicts: Sequence[_Verdict], seconds: float) -> str:
    kinds = Counter(verdict.kind for verdict in verdicts)
    accepted = sum(verdict.real is None for verdict in verdicts)
    share = 100 * (len(verdicts) - kinds["false"] - kinds["missed"]) / max(1, len(verdicts))
    counts = " | ".join(str(kinds[kind]) for kind in _KINDS)
    return f"| {title} | {len(verdicts)} | {accepted} | {counts} | {share:.1f} % | {seconds:.0f} |"


if __name__ == "__main__":
    raise SystemExit(main())
