"""Virtual environments from PyPI for tests that run a backend itself; made once, kept in a cache folder."""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

CACHE_VARIABLE = "LAUNCH_TEST_ENVIRONMENTS"
"""Where environments are kept; ~/.cache/launch-tests without it."""

WANDB = ("wandb==0.31.0", "tensorboard")
"""The version whose files were read (docs/start/wandb.md); its messages and the form of its files may change."""

CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"


def torch_pin() -> str:
    """Return the torch requirement of constraints.txt, such as ``torch==2.13.0``."""
    found = re.search(r"^torch==\S+", CONSTRAINTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found, f"{CONSTRAINTS} pins no torch"
    return found.group()


def swift_python() -> Path:
    """Return an interpreter with ms-swift 4.6.0, for its parsers, its training and its checkpoints alike."""
    from backends.megatron.rehearse import NATIVE_CPU

    pins = {str(pin).partition("==")[0]: str(pin) for pin in (*NATIVE_CPU.requires, *NATIVE_CPU.tested_with)}
    pins.pop("torch")
    # What ms-swift imports without declaring it: tensorboard (--report_to tensorboard) and msgspec (megatron rlhf).
    return python_with("swift", (torch_pin(),), (torch_pin(), *pins.values(), "tensorboard", "msgspec"))


def mindformers_1_6_python() -> Path:
    """Return an interpreter with MindFormers 1.6.0."""
    return python_with("mindformers_1_6", ("setuptools<81", "mindspore==2.7.0", "mindformers==1.6.0"))


def mindformers_1_8_python() -> Path:
    """Return an interpreter with MindFormers 1.8.0: the first on PyPI that trains Qwen3 and has its mindspore there."""
    return python_with("mindformers_1_8", ("setuptools<81", "mindspore==2.7.2", "mindformers==1.8.0"))


def mindspeed_python() -> Path:
    """Return an interpreter with what MindSpeed-LLM's checkout needs on CPU."""
    from backends.mindspeed.rehearse import NATIVE_CPU

    pins = {pin.distribution: str(pin) for pin in NATIVE_CPU.tested_with} | {"torch": torch_pin()}
    needs = [pins.get(need.distribution, str(need)) for need in NATIVE_CPU.requires]
    # torch on its own first: pip then takes the CPU build where the constraints name one.
    return python_with("mindspeed", (torch_pin(),), (*needs, "scipy<1.14", "pandas<3", "datasets<5", "pyarrow<22"))


def wandb_packages(python: Path) -> Path:
    """Return a folder for PYTHONPATH with Weights & Biases, TensorBoard, and what an environment lacks for them."""
    cache = Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "launch-tests"))
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    base = subprocess.run([str(python), "-c", query], check=True, capture_output=True, text=True).stdout.strip()
    digest = hashlib.sha256(f"{base} {WANDB}".encode()).hexdigest()[:12]
    folder = cache / f"wandb-{digest}"
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    with _locked(folder):
        if not (folder / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
            # pip then sees the environment's packages, and adds none of them.
            (packages / "environment.pth").write_text(f"{base}\n", encoding="utf-8")
            _pip([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *WANDB])
            (folder / "complete").touch()
    return packages


def swift_with_wandb() -> Path:
    """Return the folder with Weights & Biases for ms-swift's environment."""
    return wandb_packages(swift_python())


def core_0_17() -> Path:
    """Return a folder with megatron-core 0.17.1 for PYTHONPATH; pip refuses to install it below Python 3.12."""
    cache = Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "launch-tests"))
    folder = cache / "megatron_core-0.17.1"
    with _locked(folder):
        if not (folder / "complete").exists():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
            _pip([*pip, "--only-binary=:all:", "--python-version=3.12", "megatron-core==0.17.1"])
            (wheel,) = folder.glob("*.whl")
            zipfile.ZipFile(wheel).extractall(folder)
            (folder / "complete").touch()
    return folder


def vision_packages(folder: Path) -> Path:
    """Return a folder with what ms-swift imports for every multimodal model, also where it only reads text.

    The real qwen_vl_utils needs torchvision, which PyPI has for GPUs only. None of its functions is called.
    """
    for name in ("qwen_vl_utils", "decord"):
        for file in ("__init__", "vision_process"):
            path = folder / "vision_packages" / name / f"{file}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        facts = folder / "vision_packages" / f"{name}-0.0.14.dist-info" / "METADATA"
        facts.parent.mkdir(exist_ok=True)
        facts.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.14\n")
    return folder / "vision_packages"


def python_with(name: str, *steps: Sequence[str]) -> Path:
    """Return the interpreter of an environment in which every step was given to ``pip install``, in order.

    ``LAUNCH_TEST_PYTHON_<NAME>`` names an interpreter to use instead. Skips the test, with pip's last words, where
    the environment cannot be made (no network, no wheel). Safe to call from several test processes.
    """
    given = os.environ.get(f"LAUNCH_TEST_PYTHON_{name.upper()}")
    if given:
        return Path(given)
    cache = Path(os.environ.get(CACHE_VARIABLE, Path.home() / ".cache" / "launch-tests"))
    digest = hashlib.sha256(repr((sys.version_info[:2], steps)).encode()).hexdigest()[:12]
    folder = cache / f"{name}-{digest}"
    with _locked(folder):
        if not (folder / "complete").exists():
            _make(folder, steps)
            (folder / "complete").touch()
    return folder / "bin" / "python"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make a folder."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(folder: Path, steps: Sequence[Sequence[str]]) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
    for step in steps:
        _pip([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *step])


def _pip(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        pytest.skip(f"the environment cannot be made: {' '.join(command[1:])}: {last}")


def main() -> None:
    """Make every environment that does not need a checkout, two at a time, so that no test waits for one."""

    def made(python: Callable[[], Path]) -> str:
        try:
            return str(python())
        except pytest.skip.Exception as error:
            return f"{python.__name__}: {error}"

    with ThreadPoolExecutor(2) as pool:
        for reported in pool.map(made, (mindformers_1_6_python, mindformers_1_8_python, swift_with_wandb)):
            print(reported, flush=True)


if __name__ == "__main__":
    main()
