"""Command lines drawn to see what Megatron-LM's validation changes in them."""

import random
from collections.abc import Sequence

from launcher.mapping.backend import get_backend
from tests.backends.megatron_lm import fuzzed, mutated, rule_cases
from tests.backends.mutated import Line, Mutations, changed

# Corners of the records in backends/megatron_lm/rules/effective_*.py that fuzzed.MOVES does not reach.
MOVES = (
    "-ffn-hidden-size",
    "-ffn-hidden-size -swiglu",
    "-global-batch-size",
    "-global-batch-size --tensor-model-parallel-size 2 --micro-batch-size 2",
    "-tokenizer-type",
    "-num-layers --encoder-num-layers 8",
    "-seq-length --encoder-seq-length 128",
    "-disable-bias-linear",
    "-position-embedding-type",
    "-position-embedding-type --use-rotary-position-embeddings",
    "-moe-ffn-hidden-size",
    "--num-experts 0 -expert-model-parallel-size -moe-grouped-gemm",
    "--num-experts 0 --encoder-tensor-model-parallel-size 1 -expert-model-parallel-size -moe-grouped-gemm",
    "-bf16 --fp16 --loss-scale 128",
    "-bf16 --fp16 --apply-query-key-layer-scaling",
    "--grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32",
    "--main-grads-dtype bf16 --use-precision-aware-optimizer --use-distributed-optimizer",
    "-mock-data --data-path d",
    "-mock-data --data-path d --split 9,1,0",
    "--replication-jump 4",
    "--async-save --use-persistent-ckpt-worker",
    "--async-save --ckpt-format torch",
    "--skip-train",
    "--use-mup",
    "--use-mup --mup-base-hidden-size 128",
    "--use-mup --mup-base-hidden-size 128 --mup-output-mult 0.25",
    "--megatron-fsdp-main-params-dtype auto",
    "--async-save --use-persistent-ckpt-worker --async-strategy mcore",
    "--moe-use-upcycling --save x --save-interval 10",
    "--fake-process-group",
    "--tiktoken-special-tokens a b",
    "--tiktoken-special-tokens a b --tokenizer-special-tokens c",
    "--no-weight-decay-cond-type apply_wd_to_qk_layernorm",
    "--phase-transition-iterations 200,100",
    "--phase-transition-iterations 100,200",
    "--moe-layer-recompute",
    "--moe-layer-recompute --recompute-modules mlp",
    "--moe-expert-capacity-factor -1.0",
    "--num-query-groups 4 --group-query-attention",
    "--no-rope-freq 4",
    "--no-rope-freq ([0]*4+[1]*4)",
    "--embedding-init-method-std 0.1",
    "--multi-latent-attention --no-rope-fusion",
    "--multi-latent-attention --rope-type rope --no-rope-fusion",
    "--moe-router-padding-for-fp8 --fp8-format hybrid",
    "--data-parallel-sharding-strategy optim_grads_params --use-distributed-optimizer",
    "--data-parallel-sharding-strategy optim_grads --use-distributed-optimizer",
    "--pipeline-model-parallel-split-rank 1 --pipeline-model-parallel-size 2",
    "--encoder-pipeline-model-parallel-size 1 --pipeline-model-parallel-size 1 -global-batch-size",
    "--pipeline-model-parallel-layout Ett|tt|tt|ttL --pipeline-model-parallel-size 2",
    "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 1",
    "--cuda-graph-impl local --cuda-graph-scope full",
    "--cuda-graph-impl local --cuda-graph-modules full",
    "--cuda-graph-impl local --cuda-graph-modules moe_router -moe-grouped-gemm -expert-model-parallel-size",
    "--cuda-graph-impl local --cuda-graph-modules full_iteration_inference",
    "--cuda-graph-modules full_iteration_inference",
    "--cuda-graph-modules full_iteration --no-check-for-nan-in-loss-and-grad",
    "--cuda-graph-impl full_iteration --no-check-for-nan-in-loss-and-grad",
    "--cuda-graph-impl local --inference-cuda-graph-scope block",
    "--optimizer dist_muon",
    "--optimizer muon --use-distributed-optimizer",
    "--ckpt-convert-format torch --ckpt-convert-save x --load y",
    "--use-megatron-fsdp --ckpt-format fsdp_dtensor --use-nccl-ub",
    "--eval-micro-batch-size 2",
    "--fp8-format e4m3 --fp8-recipe tensorwise",
    "--use-megatron-fsdp --ckpt-format fsdp_dtensor --megatron-fsdp-max-pool-double-buffer",
    "--dataloader-inter-document-masking",
    "--freeze-all-layers --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
    "--position-embedding-type yarn",
    "--moe-deepep-num-sms 8",
    "--tensor-parallel-num-weight-shards 2",
    "--cuda-graph-impl local --cuda-graph-scope moe_router -moe-grouped-gemm -expert-model-parallel-size",
    "--cuda-graph-impl transformer_engine --cuda-graph-scope attn",
    "--cuda-graph-impl transformer_engine --te-rng-tracker",
    "--use-torch-fsdp2 --no-gradient-accumulation-fusion -expert-model-parallel-size",
    "--use-torch-fsdp2 --no-gradient-accumulation-fusion --fp8-format hybrid --fp8-param-gather "
    "-expert-model-parallel-size",
    "--use-megatron-fsdp --ckpt-format fsdp_dtensor --fsdp-manual-registration --use-nccl-ub --fp8-format e4m3 "
    "--fp8-recipe mxfp8 --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag",
    "--use-megatron-fsdp --ckpt-format fsdp_dtensor",
    "--weight-decay 0.1",
    "--weight-decay-incr-style linear --start-weight-decay 0.1 --end-weight-decay 0.2",
    "--microbatch-group-size-per-virtual-pipeline-stage 4 --pipeline-model-parallel-size 2",
    "--sequence-parallel --tensor-model-parallel-size 2",
)
# FSDP wants more connections than one (arguments.py:519 @core_v0.12.1).
_FSDP = ("--use-torch-fsdp2", "--use-megatron-fsdp", "--use-custom-fsdp")


def lines(
    backend: str,
    version: str,
    count: int,
    seed: int,
    *,
    moves: Sequence[str] = MOVES,
    corners: int | None = None,
    bases: Sequence[Line] = (),
    mutations: Mutations = mutated.MUTATIONS,
) -> list[Line]:
    """Return both bases, every move alone, and `count` arguments alone, mixtures of moves and changed real lines each.

    Args:
        corners: number of the moves that are asked about alone; None: all.
        bases: real command lines, changed by the mutations; none: none are drawn.
    """
    draw = random.Random(seed)
    catalogue = get_backend(backend).catalogue(version)
    moves = (*moves, *fuzzed.MOVES)
    every = list(fuzzed.lines(catalogue, count, seed, moves))
    alone, mixtures = every[:-count], every[-count:]
    known = [(moe, changes) for moe, changes in alone if changes in moves]
    single = [case for case in alone if case not in known]
    known = known if corners is None else draw.sample(known, min(corners, len(known)))
    cases = [(False, ""), (True, ""), *known, *draw.sample(single, min(count, len(single))), *mixtures]
    found = [made(backend, version, changes, moe=moe) for moe, changes in cases]
    return [*found, *(changed(bases, mutations, count, seed) if bases else ())]


def made(backend: str, version: str, changes: str, *, moe: bool) -> Line:
    """Return a base command line with changes; its name says which."""
    values = rule_cases.values(get_backend(backend), version, changes, moe=moe)
    argv = tuple(rule_cases.argv_of(values))
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "8" if any(arg in _FSDP for arg in argv) else "1"}
    return Line(name=f"{'moe' if moe else 'dense'} {changes}", argv=argv, world_size=rule_cases.WORLD, env=env)
