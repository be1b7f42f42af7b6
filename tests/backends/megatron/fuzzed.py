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
_TRAINING: Mapping[str, tuple[Any, ...]] = {
    "precision.fp8_format": (None, "hybrid", "e4m3"),
    "precision.fp8_recipe": (None, "delayed", "tensorwise", "mxfp8", "blockwise"),
    "precision.first_last_layers_bf16": (None, True),
    "precision.num_layers_at_start_in_bf16": (None, 1, 5),
    "precision.grad_reduce_in_fp32": (None, True, False),
    "precision.apply_query_key_layer_scaling": (None, True),
    "precision.attention_softmax_in_fp32": (False, True),
    "precision.calculate_per_token_loss": (False, True),
    "optimizer.type": ("adam", "sgd", "muon"),
    "optimizer.precision_aware": (None, True),
    "optimizer.exp_avg_dtype": (None, "bf16", "fp8"),
    "optimizer.main_params_dtype": (None, "fp16"),
    "optimizer.min_lr": (0.0, 1e-6, 1.0),
    "optimizer.weight_decay": (0.1, 0.0),
    "optimizer.weight_decay_style": (None, "constant", "linear", "cosine"),
    "optimizer.decoupled_lr": (None, 1e-3),
    "offload.optimizer": (None, True),
    "offload.optimizer_fraction": (None, 0.5, 2.0),
    "offload.activation_layers": (None, 1, 8),
    "schedule.lr_decay_style": ("cosine", "linear", "constant", "WSD", "inverse-square-root"),
    "schedule.lr_wsd_decay_iters": (None, 5),
    "schedule.lr_wsd_decay_style": (None, "linear"),
    "schedule.lr_decay_iters": (None, 1, 50),
    "schedule.lr_warmup_iters": (None, 2, 500),
    "schedule.lr_warmup_fraction": (None, 0.1, 1.0, 1.5),
    "schedule.train_iters": (100, None, 1),
    "schedule.epochs": (None, 1.0, 2.0),
    "schedule.exit_interval": (None, 5),
    "model.num_nextn_predict_layers": (0, 1, 2),
    "model.attention_dropout": (0.0, 0.1),
    "model.hidden_dropout": (0.0, 0.1),
    "kernels.attention_backend": (None, "flash", "fused", "unfused", "local", "auto"),
    "kernels.cross_entropy_fusion": (True, False),
    "kernels.cross_entropy_fusion_impl": (None, "native", "te"),
    "kernels.gradient_accumulation_fusion": (None, True, False),
    "kernels.rope_fusion": (None, True, False),
    "kernels.deterministic": (None, True),
    "kernels.manual_gc_interval": (None, 5),
    "parallel.distributed_optimizer": (None, True, False),
    "parallel.optimizer_instances": (None, 2, 3),
    "parallel.microbatch_group_size": (None, 1, 2, 4),
    "parallel.account_for_embedding": (None, True),
    "parallel.cp": (1, 2, 4, 8),
    "overlap.grad_reduce": (None, True),
    "overlap.param_gather": (None, True),
    "overlap.p2p": (None, True, False),
    "overlap.p2p_warmup_flush": (None, True),
    "overlap.param_gather_with_optimizer_step": (None, True),
    "overlap.average_in_collective": (None, True),
    "overlap.embedding_wgrad": (None, True),
    "recompute.distribute_saved_activations": (None, True),
    "recompute.granularity": (None, "full", "selective"),
    "checkpoint.load": (None, "checkpoint"),
    "checkpoint.finetune": (None, True, False),
    "checkpoint.no_load_optim": (None, True),
    "checkpoint.no_load_rng": (None, True),
    "checkpoint.no_save_optim": (None, True),
    "checkpoint.save_safetensors": (None, True, False),
    "checkpoint.parallel_save": (None, True, False),
    "batch.padding_free": (None, True, False),
    "batch.seq_length": (512, 127, 130, 65536),
    "data.validation_ratio": (None, 0.0, 0.1),
    "evaluation.iters": (None, 0, 5),
    "evaluation.interval": (None, 5),
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
    "model.num_experts_per_tok": (2, 2, 1, 9),
    "model.first_k_dense_replace": (0, 1, 8, 9),
    "moe.permute_fusion": (None, True, False),
    "moe.batch_overlap": (None, True),
    "moe.router_dtype": ("fp32", "fp64"),
    "moe.z_loss_coeff": (None, 1e-3),
    "moe.token_drop_policy": (None, "probs", "position"),
    "moe.input_jitter_eps": (None, 0.01),
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
    tables = [_SIZES, _SWITCHES, _SWITCHES, _TRAINING, _TRAINING, *([_EXPERTS, _EXPERTS] if moe else [])]
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
