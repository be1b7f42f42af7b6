"""Checks that need the arguments only; each problem names its flags and what would work."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from launcher.rehearse.core.arguments import Arguments
from launcher.rehearse.core.stages import layers_to_split

_REQUIRED = ("hidden_size", "num_attention_heads", "micro_batch_size", "lr", "max_position_embeddings")
_INTERLEAVINGS = (
    "num_layers_per_virtual_pipeline_stage",
    "num_virtual_stages_per_pipeline_rank",
    "pipeline_model_parallel_layout",
)
_AT_LEAST_ONE = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "train_iters",
    "train_samples",
    "save_interval",
    "log_interval",
)


def problems_of(arguments: Arguments, world_size: int) -> list[str]:
    """List all problems at once; the rules that need valid numbers run only when the first ones pass."""
    problems = [*_missing(arguments), *_not_positive(arguments)]
    if problems:
        return problems
    rules = (_world, _batch, _layers, _attention, _experts, _schedule, _precision, _checkpoint)
    return [problem for rule in rules for problem in rule(arguments, world_size)]


def _missing(arguments: Arguments) -> Iterator[str]:
    for dest in _REQUIRED:
        if getattr(arguments, dest) is None:
            yield f"--{dest.replace('_', '-')} is missing"
    if arguments.num_layers is None and arguments.encoder_num_layers is None:
        yield "--num-layers is missing"
    if arguments.seq_length is None and arguments.encoder_seq_length is None:
        yield "--seq-length is missing"
    if not arguments.train_iters and not arguments.train_samples:
        yield "--train-iters or --train-samples is missing"


def _not_positive(arguments: Arguments) -> Iterator[str]:
    for dest in _AT_LEAST_ONE:
        value = getattr(arguments, dest)
        if value is not None and value < 1:
            yield f"{arguments.flag(dest)} {value}: must be at least 1"


def _world(arguments: Arguments, world_size: int) -> Iterator[str]:
    tp, pp, cp = (
        arguments.tensor_model_parallel_size,
        arguments.pipeline_model_parallel_size,
        arguments.context_parallel_size,
    )
    if world_size % (tp * pp * cp):
        yield f"{world_size} process(es) cannot be divided by tp {tp} x pp {pp} x cp {cp} = {tp * pp * cp}"
        return
    ep, etp = arguments.expert_model_parallel_size, arguments.expert_tensor_parallel_size or tp
    instances = arguments.num_distributed_optimizer_instances
    if instances > 1 and find_spec("einops") is None:
        # megatron-core 0.16.1 parallel_state.py:383 arranges the ranks of several instances with it.
        yield f"--num-distributed-optimizer-instances {instances} needs einops; works: pip install einops"
    if world_size % (etp * ep * pp):
        yield f"{world_size} process(es) cannot be divided by etp {etp} x ep {ep} x pp {pp} = {etp * ep * pp}"


def _batch(arguments: Arguments, world_size: int) -> Iterator[str]:
    model = (
        arguments.tensor_model_parallel_size * arguments.pipeline_model_parallel_size * arguments.context_parallel_size
    )
    replicas, batch, micro = world_size // model, arguments.global_batch_size, arguments.micro_batch_size
    if replicas and batch and batch % (micro * replicas):
        yield (
            f"--global-batch-size {batch} is not divisible by --micro-batch-size {micro} x data parallel {replicas} = "
            f"{micro * replicas}"
        )
    seq, cp = arguments.seq_length or arguments.encoder_seq_length, arguments.context_parallel_size
    if cp > 1 and seq % (2 * cp):
        yield f"--seq-length {seq} is not divisible by 2 x --context-parallel-size {cp} = {2 * cp}"
    if arguments.max_position_embeddings < seq:
        yield f"--max-position-embeddings {arguments.max_position_embeddings} is smaller than --seq-length {seq}"
    if arguments.sequence_parallel and seq % (arguments.tensor_model_parallel_size * cp):
        yield f"--seq-length {seq} is not divisible by tp x cp, as --sequence-parallel needs"


def _layers(arguments: Arguments, world_size: int) -> Iterator[str]:
    pp, layers = arguments.pipeline_model_parallel_size, layers_to_split(arguments)
    uneven = arguments.decoder_first_pipeline_num_layers or arguments.decoder_last_pipeline_num_layers
    given = [arguments.flag(way) for way in _INTERLEAVINGS if getattr(arguments, way) is not None]
    if len(given) > 1:
        yield f"{' and '.join(given)} exclude each other; works: one of them"
    elif arguments.pipeline_model_parallel_layout is None and not uneven and layers % pp:
        yield f"--num-layers {layers} is not divisible by --pipeline-model-parallel-size {pp}"
    chunk = arguments.num_layers_per_virtual_pipeline_stage
    if chunk and not layers % pp and (layers // pp) % chunk:
        yield f"{layers // pp} layers a stage are not divisible by --num-layers-per-virtual-pipeline-stage {chunk}"
    if (chunk or arguments.num_virtual_stages_per_pipeline_rank) and pp == 1:
        yield "interleaved pipeline stages need --pipeline-model-parallel-size of at least 2"


def _attention(arguments: Arguments, world_size: int) -> Iterator[str]:
    heads, tp = arguments.num_attention_heads, arguments.tensor_model_parallel_size
    if heads % tp:
        yield f"--num-attention-heads {heads} is not divisible by --tensor-model-parallel-size {tp}"
    if arguments.kv_channels is None and arguments.hidden_size % heads:
        yield f"--hidden-size {arguments.hidden_size} is not divisible by --num-attention-heads {heads}"
    if arguments.group_query_attention and heads % arguments.num_query_groups:
        yield f"--num-attention-heads {heads} is not divisible by --num-query-groups {arguments.num_query_groups}"
    if arguments.multi_latent_attention and arguments.group_query_attention:
        yield "--multi-latent-attention and --group-query-attention exclude each other"
    if arguments.swiglu and (arguments.squared_relu or arguments.quick_geglu):
        yield "--swiglu, --squared-relu and --quick-geglu exclude each other"


def _experts(arguments: Arguments, world_size: int) -> Iterator[str]:
    experts, ep = arguments.num_experts, arguments.expert_model_parallel_size
    if not experts:
        if ep > 1:
            yield f"--expert-model-parallel-size {ep} needs --num-experts"
        return
    if experts % ep:
        yield f"--num-experts {experts} is not divisible by --expert-model-parallel-size {ep}"
    if arguments.moe_router_topk > experts:
        yield f"--moe-router-topk {arguments.moe_router_topk} is larger than --num-experts {experts}"
    if arguments.tensor_model_parallel_size > 1 and not arguments.sequence_parallel:
        yield "experts with --tensor-model-parallel-size above 1 need --sequence-parallel"


def _schedule(arguments: Arguments, world_size: int) -> Iterator[str]:
    if arguments.train_iters and arguments.train_samples:
        yield "--train-iters and --train-samples exclude each other"
    if arguments.min_lr > arguments.lr:
        yield f"--min-lr {arguments.min_lr} is larger than --lr {arguments.lr}"
    if arguments.lr_warmup_fraction is not None and (arguments.lr_warmup_iters or arguments.lr_warmup_samples):
        yield "--lr-warmup-fraction and --lr-warmup-iters or -samples exclude each other"
    end = arguments.lr_decay_iters or arguments.train_iters
    if arguments.train_iters and arguments.lr_warmup_iters >= end > 0:
        yield f"--lr-warmup-iters {arguments.lr_warmup_iters} must be below the {end} iterations of the decay"
    if arguments.lr_decay_style == "WSD" and not (arguments.lr_wsd_decay_iters or arguments.lr_wsd_decay_samples):
        yield "--lr-decay-style WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples"
    if arguments.weight_decay_incr_style != "constant" and arguments.start_weight_decay is None:
        yield f"--weight-decay-incr-style {arguments.weight_decay_incr_style} needs --start- and --end-weight-decay"


def _precision(arguments: Arguments, world_size: int) -> Iterator[str]:
    if arguments.fp16 and arguments.bf16:
        yield "--fp16 and --bf16 exclude each other"
    if arguments.overlap_param_gather and not (
        arguments.overlap_grad_reduce and (arguments.use_distributed_optimizer or arguments.use_megatron_fsdp)
    ):
        yield "--overlap-param-gather needs --overlap-grad-reduce and --use-distributed-optimizer"
    if arguments.recompute_granularity == "full" and arguments.recompute_method is None:
        yield "--recompute-granularity full needs --recompute-method uniform or block"


def _checkpoint(arguments: Arguments, world_size: int) -> Iterator[str]:
    retain, interval = arguments.save_retain_interval, arguments.save_interval
    if retain and interval and retain % interval:
        yield f"--save-retain-interval {retain} is not a multiple of --save-interval {interval}"
