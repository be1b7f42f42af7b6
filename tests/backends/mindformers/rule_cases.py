"""The smallest job that breaks each rule of MindFormers, and the nearest one that passes, as changes of one job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.backends.mindformers.jobs import DEEPSEEK, QWEN3, QWEN3_MOE

Changes = Mapping[str, Any]
_MODEL = "model.model_config."


@dataclass(frozen=True, slots=True)
class Pair:
    """One rule's pair.

    Attributes:
        broken, passing: changes of the base job; `keys` is short for `backend.args`, `env` for `backend.env`.
        version: for which they are judged.
    """

    broken: Changes
    passing: Changes
    version: str = "2.1.0"


def keys(**values: Any) -> Changes:
    """Return a job with passed-through keys; `__` stands for the point between sections."""
    return {"keys": {name.replace("__", "."): value for name, value in values.items()}}


def model(**values: Any) -> Changes:
    """Return a job with passed-through keys of the model section."""
    return {"keys": {_MODEL + name: value for name, value in values.items()}}


def pynative(pp: int = 1, **values: Any) -> Changes:
    """Return a file of the pynative trainer on 8 devices."""
    sizes = {"parallelism.pipeline_parallel": pp, "parallelism.pipeline_parallel_layers_per_stage": "auto"}
    return {"keys": {**sizes, **{name.replace("__", "."): value for name, value in values.items()}}}


_DEEP: Changes = {**DEEPSEEK, "num_hidden_layers": 60, "first_k_dense_replace": 3, "n_group": None, "topk_group": None}
PLAIN = _DEEP
_OLD_DEEP: Changes = {"model": {**_DEEP, "num_nextn_predict_layers": 0}}
_OLDER_LLAMA: Changes = {"model": {"model_type": "llama", "legacy": True, "qk_layernorm": False}}
_TOP_ONE: Changes = {**_DEEP, "num_experts_per_tok": 1, "scoring_func": "softmax", "router_expert_bias": False}
_PP2: Changes = {"parallel": {"pp": 2}}
_CHUNKED: Changes = {"parallel": {"pp": 2, "vpp": 2}}
_ALPACA: Changes = {"task": {"type": "sft"}, "data": {"format": "hub", "paths": ["alpaca.jsonl"]}}
_TOKENIZED: Changes = {"task": {"type": "sft"}, "data": {"format": "tokenized", "paths": ["tokens.jsonl"]}}
_CP2: Changes = {"parallel": {"cp": 2}}
_OFFSET = f"{_MODEL}offset"
_NO_FLASH = {_MODEL + "use_flash_attention": False}


def both(*parts: Changes) -> Changes:
    """Join changes; sections are joined too."""
    joined: dict[str, Any] = {}
    for part in parts:
        for section, values in part.items():
            joined[section] = {**joined.get(section, {}), **values} if isinstance(values, Mapping) else values
    return joined


def layers(count: int) -> Changes:
    return {"model": {**QWEN3, "num_hidden_layers": count}}


GENERAL: Mapping[str, Pair] = {
    "MF-RUN-MODE": Pair(keys(run_mode="training"), keys(run_mode="finetune")),
    "MF-EVAL-PP": Pair(both(_PP2, keys(run_mode="predict")), keys(run_mode="predict")),
    "MF-CONTEXT-MODE": Pair(keys(context__mode=2), keys(context__mode="GRAPH_MODE")),
    "MF-PARALLEL-MODE": Pair(
        keys(parallel__parallel_mode="semi_auto_parallel"), keys(parallel__parallel_mode="SEMI_AUTO_PARALLEL")
    ),
    "MF-ALONE": Pair(keys(use_parallel=False), keys(use_parallel=True)),
    "MF-TYPES": Pair(keys(optimizer__type=""), {}),
    "MF-DEPTH": Pair(keys(a__b__c__d__e__f__g__h__i__j__k=1), keys(a__b__c__d__e__f__g__h__i__j=1)),
    "MF-SIZES": Pair(keys(parallel_config__seq_split_num=0), keys(parallel_config__seq_split_num=2)),
    "MF-MEM-COEFF": Pair(keys(parallel_config__mem_coeff=0), keys(parallel_config__mem_coeff=0.1)),
    "MF-SWITCHES": Pair(keys(parallel_config__vocab_emb_dp=1), keys(parallel_config__vocab_emb_dp=True)),
    "MF-WORLD": Pair(
        keys(parallel_config__model_parallel=2, parallel_config__data_parallel=8),
        keys(parallel_config__model_parallel=2, parallel_config__data_parallel=4),
    ),
    "MF-SERVERS": Pair(
        {"cluster": {"nodes": 3}, "parallel": {"pp": 2}, "batch": {"global_batch_size": 96}},
        {"cluster": {"nodes": 2}, "parallel": {"pp": 2}},
    ),
    "MF-SHARDS": Pair(
        {"parallel": {"distributed_optimizer": True}, "model": {**QWEN3, "vocab_size": 151937}},
        {"parallel": {"distributed_optimizer": True}},
    ),
    "MF-STRATEGY": Pair(
        keys(parallel__full_batch=False, parallel__dataset_strategy=[[4, 1]]),
        keys(parallel__full_batch=False, parallel__dataset_strategy=[[8, 1]]),
    ),
    "MF-TOKEN-FILES-SPLIT": Pair(
        both(_OLD_DEEP, {"graph": {"full_batch": True}}), both(_OLD_DEEP, {"graph": {"full_batch": False}}), "1.6.0"
    ),
    "MF-MASK-ADDED": Pair(
        both(_OLDER_LLAMA, {"kernels": {"attention_backend": "unfused"}}),
        both(_OLDER_LLAMA, {"kernels": {"attention_backend": "flash"}}),
        "1.6.0",
    ),
    "MF-CONFIG-NAMES": Pair(
        both(_OLD_DEEP, {"model": {"newer_names": ["dtype"]}, "keys": {"pretrained_model_dir": "x"}}),
        both(_OLD_DEEP, {"keys": {"pretrained_model_dir": "x"}}),
        "1.6.0",
    ),
    "MF-FULL-BATCH": Pair(
        keys(parallel__full_batch=True, parallel__dataset_strategy=[[8, 1]]),
        keys(parallel__full_batch=True, parallel__dataset_strategy="full_batch"),
    ),
    "MF-ACCUMULATION": Pair(
        keys(runner_config__gradient_accumulation_steps=0), keys(runner_config__gradient_accumulation_steps=1)
    ),
    "MF-MICRO-BATCHES": Pair(
        both(_PP2, keys(parallel_config__micro_batch_num=1)), both(_PP2, keys(parallel_config__micro_batch_num=2))
    ),
    "MF-STAGE-LAYERS": Pair(both(_PP2, layers(1)), both(_PP2, layers(2))),
    "MF-CHUNK-LAYERS": Pair(both(_CHUNKED, layers(3)), both(_CHUNKED, layers(4))),
    "MF-PIPELINE-KEYS": Pair(both(_PP2, keys(parallel__pipeline_config__pipeline_scheduler="1f1b")), _CHUNKED),
    "MF-SCHEDULER": Pair(
        both(_CHUNKED, keys(parallel__pipeline_config__pipeline_scheduler="2f2b")),
        both(_CHUNKED, keys(parallel__pipeline_config__pipeline_scheduler="gpipe")),
    ),
    "MF-PACK-SHIFT": Pair(
        {**_ALPACA, "batch": {"packing": True}},
        {**_ALPACA, "batch": {"packing": False}},
    ),
    "MF-MOE-PADDING": Pair(
        {**_TOKENIZED, "model": QWEN3_MOE, "moe": {"aux_loss_coeff": 0.01}},
        {**_TOKENIZED, "model": QWEN3_MOE, "moe": {"aux_loss_coeff": 0.0}},
    ),
    "MF-SEQVPP": Pair(
        both(_CHUNKED, keys(parallel__pipeline_config__pipeline_scheduler="seqvpp")),
        both(_CHUNKED, keys(parallel__pipeline_config__pipeline_scheduler="seqvpp", parallel_config__seq_split_num=2)),
    ),
    "MF-ZERO-BUBBLE": Pair(
        both({"parallel": {"pp": 2, "vpp": 3}}, keys(parallel__pipeline_config__pipeline_scheduler="zero_bubble_v")),
        both(_CHUNKED, keys(parallel__pipeline_config__pipeline_scheduler="zero_bubble_v")),
    ),
    "MF-SEQPIPE": Pair(
        {"keys": {"parallel_config.seq_split_num": 2, **_NO_FLASH}}, keys(parallel_config__seq_split_num=2)
    ),
    "MF-SEQPIPE-BALANCE": Pair(
        both({"model": QWEN3_MOE}, keys(parallel_config__seq_split_num=2)), keys(parallel_config__seq_split_num=2)
    ),
}

KEYS: Mapping[str, Pair] = {
    "MF-KEY": Pair(keys(optimizer__foo=1), keys(optimizer__amsgrad=True)),
    "MF-KEY-IGNORED": Pair(model(num_expert_per_tok=8), model(num_experts_per_tok=8)),
}

LAYERS: Mapping[str, Pair] = {
    "MF-OFFSET-SHAPE": Pair(both(_PP2, {"keys": {_OFFSET: [0]}}), both(_PP2, {"keys": {_OFFSET: [0, 0]}})),
    "MF-OFFSET-SUM": Pair(both(_PP2, {"keys": {_OFFSET: [1, 0]}}), both(_PP2, {"keys": {_OFFSET: [1, -1]}})),
    "MF-OFFSET-REPEATED": Pair(
        both(_CHUNKED, layers(29), {"keys": {_OFFSET: [1, 0]}}),
        both(_CHUNKED, layers(29), {"keys": {_OFFSET: [[1, 0], [0, 0]]}}),
    ),
    "MF-OFFSET-EMPTY": Pair(
        both({"parallel": {"pp": 4}}, layers(4), {"keys": {_OFFSET: [1, -1, 0, 0]}}),
        both({"parallel": {"pp": 4}}, layers(4), {"keys": {_OFFSET: [-1, 1, 0, 0]}}),
    ),
    "MF-OFFSET-ENDLESS": Pair(
        both(_PP2, _OLD_DEEP, {"keys": {_OFFSET: [-31, 31]}}),
        both(_PP2, _OLD_DEEP, {"keys": {_OFFSET: [-30, 30]}}),
        "1.6.0",
    ),
    "MF-OFFSET-IGNORED": Pair({"keys": {_OFFSET: [1]}}, {"keys": {_OFFSET: [0]}}),
    "MF-CHUNKS-OFF": Pair(both(_PP2, model(pp_interleave_num=2)), _CHUNKED),
    "MF-SET-SIZES": Pair(both({"parallel": {"tp": 2}}, keys(parallel__parallel_mode=0)), {"parallel": {"tp": 2}}),
    "MF-SET-MICRO-BATCHES": Pair(keys(parallel_config__micro_batch_num=2), keys(parallel_config__micro_batch_num=1)),
    "MF-SET-ACCUMULATION": Pair(both(_PP2, keys(runner_config__gradient_accumulation_steps=2)), _PP2),
    "MF-SET-ACCUMULATION-ALONE": Pair(
        keys(parallel__parallel_mode=0, runner_config__gradient_accumulation_steps=2),
        keys(runner_config__gradient_accumulation_steps=2),
    ),
    "MF-SET-VOCABULARY": Pair(
        both(_PP2, keys(parallel_config__vocab_emb_dp=True)), both(_PP2, keys(parallel_config__vocab_emb_dp=False))
    ),
    "MF-RECOMPUTE-KIND": Pair(keys(recompute_config__recompute="full"), keys(recompute_config__recompute=True)),
    "MF-RECOMPUTE-LONG": Pair(
        both(_PP2, keys(recompute_config__recompute=[1, 1, 1])), both(_PP2, keys(recompute_config__recompute=[1, 1]))
    ),
    "MF-SELECT-LONG": Pair(
        both(_PP2, keys(recompute_config__select_recompute=[1, 1, 1])),
        both(_PP2, keys(recompute_config__select_recompute=[1, 1])),
    ),
    "MF-SELECT-COMM-LONG": Pair(
        both(_PP2, keys(recompute_config__select_comm_recompute=[1, 1, 1])),
        both(_PP2, keys(recompute_config__select_comm_recompute=[1, 1])),
    ),
    "MF-CLASS": Pair(keys(optimizer__type="Lion"), keys(optimizer__type="Muon")),
    "MF-CLASS-OUTSIDE": Pair(
        keys(train_dataset_task__type="Mine", train_dataset_task__auto_register="mine.Mine"),
        keys(train_dataset_task__type="CausalLanguageModelDataset", train_dataset_task__auto_register="mine.Mine"),
        version="1.6.0",
    ),
    "MF-TEXT-NUMBER": Pair(model(vocab_size="151936"), model(vocab_size=151936)),
    "MF-DATASET-TASK": Pair(
        keys(eval_dataset__seed=1), keys(eval_dataset__seed=1, eval_dataset_task__type="CausalLanguageModelDataset")
    ),
    "MF-WARMUP-WHOLE": Pair(
        {"schedule": {"train_iters": 100, "lr_warmup_fraction": 0.015}},
        {"schedule": {"train_iters": 100, "lr_warmup_fraction": 0.02}},
    ),
    "MF-LR-VALUES": Pair(keys(lr_schedule__warmup_ratio=1.5), keys(lr_schedule__warmup_ratio=1.0)),
    "MF-DTYPES": Pair(
        both(keys(use_legacy=True), model(softmax_compute_type="float31")),
        both(keys(use_legacy=True), model(softmax_compute_type="float32")),
    ),
    "MF-MOE-VALUES": Pair(
        keys(use_legacy=True, moe_config__expert_group_size=0), keys(use_legacy=True, moe_config__expert_group_size=8)
    ),
    "MF-CONTEXT-VALUES": Pair(keys(context__max_call_depth=0), keys(context__max_call_depth=1)),
    "MF-OP-SWAP-ITEMS": Pair(
        keys(swap_config__op_swap=[1]),
        keys(swap_config__op_swap=[{"op_name": "mlp", "layers": [1], "backward_prefetch": 1}]),
        version="1.6.0",
    ),
    "MF-SECTIONS": Pair(
        {"model": PLAIN, **keys(run_mode=None)}, {"model": PLAIN, **keys(run_mode="train")}, version="1.6.0"
    ),
    "MF-RECOMPUTE-SWITCHES": Pair(
        keys(recompute_config__recompute_slice_activation="x"), keys(recompute_config__recompute_slice_activation=True)
    ),
    "MF-INTERLEAVE-TYPE": Pair(model(fine_grain_interleave="2"), model(fine_grain_interleave=2)),
    "MF-PARALLEL-TYPES": Pair(
        keys(parallel__strategy_ckpt_save_file=1), keys(parallel__strategy_ckpt_save_file="./strategy.ckpt")
    ),
    "MF-PRECISION-SYNC": Pair(keys(train_precision_sync="on"), keys(train_precision_sync=True)),
    "MF-RESUME-TYPE": Pair(keys(resume_training=1), keys(resume_training=False)),
    "MF-SINK-SIZE": Pair(keys(runner_config__sink_size=-2), keys(runner_config__sink_size=2)),
    "MF-RECOMPUTE-ENDLESS": Pair(
        both(_PP2, keys(recompute_config__recompute=[1, -1])), both(_PP2, keys(recompute_config__recompute=[1, 0]))
    ),
    "MF-RECOMPUTE-CLAMPED": Pair(
        both(_PP2, keys(recompute_config__recompute=[19, 1])), both(_PP2, keys(recompute_config__recompute=[18, 1]))
    ),
    "MF-RECOMPUTE-IDS": Pair(
        keys(swap_config__swap=True, recompute_config__recompute=[1]),
        keys(swap_config__swap=True, recompute_config__recompute=False),
    ),
    "MF-SELECT-KIND": Pair(
        keys(recompute_config__select_recompute=2), keys(recompute_config__select_recompute=["mlp"])
    ),
    "MF-RECOMPUTE-SLICE": Pair(
        keys(recompute_config__recompute_slice_activation=True),
        keys(recompute_config__recompute_slice_activation=False),
    ),
    "MF-PREFETCH": Pair(
        keys(swap_config__swap=True, swap_config__default_prefetch=0),
        keys(swap_config__swap=True, swap_config__default_prefetch=1),
    ),
    "MF-LAYER-SWAP": Pair(
        keys(swap_config__swap=True, swap_config__layer_swap=[{"layers": [1], "backward_prefetch": 0}]),
        keys(swap_config__swap=True, swap_config__layer_swap=[{"layers": [1], "backward_prefetch": 1}]),
    ),
    "MF-OP-SWAP": Pair(
        keys(swap_config__swap=True, swap_config__op_swap=["mlp"]),
        keys(swap_config__swap=True, swap_config__op_swap={"mlp": [{"layers": [1], "backward_prefetch": 1}]}),
    ),
}

MODEL: Mapping[str, Pair] = {
    "MF-SP-TP": Pair(
        keys(parallel_config__use_seq_parallel=True), both({"parallel": {"tp": 2, "sequence_parallel": True}})
    ),
    "MF-KV-TP": Pair(
        {"model": {**QWEN3, "num_key_value_heads": 2}, "parallel": {"tp": 4}},
        {"model": {**QWEN3, "num_key_value_heads": 4}, "parallel": {"tp": 4}},
        "1.6.0",
    ),
    "MF-FLASH-HALF": Pair({"precision": {"dtype": "fp32"}}, {"precision": {"dtype": "bf16"}}),
    "MF-UNFUSED-GROUPS": Pair({"keys": _NO_FLASH}, {"model": {**QWEN3, "num_key_value_heads": 32}, "keys": _NO_FLASH}),
    "MF-CP-FLASH": Pair(both(_CP2, {"keys": _NO_FLASH}), _CP2),
    "MF-CP-FLASH-WRITTEN": Pair(both(_CP2, model(use_flash_attention=None)), _CP2),
    "MF-CP-ALGORITHM": Pair(
        both(_CP2, keys(parallel_config__context_parallel_algo="ring")),
        both(_CP2, keys(parallel_config__context_parallel_algo="colossalai_cp")),
    ),
    "MF-CP-HYBRID": Pair(
        both(_CP2, keys(parallel_config__context_parallel_algo="hybrid_cp", parallel_config__ulysses_degree_in_cp=3)),
        both(_CP2, keys(parallel_config__context_parallel_algo="hybrid_cp", parallel_config__ulysses_degree_in_cp=2)),
    ),
    "MF-CP-DEGREE": Pair(
        both(
            _CP2, keys(parallel_config__context_parallel_algo="colossalai_cp", parallel_config__ulysses_degree_in_cp=2)
        ),
        both(_CP2, keys(parallel_config__context_parallel_algo="colossalai_cp")),
    ),
    "MF-ULYSSES-HEADS": Pair(
        {
            "parallel": {"cp": 2, "cp_algorithm": "ulysses"},
            "model": {**QWEN3, "num_attention_heads": 33, "num_key_value_heads": 33},
        },
        {"parallel": {"cp": 2, "cp_algorithm": "ulysses"}},
    ),
    "MF-ULYSSES-GROUPS": Pair(
        {
            "parallel": {"tp": 4, "cp": 2, "cp_algorithm": "ulysses"},
            "model": {**QWEN3, "num_key_value_heads": 2},
        },
        {
            "parallel": {"tp": 4, "cp": 2, "cp_algorithm": "ulysses"},
            "model": {**QWEN3, "num_key_value_heads": 4},
        },
    ),
    "MF-ULYSSES-LIMIT": Pair(
        {
            "parallel": {"tp": 4, "cp": 2, "cp_algorithm": "ulysses"},
            "model": {**QWEN3, "num_attention_heads": 4, "num_key_value_heads": 4},
        },
        {
            "parallel": {"tp": 4, "cp": 2, "cp_algorithm": "ulysses"},
            "model": {**QWEN3, "num_attention_heads": 8, "num_key_value_heads": 8},
        },
    ),
    "MF-MASK-LENGTH": Pair(
        {"keys": {"use_legacy": True, _MODEL + "use_attn_mask_compression": True, _MODEL + "seq_length": 1024}},
        {"keys": {"use_legacy": True, _MODEL + "use_attn_mask_compression": True, _MODEL + "seq_length": 2048}},
    ),
    "MF-HEADS-LEGACY": Pair(
        {"keys": {"use_legacy": True, _MODEL + "type": "LlamaConfig", _MODEL + "num_heads": 24}},
        {"keys": {"use_legacy": True, _MODEL + "type": "LlamaConfig", _MODEL + "num_heads": 32}},
    ),
    "MF-MASK-FLASH": Pair(
        {"keys": {**_NO_FLASH, _MODEL + "use_attn_mask_compression": True}},
        {"keys": {_MODEL + "use_attn_mask_compression": True}},
    ),
    "MF-RING-FLASH": Pair({"keys": {**_NO_FLASH, _MODEL + "use_ring_attention": True}}, model(use_ring_attention=True)),
    "MF-FINE-GRAIN": Pair(model(fine_grain_interleave=2), both(_CP2, model(fine_grain_interleave=2))),
    "MF-TP-3D": Pair(
        both({"parallel": {"tp": 2, "sequence_parallel": True}}, model(use_3d_tensor_parallel=True)),
        both({"parallel": {"tp": 2, "sequence_parallel": True}}, model(use_3d_tensor_parallel=True, tp_x=2)),
    ),
    "MF-EP-RANKS": Pair(
        {"model": QWEN3_MOE, "parallel": {"ep": 8, "pp": 2}}, {"model": QWEN3_MOE, "parallel": {"ep": 4, "pp": 2}}
    ),
    "MF-DEREDUNDANCY": Pair(
        both({"model": QWEN3_MOE, "parallel": {"ep": 4}}, model(moe_token_dispatcher_type="alltoall_deredundency")),
        both({"model": QWEN3_MOE, "parallel": {"ep": 8}}, model(moe_token_dispatcher_type="alltoall_deredundency")),
    ),
    "MF-BIAS-MOE": Pair(both({"model": QWEN3_MOE}, model(add_bias_linear=True)), {"model": QWEN3_MOE}),
    "MF-TOPK-ONE": Pair(both({"model": _TOP_ONE}, model(moe_router_pre_softmax=False)), {"model": _TOP_ONE}),
    "MF-TOPK-GROUPS": Pair({"model": {**DEEPSEEK, "topk_group": 3}}, {"model": {**DEEPSEEK, "topk_group": 4}}),
    "MF-DENSE-LAYERS": Pair(
        {"model": {**DEEPSEEK, "first_k_dense_replace": 62}}, {"model": {**DEEPSEEK, "first_k_dense_replace": 61}}
    ),
    "MF-CAPACITY-BALANCE": Pair(
        both({"model": DEEPSEEK}, model(moe_expert_capacity_factor=1.0, moe_router_load_balancing_type="none")),
        both({"model": DEEPSEEK}, model(moe_expert_capacity_factor=1.0)),
    ),
    "MF-CAPACITY-BALANCE-OLD": Pair(
        both(_OLD_DEEP, model(moe_expert_capacity_factor=1.0, moe_router_load_balancing_type="sinkhorn")),
        both(_OLD_DEEP, model(moe_expert_capacity_factor=1.0, moe_router_load_balancing_type="aux_loss")),
        "1.6.0",
    ),
    "MF-PAD-CAPACITY": Pair(
        both(_OLD_DEEP, model(moe_pad_expert_input_to_capacity=True)),
        both(_OLD_DEEP, model(moe_pad_expert_input_to_capacity=True, moe_expert_capacity_factor=1.0)),
        "1.6.0",
    ),
    "MF-MOE-SECTION": Pair(keys(moe_config__expert_num=8), {}),
    "MF-OLD-MOE": Pair(
        keys(moe_config__expert_num=8, moe_config__num_experts_chosen=9),
        keys(moe_config__expert_num=8, moe_config__num_experts_chosen=8),
    ),
    "MF-DRYRUN-EXPERTS": Pair(
        {"model": DEEPSEEK, "env": {"MS_SIMULATION_LEVEL": "1"}, "batch": {"seq_length": 4000}},
        {"model": DEEPSEEK, "env": {"MS_SIMULATION_LEVEL": "1"}},
    ),
    "MF-TWICE": Pair(model(n_layer=36, num_layers=36), model(n_layer=36, n_head=32)),
    "MF-DROPOUT": Pair(model(attention_dropout=0), model(attention_dropout=0.1)),
    "MF-MTP": Pair(
        {"model": {**DEEPSEEK, "num_nextn_predict_layers": 2}}, {"model": {**DEEPSEEK, "num_nextn_predict_layers": 1}}
    ),
    "MF-POSITION": Pair(model(position_embedding_type="alibi"), model(position_embedding_type="partial_rope")),
    "MF-NORMALIZATION": Pair(model(normalization="layernorm"), model(normalization="LayerNorm")),
    "MF-ACTIVATION": Pair(model(hidden_act="relu", bias_swiglu_fusion=False), model(hidden_act="SiLU")),
    "MF-DISPATCHER": Pair(
        {"model": QWEN3_MOE, **model(moe_token_dispatcher_type="allgather")},
        {"model": QWEN3_MOE, **model(moe_token_dispatcher_type="alltoall")},
    ),
    "MF-ROUTER-SCORE": Pair(
        {"model": QWEN3_MOE, **model(moe_router_score_function="relu")},
        {"model": QWEN3_MOE, **model(moe_router_score_function="softmax")},
    ),
    "MF-BALANCE-NAMES": Pair(
        {"model": QWEN3_MOE, **model(moe_router_load_balancing_type="aux_loss")},
        {"model": QWEN3_MOE, **model(moe_router_load_balancing_type="gbs_aux_loss")},
    ),
    "MF-MODEL-TYPES": Pair(model(layernorm_compute_dtype="fp8"), model(layernorm_compute_dtype="fp32")),
    "MF-PARAMETER-TYPES": Pair(model(params_dtype="float8"), model(params_dtype="float32")),
    "MF-SWIGLU-FUSION": Pair(
        model(bias_swiglu_fusion=True, hidden_act="silu"), {"kernels": {"bias_activation_fusion": True}}
    ),
    "MF-WINDOW": Pair(model(window_size=[-2, 0]), model(window_size=[-1, 0])),
    "MF-SET-SOFTMAX": Pair(
        {"precision": {"apply_query_key_layer_scaling": True, "attention_softmax_in_fp32": False}},
        {"precision": {"apply_query_key_layer_scaling": True}},
    ),
}

PYNATIVE: Mapping[str, Pair] = {
    "MF-PY-WORLD": Pair(pynative(parallelism__data_parallel_shard=4), pynative(parallelism__data_parallel_shard=8)),
    "MF-PY-BATCH": Pair(pynative(training__global_batch_size=12), pynative(training__global_batch_size=16)),
    "MF-PY-SP": Pair(
        pynative(parallelism__tensor_parallel=2),
        pynative(parallelism__tensor_parallel=2, parallelism__sequence_parallel=True),
    ),
    "MF-PY-EXPERTS": Pair(pynative(parallelism__expert_parallel=3), pynative(parallelism__expert_parallel=4)),
    "MF-PY-DENSE-SHARD": Pair(
        pynative(parallelism__dense_fsdp_shard_size=3), pynative(parallelism__dense_fsdp_shard_size=4)
    ),
    "MF-PY-STAGES": Pair(both(layers(35), pynative(2)), pynative(2)),
    "MF-PY-STAGES-COVER": Pair(
        pynative(2, parallelism__pipeline_parallel_layers_per_stage=["0-20", "18-35"]),
        pynative(2, parallelism__pipeline_parallel_layers_per_stage=["0-17", "18-35"]),
    ),
    "MF-PY-SCHEDULE": Pair(
        pynative(2, parallelism__pipeline_parallel_schedule="interleaved_1f1b"),
        pynative(2, parallelism__pipeline_parallel_schedule="1f1b"),
    ),
    "MF-PY-CONTEXT": Pair(
        pynative(parallelism__context_parallel=2, parallelism__context_parallel_method="ring"),
        pynative(parallelism__context_parallel=2, parallelism__context_parallel_method="ulysses"),
    ),
    "MF-PY-CONTEXT-CAUSAL": Pair(
        pynative(parallelism__context_parallel=2, parallelism__context_parallel_mask_type="general"),
        pynative(parallelism__context_parallel=2, parallelism__context_parallel_mask_type="causal"),
    ),
    "MF-PY-RECOMPUTE": Pair(
        pynative(recompute__mode="full"), pynative(recompute__mode="full", recompute__full_recompute_layer=[0, 1])
    ),
    "MF-PY-SWAP-PP": Pair(pynative(2, swap__enable=True), pynative(swap__enable=True)),
    "MF-PY-DEREDUNDANCY": Pair(
        pynative(parallelism__moe_token_dispatcher_type="alltoall_deredundancy", parallelism__expert_parallel=4),
        pynative(parallelism__moe_token_dispatcher_type="alltoall_deredundancy", parallelism__expert_parallel=8),
    ),
}
