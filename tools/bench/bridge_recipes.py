"""Reads Megatron-Bridge's performance recipes of one release: what each sets beyond the tables of results.

YAML matrices (25.09), `WorkloadBaseConfig` constants (25.11 to 26.06), functions that set a config (26.08).
Nothing is executed; Python is read as a syntax tree, of which only assignments of literals count.
"""

import ast
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

# What a recipe tells beyond the tables; other settings do not change memory or time of a step.
KEPT = (
    "recompute_modules",
    "recompute_num_layers",
    "cuda_graph_impl",
    "cuda_graph_scope",
    "moe_flex_dispatcher_backend",
    "moe_a2a_overlap",
    "cutedsl_fused_grouped_mlp",
    "fp8_dot_product_attention",
    "use_megatron_fsdp",
    "cpu_offloading_num_layers",
    "offload_modules",
    "nccl_ub",
    "pp_layout",
    "expert_capacity",
)
_LAYOUT = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "virtual_pipeline_model_parallel_size": "vp",
    "expert_model_parallel_size": "ep",
    "global_batch_size": "gbs",
    "micro_batch_size": "mbs",
    "num_gpus": "gpus",
}
_FLAT = {
    "overlap_moe_expert_parallel_comm": "moe_a2a_overlap",
    "use_transformer_engine_op_fuser": "cutedsl_fused_grouped_mlp",
    "pipeline_model_parallel_layout": "pp_layout",
    "moe_expert_capacity_factor": "expert_capacity",
}

Recipe = dict[str, Any]


class Release:
    """The tree of one tag in a git directory."""

    def __init__(self, git: Path, tag: str) -> None:
        self.git, self.tag = git, tag
        self.commit = self._git("rev-parse", f"{tag}^{{commit}}").strip()

    def _git(self, *words: str) -> str:
        done = subprocess.run(["git", "--git-dir", str(self.git), *words], check=True, capture_output=True, text=True)
        return done.stdout

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self._git("show", f"{self.tag}:{path}")

    def files(self, under: str) -> list[str]:
        """Return the paths below a folder."""
        return self._git("ls-tree", "-r", "--name-only", self.tag, under).split()


def recipes(release: Release) -> Iterator[Recipe]:
    """Yield the recipes of a release: file, symbol, model, gpu, precision, layout, and what `KEPT` names."""
    for path in release.files("scripts/performance/configs"):
        if path.endswith(".yaml"):
            yield from _matrix(path, release.read(path))
        elif path.endswith("workload_base_configs.py"):
            yield from _constants(path, release.read(path))
    flat = [p for p in release.files("src/megatron/bridge/perf_recipes") if p.endswith(".py")]
    if flat and not release.files("scripts/performance/configs"):
        yield from _functions({path: ast.parse(release.read(path)) for path in flat})


def _matrix(path: str, text: str) -> Iterator[Recipe]:
    model = path.rpartition("/")[2].removesuffix("_llm_pretrain.yaml")
    for gpu, sizes in (yaml.safe_load(text).get("perf_matrix") or {}).items():
        for gpus, matrix in sizes.items():
            for precision in [name for name in matrix if name != "common"]:
                cell = {**matrix["common"], **(matrix[precision] or {})}
                yield {
                    "file": path,
                    "symbol": f"{gpu}.{gpus}.{precision}",
                    "model": model,
                    "gpu": gpu,
                    "precision": precision,
                    "task": "pretrain",
                    "gpus": int(gpus.rpartition("_")[2]),
                    **{name: cell.get(name) for name in ("tp", "pp", "cp", "vp", "ep", "gbs", "mbs")},
                    "use_megatron_fsdp": cell.get("use_megatron_fsdp") or cell.get("fsdp"),
                    "cuda_graph_impl": "local" if cell.get("cuda_graphs") else None,
                    "recompute_num_layers": cell.get("recompute_num_layers"),
                    "cpu_offloading_num_layers": cell.get("cpu_offloading_num_layers"),
                }


_GPUS = ("gb300", "gb200", "b300", "b200", "vr200", "h100", "r100")
_PRECISIONS = ("bf16", "fp8_cs", "fp8_mx", "fp8_sc", "fp8_ss", "fp8_ds", "nvfp4")


def _constants(path: str, text: str) -> Iterator[Recipe]:
    """Yield the recipes of a file of `NAME = WorkloadBaseConfig(…)`, `replace(OTHER, …)` and `NAME = OTHER`."""
    values: dict[str, dict[str, Any]] = {}
    for node in ast.parse(text).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name, value = node.targets[0].id, node.value
        if isinstance(value, ast.Name) and value.id in values:
            values[name] = values[value.id]
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            base = values[ast.unparse(value.args[0])] if value.func.id == "replace" else {}
            values[name] = {**base, **{k.arg: ast.literal_eval(k.value) for k in value.keywords if k.arg}}
        if name in values:
            yield from _constant(path, name, values[name])


def _constant(path: str, name: str, value: Mapping[str, Any]) -> Iterator[Recipe]:
    low = name.lower()
    gpu = next((each for each in _GPUS if f"_{each}_" in low), None)
    precision = next((each for each in _PRECISIONS if f"_{each}" in low), None)
    if gpu is None or precision is None:
        return
    task = next((each for each in ("sft", "lora", "peft") if f"_{each}_" in low), "pretrain")
    model = low.split(f"_{gpu}_")[0].removesuffix("_config")
    for suffix in ("_pretrain", "_sft", "_lora", "_peft"):
        model = model.removesuffix(suffix)
    yield {
        "file": path,
        "symbol": name,
        "model": model,
        "gpu": gpu,
        "precision": precision,
        "task": task,
        **{short: value.get(long, None if short == "vp" else 1) for long, short in _LAYOUT.items()},
        **{kept: value[kept] for kept in KEPT if kept in value},
    }


def _functions(trees: Mapping[str, ast.Module]) -> Iterator[Recipe]:
    """Yield the recipes of modules of functions `MODEL_TASK_Ngpu_GPU_PRECISION[_VARIANT]_config`."""
    defined: dict[str, ast.FunctionDef] = {}
    local: dict[str, dict[str, ast.FunctionDef]] = {}
    for path, tree in trees.items():
        local[path] = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        defined.update(local[path])
    for path, functions in local.items():
        folder = path.rpartition("/perf_recipes/")[2].split("/")[0]
        near = {
            name: node
            for other, nodes in local.items()
            if f"/perf_recipes/{folder}/" in other
            for name, node in nodes.items()
        }
        for name in functions:
            if not name.endswith("_config") or "gpu_" not in name or name.startswith("_"):
                continue
            model, _, rest = name.removesuffix("_config").partition("_pretrain_")
            words = rest.split("_")
            if len(words) < 3 or words[1] not in _GPUS:
                continue
            precision = {"fp8cs": "fp8_cs", "fp8mx": "fp8_mx"}.get(words[2], words[2])
            found = _run({**defined, **near, **functions}, name)
            layout = {short: found.get(long, None if short == "vp" else 1) for long, short in _LAYOUT.items()}
            layout["gpus"] = int(words[0].removesuffix("gpu"))
            kept = {kept: found[kept] for kept in KEPT if found.get(kept) is not None}
            yield {
                "file": path,
                "symbol": name,
                "model": model,
                "gpu": words[1],
                "precision": precision,
                "task": "pretrain",
                **layout,
                **kept,
            }


def _run(functions: Mapping[str, ast.FunctionDef], name: str) -> dict[str, Any]:
    """Return the literals that a function and those that it calls assign to attributes, by attribute's name."""
    found: dict[str, Any] = {}
    for statement in functions[name].body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.update(_called(functions, name, node, node.func.id))
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                attribute = node.targets[0].attr
                if isinstance(value := _literal(node.value), _Unknown):
                    continue
                found[_FLAT.get(attribute, attribute)] = value
    return found


class _Unknown:
    """A value that is no literal."""


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return _Unknown()


def _called(functions: Mapping[str, ast.FunctionDef], caller: str, call: ast.Call, name: str) -> dict[str, Any]:
    """Return what a call sets: its function's assignments, then its keywords of the names that recipes use."""
    if name in ("_benchmark_common", "_perf_precision"):
        return {}
    if name == "_with_global_batch_size":
        return {"global_batch_size": _literal(call.args[1])}
    found = _run(functions, name) if name in functions and name != caller else {}
    if name in functions or name == "CommOverlapConfig":
        words = {k.arg: _literal(k.value) for k in call.keywords if k.arg}
        found.update({_FLAT.get(k, k): v for k, v in words.items() if not isinstance(v, _Unknown)})
    return found
