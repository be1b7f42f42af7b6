"""What mcore-bridge and megatron-core set in the model's configuration."""

from collections.abc import Mapping
from typing import Any

from backends.megatron.mapping.factories import mapping_of
from backends.megatron.rules.changes.sources import BRIDGE, CORE, UTILS, sets
from backends.megatron.rules.terms import FOUR
from launcher.job import Value
from launcher.rules.registry import Rule, RuleContext, Setting

_EXTRA, _MODULES = "megatron_extra_kwargs", "recompute_modules"
# Families whose experts mcore-bridge balances within a sequence (mcore-bridge 1.6.5 config/parser.py:196,373,393).
_IN_SEQUENCE = ("deepseek", "deepseek_v2", "deepseek_v3", "kimi_k2", "deepseek_v32", "dots1", "deepseek_v4")
# Arguments that are fields of the configuration, too.
_FIELDS = (
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
    "apply_query_key_layer_scaling",
    "apply_rope_fusion",
    "attention_backend",
    "attention_softmax_in_fp32",
    "batch_p2p_comm",
    "bf16",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "calculate_per_token_loss",
    "context_parallel_size",
    "cp_comm_type",
    "cross_entropy_fusion_impl",
    "cross_entropy_loss_fusion",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "fp16",
    "fp8_amax_compute_algo",
    "fp8_amax_history_len",
    "fp8_recipe",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "microbatch_group_size_per_vp_stage",
    "mlp_padding_free",
    "moe_aux_loss_coeff",
    "moe_enable_deepep",
    "moe_expert_capacity_factor",
    "moe_grouped_gemm",
    "moe_layer_recompute",
    "moe_pad_expert_input_to_capacity",
    "moe_permute_fusion",
    "moe_router_dtype",
    "moe_router_load_balancing_type",
    "moe_shared_expert_overlap",
    "moe_token_dispatcher_type",
    "moe_token_drop_policy",
    "moe_z_loss_coeff",
    "mtp_loss_scaling_factor",
    "mtp_num_layers",
    "mtp_shared_weights",
    "overlap_p2p_comm",
    "perform_initialization",
    "pipeline_model_parallel_size",
    "recompute_granularity",
    "recompute_method",
    "recompute_modules",
    "recompute_num_layers",
    "sequence_parallel",
    "tensor_model_parallel_size",
    "tp_comm_overlap",
    "virtual_pipeline_model_parallel_size",
)


def _extra(context: RuleContext) -> Mapping[str, Any]:
    return mapping_of(context[_EXTRA]) or {}


def _of_extra(name: str) -> Setting:
    return lambda context: _extra(context).get(name, context[name])


def _balancing(context: RuleContext) -> Value:
    return "seq_aux_loss" if context.job.model.model_type in _IN_SEQUENCE else "aux_loss"


def _with_experts(context: RuleContext) -> Value:
    modules = context.items(_MODULES)
    return modules if "moe" in modules else (*modules, "moe")


KWARGS = (
    Rule(
        id="SW-SET-ROPE-FUSION",
        phase="config",
        severity="change",
        when="apply_rope_fusion & job.model.position_embedding!=rope",
        sets={"apply_rope_fusion": False},
        message="apply_rope_fusion true → false: the fused kernel supports position_embedding rope only",
        doc="The fused kernel rotates plain RoPE only.",
        source=f"{UTILS}:61",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-BIAS-DROPOUT",
        phase="config",
        severity="change",
        flags=("bias_dropout_fusion", "moe_grouped_gemm"),
        when="job.model.linear_bias & job.model.is_moe & moe_grouped_gemm & bias_dropout_fusion",
        sets={"bias_dropout_fusion": False},
        message="bias_dropout_fusion true → false: grouped GEMM of experts with bias does not support it",
        doc="Grouped experts with bias do not fuse bias and dropout.",
        source=f"{UTILS}:65",
        since=FOUR,
    ),
    Rule(
        id="SW-SET-DENSE-ETP",
        phase="config",
        severity="change",
        flags=("expert_tensor_parallel_size", "expert_model_parallel_size"),
        when="job.model.hidden_size!=None & !job.model.is_moe",
        sets={"expert_tensor_parallel_size": 1, "expert_model_parallel_size": 1},
        doc="A dense model has no experts to divide.",
        source=f"{UTILS}:67",
        since=FOUR,
    ),
    sets(
        "SW-SET-EXTRA",
        f"{_EXTRA}!=None",
        {name: _of_extra(name) for name in _FIELDS},
        "megatron_extra_kwargs takes precedence over arguments.",
        f"{UTILS}:74",
        reads=_EXTRA,
        phase="config",
        since="4.3",
    ),
    Rule(
        id="SW-SET-UNFUSED",
        phase="config",
        severity="change",
        flags=("padding_free", "attention_backend"),
        when="attention_backend=unfused & padding_free & !packing",
        sets={"padding_free": False},
        reports_unwritten=True,
        message="padding_free true → false: attention_backend unfused needs padded sequences",
        doc="Unfused attention supports padded sequences only.",
        source=f"{UTILS}:21",
        since=FOUR,
    ),
    Rule(
        id="SW-PACKING-UNFUSED",
        phase="config",
        doc="Unfused attention disables padding-free training, without which packed samples attend to one another.",
        source=f"{UTILS}:21",
        when="packing & attention_backend=unfused",
        message="packing with attention_backend unfused: padding_free is switched off, so that packed samples attend "
        "to one another",
        severity="warning",
        since=FOUR,
    ),
)
MODEL = (
    sets(
        "SW-SET-ROUTER-DTYPE",
        "moe_router_dtype=none",
        {"moe_router_dtype": None},
        "The value none means the dtype of the model.",
        f"{BRIDGE}:293",
        phase="config",
        reports_written=False,
    ),
    sets(
        "SW-SET-P2P-BATCHES",
        "overlap_p2p_comm",
        {"batch_p2p_comm": False},
        "Overlapped pipeline communication does not use batched send/receive.",
        f"{BRIDGE}:314",
        phase="config",
        since="4.3",
    ),
    sets(
        "SW-SET-MTP",
        "mtp_shared_weights & mtp_num_layers!=None",
        {"mtp_num_layers": 1},
        "Multi-token prediction layers that share their weights count as one layer.",
        f"{BRIDGE}:335",
        phase="config",
        since="4.1",
    ),
    sets(
        "SW-SET-BALANCING",
        "moe_router_load_balancing_type=None & job.model.model_type!=None",
        {"moe_router_load_balancing_type": _balancing},
        "The default balancing loss is aux_loss; for DeepSeek models it is seq_aux_loss.",
        "mcore-bridge 1.6.5 config/parser.py:196; " + f"{BRIDGE}:165",
        reads="job.model.model_type",
        phase="config",
    ),
    sets(
        "SW-SET-CP-COMM",
        "cp_comm_type=None",
        {"cp_comm_type": "p2p"},
        "By default context parallelism exchanges keys and values in a ring (p2p).",
        f"{BRIDGE}:262",
        phase="config",
        since="4.4",
    ),
    sets(
        "SW-SET-CHUNK-GROUP",
        "microbatch_group_size_per_vp_stage=None",
        {"microbatch_group_size_per_vp_stage": "{pipeline_model_parallel_size}"},
        "By default a chunk processes micro-batches in groups of pipeline-parallel size.",
        "megatron-core 0.16.1 model_parallel_config.py:448",
        phase="config",
    ),
    Rule(
        id="SW-SET-SOFTMAX",
        phase="config",
        severity="change",
        when="apply_query_key_layer_scaling & attention_softmax_in_fp32=False",
        sets={"attention_softmax_in_fp32": True},
        message="attention_softmax_in_fp32 false → true: apply_query_key_layer_scaling needs it",
        doc="Scaling attention scores by the layer needs a softmax in fp32.",
        source="megatron-core 0.16.1 transformer_config.py:1038; 0.12.1:617",
    ),
    sets(
        "SW-SET-CAPACITY",
        "moe_expert_capacity_factor<0",
        {"moe_expert_capacity_factor": None},
        "A negative capacity factor means no capacity: no tokens are dropped.",
        f"{CORE}:1107",
        phase="config",
        reports_written=False,
    ),
    sets(
        "SW-SET-MODULES",
        f"!{_MODULES}",
        {_MODULES: ("core_attn",)},
        "By default selective recomputation recomputes core attention.",
        f"{CORE}:1194",
        phase="config",
        reports_written=False,
    ),
    sets(
        "SW-SET-MOE-RECOMPUTE",
        "moe_layer_recompute",
        {"recompute_granularity": "selective", _MODULES: _with_experts},
        "The older argument means selective recomputation of MoE layers.",
        f"{CORE}:1264; megatron-core 0.12.1 transformer/transformer_config.py:763",
        reads=_MODULES,
        phase="config",
        unread=("moe_layer_recompute",),
        since="",
    ),
)
