"""Index of upstream lines that rules and rows name as their source, so that each is checked without a checkout.

    python -m tools.catalogue.sources --source Megatron-LM=~/src/Megatron-LM --source mindformers@2.1.0=~/wheels/mf …

Projects of which no checkout is given keep their entries: a new source needs its own project only. All of them are the
repositories of Megatron-LM, MindSpeed-LLM, MindSpeed and ms-swift, and the packages ms-swift@4.6.0, mcore-bridge@1.6.5,
mindformers@1.6.0, @1.8.0 and @2.1.0, and mindspore@2.7.0, unpacked.

A source is `PROJECT VERSION path.py:LINES`; several are joined by `;` or `,`, and a later one may leave out what it
shares with the one before. A git repository is read at the commit of the version, another folder as it is. The index
(`tools/catalogue/sources.json`) has, for each line, the class or function around it and a hash of its text; what is not
found is in `missing`. What looks wrong is printed: lines beyond the end, and lines with none of the rule's names near.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

INDEX = Path(__file__).with_name("sources.json")
# Repository, and the revision of each version that has no tag of its own name.
PROJECTS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "Megatron-LM": ("NVIDIA/Megatron-LM", "core_v{}", {"0.8.0": "baf94af3"}),
    "MindSpeed-LLM": (
        "Ascend/MindSpeed-LLM",
        "v{}",
        {"26.1.0": "ad615b3b", "2.1.0": "70116e9b", "master": "c77308a1"},
    ),
    "MindSpeed": ("Ascend/MindSpeed", "v{}", {"26.1.0": "57a33053", "2.1.0": "1e898a29", "master": "028de58c"}),
    "ms-swift": ("modelscope/ms-swift", "v{}", {"3.5-dev": "54e9c505"}),
    "mcore-bridge": ("modelscope/mcore-bridge", "v{}", {}),
    "mindformers": ("mindspore-lab/mindformers", "v{}", {}),
    "mindspore": ("mindspore-ai/mindspore", "v{}", {}),
}
_VERSIONS = {"4.6": "4.6.0"}
# Project of a path that no project precedes.
_ROOTS = {
    "megatron": "Megatron-LM",
    "swift": "ms-swift",
    "mindspeed": "MindSpeed",
    "mindspeed_llm": "MindSpeed-LLM",
    "pretrain_gpt.py": "MindSpeed-LLM",
    "mindformers": "mindformers",
}
_SAME = {"megatron-core": "Megatron-LM", "Megatron-core": "Megatron-LM"}
_TOKEN = re.compile(
    rf"(?P<project>{'|'.join(sorted([*PROJECTS, *_SAME], key=len, reverse=True))})(?![\w/-])"
    r"|@(?:core_[rv])?(?P<at>\d+\.\d+(?:\.\d+)?(?:-dev)?|master)(?![\w.])"
    r"|(?<![\w.:@])(?:core_[rv])?(?P<version>\d+\.\d+(?:\.\d+)?|master)(?![\w.])"
    r"|(?P<path>[\w./-]+\.py)"
    r"|:(?P<lines>\d+(?:-\d+)?(?:(?:, ?)\d+(?:-\d+)?(?![\w.]))*)"
)
# Where a name without a folder is meant, if several files have it.
_PREFERRED = ("megatron/training/", "megatron/core/transformer/", "megatron/core/", "swift/megatron/")
_NEAR = 12
_BACKENDS = Path(__file__).resolve().parents[2] / "backends"
_PROJECT_OF = {
    "megatron_lm": "Megatron-LM",
    "megatron": "ms-swift",
    "mindspeed": "MindSpeed-LLM",
    "mindformers": "mindformers",
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """One line of an upstream file."""

    project: str
    version: str
    path: str
    line: int


def places(source: str) -> Iterator[Place]:
    """Yield the lines that a source names; a range is its two ends."""
    project = version = path = ""
    held: list[tuple[str, int]] = []
    for token in _TOKEN.finditer(source):
        if token["at"]:
            roots = {name: _ROOTS.get(name.partition("/")[0], project) for name, _ in held}
            yield from _made([(roots[name], token["at"], name, line) for name, line in held])
            held = []
            continue
        if not token["lines"]:
            yield from _made([(project, version, name, line) for name, line in held])
            held = []
        if token["project"]:
            project, version, path = _SAME.get(token["project"], token["project"]), "", ""
        version = _VERSIONS.get(token["version"], token["version"]) if token["version"] else version
        path = token["path"] or path
        if token["lines"] and path:
            held += [(path, int(number)) for number in re.findall(r"\d+", token["lines"])]
    yield from _made([(project, version, name, line) for name, line in held])


def _made(found: Iterable[tuple[str, str, str, int]]) -> Iterator[Place]:
    for project, version, path, line in found:
        if project and version:
            yield Place(project=project, version=version, path=path, line=line)


@dataclass(slots=True)
class Checkout:
    """A project at one version: a git repository at a revision, or a folder."""

    folder: Path
    revision: str
    commit: str = ""
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.revision:
            self.names = [path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*.py")]
            return
        self.commit = self._git("rev-parse", f"{self.revision}^{{commit}}").strip()
        self.names = self._git("ls-tree", "-r", "--name-only", self.commit).splitlines()

    def _git(self, *args: str) -> str:
        return subprocess.run(["git", "-C", self.folder, *args], capture_output=True, text=True, check=True).stdout

    def file(self, path: str) -> str | None:
        """Return the file that a path of a source means: the one that ends with it."""
        found = [name for name in self.names if f"/{name}".endswith(f"/{path}")]
        # A version may have the file in another folder than the version named before it.
        found = found or [name for name in self.names if f"/{name}".endswith(f"/{path.rpartition('/')[2]}")]
        return min(found, key=_rank, default=None)

    def text(self, name: str) -> str:
        """Return the text of a file."""
        return self._git("show", f"{self.commit}:{name}") if self.commit else (self.folder / name).read_text("utf-8")


def _rank(name: str) -> tuple[int, int, str]:
    preferred = next((at for at, start in enumerate(_PREFERRED) if name.startswith(start)), len(_PREFERRED))
    return preferred, len(name), name


_CHECKOUTS: dict[tuple[str, str, Path | None], Checkout | str] = {}


def checkout(project: str, version: str, given: Mapping[str, Path]) -> Checkout | str:
    """Return the checkout of a version, or why there is none."""
    key = (project, version, given.get(f"{project}@{version}", given.get(project)))
    if key not in _CHECKOUTS:
        _CHECKOUTS[key] = _checkout(project, version, given)
    return _CHECKOUTS[key]


def _checkout(project: str, version: str, given: Mapping[str, Path]) -> Checkout | str:
    folder = given.get(f"{project}@{version}")
    if folder is not None:
        return Checkout(folder, "")
    if project not in given:
        return "no checkout"
    _, tag, revisions = PROJECTS[project]
    revision = revisions.get(version) or tag.format(version)
    try:
        return Checkout(given[project], revision)
    except subprocess.CalledProcessError:
        return f"the repository has no {revision}"


def index(wanted: Iterable[Place], given: Mapping[str, Path], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the index of these lines.

    Args:
        wanted: the lines.
        given: checkouts by project.
        known: the index before, whose entries stay where no checkout is given.
    """
    versions: dict[str, Any] = {}
    files: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    checkouts: dict[str, Checkout | str] = {}
    for place in sorted(set(wanted)):
        head = f"{place.project} {place.version}"
        if head not in checkouts:
            checkouts[head] = checkout(place.project, place.version, given)
        tree = checkouts[head]
        if isinstance(tree, str):
            _keep(place, tree, known, (versions, files, missing))
            continue
        versions[head] = {"repository": PROJECTS[place.project][0], "commit": tree.commit[:12] or "wheel"}
        key = f"{head} {place.path}"
        name = tree.file(place.path)
        if name is None:
            missing[key] = "no such file"
            continue
        entry = files.setdefault(key, {"file": name, "lines": {}})
        lines = _lines(tree, name)
        if place.line > len(lines):
            missing[f"{key}:{place.line}"] = f"the file has {len(lines)} lines"
            continue
        entry["lines"][str(place.line)] = f"{_symbol(tree, name, place.line)} {digest(lines[place.line - 1])}".strip()
    return {"versions": versions, "files": files, "missing": missing}


def _keep(place: Place, why: str, known: Mapping[str, Any], into: tuple[dict[str, Any], ...]) -> None:
    """Copy the entry of a line from the index before, or add the reason why there is none."""
    versions, files, missing = into
    head, line = f"{place.project} {place.version}", str(place.line)
    key = f"{head} {place.path}"
    entry = known.get("files", {}).get(key, {"lines": {}})
    if line not in entry["lines"]:
        missing[head] = why
        return
    versions[head] = known["versions"][head]
    files.setdefault(key, {"file": entry["file"], "lines": {}})["lines"][line] = entry["lines"][line]


def digest(line: str) -> str:
    """Return the hash of a line, whatever its indentation."""
    return hashlib.sha256(line.strip().encode()).hexdigest()[:8]


_TEXTS: dict[tuple[str, str, str], list[str]] = {}


def _lines(tree: Checkout, name: str) -> list[str]:
    key = (str(tree.folder), tree.commit, name)
    if key not in _TEXTS:
        _TEXTS[key] = tree.text(name).splitlines()
    return _TEXTS[key]


def _symbol(tree: Checkout, name: str, line: int) -> str:
    """Return the innermost class or function around a line."""
    spans = _spans("\n".join(_lines(tree, name)))
    around = [(end - start, symbol) for start, end, symbol in spans if start <= line <= end]
    return min(around, default=(0, ""))[1]


@cache
def _spans(text: str) -> tuple[tuple[int, int, str], ...]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    except SyntaxError:
        return ()
    return tuple((node.lineno, node.end_lineno or node.lineno, node.name) for node in nodes)


def catalogues(given: Mapping[str, Path], known: Mapping[str, Any]) -> dict[str, str]:
    """Return by catalogue and file how many of its lines the catalogue names, and one hash of them all.

    Args:
        given: checkouts by project.
        known: the index before, whose entries stay where no checkout is given.
    """
    found: dict[str, str] = {}
    for path in sorted(_BACKENDS.glob("*/catalogue/*.json")):
        backend, version = path.parts[-3], path.stem
        for (project, of, name), lines in _named_by(json.loads(path.read_text("utf-8")), backend, version).items():
            tree = checkout(project, of, given)
            key = f"{backend} {version} {name}"
            if isinstance(tree, str):
                found[key] = known.get("catalogues", {}).get(key, "missing")
                continue
            if name not in tree.names:
                found[key] = "missing"
                continue
            text = _lines(tree, name)
            held = [digest(text[line - 1]) if line <= len(text) else "beyond the end" for line in lines]
            found[key] = f"{len(lines)} lines {digest(' '.join(held))}"
    return found


def _named_by(catalogue: Mapping[str, Any], backend: str, version: str) -> dict[tuple[str, str, str], list[int]]:
    found: dict[tuple[str, str, str], list[int]] = {}
    plain = version.partition("-fsdp2")[0].partition("-pynative")[0]
    core = {"2.1.0": "0.8.0"}.get(plain, "0.12.1") if backend == "mindspeed" else plain
    for row in catalogue["arguments"]:
        name, _, line = row.get("source", "").partition(":")
        first, _, rest = name.partition("/")
        if not line.isdigit() or first == "mindspore":
            continue
        if first in PROJECTS and first != "mindformers":
            key = (first, core if first == "Megatron-LM" else plain, rest)
        else:
            key = (_PROJECT_OF[backend], plain, name)
        found.setdefault(key, []).append(int(line))
    return {key: sorted(lines) for key, lines in found.items()}


# -- what this project names


def sources() -> dict[str, str]:
    """Return the sources of rules, of rows of arguments without a field, and of computations, by what they are for."""
    from launcher.mapping.backend import backend_names, get_backend
    from launcher.rules.engine import load
    from launcher.rules.registry import RULES

    load(module for name in backend_names() for module in get_backend(name).rules)
    found = {f"rule {rule.id}": rule.source for rule in RULES.values()}
    for name in backend_names():
        for row in get_backend(name).entry.native_only():
            found[f"{name} {(row.names or row.groups)[0]}"] = row.source
        for number, each in enumerate(get_backend(name).computations()):
            found[f"{name} {each.topic} {number}"] = each.source
    return found


def named(found: Mapping[str, str]) -> Iterator[Place]:
    """Yield the lines that the sources name."""
    for source in found.values():
        yield from places(source)


def suspects(found: Mapping[str, str], given: Mapping[str, Path]) -> Iterator[str]:
    """Yield rules with a line near which none of their names occurs."""
    from launcher.rules.registry import RULES
    from launcher.rules.rule_index import reads_of

    trees: dict[str, Checkout | str] = {}
    for what, source in found.items():
        rule = RULES.get(what.removeprefix("rule "))
        if rule is None:
            continue
        names = {re.split(r"[.@]", name)[-1].replace("-", "_") for name in (*reads_of(rule), *rule.flags)}
        names = {name for name in names if len(name) > 3}
        for place in places(source):
            head = f"{place.project} {place.version}"
            if head not in trees:
                trees[head] = checkout(place.project, place.version, given)
            tree = trees[head]
            name = None if isinstance(tree, str) else tree.file(place.path)
            if isinstance(tree, str) or name is None or not names:
                continue
            near = "\n".join(_lines(tree, name)[max(0, place.line - _NEAR) : place.line + _NEAR])
            if not any(each in near for each in names):
                yield f"{what}: {head} {place.path}:{place.line} has none of {', '.join(sorted(names)[:4])} near"


def main(argv: list[str] | None = None) -> int:
    """Write the index; print what looks wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", action="append", default=[], help="PROJECT[@VERSION]=FOLDER")
    parser.add_argument("-o", "--output", type=Path, default=INDEX)
    options = parser.parse_args(argv)
    given = {name: Path(folder).expanduser() for name, _, folder in (each.partition("=") for each in options.source)}
    found = sources()
    known = json.loads(INDEX.read_text(encoding="utf-8")) if INDEX.is_file() else {}
    made = index(named(found), given, known) | {"catalogues": catalogues(given, known)}
    options.output.write_text(render(made), encoding="utf-8")
    for what, why in made["missing"].items():
        print(f"missing: {what}: {why}")
    for what, held in made["catalogues"].items():
        if held == "missing" or "beyond" in held:
            print(f"missing: catalogue {what}")
    for text in suspects(found, given):
        print(f"look at: {text}")
    count = sum(len(entry["lines"]) for entry in made["files"].values())
    print(f"{options.output}: {count} lines of {len(made['files'])} files")
    return 0


def render(made: Mapping[str, Any]) -> str:
    """Return the index as text, one line for each file."""
    parts = []
    for section, entries in made.items():
        body = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
        parts.append(f" {json.dumps(section)}: {{\n{body}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
