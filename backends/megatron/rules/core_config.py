"""Checks of Megatron-core's configuration classes, on the values that Megatron-SWIFT's options set."""

from collections.abc import Mapping

from backends.megatron.rules.view import FOUR, SwiftRule, View, declare
from launcher.rules.sanity_checks import layout_fault
from launcher.rules.training import GROUP_SCORES, group_scores_differ

_CONFIG = "megatron-core 0.16.1 transformer_config.py"
_OLD = "0.12.1"
_OPTIMIZER = "megatron-core 0.16.1 optimizer_config.py"
_LAYOUT = "megatron-core 0.16.1 pipeline_parallel_layer_layout.py"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
_ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def _layout_fault(v: View) -> str:
    layout = str(v.pipeline_model_parallel_layout)
    return layout_fault(layout, v.pipeline_model_parallel_size, v.mtp_num_layers or 0)


def _offload_fault(v: View) -> str:
    wanted, layers = v.job.offload.activation_layers or 0, v.job.model.num_hidden_layers
    if not wanted:
        return ""
    if layers is not None and not 0 <= wanted < layers:
        return f"fewer than all {layers} layers can wait on the host"
    if v.pipeline_model_parallel_size > 1:
        return f"not with a pipeline (pp {v.pipeline_model_parallel_size})"
    granularity = v.recompute_granularity
    return "" if granularity in (None, "none") else f"not with recomputation (recompute_granularity {granularity})"


LAYOUT = (
    SwiftRule(
        id="SW-LAYOUT",
        doc="An explicit layout places every layer once, embedding first and loss last, on a whole number of chunks.",
        source=f"{_LAYOUT}:85; ms-swift 4.6.0 megatron_args.py:1096",
        flags=("pipeline_model_parallel_layout", "pipeline_model_parallel_size"),
        when=lambda v: v.pipeline_model_parallel_layout is not None and _layout_fault(v),
        say=lambda v: f"layout {v.pipeline_model_parallel_layout}: {_layout_fault(v)}",
        since="3.7",
    ),
    SwiftRule(
        id="SW-LAYOUT-ALONE",
        doc="A layout says everything about the split; other ways to say it contradict it.",
        source=f"{_CONFIG}:1305; Megatron-LM core_v0.13 arguments.py",
        flags=("pipeline_model_parallel_layout", *_ENDS, *_ACCOUNTS),
        fields=("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers"),
        when=lambda v: (
            v.pipeline_model_parallel_layout is not None
            and (any(getattr(v, name) is not None for name in _ENDS) or any(getattr(v, name) for name in _ACCOUNTS))
        ),
        say="pipeline_model_parallel_layout stands alone: no first or last stage, no accounting for embedding or loss",
        since="3.7",
    ),
    SwiftRule(
        id="SW-UNEVEN-ACCOUNT",
        doc="Uneven ends are given, or follow from counting embedding and loss as layers: not both.",
        source=f"{_CONFIG}:1286; {_OLD}:767",
        flags=(*_ENDS, *_ACCOUNTS),
        when=lambda v: (
            v.pipeline_model_parallel_layout is None
            and any(getattr(v, name) is not None for name in _ENDS)
            and any(getattr(v, name) for name in _ACCOUNTS)
        ),
        say="first or last stage layers with account_for_embedding or account_for_loss: keep one way to split",
    ),
    SwiftRule(
        id="SW-STAGE-EMPTY",
        doc="The first and the last stage hold at least one layer.",
        source=f"{_CONFIG}:1345,1364; {_OLD}:787",
        flags=_ENDS,
        when=lambda v: any(getattr(v, name) is not None and getattr(v, name) <= 0 for name in _ENDS),
        say="first and last stage hold at least one layer each: use a layout for empty ones",
    ),
)


def _modules(v: View) -> tuple[str, ...]:
    selective = v.recompute_granularity == "selective"
    return v.many("recompute_modules") if selective else ()


def _model_known(v: View) -> bool:
    return v.job.model.hidden_size is not None


_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")

RECOMPUTE = (
    SwiftRule(
        id="SW-DISTRIBUTE-SP",
        doc="Sequence parallelism spreads kept activations already; spreading them again is refused with recompute.",
        source=f"{_CONFIG}:1187",
        flags=("megatron_extra_kwargs", "recompute_granularity", "sequence_parallel"),
        fields=("recompute.distribute_saved_activations", "parallel.sequence_parallel"),
        when=lambda v: (
            v.job.recompute.distribute_saved_activations
            and v.sequence_parallel
            and v.tensor_model_parallel_size > 1
            and v.recompute_granularity not in (None, "none")
        ),
        say="recompute.distribute_saved_activations with sequence_parallel, which does that already",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-RC-DEFAULT",
        doc="swift recomputes selectively unless told otherwise, and a method or a number of layers contradicts that.",
        source=f"ms-swift 4.6.0 megatron_args.py:849; {_CONFIG}:1180",
        flags=("recompute_granularity", "recompute_method", "recompute_num_layers"),
        when=lambda v: (
            v.job.recompute.granularity is None
            and v.recompute_granularity == "selective"
            and (v.recompute_method is not None or v.recompute_num_layers is not None)
        ),
        say="recompute.method and num_layers need granularity full: swift's own default is selective",
    ),
    SwiftRule(
        id="SW-RC-MODULES",
        doc="Selective recompute knows these modules.",
        source=f"{_CONFIG}:1191",
        flags=("recompute_modules",),
        when=lambda v: v.recompute_granularity == "selective" and set(_modules(v)) - set(_MODULES),
        say=lambda v: (
            f"recompute_modules {', '.join(sorted(set(_modules(v)) - set(_MODULES)))}: known are {', '.join(_MODULES)}"
        ),
        since="3.7",
    ),
    SwiftRule(
        id="SW-GROUP-SCORES",
        doc="A group of experts is scored by its best topk / topk_group experts; models count one (V2) or two (V3).",
        source=GROUP_SCORES,
        severity="warning",
        flags=("moe_router_num_groups", "moe_router_group_topk"),
        when=lambda v: group_scores_differ(v.job.model),
        say=lambda v: group_scores_differ(v.job.model),
        fields=("model.n_group", "model.topk_group", "model.num_experts_per_tok"),
        since="3.7",
    ),
    SwiftRule(
        id="SW-RC-SHARED-OLD",
        doc="Core 0.12 does not recompute shared experts by themselves.",
        source=f"megatron-core {_OLD} transformer_config.py:728",
        flags=("recompute_modules",),
        when=lambda v: "shared_experts" in _modules(v),
        say="recompute.modules shared_experts: this version's Megatron-core does not know it",
        until="3.6.99",
    ),
    SwiftRule(
        id="SW-RC-MOE-ACT",
        doc="The activation of experts is recomputed inside the grouped kernel only.",
        source=f"{_CONFIG}:1207; {_OLD}:735",
        flags=("recompute_modules", "moe_grouped_gemm"),
        when=lambda v: "moe_act" in _modules(v) and v.moe_grouped_gemm is False,
        say="recompute.modules moe_act needs moe.grouped_gemm",
    ),
    SwiftRule(
        id="SW-RC-MLA",
        doc="The up-projection of latent attention exists only in models that have it.",
        source=f"{_CONFIG}:1212; {_OLD}:740",
        flags=("recompute_modules",),
        when=lambda v: "mla_up_proj" in _modules(v) and _model_known(v) and not v.job.model.is_mla,
        say="recompute.modules mla_up_proj, but the model has no multi-head latent attention",
    ),
    SwiftRule(
        id="SW-RC-SHARED-OVERLAP",
        doc="A shared expert that runs beside the dispatch cannot be recomputed by itself.",
        source=f"{_CONFIG}:1226",
        flags=("recompute_modules", "moe_shared_expert_overlap"),
        when=lambda v: (
            "shared_experts" in _modules(v)
            and v.moe_shared_expert_overlap
            and v.job.model.shared_expert_intermediate_size is not None
        ),
        say="recompute.modules shared_experts cannot be combined with moe.shared_expert_overlap",
        since="3.7",
    ),
    SwiftRule(
        id="SW-RC-FP8-DELAYED",
        doc="Delayed scaling keeps amax histories that recomputed activations would update twice.",
        source=f"{_CONFIG}:1234",
        flags=("recompute_modules", "fp8_recipe", "fp8_format"),
        when=lambda v: v.fp8_format and v.fp8_recipe == "delayed" and {"moe_act", "layernorm"} & set(_modules(v)),
        say="recompute.modules moe_act and layernorm need an fp8_recipe other than delayed",
        since="3.7",
    ),
    SwiftRule(
        id="SW-RC-LAYER",
        doc="The old switch for recomputing MoE layers belongs to selective recompute.",
        source=f"{_CONFIG}:1250; {_OLD}:759",
        flags=("moe_layer_recompute", "recompute_granularity"),
        when=lambda v: v.moe_layer_recompute and v.recompute_granularity == "full",
        say="moe_layer_recompute with full recompute: use recompute.granularity=selective, modules [moe]",
    ),
)

PRECISION = (
    SwiftRule(
        id="SW-FP16-BF16",
        doc="Weights have one precision.",
        source=f"{_CONFIG}:915; Megatron-LM core_v0.12.1 arguments.py:573",
        flags=("fp16", "bf16"),
        fields=("precision.dtype",),
        when=lambda v: v.fp16 and v.bf16,
        say="fp16 and bf16 are both true",
    ),
    SwiftRule(
        id="SW-FP16-DTYPE",
        doc="What is not said of fp16 and bf16 follows torch_dtype, else the model's own, which is bfloat16 today.",
        source="ms-swift 4.6.0 model_args.py:130; megatron-core 0.16.1 model_parallel_config.py",
        flags=("fp16", "bf16", "torch_dtype"),
        fields=("precision.dtype",),
        when=lambda v: (
            (v.fp16 and v.bf16 is None and str(v.torch_dtype).removeprefix("torch.") in ("None", "bfloat16"))
            or (v.bf16 and v.fp16 is None and str(v.torch_dtype).removeprefix("torch.") in ("float16", "float32"))
        ),
        say=lambda v: (
            "fp16 true, and bf16 follows a bfloat16 model: both at once, write bf16 false"
            if v.fp16
            else f"bf16 true, and fp16 follows torch_dtype {v.torch_dtype}: both at once, write fp16 false"
        ),
        since=FOUR,
    ),
    SwiftRule(
        id="SW-FP8-PARAM",
        doc="Weights can be kept in FP8 only where products are in FP8.",
        source=f"{_CONFIG}:1027; {_OLD}:614",
        flags=("fp8_param_gather", "fp8_format"),
        when=lambda v: v.fp8_param_gather and not v.fp8_format,
        say="precision.fp8_param_gather needs precision.fp8_format",
        since="3.6",
    ),
    SwiftRule(
        id="SW-FP4-FP8",
        doc="Matrix products are in FP4 or in FP8.",
        source=f"{_CONFIG}:1034",
        flags=("fp4_format", "fp8_format"),
        when=lambda v: v.fp4_format and v.fp8_format,
        say="fp4_format and fp8_format are both set",
        since="4.6",
    ),
    SwiftRule(
        id="SW-FP4-PARAM",
        doc="Weights can be kept in FP4 only where products are in FP4.",
        source=f"{_CONFIG}:1031",
        flags=("fp4_param_gather", "fp4_format"),
        when=lambda v: v.fp4_param_gather and not v.fp4_format,
        say="fp4_param_gather needs fp4_format",
        since="4.6",
    ),
)


def _balances(v: View) -> tuple[str, ...]:
    return v.many("moe_router_load_balancing_type")


def _moe(v: View) -> bool:
    return v.job.model.is_moe or not _model_known(v)


_CAPACITY = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")

EXPERTS = (
    SwiftRule(
        id="SW-DEEPEP-FLEX",
        doc="DeepEP is an implementation of the flex dispatcher.",
        source=f"{_CONFIG}:1064; {_OLD}:630",
        flags=("moe_enable_deepep", "moe_token_dispatcher_type"),
        when=lambda v: v.moe_enable_deepep and v.moe_token_dispatcher_type != "flex",
        say="moe.deepep needs moe.token_dispatcher_type=flex, not {moe_token_dispatcher_type}",
        since="3.5.0",
    ),
    SwiftRule(
        id="SW-SHARED-OVERLAP",
        doc="A shared expert runs beside the dispatch of the all-to-all dispatcher only.",
        source=f"{_CONFIG}:1090; {_OLD}:646",
        flags=("moe_shared_expert_overlap", "moe_token_dispatcher_type"),
        when=lambda v: (
            v.moe_shared_expert_overlap
            and v.moe_token_dispatcher_type != "alltoall"
            and v.job.model.shared_expert_intermediate_size is not None
        ),
        say="moe.shared_expert_overlap needs moe.token_dispatcher_type=alltoall, not {moe_token_dispatcher_type}",
    ),
    SwiftRule(
        id="SW-CAPACITY-BALANCE",
        doc="Dropping tokens beyond capacity is defined for balancing losses (or none), not for sinkhorn.",
        source=f"{_CONFIG}:1109",
        flags=("moe_expert_capacity_factor", "moe_router_load_balancing_type"),
        when=lambda v: v.moe_expert_capacity_factor is not None and set(_balances(v)) - set(_CAPACITY) and _moe(v),
        say=f"moe.capacity_factor needs moe.load_balancing_type {', '.join(_CAPACITY)}",
        since="3.7",
    ),
    SwiftRule(
        id="SW-CAPACITY-BALANCE-OLD",
        doc="Core 0.12 drops tokens with the losses aux_loss and seq_aux_loss only.",
        source=f"megatron-core {_OLD} transformer_config.py:656",
        flags=("moe_expert_capacity_factor", "moe_router_load_balancing_type"),
        when=lambda v: (
            v.moe_expert_capacity_factor is not None
            and set(_balances(v)) - {"aux_loss", "seq_aux_loss", "none"}
            and _moe(v)
        ),
        say="moe.capacity_factor needs moe.load_balancing_type aux_loss, seq_aux_loss or none",
        until="3.6.99",
    ),
    SwiftRule(
        id="SW-PAD-CAPACITY",
        doc="Inputs of experts can be padded to a capacity only if there is one.",
        source=f"{_CONFIG}:1131; {_OLD}:661",
        flags=("moe_pad_expert_input_to_capacity", "moe_expert_capacity_factor"),
        when=lambda v: v.moe_pad_expert_input_to_capacity and v.moe_expert_capacity_factor is None,
        say="moe.pad_to_capacity needs moe.capacity_factor",
    ),
    SwiftRule(
        id="SW-PAD-FLEX",
        doc="DeepEP dispatches no padding.",
        source=f"{_CONFIG}:1074; {_OLD}:633",
        flags=("moe_pad_expert_input_to_capacity", "moe_token_dispatcher_type", "moe_enable_deepep"),
        when=lambda v: (
            v.moe_pad_expert_input_to_capacity
            and v.moe_token_dispatcher_type == "flex"
            and (v.moe_enable_deepep or v.moe_flex_dispatcher_backend in (None, "deepep"))
        ),
        say="moe.pad_to_capacity cannot be combined with the flex dispatcher on DeepEP",
        since="3.7",
    ),
    SwiftRule(
        id="SW-BALANCE-LIST",
        doc="Several balancing losses need as many coefficients.",
        source=f"{_CONFIG}:1097",
        flags=("moe_router_load_balancing_type", "moe_aux_loss_coeff"),
        when=lambda v: len(_balances(v)) > 1 and len(v.many("moe_aux_loss_coeff")) != len(_balances(v)),
        say=lambda v: f"{len(_balances(v))} balancing losses, but {len(v.many('moe_aux_loss_coeff'))} coefficients",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-ALLGATHER",
        doc="The all-gather dispatcher needs sequences of one length; mcore-bridge always lets them vary.",
        source=f"{_CONFIG}:1827; mcore-bridge 1.6.5 config/model_config.py",
        flags=("moe_token_dispatcher_type",),
        when=lambda v: v.moe_token_dispatcher_type == "allgather",
        say="moe.token_dispatcher_type allgather is offered but always refused: lengths of sequences may vary here",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-ALLTOALL-SEQ",
        doc="The old sequence all-to-all dispatcher wants experts split like the rest, and no fused permutation.",
        source=f"megatron-core {_OLD} transformer_config.py:948",
        flags=("moe_token_dispatcher_type", "expert_tensor_parallel_size", "moe_permute_fusion"),
        when=lambda v: (
            v.moe_token_dispatcher_type == "alltoall_seq"
            and (
                v.moe_permute_fusion
                or (v.expert_tensor_parallel_size or v.tensor_model_parallel_size) != v.tensor_model_parallel_size
            )
        ),
        say="alltoall_seq needs etp equal to tp and no moe.permute_fusion: use alltoall",
        until="3.99",
    ),
    SwiftRule(
        id="SW-TOPK-ONE",
        doc="Softmax over one chosen expert has no gradient: with top-1 it must come before the choice.",
        source=f"{_CONFIG}:1613; {_OLD}:976",
        flags=("moe_router_topk", "moe_router_load_balancing_type"),
        fields=("model.num_experts_per_tok", "model.norm_topk_prob", "moe.load_balancing_type"),
        when=lambda v: (
            v.job.model.num_experts_per_tok == 1
            and v.job.model.scoring_func == "softmax"
            and v.job.model.norm_topk_prob
            and "sinkhorn" not in _balances(v)
        ),
        say="num_experts_per_tok 1 with softmax needs norm_topk_prob false (softmax before the choice)",
    ),
    SwiftRule(
        id="SW-BIAS-ETP",
        doc="Bias in experts works only where experts are not split by tensor parallelism.",
        source=f"{_CONFIG}:1583",
        flags=("expert_tensor_parallel_size",),
        fields=("model.linear_bias", "parallel.etp"),
        when=lambda v: v.job.model.is_moe and v.job.model.linear_bias and (v.expert_tensor_parallel_size or 1) > 1,
        say="linear bias in experts needs etp 1, not {expert_tensor_parallel_size}",
        since="3.7",
    ),
)

_STATES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")

OPTIMIZER = (
    SwiftRule(
        id="SW-PRECISION-AWARE",
        doc="States in lower precision are a feature of Adam under the distributed optimizer.",
        source=f"{_OPTIMIZER}:376; after the weights are loaded",
        flags=("use_precision_aware_optimizer", "optimizer", "use_distributed_optimizer"),
        when=lambda v: (
            v.use_precision_aware_optimizer and (v.optimizer != "adam" or v.use_distributed_optimizer is False)
        ),
        say="optimizer.precision_aware needs optimizer adam and the distributed optimizer",
        since="3.5.0",
    ),
    SwiftRule(
        id="SW-STATE-DTYPE",
        doc="States are fp32 unless the optimizer is told to be aware of their precision.",
        source=f"{_OPTIMIZER}:411; after the weights are loaded",
        flags=(*_STATES, "use_precision_aware_optimizer"),
        when=lambda v: (
            not v.use_precision_aware_optimizer and any(getattr(v, name) not in (None, "fp32") for name in _STATES)
        ),
        say="main_grads, main_params, exp_avg and exp_avg_sq other than fp32 need optimizer.precision_aware",
        since="3.6",
    ),
    SwiftRule(
        id="SW-GATHER-DISTRIBUTED",
        doc="Weights are gathered only where the optimizer is distributed.",
        source="Megatron-LM core_v0.12.1 arguments.py:503; megatron-core 0.16.1 distributed_data_parallel_config.py",
        flags=("overlap_param_gather", "use_distributed_optimizer"),
        when=lambda v: v.overlap_param_gather and v.use_distributed_optimizer is False and not v.use_megatron_fsdp,
        say="overlap.param_gather needs parallel.distributed_optimizer",
        until="3.99",
    ),
    SwiftRule(
        id="SW-GATHER-REDUCE",
        doc="Weights are gathered ahead only where gradients are reduced early; 3.x refuses it.",
        source="Megatron-LM core_v0.12.1 arguments.py:505",
        flags=("overlap_param_gather", "overlap_grad_reduce"),
        when=lambda v: v.overlap_param_gather and not v.overlap_grad_reduce,
        say="overlap.param_gather needs overlap.grad_reduce",
        until="3.99",
    ),
    SwiftRule(
        id="SW-GATHER-REDUCE-UNCHECKED",
        doc="Megatron-LM refuses gathering weights ahead without early reduction of gradients; 4.x does not check it.",
        source="Megatron-LM core_v0.12.1 arguments.py:505; not checked by ms-swift 4.6.0",
        flags=("overlap_param_gather", "overlap_grad_reduce"),
        when=lambda v: v.overlap_param_gather and not v.overlap_grad_reduce,
        say="overlap.param_gather without overlap.grad_reduce: Megatron-LM refuses it, this version checks nothing",
        severity="warning",
        since=FOUR,
    ),
    SwiftRule(
        id="SW-OFFLOAD-LAYERS",
        doc="Activations of layers wait on the host in one pipeline stage, without recomputation, and not for all.",
        source=f"{_CONFIG}:1137-1152",
        flags=("megatron_extra_kwargs", "pipeline_model_parallel_size", "recompute_granularity"),
        fields=("offload.activation_layers", "parallel.pp", "recompute.granularity"),
        when=lambda v: bool(_offload_fault(v)),
        say=lambda v: f"offload.activation_layers {v.job.offload.activation_layers}: {_offload_fault(v)}",
        since="4.3",
    ),
    SwiftRule(
        id="SW-OFFLOAD-AWARE",
        doc="The optimizer on the host works with the precision-aware optimizer; 3.x refuses it otherwise.",
        source="Megatron-LM core_v0.12.1 arguments.py:946",
        flags=("optimizer_cpu_offload", "use_precision_aware_optimizer"),
        when=lambda v: v.optimizer_cpu_offload and not v.use_precision_aware_optimizer,
        say="offload.optimizer needs optimizer.precision_aware",
        since="3.5.0",
        until="3.99",
    ),
    SwiftRule(
        id="SW-OFFLOAD-AWARE-UNCHECKED",
        doc="Megatron-LM refuses an optimizer on the host that is not precision-aware; 4.x does not check it.",
        source="Megatron-LM core_v0.12.1 arguments.py:946; not checked by ms-swift 4.6.0",
        flags=("optimizer_cpu_offload", "use_precision_aware_optimizer"),
        when=lambda v: v.optimizer_cpu_offload and not v.use_precision_aware_optimizer,
        say="offload.optimizer without optimizer.precision_aware: Megatron-LM refuses it, this version checks nothing",
        severity="warning",
        since=FOUR,
    ),
)

TABLES: Mapping[str, tuple[SwiftRule, ...]] = {
    "layout": LAYOUT,
    "recompute": RECOMPUTE,
    "precision": PRECISION,
    "experts": EXPERTS,
    "optimizer": OPTIMIZER,
}
for _table in TABLES.values():
    declare(*_table)
