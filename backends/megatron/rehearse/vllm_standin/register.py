"""Registers the stand-in's modules in ``sys.modules`` under vLLM's names, by a table."""

from collections.abc import Mapping
from typing import Any

from backends.megatron.rehearse.vllm_standin import engine, params
from launcher.rehearse.cpu.stand_in_modules import register_package

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
    """Make ``import vllm`` find the stand-in in this process (`register_package`)."""
    register_package("vllm", __package__, TABLE)
