"""Mistakes that users make in a job, by class: each gives overrides that break it, or nothing where it cannot."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from launcher.job import Job

Words = tuple[str, ...]
Fault = Callable[[Job, random.Random], Words]


def _pick(draw: random.Random, path: str, *values: Any) -> Words:
    return (f"{path}={draw.choice(values)}",)


def _tp_heads(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.tp", 3, 5, 6, 7)


def _tp_devices(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.tp", 2 * job.cluster.world_size, 4 * job.cluster.world_size)


def _world(job: Job, draw: random.Random) -> Words:
    size = job.cluster.devices_per_node
    return _pick(draw, "cluster.devices_per_node", *{max(1, size - 1), size - 2 or 1, 6, 7})


def _nodes(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "cluster.nodes", 3, 5, 6, 7)


def _ep(job: Job, draw: random.Random) -> Words:
    experts = job.model.num_experts
    return _pick(draw, "parallel.ep", 3, 5, 6, 2 * experts) if experts else _pick(draw, "parallel.ep", 2, 4)


def _etp(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.etp", 3, 16) if job.model.num_experts else ()


def _vpp_alone(job: Job, draw: random.Random) -> Words:
    return ("parallel.pp=1", *_pick(draw, "parallel.vpp", 2, 4))


def _vpp_layers(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.vpp", 5, 7, 11)


def _pp_layers(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.pp", 3, 5, 7)


def _pp_devices(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.pp", 2 * job.cluster.world_size)


def _stage(job: Job, draw: random.Random) -> Words:
    if job.parallel.pp < 2 or not job.model.num_hidden_layers:
        return ()
    even = job.model.num_hidden_layers // job.parallel.pp
    return _pick(draw, draw.choice(("parallel.first_stage_layers", "parallel.last_stage_layers")), even - 1, even + 1)


def _micro(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "batch.micro_batch_size", 3, 5, 6, 7, 64)


def _global(job: Job, draw: random.Random) -> Words:
    size = job.batch.global_batch_size or 64
    return _pick(draw, "batch.global_batch_size", size + 1, size - 1, size + 4, 60, 7, 100)


def _cp_sequence(job: Job, draw: random.Random) -> Words:
    size = job.batch.seq_length or 4096
    return ("parallel.cp=2", *_pick(draw, "batch.seq_length", size - 1, size + 1, size - 3))


def _cp_devices(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "parallel.cp", 3, 2 * job.cluster.world_size)


def _cp_algorithm(job: Job, draw: random.Random) -> Words:
    algorithm = draw.choice(("ulysses", "hybrid", "adaptive", "hybrid_adaptive", "allgather"))
    more = _pick(draw, "parallel.ulysses_degree", 2, 3) if algorithm.startswith("hybrid") else ()
    return (*_pick(draw, "parallel.cp", 2, 4, 8), f"parallel.cp_algorithm={algorithm}", *more)


def _cp_attention(job: Job, draw: random.Random) -> Words:
    return ("parallel.cp=2", *_pick(draw, "kernels.attention_backend", "local", "unfused", "fused"))


def _positions(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "batch.seq_length", 10 * (job.model.max_position_embeddings or 100_000), 1_000_000)


def _sequence_parallel(job: Job, draw: random.Random) -> Words:
    return ("parallel.sequence_parallel=false", *_pick(draw, "parallel.tp", 2, 4))


def _sequence_alone(job: Job, draw: random.Random) -> Words:
    return ("parallel.tp=1", "parallel.sequence_parallel=true")


def _recompute_method(job: Job, draw: random.Random) -> Words:
    return ("recompute.granularity=full", "recompute.method=null", "recompute.num_layers=null")


def _recompute_selective(job: Job, draw: random.Random) -> Words:
    return ("recompute.granularity=selective", *_pick(draw, "recompute.method", "uniform", "block"))


def _recompute_modules(job: Job, draw: random.Random) -> Words:
    return ("recompute.granularity=selective", *_pick(draw, "recompute.modules", "[attention]", "[moe,core_attn]"))


def _recompute_layers(job: Job, draw: random.Random) -> Words:
    return ("recompute.granularity=full", "recompute.method=block", "recompute.num_layers=1000")


def _dispatcher(job: Job, draw: random.Random) -> Words:
    if not job.model.num_experts:
        return ()
    flags = ("moe.deepep=true", "moe.shared_expert_overlap=true", "moe.batch_overlap=true")
    return (f"moe.token_dispatcher_type={draw.choice(('allgather', 'alltoall'))}", draw.choice(flags))


def _experts_per_token(job: Job, draw: random.Random) -> Words:
    return (f"model.num_experts_per_tok={2 * job.model.num_experts}",) if job.model.num_experts else ()


def _hub(job: Job, draw: random.Random) -> Words:
    name = job.model.hub_id or "Qwen/Qwen3-8B"
    return _pick(draw, "model.hub_id", f"{name}x", name[:-1], name.replace("/", ""))


def _warmup(job: Job, draw: random.Random) -> Words:
    return ("schedule.lr_warmup_fraction=null", *_pick(draw, "schedule.lr_warmup_iters", 3000, 100_000))


def _warmup_twice(job: Job, draw: random.Random) -> Words:
    return ("schedule.lr_warmup_fraction=0.1", "schedule.lr_warmup_iters=10")


def _learning_rate(job: Job, draw: random.Random) -> Words:
    return _pick(draw, "optimizer.min_lr", 1.0, 0.5)


def _unset(job: Job, draw: random.Random) -> Words:
    paths = ("optimizer.lr", "batch.seq_length", "batch.global_batch_size")
    if draw.random() < 0.4:
        return ("schedule.train_iters=null", "schedule.epochs=null", "schedule.train_samples=null")
    return (f"{draw.choice(paths)}=null",)


def _overlap(job: Job, draw: random.Random) -> Words:
    return ("parallel.distributed_optimizer=false", *_pick(draw, "overlap.param_gather", "true"))


def _offload(job: Job, draw: random.Random) -> Words:
    return ("offload.optimizer=true", *_pick(draw, "optimizer.precision_aware", "false"))


CLASSES: Mapping[str, Fault] = {
    "tp does not divide the heads": _tp_heads,
    "tp beyond the devices": _tp_devices,
    "world not divisible": _world,
    "nodes not divisible": _nodes,
    "ep": _ep,
    "etp": _etp,
    "vpp without pp": _vpp_alone,
    "vpp against layers": _vpp_layers,
    "layers not divisible by pp": _pp_layers,
    "pp beyond the devices": _pp_devices,
    "uneven stage": _stage,
    "micro batch": _micro,
    "global batch": _global,
    "cp against the sequence": _cp_sequence,
    "cp beyond the devices": _cp_devices,
    "cp algorithm": _cp_algorithm,
    "cp and attention": _cp_attention,
    "sequence too long": _positions,
    "tp without sp": _sequence_parallel,
    "sp without tp": _sequence_alone,
    "recompute without method": _recompute_method,
    "selective recompute with method": _recompute_selective,
    "recompute modules": _recompute_modules,
    "recompute layers": _recompute_layers,
    "dispatcher": _dispatcher,
    "experts per token": _experts_per_token,
    "hub id": _hub,
    "warm-up too long": _warmup,
    "warm-up twice": _warmup_twice,
    "learning rates": _learning_rate,
    "unset": _unset,
    "overlap": _overlap,
    "offload": _offload,
}
# Values for one to three fields at random.
FUZZ: Mapping[str, tuple[str, ...]] = {
    "parallel.tp": ("1", "2", "3", "4", "8", "12", "64"),
    "parallel.pp": ("1", "2", "3", "4", "6", "8"),
    "parallel.vpp": ("null", "1", "2", "3", "5"),
    "parallel.cp": ("1", "2", "3", "8", "16"),
    "parallel.ep": ("1", "2", "8", "12", "32"),
    "parallel.etp": ("null", "1", "2", "4"),
    "parallel.sequence_parallel": ("null", "true", "false"),
    "parallel.cp_algorithm": ("null", "ulysses", "megatron", "hybrid", "adaptive"),
    "parallel.ulysses_degree": ("null", "2", "3"),
    "parallel.first_stage_layers": ("null", "1", "5", "13"),
    "parallel.last_stage_layers": ("null", "2", "7"),
    "parallel.distributed_optimizer": ("null", "true", "false"),
    "parallel.account_for_embedding": ("true", "null"),
    "parallel.microbatch_group_size": ("null", "1", "3"),
    "batch.micro_batch_size": ("1", "2", "3", "8"),
    "batch.global_batch_size": ("64", "96", "7", "30", "257"),
    "batch.seq_length": ("4096", "1000", "4097", "1000000"),
    "batch.packing": ("true", "false", "null"),
    "recompute.granularity": ("null", "full", "selective"),
    "recompute.method": ("null", "uniform", "block"),
    "recompute.num_layers": ("null", "1", "3", "500"),
    "recompute.activation": ("null", "true"),
    "recompute.modules": ("[]", "[core_attn]", "[moe,mlp]", "[layernorm]"),
    "offload.attention": ("null", "true"),
    "offload.optimizer": ("null", "true"),
    "overlap.grad_reduce": ("null", "true"),
    "overlap.param_gather": ("null", "true"),
    "overlap.p2p": ("null", "true", "false"),
    "moe.token_dispatcher_type": ("allgather", "alltoall", "flex"),
    "moe.grouped_gemm": ("null", "true", "false"),
    "moe.shared_expert_overlap": ("null", "true"),
    "kernels.cross_entropy_fusion": ("null", "true"),
    "precision.dtype": ("bf16", "fp16", "fp32"),
    "schedule.lr_warmup_iters": ("null", "10", "50000"),
    "cluster.nodes": ("1", "2", "3"),
    "cluster.devices_per_node": ("4", "6", "8", "16"),
    "model.num_attention_heads": ("30", "32"),
}


def fuzzed(job: Job, draw: random.Random) -> Words:
    """Return random values of one to three fields."""
    paths = draw.sample(list(FUZZ), draw.choice((1, 2, 3)))
    return tuple(f"{path}={draw.choice(FUZZ[path])}" for path in paths)
