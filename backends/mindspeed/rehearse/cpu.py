"""Installs CPU stand-ins for Ascend in each rank before MindSpeed-LLM's unmodified script runs."""

import atexit
import functools
import inspect
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any


def install(script: str) -> None:
    """Make ``script`` (pretrain_gpt.py or posttrain_gpt.py of a MindSpeed-LLM checkout) run on CPU and gloo, unchanged.

    No upstream module is imported here: each patch is applied after its module is imported, so that upstream's own
    patches keep their order. Raises ImportError where torch is missing.
    """
    import torch
    import torch._dynamo  # transformers imports it anyway, and it must see torch's own functions, not the stand-ins

    from launcher.rehearse.cpu import dataset_helpers, recorder, torch_cuda, torch_npu_standin
    from launcher.rehearse.cpu.after_import import after_import

    _see_checkouts()
    # MindSpeed deletes this folder at import if it contains a lock; a temporary one protects the user's.
    extensions = os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp(prefix="launch-torch-extensions-")
    atexit.register(shutil.rmtree, extensions, ignore_errors=True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch_cuda.install()
    torch_npu_standin.install()
    dataset_helpers.install()
    _fork_instead_of_spawn()
    after_import("mindspeed_llm.training.training", recorder.training_log)
    for module, repair in REPAIRS.items():
        after_import(module, repair)


def _see_checkouts() -> None:
    """Put MindSpeed and Megatron-LM on sys.path, after the script's folder, which Python puts first.

    A ``megatron`` folder copied into the MindSpeed-LLM checkout, as its guide says, therefore takes precedence.
    """
    named = [os.environ.get(variable) for variable in ("MINDSPEED_PATH", "MEGATRON_LM_PATH")]
    sys.path[:0] = [os.path.abspath(folder) for folder in named if folder and os.path.abspath(folder) not in sys.path]


def _fork_instead_of_spawn() -> None:
    """Fork the checkpoint writer: spawned (mindspeed_llm/training/utils.py:130) it would have no stand-ins and hang."""
    import torch.multiprocessing

    get_context = multiprocessing.get_context

    @functools.wraps(get_context)
    def get_forking_context(method: str | None = None) -> Any:
        return get_context("fork" if method == "spawn" else method)

    for module in (multiprocessing, torch.multiprocessing):
        setattr(module, get_context.__name__, get_forking_context)


def _write_item_has_a_format(module: ModuleType) -> None:
    """Give torch's checkpoint writer the argument it takes since 2.8; core_v0.12.1 was written for an older torch."""
    write_item: Callable[..., Any] = vars(module)["_write_item"]
    if "serialization_format" in inspect.signature(write_item).parameters:
        from torch.distributed.checkpoint.filesystem import SerializationFormat

        torch_save = SerializationFormat.TORCH_SAVE
        vars(module)["_write_item"] = functools.partial(write_item, serialization_format=torch_save)


def _builders_load_stand_ins(module: ModuleType) -> None:
    """Let every operator builder load the plain-torch kernels instead of compiling C++ against CANN."""
    from backends.mindspeed.rehearse.op_kernels import Extension

    extension = Extension()

    def load(self: Any, *_args: Any, **_kwargs: Any) -> Extension:
        return extension

    builders: list[Any] = [value for name, value in vars(module).items() if name.endswith("OpBuilder")]
    for builder in builders:
        if "load" in vars(builder):
            builder.load = load


def _grouped_matmul_on_cpu(module: ModuleType) -> None:
    """Register MindSpeed's torch.library operators for the CPU too (upstream: PrivateUse1, mindspeed/ops/gmm.py)."""
    from mindspeed.op_builder.builder import AS_LIBRARY

    for operator, function in (
        ("npu_gmm.List", "_npu_gmm"),
        ("npu_gmm.Tensor", "_npu_gmm"),
        ("npu_gmm_v2.Tensor", "_npu_gmm_v2"),
    ):
        AS_LIBRARY.impl(operator, getattr(module, function), "CPU")


def _dataset_builder_wants_an_index(module: ModuleType) -> None:
    """Let need_to_build_dataset compute with the local rank: for --no-shared-storage it divides the current device."""
    import torch

    decide: Callable[[], bool] = module.need_to_build_dataset

    @functools.wraps(decide)
    def decide_by_rank() -> bool:
        current_device = torch.cuda.current_device
        torch.cuda.current_device = lambda: int(os.environ.get("LOCAL_RANK", "0"))
        try:
            return decide()
        finally:
            torch.cuda.current_device = current_device

    module.__dict__[decide.__name__] = decide_by_rank


def _chunks_are_sorted_on_cpu(module: ModuleType) -> None:
    """Sort chunks of tokens in plain torch: upstream's kernel is Triton's, and asserts an NPU."""
    from launcher.rehearse.cpu.torch_npu_standin import routing

    for operator in (routing.moe_sort_chunks_by_index, routing.moe_sort_chunks_by_index_with_probs):
        setattr(module, operator.__name__, operator)


REPAIRS: dict[str, Callable[[ModuleType], None]] = {
    "megatron.core.dist_checkpointing.strategies.filesystem_async": _write_item_has_a_format,
    "mindspeed.op_builder.builder": _builders_load_stand_ins,
    "mindspeed.op_builder.atb_builder": _builders_load_stand_ins,
    "mindspeed.ops.gmm": _grouped_matmul_on_cpu,
    "mindspeed.ops.triton.sort_chunks_by_idx": _chunks_are_sorted_on_cpu,
    "mindspeed.lite.ops.triton.sort_chunks_by_idx": _chunks_are_sorted_on_cpu,
    "mindspeed_llm.core.datasets.blended_megatron_dataset_builder": _dataset_builder_wants_an_index,
}
"""Upstream module to the patch applied after it is imported."""
