"""What real validators change in the arguments of drawn command lines, beside what our rules say.

    python -m tools.bench.effective --megatron-lm DIR [--megatron-lm DIR] --count 300 --seed 1
    python -m tools.bench.effective --mindspeed LLM MINDSPEED MEGATRON --facts ../shared/facts --count 100 --seed 1
    python -m tools.bench.effective --swift --count 300 --seed 1
    python -m tools.bench.effective … --record tests/backends/megatron_lm/effective.json

Counts, for the command lines that the real validator accepts, the destinations that both change to the same value,
that only it changes (missed), that ours leaves at another value (wrong), that only our rules change (invented), and
that it takes from files which no rule reads (files), with one command line of each. `--record` writes the smallest
command lines that cover every record of the rules, for the tests that need no checkout. Exit code 1 where something is
missed, wrong or invented.
"""

import argparse
import itertools
import json
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from launcher.catalogue.versions import version_key
from launcher.mapping.backend import get_backend
from launcher.rules.effective import setting_rules
from launcher.rules.registry import RULES
from tests.backends.effective import KINDS, Changed, Compared, compare
from tests.backends.megatron import effective_real as swift
from tests.backends.megatron_lm import effective as drawn
from tests.backends.megatron_lm import mutated
from tests.backends.megatron_lm.checkout import version_of
from tests.backends.megatron_lm.verdicts import validator
from tests.backends.mindspeed import effective as mindspeed_moves
from tests.backends.mindspeed import mutated as mindspeed
from tests.rehearse.native.environments import swift_python
from tools.bench.agreement_parts import mindspeed_version

_CASES = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One version: the command lines that its validator is asked about, and how they are compared."""

    backend: str
    version: str
    lines: Sequence[Any]
    compared: Callable[[], Iterable[Compared]]


def main() -> int:
    """Print the figures of each version."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swift", action="store_true", help="Megatron-SWIFT, in the environment of its tests")
    parser.add_argument("--megatron-lm", action="append", default=[], metavar="DIR", help="a checkout; may be repeated")
    parser.add_argument("--mindspeed", action="append", default=[], nargs=3, metavar=("LLM", "MINDSPEED", "MEGATRON"))
    parser.add_argument("--facts", type=Path, help="folder with corpus_mindspeed.jsonl, whose lines are changed")
    parser.add_argument("--python", default="", help="interpreter with what MindSpeed-LLM needs; else this one")
    parser.add_argument("--count", type=int, default=300, metavar="N", help="of each kind of command line")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--cache", type=Path, metavar="FILE", help="keep MindSpeed-LLM's answers there, take known ones"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes of MindSpeed-LLM's validator")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write the cases of the offline tests beside those of other versions",
    )
    options = parser.parse_args()
    kept = options.record.read_text(encoding="utf-8") if options.record and options.record.is_file() else "{}"
    recorded: dict[str, Any] = json.loads(kept)
    clean = True
    for asked in itertools.chain(_megatron_lm(options), _mindspeed(options), _swift(options)):
        start = time.perf_counter()
        found = list(asked.compared())
        seconds = time.perf_counter() - start
        title = get_backend(asked.backend).title
        print(f"\n## {title} {asked.version}: {len(asked.lines)} lines, {len(found)} accepted, {seconds:.0f} s\n")
        clean &= report(found, asked.backend, asked.version)
        recorded[asked.version] = cases_of(found)
    if options.record:
        ordered = {version: recorded[version] for version in sorted(recorded, key=version_key)}
        options.record.write_text(as_text(ordered), encoding="utf-8")
    return 0 if clean else 1


def _megatron_lm(options: argparse.Namespace) -> Iterator[Asked]:
    for checkout in options.megatron_lm:
        version = version_of(checkout)
        if version is None:
            raise SystemExit(f"{checkout} is no checkout of a Megatron-LM that is known here")
        bases = mutated.bases(Path(checkout))
        lines = drawn.lines("megatron_lm", version, options.count, options.seed, bases=bases)
        program = validator("megatron_lm", [checkout, "values"])
        yield Asked(
            backend="megatron_lm",
            version=version,
            lines=lines,
            compared=partial(compare, "megatron_lm", version, lines, program),
        )


def _mindspeed(options: argparse.Namespace) -> Iterator[Asked]:
    for checkouts in options.mindspeed:
        version = mindspeed_version(checkouts[0])
        bases = mindspeed.bases(options.facts / "corpus_mindspeed.jsonl") if options.facts else []
        lines = drawn.lines(
            "mindspeed",
            version,
            options.count,
            options.seed,
            moves=mindspeed_moves.MOVES,
            corners=2 * options.count,
            bases=bases,
            mutations=mindspeed.MUTATIONS,
        )
        env = dict(zip(("MINDSPEED_LLM_PATH", "MINDSPEED_PATH", "MEGATRON_LM_PATH"), checkouts, strict=True))
        program = validator(
            "mindspeed",
            ["values"],
            python=options.python,
            env=env,
            title=f"MindSpeed-LLM {version}",
            cache=options.cache,
            workers=options.workers,
        )
        yield Asked(
            backend="mindspeed",
            version=version,
            lines=lines,
            compared=partial(compare, "mindspeed", version, lines, program),
        )


def _swift(options: argparse.Namespace) -> Iterator[Asked]:
    if options.swift:
        with tempfile.TemporaryDirectory() as folder:
            lines = swift.lines(options.count, options.seed, Path(folder))
            found = partial(swift.compare, lines, swift_python(), title="ms-swift")
            yield Asked(backend="megatron", version=swift.NEWEST, lines=lines, compared=found)


def report(found: Sequence[Compared], backend: str, version: str) -> bool:
    """Print the destinations of each class; return whether all changes agree."""
    changes = [change for one in found for change in one.found]
    for kind in KINDS:
        mine = [change for change in changes if change.kind == kind]
        counted = Counter(change.dest for change in mine)
        print(f"{kind}: {len(mine)} changes of {len(counted)} destinations")
        for dest, count in counted.most_common():
            example = _shortest(change for change in mine if change.dest == dest)
            reported = (
                "" if kind == "same" else f": really {example.real}, ours {example.ours} {' '.join(example.rules)}"
            )
            print(f"  {dest} ({count}){reported}")
            if kind != "same":
                print(f"    {example.line.name}: {shlex.join(example.line.argv)} (of {example.line.world_size})")
    used = {rule for one in found for rule in one.rules}
    unused = [rule.id for rule in setting_rules(backend, version, len(RULES)) if rule.id not in used]
    print(f"records that no command line reached: {', '.join(unused) or 'none'}")
    return all(change.kind in ("same", "files") for change in changes)


def _shortest(changes: Iterable[Changed]) -> Changed:
    return min(changes, key=lambda change: len(change.line.argv))


def cases_of(found: Sequence[Compared]) -> dict[str, Any]:
    """Return the bases' changes, and command lines that together reach every record, as differences from them."""
    plain = [one for one in found if one.line.name.count(" ") == 1 and one.line.name.endswith(" ")]
    bases = {one.line.name.strip(): dict(one.real) for one in plain}
    cases: list[dict[str, Any]] = []
    reached = {rule for one in plain for rule in one.rules}
    for one in sorted(found, key=lambda one: len(one.line.name)):
        base, _, changes = one.line.name.partition(" ")
        if base not in bases or not changes or (one.rules <= reached and len(cases) >= _CASES):
            continue
        differing = _differing(bases[base], one.real)
        if one.rules <= reached and not (differing and _is_new(differing, cases)):
            continue
        reached |= one.rules
        cases.append({"base": base, "changes": changes, "changed": differing})
    return {**bases, "cases": cases}


def _differing(base: dict[str, Any], real: Any) -> dict[str, Any]:
    names = sorted({*base, *real})
    return {name: real.get(name) for name in names if real.get(name) != base.get(name)}


def _is_new(differing: dict[str, Any], cases: list[dict[str, Any]]) -> bool:
    known = {name for case in cases for name in case["changed"]}
    return not known.issuperset(differing)


def as_text(recorded: dict[str, Any]) -> str:
    """Return the record as JSON, one case a line."""
    parts = []
    for version, found in recorded.items():
        rows = [f"  {json.dumps(base)}: {json.dumps(found[base])}" for base in found if base != "cases"]
        cases = ",\n".join(f"   {json.dumps(case)}" for case in found["cases"])
        rows.append(f'  "cases": [\n{cases}\n  ]')
        parts.append(f" {json.dumps(version)}: {{\n" + ",\n".join(rows) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    raise SystemExit(main())
