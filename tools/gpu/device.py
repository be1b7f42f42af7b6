"""Describes the device of a verification, as JSON: `python -m tools.gpu.device cpu|cuda`.

A process of its own, as CUDA takes memory of the device in every process that starts it.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

# First compute capability with FP8 matrix products: Ada's. Source: check_fp8_support of Transformer Engine's fp8.py.
FP8_CAPABILITY = (8, 9)
# Words of a device's name, as its driver gives it, to a file of conf/hardware; the first row with all its words.
HARDWARE: Mapping[tuple[str, ...], str] = {
    ("H200",): "h200",
    ("H100", "80GB"): "h100_80g",
    ("A100", "80GB", "PCIE"): "a100_80g_pcie",
    ("A100", "80GB"): "a100_80g",
    ("B200",): "b200",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What is measured on, and with which software.

    Attributes:
        kind: cuda or cpu.
        name: as the driver gives it; the processor's architecture on CPU.
        memory_gib: of the device; None on CPU.
        capability: CUDA compute capability; None on CPU.
        software: name and version of each package that matters, and of the driver.
        transformer_engine: its version; None where it is not installed.
        problem: why nothing can be measured; "" where something can.
    """

    kind: str
    name: str = ""
    memory_gib: float | None = None
    capability: tuple[int, int] | None = None
    software: Mapping[str, str]
    transformer_engine: str | None = None
    problem: str = ""

    @property
    def has_fp8(self) -> bool:
        """Whether the device multiplies in FP8."""
        return self.capability is not None and self.capability >= FP8_CAPABILITY

    @property
    def hardware(self) -> str | None:
        """Name of the file in conf/hardware; None where there is none for this device."""
        if self.kind == "cpu":
            return "cpu"
        words = set(self.name.upper().replace("-", " ").split())
        return next((file for needed, file in HARDWARE.items() if set(needed) <= words), None)

    @property
    def line(self) -> str:
        """One line that names device and software."""
        memory = f", {self.memory_gib:.1f} GiB" if self.memory_gib is not None else ""
        return f"{self.name}{memory}; " + ", ".join(f"{name} {number}" for name, number in self.software.items())


def described(kind: str) -> Device:
    """Describe the device in a child process; its `problem` says why torch cannot use one."""
    done = subprocess.run([sys.executable, "-m", "tools.gpu.device", kind], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Device(kind=kind, software={}, problem=f"torch does not start: {last}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["capability"] is not None:
        found["capability"] = tuple(found["capability"])
    return Device(**found)


def _here(kind: str) -> Device:
    """Describe the device in this process."""
    import torch

    software = {"Python": platform.python_version(), "torch": str(torch.__version__)}
    software |= {name: found for name in ("megatron-core", "triton") if (found := _version(name)) is not None}
    if kind == "cpu":
        return Device(kind=kind, name=f"CPU ({platform.machine()})", software=software)
    if not torch.cuda.is_available():
        return Device(kind=kind, software=software, problem=f"torch {torch.__version__} sees no CUDA device")
    properties = torch.cuda.get_device_properties(0)
    engine = _transformer_engine()
    if engine is not None:
        software["Transformer Engine"] = engine
    driver = _driver()
    if driver is not None:
        software["driver"] = driver
    return Device(
        kind=kind,
        name=str(properties.name),
        memory_gib=properties.total_memory / 2**30,
        capability=(properties.major, properties.minor),
        software=software,
        transformer_engine=engine,
    )


def _transformer_engine() -> str | None:
    try:
        import transformer_engine.pytorch  # noqa: F401
    except ImportError:
        return None
    return _version("transformer_engine") or "of unknown version"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), None)


if __name__ == "__main__":
    print(json.dumps(asdict(_here(sys.argv[1]))))
