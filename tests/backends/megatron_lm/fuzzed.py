"""Command lines with Megatron's arguments drawn at random: single arguments, constraints in pairs and threes."""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from launcher.catalogue.catalogue import Argument, Catalogue

# Several changes that belong together: the corners where checks meet.
MOVES: Sequence[str] = (
    "--tensor-model-parallel-size 2",
    "--tensor-model-parallel-size 3",
    "--tensor-model-parallel-size 4 --sequence-parallel",
    "--tensor-model-parallel-size 8",
    "--pipeline-model-parallel-size 2",
    "--pipeline-model-parallel-size 4",
    "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
    "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1",
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
    "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 3",
    "--num-virtual-stages-per-pipeline-rank 2",
    "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4",
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 1",
    "--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 3",
    "--pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 2",
    "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
    "--pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split",
    "--pipeline-model-parallel-layout Et*4|t*4L --pipeline-model-parallel-size 2",
    "--num-layers 6",
    "--num-layers 7",
    "--num-layers 10",
    "--context-parallel-size 2",
    "--context-parallel-size 4",
    "--context-parallel-size 2 --cp-comm-type a2a",
    "--context-parallel-size 4 --hierarchical-context-parallel-sizes 2 2 --cp-comm-type a2a+p2p",
    "--seq-length 129",
    "--seq-length 130",
    "--seq-length 8192",
    "--expert-model-parallel-size 4",
    "--expert-model-parallel-size 3",
    "--expert-model-parallel-size 1",
    "--expert-tensor-parallel-size 2",
    "--expert-tensor-parallel-size 1",
    "--sequence-parallel",
    "--group-query-attention --num-query-groups 2",
    "--group-query-attention --num-query-groups 3",
    "--num-query-groups 4",
    "--num-attention-heads 6",
    "--num-attention-heads 12 --kv-channels 32",
    "--hidden-size 250",
    "--ffn-hidden-size 510",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 9",
    "--recompute-granularity full --recompute-num-layers 1",
    "--recompute-granularity full --recompute-method uniform",
    "--recompute-granularity selective",
    "--recompute-granularity selective --recompute-method block",
    "--recompute-granularity selective --recompute-num-layers 1",
    "--recompute-granularity selective --recompute-modules moe mlp",
    "--recompute-granularity selective --recompute-modules core_attn moe_act layernorm",
    "--recompute-method block --recompute-num-layers 1",
    "--recompute-activations",
    "--recompute-activations --recompute-modules mla_up_proj",
    "--overlap-param-gather-with-optimizer-step --use-distributed-optimizer --overlap-param-gather "
    "--overlap-grad-reduce --ckpt-format torch",
    "--distribute-saved-activations",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1 --distribute-saved-activations",
    "--use-distributed-optimizer",
    "--use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce",
    "--overlap-param-gather --overlap-grad-reduce",
    "--use-distributed-optimizer --overlap-param-gather",
    "--optimizer sgd",
    "--optimizer sgd --use-distributed-optimizer",
    "--fp16",
    "-bf16 --fp16",
    "-bf16",
    "--fp8-format hybrid",
    "--fp8-format e4m3 --fp8-recipe mxfp8",
    "--fp8-format hybrid --fp8-param-gather",
    "--moe-token-dispatcher-type allgather",
    "--moe-token-dispatcher-type alltoall",
    "--moe-token-dispatcher-type flex",
    "--moe-token-dispatcher-type flex --moe-enable-deepep",
    "--moe-enable-deepep",
    "--moe-expert-capacity-factor 1.0",
    "--moe-expert-capacity-factor -1 --moe-pad-expert-input-to-capacity",
    "--moe-expert-capacity-factor 1.0 --moe-pad-expert-input-to-capacity",
    "--moe-pad-expert-input-to-capacity",
    "--moe-router-topk 9",
    "--moe-router-topk 1",
    "--moe-router-topk 1 --moe-router-pre-softmax",
    "--moe-router-num-groups 4 --moe-router-group-topk 2",
    "--moe-router-num-groups 3 --moe-router-group-topk 2",
    "--moe-router-num-groups 4 --moe-router-group-topk 5",
    "--moe-router-enable-expert-bias",
    "--moe-router-enable-expert-bias --moe-router-score-function sigmoid",
    "--moe-router-load-balancing-type sinkhorn",
    "--moe-router-load-balancing-type none",
    "--moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.01",
    "--moe-shared-expert-intermediate-size 128",
    "--moe-shared-expert-intermediate-size 128 --moe-shared-expert-overlap",
    "--moe-shared-expert-overlap",
    "--moe-shared-expert-intermediate-size 0",
    "--moe-layer-freq 2",
    "--moe-layer-freq ([1]*8)",
    "--moe-layer-freq ([0]*3+[1]*5)",
    "--moe-layer-freq ([1]*7)",
    "-moe-grouped-gemm",
    "-num-experts -moe-router-topk -expert-model-parallel-size",
    "-num-experts",
    "--num-experts 6",
    "--multi-latent-attention --kv-lora-rank 32 --qk-head-dim 16 --qk-pos-emb-head-dim 8 --v-head-dim 16",
    "--multi-latent-attention",
    "--multi-latent-attention --group-query-attention --num-query-groups 2",
    "--qk-layernorm",
    "--mtp-num-layers 1",
    "--mtp-num-layers 1 --pipeline-model-parallel-size 2",
    "--position-embedding-type none",
    "--position-embedding-type learned_absolute",
    "--position-embedding-type yarn",
    "--rotary-percent 0.5",
    "--rotary-interleaved",
    "--no-rope-fusion",
    "--transformer-impl local",
    "--train-samples 6400 -train-iters",
    "--train-samples 6400",
    "--train-samples 6400 -train-iters --lr-warmup-samples 64",
    "--lr-warmup-fraction 0.1",
    "--lr-warmup-iters 10",
    "--lr-warmup-iters 100",
    "--lr-warmup-fraction 0.1 --lr-warmup-iters 5",
    "--lr-decay-iters 50",
    "--lr-decay-style WSD --lr-wsd-decay-iters 10",
    "--global-batch-size 60",
    "--global-batch-size 6",
    "--micro-batch-size 3",
    "--micro-batch-size 2",
    "--rampup-batch-size 8 8 100",
    "--rampup-batch-size 8 8 100 --train-samples 6400 -train-iters",
    "--min-lr 0.01",
    "--save x --save-interval 10",
    "--save x",
    "--save-interval 10",
    "--load x",
    "--load x --no-load-optim --no-load-rng --finetune",
    "--use-dist-ckpt --dist-ckpt-format zarr",
    "--ckpt-format torch",
    "--ckpt-format torch_dist --use-distributed-optimizer",
    "--async-save",
    "--async-save --save x --save-interval 10 --ckpt-format torch_dist",
    "--data-path d",
    "--data-path d -mock-data",
    "-mock-data",
    "--split 100,0,0 --data-path d -mock-data",
    "--train-data-path d -mock-data",
    "--vocab-size 512",
    "-vocab-size",
    "--untie-embeddings-and-output-weights",
    "-untie-embeddings-and-output-weights",
    "--add-qkv-bias",
    "--use-flash-attn",
    "--attention-backend flash",
    "--attention-softmax-in-fp32",
    "--apply-query-key-layer-scaling",
    "--no-persist-layer-norm",
    "--normalization LayerNorm",
    "--tp-comm-overlap",
    "--tp-comm-overlap --tensor-model-parallel-size 2 --sequence-parallel",
    "--cross-entropy-loss-fusion",
    "--gradient-accumulation-fusion",
    "--no-gradient-accumulation-fusion",
    "--accumulate-allreduce-grads-in-fp32",
    "--grad-reduce-in-bf16",
    "--use-torch-fsdp2",
    "--use-cpu-initialization",
    "--reset-attention-mask --reset-position-ids",
    "--eod-mask-loss",
    "--dataloader-type cyclic",
    "--manual-gc --manual-gc-interval 5",
    "--manual-gc-interval 5",
    "--exit-interval 5",
    "--cpu-offloading-num-layers 2",
    "--cpu-offloading-num-layers 2 --cpu-offloading",
    "--optimizer-cpu-offload",
    "--use-precision-aware-optimizer",
    "--use-precision-aware-optimizer --use-distributed-optimizer",
    "--overlap-moe-expert-parallel-comm",
    "--delay-wgrad-compute",
    "--enable-cuda-graph",
    "--external-cuda-graph",
    "--external-cuda-graph --recompute-activations",
    "--external-cuda-graph --recompute-activations --attention-dropout 0",
    "--cuda-graph-impl local --cuda-graph-scope moe_preprocess",
    "--cuda-graph-impl local --cuda-graph-scope attn --recompute-activations",
    "--cuda-graph-impl transformer_engine --cuda-graph-scope mlp attn",
    "--cuda-graph-impl transformer_engine --cuda-graph-scope moe",
    "--cuda-graph-impl transformer_engine --cuda-graph-scope full_iteration",
    "--encoder-tensor-model-parallel-size 2",
    "--encoder-tensor-model-parallel-size 2 --tensor-model-parallel-size 2",
    "--encoder-pipeline-model-parallel-size 1",
    "--encoder-pipeline-model-parallel-size 2",
    "--pipeline-model-parallel-split-rank 1",
    "--non-persistent-ckpt-type None",
    "--data-parallel-sharding-strategy optim_grads_params",
    "--heterogeneous-layers-config-path h",
    "--deterministic-mode",
    "--window-size 64,0",
    "--attention-dropout 0.1",
    "--init-method-std 0.0",
    "--microbatch-group-size-per-virtual-pipeline-stage 4",
    "--inference-batch-times-seqlen-threshold 1",
    "--defer-embedding-wgrad-compute",
    "--no-overlap-p2p-communication",
    "--overlap-p2p-communication-warmup-flush",
    "--use-tp-pp-dp-mapping",
    "--num-distributed-optimizer-instances 2",
    "--data-parallel-sharding-strategy optim",
    "--use-custom-fsdp --data-parallel-sharding-strategy optim_grads_params",
    "--ckpt-fully-parallel-load",
    "--log-interval 0",
    "--eval-iters 10 --eval-interval 10",
    "--weight-decay 0.1 --start-weight-decay 0.1 --end-weight-decay 0.2",
    "--start-weight-decay 0.1",
    "--weight-decay-incr-style linear",
    "--squared-relu",
    "-swiglu --squared-relu",
    "--loss-scale 128",
    "--decoupled-lr 0.1",
    "--decoupled-min-lr 0.1",
)
# Not about training: they end the parser, start other programs, or need files.
SKIPPED = ("help", "version", "yaml-cfg", "config-logger-dir", "use-checkpoint-args", "exit-on-missing-checkpoint")
_NUMBERS: dict[str, Sequence[Any]] = {"int": (0, 1, 2, 3, 8), "float": (0.0, 0.1, 1.0, 2.0)}


def lines(catalogue: Catalogue, count: int, seed: int, moves: Sequence[str] = MOVES) -> Iterator[tuple[bool, str]]:
    """Yield (on the MoE base, changes of the base): first every argument alone, then `count` mixtures of moves."""
    draw = random.Random(seed)
    for argument in catalogue.arguments:
        if argument.name not in SKIPPED:
            for args in _alone(argument, draw):
                yield draw.random() < 0.5, args
    known = [move for move in moves if _is_known(move, catalogue)]
    for move in known:
        yield True, move
        yield False, move
    for _ in range(count):
        taken = draw.sample(known, draw.choice((2, 2, 2, 3, 4)))
        yield draw.random() < 0.6, " ".join(taken)


def _is_known(move: str, catalogue: Catalogue) -> bool:
    args = move.split()
    for flag, value in zip(args, [*args[1:], ""], strict=True):
        argument = catalogue.get(flag) if flag.startswith("--") else None
        if flag.startswith("--") and argument is None:
            return False
        if argument is not None and argument.type == "int" and not value.lstrip("-").isdigit():
            return False  # 0.8 counts layers of experts, later versions take a pattern
    return True


def _alone(argument: Argument, draw: random.Random) -> Iterator[str]:
    flag = f"--{argument.name}"
    if argument.is_flag:
        yield flag
    elif argument.choices:
        yield from (f"{flag} {draw.choice(argument.choices)}" for _ in range(2))
    elif argument.type in _NUMBERS:
        values = _NUMBERS[argument.type]
        if argument.is_list:
            yield f"{flag} {' '.join(str(draw.choice(values)) for _ in range(_length(argument, draw)))}"
        else:
            yield from (f"{flag} {value}" for value in draw.sample(values, 2))


def _length(argument: Argument, draw: random.Random) -> int:
    return argument.nargs if isinstance(argument.nargs, int) else draw.choice((1, 2))
