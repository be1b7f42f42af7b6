"""The corpus benchmark on two records of each kind: figures, refusals, exit code."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SWIFT = [
    {
        "path": "a.sh",
        "version": "main",
        "env": {"NPROC_PER_NODE": "2"},
        "command": "megatron sft",
        "argv": ["--model", "Qwen/Qwen3-8B", "--tensor_model_parallel_size", "2", "--lr", "1e-5"],
    },
    {"path": "b.sh", "version": "main", "env": {}, "command": "swift infer", "argv": ["--model", "m"]},
]
MINDSPEED = [
    {
        "path": "a.sh",
        "env": {},
        "launcher": {"cmd": "torchrun", "opts": {"nproc_per_node": "8", "nnodes": "1"}},
        "entry": "pretrain_gpt.py",
        "argv": ["--tensor-model-parallel-size", "2", "--micro-batch-size", "1", "--use-fused-rmsnorm", "--bf16"],
    },
    {
        "path": "b.sh",
        "env": {},
        "launcher": {"cmd": "torchrun", "opts": {"nproc_per_node": "8"}},
        "entry": "pretrain_gpt.py",
        "argv": ["--micro-batch-size", "1", "--no-such-thing"],
    },
]
MINDFORMERS = [
    {
        "path": "a.yaml",
        "source": "x",
        "kind": "static",
        "run_mode": "train",
        "use_legacy": False,
        "world_size": 8,
        "yaml": {
            "run_mode": "train",
            "use_legacy": False,
            "parallel_config": {"model_parallel": 2, "data_parallel": 4},
        },
    },
    {"path": "b.yaml", "source": "x", "kind": "static", "run_mode": "predict", "yaml": {"run_mode": "predict"}},
]


def test_figures(tmp_path: Path) -> None:
    records = {"megatron_swift": SWIFT, "mindspeed": MINDSPEED, "mindformers": MINDFORMERS}
    for name, rows in records.items():
        (tmp_path / f"corpus_{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.corpus", "--facts", str(tmp_path), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    figures = json.loads(done.stdout)["backends"]
    assert {name: (each["tried"], each["imported"], each["identical"]) for name, each in figures.items()} == {
        "megatron": (1, 1, 1),
        "mindspeed": (2, 2, 2),
        "mindformers mcore": (1, 1, 1),
        "mindformers other": (0, 0, 0),
    }
    assert figures["mindspeed"]["in_part"] == 1
    assert figures["megatron"]["outside"] == {"swift infer: not the Megatron program": 1}
