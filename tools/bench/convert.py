"""How long does `launch convert` take, compared with `cp -r` of the same bytes on the same disk? One table.

    python -m tools.bench.convert [--size 1 4 16] [--repeat 3 2 1] [--folder DIR] [--only NAME …] [--sparse 60]
    python -m tools.bench.convert --bridge-python PYTHON                        also: mcore-bridge's own conversion
    python -m tools.bench.convert --mindspeed-python PYTHON --mindspeed-llm CHECKOUT    also: convert_ckpt_v2.py's

A synthetic model of each `--size` in GB (random bytes) is written once, and read once so that its pages are cached. The
cases then run in turns, cp before each, `--repeat` rounds; the best of each counts: processor seconds of its best run
divided by those of cp's best run beside it. Every target is removed after its run, and `--settle` seconds pass before
the next one: Linux reports freed memory to the host of a virtual machine about 2 s later, which is then over for both.
Memory is VmHWM, the peak of all resident pages, mapped files included. Bytecode is cached, as it is once a program is
installed.
Other programs run once, and not where the memory they took for smaller models says that they would not fit.
`--sparse GB` converts a model of that size whose file is one hole: memory must not depend on the model's size.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench.convert_peers import NotRun, peers
from tools.bench.convert_peers import run as run_peer
from tools.bench.processes import Measured, best, measure

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
# How many times the processor time of cp a case may take, by the ending of its name; merging, which computes, has none.
GOALS: Mapping[str, str] = {
    "rank 16, verified": "–",
    "rank 16, --no-verify": "–",
    "--no-verify": "1.5",
    "verified": "2.5",
}
_STEP = 16 * 1024 * 1024


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


def rounds(
    source: Path, scratch: Path, *, repeat: int, only: Sequence[str], settle: float
) -> dict[str, tuple[Measured, Measured]]:
    """Run all cases in turns, cp before each, and return the best of each with the best of its cp."""
    found: dict[str, tuple[list[Measured], list[Measured]]] = {}
    out = scratch / "out"
    for number in range(repeat):
        for name, argv in commands(source, out, only):
            runs = found.setdefault(name, ([], []))
            for command, into in ((argv, runs[0]), (["cp", "-r", str(source), str(out)], runs[1]))[::-1]:
                time.sleep(settle)
                into.append(measure(command, scratch / "log"))
                shutil.rmtree(out)
            _say(f"round {number + 1}: {name}: {runs[0][-1]}; cp: {runs[1][-1]}")
    return {name: (best(runs), best(copies)) for name, (runs, copies) in found.items()}


def rows(size: int, found: Mapping[str, tuple[Measured | NotRun, Measured]]) -> Iterator[str]:
    """Yield the rows of a size, as Markdown."""
    for name, (run, copy) in found.items():
        start = f"| {size / 1e9:.1f} | {name} |"
        if isinstance(run, NotRun):
            yield f"{start} not run: {run.why} | | | | | | |"
            continue
        ratio = run.cpu / copy.cpu
        goal = next((goal for ending, goal in GOALS.items() if name.endswith(ending)), "–")
        seconds = f"{run.wall:.1f} | {copy.wall:.1f} | {run.cpu:.1f} | {copy.cpu:.1f}"
        yield f"{start} {seconds} | {ratio:.{1 if ratio < 10 else 0}f} | {goal} | {run.resident / 1e6:.0f} |"


def slopes(sizes: Mapping[int, Mapping[str, tuple[Measured | NotRun, Measured]]]) -> Iterator[str]:
    """Yield, as Markdown, each case's processor seconds that do not depend on the size and those per GB.

    They are those of the line through the smallest and the largest model.
    """
    for name in dict.fromkeys(name for found in sizes.values() for name in found):
        points = [(size / 1e9, found[name][0]) for size, found in sizes.items() if name in found]
        ran = [(size, run.cpu) for size, run in points if isinstance(run, Measured)]
        if len(ran) < 2:
            continue
        (small, first), *_, (large, last) = ran
        slope = (last - first) / (large - small)
        yield f"| {name} | {first - slope * small:.2f} | {slope:.2f} |"


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
    made.add_argument(
        "--repeat", type=int, nargs="+", default=[3], help="rounds of each size; the last counts for more"
    )
    made.add_argument("--folder", type=Path, help="on the disk to measure; default: the temporary folder's")
    made.add_argument("--settle", type=float, default=4.0, help="seconds to wait before each run")
    made.add_argument("--only", nargs="*", default=[], help="first words of cases")
    made.add_argument("--sparse", type=float, help="GB of a model that is one hole, to show its memory")
    made.add_argument("--bridge-python", help="python of an environment with ms-swift and mcore-bridge")
    made.add_argument("--mindspeed-python", help="python of an environment with torch, for convert_ckpt_v2.py")
    made.add_argument("--mindspeed-llm", help="checkout of MindSpeed-LLM, for convert_ckpt_v2.py")
    options = made.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="bench-convert-") as name:
        scratch = Path(name)
        if options.sparse:
            size = write_model(scratch / "sparse", options.sparse, filled=False)
            write_adapter(scratch / "sparse", scratch / "adapter")
            print(f"sparse model of {size / 1e9:.1f} GB:")
            for case, argv in commands(scratch / "sparse", scratch / "out", options.only):
                print(f"  {case}: {measure(argv, scratch / 'log')}", flush=True)
                shutil.rmtree(scratch / "out")
            return
        sizes: dict[int, dict[str, tuple[Measured | NotRun, Measured]]] = {}
        for number, gigabytes in enumerate(options.size):
            folder = scratch / f"{gigabytes:g}"
            folder.mkdir()
            repeat = options.repeat[min(number, len(options.repeat) - 1)]
            _add_size(sizes, folder, gigabytes, repeat, options)
            shutil.rmtree(folder)
    rounds_ = ", ".join(map(str, options.repeat))
    print(f"best of {rounds_}, {os.cpu_count()} processors, {time.strftime('%Y-%m-%d')}")
    print("| GB | case | wall s | cp | CPU s | cp | ÷ cp | goal | resident MB |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    print("\n".join(row for size, found in sizes.items() for row in rows(size, found)))
    print("\n| case | CPU s at any size | CPU s per GB |\n|---|---:|---:|")
    print("\n".join(slopes(sizes)))


def _add_size(
    sizes: dict[int, dict[str, tuple[Measured | NotRun, Measured]]],
    scratch: Path,
    gigabytes: float,
    repeat: int,
    options: argparse.Namespace,
) -> None:
    """Measure a model of that size, and add what was found."""
    model = scratch / "model"
    size = write_model(model, gigabytes, filled=True)
    write_adapter(model, scratch / "adapter")
    _warm(model)
    found = sizes[size] = dict(rounds(model, scratch, repeat=repeat, only=options.only, settle=options.settle))
    copy = best([copies for _, copies in found.values()])
    for peer in peers(options.bridge_python, options.mindspeed_python, options.mindspeed_llm):
        done = [(smaller, held[peer.title][0]) for smaller, held in sizes.items() if smaller < size]
        before = [(smaller, run) for smaller, run in done if isinstance(run, Measured)]
        found[peer.title] = run_peer(peer, model, scratch, size=size, before=before), copy
        _say(f"{peer.title}: {found[peer.title][0]}")
    _say("\n".join(rows(size, found)))


if __name__ == "__main__":
    main()
