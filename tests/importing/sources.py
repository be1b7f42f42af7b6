"""Command lines of each backend that tests carry to another one, and values for their arguments."""

import random
from pathlib import Path
from typing import Any

from launcher.catalogue.catalogue import Argument

DATA = Path(__file__).parent / "data"
SWIFT = ("megatron", "megatron sft --model Qwen/Qwen3-30B-A3B --dataset d.jsonl --lr 1e-5")
_SHAPE = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 "
    "--micro-batch-size 1 --lr 1e-4 --train-iters 10"
)
LM = ("megatron_lm", f"torchrun pretrain_gpt.py {_SHAPE}")
NPU = ("mindspeed", f"torchrun pretrain_gpt.py {_SHAPE}")
TP = "--tensor-model-parallel-size 2 --sequence-parallel"
MOE = " --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 0.001"


def sample(argument: Argument, chance: random.Random) -> Any:
    """Return a value that the parser takes and that is not the default."""
    if argument.is_flag:
        return True
    if argument.choices:
        return chance.choice([each for each in argument.choices if each is not None] or [None])
    kinds = argument.type.split("|")
    values = {"int": 3, "float": 0.25, "bool": True, "str": "text", "json": "{}", "expr": 2, "list": ["a"], "dict": {}}
    value = next((values[kind] for kind in kinds if kind in values), "text")
    if argument.nargs in ("+", "*"):
        return [value]
    return [value] * argument.nargs if isinstance(argument.nargs, int) else value
