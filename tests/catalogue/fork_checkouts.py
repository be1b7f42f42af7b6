"""Small checkouts of forks of Megatron-LM, written to a folder."""

from pathlib import Path

ARGUMENTS = "megatron/training/arguments.py"
# The smallest parser that is like Megatron-LM's: what a script of any size needs.
BASE = """
import argparse, os
import torch  # a checkout is read, never imported: this one does not exist here

raise SystemExit("the source was executed")

def parse_args(extra_args_provider=None, ignore_unknown_args=False):
    parser = argparse.ArgumentParser(description="Megatron-LM Arguments", allow_abbrev=False)
    parser = _add_network_size_args(parser)
    parser = _add_training_args(parser)
    if extra_args_provider is not None:
        parser = extra_args_provider(parser)
    return parser.parse_args()

def _add_network_size_args(parser):
    group = parser.add_argument_group(title="network size")
    group.add_argument("--num-layers", type=int, default=None, help="Number of layers.")
    group.add_argument("--hidden-size", type=int, default=None)
    group.add_argument("--num-attention-heads", type=int, default=None)
    group.add_argument("--max-position-embeddings", type=int, default=None)
    group.add_argument("--seq-length", type=int, default=None)
    return parser

def _add_training_args(parser):
    group = parser.add_argument_group(title="training")
    group.add_argument("--micro-batch-size", type=int, default=None)
    group.add_argument("--global-batch-size", type=int, default=None)
    group.add_argument("--train-iters", type=int, default=None)
    group.add_argument("--lr", type=float, default=None)
    group.add_argument("--tensor-model-parallel-size", type=int, default=1)
    group.add_argument("--bf16", action="store_true")
    group.add_argument("--data-path", nargs="*", default=None)
    group.add_argument("--tokenizer-type", default=None, choices=["NullTokenizer", "OurTokenizer"])
    group.add_argument("--vocab-size", type=int, default=None)
    group.add_argument("--transformer-impl", default="local", choices=["local", "transformer_engine"])
    return parser
"""
OWN = """
    group.add_argument("--z-loss-weight", type=float, default=1e-4, help="Weight of the z-loss.")
    group.add_argument("--our-schedule", choices=["one", "two"], default="one")
    group.add_argument("--use-z-loss", action="store_true")
    return parser
"""
FORK = BASE.replace(
    'choices=["local", "transformer_engine"])\n    return parser\n', 'choices=["local", "transformer_engine"])' + OWN
)
ENTRY = """
from megatron.training import pretrain

def add_ours(parser):
    parser.add_argument("--ours", type=int, default=3)
    return parser

if __name__ == "__main__":
    pretrain(None, None, None, extra_args_provider=add_ours)
"""
SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 2 {program} \\
    --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 \\
    --micro-batch-size 1 --global-batch-size 4 --train-iters 10 --lr 1e-4 --bf16 \\
    --tokenizer-type NullTokenizer --vocab-size 100 --data-path data_text_document \\
    {more}
"""


def write(folder: Path, **files: str) -> Path:
    """Write a checkout: `__` in a name stands for `/`, and the ending .py is added; returns the folder."""
    for name, text in files.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def fork(folder: Path) -> Path:
    """Write a fork with a parser of its own and an entry script; returns the folder."""
    return write(folder, megatron__training__arguments=FORK, pretrain_ours=ENTRY)
