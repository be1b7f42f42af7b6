"""Installs and announces the stand-ins in a rank process of a native rehearsal, before its script runs."""

import importlib
import importlib.util
import os
import sys
from typing import Any

from launcher.rehearse.cpu import routing, tracer
from launcher.rehearse.native import NativeOnCpu, announcement, untested


def enter(address: str, *, rank: str, script: str) -> None:
    """Install the stand-ins of the NativeOnCpu that ``address`` (``module:NAME``) names, unless a device is usable.

    ``script`` is the absolute path of what runs next. Raises whatever the installation raises: the caller ends the
    process then, because an incomplete installation would give wrong numbers.
    """
    native: NativeOnCpu = resolve(address)
    speaks = rank == "0"
    device = usable_accelerator()
    if device:
        if speaks:
            _print(f"{device} is usable here: the backend runs on it and no stand-ins are installed")
        return
    if speaks:
        for line in untested(native):
            _print(f"warning: {line}")
        _print(announcement(native))
    resolve(native.install)(script)
    tracer.install()
    routing.install()


def resolve(address: str) -> Any:
    """Return the object that ``module:NAME`` names."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


def usable_accelerator() -> str | None:
    """Return the name of the accelerator that the native stack could use in this process, or None."""
    if importlib.util.find_spec("torch_npu") is not None and os.path.exists("/dev/davinci_manager"):
        return "an Ascend NPU"
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return f"a GPU ({torch.cuda.get_device_name(0)})"
    elif importlib.util.find_spec("mindspore") is not None and os.path.exists("/dev/davinci_manager"):
        return "an Ascend NPU"
    return None


def warn(line: str, *, rank: str) -> None:
    """Print one line of warning on stderr, once a run."""
    if rank == "0":
        _print(f"warning: {line}")


def _print(line: str) -> None:
    sys.stderr.write(f"rehearsal: {line}\n")
    sys.stderr.flush()
