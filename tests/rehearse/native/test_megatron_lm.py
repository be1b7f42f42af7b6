"""pretrain_gpt.py of the checkout that MEGATRON_LM_PATH names trains on CPU, alike in every layout, and resumes."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.megatron_lm.rehearse import NATIVE_CPU
from launcher.rehearse.native import missing
from tests.rehearse.native.environments import python_with, torch_pin
from tests.rehearse.native.runs import Run, run_native

_ABSENT = missing(NATIVE_CPU, os.environ, version_of=lambda _name: "installed in the test's own environment")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_ABSENT), reason="; ".join(_ABSENT))]

SAME = 2e-6
"""Largest difference in loss (about 8, printed with 7 digits) between layouts that start from one checkpoint."""

DENSE = shlex.split(
    "--num-layers 4 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --seq-length 64 "
    "--max-position-embeddings 64 --swiglu --normalization RMSNorm --qk-layernorm --position-embedding-type rope "
    "--disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "
    "--micro-batch-size 2 --global-batch-size 8 --train-iters 20 --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine "
    "--lr-warmup-iters 2 --clip-grad 1.0 --mock-data --tokenizer-type NullTokenizer --vocab-size 4999 "
    "--make-vocab-size-divisible-by 128 --log-interval 1 --eval-interval 1000 --eval-iters 0 --num-workers 0 "
    "--seed 1234 --split 100,0,0 --ckpt-format torch_dist"
)
GROUPED_QUERIES = shlex.split("--group-query-attention --num-query-groups 2 --kv-channels 16")
EXPERTS = GROUPED_QUERIES + shlex.split(
    "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 64 --moe-router-load-balancing-type aux_loss "
    "--moe-aux-loss-coeff 1e-2 --moe-token-dispatcher-type alltoall --moe-router-dtype fp32 --moe-grouped-gemm --bf16 "
    "--use-distributed-optimizer"
)
LATENT = shlex.split(
    "--multi-latent-attention --q-lora-rank 32 --kv-lora-rank 32 --qk-head-dim 16 --qk-pos-emb-head-dim 16 "
    "--v-head-dim 16 --no-rope-fusion"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What one training printed: the loss of each iteration, by its number.

    The second one is left out: Megatron-LM prints the mean of the first two there (training/training.py, training_log).
    """

    run: Run
    losses: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """The environment and folder that all tests of this file share, and the checkpoint that layouts start from."""

    python: Path
    folder: Path


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    needs = [str(need) for need in NATIVE_CPU.requires if need.distribution != "torch"]
    python = python_with("megatron_lm", (torch_pin(),), (torch_pin(), *needs))
    return Workshop(python=python, folder=tmp_path_factory.mktemp("megatron_lm"))


def train(workshop: Workshop, ranks: int, *more: str) -> Training:
    """Start the checkout's script with torchrun and the arguments of a cluster; fails the test where it fails."""
    script = Path(os.environ["MEGATRON_LM_PATH"]) / "pretrain_gpt.py"
    torchrun = [str(workshop.python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    run = run_native(NATIVE_CPU, [*torchrun, str(script), *DENSE, *more], cwd=workshop.folder, env={}).check()
    found = re.findall(r"iteration +(\d+)/ .*?lm loss: ([0-9.E+-]+)", run.output)
    losses = {int(iteration): float(loss) for iteration, loss in found}
    losses.pop(min(losses) + 1)
    return Training(run=run, losses=losses)


def furthest(whole: Training, part: Training) -> float:
    """Return the largest difference in loss over the iterations of ``part``."""
    both = whole.losses.keys() & part.losses.keys()
    assert len(both) > 5
    return max(abs(whole.losses[iteration] - part.losses[iteration]) for iteration in both)


@pytest.fixture(scope="session")
def dense(workshop: Workshop) -> Training:
    """Twenty iterations on one rank, with checkpoints of iterations 10 and 20; a further load starts at 10."""
    training = train(workshop, 1, *GROUPED_QUERIES, "--save", str(workshop.folder / "dense"), "--save-interval", "10")
    (workshop.folder / "dense" / "latest_checkpointed_iteration.txt").write_text("10")
    return training


def test_one_rank_learns_and_says_what_ran(dense: Training) -> None:
    assert dense.losses[20] < dense.losses[1] - 0.3
    assert "rehearsal: Megatron-LM's pretrain_gpt.py itself, unmodified, on CPU" in dense.run.output


LAYOUTS: Mapping[str, Sequence[str]] = {
    "tp2": ("--tensor-model-parallel-size", "2"),
    "tp2_sp": ("--tensor-model-parallel-size", "2", "--sequence-parallel"),
    "pp2": ("--pipeline-model-parallel-size", "2"),
    "pp2_vpp2": ("--pipeline-model-parallel-size", "2", "--num-layers-per-virtual-pipeline-stage", "1"),
    "cp2": ("--context-parallel-size", "2"),
    "dp2": (),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_checkpoint_resumes_alike_in_every_layout(workshop: Workshop, dense: Training, layout: str) -> None:
    resumed = train(
        workshop, 2, "--load", str(workshop.folder / "dense"), "--no-load-rng", *GROUPED_QUERIES, *LAYOUTS[layout]
    )
    assert min(resumed.losses) == 11
    assert furthest(dense, resumed) < SAME


def test_distributed_optimizer_resumes(workshop: Workshop, dense: Training) -> None:
    folder = workshop.folder / "distributed"
    arguments = [*GROUPED_QUERIES, "--use-distributed-optimizer"]
    whole = train(workshop, 1, *arguments, "--save", str(folder), "--save-interval", "10")
    (folder / "latest_checkpointed_iteration.txt").write_text("10")
    assert furthest(dense, whole) < SAME
    assert furthest(whole, train(workshop, 1, *arguments, "--load", str(folder))) < SAME


MODELS: Mapping[str, tuple[int, Sequence[str]]] = {
    "experts": (1, EXPERTS),
    "experts_ep2": (2, [*EXPERTS, "--expert-model-parallel-size", "2"]),
    "latent_attention": (1, LATENT),
    "latent_attention_tp2": (2, [*LATENT, "--tensor-model-parallel-size", "2"]),
    "local_implementation": (1, ["--transformer-impl", "local", "--no-rope-fusion", "--no-persist-layer-norm"]),
}


@pytest.mark.parametrize("model", MODELS)
def test_other_models_learn(workshop: Workshop, model: str) -> None:
    ranks, arguments = MODELS[model]
    losses = train(workshop, ranks, *arguments).losses
    assert losses[20] < losses[1] - 0.3


def test_the_checkouts_own_validation_refuses(workshop: Workshop) -> None:
    script = Path(os.environ["MEGATRON_LM_PATH"]) / "pretrain_gpt.py"
    torchrun = [str(workshop.python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1"]
    wrong = [*DENSE, "--no-such-argument"]
    run = run_native(NATIVE_CPU, [*torchrun, str(script), *wrong], cwd=workshop.folder, env={})
    assert run.code != 0
    assert "unrecognized arguments: --no-such-argument" in run.output
