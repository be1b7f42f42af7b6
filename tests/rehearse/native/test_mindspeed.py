"""MindSpeed-LLM's own pretrain_gpt.py, from named checkouts, trains and resumes on CPU with the argv of dry-run."""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from backends.mindspeed.rehearse import NATIVE_CPU
from launcher.rehearse.native import missing
from tests.rehearse.native.environments import mindspeed_python
from tests.rehearse.native.plans import native_plan, words_after
from tests.rehearse.native.runs import Run, run_native
from tests.rehearse.native.tiny_models import make_tokenizer, write_data
from tests.rehearse.native.token_file import write_token_file

_ABSENT = missing(NATIVE_CPU, os.environ, version_of=lambda _name: "installed in the test's own environment")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(_ABSENT), reason="; ".join(_ABSENT))]

SAME = 2e-6
"""Largest difference in loss (printed with 7 digits) between runs that continue one checkpoint."""

UPSTREAM_QWEN3_MOE = shlex.split(
    """
    --use-mcore-models --spec mindspeed_llm.tasks.models.spec.qwen3_spec layer_spec --transformer-impl local
    --num-layers 4 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --group-query-attention
    --num-query-groups 2 --kv-channels 16 --qk-layernorm --norm-topk-prob --max-position-embeddings 64
    --seq-length 64 --rotary-base 1000000 --norm-epsilon 1e-6 --untie-embeddings-and-output-weights
    --disable-bias-linear --position-embedding-type rope --normalization RMSNorm --swiglu
    --attention-softmax-in-fp32 --no-gradient-accumulation-fusion --ckpt-format torch --tokenizer-type
    NullTokenizer --vocab-size 127 --make-vocab-size-divisible-by 64 --num-experts 8 --moe-router-topk 2
    --moe-ffn-hidden-size 64 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.001
    --moe-grouped-gemm --moe-permutation-async-comm --moe-token-dispatcher-type alltoall_seq --moe-layer-freq -1
    --first-k-dense-replace -1 --use-flash-attn --use-fused-rotary-pos-emb --sequence-parallel
    --use-rotary-position-embeddings --use-fused-swiglu --use-fused-rmsnorm --no-masked-softmax-fusion
    --use-distributed-optimizer --gemm-gradient-accumulation-fusion --recompute-method uniform
    --recompute-granularity full --recompute-num-layers 1 --micro-batch-size 2 --global-batch-size 8 --lr 3e-3
    --min-lr 3e-4 --lr-decay-style cosine --weight-decay 1e-1 --lr-warmup-fraction 0.01 --attention-dropout 0.0
    --hidden-dropout 0.0 --init-method-std 0.01 --clip-grad 1.0 --adam-beta1 0.9 --adam-beta2 0.95
    --initial-loss-scale 4096 --seed 42 --bf16 --train-iters 20 --no-shared-storage --manual-gc
    --manual-gc-interval 15 --split 100,0,0 --log-interval 1 --eval-interval 1000 --eval-iters 0
    --distributed-backend nccl --expert-model-parallel-size 2
    """
)
"""The flags of upstream's examples/mcore/qwen3_moe/pretrain_qwen3_30b_a3b_4K_ptd.sh (master), tiny, on two ranks."""


SMALL = (
    "schedule.train_iters=20",
    "schedule.lr_warmup_iters=2",
    "batch.global_batch_size=8",
    "batch.seq_length=64",
    "checkpoint.save_interval=10",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """The environment, folder and tokens that all tests of this file share."""

    python: Path
    folder: Path
    tokens: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What one training printed: the loss of each iteration, by its number."""

    run: Run
    losses: Mapping[int, float]


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    python = mindspeed_python()
    folder = tmp_path_factory.mktemp("mindspeed")
    return Workshop(python=python, folder=folder, tokens=write_token_file(folder / "tokens"))


def cluster_argv(workshop: Workshop, recipe: str, *more: str) -> list[str]:
    """Return pretrain_gpt.py's arguments on the cluster, for a recipe with 20 small iterations on the test's tokens."""
    data = ["data.format=megatron", f"data.paths=[{workshop.tokens}]", f"data.cache_path={workshop.folder / 'cache'}"]
    plan, _ = native_plan([f"+recipe={recipe}", "backend=mindspeed", *SMALL, *data, *more])
    return words_after(plan, "pretrain_gpt.py", workshop.folder)


def train(workshop: Workshop, ranks: int, argv: list[str], script_name: str = "pretrain_gpt.py") -> Training:
    """Start upstream's script with torchrun; fails the test where it fails."""
    checkout = Path(os.environ["MINDSPEED_LLM_PATH"])  # the working directory too, as in the plan
    torchrun = [str(workshop.python), "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)]
    run = run_native(
        NATIVE_CPU, [*torchrun, str(checkout / script_name), *argv], cwd=checkout, env=dict(NATIVE_CPU.env)
    ).check()
    found = re.findall(r"iteration +(\d+)/.*?lm loss: ([0-9.E+-]+)", run.output)
    return Training(run=run, losses={int(iteration): float(loss) for iteration, loss in found})


def resume_at_ten(workshop: Workshop, ranks: int, argv: list[str], folder: Path) -> Training:
    """Continue the checkpoint of iteration 10 below ``folder`` to iteration 20."""
    (folder / "latest_checkpointed_iteration.txt").write_text("10")
    return train(workshop, ranks, [*argv, "--load", str(folder), "--no-load-rng"])


def furthest(whole: Training, part: Training) -> float:
    """Return the largest difference in loss over iterations 11 to 20."""
    assert sorted(part.losses) == list(range(11, 21))
    return max(abs(whole.losses[iteration] - loss) for iteration, loss in part.losses.items())


def test_one_rank_learns_and_continues_on_two_tensor_parallel_ranks(workshop: Workshop) -> None:
    folder, plain = workshop.folder / "dense", "parallel.distributed_optimizer=false"
    one = train(workshop, 1, cluster_argv(workshop, "tiny_qwen3", plain, f"checkpoint.save={folder}"))
    assert one.losses[20] < one.losses[1] - 2.0
    assert "rehearsal: MindSpeed-LLM's own training script" in one.run.output
    two = cluster_argv(workshop, "tiny_qwen3", plain, "cluster.devices_per_node=2", "parallel.tp=2")
    assert furthest(one, resume_at_ten(workshop, 2, two, folder)) < SAME


def test_expert_parallel_ranks_learn_and_resume(workshop: Workshop) -> None:
    folder, layout = workshop.folder / "experts", ("cluster.devices_per_node=2", "parallel.ep=2")
    whole = train(workshop, 2, cluster_argv(workshop, "tiny_qwen3_moe", *layout, f"checkpoint.save={folder}"))
    assert whole.losses[20] < whole.losses[1] - 2.0
    resumed = resume_at_ten(workshop, 2, cluster_argv(workshop, "tiny_qwen3_moe", *layout), folder)
    assert furthest(whole, resumed) < SAME


def test_latent_attention_with_multi_token_prediction_learns(workshop: Workshop) -> None:
    # Its dense first layers do not fit the torch_dist format: dist_checkpointing refuses their keys.
    argv = cluster_argv(workshop, "tiny_deepseek_v3", f"checkpoint.save={workshop.folder / 'latent'}")
    losses = train(workshop, 1, [*argv, "--ckpt-format", "torch"]).losses
    assert losses[20] < losses[1] - 2.0


def test_the_flags_of_upstreams_own_example_train(workshop: Workshop) -> None:
    data = ["--data-path", str(workshop.tokens), "--data-cache-path", str(workshop.folder / "cache")]
    losses = train(workshop, 2, [*UPSTREAM_QWEN3_MOE, *data]).losses
    assert losses[20] < losses[1] - 1.5


def test_chat_messages_fine_tune_through_upstreams_own_preprocessing(workshop: Workshop) -> None:
    folder = workshop.folder / "chat"
    folder.mkdir()
    messages, tokenizer = write_data(folder)["sft"], make_tokenizer(workshop.python, folder)
    data = ["data.format=messages", f"data.paths=[{messages}]", f"tokenizer.path={tokenizer}", "tokenizer.type=null"]
    save = f"checkpoint.save={folder / 'saved'}"
    plan, _ = native_plan(["+recipe=tiny_qwen3", "backend=mindspeed", "task=sft", *SMALL, *data, save])
    argv = words_after(plan, "posttrain_gpt.py", folder)
    losses = train(workshop, 1, argv, "posttrain_gpt.py").losses
    assert losses[20] < losses[1] - 2.0
