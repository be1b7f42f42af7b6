"""What `launch list` lists: recipes, models, hardware, backends and rules, with one line each."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from launcher.budgets import check_yaml, read_limited
from launcher.compose.search_path import SearchPath
from launcher.records import dataclass
from launcher.schema.files import is_editor_line

_SENTENCE = re.compile(r"\.\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a list.

    Attributes:
        name: what a user types.
        what: one line about it.
        more: further entries of its JSON object.
    """

    name: str
    what: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tree(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"name": self.name, "what": self.what, **self.more}

    def holds(self, texts: Iterable[str]) -> bool:
        """Return whether each text is in the line or in a further entry other than its file, in any case."""
        more = (str(value) for key, value in self.more.items() if key != "file")
        whole = " ".join((self.name, self.what, *more)).lower()
        return all(text.lower() in whole for text in texts)


def _recipes(places: SearchPath) -> Sequence[Listed]:
    found = []
    for name, path in _files(places, "recipe"):
        found.append(Listed(name=name, what=sentence(path), more={"override": f"+recipe={name}", "file": str(path)}))
    return found


def _models(places: SearchPath) -> Sequence[Listed]:
    found = []
    for name, path in _files(places, "model"):
        tree = _values(path)
        layers, width, experts = (tree.get(key) for key in ("num_hidden_layers", "hidden_size", "num_experts"))
        sizes = [
            str(tree.get("model_type") or ""),
            f"{layers} layers of {width}" if layers and width else "",
            f"{experts} experts" if experts else "",
        ]
        shape = ", ".join(part for part in sizes if part)
        what = f"{tree['hub_id']}: {shape}" if tree.get("hub_id") else shape
        more = {key: tree[key] for key in ("hub_id", "model_type") if tree.get(key)}
        found.append(Listed(name=name, what=what, more={"override": f"model={name}", "file": str(path), **more}))
    return found


def _hardware(places: SearchPath) -> Sequence[Listed]:
    found = []
    for name, path in _files(places, "hardware"):
        tree = _values(path)
        figures = [
            f"{tree[key]} {unit}"
            for key, unit in (("memory_gib", "GiB"), ("bf16_tflops", "TFLOP/s in BF16"))
            if tree.get(key) is not None
        ]
        what = "; ".join([", ".join(figures), sentence(path)] if figures else [sentence(path)])
        more = {key: tree[key] for key in ("device", "memory_gib", "bf16_tflops") if tree.get(key) is not None}
        found.append(Listed(name=name, what=what, more={"override": f"hardware={name}", "file": str(path), **more}))
    return found


def _backends(places: SearchPath) -> Sequence[Listed]:
    from launcher.mapping.backend import backend_names, get_backend

    found = []
    for name in backend_names():
        backend = get_backend(name)
        default = backend.version(None)
        versions = ", ".join(f"{each} (default)" if each == default else each for each in backend.versions)
        what = f"{backend.title} on {' and '.join(backend.devices)}: {versions}"
        more = {
            "override": f"backend={name}",
            "title": backend.title,
            "devices": list(backend.devices),
            "versions": list(backend.versions),
            "default_version": default,
        }
        found.append(Listed(name=name, what=what, more=more))
    return found


def _rules(places: SearchPath) -> Sequence[Listed]:
    from launcher.cli.explain_names import load_all
    from launcher.mapping.backend import backend_names, get_backend
    from launcher.rules.registry import RULES

    load_all([get_backend(name) for name in backend_names()])
    found = []
    for rule in (RULES[rule_id] for rule_id in sorted(RULES)):
        where = f" ({', '.join(rule.backends)})" if rule.backends else ""
        more = {"severity": rule.severity, "backends": list(rule.backends), "source": rule.source}
        found.append(Listed(name=rule.id, what=f"{rule.severity}: {rule.doc}{where}", more=more))
    return found


GROUPS: Mapping[str, Callable[[SearchPath], Sequence[Listed]]] = {
    "recipes": _recipes,
    "models": _models,
    "hardware": _hardware,
    "backends": _backends,
    "rules": _rules,
}


def _files(places: SearchPath, group: str) -> list[tuple[str, Path]]:
    """Return the options of a group that have a file, by name."""
    found = ((name, places.find(group, name)) for name in places.options(group))
    return [(name, path) for name, path in found if path is not None]


def sentence(path: Path) -> str:
    """Return the first sentence of the comment that a YAML file begins with; "": it begins with none."""
    words = []
    for line in path.read_text(encoding="utf-8-sig", errors="replace").splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if line.startswith("# @package") or is_editor_line(line):
            continue
        if text.startswith("Source:"):
            break
        words.append(text)
        if _SENTENCE.search(" ".join(words)) or text.endswith("."):
            break
    return _SENTENCE.split(" ".join(words))[0].rstrip(".")


def _values(path: Path) -> Mapping[str, Any]:
    """Return the fields of a section's file; none, if it is not YAML of a mapping."""
    import yaml

    try:
        text = read_limited(path, "yaml bytes", str(path)).decode("utf-8-sig", errors="replace")
        check_yaml(text, str(path))
        tree = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return {}
    return tree if isinstance(tree, dict) else {}
