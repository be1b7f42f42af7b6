"""Packs Transformer Engine for one GPU architecture, small enough to carry.

The published library holds machine code of several architectures in half a gigabyte: that of all others is overwritten
with zeros, which compress to nothing (2.12.0 for CUDA 13: a wheel of 17 MB in place of 190). The extension of PyTorch
is published as source: it is compiled here, with the Python and the PyTorch of the machine that it is for (nine minutes
on two cores), which takes a CUDA toolkit and that Python. 2.13 and later want a cuBLAS newer than the 13.1 of PyTorch
2.11.
"""

import os
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BUILD = ("numpy", "packaging", "setuptools", "wheel", "pybind11", "ninja", "cmake")
_HEADERS = ("cu13", "cudnn", "nccl")
_TOOLKIT = "/usr/local/cuda"
_LIBRARY, _UNUSED = "libtransformer_engine.so", "transformer_engine/jax/"
# A fat binary: magic, version 1, its header's size, and the size of the entries behind it.
_MAGIC, _BINARY, _HEADER_BYTES = b"\x50\xed\x55\xba", struct.Struct("<4sHHQ"), 16
# An entry: kind (2 is machine code), header's size, size of the code; the architecture stands at byte 28.
_ENTRY, _ARCHITECTURE, _CODE = struct.Struct("<HHIQ"), struct.Struct("<28xI"), 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A Transformer Engine to pack.

    Attributes:
        version: of Transformer Engine.
        torch: version of PyTorch on the machine.
        python: version of Python there.
        architecture: of its GPU, such as 90 for compute capability 9.0.
    """

    version: str
    torch: str
    python: str
    architecture: int


def pack(engine: Engine, folder: Path, work: Path) -> None:
    """Write the wheels of Transformer Engine to a folder.

    Args:
        work: folder for the environment that compiles, about 6 GB.

    Raises:
        LookupError: there is no such Python or no CUDA toolkit on this machine.
        subprocess.CalledProcessError: pip failed; it has said why.
    """
    interpreter = shutil.which(f"python{engine.python}")
    toolkit = next(filter(_is_toolkit, (Path(os.environ.get("CUDA_HOME", _TOOLKIT)), Path(_TOOLKIT))), None)
    if interpreter is None or toolkit is None:
        raise LookupError("a CUDA toolkit (CUDA_HOME)" if interpreter else f"python{engine.python}")
    subprocess.run([interpreter, "-m", "venv", str(work / "venv")], check=True)
    python = work / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "install", f"torch=={engine.torch}", *_BUILD], check=True)
    names = [f"transformer_engine=={engine.version}", f"transformer_engine_cu13=={engine.version}"]
    subprocess.run([*pip, "download", "--no-deps", "-d", str(work), *names], check=True)
    (packages,) = (work / "venv" / "lib").glob("python*/site-packages/nvidia")
    environ = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "CUDA_HOME": str(toolkit),
        "CPATH": os.pathsep.join(str(packages / name / "include") for name in _HEADERS),
        "NVTE_FRAMEWORK": "pytorch",
        "NVTE_PYTORCH_FORCE_BUILD": "TRUE",
        "MAX_JOBS": str(os.cpu_count() or 1),
    }
    source = f"transformer_engine_torch=={engine.version}"
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-binary", "transformer_engine_torch"]
    subprocess.run([*pip, *build, "-w", str(folder), source], check=True, env=environ)
    (meta,) = work.glob("transformer_engine-*.whl")
    shutil.copy(meta, folder)
    (core,) = work.glob("transformer_engine_cu13-*.whl")
    write_pruned(core, folder / core.name, engine.architecture)


def _is_toolkit(folder: Path) -> bool:
    return (folder / "bin" / "nvcc").is_file() and (folder / "include" / "crt").is_dir()


def write_pruned(wheel: Path, out: Path, architecture: int) -> None:
    """Write a wheel of the library with the machine code of one architecture, and without its part for JAX."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in source.namelist():
            if name.startswith(_UNUSED):
                continue
            content = source.read(name)
            target.writestr(name, pruned(content, architecture) if name.endswith(_LIBRARY) else content)


def pruned(library: bytes, architecture: int) -> bytes:
    """Return a library of the same size in which the machine code of all other GPU architectures is zeros."""
    content = bytearray(library)
    for start, size, found in _codes(library):
        if found != architecture:
            content[start : start + size] = bytes(size)
    return bytes(content)


def _codes(library: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where each machine code begins, its size in bytes, and its architecture; 0 for code of no architecture."""
    begin = library.find(_MAGIC)
    while 0 <= begin <= len(library) - _HEADER_BYTES:
        _, version, header, size = _BINARY.unpack_from(library, begin)
        end = begin + header + size
        if (version, header) != (1, _HEADER_BYTES) or end > len(library):
            end = begin + len(_MAGIC)  # the same bytes by chance
        else:
            entry = begin + header
            while entry < end:
                kind, _, entry_header, entry_size = _ENTRY.unpack_from(library, entry)
                if not entry_header:
                    break  # padding
                (architecture,) = _ARCHITECTURE.unpack_from(library, entry)
                yield entry + entry_header, entry_size, architecture if kind == _CODE else 0
                entry += entry_header + entry_size
        begin = library.find(_MAGIC, end)
