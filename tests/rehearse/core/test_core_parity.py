"""A layout changes where things are computed, not what: every layout trains like one process, from scratch."""

from collections.abc import Callable
from functools import cache

import pytest
from core_world import DENSE, MLA, MOE, Run, Zygote, split_args

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5

MODELS = {
    "dense": DENSE,
    "moe": [*DENSE, *MOE],
    "mla": MLA,
    "deepseek": [
        *MLA,
        *MOE,
        *split_args("--mtp-num-layers 1 --moe-router-score-function sigmoid --moe-router-enable-expert-bias"),
        *split_args(
            "--moe-shared-expert-intermediate-size 32 --moe-layer-freq ([0]*1+[1]*3) --moe-router-num-groups 2"
        ),
        *split_args("--moe-router-group-topk 1 --moe-router-topk-scaling-factor 2.5"),
    ],
}

# Expert parallelism is left out: which keys are selected is a step, and a rounding of 1e-7 moved a loss by 3e-5.
MODELS["sparse"] = [
    *MODELS["deepseek"],
    *split_args("--experimental-attention-variant dsa --dsa-indexer-n-heads 4 --dsa-indexer-head-dim 16"),
    *split_args("--dsa-indexer-topk 16 --dsa-indexer-loss-coeff 1.0 --dsa-indexer-use-sparse-loss"),
]

LAYOUTS = {
    "TP2": ("dense", "--tensor-model-parallel-size 2"),
    "TP2 SP": ("dense", "--tensor-model-parallel-size 2 --sequence-parallel"),
    "PP2": ("dense", "--pipeline-model-parallel-size 2"),
    "PP2 VPP2": ("dense", "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2"),
    "PP2 layout": ("dense", "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|tttL"),
    "CP2": ("dense", "--context-parallel-size 2"),
    "DP2 distributed optimizer": (
        "dense",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
    ),
    "MoE EP2": ("moe", "--expert-model-parallel-size 2"),
    "MoE TP2 SP EP2 ETP1": (
        "moe",
        "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
        "--expert-tensor-parallel-size 1",
    ),
    "MoE CP2 EP2": ("moe", "--context-parallel-size 2 --expert-model-parallel-size 2"),
    "MLA TP2": ("mla", "--tensor-model-parallel-size 2"),
    "MLA TP2 SP": ("mla", "--tensor-model-parallel-size 2 --sequence-parallel"),
    "DeepSeek PP2": ("deepseek", "--pipeline-model-parallel-size 2"),
    "DeepSeek EP2": ("deepseek", "--expert-model-parallel-size 2"),
    "sparse TP2 SP": ("sparse", "--tensor-model-parallel-size 2 --sequence-parallel"),
    "sparse PP2": ("sparse", "--pipeline-model-parallel-size 2"),
}


Alone = Callable[[str], Run]


@pytest.fixture(scope="module")
def alone(zygote: Zygote) -> Alone:
    """A model trained on one process, when it is asked for first."""
    return cache(lambda name: zygote.run(MODELS[name]))


@pytest.mark.sample(keep=2)
@pytest.mark.parametrize("model,layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_layout_trains_like_one_process(zygote: Zygote, alone: Alone, model: str, layout: str) -> None:
    run = zygote.run([*MODELS[model], *layout.split()], ranks=2)
    assert run.losses == pytest.approx(alone(model).losses, abs=TOLERANCE)
    assert run.summary["parameters"] == alone(model).summary["parameters"]


@pytest.mark.sample(keep=1)
@pytest.mark.parametrize("model", MODELS)
def test_training_learns(alone: Alone, model: str) -> None:
    run = alone(model)
    assert run.losses[-1] < run.losses[0] - 0.2


def test_experts_split_by_tensor_and_expert_parallelism_train_like_one_process(zygote: Zygote, alone: Alone) -> None:
    """Ranks that share an expert exchange different numbers of tokens, which gloo cannot gather as they are."""
    layout = split_args("--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2")
    run = zygote.run([*MODELS["moe"], *layout], ranks=4)
    assert run.losses == pytest.approx(alone("moe").losses, abs=TOLERANCE)


def test_recompute_changes_nothing(zygote: Zygote, alone: Alone) -> None:
    full = split_args("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    selective = split_args("--recompute-granularity selective --recompute-modules core_attn mlp")
    assert zygote.run([*DENSE, *full]).losses == pytest.approx(alone("dense").losses, abs=TOLERANCE)
    assert zygote.run([*DENSE, *selective]).losses == pytest.approx(alone("dense").losses, abs=TOLERANCE)
    every = split_args("--recompute-granularity selective --recompute-modules layernorm mla_up_proj moe shared_experts")
    assert zygote.run([*MODELS["deepseek"], *every]).losses == pytest.approx(alone("deepseek").losses, abs=TOLERANCE)
