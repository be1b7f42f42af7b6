"""Ascend devices on the CPU: torch's npu names, and its cuda names as transfer_to_npu leaves them."""

from types import ModuleType
from typing import Any

import torch

from launcher.rehearse.cpu import torch_cuda

DEVICE_NAME = "Ascend910B2"
"""Reported device name: an Atlas A2 training device, which upstream's examples are written for."""
_MEMORY_BYTES = 64 << 30
_SHARED_WITH_CUDA = (
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device_count",
    "empty_cache",
    "get_device_name",
    "get_device_properties",
    "get_rng_state",
    "is_available",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device",
    "set_rng_state",
    "stream",
    "synchronize",
)
_TYPED_CONSTRUCTORS = (
    "BoolTensor",
    "ByteTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
)


class _Properties:
    """Result of get_device_properties."""

    name = DEVICE_NAME
    major, minor, multi_processor_count = 9, 0, 24
    total_memory = _MEMORY_BYTES


def present_as_ascend(torch_npu: ModuleType) -> None:
    """Make torch.npu, torch_npu.npu and torch.cuda report one Ascend device for each local rank, on the CPU.

    Call ``torch_cuda.install()`` first; it redirects the computation.
    """
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_name = lambda *_args, **_kwargs: DEVICE_NAME
    torch.cuda.get_device_properties = lambda *_args, **_kwargs: _Properties()
    for name in _SHARED_WITH_CUDA:
        setattr(torch_npu.npu, name, getattr(torch.cuda, name))
    torch.npu = torch_npu.npu
    for owner in (torch.Tensor, torch.nn.Module):
        owner.npu = lambda self, *_args, **_kwargs: self
    for name in _TYPED_CONSTRUCTORS:
        setattr(torch.cuda, name, getattr(torch, name))
    _redirect_npu_devices()


def _redirect_npu_devices() -> None:
    """Extend torch_cuda's redirection of factories and Tensor.to() from device="cuda" to device="npu"."""
    redirected, name = torch_cuda._is_cuda, "_is_cuda"

    def is_accelerator(device: Any) -> bool:
        return redirected(device) or str(device).partition(":")[0] == "npu"

    setattr(torch_cuda, name, is_accelerator)
