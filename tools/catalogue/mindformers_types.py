"""What MindFormers' defaults and annotations do not define about its YAML values, with the code that does."""

from __future__ import annotations

import ast
from typing import Any

from launcher.catalogue.checkout.hf_parser import union
from tools.catalogue.writer import Row

MINDSPORE_CONTEXT = {"context": "set_context", "parallel": "set_auto_parallel_context"}

_NAMES = {
    "int": "int", "float": "float|int", "str": "str", "bool": "bool", "dict": "dict", "Dict": "dict", "list": "list",
    "List": "list", "tuple": "list", "Tuple": "list", "dtype": "str", "None": "",
}  # fmt: skip
_PER_STAGE = "bool|list"
_SELECT = "bool|list|dict"

TYPES: dict[str, Row] = {
    "run_mode": {"type": "str", "choices": ["train", "finetune", "eval", "predict"]},
    "load_ckpt_format": {"type": "str", "choices": ["ckpt", "safetensors"]},
    "context.mode": {"type": "int|str", "choices": [0, 1, "GRAPH_MODE", "PYNATIVE_MODE"]},
    "context.device_target": {"type": "str", "choices": ["Ascend", "GPU", "CPU"]},
    "parallel.parallel_mode": {"type": "int|str"},
    "parallel_config.context_parallel_algo": {"type": "str", "choices": ["colossalai_cp", "ulysses_cp", "hybrid_cp"]},
    "runner_config.sink_mode": {"type": "bool|int"},
    # mindformers/models/utils.py `_alloc_recompute_layer`, tools/check_rules.py: bool, list per stage, table per chunk
    "recompute_config.recompute": {"type": _PER_STAGE},
    "recompute_config.select_recompute": {"type": _SELECT},
    "recompute_config.select_comm_recompute": {"type": _SELECT},
    "recompute_config.select_recompute_exclude": {"type": _SELECT},
    "recompute_config.select_comm_recompute_exclude": {"type": _SELECT},
    "swap_config.layer_swap": {"type": "list"},
    "swap_config.op_swap": {"type": "dict|list"},
    "model.model_config.offset": {"type": "int|list"},
    "model.model_config.moe_layer_freq": {"type": "int|list"},
    "model.model_config.rotary_scaling_factor": {"type": "float|int|dict"},
    "model.model_config.eos_token_id": {"type": "int|list"},
    "moe_config.first_k_dense_replace": {"type": "bool|int"},
    "runner_wrapper.scale_sense": {"type": "dict|float|int"},
    "lr_schedule.learning_rate": {"type": "float|int|dict"},
    "train_dataset.data_loader": {"type": "dict"},
    "optimizer.betas": {"type": "list"},
}


def value_type(value: Any) -> str:
    """Return the catalogue type that a default value suggests."""
    if value is None:
        return "any"
    return _NAMES.get(type(value).__name__, "any")


def is_optional(annotation: ast.expr) -> bool:
    """Return whether an annotation accepts None."""
    return any(isinstance(member, ast.Constant) and member.value is None for member in union(annotation))


def annotation_type(annotation: ast.expr) -> str:
    """Return the catalogue type of an annotation: unions joined with `|`, anything unusual is `any`."""
    kinds: list[str] = []
    for member in union(annotation):
        if isinstance(member, ast.Constant) and member.value is None:
            continue
        if isinstance(member, (ast.Tuple, ast.List)):
            kinds += [annotation_type(item) for item in member.elts]
            continue
        target = member.value if isinstance(member, ast.Subscript) else member
        kinds.append(_NAMES.get(ast.unparse(target).rpartition(".")[2], "any"))
    parts = [part for part in dict.fromkeys("|".join(kinds).split("|")) if part]
    return "any" if "any" in parts or not parts else "|".join(parts)
