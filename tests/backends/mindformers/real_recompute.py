"""Which layers and modules a checkout of MindFormers recomputes, by its own functions, without MindSpore."""

import ast
import copy
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PYNATIVE = "mindformers/pynative/distributed/activation_checkpoint.py"
_STATIC = "mindformers/parallel_core/training_graph/transformer/utils.py"
_NAMES = {
    _PYNATIVE: (
        *("regex_match", "_LAYER_ID_SPEC_PATTERN", "_parse_spec_lo_hi", "_parse_layer_ids", "_expand_select_module"),
        *("_clean_and_parse_config", "_add_modules_dedup", "_validate_layer_specs", "_validate_layer_id_range"),
        "_validate_recompute_structure",
    ),
    _STATIC: ("regex_match", "LayerSetting", "MAX_INT32"),
}


class _Ignoring:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


def _functions(root: Path, file: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the functions, classes and constants of a file, executed alone."""
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    kept: list[ast.stmt] = []
    for node in tree.body:
        targets = [getattr(target, "id", "") for target in node.targets] if isinstance(node, ast.Assign) else []
        if {getattr(node, "name", ""), *targets} & set(_NAMES[file]):
            kept.append(node)
    future = ast.parse("from __future__ import annotations").body
    found: dict[str, Any] = {"logger": _Ignoring(), "re": re, "regex": _Regex, **names}
    exec(compile(ast.Module(body=[*future, *kept], type_ignores=[]), file, "exec"), found)
    return found


class _Regex:
    """The package regex, as far as it is used here: fullmatch with a time limit."""

    @staticmethod
    def fullmatch(pattern: str, text: str, timeout: int) -> Any:
        return re.fullmatch(pattern, text)


def pynative(root: Path, recompute: Mapping[str, Any], layers: int, modules: list[str]) -> dict[int, list[str]]:
    """Return what the pynative trainer recomputes by layer: modules by path, or "" for the whole layer.

    Raises:
        ValueError, TypeError: it refuses the section.
    """
    found = _functions(root, _PYNATIVE, {})
    section = types.SimpleNamespace(
        **{"full_recompute_layer": None, "select_module": None, **copy.deepcopy(dict(recompute))}
    )
    found["_validate_recompute_structure"](section)
    found["_validate_layer_specs"](section.full_recompute_layer, "full_recompute_layer", layers)
    for specs in (section.select_module or {}).values():
        found["_validate_layer_specs"](specs, "select_module", layers)
    whole = found["_parse_layer_ids"](section.full_recompute_layer)
    chosen: dict[int, list[str]] = {}
    if section.mode == "select":
        expanded = found["_expand_select_module"](dict.fromkeys(range(layers), modules), section.select_module)
        chosen = found["_clean_and_parse_config"](whole, expanded)
    return {**chosen, **{layer: [""] for layer in whole}}


def _lists(value: Any) -> Any:
    """Return a value as YAML has it."""
    if isinstance(value, Mapping):
        return {name: _lists(each) for name, each in value.items()}
    return [_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


class _Cell:
    """A part of a layer that notes whether it is recomputed."""

    def __init__(self, path: str, modules: list[str], done: list[str]) -> None:
        self._path, self._done = path, done
        inside = [each.removeprefix(f"{path}.") for each in modules if each.startswith(f"{path}.") or not path]
        heads = dict.fromkeys(each.partition(".")[0] for each in inside)
        self._cells = {name: _Cell(f"{path}.{name}" if path else name, modules, done) for name in heads}

    def recompute(self, **settings: Any) -> None:
        self._done.append(self._path)


def static(
    root: Path, arguments: Mapping[str, Any], layers: int, stages: int, chunks: int, modules: list[str]
) -> dict[int, list[str]]:
    """Return what the static graph recomputes by layer: modules by path, or "" for the whole layer."""
    import numpy

    context = {"pipeline_interleave": chunks > 1, "pipeline_scheduler": "1f1b"}
    names = {
        "np": numpy,
        "ms": types.SimpleNamespace(get_auto_parallel_context=context.get),
        "is_legacy_model": lambda: False,
        "TransformerSwapConfig": lambda **given: types.SimpleNamespace(**given),
        "TransformerRecomputeConfig": lambda **given: types.SimpleNamespace(**given),
    }
    prefix = "recompute_config."
    given = {key.removeprefix(prefix): _lists(value) for key, value in arguments.items() if key.startswith(prefix)}
    config = types.SimpleNamespace(
        cpu_offloading=False,
        cpu_offloading_num_layers=None,
        op_swap={},
        gradient_aggregation_group=4,
        pipeline_model_parallel_size=stages,
        parallel_optimizer_comm_recompute=False,
        mp_comm_recompute=True,
        recompute_slice_activation=False,
        **{
            name: copy.deepcopy(given.get(name, False))
            for name in ("recompute", *(f"select_{kind}" for kind in ("recompute", "comm_recompute")))
        },
        select_recompute_exclude=False,
        select_comm_recompute_exclude=False,
    )
    offset = arguments.get("model.model_config.offset", 0)
    setting = _functions(root, _STATIC, names)["LayerSetting"](layers, offset, config, chunks)
    found: dict[int, list[str]] = {}
    for layer in range(layers):
        done: list[str] = []
        setting.set_recompute(_Cell("", modules, done), layer)
        if done:
            found[layer] = done
    return found
