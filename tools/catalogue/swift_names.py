"""Templates and model types that each version of ms-swift registers, read from its source.

    python -m tools.catalogue.swift_names 4.6.0=DIR …

DIR: a checkout or an unpacked wheel. `megatron sft` looks `--template` and `--model_type` up in what
`register_template` and `register_model` were called with when the package was imported. The result, names with the
first and last registered version, goes to backends/megatron/registered_names.json, where the names of other versions
stay. `python -m tools.catalogue megatron` does it for the version that it registers.
"""

import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.mapping.backend import get_backend
from tools.catalogue.register import BACKENDS

FILE = BACKENDS / "megatron" / "registered_names.json"
# Argument: the package's folder, the function that registers, and the field of its record that is the name.
_KINDS = {
    "template": ("template", "register_template", "template_type"),
    "model_type": ("model", "register_model", "model_type"),
}


class Unreadable(ValueError):
    """A call that registers a name which the source does not state."""


def registered(source: Path, argument: str) -> tuple[str, ...]:
    """Return the names of an argument that a checkout registers, sorted."""
    folder, function, field = _KINDS[argument]
    package = next(each for each in (source / "swift" / folder, source / "swift" / "llm" / folder) if each.is_dir())
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))}
    constants = {key: value for tree in trees.values() for key, value in _constants(tree)}
    defaults = {name: node for tree in trees.values() for name, node in _defaults(tree, field)}
    found = set()
    for path, tree in trees.items():
        for call in _calls(tree, function):
            record = call.args[0]
            name = _name(record, field, constants, defaults)
            if name is None:
                raise Unreadable(f"{path}:{call.lineno}: {ast.unparse(record)[:80]}")
            found.add(name)
    return tuple(sorted(found))


def _calls(tree: ast.Module, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield node


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef)]


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield `Class.name` of the text constants of all classes."""
    for node in _classes(tree):
        for line in node.body:
            if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant):
                yield from ((f"{node.name}.{ast.unparse(each)}", str(line.value.value)) for each in line.targets)


def _defaults(tree: ast.Module, field: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield the records that have a default for their name."""
    for node in _classes(tree):
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and ast.unparse(line.target) == field and line.value is not None:
                yield node.name, line.value


def _name(record: ast.expr, field: str, constants: Mapping[str, str], defaults: Mapping[str, ast.expr]) -> str | None:
    if not isinstance(record, ast.Call):
        return None
    named = [each.value for each in record.keywords if each.arg == field]
    default = defaults.get(ast.unparse(record.func))
    value = next((each for each in (*named, *record.args, default) if each is not None), None)
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    return None if value is None else constants.get(ast.unparse(value))


def ranges(by_version: Mapping[str, Sequence[str]]) -> dict[str, list[str | None]]:
    """Return each name with the first and last version that has it; None: the oldest, the newest.

    Args:
        by_version: version to its names, oldest first.

    Raises:
        Unreadable: a version between lacks a name.
    """
    versions = list(by_version)
    found: dict[str, list[str | None]] = {}
    for name in sorted({name for names in by_version.values() for name in names}):
        has = [index for index, version in enumerate(versions) if name in by_version[version]]
        first, last = has[0], has[-1]
        if len(has) != last - first + 1:
            raise Unreadable(
                f"{name}: not in {versions[min(set(range(first, last)) - set(has))]}, but before and after"
            )
        found[name] = [versions[first] if first else None, versions[last] if last + 1 < len(versions) else None]
    return found


def by_version(content: Mapping[str, Any], argument: str) -> dict[str, tuple[str, ...]]:
    """Return the names of an argument by version, oldest first, as `ranges` has put them into the file."""
    versions = content["versions"]
    found: dict[str, tuple[str, ...]] = {}
    for index, version in enumerate(versions):
        spans = {
            name: [versions.index(each) if each else None for each in span] for name, span in content[argument].items()
        }
        found[version] = tuple(
            name
            for name, (first, last) in spans.items()
            if (first or 0) <= index <= (len(versions) - 1 if last is None else last)
        )
    return found


def completed(text: str, wanted: Sequence[str], sources: Mapping[str, Path]) -> str:
    """Return the file's text for the registered versions.

    Args:
        text: the file as it is.
        wanted: the registered versions, oldest first.
        sources: version to its checkout: for those that the file lacks, and others that are read again.

    Raises:
        Unreadable: a version is neither in the file nor among the sources, or a source does not state a name.
    """
    content = json.loads(text)
    missing = [version for version in wanted if version not in sources and version not in content["versions"]]
    if missing:
        raise Unreadable(f"no source is named for {', '.join(missing)}: VERSION=DIR")
    tree = {}
    for argument in _KINDS:
        known = by_version(content, argument)
        read = {version: registered(folder, argument) for version, folder in sources.items()}
        tree[argument] = ranges({version: read[version] if version in read else known[version] for version in wanted})
    lines = [
        f' "{argument}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(versions)}" for name, versions in names.items())
        + "\n }"
        for argument, names in tree.items()
    ]
    lines.insert(0, f' "versions": {json.dumps(list(wanted))}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(words: Sequence[str]) -> int:
    """Write the file; return the exit code."""
    sources = {version: Path(folder) for version, _, folder in (word.partition("=") for word in words)}
    wanted = get_backend("megatron").versions[::-1]
    unknown = sorted(set(sources) - set(wanted))
    try:
        if unknown:
            raise Unreadable(f"not registered: {', '.join(unknown)} (python -m tools.catalogue megatron --version V)")
        FILE.write_text(completed(FILE.read_text(encoding="utf-8"), wanted, sources), encoding="utf-8")
    except Unreadable as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{FILE}: names of {', '.join(sources) or 'no version'} were read")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
