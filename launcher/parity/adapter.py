"""The LoRA adapter that every side starts from: random factors in PEFT's format, next to the shared model.

LoRA starts from B = 0, where A has no gradient: such a start would compare half of the training. Modules that a
training stack keeps in one linear layer (queries, keys and values; gate and up) have one A, written for each of them.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.convert.logical import Logical, logical_model
from launcher.convert.lora.adapter import CONFIG, WEIGHTS, pattern_value, read_config
from launcher.convert.lora.formats import adapters_of, in_checkpoint, reads_peft
from launcher.convert.lora.logical import A, B, Shared, adaptable, groups
from launcher.convert.model import model_in
from launcher.convert.offer import adapter_command
from launcher.job import Job, Value
from launcher.job.task import LORA_ALPHA
from launcher.mapping.backend import Backend
from launcher.parity.reordered import neuron_axis

_ALL = "all-linear"
_PREFIX = "base_model.model."
_ROUTER = "mlp.router"
# Of the entries of B: the adapter's part of a layer's output is then about as large as the weight's.
_SPREAD = 0.02


class WrongAdapter(ValueError):
    """The job's adapters cannot be compared: a sentence, and overrides that make them comparable."""

    def __init__(self, message: str, *works: str) -> None:
        super().__init__(message)
        self.works = works


def adapter_beside(model: Path) -> Path:
    """Return the folder of the adapter of a shared model."""
    return model.with_name(f"{model.name}-adapter")


def layers(model: Logical, targets: Sequence[str], shared: Shared = ()) -> list[tuple[str, ...]]:
    """Return the modules with factors, grouped by the linear layer of a training stack that they form.

    Args:
        targets: Megatron-core names, as `linear_qkv`; none, or `all-linear`: every linear layer except the router.
        shared: modules that the stack fuses besides those that Megatron-core does.

    Raises:
        WrongAdapter: a name is that of no linear layer.
    """
    named: dict[str, str] = {}
    for instance, parts in adaptable(model):
        core = instance.row.core.removesuffix(".weight")
        if core != _ROUTER:
            named.update(dict.fromkeys(parts, core.rpartition(".")[2]))
    every, known = not targets or _ALL in targets, list(dict.fromkeys(named.values()))
    unknown = [name for name in targets if name not in known and name != _ALL]
    if unknown:
        works = (f"lora.target_modules=[{name}]" for name in known)
        raise WrongAdapter(f"lora.target_modules={','.join(unknown)}: no linear layer of this model", *works)
    return [
        held
        for parts in groups(model, shared)
        if (held := tuple(part for part in parts if part in named and (every or named[part] in targets)))
    ]


def layers_of(job: Job, model: Path, shared: Shared = ()) -> list[tuple[str, ...]]:
    """Return the `layers` that a job adapts of the model in a folder."""
    return layers(logical_model(model_in(model)), job.lora.target_modules, shared)


def prepare(job: Job, backends: Sequence[Backend], model: Path, *, reference: bool) -> None:
    """Write the adapter that all sides start from, where the job trains one.

    Args:
        backends: those of all sides.
        model: the shared model.
        reference: whether transformers trains, too.

    Raises:
        WrongAdapter: the sides would train different factors.
    """
    if job.lora.rank is None:
        return
    if job.lora.load is not None:
        raise WrongAdapter(f"lora.load={job.lora.load}: all sides start from one new adapter", "lora.load=null")
    plain = layers_of(job, model)
    for backend in backends:
        form = adapters_of(backend.name)
        others = set(plain if form is None else layers_of(job, model, form[1])) - set(plain)
        if others:
            named = ", ".join(name.rpartition(".")[2] for name in min(others))
            raise WrongAdapter(f"{backend.title} has one factor A for {named}, Megatron-core has several")
    experts = [part for parts in plain for part in parts if ".experts." in part]
    if reference and experts:
        why = f"transformers has no linear layer {experts[0]}: its experts are one parameter"
        raise WrongAdapter(why, "lora.target_modules=[linear_qkv,linear_proj]")
    write_adapter(job, model)


def write_adapter(job: Job, model: Path) -> Path:
    """Write an adapter of the shared model with random A, as PEFT draws it, and random B; return its folder."""
    import torch

    rank = job.lora.rank or 0
    logical = logical_model(model_in(model))
    shapes = {
        part: shape
        for instance, parts in adaptable(logical)
        for part, shape in zip(parts, instance.shapes, strict=True)
    }
    random = torch.Generator().manual_seed(job.seed or 0)
    tensors: dict[str, Any] = {}
    grouped = layers(logical, job.lora.target_modules)
    for parts in grouped:
        width = shapes[parts[0]][1]
        # torch.nn.init.kaiming_uniform_(a=sqrt(5)): uniform below 1 / sqrt(columns).
        a = (torch.rand(rank, width, generator=random) * 2 - 1) / math.sqrt(width)
        for part in parts:
            tensors[part + A] = a.clone()
            tensors[part + B] = torch.randn(shapes[part][0], rank, generator=random) * _SPREAD
    folder = adapter_beside(model)
    write(folder, tensors, _config(job, [part for parts in grouped for part in parts]))
    return folder


def _config(job: Job, modules: Sequence[str]) -> dict[str, Any]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "r": job.lora.rank,
        "lora_alpha": alpha_of(job),
        "lora_dropout": 0.0,
        "bias": "none",
        "use_rslora": bool(job.lora.rslora),
        "target_modules": sorted({name.rpartition(".")[2] for name in modules}),
    }


def alpha_of(job: Job) -> float:
    """Return the alpha of a job, a whole number where it is one: MindSpeed-LLM reads no other."""
    alpha = LORA_ALPHA if job.lora.alpha is None else job.lora.alpha
    return int(alpha) if alpha == int(alpha) else alpha


def write(folder: Path, tensors: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Write an adapter as PEFT does.

    Args:
        tensors: module + `.lora_A.weight` [rank, in] and `.lora_B.weight` [out, rank] to torch tensors.
        config: adapter_config.json.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    named = {_PREFIX + name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(named, folder / WEIGHTS, metadata={"format": "pt"})


def read(folder: Path) -> dict[str, Any]:
    """Return the factors of an adapter by module + `.lora_A.weight` or `.lora_B.weight`."""
    from safetensors.torch import load_file

    return {name.removeprefix(_PREFIX): tensor for name, tensor in load_file(folder / WEIGHTS).items()}


def scale_of(folder: Path) -> float:
    """Return what the product of the factors is multiplied by: alpha / rank, or alpha / sqrt(rank)."""
    config = read_config(folder)
    rank, alpha = (
        pattern_value(config, *words, "") for words in (("rank_pattern", "r"), ("alpha_pattern", "lora_alpha"))
    )
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def reorder(job: Job, model: Path, reordered: Path) -> None:
    """Write the adapter of a model for the same model with the neurons of its MLPs reversed, where a job has one."""
    if job.lora.rank is None:
        return
    source = adapter_beside(model)
    tensors = dict(_reordered(read(source)))
    write(adapter_beside(reordered), tensors, read_config(source))


def _reordered(tensors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the factors: neurons are the rows of B of gate and up, and the columns of A of down."""
    for name, tensor in tensors.items():
        module, end = (name.removesuffix(A), A) if name.endswith(A) else (name.removesuffix(B), B)
        axis = neuron_axis(module.rpartition(".")[2])
        neurons = (axis, end) in ((0, B), (1, A))
        yield name, tensor.flip(axis) if neurons and axis is not None else tensor


def loaded_from(job: Job, backend: Backend, model: Path, folder: Path, *, core: bool = False) -> Mapping[str, Value]:
    """Return the fields that make a side start from the adapter of the shared model.

    Args:
        core: the embedded trainer runs the job, which converts PEFT's format itself.
        model: the shared model.
        folder: of the side, for the converted adapter.
    """
    if job.lora.rank is None:
        return {}
    if in_checkpoint(backend.name) and not core:
        return {"lora.merge": False}
    load = adapter_beside(model) if core or reads_peft(backend.name) else folder / "adapter"
    # Megatron-SWIFT merges by default where it writes safetensors, and writes no adapter then.
    return {"lora.load": str(load), "lora.merge": False}


def joins_weights(job: Job, backend: Backend) -> bool:
    """Return whether a side loads its adapter as part of the converted weights."""
    return job.lora.rank is not None and in_checkpoint(backend.name)


def conversion_of(job: Job, backend: Backend, version: str) -> tuple[str, ...]:
    """Return the `launch convert` command that writes a side's adapter; () where it reads PEFT's, or has none."""
    if job.lora.rank is None or reads_peft(backend.name) or job.model.path is None:
        return ()
    joined = joins_weights(job, backend) and job.checkpoint.load is not None
    folder = f"{job.checkpoint.load}/adapter" if joined else job.lora.load
    if folder is None:
        return ()
    adapter = adapter_beside(Path(job.model.path))
    return adapter_command(job, backend, version, adapter=str(adapter), folder=folder)
