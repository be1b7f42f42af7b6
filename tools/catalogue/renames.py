"""Checks and completes backends/megatron/renames.json against the catalogues of Megatron-SWIFT's versions.

    python -m tools.catalogue.renames [--check]

What became of an argument (`old`, `new`, `kind`, `key`, `scale`, `note`) is judged by people and stands in the file;
from the catalogues come the rest: the last version that has the old name, the first that has the new one, changed
defaults and added names. An argument that disappeared without a judgement is an error, and so is a judgement about an
argument that did not disappear. `--check` writes nothing and fails where the file is not up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launcher.catalogue import catalogue
from launcher.catalogue.catalogue import Catalogue
from launcher.catalogue.versions import version_key

_FOLDER = Path(__file__).resolve().parents[2] / "backends" / "megatron"
_KINDS = {
    "rename": "the same argument under another name",
    "inverted": "true is now false",
    "convert": "another unit or meaning, see note; `scale` where a factor does it",
    "model": "read from config.json; overridden by megatron_extra_kwargs at `key`, where there is one",
    "removed": "nothing takes its place",
}


def build(judged: list[dict[str, Any]], catalogues: Mapping[str, Catalogue]) -> dict[str, Any]:
    """Return the content of renames.json.

    Raises:
        ValueError: a disappeared argument is not judged, or a judgement does not hold.
    """
    versions = list(catalogues)
    newest = catalogues[versions[-1]]
    gone = {
        argument.name
        for version in versions[:-1]
        for argument in catalogues[version].arguments
        if newest.get(argument.name) is None or newest.is_negation(argument.name)
    }
    problems = [f"{name} disappeared and is not judged" for name in sorted(gone - {row["old"] for row in judged})]
    names = []
    for row in sorted(judged, key=lambda row: str(row["old"])):
        problems += _problems(row, gone, newest)
        until = next((version for version in reversed(versions) if _has(catalogues[version], row["old"])), None)
        since = next((version for version in versions if row["new"] and _has(catalogues[version], row["new"])), None)
        facts = {"until": until, "since": since}
        order = ("old", "new", "kind", "until", "since", "key", "scale", "note")
        merged = row | facts
        names.append({key: merged[key] for key in order if merged.get(key) is not None or key == "new"})
    if problems:
        raise ValueError("\n".join(problems))
    return {"versions": versions, "kinds": _KINDS, "names": names} | _differences(catalogues)


def _has(version: Catalogue, name: str) -> bool:
    return version.get(name) is not None and not version.is_negation(name)


def _problems(row: Mapping[str, Any], gone: set[str], newest: Catalogue) -> list[str]:
    found = []
    if row["old"] not in gone:
        found.append(f"{row['old']} did not disappear")
    if row["kind"] not in _KINDS:
        found.append(f"{row['old']}: unknown kind {row['kind']}")
    if (row["new"] is None) != (row["kind"] == "removed"):
        found.append(f"{row['old']}: kind {row['kind']} and new name {row['new']} do not fit")
    if row["new"] is not None and not _has(newest, row["new"]):
        found.append(f"{row['old']}: {row['new']} is not in {newest.version}")
    return found


def _differences(catalogues: Mapping[str, Catalogue]) -> dict[str, Any]:
    versions = list(catalogues)
    newest = catalogues[versions[-1]]
    defaults, added = [], []
    for argument in newest.arguments:
        having = {version: catalogues[version].get(argument.name) for version in versions}
        values = {version: _default(found) for version, found in having.items() if found is not None}
        if any(value != _default(argument) for value in map(_default, filter(None, having.values()))):
            defaults.append({"name": argument.name, "defaults": values})
        since = next(iter(values))
        if since != versions[0]:
            added.append({"name": argument.name, "since": since})
    return {"defaults": defaults, "added": added}


def _default(argument: catalogue.Argument) -> Any:
    return argument.default if argument.has_default else argument.default_from


def render(content: Mapping[str, Any]) -> str:
    """Return the file's text: one record a line."""
    lines = ["{"]
    for key in ("versions", "kinds"):
        lines.append(f" {json.dumps(key)}: {json.dumps(content[key])},")
    lists = ("names", "defaults", "added")
    for key in lists:
        body = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in content[key])
        lines += [f' "{key}": [', body, " ]" + ("," if key != lists[-1] else "")]
    return "\n".join([*lines, "}"]) + "\n"


def versions(folder: Path) -> list[str]:
    """Return the versions that a catalogue folder holds, oldest first (`master` last).

    Another entry point of the same version (`2.1.0-pynative`) is not a separate version.
    """
    stems = (path.stem for path in folder.glob("*.json"))
    return sorted((stem for stem in stems if stem.partition("-")[2] in ("", "dev")), key=version_key)


def main(argv: list[str] | None = None) -> int:
    """Complete the file, or with --check only compare; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.catalogue.renames", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 where the file is out of date")
    options = parser.parse_args(argv)
    path = _FOLDER / "renames.json"
    folder = _FOLDER / "catalogue"
    catalogues = {version: catalogue.load(folder / f"{version}.json") for version in versions(folder)}
    before = path.read_text(encoding="utf-8")
    try:
        after = render(build(json.loads(before)["names"], catalogues))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if options.check:
        return int(before != after)
    path.write_text(after, encoding="utf-8")
    content = json.loads(after)
    print(f"{path}: {', '.join(f'{len(content[key])} {key}' for key in ('names', 'defaults', 'added'))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
