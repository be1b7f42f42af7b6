"""Reads Taylor's files: the YAML of a training, memory constants (`name=MB` lines), and its table of profiles.

Source: mindspore/toolkits e8d3573 autoparallel/symphony: pipeline_conductor/start_service.py (InitConfig: the keys of a
YAML that it reads, names of memory files), memory.py (write_memory_to_file), utils/ppc_input.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from launcher.balance.profile import BadTable, Measured
from launcher.budgets import BeyondBudget, check_yaml
from launcher.nearest import nearest
from launcher.records import dataclass

# Constants that the program reads. Those of layers 1 and 2 equal those of layer 0 (start_service.py:273-300).
LAYERS = (
    *("act_mem0", "act_mem", "re_comp_mem0", "re_comp_mem", "layer_mem012", "layer_mem"),
    *("static_mem0", "static_mem", "lm_head_mem"),
)
SELECTIVE = ("select_mem0", "select_mem")
LIMITS = ("mem_lim_stage0", "mem_lim_others", "mem_lim_last")
_STATIC = dict(zip(LIMITS, ("static_mem0", "static_mem", "lm_head_mem"), strict=True))
_SAME = {f"{kind}_mem12": f"{kind}_mem0" for kind in ("act", "select", "re_comp")}
NAMES = (*LAYERS, *SELECTIVE, *_SAME, *LIMITS, "mem_lim")
_PAIR = re.compile(r"\s*([A-Za-z_]\w*)\s*[=:]\s*(.*?)\s*,?\s*")
_CANDIDATE = re.compile(r"DP(\d+)_TP(\d+)_PP(\d+)_EP(\d+)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*GB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The sizes of a YAML that Taylor reads.

    Attributes:
        moe_layers: with prediction (MTP) layers, which Taylor counts as one more layer each.
        memory_mb: `context.max_device_memory`.
    """

    file: Path
    stages: int
    chunks: int
    micro_batches: int
    dense_layers: int
    moe_layers: int
    dp: int
    tp: int
    ep: int
    memory_mb: float | None

    @property
    def name(self) -> str:
        """The file's name, as Taylor's table of results has it."""
        return self.file.name

    @property
    def memory_file(self) -> str:
        """The name under which Taylor stores the constants of this layout."""
        return (
            f"layers{self.dense_layers}_{self.moe_layers}_micro{self.micro_batches}_dp{self.dp}_tp{self.tp}"
            f"_pp{self.stages}_vp1_ep{self.ep}.txt"
        )

    def sizes(self) -> dict[str, int]:
        """Return the layout by the columns of a table of profiles."""
        return {"dp": self.dp, "tp": self.tp, "pp": self.stages, "ep": self.ep}


# Attribute, key of the YAML, value where it is missing (None: needed), smallest.
_KEYS: tuple[tuple[str, str, int | None, int], ...] = (
    ("stages", "parallel_config.pipeline_stage", None, 2),
    ("micro_batches", "parallel_config.micro_batch_num", None, 1),
    ("tp", "parallel_config.model_parallel", None, 1),
    ("dp", "parallel_config.data_parallel", None, 1),
    ("ep", "parallel_config.expert_parallel", 1, 1),
    ("layers", "model.model_config.num_layers", None, 1),
    ("mtp", "model.model_config.mtp_depth", 0, 0),
    ("chunks", "model.model_config.pp_interleave_num", 1, 1),
    ("dense_layers", "moe_config.first_k_dense_replace", 0, 0),
)


def yaml_tree(path: Path) -> dict[str, Any]:
    """Return the content of a YAML.

    Raises:
        BadTable: it cannot be read.
    """
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        check_yaml(text, str(path))
        tree = yaml.safe_load(text)
    except FileNotFoundError:
        raise BadTable([f"{path}: there is no such file"]) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, BeyondBudget) as error:
        raise BadTable([f"{path}: cannot be read as YAML ({str(error).splitlines()[0]})"]) from None
    if not isinstance(tree, dict):
        raise BadTable([f"{path}: holds no keys; the YAML of a training is needed"])
    return tree


def read_pipeline(path: Path) -> Pipeline:
    """Return the pipeline of a training's YAML.

    Raises:
        BadTable: a key is missing or holds no usable number.
    """
    tree = yaml_tree(path)
    found: dict[str, int] = {}
    mistakes = []
    for name, key, default, least in _KEYS:
        value = _at(tree, key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            said = "missing" if value is None else repr(value)
            mistakes.append(f"{path}: key {key} is {said}; a whole number of at least {least} is needed")
            continue
        found[name] = value
    layers = found.get("layers", 0) + found.get("mtp", 0)
    dense = found.get("dense_layers", 0)
    if not mistakes and dense > layers:
        mistakes.append(f"{path}: key moe_config.first_k_dense_replace is {dense}: the model has {layers} layers")
    if not mistakes and found["micro_batches"] < found["stages"]:
        mistakes.append(
            f"{path}: key parallel_config.micro_batch_num is {found['micro_batches']}: "
            f"at least the {found['stages']} stages are needed"
        )
    if mistakes:
        raise BadTable(mistakes)
    memory = _MEMORY.search(str(_at(tree, "context.max_device_memory")))
    return Pipeline(
        file=path,
        stages=found["stages"],
        chunks=max(1, found["chunks"]),
        micro_batches=found["micro_batches"],
        dense_layers=dense,
        moe_layers=layers - dense,
        dp=found["dp"],
        tp=found["tp"],
        ep=found["ep"],
        memory_mb=float(memory[1]) * 1024 if memory else None,
    )


def _at(tree: Mapping[str, Any], key: str) -> Any:
    node: Any = tree
    for name in key.split("."):
        node = node.get(name) if isinstance(node, dict) else None
    return node


def candidates(folder: Path) -> list[Pipeline]:
    """Return the pipelines of a folder's YAMLs that are named as candidates (`DP16_TP4_PP8_EP32….yaml`).

    Raises:
        BadTable: there is none, or one cannot be read; holds the mistakes of all.
    """
    files = sorted(path for path in folder.glob("*.yaml") if _CANDIDATE.search(path.name))
    if not files:
        raise BadTable([f"{folder}: no DPx_TPx_PPx_EPx….yaml in it"])
    found, mistakes = [], []
    for path in files:
        try:
            found.append(read_pipeline(path))
        except BadTable as error:
            mistakes += error.mistakes
    if mistakes:
        raise BadTable(mistakes)
    return found


def read_memory(given: Iterable[str], pipeline: Pipeline) -> tuple[dict[str, float], str]:
    """Return memory constants in MB by Taylor's names, limits of stages included, and where they come from.

    Args:
        given: files of `name=MB` lines, folders with Taylor's own files of that kind, or `NAME=MB[,NAME=MB…]`; later
            ones hold.

    Raises:
        BadTable: a file, a name or a number is wrong, or a constant is missing.
    """
    values: dict[str, float] = {}
    mistakes: list[str] = []
    sources = []
    for item in given:
        path = Path(item) / pipeline.memory_file if Path(item).is_dir() else Path(item)
        if "=" in item and not path.exists():
            lines, where = item.split(","), "--memory"
        else:
            try:
                lines, where = path.read_text(encoding="utf-8-sig").splitlines(), str(path)
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "is not text"
                mistakes.append(f"{path}: cannot be read ({reason})")
                continue
        sources.append(where)
        values |= _constants(lines, where, mistakes)
    mistakes += _incomplete(values, pipeline) if not mistakes else []
    if mistakes:
        raise BadTable(mistakes)
    whole = values.get("mem_lim", pipeline.memory_mb)
    for limit, static in _STATIC.items():
        if limit not in values:
            assert whole is not None
            values[limit] = whole - values[static]
    return values, ", ".join(sources)


def _constants(lines: Iterable[str], where: str, mistakes: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for number, line in enumerate(lines, 1):
        at = where if where == "--memory" else f"{where}:{number}"
        text = line.partition("#")[0]
        if not text.strip():
            continue
        match = _PAIR.fullmatch(text)
        name = match[1] if match else ""
        if match is None:
            mistakes.append(f"{at}: {text.strip()[:60]!r} is not NAME=MB")
        elif name not in NAMES:
            near = nearest(name, list(NAMES))
            mistakes.append(f"{at}: no memory constant {name}" + (f"; similar: {near[0]}" if near else ""))
        elif name in found:
            mistakes.append(f"{at}: {name} appears twice")
        else:
            found[name] = _megabytes(match[2], name, at, mistakes)
    return found


def _megabytes(text: str, name: str, at: str, mistakes: list[str]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        mistakes.append(f"{at}: {name} is {text or 'empty'}; megabytes from 0 are needed")
        return 0.0
    return value


def _incomplete(values: Mapping[str, float], pipeline: Pipeline) -> list[str]:
    needed = [name for name in LAYERS if name not in _STATIC.values()]
    needed += [static for limit, static in _STATIC.items() if limit not in values]
    lacking = [name for name in needed if name not in values]
    found = [f"{name} is missing" for name in lacking]
    for other, own in _SAME.items():
        if other in values and own in values and values[other] != values[own]:
            found.append(f"{other} is {values[other]:g}, {own} {values[own]:g}: layers 1 and 2 are counted as layer 0")
    if pipeline.memory_mb is None and "mem_lim" not in values and any(limit not in values for limit in LIMITS):
        found.append(f"mem_lim is missing: {pipeline.file} has no context.max_device_memory such as 54GB")
    return [f"memory constants: {text}" for text in found]


def row_of(table: Iterable[Measured], pipeline: Pipeline) -> Measured | None:
    """Return the profile of a candidate."""
    sizes = pipeline.sizes()
    return next((row for row in table if all(row.sizes.get(name) == size for name, size in sizes.items())), None)
