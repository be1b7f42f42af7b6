"""Scales a recipe down to one machine: keeps topology and all switches, shrinks sizes, and reports the changes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.job import Job, Origin, Value, value_at, with_values
from launcher.job.transformer import within

# Sizes of a shrunken model. Small enough for a laptop, large enough that heads, groups, experts and ranks divide.
_HEAD_DIM = 16
_HEADS_PER_RANK = 2
_EXPERT_WIDTH = 32
_LAYERS_PER_CHUNK = 1
_MOST_LAYERS = 16
_SEQUENCE = 64
_MICRO_BATCHES = 2
_ITERATIONS = 10
_VOCABULARY = 512
# Random weights do not train in a few steps at fine-tuning learning rates.
_LEARNING_RATE = 1e-3
_LEAST_PROCESSES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunken:
    """A job that fits this machine, and one line for each value that is smaller than in the original."""

    job: Job
    report: tuple[str, ...]


def shrink(job: Job, *, cores: int | None, vocabulary: int = _VOCABULARY) -> Shrunken:
    """Return the job scaled down to a few processes.

    Parallel sizes above 1 stay above 1 as long as the processes allow it; every other option is kept.

    Args:
        cores: processor cores of this machine; None: the layout is kept, with all layers and experts and their
            placement; only widths, lengths and the batch shrink.
        vocabulary: size of the tokenizer that the rehearsal uses.
    """
    most = job.rehearse.max_processes or max(_LEAST_PROCESSES, cores or 0)
    values = dict(_parallel(job, most)) if cores is not None else {}
    small = with_values(job, values)
    values |= dict(_widths(small, vocabulary))
    if cores is not None:
        values |= {**dict(_layers(small)), **dict(_experts(small)), "parallel.microbatch_group_size": None}
    small = with_values(small, values)
    values |= dict(_training(small))
    changed = {path: value for path, value in values.items() if value != value_at(job, path)}
    report = tuple(f"{path} {_show(value_at(job, path))} → {_show(value)}" for path, value in changed.items())
    return Shrunken(job=with_values(job, changed, Origin(kind="derived", where="rehearse.shrink")), report=report)


def _show(value: Value) -> str:
    return "none" if value is None else str(value)


def fit(sizes: dict[str, int], most: int) -> dict[str, int]:
    """Return sizes whose product is at most `most`: the largest shrink first, each stays above 1 if it can."""
    sizes = dict(sizes)
    while math.prod(sizes.values()) > most:
        above = {name: size for name, size in sizes.items() if size > 2} or {n: s for n, s in sizes.items() if s > 1}
        name = max(above, key=lambda each: (above[each], each == "dp"))
        sizes[name] = 2 if sizes[name] > 2 else 1
    return sizes


def _parallel(job: Job, most: int) -> Iterator[tuple[str, Value]]:
    parallel = job.parallel
    asked = {"tp": parallel.tp, "pp": parallel.pp, "cp": parallel.cp, "dp": parallel.dp or 1}
    sizes = fit(asked, most)
    yield from ((f"parallel.{name}", size) for name, size in sizes.items() if name != "dp")
    yield "cluster.nodes", 1
    yield "cluster.devices_per_node", math.prod(sizes.values())
    etp = None if parallel.etp is None else min(parallel.etp, sizes["tp"])
    yield "parallel.etp", etp
    pool = sizes["tp"] * sizes["cp"] * sizes["dp"] // (etp or sizes["tp"])
    yield "parallel.ep", math.gcd(parallel.ep, pool)
    if sizes["pp"] == 1:
        yield from ((f"parallel.{name}", None) for name in ("vpp", "first_stage_layers", "last_stage_layers", "layout"))
    if parallel.ulysses_degree is not None:
        yield "parallel.ulysses_degree", min(parallel.ulysses_degree, sizes["cp"])
    yield "cluster.master_addr", None


def _widths(job: Job, vocabulary: int) -> Iterator[tuple[str, Value]]:
    model, parallel = job.model, job.parallel
    queries, groups = model.num_attention_heads or 1, model.num_key_value_heads or model.num_attention_heads or 1
    base = parallel.tp * parallel.cp
    heads = base * _HEADS_PER_RANK
    small_groups = heads if groups >= queries else max(base, heads // max(1, min(heads, queries // groups)))
    yield "model.num_attention_heads", heads
    if model.num_key_value_heads is not None:
        yield "model.num_key_value_heads", small_groups
    if model.head_dim is not None:
        yield "model.head_dim", _HEAD_DIM
    # Gemma 2: equal to the head size it is no option of its own, and backends without one accept it.
    if model.query_pre_attn_scalar is not None and model.query_pre_attn_scalar == model.head_size:
        yield "model.query_pre_attn_scalar", _HEAD_DIM
    yield "model.hidden_size", heads * _HEAD_DIM
    if model.intermediate_size is not None:
        yield "model.intermediate_size", 2 * heads * _HEAD_DIM
    yield "model.vocab_size", vocabulary
    yield "tokenizer.padded_vocab_size", None
    if model.num_experts is not None:
        yield "model.moe_intermediate_size", _EXPERT_WIDTH * (parallel.etp or parallel.tp)
        if model.shared_expert_intermediate_size is not None:
            yield "model.shared_expert_intermediate_size", _EXPERT_WIDTH * parallel.tp
    if model.is_mla:
        yield "model.q_lora_rank", None if model.q_lora_rank is None else 2 * _HEAD_DIM
        yield "model.kv_lora_rank", 2 * _HEAD_DIM
        yield "model.qk_nope_head_dim", _HEAD_DIM
        yield "model.qk_rope_head_dim", _HEAD_DIM // 2
        yield "model.v_head_dim", _HEAD_DIM
    if model.compress_ratios:
        # One key and value serve all heads, of the size of a head.
        size = 2 * _HEAD_DIM
        yield "model.qk_nope_head_dim", size - _HEAD_DIM // 2
        yield "model.v_head_dim", size
        yield "model.o_groups", None if model.o_groups is None else math.gcd(heads, model.o_groups)
        yield "model.o_lora_rank", None if model.o_lora_rank is None else size
        yield "model.csa_window_size", min(model.csa_window_size or _SEQUENCE, _SEQUENCE // 4)
    if model.experimental_attention_variant == "dsa" or model.compress_ratios:
        yield "model.index_n_heads", heads
        yield "model.index_head_dim", _HEAD_DIM
        # Fewer keys than a sequence has, so that some are not selected.
        yield "model.index_topk", min(model.index_topk or _SEQUENCE, _SEQUENCE // 2)


def _layers(job: Job) -> Iterator[tuple[str, Value]]:
    model, parallel = job.model, job.parallel
    dense = min(model.first_k_dense_replace, 1)
    chunks = parallel.pp * (parallel.vpp or 1)
    vpp = parallel.vpp
    if vpp is not None and chunks > _MOST_LAYERS:
        vpp = max(1, _MOST_LAYERS // parallel.pp)
        chunks = parallel.pp * vpp
        yield "parallel.vpp", vpp
    # Each chunk has a layer of every kind of compressed attention: MindSpeed-LLM waits for stages without an indexer.
    kinds = sorted(dict.fromkeys(model.compress_ratios), key=lambda ratio: (ratio == 0, ratio))
    compressed = sum(ratio > 0 for ratio in kinds)
    layers = max(2, chunks * max(_LAYERS_PER_CHUNK, compressed))
    if layers % chunks:
        layers = chunks
    uneven = [name for name in ("first_stage_layers", "last_stage_layers") if getattr(parallel, name) is not None]
    # A stage without MoE layers would change the topology: with dense layers first, each stage gets one layer more.
    small = (vpp or 1) * max(compressed, 2 if model.is_moe and dense else 1)
    for name in uneven:
        yield f"parallel.{name}", small
    if uneven:
        # The even stages get one layer more for each chunk, so that the uneven ones stay uneven.
        layers = len(uneven) * small + (parallel.pp - len(uneven)) * (small + (vpp or 1))
    elif model.is_moe and dense and layers // chunks <= dense:
        layers += chunks
    yield "model.num_hidden_layers", layers
    yield "model.first_k_dense_replace", dense
    yield "model.mlp_only_layers", within(model.mlp_only_layers, layers)
    yield "model.full_attention_layers", within(model.full_attention_layers, layers)
    if kinds:
        repeated = kinds[: compressed or 1]
        yield "model.compress_ratios", tuple(repeated[layer % len(repeated)] for layer in range(layers))
    if model.num_hash_layers:
        yield "model.num_hash_layers", 1
    if model.no_rope_freq is not None and layers % model.no_rope_freq:
        # megatron-core 0.16.1 transformer_config.py:1973: the number of layers is a multiple of it.
        yield "model.no_rope_freq", _least_factor(layers)
    if model.full_attention_interval is not None and layers % model.full_attention_interval:
        # The last layer has softmax attention, also in a prediction layer, which is built like it.
        yield "model.full_attention_interval", _least_factor(layers)
    yield "parallel.layout", None
    yield "parallel.noop_layers", ()
    yield "model.num_nextn_predict_layers", min(model.num_nextn_predict_layers, 1)
    if job.recompute.num_layers is not None:
        yield "recompute.num_layers", 1
        yield "recompute.layers_per_chunk", ()


def _least_factor(layers: int) -> int:
    """Return the smallest number above 1 that divides the layers."""
    return min(factor for factor in range(2, layers + 1) if layers % factor == 0)


def _experts(job: Job) -> Iterator[tuple[str, Value]]:
    model, parallel = job.model, job.parallel
    if model.num_experts is None:
        return
    groups = None if model.n_group is None else 2
    experts = max(4, 2 * parallel.ep)
    yield "model.num_experts", experts
    yield "model.num_experts_per_tok", min(model.num_experts_per_tok or 1, 2)
    if groups is not None:
        yield "model.n_group", groups
        yield "model.topk_group", 1 if (model.topk_group or 1) < (model.n_group or 1) else groups


def _training(job: Job) -> Iterator[tuple[str, Value]]:
    dp = job.parallel.dp or 1
    step = 2 * job.parallel.cp * job.parallel.tp
    # Of compressed attention two keys.
    least = 2 * max(job.model.compress_ratios, default=0)
    length = min(job.batch.seq_length or _SEQUENCE, max(_SEQUENCE, step, least))
    yield "batch.seq_length", length - length % step or step
    yield "batch.micro_batch_size", 1
    group = job.parallel.microbatch_group_size or job.parallel.pp
    count = max(_MICRO_BATCHES, group if job.parallel.vpp else 1)
    yield "batch.global_batch_size", count * dp
    iterations = min(job.schedule.train_iters or _ITERATIONS, _ITERATIONS)
    yield "schedule.train_iters", iterations
    if (job.logging.interval or 1) > iterations:
        yield "logging.interval", 1  # else nothing is reported
    yield "schedule.epochs", None
    yield "schedule.train_samples", None
    yield "schedule.lr_decay_iters", None
    if job.schedule.lr_warmup_iters:
        yield "schedule.lr_warmup_iters", 1
    yield "evaluation.iters", 0
    rate = job.optimizer.lr
    if rate and rate < _LEARNING_RATE:  # 0 trains nothing, which is asked for
        yield "optimizer.lr", _LEARNING_RATE
        yield "optimizer.min_lr", float(f"{_LEARNING_RATE * job.optimizer.min_lr / rate:.6g}")
