"""Registers the stand-in's modules in ``sys.modules`` under vLLM's names, by a table."""

import importlib.machinery
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from backends.megatron.rehearse.vllm_standin import engine, params

VERSION = "0.12.0"
"""The vLLM whose names these are: the newest that trl 0.29, which ms-swift imports, takes without a warning."""


class _OfAServer:
    """A class that ms-swift imports for vLLM in another process, and does not use with one in the trainer's."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError("a rehearsal's vLLM is in the processes of the trainer (vllm_mode colocate)")

    @staticmethod
    def create(**_kwargs: Any) -> None:
        """Refuse; ms-swift wraps it where it imports it (swift/rlhf_trainers/utils.py:163)."""
        _OfAServer()


TABLE: Mapping[str, Mapping[str, Any]] = {
    "": {
        "__version__": VERSION,
        "__rehearsal_stand_in__": True,
        "AsyncEngineArgs": _OfAServer,
        "AsyncLLMEngine": _OfAServer,
        "EngineArgs": params.EngineArgs,
        "LLM": _OfAServer,
        "LLMEngine": engine.LLMEngine,
        "RequestOutput": params.RequestOutput,
        "SamplingParams": params.SamplingParams,
    },
    "pooling_params": {"PoolingParams": params.PoolingParams},
    "sampling_params": {
        "SamplingParams": params.SamplingParams,
        "StructuredOutputsParams": params.StructuredOutputsParams,
    },
    "lora": {},
    "lora.request": {"LoRARequest": params.LoRARequest},
    "engine": {},
    "engine.async_llm_engine": {},
    "model_executor": {},
    "model_executor.model_loader": {},
    "model_executor.model_loader.utils": {"process_weights_after_loading": lambda *_args: None},
    "distributed": {},
    "distributed.parallel_state": {"get_tp_group": engine.tensor_parallel_group},
    "distributed.utils": {"StatelessProcessGroup": _OfAServer},
    "distributed.device_communicators": {},
    "distributed.device_communicators.pynccl": {"PyNcclCommunicator": _OfAServer},
}
"""Module below ``vllm`` → its names; other names raise ImportError, which ms-swift handles."""


def register() -> None:
    """Make ``import vllm`` find the stand-in in this process; no effect when called again.

    Raises RuntimeError where a real vLLM has been imported already.
    """
    present = sys.modules.get("vllm")
    if present is not None:
        if getattr(present, "__rehearsal_stand_in__", False):
            return
        raise RuntimeError("a real vllm is already imported: the stand-in must come first")
    for below, contents in TABLE.items():
        name = f"vllm.{below}" if below else "vllm"
        module = ModuleType(name, f"Stand-in of a CPU rehearsal; see {__package__}.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader=None, is_package=True)
        module.__path__ = []
        vars(module).update(contents)
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
