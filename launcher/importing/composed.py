"""Configurations split over several files: bases, Hydra's `defaults`, modules that name a model; `${NAME:default}`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launcher.importing.composed_names import FLAGSCALE, PRIMUS, with_own_tokenizer
from launcher.importing.notes import ImportRefused, Note, refuse
from launcher.importing.reading import BASES, merge, parse_mapping, parse_scalar, read_text, with_base

_DEFAULTS, _SELF = "defaults", "_self_"
# `${NAME:default}` and `${oc.env:NAME,default}`: environment variable; `${a.b}`: another value of the file.
_OPEN = re.compile(r"\$\{(?:(?P<env>oc\.env):)?(?P<name>[\w.]+)(?:(?P<mark>[:,])(?P<default>[^${}]*))?\}")
_DEEPEST = 8
# Primus (AMD): folders of its repository with a module's `config` and `model` files, by framework.
_MODULE_FILES = {"config": "modules", "model": "models"}
_MODULE_ROOTS = ("primus/configs", "configs")
# FlagScale: sections beside the arguments, for launching and auto-tuning.
_RUN = ("experiment", "action", "hydra")


@dataclass(slots=True)
class Composed:
    """A configuration merged from all its files.

    Attributes:
        tree: the settings.
        cluster: number of nodes and devices in the file, as launcher options (see `Invocation.cluster`).
        problems: parts that are missing.
    """

    tree: dict[str, Any]
    cluster: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    warnings: list[Note] = field(default_factory=list)
    problems: list[Note] = field(default_factory=list)


def composed(tree: Mapping[str, Any], file: str, variables: Mapping[str, str]) -> Composed:
    """Return a configuration with the files that it references merged in.

    Args:
        variables: values of the environment variables that the file references.

    Raises:
        ImportRefused: a base or a file of `defaults` cannot be read.
    """
    found = Composed(tree=dict(tree))
    if _of_defaults(tree):
        found.tree = _with_defaults(tree, file)
    elif any(base in tree for base in BASES):
        found.tree = with_base(tree, file)
    module = _module(found.tree)
    if module is not None:
        _put_module(found, *module, file, variables)
    found.tree = _resolved(found.tree, variables, found.warnings, file)
    _put_run(found, file)
    return found


# -- Hydra's defaults


def _of_defaults(tree: Mapping[str, Any]) -> bool:
    """Return whether `defaults` is a Hydra defaults list, which names files for sections."""
    defaults = tree.get(_DEFAULTS)
    return isinstance(defaults, list) and bool(list(_named(defaults)))


def _named(defaults: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield (section, name) of each file; the section is empty for files merged at the top level."""
    for entry in defaults:
        if isinstance(entry, str) and entry != _SELF:
            yield "", entry
        elif isinstance(entry, dict):
            for group, names in entry.items():
                section = str(group).rpartition(" ")[2].lstrip("/")
                for name in names if isinstance(names, list) else [names]:
                    if name is not None:
                        yield section, str(name)


def _with_defaults(tree: Mapping[str, Any], file: str, depth: int = 0) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise refuse("defaults: the files include each other", file)
    merged: dict[str, Any] = {}
    for section, name in _named(tree[_DEFAULTS]):
        path = Path(file).parent / section / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
        try:
            part: Mapping[str, Any] = parse_mapping(read_text(path), str(path))
        except ImportRefused as error:
            listed = ", ".join(str(each) for each in tree[_DEFAULTS])[:200]
            why = f"{path}: {error.notes[0].message}"
            raise refuse(
                f"the file is composed of other files, named in its `defaults`: {listed}; {why}", file
            ) from None
        if _of_defaults(part):
            part = _with_defaults(part, str(path), depth + 1)
        for key in reversed(section.split("/") if section else []):
            part = {key: part}
        merged = merge(merged, part)
    return merge(merged, {key: value for key, value in tree.items() if key != _DEFAULTS})


# -- modules that name a configuration and a model (Primus)


def _module(tree: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    modules = tree.get("modules")
    if not isinstance(modules, Mapping):
        return None
    for name, module in modules.items():
        if isinstance(module, Mapping) and isinstance(module.get("framework"), str):
            return str(name), module
    return None


def _put_module(found: Composed, name: str, module: Mapping[str, Any], file: str, variables: Mapping[str, str]) -> None:
    framework = str(module["framework"])
    if framework != "megatron":
        works = ("a module with framework: megatron",)
        raise refuse(f"modules.{name} trains with {framework}, which no backend supports", file, *works)
    merged: dict[str, Any] = {}
    for key, folder in _MODULE_FILES.items():
        if key not in module:
            continue
        requested = str(_text(str(module[key]), {}, variables, []))
        path = _beside(file, f"{folder}/{framework}/{requested}")
        if path is not None:
            merged = merge(merged, with_base(parse_mapping(read_text(path), str(path)), str(path)))
            continue
        message = f"modules.{name}.{key} {requested} is not found: its content is missing"
        note = Note(message=message, where=file, works=(f"the file in {_MODULE_ROOTS[0]}/{folder}/{framework}",))
        (found.problems if key == "model" else found.warnings).append(note)
    overrides = module.get("overrides")
    merged = merge(merged, overrides if isinstance(overrides, Mapping) else {})
    kind = _text(str(merged.get("tokenizer_type")), {}, variables, [])
    if kind in PRIMUS.names:
        merged["tokenizer_type"] = kind
    found.tree = with_own_tokenizer(merged, PRIMUS, file, found.warnings)


def _beside(file: str, name: str) -> Path | None:
    parents = Path(file).resolve().parents[:_DEEPEST]
    candidates = (parent / root / name for parent in parents for root in _MODULE_ROOTS)
    return next((path for path in candidates if path.is_file()), None)


# -- interpolation


def _resolved(tree: Mapping[str, Any], variables: Mapping[str, str], warnings: list[Note], file: str) -> dict[str, Any]:
    defaulted: list[str] = []

    def inside(node: Any) -> Any:
        if isinstance(node, Mapping):
            return {key: inside(value) for key, value in node.items()}
        if isinstance(node, list):
            return [inside(value) for value in node]
        return _text(node, tree, variables, defaulted) if isinstance(node, str) and "${" in node else node

    resolved = {key: inside(value) for key, value in tree.items()}
    if defaulted:
        names = tuple(dict.fromkeys(defaulted))
        shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        works = (f"--set {names[0].partition('=')[0]}=VALUE",)
        warnings.append(
            Note(message=f"variables at the defaults that the file names: {shown}", where=file, works=works)
        )
    return resolved


def _text(
    text: str, tree: Mapping[str, Any], variables: Mapping[str, str], defaulted: list[str], depth: int = 0
) -> Any:
    """Return a text with its interpolations resolved; typed as a YAML scalar if the whole text is one."""

    def value_of(part: re.Match[str]) -> Any:
        name, default = part["name"], part["default"]
        if name in variables:
            return parse_scalar(variables[name])
        if default is not None:
            default = default[1:] if part["mark"] == ":" and default.startswith("-") and len(default) > 1 else default
            defaulted.append(f"{name}={default}")
            return parse_scalar(default)
        there, value = _at(tree, name)
        if not there or depth > _DEEPEST or isinstance(value, (Mapping, list)):
            return part.group()
        return _text(value, tree, variables, defaulted, depth + 1) if isinstance(value, str) else value

    reference = _OPEN.fullmatch(text)
    if reference is not None:
        return value_of(reference)
    return _OPEN.sub(lambda part: "" if (value := value_of(part)) is None else str(value), text)


def _at(tree: Mapping[str, Any], path: str) -> tuple[bool, Any]:
    node: Any = tree
    for key in path.split("."):
        if not isinstance(node, Mapping) or key not in node:
            return False, None
        node = node[key]
    return "." in path, node


# -- launcher settings (FlagScale)


def _put_run(found: Composed, file: str) -> None:
    """Remove the sections that configure the launcher."""
    experiment = found.tree.get(_RUN[0])
    if not isinstance(experiment, Mapping) or not isinstance(experiment.get("task"), Mapping):
        return
    framework = str(experiment["task"].get("backend", "megatron"))
    kind = str(experiment["task"].get("type", "train"))
    if (framework, kind) != ("megatron", "train"):
        raise refuse(f"experiment.task is {kind} by {framework}: not a training that a backend supports", file)
    runner, envs = experiment.get("runner"), experiment.get("envs")
    options = {"nnodes": "nodes", "nproc_per_node": "per_node", "master_addr": "addr", "master_port": "port"}
    if isinstance(runner, Mapping):
        found.cluster = {key: str(runner[name]) for name, key in options.items() if runner.get(name) is not None}
    if isinstance(envs, Mapping):
        found.env = {str(key): str(value) for key, value in envs.items()}
    if "auto_tuner" in experiment:
        message = "experiment.auto_tuner is dropped: its trials are not part of the training"
        found.warnings.append(Note(message=message, where=file, works=("launch search",)))
    settings = {key: value for key, value in found.tree.items() if key not in _RUN}
    found.tree = with_own_tokenizer(settings, FLAGSCALE, file, found.warnings)
