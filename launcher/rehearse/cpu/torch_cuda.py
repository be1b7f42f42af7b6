"""CPU implementations of torch's CUDA functions, so that megatron-core trains unchanged without an accelerator.

Call `install()` before `import megatron.core`: it binds `torch.compile` and `torch.cuda` names at import time. Each
shim is one small function; nothing happens where `torch.cuda.is_available()`. Tested with torch 2.13.0 and
megatron-core 0.16.1.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.utils import _device

CPU = torch.device("cpu")

# Factories whose `device="cuda"` and `pin_memory=True` are redirected. Wrapping them costs nothing on any other
# operator, while a TorchFunctionMode costs about 1.2 us on every call and is off in backward (recompute).
# fmt: off
_FACTORIES = (
    "arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "full", "full_like", "linspace",
    "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
)
# fmt: on
_TENSOR_FACTORIES = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")

_installed: list[str] = []


def _answer(value: Any = None) -> Callable[..., Any]:
    """Build a function that returns `value`; one for each name, because torch._dynamo keeps a table of functions."""

    def answer(*_args: Any, **_kwargs: Any) -> Any:
        return value

    return answer


def compile_is_identity() -> None:
    """Make torch.compile return its argument: megatron's jit_fuser would start a C++ compiler for each use."""

    def compile_(model: Any = None, **_kwargs: Any) -> Any:
        return (lambda function: function) if model is None else model

    torch.compile = compile_


def one_device() -> None:
    """Make the CPU the current device, and count one device per local process (0 would leave parallel_state unset)."""
    torch.cuda.current_device = lambda: CPU
    torch.cuda.set_device = _answer()
    torch.cuda.device_count = lambda: int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))


def device_properties() -> None:
    """Return device properties: capability 8.0, the machine's memory, the name "cpu"."""

    class Properties:
        major, minor, multi_processor_count, name = 8, 0, 1, "cpu"
        total_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    torch.cuda.get_device_capability = _answer((8, 0))
    torch.cuda.get_device_properties = _answer(Properties)
    torch.cuda.get_device_name = _answer("cpu")


def synchronisation_and_memory() -> None:
    """Make synchronisation, cache and memory statistics no-ops with empty results."""
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats", "ipc_collect"):
        setattr(torch.cuda, name, _answer())
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(torch.cuda, name, _answer(0))
    torch.cuda.memory_stats = lambda *_args, **_kwargs: collections.defaultdict(int)


class _Event:
    """A CUDA event that is always complete; elapsed_time in milliseconds."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.recorded = time.perf_counter()

    def record(self, *_args: Any) -> None:
        self.recorded = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: _Event) -> float:
        return (other.recorded - self.recorded) * 1e3

    wait = synchronize = _answer()


class _Stream:
    """A CUDA stream on which all work is complete."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.cuda_stream = 0

    def query(self) -> bool:
        return True

    def record_event(self, event: _Event | None = None) -> _Event:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_args: Any) -> None:
        return None

    wait_stream = wait_event = synchronize = _answer()


def streams() -> None:
    """Replace streams and events by ones on which all work is done in program order."""
    stream = _Stream()
    torch.cuda.Stream, torch.cuda.Event = _Stream, _Event
    torch.cuda.current_stream, torch.cuda.default_stream = _answer(stream), _answer(stream)
    torch.cuda.stream = lambda *_args, **_kwargs: contextlib.nullcontext()
    torch.cuda.set_stream, torch.Tensor.record_stream = _answer(), _answer()


def random_state() -> None:
    """Put CUDA's random state on the CPU's default generator (never through torch.manual_seed, which calls back)."""

    class Generators(tuple[Any, ...]):
        def __getitem__(self, _index: Any) -> Any:  # megatron indexes with current_device(), a torch.device here
            return torch.default_generator

    def get_state(*_args: Any, **_kwargs: Any) -> Any:
        return torch.get_rng_state()

    def set_state(state: Any, *_args: Any, **_kwargs: Any) -> None:
        torch.set_rng_state(state)

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))

    for module in (torch.cuda, torch.cuda.random):
        module.get_rng_state, module.set_rng_state = get_state, set_state
        module.manual_seed, module.manual_seed_all = seed, functools.partial(seed)
    torch.cuda.default_generators = Generators((torch.default_generator,))
    torch.cuda._lazy_call = lambda callback, **_kwargs: callback()
    torch.cuda._lazy_init = _answer()
    # Every fork() of the tracker would warn that the CPU RNG state changed, which is intended here.
    logging.getLogger("megatron.core.tensor_parallel.random").addFilter(
        lambda record: "CPU RNG state changed" not in record.getMessage()
    )


def _is_cuda(device: Any) -> bool:
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    return (isinstance(device, str) and device.startswith("cuda")) or getattr(device, "type", None) == "cuda"


def _on_cpu(factory: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(factory)
    def on_cpu(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            if _is_cuda(kwargs.get("device")):
                kwargs["device"] = CPU
            if kwargs.get("pin_memory"):
                kwargs["pin_memory"] = False
        return factory(*args, **kwargs)

    return on_cpu


def factories_on_cpu() -> None:
    """Redirect device="cuda" and pin_memory=True of tensor factories and Tensor.to() to the CPU."""
    # Cached with the originals, so that `with torch.device("meta")` keeps working.
    _device._device_constructors()
    for name in _FACTORIES:
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    for name in _TENSOR_FACTORIES:
        setattr(torch.Tensor, name, _on_cpu(getattr(torch.Tensor, name)))
    to = torch.Tensor.to

    @functools.wraps(to)
    def to_cpu(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and _is_cuda(args[0]):
            args = (CPU, *args[1:])
        if kwargs and _is_cuda(kwargs.get("device")):
            kwargs["device"] = CPU
        return to(self, *args, **kwargs)

    torch.Tensor.to = to_cpu


def cuda_methods_are_identity() -> None:
    """Make .cuda() and .pin_memory() return the tensor or module itself."""
    for owner in (torch.Tensor, torch.nn.Module):
        owner.cuda = lambda self, *_args, **_kwargs: self
    torch.Tensor.pin_memory = lambda self, *_args, **_kwargs: self


def tensor_type_names() -> None:
    """Make Tensor.type() return torch.cuda.XTensor: megatron's optimizers and clipping compare with these strings."""
    type_of = torch.Tensor.type

    def type_(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            name = type_of(self)
            return name if name.startswith("torch.cuda.") else name.replace("torch.", "torch.cuda.", 1)
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        return type_of(self, dtype, *args, **kwargs)

    torch.Tensor.type = type_


def nvtx_ranges() -> None:
    """Make NVTX ranges no-ops."""
    torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop = _answer(), _answer()


def nccl_is_gloo() -> None:
    """Open every process group with gloo, whatever backend is requested, except torch's fake process group."""
    init, new = dist.init_process_group, dist.new_group

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return init("fake" if backend == "fake" else "gloo", *args, **kwargs)

    @functools.wraps(new)
    def new_group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **kwargs: Any
    ) -> Any:
        backend = "fake" if dist.get_backend() == "fake" else "gloo"
        kept = {name: kwargs[name] for name in ("use_local_synchronization", "group_desc") if name in kwargs}
        return new(ranks, timeout=timeout, backend=backend, **kept)

    for module in (dist, distributed_c10d):
        module.init_process_group, module.new_group = init_process_group, new_group


def isend_owns_its_buffer() -> None:
    """Send a copy: gloo is not stream-ordered, and megatron frees or reuses an activation right after isend."""
    isend = distributed_c10d.isend

    @functools.wraps(isend)
    def isend_copy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return isend(tensor.detach().clone(memory_format=torch.contiguous_format), *args, **kwargs)

    dist.isend = distributed_c10d.isend = isend_copy


def split_sizes_are_lists() -> None:
    """Accept tensors and arrays as split sizes: megatron leaves them on the device, which is the CPU here."""
    all_to_all = distributed_c10d.all_to_all_single

    def as_list(sizes: Any) -> list[int] | None:
        return sizes if sizes is None or isinstance(sizes, list) else [int(size) for size in sizes]

    @functools.wraps(all_to_all)
    def all_to_all_single(
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return all_to_all(output, input, as_list(output_split_sizes), as_list(input_split_sizes), *args, **kwargs)

    dist.all_to_all_single = distributed_c10d.all_to_all_single = all_to_all_single


def scalars_are_gathered() -> None:
    """Gather a scalar as a vector of one element: gloo compares shapes, NCCL numbers of elements."""
    gather = distributed_c10d.all_gather_into_tensor

    @functools.wraps(gather)
    def all_gather_into_tensor(output: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        return gather(output, input.reshape(1) if input.dim() == 0 else input, *args, **kwargs)

    dist.all_gather_into_tensor = distributed_c10d.all_gather_into_tensor = all_gather_into_tensor


SHIMS: tuple[Callable[[], None], ...] = (
    compile_is_identity,
    one_device,
    device_properties,
    synchronisation_and_memory,
    streams,
    random_state,
    factories_on_cpu,
    cuda_methods_are_identity,
    tensor_type_names,
    nvtx_ranges,
    nccl_is_gloo,
    isend_owns_its_buffer,
    split_sizes_are_lists,
    scalars_are_gathered,
)


def install(skip: Sequence[str] = ()) -> list[str]:
    """Install every shim not named in `skip` and return the names installed; does nothing with CUDA or a second time.

    Must run before `import megatron.core`. `skip` is for ablation tests and callers with their own replacement.
    """
    if torch.cuda.is_available() or _installed:
        return list(_installed)
    for shim in SHIMS:
        if shim.__name__ not in skip:
            shim()
            _installed.append(shim.__name__)
    return list(_installed)
