"""Stand-ins that let unmodified ms-swift 4.6 train on CPU; imported only in its rank processes."""

import functools
import os
import sys
from typing import Any

import torch

from backends.megatron.rehearse import formulas_standin, vllm_standin
from launcher.rehearse.cpu import (
    linear_attention,
    recorder,
    triton_standin,
    unused_packages,
    with_transformer_engine,
)
from launcher.rehearse.cpu.after_import import after_import

UNGUARDED_TRITON = ("mcore_bridge.model.modules.kernels.qsa_block_sparse_attn",)
"""mcore-bridge 1.6.5 imports triton here for a model that no rehearsal builds (similar modules guard the import)."""

# ms-swift imports them for every multimodal model, also where it reads text only; they need torchvision.
VISION_PACKAGES = {"qwen_vl_utils": "0.0.14", "decord": "0.0.14"}

_GENERATING = {"grpo", "gkd"}
"""Words of the command line with which a trainer generates answers; others train without the names of vLLM."""


def install(_script: str) -> None:
    """Install the stand-ins for CUDA, Transformer Engine and triton, and skip the hub's model check."""
    with_transformer_engine.install()
    triton_standin.install((*triton_standin.MEGATRON_CORE, *UNGUARDED_TRITON))
    linear_attention.install(("mcore_bridge.model.modules.gated_delta_net",))
    unused_packages.install(VISION_PACKAGES, ("vision_process",))
    if _GENERATING & set(sys.orig_argv):
        vllm_standin.register()
        formulas_standin.register()
        _memory_of_the_cpu()
        after_import("accelerate.state", _gathers_on_cpu)
    after_import("modelscope.hub.check_model", _no_questions)
    after_import("mcore_bridge.utils.safetensors", _saved_tensors_are_copies)
    after_import("swift.megatron.trainers.base", _recorded)


def _memory_of_the_cpu() -> None:
    """Give torch.cpu what ms-swift asks of a device's memory around a generation (swift/rlhf_trainers/utils.py:250)."""
    for name in ("memory_reserved", "memory_allocated", "empty_cache"):
        setattr(torch.cpu, name, getattr(torch.cuda, name))


def _gathers_on_cpu(module: Any) -> None:
    """Let accelerate find the ranks, of which it gathers rewards: without a device it takes each for the only one."""
    init = module.PartialState.__init__

    @functools.wraps(init)
    def on_cpu(self: Any, cpu: bool = True, **kwargs: Any) -> None:
        init(self, True, **kwargs)

    module.PartialState.__init__ = on_cpu


def _no_questions(module: Any) -> None:
    """Skip the request to the hub whether the local model is the latest, which also sends the configuration.

    Without a network it retries for 20 s in each run (modelscope/hub/check_model.py:33).
    """
    module.check_local_model_is_latest = lambda *_args, **_kwargs: None


def _saved_tensors_are_copies(module: Any) -> None:
    """Make ``.cpu()`` copy a saved tensor, as it does on a GPU: safetensors rejects tensors that share memory.

    Multi-token prediction saves the embedding and the head twice (mcore_bridge/utils/safetensors.py:132).
    """
    add_tensor = module.StreamingSafetensorSaver.add_tensor

    def add_copy(self: Any, name: str, tensor: Any) -> Any:
        return add_tensor(self, name, tensor.clone() if self.is_save_rank else tensor)

    module.StreamingSafetensorSaver.add_tensor = add_copy


def _recorded(module: Any) -> None:
    """Record what each iteration's log is given (swift/megatron/trainers/base.py: on_log)."""
    if recorder.VARIABLE not in os.environ:
        return
    on_log = module.BaseMegatronTrainer.on_log

    @functools.wraps(on_log)
    def on_recorded_log(self: Any, logs: Any, prefix: str = "") -> Any:
        result = on_log(self, logs, prefix)
        if "loss" in logs and not prefix:
            # Megatron-core's optimizer has no norm of gradients that are not finite.
            skipped = "grad_norm" in logs and logs["grad_norm"] is None
            recorder.record(self.state.iteration, logs["loss"], logs.get("grad_norm"), skipped=skipped)
        return result

    module.BaseMegatronTrainer.on_log = on_recorded_log
