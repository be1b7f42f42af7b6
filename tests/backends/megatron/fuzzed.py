"""Jobs drawn at random, most of them wrong somewhere, for comparing our verdicts with the real classes'."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from launcher.job import Job
from tests.conftest import make_job

# Each entry: where, and the values drawn from; the first one is the most usual.
# Sizes that go together: tp, pp, cp on 8 devices, and a global batch for the rest.
_LEGAL = ((1, 1, 1, 16), (2, 1, 1, 16), (2, 2, 1, 16), (1, 2, 1, 48), (4, 2, 1, 16), (2, 2, 2, 8), (1, 1, 2, 16))
_SIZES: Mapping[str, tuple[Any, ...]] = {
    "parallel.tp": (1, 2, 4, 8, 3),
    "parallel.pp": (1, 2, 4, 3),
    "parallel.cp": (1, 2),
    "parallel.ep": (1, 2, 4, 3),
    "cluster.nodes": (1, 2),
    "batch.micro_batch_size": (1, 2, 3),
    "batch.global_batch_size": (16, 24, 48, 20),
}
_SWITCHES: Mapping[str, tuple[Any, ...]] = {
    "parallel.sequence_parallel": (None, True, True, False),
    "parallel.vpp": (None, None, None, 1, 2),
    "parallel.first_stage_layers": (None, None, None, 2, 3),
    "parallel.last_stage_layers": (None, None, None, None, 2),
    "parallel.account_for_loss": (None, None, None, None, True),
    "parallel.layout": (None, None, None, None, None, "Et*4|t*4L", "Ett|tt|tt|ttL", "Et*5|t*4L"),
    "recompute.granularity": (None, None, "full", "selective"),
    "recompute.method": (None, None, "uniform", "block"),
    "recompute.num_layers": (None, None, 1),
    "recompute.modules": ((), (), ("core_attn",), ("moe_act",), ("mla_up_proj",), ("layernorm", "mlp")),
    "overlap.tp_comm": (None, None, None, None, True),
    "checkpoint.async_save": (None, None, True),
    "checkpoint.save_total_limit": (None, None, None, 1, 3),
    "precision.dtype": ("bf16", "bf16", "fp16", "fp32"),
    "precision.fp8_param_gather": (None, None, None, None, None, True),
    "data.lazy_tokenize": (None, None, None, True),
    "data.streaming": (None, None, None, True),
    "batch.packing": (None, None, True),
}
_EXPERTS: Mapping[str, tuple[Any, ...]] = {
    "parallel.ep": (1, 1, 2, 4, 3),
    "parallel.etp": (None, None, 1, 2),
    "moe.token_dispatcher_type": ("alltoall", "alltoall", "alltoall", "flex", "allgather"),
    "moe.deepep": (None, None, None, True),
    "moe.capacity_factor": (None, None, None, 1.0),
    "moe.pad_to_capacity": (None, None, None, True),
    "moe.load_balancing_type": ("aux_loss", "aux_loss", "sinkhorn", "none", "global_aux_loss"),
    "moe.shared_expert_overlap": (None, None, None, True),
    "moe.grouped_gemm": (None, True, False),
    "model.num_experts_per_tok": (2, 2, 1),
}
_NATIVE: Mapping[str, tuple[Any, ...]] = {
    "group_by_length": (None,) * 9 + (True,),
    "freeze_parameters_ratio": (None,) * 9 + (0.5,),
    "weight_decay_incr_style": (None,) * 12 + ("linear",),
    "start_weight_decay": (None,) * 12 + (0.0,),
    "muon_lr": (None,) * 12 + (1e-3,),
    "attention_backend": (None,) * 12 + ("flsh",),
}
# Only DeepSeek's config.json can say these.
_DEEPSEEK: Mapping[str, tuple[Any, ...]] = {
    "model.router_expert_bias": (True,),
    "model.scoring_func": ("sigmoid", "sigmoid", "softmax"),
}
_DEEP = {"kv_lora_rank": 32, "q_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def jobs(count: int, seed: int = 0) -> Iterator[tuple[str, Job]]:
    """Yield named jobs; the same seed draws the same ones."""
    for number in range(count):
        yield f"fuzzed {number}", _job(random.Random(seed * 100_003 + number))


def _job(draw: random.Random) -> Job:
    kind = draw.choice(("qwen3", "qwen3", "qwen3_moe", "deepseek_v3"))
    moe = kind != "qwen3"
    sizes = dict(zip(("tp", "pp", "cp"), draw.choice(_LEGAL), strict=False))
    size = next(legal[3] for legal in _LEGAL if legal[:3] == tuple(sizes.values()))
    chosen: dict[str, Any] = {f"parallel.{name}": value for name, value in sizes.items()}
    chosen |= {"batch.global_batch_size": size, "parallel.sequence_parallel": sizes["tp"] > 1}
    tables = [_SIZES, _SWITCHES, _SWITCHES, *([_EXPERTS, _EXPERTS] if moe else [])]
    if kind == "deepseek_v3":
        tables.append(_DEEPSEEK)
        chosen |= {"model.router_expert_bias": True, "model.scoring_func": "sigmoid"}
    # A legal job with a few changes: with more of them, no job would pass.
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        table = draw.choice(tables)
        path = draw.choice(sorted(table))
        chosen[path] = draw.choice(table[path])
    native = {name: draw.choice(values) for name, values in draw.sample(sorted(_NATIVE.items()), k=2)}
    tree: dict[str, Any] = {
        "model": {"model_type": kind, "path": "MODEL"},
        "data": {"format": "messages", "paths": ["data.jsonl"]},
        "backend": {
            "name": "megatron",
            "version": "4.6.0",
            "args": {name: value for name, value in native.items() if value is not None},
        },
    }
    if kind == "deepseek_v3":
        tree["model"] |= {**_DEEP, "num_key_value_heads": 8, "shared_expert_intermediate_size": 64}
    for path, value in chosen.items():
        section, leaf = path.split(".")
        tree.setdefault(section, {})[leaf] = value
    return make_job(tree, moe=moe)
