"""Imports every command line of the corpus, writes it back, and prints how many come back the same, and how fast.

    python -m tools.bench.corpus --facts DIR [--megatron-lm CHECKOUT] [--backend B] [--failures] [--json]

DIR holds corpus_*.jsonl: real command lines and files of the backends' own examples, one JSON object a line.
CHECKOUT is one of Megatron-LM: the `model_config.yaml` of its functional tests are read from it.
Exit code 1 if a goal is missed: every command imports, 98 % come back the same, 85 % of uses reach a canonical field.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from launcher.importing.config import Configuration, arguments_of
from launcher.importing.imported import Imported
from launcher.importing.invocation import Invocation
from launcher.importing.notes import ImportRefused
from launcher.importing.read_argv import read_argv
from launcher.importing.read_command import ImportOptions, read_command
from launcher.importing.read_file import read_file
from launcher.importing.roundtrip import differences
from launcher.mapping.equivalence import Difference

# File of the corpus, backend, and what its names of versions are called in the catalogues.
CORPORA = {
    "corpus_megatron_swift.jsonl": (
        "megatron",
        {"main": "4.6.0", "v3.12.6": "3.12.6", "v3.6.4": "3.6.4", "v3.5.3": "3.5.3"},
    ),
    "corpus_mindspeed.jsonl": ("mindspeed", {}),
    "corpus_mindformers.jsonl": ("mindformers", {}),
}
_OF_TESTS = ("TestModel", "PreTrainedModel")
_GOALS = {"imported": 1.0, "identical": 0.98, "canonical": 0.85}
_SECONDS = 20.0


@dataclass(slots=True)
class Outcome:
    """What became of one record: not of this backend (why), refused (why), crashed, or imported with differences."""

    path: str
    part: str = ""
    outside: str = ""
    refused: str = ""
    """Why the backend's own parser does not take it; what can be read is imported all the same (`--partial`)."""
    crashed: str = ""
    imported: Imported | None = None
    differences: list[Difference] = field(default_factory=list)


def outcomes(file: Path, backend: str, versions: Mapping[str, str]) -> Iterator[Outcome]:
    """Import every record of a corpus file and compare what comes back."""
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        yield _outcome(record, backend, versions)


def of_checkout(folder: Path) -> Iterator[Outcome]:
    """Import the configurations of Megatron-LM's functional tests and compare what comes back."""
    for path in sorted(folder.rglob("tests/functional_tests/**/model_config.yaml")):
        outcome = Outcome(path=str(path.relative_to(folder)))
        try:
            outcome.imported = read_file(path, ImportOptions(partial=True))[0]
            outcome.differences = differences(outcome.imported)
            outcome.refused = "; ".join(str(note) for note in outcome.imported.problems)
        except ImportRefused as error:
            outcome.outside = re.sub(r"\d+", "N", error.notes[0].message)
        except Exception as error:  # a crash is a result here, the one that must not happen
            outcome.crashed = f"{type(error).__name__}: {error}"
        yield outcome


def _outcome(record: Mapping[str, Any], backend: str, versions: Mapping[str, str]) -> Outcome:
    outcome = Outcome(path=f"{record.get('version') or record.get('source') or ''} {record['path']}".strip())
    outcome.outside = _outside(record, backend)
    if "argv" not in record:
        legacy = record.get("use_legacy") is not False
        outcome.part = "other" if outcome.outside else "use_legacy" if legacy else "mcore"
    if outcome.outside:
        return outcome
    try:
        outcome.imported = _imported(record, backend, versions)
        outcome.differences = differences(outcome.imported)
        outcome.refused = "; ".join(str(note) for note in outcome.imported.problems)
    except ImportRefused as error:
        outcome.refused = "; ".join(str(note) for note in error.notes)
    except Exception as error:  # a crash is a result here, the one that must not happen
        outcome.crashed = f"{type(error).__name__}: {error}"
    return outcome


def _outside(record: Mapping[str, Any], backend: str) -> str:
    """Return why a record is no training command of the backend; empty if it is one."""
    if "yaml" in record and "argv" not in record:
        kinds = {
            "pynative": "pynative TrainConfig: read as the static graph's file, not written back",
            "other": "no training configuration",
        }
        if record.get("run_mode") in ("predict", "eval"):
            return f"run_mode {record['run_mode']}: no training"
        if _model_class(record["yaml"]) in _OF_TESTS:
            return "a model of unit tests"
        return kinds.get(str(record.get("kind")), "")
    command = record.get("command") or record.get("entry") or ""
    if command.startswith("swift "):
        return f"{command}: not the Megatron program"
    if "--use_ray" in record["argv"]:
        return f"{command} --use_ray: Ray's driver"
    return "train_fsdp2.py: another program, YAML of its own" if command == "train_fsdp2.py" else ""


def _model_class(tree: Mapping[str, Any]) -> Any:
    model = tree.get("model")
    arch = model.get("arch") if isinstance(model, Mapping) else None
    return arch.get("type") if isinstance(arch, Mapping) else None


def _imported(record: Mapping[str, Any], backend: str, versions: Mapping[str, str]) -> Imported:
    version = versions.get(str(record.get("version")))
    if "argv" not in record:
        settings = Configuration(tree=record["yaml"])
        invocation = Invocation(
            program=record["path"], backends=(backend,), cluster=_world(record), where=record["path"]
        )
        return read_command(invocation, ImportOptions(backend=backend, partial=True), settings)
    args = [*(record.get("command") or "").split(), *record["argv"]]
    if record.get("entry"):
        launcher = record.get("launcher") or {}
        options = [arg for key, value in (launcher.get("opts") or {}).items() for arg in (f"--{key}", str(value))]
        args = [*str(launcher.get("cmd", "torchrun")).split(), *options, record["entry"], *record["argv"]]
    if record.get("config_args"):
        rest = [arg for arg in record["argv"] if arg != "--config" and not arg.endswith(".yaml")]
        args = [*record["command"].split(), *arguments_of(record["config_args"]), *rest]
    env = {**(record.get("config_env") or {}), **(record.get("env") or {})}
    return read_argv(args, backend=backend, version=version, env=env, partial=True)


def _world(record: Mapping[str, Any]) -> dict[str, str]:
    size = record.get("world_size")
    return {"total": str(size), "per_node": str(min(size, 8))} if isinstance(size, int) else {"per_node": "8"}


def summary(results: list[Outcome], seconds: float) -> dict[str, Any]:
    """Return the figures of one backend, or of one part of its records."""
    tried = [each for each in results if not each.outside]
    imported = [each for each in tried if each.imported is not None and not each.crashed]
    same = [each for each in imported if not each.differences]
    mapped_args = [use for each in imported if each.imported for use in each.imported.mapped_args]
    mapped, uses = sum(bool(use.fields) for use in mapped_args), len(mapped_args)
    return {
        "records": len(results),
        "outside": dict(Counter(each.outside for each in results if each.outside)),
        "tried": len(tried),
        "imported": len(imported),
        "in_part": sum(bool(each.refused) for each in imported),
        "crashed": sum(bool(each.crashed) for each in results),
        "identical": len(same),
        "repaired": sum(bool(each.imported and each.imported.exact) for each in same),
        "canonical_uses": mapped,
        "implied_uses": sum(use.implied for each in imported if each.imported for use in each.imported.mapped_args),
        "uses": uses,
        "seconds": round(seconds, 2),
    }


def main() -> int:
    """Run the corpus and print the figures; return the exit code."""
    options = _options()
    report: dict[str, Any] = {}
    total = 0.0
    sources = {
        backend: partial(outcomes, options.facts / name, backend, versions)
        for name, (backend, versions) in CORPORA.items()
    }
    if options.megatron_lm is not None:
        sources["megatron_lm"] = partial(of_checkout, options.megatron_lm)
    for backend, read in sources.items():
        if options.backend not in (None, backend):
            continue
        start = time.process_time()
        results = list(read())
        seconds = time.process_time() - start
        total += seconds
        for part in dict.fromkeys(each.part for each in results):
            chosen = [each for each in results if each.part == part]
            title = f"{backend} {part}".strip()
            report[title] = summary(chosen, seconds * len(chosen) / len(results))
            if not options.json and not options.markdown:
                _print(title, report[title], chosen, options)
    if options.markdown:
        print(markdown(report, total))
    elif options.json:
        print(json.dumps({"backends": report, "seconds": round(total, 2)}, indent=2))
    else:
        print(f"all: {total:.1f} s of processor time (goal {_SECONDS:.0f})")
    return 0 if total <= _SECONDS and all(_reached(figures) for figures in report.values()) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.corpus", description=__doc__.split("\n")[0])
    parser.add_argument("--facts", type=Path, required=True, metavar="DIR", help="folder with corpus_*.jsonl")
    parser.add_argument("--megatron-lm", type=Path, metavar="CHECKOUT", help="also the configurations of its tests")
    parser.add_argument("--backend", help="only this one")
    parser.add_argument("--failures", action="store_true", help="also every single failure, not only the grouped ones")
    parser.add_argument("--pass-through", action="store_true", help="also the most used arguments without a field")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/import.md")
    return parser.parse_args()


def _reached(figures: Mapping[str, Any]) -> bool:
    return bool(
        figures["imported"] >= _GOALS["imported"] * figures["tried"]
        and figures["identical"] >= _GOALS["identical"] * figures["tried"]
        and figures["canonical_uses"] >= _GOALS["canonical"] * figures["uses"]
    )


def markdown(report: Mapping[str, Mapping[str, Any]], seconds: float) -> str:
    """Return the figures as a table."""
    lines = [
        "| backend | records | not read as its training | imported | of these in part | the same again "
        "| of these repaired | arguments | implied | canonical, of all | of those with an effect |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for title, each in report.items():
        effect = each["uses"] - each["implied_uses"]
        lines.append(
            f"| {title} | {each['records']} | {each['records'] - each['tried']} "
            f"| {each['imported']} of {each['tried']} | {each['in_part']} "
            f"| {each['identical']} of {each['tried']} | {each['repaired']} | {each['uses']} | {each['implied_uses']} "
            f"| {each['canonical_uses'] / each['uses']:.1%} | {each['canonical_uses'] / effect:.1%} |"
            if each["uses"]
            else f"| {title} | {each['records']} | {each['records']} | – | – | – | – | – | – | – | – |"
        )
    return "\n".join([*lines, "", f"All of it takes {seconds:.0f} s in one process."])


def _print(title: str, figures: Mapping[str, Any], results: list[Outcome], options: argparse.Namespace) -> None:
    print(f"{title}: {figures['records']} records, {figures['seconds']} s")
    for why, count in figures["outside"].items():
        print(f"  outside            {count:5}  {why}")
    if not figures["tried"]:
        return
    with_effect = figures["uses"] - figures["implied_uses"]
    print(f"  imported           {_of(figures['imported'], figures['tried'])}")
    print(f"  of these in part   {figures['in_part']:5}  (the backend's own parser refuses them)")
    print(f"  identical          {_of(figures['identical'], figures['tried'])}")
    print(
        f"  of these repaired  {figures['repaired']:5}  (a pass-through argument beside a field that says it otherwise)"
    )
    print(f"  implied uses       {_of(figures['implied_uses'], figures['uses'])}")
    print(f"  canonical uses     {_of(figures['canonical_uses'], figures['uses'])}")
    print(f"    with an effect   {_of(figures['canonical_uses'], with_effect)}")
    _print_failures(results, every=options.failures)
    if options.pass_through:
        _print_pass_through(results)


def _print_failures(results: list[Outcome], *, every: bool) -> None:
    for each in results:
        if each.crashed or each.refused:
            print(f"  {'CRASHED' if each.crashed else 'refused'}  {each.path}: {each.crashed or each.refused}")
    groups: dict[tuple[str, str, str], list[str]] = {}
    for each in results:
        for difference in each.differences:
            key = (difference.flag, _short(difference.before), _short(difference.after))
            groups.setdefault(key, []).append(each.path)
    for (flag, before, after), paths in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"  differs  {len(paths):4}  {flag}: {before} -> {after}   {paths[0]}")
        for path in paths[1:] if every else ():
            print(f"                 {path}")


def _print_pass_through(results: list[Outcome]) -> None:
    imported = [each.imported for each in results if each.imported]
    repairs = Counter(flag for each in imported for flag in each.exact)
    counts = Counter(use.flag for each in imported for use in each.mapped_args if not use.fields and not use.implied)
    print("  repaired: " + ", ".join(f"{flag} {count}" for flag, count in repairs.most_common(40)))
    print("  pass-through: " + ", ".join(f"{flag} {count}" for flag, count in counts.most_common(60)))


def _of(part: int, whole: int) -> str:
    return f"{part:5} of {whole} ({part / whole:.1%})" if whole else "    0"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


if __name__ == "__main__":
    sys.exit(main())
