"""Stand-ins that let an unmodified Megatron-LM checkout train on CPU; imported only in its rank processes."""

import functools
import inspect
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from backends.megatron_lm.rehearse import TESTED_CORES
from launcher.rehearse.cpu import dataset_helpers, recorder, standins, triton_standin, with_transformer_engine
from launcher.rehearse.cpu.after_import import after_import


def install(script: str) -> None:
    """Install the stand-ins for the checkout that contains ``script``; the script imports megatron itself."""
    version = core_version(Path(script).parent)
    if version is not None and version not in TESTED_CORES:
        tested = " and ".join(TESTED_CORES)
        standins.warn(
            f"megatron-core {version} of this checkout is not one the stand-ins were tested with ({tested})",
            rank=os.environ.get("RANK", "0"),
        )
    with_transformer_engine.install()
    triton_standin.install(triton_standin.MEGATRON_CORE)
    dataset_helpers.install()
    sys.modules["fused_weight_gradient_mlp_cuda"] = _weight_gradient_kernels()
    after_import("megatron.training.initialize", _without_cuda)
    after_import("megatron.training.training", recorder.training_log)
    after_import("megatron.legacy.fused_kernels", _no_compiler)
    after_import("megatron.core.dist_checkpointing.strategies.filesystem_async", _write_item)
    after_import("megatron.core.dist_checkpointing.validation", _numpy_2)


def core_version(checkout: Path) -> str | None:
    """Return the megatron-core version of a checkout, or None without package_info.py (read, not imported)."""
    stated = checkout / "megatron" / "core" / "package_info.py"
    if not stated.is_file():
        return None
    parts = dict(re.findall(r"^(MAJOR|MINOR|PATCH) = (\d+)", stated.read_text(encoding="utf-8"), flags=re.MULTILINE))
    return ".".join(parts.get(name, "?") for name in ("MAJOR", "MINOR", "PATCH"))


def _weight_gradient_kernels() -> ModuleType:
    """Replace apex's fused weight gradients (gradient_accumulation_fusion, the default) with a matmul and an add."""
    module = ModuleType("fused_weight_gradient_mlp_cuda")

    def accumulate(inputs: Any, grad_output: Any, main_grad: Any) -> None:
        main_grad.add_((grad_output.flatten(0, -2).T @ inputs.flatten(0, -2)).to(main_grad.dtype))

    vars(module).update(wgrad_gemm_accum_fp32=accumulate, wgrad_gemm_accum_fp16=accumulate)
    return module


def _without_cuda(module: Any) -> None:
    """Pass Megatron's own switch for machines without CUDA (training/initialize.py: "Megatron requires CUDA")."""
    initialize = module.initialize_megatron

    @functools.wraps(initialize)
    def initialize_megatron(*args: Any, **kwargs: Any) -> Any:
        return initialize(*args, **{**kwargs, "allow_no_cuda": True})

    module.initialize_megatron = initialize_megatron


def _no_compiler(module: Any) -> None:
    """Skip the query of nvcc's version (legacy/fused_kernels/__init__.py: load)."""
    module.load = lambda _args: None


def _write_item(module: Any) -> None:
    """Pass torch's checkpoint writer the argument that torch 2.8 added and older megatron-core versions omit."""
    writer = getattr(module, "_write_item", None)
    if writer is None or "serialization_format" not in inspect.signature(writer).parameters:
        return
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    source = inspect.getsource(module)
    if "serialization_format" not in source:
        module._write_item = functools.partial(writer, serialization_format=SerializationFormat.TORCH_SAVE)


def _numpy_2(module: Any) -> None:
    """Restore numpy.product, which numpy 2 removed and core 0.12 still calls (dist_checkpointing/validation.py:497)."""
    if not hasattr(module.np, "product"):
        module.np.product = module.np.prod
