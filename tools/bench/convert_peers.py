"""Conversions of the same model by other programs, for the table of `tools.bench.convert`."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bench.processes import Measured, available_memory, measure

_TOKENIZER = Path(__file__).resolve().parents[2] / "launcher" / "rehearse" / "assets" / "tokenizer"
_EXPORT = {
    "model_type": "qwen3",
    "template": "qwen3",
    "to_mcore": "true",
    "torch_dtype": "bfloat16",
    "bf16": "true",
    "fp16": "false",
    "use_cpu_initialization": "true",
}
# convert_ckpt_v2.py needs torch alone. What it imports besides, for a decorator that does nothing there, needs Ascend.
_WITHOUT_ASCEND = """
import runpy, sys, types
checkout, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, checkout)
sys.modules["mindspeed_llm.training"] = types.ModuleType("mindspeed_llm.training")
utils = sys.modules["mindspeed_llm.training.utils"] = types.ModuleType("mindspeed_llm.training.utils")
utils.auto_coverage = lambda function: function
runpy.run_path(f"{checkout}/convert_ckpt_v2.py", run_name="__main__")
"""
_RANKS = ("--target-tensor-parallel-size", "2", "--target-pipeline-parallel-size", "2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another program: the row's title, and its command line and environment for (model, target, scratch folder)."""

    title: str
    command: Callable[[Path, Path, Path], tuple[list[str], Mapping[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """Why a program was not run."""

    why: str


def peers(bridge_python: str | None, mindspeed_python: str | None, mindspeed_llm: str | None) -> Iterator[Peer]:
    """Yield the programs whose environments are given."""
    if bridge_python:
        yield Peer(title="mcore-bridge to torch_dist", command=_bridge(bridge_python))
    if mindspeed_python and mindspeed_llm:
        yield Peer(title="convert_ckpt_v2 tp2 pp2", command=_convert_ckpt_v2(mindspeed_python, mindspeed_llm))


def _bridge(python: str) -> Callable[[Path, Path, Path], tuple[list[str], Mapping[str, str]]]:
    """mcore-bridge, by ms-swift's own `megatron export` on CPU."""

    def command(source: Path, out: Path, scratch: Path) -> tuple[list[str], Mapping[str, str]]:
        from backends.megatron.rehearse import NATIVE_CPU
        from launcher.rehearse.native import environment

        folder = scratch / "with-tokenizer"
        shutil.copytree(_TOKENIZER, folder)
        for file in source.iterdir():
            os.link(file, folder / file.name)
        options = {"model": folder, "output_dir": out, **_EXPORT}
        argv = [str(Path(python).parent / "megatron"), "export"]
        argv += [arg for name, value in options.items() for arg in (f"--{name}", str(value))]
        more = {"NPROC_PER_NODE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        return argv, {**os.environ, **environment(NATIVE_CPU, {}), **more}

    return command


def _convert_ckpt_v2(python: str, checkout: str) -> Callable[[Path, Path, Path], tuple[list[str], Mapping[str, str]]]:
    """MindSpeed-LLM's converter; a layout is the only thing that it has to be given."""

    def command(source: Path, out: Path, scratch: Path) -> tuple[list[str], Mapping[str, str]]:
        argv = [python, "-c", _WITHOUT_ASCEND, checkout, "--model-type-hf", "qwen3", *_RANKS]
        more = {"TRAINING_BACKEND": "none", "OMP_NUM_THREADS": "1", "USE_TF": "FALSE"}
        return [*argv, "--load-dir", str(source), "--save-dir", str(out)], {**os.environ, **more}

    return command


def run(
    peer: Peer, source: Path, scratch: Path, *, size: int, before: Sequence[tuple[int, Measured]]
) -> Measured | NotRun:
    """Convert once, unless the memory it took for smaller models says that it would not fit.

    Memory is the largest resident set.

    Args:
        size: bytes of the model.
        before: bytes of smaller models, and what they took.
    """
    needed = _needed(size, before)
    if needed > available_memory():
        return NotRun(why=f"needs about {needed / 1e9:.0f} GB of memory, {available_memory() / 1e9:.0f} are free")
    folder = scratch / "peer"
    folder.mkdir()
    try:
        argv, env = peer.command(source, folder / "out", folder)
        return measure(argv, scratch / "log", env, children=True)
    finally:
        shutil.rmtree(folder)


def _needed(size: int, before: Sequence[tuple[int, Measured]]) -> float:
    """Return the memory for a model: on the line through two smaller ones, or in proportion to the only one."""
    if not before:
        return 0
    last_size, last = before[-1]
    if len(before) == 1:
        return last.resident * size / last_size
    first_size, first = before[-2]
    return last.resident + (last.resident - first.resident) / (last_size - first_size) * (size - last_size)
