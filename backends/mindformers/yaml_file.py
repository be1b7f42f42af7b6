"""Converts MindFormers' YAML to flat arguments and back: deterministic output, lossless input.

An argument is a dotted path (`parallel_config.model_parallel`). The list `callbacks` is addressed by type,
`callbacks.CheckpointMonitor.prefix`; a second callback of one type is `callbacks.TYPE#2.KEY`. Other lists are values.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from backends.mindformers.mapping.support import frozen
from backends.mindformers.mapping_values import MAPPING_VALUES
from backends.mindformers.pynative import is_pynative, static_of
from backends.mindformers.pynative_callbacks import callback_notes
from backends.mindformers.pynative_keys import PYNATIVE_SINCE, key_notes, pynative_catalogue, unwritten_notes
from launcher.job import Value
from launcher.mapping.backend import FileNote
from launcher.mapping.native import NativeArgs
from launcher.mapping.sections import flattened

CALLBACKS = "callbacks"
# Sections of the template: an empty one is one that is not there (tools/register/template.py:70, 685 @1.6.0).
_TEMPLATE = frozenset(
    {
        *("runner_config", "context", "parallel", "trainer", "model", "moe_config", "parallel_config"),
        *("recompute_config", "swap_config", "runner_wrapper", "optimizer", "lr_schedule", "metric"),
        *("train_dataset", "train_dataset_task", "eval_dataset", "eval_dataset_task"),
        *("callbacks", "eval_callbacks", "monitor_config"),
    }
)
_DATASET, _TASK = "train_dataset", "train_dataset_task"
_UNQUOTED = re.compile(r"[A-Za-z_/][A-Za-z0-9_/.\-]*\Z")
_KEYWORDS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null", "none"})


def flatten(tree: Mapping[str, Any]) -> dict[str, Value]:
    """Return the arguments of a parsed file without empty sections and train_dataset_task's copy of train_dataset.

    A pynative `TrainConfig` is converted to the equivalent arguments of the static graph.
    """
    if is_pynative(tree):
        return {path: frozen(value) for path, value in static_of(tree)[0].items()}
    flat: dict[str, Value] = {}
    for name, node in tree.items():
        if name in _TEMPLATE and (node is None or (node in ({}, []) and name != _TASK)):
            continue
        if name == CALLBACKS and isinstance(node, list):
            _flatten_callbacks(node, flat)
        elif name == _TASK and isinstance(node, Mapping) and node.get("dataset_config") == tree.get(_DATASET):
            _flatten({key: value for key, value in node.items() if key != "dataset_config"}, f"{name}.", flat)
        else:
            _flatten({name: node}, "", flat)
    return flat


def file_notes(tree: Mapping[str, Any], version: str) -> Iterator[FileNote]:
    """Yield what a version refuses or drops of a parsed file that `flatten` does not keep."""
    if not is_pynative(tree):
        return
    catalogue = pynative_catalogue(version)
    if catalogue is None:
        text = f"is a section of the pynative trainer, which {PYNATIVE_SINCE} and later have"
        yield FileNote(key="parallelism", text=text, refused=True, whole=True)
        return
    found = [*key_notes(tree, catalogue, version), *callback_notes(tree, catalogue, version)]
    static, lost = static_of(tree)
    known = {note.key for note in found}
    yield from found
    yield from (note for note in lost if note.key not in known)
    yield from unwritten_notes(static, catalogue, version, known)


def _flatten(tree: Mapping[str, Any], prefix: str, flat: dict[str, Value]) -> None:
    flat |= {key: frozen(value) for key, value in flattened(tree, MAPPING_VALUES, prefix)}


def _flatten_callbacks(callbacks: Iterable[Any], flat: dict[str, Value]) -> None:
    seen: dict[str, int] = {}
    for callback in callbacks:
        settings = dict(callback) if isinstance(callback, Mapping) else {}
        kind = str(settings.pop("type", "callback"))
        seen[kind] = seen.get(kind, 0) + 1
        prefix = f"{CALLBACKS}.{kind}" + (f"#{seen[kind]}" if seen[kind] > 1 else "")
        _flatten(settings or {"type": kind}, f"{prefix}.", flat)


def parse(text: str) -> dict[str, Value]:
    """Return the arguments of a MindFormers YAML file.

    Raises:
        ValueError: the text is not a YAML mapping.
    """
    import yaml

    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not a YAML file: {error}") from None
    if not isinstance(tree, dict):
        raise ValueError("not a MindFormers file: the top level must be a mapping")
    return flatten(tree)


def tree_of(native: NativeArgs) -> dict[str, Any]:
    """Return the nested content of the file, sections in the order of their first argument."""
    tree: dict[str, Any] = {}
    for arg in native:
        path = arg.flag
        section, _, rest = path.partition(".")
        if section == CALLBACKS and rest:
            kind, _, name = rest.partition(".")
            _put(tree.setdefault(CALLBACKS, {}).setdefault(kind, {}), name, arg.value)
        else:
            _put(tree, path, arg.value)
    if CALLBACKS in tree and isinstance(tree[CALLBACKS], dict):
        tree[CALLBACKS] = [_callback(kind, settings) for kind, settings in tree[CALLBACKS].items()]
    return tree


def _callback(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in settings.items() if name != "type"}
    return {"type": kind.partition("#")[0], **rest}


def _put(tree: dict[str, Any], path: str, value: Value) -> None:
    *parents, leaf = path.split(".")
    node = tree
    for part in parents:
        inner = node.get(part)
        if not isinstance(inner, dict):
            inner = node[part] = {}
        node = inner
    node[leaf] = value


def render(native: NativeArgs, comments: Mapping[str, str] | None = None) -> str:
    """Return the file as text.

    Args:
        native: the arguments.
        comments: comments above sections, by name; "" is the head of the file.
    """
    comments = comments or {}
    lines = [f"# {line}" for line in comments.get("", "").splitlines()]
    for name, node in tree_of(native).items():
        if lines and isinstance(node, (dict, list)):
            lines.append("")
        lines.extend(f"# {line}" for line in comments.get(name, "").splitlines())
        if name == _DATASET and isinstance(node, dict):
            lines.append(f"{name}: &{name}")
            lines.extend(_block(node, 1))
        else:
            lines.extend(_entry(name, node, 0))
            if name == _TASK and isinstance(node, dict) and node and "dataset_config" not in node:
                lines.append(f"  dataset_config: *{_DATASET}")
    return "\n".join(lines) + "\n"


def _block(node: Mapping[str, Any], depth: int) -> list[str]:
    return [line for name, value in node.items() for line in _entry(name, value, depth)]


def _entry(name: Any, value: Any, depth: int) -> list[str]:
    indent = "  " * depth
    label = f"{indent}{_scalar(name)}:"
    if isinstance(value, Mapping) and value:
        return [label, *_block(value, depth + 1)]
    if isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value):
        lines = [label]
        for item in value:
            body = _block(item, depth + 2) if isinstance(item, Mapping) else [f"{'  ' * (depth + 2)}{_scalar(item)}"]
            lines.append(f"{indent}  - {body[0].strip()}")
            lines.extend(body[1:])
        return lines
    return [f"{label} {_inline(value)}"]


def _inline(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(name)}: {_inline(item)}" for name, item in value.items()) + "}"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, float):
        text = repr(value)
        # YAML 1.1 reads 1e-05 as text: a float needs a decimal point.
        return text.replace("e", ".0e", 1) if "e" in text and "." not in text else text
    if isinstance(value, int):
        return str(value)
    text = str(value)
    return text if _UNQUOTED.match(text) and text.lower() not in _KEYWORDS else _quoted(text)


def _quoted(text: str) -> str:
    """Return a double-quoted YAML string: as in JSON, except for characters that YAML folds or rejects."""
    escaped = {ord(char): f"\\U{ord(char):08x}" for char in text if not char.isprintable()}
    # Characters that JSON escapes are already replaced, by escapes that are valid in YAML.
    return json.dumps(text, ensure_ascii=False).translate(escaped)
