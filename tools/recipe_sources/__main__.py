"""Compares every recipe with the file that it was copied from: each difference with the reason for it.

    python -m tools.recipe_sources --source PROJECT=DIR … [--only TEXT] [--record] [--all]

DIR is a git directory or checkout of PROJECT that has the recipe's commit: ms-swift, MindSpeed-LLM, Megatron-LM,
Megatron-Bridge, NeMo, slime. Scripts are imported as `launch import` does, and compared by effective values on their
own backend; of slime's, which train with a program of their own, what Megatron-LM's mapping and a table read. Of
recipes of Megatron-Bridge and NeMo, which are Python, the syntax tree is read. What these do not determine, and other
sources that are no script, was read by hand and is compared value by value. A reason is the recipe's own (in its
comment, under `Differs from its source:`) or a general one (general.json). Differences without a reason are printed
(--all: every one), and so are reasons that name no difference; either makes the exit code 1. --record writes
sources.json, by which tests/recipes compares without any checkout.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launcher.compose import compose
from launcher.importing.side_by_side import text
from launcher.job import Value
from launcher.job.shipped import shipped
from tools.recipe_sources import nemo_recipe, slime_script
from tools.recipe_sources.compare import BACKENDS, NoSource, compared, plain, source_text, written, written_fields
from tools.recipe_sources.python_recipe import PROJECT, configuration, fields, tree_of
from tools.recipe_sources.reasons import Difference, affects_training, own, reason

RECORD = Path(__file__).parent / "sources.json"


def _of_bridge(source: str, folders: Mapping[str, Path]) -> dict[str, Value]:
    return fields(configuration(tree_of(source, folders), *source.split(" ")[2:4]))


# How the fields that a source sets are found, by its project.
READERS: Mapping[str, Callable[[str, Mapping[str, Path]], dict[str, Value]]] = {
    PROJECT: _of_bridge,
    nemo_recipe.PROJECT: nemo_recipe.read,
    slime_script.PROJECT: slime_script.read,
}


def main() -> int:
    """Print differences; return 1 if one has no reason, or a reason no difference."""
    options = _options()
    known = recorded()
    wrong = 0
    for recipe, entry in known.items():
        if options.only not in recipe:
            continue
        try:
            fresh = _fresh(recipe, entry, options.source)
        except NoSource as error:
            print(f"{recipe}: not compared: {error}", file=sys.stderr)
            continue
        wrong += _report(recipe, differences(recipe, fresh), every=options.all)
        known[recipe] = fresh
    if options.record:
        lines = ",\n".join(
            f" {json.dumps(name)}: {json.dumps(each, ensure_ascii=False)}" for name, each in known.items()
        )
        RECORD.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return int(bool(wrong))


def recorded() -> dict[str, dict[str, Any]]:
    """Return by recipe: its source, the values that both have (`says`), and those that differ, each side's."""
    tree: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return tree


def differences(recipe: str, entry: Mapping[str, Any]) -> list[Difference]:
    """Return the recorded differences of a recipe, with what it has today."""
    job = compose([f"+recipe={recipe}"])
    return [
        Difference(
            path=path,
            source=text(each[0]),
            recipe=text(each[1]),
            written=written(job, path),
            affects_training=each[2] if len(each) > 2 else affects_training(path),
        )
        for path, each in entry["differs"].items()
    ]


def unexplained(recipe: str, found: list[Difference]) -> tuple[list[Difference], list[str]]:
    """Return differences without a reason, and paths of reasons without a difference."""
    job = compose([f"+recipe={recipe}"])
    reasons = own((shipped("recipes") / f"{recipe}.yaml").read_text(encoding="utf-8"))
    silent = [each for each in found if not reason(each, job, reasons)]
    return silent, sorted(reasons.keys() - {each.path for each in found})


def _fresh(recipe: str, entry: Mapping[str, Any], folders: Mapping[str, Path]) -> dict[str, Any]:
    source = entry["source"]
    if source.split(" ")[0] in READERS:
        return reread(recipe, entry, folders)
    if source.split(" ")[0] not in BACKENDS or not source.endswith(".sh"):
        return dict(entry)
    result = compared(recipe, source, source_text(source, folders))
    return {
        "source": source,
        "on": f"{result.backend} {result.version}",
        "says": {path: plain(value) for path, value in result.says.items()},
        "differs": {each.path: [each.source, each.recipe, each.affects_training] for each in result.differs},
    }


def reread(recipe: str, entry: Mapping[str, Any], folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return an entry of which the values that its reader finds are read again; others were read by hand."""
    job = compose([f"+recipe={recipe}"])
    read = READERS[entry["source"].split(" ")[0]](entry["source"], folders)
    says, differs = dict(entry["says"]), dict(entry["differs"])
    for path in [*says, *differs, *written_fields(job)]:
        if path not in read:
            continue
        source, ours = plain(read[path]), plain(written(job, path))
        says.pop(path, None)
        differs.pop(path, None)
        if source == ours:
            says[path] = ours
        else:
            differs[path] = [source, ours]
    return {**entry, "says": says, "differs": differs}


def _report(recipe: str, found: list[Difference], *, every: bool) -> int:
    job = compose([f"+recipe={recipe}"])
    reasons = own((shipped("recipes") / f"{recipe}.yaml").read_text(encoding="utf-8"))
    silent, stale = unexplained(recipe, found)
    print(f"{recipe}: {len(found)} differences, {len(silent)} without a reason")
    for each in found if every else silent:
        print(f"  {each.path}: {each.source} -> {each.recipe}  {reason(each, job, reasons) or 'NO REASON'}")
    for path in stale:
        print(f"  {path}: the recipe gives a reason, but the source has the same")
    return len(silent) + len(stale)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", default=[], type=_source, metavar="PROJECT=DIR")
    parser.add_argument("--only", default="", metavar="TEXT", help="only recipes whose name holds this")
    parser.add_argument("--all", action="store_true", help="print every difference, also those with a reason")
    parser.add_argument("--record", action="store_true", help="write sources.json")
    options = parser.parse_args()
    options.source = dict(options.source)
    return options


def _source(word: str) -> tuple[str, Path]:
    project, _, folder = word.partition("=")
    return project, Path(folder)


if __name__ == "__main__":
    sys.exit(main())
