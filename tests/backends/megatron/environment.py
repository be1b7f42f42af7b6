"""The environment in which ms-swift 4.6.0 itself runs on CPU."""

from pathlib import Path

from backends.megatron.rehearse import NATIVE_CPU
from tests.rehearse.native.environments import python_with, torch_pin


def swift_python() -> Path:
    """Return the interpreter, making the environment from PyPI if needed; skips the test where that cannot be."""
    pins = {str(pin).partition("==")[0]: str(pin) for pin in (*NATIVE_CPU.requires, *NATIVE_CPU.tested_with)}
    pins.pop("torch")
    return python_with("swift", (torch_pin(),), (torch_pin(), *pins.values(), "tensorboard"))
