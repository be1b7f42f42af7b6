"""How long does `launch convert` take, compared with `cp -r` of the same bytes on the same disk? One table.

    python tools/bench/convert.py [--size 1 4 16] [--repeat 3] [--folder DIR] [--only NAME …] [--sparse 60]
    python tools/bench/convert.py --bridge-python /venv/bin/python --size 0.6    also: mcore-bridge's own conversion

A synthetic model of each `--size` in GB (random bytes) is written once, and read once so that its pages are cached. The
cases then run in turns, cp before each, `--repeat` rounds; the best of each counts: processor seconds of its best run
divided by those of cp's best run beside it. Memory is VmHWM, the peak of all resident pages, mapped files included.
Bytecode is cached, as it is once a program is installed. Every target is removed after its run.
`--sparse GB` converts a model of that size whose file is one hole: memory must not depend on the model's size.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LAYOUT = ("parallel.tp=2", "parallel.pp=2")
# Case to the words after `launch convert hf-to-mcore`.
CASES: Mapping[str, tuple[str, ...]] = {
    "torch_dist": ("--format", "torch_dist"),
    "legacy tp2 pp2": ("--format", "legacy", *_LAYOUT),
    "mindformers": ("--backend", "mindformers"),
}
# Further cases: the words after `launch convert`, with {source} and {adapter} for the model and an adapter of it.
MORE: Mapping[str, tuple[str, ...]] = {
    "merge of LoRA rank 16": ("merge", "--model", "{source}", "--adapter", "{adapter}"),
}
_RANK = 16
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
_STEP = 16 * 1024 * 1024
_SAMPLE_EVERY = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: seconds of wall clock, of the processor, and the peak of resident memory in bytes."""

    wall: float
    cpu: float
    resident: int


def config(size_gb: float) -> dict[str, Any]:
    """Return the config.json of a Qwen3 model of about that size in bf16."""
    hidden, ffn, vocabulary = (4096, 12288, 151936) if size_gb >= 10 else (2048, 6144, 65536)
    if size_gb < 1:
        hidden, ffn, vocabulary = 1024, 3072, 16384
    layer = 2 * (hidden * 2 * hidden + 2 * hidden * hidden // 2 + 3 * hidden * ffn)
    layers = max(2, round((size_gb * 1e9 - 4 * vocabulary * hidden) / layer))
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers + layers % 2,
        "num_attention_heads": hidden // 128,
        "num_key_value_heads": hidden // 256,
        "head_dim": 128,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def write_model(folder: Path, size_gb: float, *, filled: bool) -> int:
    """Write a Hugging Face model; returns its bytes. Not filled: one hole."""
    from launcher.convert.containers import safetensors
    from launcher.convert.containers.dtypes import nbytes
    from launcher.convert.containers.records import TensorSpec
    from launcher.convert.logical import logical_model
    from launcher.convert.model import model_in

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config(size_gb), indent=1), encoding="utf-8")
    logical = logical_model(model_in(folder))
    specs = [TensorSpec(name=name, shape=shape, dtype="BF16") for name, shape in logical.tensors.items()]
    slots = safetensors.create(folder, specs)
    block = _finite(os.urandom(_STEP))
    for slot in slots if filled else ():
        descriptor = os.open(slot.path, os.O_RDWR)
        for at in range(0, nbytes(slot), _STEP):
            os.pwrite(descriptor, block[: min(_STEP, nbytes(slot) - at)], slot.offset + at)
        os.close(descriptor)
    return sum(nbytes(slot) for slot in slots)


def _finite(args: bytes) -> bytes:
    """Random bf16 without infinities, which FP8 has none of: one bit of each exponent is cleared."""
    found = bytearray(args)
    found[1::2] = bytes(byte & 0xBF for byte in found[1::2])
    return bytes(found)


def write_adapter(model: Path, folder: Path) -> None:
    """Write a LoRA adapter, all zeros, of every linear layer of a model."""
    from launcher.convert.containers import safetensors
    from launcher.convert.containers.records import TensorSpec
    from launcher.convert.logical import logical_model
    from launcher.convert.lora.logical import adaptable
    from launcher.convert.model import model_in

    folder.mkdir()
    tree = {"peft_type": "LORA", "r": _RANK, "lora_alpha": 2 * _RANK, "target_modules": "all-linear"}
    (folder / "adapter_config.json").write_text(json.dumps(tree), encoding="utf-8")
    specs = [
        TensorSpec(name=f"base_model.model.{part}.lora_{of}.weight", shape=shape, dtype="BF16")
        for instance, parts in adaptable(logical_model(model_in(model)))
        for part, (rows, columns) in zip(parts, instance.shapes, strict=True)
        for of, shape in (("A", (_RANK, columns)), ("B", (rows, _RANK)))
    ]
    safetensors.create_file(folder / "adapter_model.safetensors", specs)


def measure(
    argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, *, children: bool = False
) -> Measured:
    """Run a command to its end and measure it; what it prints goes to `log`.

    `children`: of memory take the largest resident set of it and its children. It is not the measure otherwise, since
    it begins with that of this process, from which the command is forked.

    Raises:
        SystemExit: it failed.
    """
    env = {name: value for name, value in (env or os.environ).items() if name != "PYTHONDONTWRITEBYTECODE"}
    with log.open("w") as output:
        started = time.monotonic()
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env)
        peak = 0
        while True:
            peak = max(peak, _resident(process.pid))
            ended, status, usage = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            time.sleep(_SAMPLE_EVERY)
        wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit code {process.returncode}\n{log.read_text()[-3000:]}")
    resident = usage.ru_maxrss * 1024 if children else peak
    return Measured(wall=wall, cpu=usage.ru_utime + usage.ru_stime, resident=resident)


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def commands(source: Path, out: Path, only: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield (case, command)."""
    launch = [sys.executable, "-m", "launcher", "convert", "hf-to-mcore", "--model", str(source), "--out", str(out)]
    for name, args in CASES.items():
        if not only or name.split()[0] in only:
            yield f"{name}, verified", [*launch, *args]
            yield f"{name}, --no-verify", [*launch, *args, "--no-verify"]
    places = {"source": str(source), "adapter": str(source.with_name("adapter"))}
    for name, args in MORE.items():
        if not only or name.split()[0] in only:
            argv = [sys.executable, "-m", "launcher", "convert", *(arg.format(**places) for arg in args)]
            yield f"{name}, verified", [*argv, "--out", str(out)]
            yield f"{name}, --no-verify", [*argv, "--out", str(out), "--no-verify"]


def rounds(source: Path, scratch: Path, *, repeat: int, only: Sequence[str]) -> dict[str, tuple[Measured, Measured]]:
    """Run all cases in turns, cp before each, and return the best of each with the best of its cp."""
    found: dict[str, tuple[list[Measured], list[Measured]]] = {}
    out = scratch / "out"
    for number in range(repeat):
        for name, argv in commands(source, out, only):
            runs = found.setdefault(name, ([], []))
            for command, into in ((argv, runs[0]), (["cp", "-r", str(source), str(out)], runs[1]))[::-1]:
                into.append(measure(command, scratch / "log"))
                shutil.rmtree(out)
            _say(f"round {number + 1}: {name}: {_line(runs[0][-1])}; cp: {_line(runs[1][-1])}")
    return {name: (_best(runs), _best(copies)) for name, (runs, copies) in found.items()}


def _best(runs: Sequence[Measured]) -> Measured:
    return Measured(
        wall=min(run.wall for run in runs), cpu=min(run.cpu for run in runs), resident=max(run.resident for run in runs)
    )


def rows(size: int, found: Mapping[str, tuple[Measured, Measured]]) -> Iterator[str]:
    """Yield the rows of a size, as Markdown."""
    for name, (run, copy) in found.items():
        ratio = f"{run.cpu:.1f} | {copy.cpu:.1f} | {run.cpu / copy.cpu:.2f}"
        yield f"| {size / 1e9:.1f} | {name} | {run.wall:.1f} | {copy.wall:.1f} | {ratio} | {run.resident / 1e6:.0f} |"


def bridge(python: str, source: Path, scratch: Path) -> Measured:
    """Convert with mcore-bridge, by ms-swift's own `megatron export` on CPU; memory is the largest resident set."""
    from backends.megatron.rehearse import NATIVE_CPU
    from launcher.rehearse.native import environment

    folder = scratch / "with-tokenizer"
    shutil.copytree(_TOKENIZER, folder)
    for file in source.iterdir():
        os.link(file, folder / file.name)
    options = {"model": folder, "output_dir": scratch / "bridge", **_EXPORT}
    argv = [str(Path(python).parent / "megatron"), "export"]
    argv += [arg for name, value in options.items() for arg in (f"--{name}", str(value))]
    more = {"NPROC_PER_NODE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return measure(argv, scratch / "log", {**os.environ, **environment(NATIVE_CPU, {}), **more}, children=True)


def _line(run: Measured) -> str:
    return f"{run.wall:.1f} s, CPU {run.cpu:.1f} s, resident {run.resident / 1e6:.0f} MB"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _warm(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                while opened.read(_STEP):
                    pass


def main() -> None:
    """Measure and print."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--size", type=float, nargs="+", default=[1.0, 4.0, 16.0], help="GB of each model")
    made.add_argument("--repeat", type=int, default=3)
    made.add_argument("--folder", type=Path, help="on the disk to measure; default: the temporary folder's")
    made.add_argument("--only", nargs="*", default=[], help="first words of cases")
    made.add_argument("--sparse", type=float, help="GB of a model that is one hole, to show its memory")
    made.add_argument("--bridge-python", help="python of an environment with ms-swift and mcore-bridge")
    options = made.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-convert-") as name:
        scratch = Path(name)
        if options.sparse:
            size = write_model(scratch / "sparse", options.sparse, filled=False)
            write_adapter(scratch / "sparse", scratch / "adapter")
            print(f"sparse model of {size / 1e9:.1f} GB:")
            for case, argv in commands(scratch / "sparse", scratch / "out", options.only):
                print(f"  {case}: {_line(measure(argv, scratch / 'log'))}", flush=True)
                shutil.rmtree(scratch / "out")
            return
        lines = []
        for gigabytes in options.size:
            folder = scratch / f"{gigabytes:g}"
            folder.mkdir()
            lines += _of_size(folder, gigabytes, options)
            shutil.rmtree(folder)
    print(f"best of {options.repeat}, {os.cpu_count()} processors, {time.strftime('%Y-%m-%d')}")
    print("| GB | case | wall s | cp | CPU s | cp | ÷ cp | resident MB |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    print("\n".join(lines))


def _of_size(scratch: Path, gigabytes: float, options: argparse.Namespace) -> list[str]:
    """Return the rows of a model of that size."""
    model = scratch / "model"
    size = write_model(model, gigabytes, filled=True)
    write_adapter(model, scratch / "adapter")
    _warm(model)
    found = rounds(model, scratch, repeat=options.repeat, only=options.only)
    if options.bridge_python:
        copy = _best([copies for _, copies in found.values()])
        found["mcore-bridge to torch_dist"] = (bridge(options.bridge_python, model, scratch), copy)
    return list(rows(size, found))


if __name__ == "__main__":
    main()
