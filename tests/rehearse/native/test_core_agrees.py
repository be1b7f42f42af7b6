"""The embedded trainer continues what pretrain_gpt.py of a checkout saved: the same samples, the same losses."""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from backends.megatron_lm.rehearse import NATIVE_CPU
from launcher.rehearse.core.options import DataOptions
from launcher.rehearse.native import missing
from tests.rehearse.native.environments import python_with, torch_pin
from tests.rehearse.native.runs import run_native

sys.path.append(str(Path(__file__).parents[1] / "core"))
from core_world import Zygote
from token_files import write_tokens

_ABSENT = missing(NATIVE_CPU, os.environ, version_of=lambda _name: "installed in the test's own environment")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_ABSENT), reason="; ".join(_ABSENT))]

RELATIVE = 2e-7
"""pretrain_gpt.py prints seven digits."""

COMMON = shlex.split(
    "--num-layers 4 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --seq-length 64 "
    "--max-position-embeddings 64 --swiglu --normalization RMSNorm --qk-layernorm --position-embedding-type rope "
    "--disable-bias-linear --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 "
    "--group-query-attention --num-query-groups 2 --kv-channels 16 --micro-batch-size 2 --global-batch-size 8 "
    "--train-iters 6 --lr 3e-3 --min-lr 3e-4 --lr-decay-style cosine --lr-warmup-iters 2 --clip-grad 1.0 "
    "--tokenizer-type NullTokenizer --vocab-size 255 --make-vocab-size-divisible-by 128 --log-interval 1 "
    "--num-workers 0 --seed 1234 --ckpt-format torch_dist --save-interval 3"
)
EXPERTS = shlex.split(
    "--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 64 --moe-router-load-balancing-type aux_loss "
    "--moe-aux-loss-coeff 1e-2 --moe-token-dispatcher-type alltoall --moe-router-dtype fp32 --moe-grouped-gemm"
)
RESHARDABLE = shlex.split("--use-distributed-optimizer --dist-ckpt-optim-fully-reshardable")
NONE = shlex.split("--split 100,0,0 --eval-interval 1000 --eval-iters 0")
SOME = shlex.split("--split 80,20,0 --eval-interval 2 --eval-iters 2")

# name: arguments, ranks of pretrain_gpt.py, the trainer's further arguments and ranks
CASES: Mapping[str, tuple[Sequence[str], int, Sequence[str], int]] = {
    "dense": ((*COMMON, *NONE), 1, (), 1),
    "dense, validation": ((*COMMON, *SOME), 1, (), 1),
    "dense tp2": ((*COMMON, *NONE), 1, ("--tensor-model-parallel-size", "2"), 2),
    "dense pp2 from tp2": (
        (*COMMON, *NONE),
        2,
        ("--pipeline-model-parallel-size", "2", "--tensor-model-parallel-size", "1"),
        2,
    ),
    "experts": ((*COMMON, *NONE, *EXPERTS), 1, (), 1),
    "experts ep2": ((*COMMON, *NONE, *EXPERTS, *RESHARDABLE, "--expert-model-parallel-size", "2"), 2, (), 2),
    "documents masked": ((*COMMON, *NONE, "--eod-mask-loss", "--reset-position-ids"), 1, (), 1),
}


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("ranks")) as process:
        yield process


def documents(folder: Path, name: str, seed: int) -> str:
    import numpy

    random = numpy.random.default_rng(seed)
    lengths = random.integers(20, 400, 60)
    return write_tokens(folder / name, [numpy.append(random.integers(0, 255, int(count)), 255) for count in lengths])


@pytest.mark.parametrize("argv,ranks,layout,trainers", CASES.values(), ids=CASES.keys())
def test_losses_are_those_of_pretrain_gpt(
    zygote: Zygote, tmp_path: Path, argv: Sequence[str], ranks: int, layout: Sequence[str], trainers: int
) -> None:
    needs = [str(need) for need in NATIVE_CPU.requires if need.distribution != "torch"]
    python = python_with("megatron_lm", (torch_pin(),), (torch_pin(), *needs))
    script = Path(os.environ["MEGATRON_LM_PATH"]) / "pretrain_gpt.py"
    torchrun = [str(python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    blend = ["0.3", documents(tmp_path, "one", 1), "0.7", documents(tmp_path, "two", 2)]
    split = ["--tensor-model-parallel-size", "2"] if ranks > 1 and "--num-experts" not in argv else []
    words = [*argv, "--data-path", *blend, "--data-cache-path", str(tmp_path / "cache"), *split]
    saved = tmp_path / "saved"
    native = run_native(
        NATIVE_CPU, [*torchrun, str(script), *words, "--save", str(saved)], cwd=tmp_path, env={}
    ).check()
    losses = [float(loss) for loss in re.findall(r"iteration +\d+/.*?lm loss: ([0-9.E+-]+)", native.output)]
    validation = re.findall(r"validation loss at iteration (\d+) \| lm loss value: ([0-9.E+-]+)", native.output)
    (saved / "latest_checkpointed_iteration.txt").write_text("3")
    run = zygote.run(
        [*words, *layout, "--load", str(saved)], ranks=trainers, data=DataOptions(kind="megatron", paths=())
    )
    assert run.losses == pytest.approx(losses[3:], rel=RELATIVE)
    found = dict(run.summary["validation_losses"])
    assert found == {int(at): pytest.approx(float(loss), rel=RELATIVE) for at, loss in validation if int(at) > 3}
