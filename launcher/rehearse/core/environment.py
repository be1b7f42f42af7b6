"""Start one rank: process groups, megatron's parallel state, and the random state of every rank."""

from __future__ import annotations

import contextlib
import datetime
import io
import logging
import os
import random
import socket
import sys
import warnings
from collections.abc import Iterator

from launcher.rehearse.core.errors import RehearsalError
from launcher.rehearse.core.options import Device
from launcher.rehearse.core.settings import Settings


@contextlib.contextmanager
def quiet_imports() -> Iterator[None]:
    """Silence the warnings that megatron-core prints about optional packages when it is imported."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.getLogger("megatron").setLevel(logging.ERROR)
        yield


def import_megatron() -> None:
    """Import megatron-core, with the CPU shims and modules where there is no accelerator."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    import torch

    from launcher.rehearse.cpu import torch_cuda

    torch_cuda.install()
    if world_size() > 1 or not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // local_world_size()))
    if not torch.cuda.is_available():
        # megatron-core takes its norms and its gradient norm where it can be imported; on a CPU their first call fails.
        sys.modules["transformer_engine"] = None  # type: ignore[assignment]
    with quiet_imports():
        import megatron.core  # noqa: F401

        from launcher.rehearse.cpu import megatron_core, modules

        megatron_core.apply_fixes()
        if not megatron_core.has_transformer_engine():
            modules.install()
    warnings.filterwarnings("ignore", module=r"megatron\..*|torch\..*")


def rank() -> int:
    """Return this process's rank in the world."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """Return the number of these processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1")))


def has_cuda() -> bool:
    """Return whether a CUDA device is present, without starting CUDA in this process (which would forbid forking)."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    import torch

    return bool(torch.cuda.is_available())


def use_device(kind: Device | None) -> None:
    """Hide CUDA devices from this process and its ranks (`cpu`), or require one (`cuda`); before torch is imported.

    Raises:
        RehearsalError: `cuda`, and torch sees no device.
    """
    if kind == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    elif kind == "cuda" and not has_cuda():
        raise RehearsalError("rehearse.device=cuda: torch sees no CUDA device here; works: rehearse.device=cpu")


def device_kind() -> str:
    """Return "cuda" or "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """Return the name of this rank's device as its driver gives it, or "cpu"."""
    import torch

    return str(torch.cuda.get_device_name()) if device_kind() == "cuda" else "cpu"


def backend() -> str:
    """Return the communication library of this run."""
    return "nccl" if device_kind() == "cuda" else "gloo"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start(settings: Settings) -> None:
    """Open the process groups of a real run and initialise megatron's parallel state and random state."""
    import torch

    if device_kind() == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "MASTER_ADDR" not in os.environ:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(_free_port())
    timeout = datetime.timedelta(minutes=settings.value("distributed_timeout_minutes"))
    torch.distributed.init_process_group(backend(), rank=rank(), world_size=world_size(), timeout=timeout)
    start_parallel_state(settings)


def start_fake(settings: Settings, fake_rank: int) -> None:
    """Simulate `fake_rank` of the whole world in this process: collectives return at once, with meaningless values."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = settings.layout.world_size
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=fake_rank, world_size=world)
    start_parallel_state(settings)


def start_parallel_state(settings: Settings) -> None:
    """Initialise megatron's groups and seed every generator, as Megatron-LM's initialize.py does."""
    import numpy
    import torch
    from megatron.core import parallel_state, tensor_parallel

    layout = settings.layout
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tp,
        pipeline_model_parallel_size=layout.pp,
        virtual_pipeline_model_parallel_size=layout.vpp,
        context_parallel_size=layout.cp,
        expert_model_parallel_size=layout.ep,
        expert_tensor_parallel_size=layout.etp,
        num_distributed_optimizer_instances=settings.value("num_distributed_optimizer_instances"),
        order="tp-cp-ep-pp-dp" if settings.value("use_tp_pp_dp_mapping") else "tp-cp-ep-dp-pp",
        distributed_timeout_minutes=settings.value("distributed_timeout_minutes"),
        create_gloo_process_groups=False,
    )
    seed = settings.value("seed") + 100 * parallel_state.get_pipeline_model_parallel_rank()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def stop() -> None:
    """Close the process groups."""
    import torch

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
