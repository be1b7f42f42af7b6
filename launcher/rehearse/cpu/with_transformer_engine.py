"""Installs the stand-ins for a Megatron stack written for CUDA and Transformer Engine, in a rank process."""

from types import ModuleType
from typing import Any

import torch

from launcher.rehearse.cpu import megatron_core, torch_cuda, transformer_engine_standin
from launcher.rehearse.cpu.after_import import after_import


def install() -> None:
    """Install CUDA and Transformer Engine stand-ins, and repairs that run when megatron-core is imported.

    Does not import megatron: the script determines which copy of it is used.
    """
    torch_cuda.install()
    # TorchScript compiles the operators themselves, not the Python functions that send them to the CPU.
    torch.jit.script = lambda function, *_args, **_kwargs: function
    transformer_engine_standin.register()
    after_import("megatron.core.transformer.moe.token_dispatcher", _dispatcher)
    after_import("megatron.core.dist_checkpointing.strategies.filesystem_async", _checkpoint_queue)
    after_import("megatron.core.optimizer.distrib_optimizer", _float32_resume)
    after_import("megatron.core.optimizer.cpu_offloading.hybrid_optimizer", _offloaded_optimizer)


def _dispatcher(_module: ModuleType) -> None:
    megatron_core.dispatcher_split_sizes()


def _checkpoint_queue(_module: ModuleType) -> None:
    megatron_core.checkpoint_queue_without_process()


def _float32_resume(module: Any) -> None:
    """Load optimizer states without autograd: in float32 the main parameter is a view of the model's leaf tensor.

    megatron-core 0.16.1 optimizer/distrib_optimizer.py copies into that view; with bf16 parameters it is a separate
    tensor.
    """
    optimizer = module.DistributedOptimizer
    for name in ("_set_main_param_and_optimizer_states", "load_parameter_state_from_dp_reshardable"):
        if hasattr(optimizer, name):
            setattr(optimizer, name, torch.no_grad()(getattr(optimizer, name)))


def _offloaded_optimizer(module: Any) -> None:
    """Step on copies of all parameters, as of those that megatron-core moves to the host (--optimizer-cpu-offload).

    megatron-core 0.16.1 hybrid_optimizer.py:244 takes parameters that are on the CPU already for copies of others.
    """

    def groups(self: Any, _offload_fraction: float) -> tuple[Any, ...]:
        copies_of: dict[Any, Any] = {}
        in_float32 = {}
        stepped = []
        for group in self.param_groups:
            for parameter in group["params"]:
                copy = parameter.detach().clone()
                if self.param_update_in_fp32 and copy.dtype != torch.float32:
                    copy = in_float32[parameter] = copy.float()
                copies_of[parameter] = copy
            stepped.append({**group, "params": [copies_of[parameter] for parameter in group["params"]]})
        originals = {copy: parameter for parameter, copy in copies_of.items()}
        return stepped, [], copies_of, originals, in_float32

    module.HybridDeviceOptimizer._get_sub_optimizer_param_groups = groups
