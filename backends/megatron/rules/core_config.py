"""Checks of Megatron-core's configuration classes, on the values that Megatron-SWIFT's options set."""

from backends.megatron.rules.terms import BACKENDS, FOUR
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.sanity_checks import layout_fault
from launcher.rules.table import declare
from launcher.rules.training import GROUP_SCORES, group_scores_differ

_CONFIG = "megatron-core 0.16.1 transformer_config.py"
_OLD = "0.12.1"
_OPTIMIZER = "megatron-core 0.16.1 optimizer_config.py"
_LAYOUT = "megatron-core 0.16.1 pipeline_parallel_layer_layout.py"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
_ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def _layout_fault(facts: RuleContext) -> str:
    layout = str(facts["pipeline_model_parallel_layout"])
    return layout_fault(layout, facts["pipeline_model_parallel_size"], facts["mtp_num_layers"] or 0)


def _offload_fault(facts: RuleContext) -> str:
    wanted, layers = facts.job.offload.activation_layers or 0, facts.job.model.num_hidden_layers
    if not wanted:
        return ""
    if layers is not None and not 0 <= wanted < layers:
        return f"fewer than all {layers} layers can wait on the host"
    if facts["pipeline_model_parallel_size"] > 1:
        return f"not with a pipeline (pp {facts['pipeline_model_parallel_size']})"
    granularity = facts["recompute_granularity"]
    return "" if granularity in (None, "none") else f"not with recomputation (recompute_granularity {granularity})"


LAYOUT = (
    Rule(
        id="SW-LAYOUT",
        doc="An explicit layout places every layer once, embedding first and loss last, on a whole number of chunks.",
        source=f"{_LAYOUT}:85; ms-swift 4.6.0 megatron_args.py:1096",
        flags=("pipeline_model_parallel_layout", "pipeline_model_parallel_size"),
        when="pipeline_model_parallel_layout!=None",
        check=lambda facts: (
            _layout_fault(facts) and f"layout {facts['pipeline_model_parallel_layout']}: {_layout_fault(facts)}"
        ),
        reads="mtp_num_layers",
        since="3.7",
    ),
    Rule(
        id="SW-LAYOUT-ALONE",
        doc="A layout says everything about the split; other ways to say it contradict it.",
        source=f"{_CONFIG}:1305; Megatron-LM core_v0.13 arguments.py",
        flags=("pipeline_model_parallel_layout", *_ENDS, *_ACCOUNTS),
        fields=("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers"),
        when="pipeline_model_parallel_layout!=None",
        then="decoder_first_pipeline_num_layers=None & decoder_last_pipeline_num_layers=None & "
        "!account_for_embedding_in_pipeline_split & !account_for_loss_in_pipeline_split",
        message="pipeline_model_parallel_layout stands alone: no first or last stage, no accounting for "
        "embedding or loss",
        since="3.7",
    ),
    Rule(
        id="SW-UNEVEN-ACCOUNT",
        doc="Uneven ends are given, or follow from counting embedding and loss as layers: not both.",
        source=f"{_CONFIG}:1286; {_OLD}:767",
        flags=(*_ENDS, *_ACCOUNTS),
        when="pipeline_model_parallel_layout=None",
        check=lambda facts: (
            (
                facts["decoder_first_pipeline_num_layers"] is not None
                or facts["decoder_last_pipeline_num_layers"] is not None
            )
            and (facts["account_for_embedding_in_pipeline_split"] or facts["account_for_loss_in_pipeline_split"])
        ),
        message="first or last stage layers with account_for_embedding or account_for_loss: keep one way to split",
    ),
    Rule(
        id="SW-STAGE-EMPTY",
        doc="The first and the last stage hold at least one layer.",
        source=f"{_CONFIG}:1368,1387; {_OLD}:787,806",
        flags=_ENDS,
        check=lambda facts: any(facts[name] is not None and facts[name] <= 0 for name in _ENDS),
        message="first and last stage hold at least one layer each: use a layout for empty ones",
    ),
)


def _modules(facts: RuleContext) -> tuple[str, ...]:
    selective = facts["recompute_granularity"] == "selective"
    return facts.items("recompute_modules") if selective else ()


_MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")

RECOMPUTE = (
    Rule(
        id="SW-DISTRIBUTE-SP",
        doc="Sequence parallelism spreads kept activations already; spreading them again is refused with recompute.",
        source=f"{_CONFIG}:1187",
        flags=("megatron_extra_kwargs", "recompute_granularity", "sequence_parallel"),
        fields=("recompute.distribute_saved_activations", "parallel.sequence_parallel"),
        when="job.recompute.distribute_saved_activations & sequence_parallel & tensor_model_parallel_size>1 & "
        "recompute_granularity!=None|none",
        message="recompute.distribute_saved_activations with sequence_parallel, which does that already",
        since=FOUR,
    ),
    Rule(
        id="SW-RC-DEFAULT",
        doc="swift recomputes selectively by default, and a method or a number of layers contradicts that.",
        source=f"ms-swift 4.6.0 megatron_args.py:849; {_CONFIG}:1180",
        when="job.recompute.granularity=None & recompute_granularity=selective",
        then="recompute_method=None & recompute_num_layers=None",
        message="recompute.method and num_layers need granularity full: swift's own default is selective",
    ),
    Rule(
        id="SW-RC-MODULES",
        doc="Selective recompute knows these modules.",
        source=f"{_CONFIG}:1191",
        flags=("recompute_modules",),
        when="recompute_granularity=selective",
        check=lambda facts: (
            set(_modules(facts)) - set(_MODULES)
            and f"recompute_modules {', '.join(sorted(set(_modules(facts)) - set(_MODULES)))}: known are "
            f"{', '.join(_MODULES)}"
        ),
        since="3.7",
    ),
    Rule(
        id="SW-GROUP-SCORES",
        doc="A group of experts is scored by its best topk / topk_group experts; models count one (V2) or two (V3).",
        source=GROUP_SCORES,
        severity="warning",
        flags=("moe_router_num_groups", "moe_router_group_topk"),
        check=lambda facts: group_scores_differ(facts.job.model),
        reads="job.model.num_experts_per_tok job.model.n_group job.model.topk_group job.model.scoring_func",
        fields=("model.n_group", "model.topk_group", "model.num_experts_per_tok"),
        since="3.7",
    ),
    Rule(
        id="SW-RC-SHARED-OLD",
        doc="Core 0.12 does not recompute shared experts by themselves.",
        source=f"megatron-core {_OLD} transformer_config.py:728",
        flags=("recompute_modules",),
        when="recompute_granularity=selective & recompute_modules~shared_experts",
        message="recompute.modules shared_experts: this version's Megatron-core does not know it",
        until="3.6.99",
    ),
    Rule(
        id="SW-RC-MOE-ACT",
        doc="The activation of experts is recomputed inside the grouped kernel only.",
        source=f"{_CONFIG}:1207; {_OLD}:735",
        flags=("recompute_modules", "moe_grouped_gemm"),
        when="recompute_granularity=selective & recompute_modules~moe_act & moe_grouped_gemm=False",
        message="recompute.modules moe_act needs moe.grouped_gemm",
    ),
    Rule(
        id="SW-RC-MLA",
        doc="The up-projection of latent attention exists only in models that have it.",
        source=f"{_CONFIG}:1212; {_OLD}:740",
        flags=("recompute_modules",),
        when="recompute_granularity=selective & recompute_modules~mla_up_proj & job.model.hidden_size!=None & "
        "!job.model.is_mla",
        message="recompute.modules mla_up_proj, but the model has no multi-head latent attention",
    ),
    Rule(
        id="SW-RC-SHARED-OVERLAP",
        doc="A shared expert that runs beside the dispatch cannot be recomputed by itself.",
        source=f"{_CONFIG}:1226",
        flags=("recompute_modules", "moe_shared_expert_overlap"),
        when="recompute_granularity=selective & recompute_modules~shared_experts & moe_shared_expert_overlap & "
        "job.model.shared_expert_intermediate_size!=None",
        message="recompute.modules shared_experts cannot be combined with moe.shared_expert_overlap",
        since="3.7",
    ),
    Rule(
        id="SW-RC-FP8-DELAYED",
        doc="Delayed scaling keeps amax histories that recomputed activations would update twice.",
        source=f"{_CONFIG}:1234",
        flags=("recompute_modules", "fp8_recipe", "fp8_format"),
        when="fp8_format & fp8_recipe=delayed & recompute_granularity=selective",
        then="!recompute_modules~moe_act & !recompute_modules~layernorm",
        message="recompute.modules moe_act and layernorm need an fp8_recipe other than delayed",
        since="3.7",
    ),
    Rule(
        id="SW-RC-LAYER",
        doc="The old switch for recomputing MoE layers belongs to selective recompute.",
        source=f"{_CONFIG}:1250; {_OLD}:759",
        when="moe_layer_recompute & recompute_granularity=full",
        message="moe_layer_recompute with full recompute: use recompute.granularity=selective, modules [moe]",
    ),
)

PRECISION = (
    Rule(
        id="SW-FP16-BF16",
        doc="Weights have one precision.",
        source=f"{_CONFIG}:915; Megatron-LM core_v0.12.1 arguments.py:573",
        fields=("precision.dtype",),
        when="fp16 & bf16",
        message="fp16 and bf16 are both true",
    ),
    Rule(
        id="SW-FP16-DTYPE",
        doc="What is not said of fp16 and bf16 follows torch_dtype, else the model's own, which is bfloat16 today.",
        source="ms-swift 4.6.0 model_args.py:130; megatron-core 0.16.1 model_parallel_config.py",
        flags=("fp16", "bf16", "torch_dtype"),
        fields=("precision.dtype",),
        check=lambda facts: (
            (
                (
                    facts["fp16"]
                    and facts["bf16"] is None
                    and (str(facts["torch_dtype"]).removeprefix("torch.") in ("None", "bfloat16"))
                )
                or (
                    facts["bf16"]
                    and facts["fp16"] is None
                    and (str(facts["torch_dtype"]).removeprefix("torch.") in ("float16", "float32"))
                )
            )
            and (
                "fp16 true, and bf16 follows a bfloat16 model: both at once, write bf16 false"
                if facts["fp16"]
                else f"bf16 true, and fp16 follows torch_dtype {facts['torch_dtype']}: both at once, write fp16 false"
            )
        ),
        since=FOUR,
    ),
    Rule(
        id="SW-FP8-PARAM",
        doc="Weights can be kept in FP8 only where products are in FP8.",
        source=f"{_CONFIG}:1027; {_OLD}:614",
        when="fp8_param_gather & !fp8_format",
        message="precision.fp8_param_gather needs precision.fp8_format",
        since="3.6",
    ),
    Rule(
        id="SW-FP4-FP8",
        doc="Matrix products are in FP4 or in FP8.",
        source=f"{_CONFIG}:1034",
        when="fp4_format & fp8_format",
        message="fp4_format and fp8_format are both set",
        since="4.6",
    ),
    Rule(
        id="SW-FP4-PARAM",
        doc="Weights can be kept in FP4 only where products are in FP4.",
        source=f"{_CONFIG}:1031",
        when="fp4_param_gather & !fp4_format",
        message="fp4_param_gather needs fp4_format",
        since="4.6",
    ),
)


def _balances(facts: RuleContext) -> tuple[str, ...]:
    return facts.items("moe_router_load_balancing_type")


def _moe(facts: RuleContext) -> bool:
    return facts.job.model.is_moe or facts.job.model.hidden_size is None


_CAPACITY = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")

EXPERTS = (
    Rule(
        id="SW-DEEPEP-FLEX",
        doc="DeepEP is an implementation of the flex dispatcher.",
        source=f"{_CONFIG}:1064; {_OLD}:630",
        when="moe_enable_deepep & moe_token_dispatcher_type!=flex",
        message="moe.deepep needs moe.token_dispatcher_type=flex, not {moe_token_dispatcher_type}",
        since="3.5.0",
    ),
    Rule(
        id="SW-SHARED-OVERLAP",
        doc="A shared expert runs beside the dispatch of the all-to-all dispatcher only.",
        source=f"{_CONFIG}:1090; {_OLD}:646",
        when="moe_shared_expert_overlap & moe_token_dispatcher_type!=alltoall & "
        "job.model.shared_expert_intermediate_size!=None",
        message="moe.shared_expert_overlap needs moe.token_dispatcher_type=alltoall, not {moe_token_dispatcher_type}",
    ),
    Rule(
        id="SW-CAPACITY-BALANCE",
        doc="Dropping tokens beyond capacity is defined for balancing losses (or none), not for sinkhorn.",
        source=f"{_CONFIG}:1109",
        flags=("moe_expert_capacity_factor", "moe_router_load_balancing_type"),
        when="moe_expert_capacity_factor!=None",
        check=lambda facts: _moe(facts) and set(_balances(facts)) - set(_CAPACITY),
        reads="job.model.is_moe job.model.hidden_size",
        message=f"moe.capacity_factor needs moe.load_balancing_type {', '.join(_CAPACITY)}",
        since="3.7",
    ),
    Rule(
        id="SW-CAPACITY-BALANCE-OLD",
        doc="Core 0.12 drops tokens with the losses aux_loss and seq_aux_loss only.",
        source=f"megatron-core {_OLD} transformer_config.py:656",
        flags=("moe_expert_capacity_factor", "moe_router_load_balancing_type"),
        when="moe_expert_capacity_factor!=None",
        check=lambda facts: set(_balances(facts)) - {"aux_loss", "seq_aux_loss", "none"} and _moe(facts),
        reads="job.model.is_moe job.model.hidden_size",
        message="moe.capacity_factor needs moe.load_balancing_type aux_loss, seq_aux_loss or none",
        until="3.6.99",
    ),
    Rule(
        id="SW-PAD-CAPACITY",
        doc="Inputs of experts can be padded to a capacity only if there is one.",
        source=f"{_CONFIG}:1131; {_OLD}:661",
        when="moe_pad_expert_input_to_capacity & moe_expert_capacity_factor=None",
        message="moe.pad_to_capacity needs moe.capacity_factor",
    ),
    Rule(
        id="SW-PAD-FLEX",
        doc="DeepEP dispatches no padding.",
        source=f"{_CONFIG}:1074; {_OLD}:633",
        flags=("moe_pad_expert_input_to_capacity", "moe_token_dispatcher_type", "moe_enable_deepep"),
        when="moe_pad_expert_input_to_capacity & moe_token_dispatcher_type=flex",
        message="moe.pad_to_capacity cannot be combined with the flex dispatcher on DeepEP",
        since="3.7",
    ),
    Rule(
        id="SW-BALANCE-LIST",
        doc="Several balancing losses need as many coefficients.",
        source=f"{_CONFIG}:1097",
        flags=("moe_router_load_balancing_type", "moe_aux_loss_coeff"),
        check=lambda facts: (
            len(_balances(facts)) > 1
            and len(facts.items("moe_aux_loss_coeff")) != len(_balances(facts))
            and f"{len(_balances(facts))} balancing losses, but {len(facts.items('moe_aux_loss_coeff'))} coefficients"
        ),
        since=FOUR,
    ),
    Rule(
        id="SW-ALLGATHER",
        doc="The all-gather dispatcher needs sequences of one length; mcore-bridge always lets them vary.",
        source=f"{_CONFIG}:1827; mcore-bridge 1.6.5 config/model_config.py",
        when="moe_token_dispatcher_type=allgather",
        message="moe.token_dispatcher_type allgather is offered but always refused: lengths of sequences may vary here",
        since=FOUR,
    ),
    Rule(
        id="SW-ALLTOALL-SEQ",
        doc="The old sequence all-to-all dispatcher wants experts split like the rest, and no fused permutation.",
        source=f"megatron-core {_OLD} transformer_config.py:948",
        flags=("moe_token_dispatcher_type", "expert_tensor_parallel_size", "moe_permute_fusion"),
        when="moe_token_dispatcher_type=alltoall_seq",
        check=lambda facts: (
            facts["moe_permute_fusion"]
            or (facts["expert_tensor_parallel_size"] or facts["tensor_model_parallel_size"])
            != facts["tensor_model_parallel_size"]
        ),
        reads="tensor_model_parallel_size",
        message="alltoall_seq needs etp equal to tp and no moe.permute_fusion: use alltoall",
        until="3.99",
    ),
    Rule(
        id="SW-TOPK-ONE",
        doc="Softmax over one chosen expert has no gradient: with top-1 it must come before the choice.",
        source=f"{_CONFIG}:1641; {_OLD}:984",
        flags=("moe_router_topk", "moe_router_load_balancing_type"),
        fields=("model.num_experts_per_tok", "model.norm_topk_prob", "moe.load_balancing_type"),
        when="job.model.num_experts_per_tok=1 & job.model.scoring_func=softmax & job.model.norm_topk_prob",
        check=lambda facts: "sinkhorn" not in _balances(facts),
        message="num_experts_per_tok 1 with softmax needs norm_topk_prob false (softmax before the choice)",
    ),
    Rule(
        id="SW-BIAS-ETP",
        doc="Bias in experts works only where experts are not split by tensor parallelism.",
        source=f"{_CONFIG}:1583",
        fields=("model.linear_bias", "parallel.etp"),
        when="job.model.is_moe & job.model.linear_bias & expert_tensor_parallel_size>1",
        message="linear bias in experts needs etp 1, not {expert_tensor_parallel_size}",
        since="3.7",
    ),
)

_STATES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")

OPTIMIZER = (
    Rule(
        id="SW-PRECISION-AWARE",
        phase="launch",
        doc="States in lower precision are a feature of Adam under the distributed optimizer.",
        source=f"{_OPTIMIZER}:376; after the weights are loaded",
        when="use_precision_aware_optimizer",
        then="optimizer=adam & use_distributed_optimizer!=False",
        message="optimizer.precision_aware needs optimizer adam and the distributed optimizer",
        since="3.5.0",
    ),
    Rule(
        id="SW-STATE-DTYPE",
        phase="launch",
        doc="States are fp32 unless the optimizer is told to be aware of their precision.",
        source=f"{_OPTIMIZER}:411; after the weights are loaded",
        flags=(*_STATES, "use_precision_aware_optimizer"),
        when="!use_precision_aware_optimizer",
        check=lambda facts: any(facts[name] not in (None, "fp32") for name in _STATES),
        message="main_grads, main_params, exp_avg and exp_avg_sq other than fp32 need optimizer.precision_aware",
        since="3.6",
    ),
    Rule(
        id="SW-GATHER-DISTRIBUTED",
        doc="Weights are gathered only where the optimizer is distributed.",
        source="Megatron-LM core_v0.12.1 arguments.py:503; megatron-core 0.16.1 distributed_data_parallel_config.py",
        flags=("overlap_param_gather", "use_distributed_optimizer"),
        when="overlap_param_gather & use_distributed_optimizer=False & !use_megatron_fsdp",
        message="overlap.param_gather needs parallel.distributed_optimizer",
        until="3.99",
    ),
    Rule(
        id="SW-GATHER-REDUCE",
        doc="Weights are gathered ahead only where gradients are reduced early; 3.x refuses it.",
        source="Megatron-LM core_v0.12.1 arguments.py:505",
        when="overlap_param_gather & !overlap_grad_reduce",
        message="overlap.param_gather needs overlap.grad_reduce",
        until="3.99",
    ),
    Rule(
        id="SW-GATHER-REDUCE-UNCHECKED",
        doc="Megatron-LM refuses gathering weights ahead without early reduction of gradients; 4.x does not check it.",
        source="Megatron-LM core_v0.12.1 arguments.py:505; not checked by ms-swift 4.6.0",
        when="overlap_param_gather & !overlap_grad_reduce",
        message="overlap.param_gather without overlap.grad_reduce: Megatron-LM refuses it, this version checks nothing",
        severity="warning",
        since=FOUR,
    ),
    Rule(
        id="SW-OFFLOAD-LAYERS",
        doc="Activations of layers wait on the host in one pipeline stage, without recomputation, and not for all.",
        source=f"{_CONFIG}:1137-1152",
        flags=("megatron_extra_kwargs", "pipeline_model_parallel_size", "recompute_granularity"),
        fields=("offload.activation_layers", "parallel.pp", "recompute.granularity"),
        check=lambda facts: (
            _offload_fault(facts)
            and f"offload.activation_layers {facts.job.offload.activation_layers}: {_offload_fault(facts)}"
        ),
        reads="job.offload.activation_layers job.model.num_hidden_layers",
        since="4.3",
    ),
    Rule(
        id="SW-OFFLOAD-AWARE",
        doc="The optimizer on the host works with the precision-aware optimizer; 3.x refuses it otherwise.",
        source="Megatron-LM core_v0.12.1 arguments.py:946",
        when="optimizer_cpu_offload & !use_precision_aware_optimizer",
        message="offload.optimizer needs optimizer.precision_aware",
        since="3.5.0",
        until="3.99",
    ),
    Rule(
        id="SW-OFFLOAD-AWARE-UNCHECKED",
        doc="Megatron-LM refuses an optimizer on the host that is not precision-aware; 4.x does not check it.",
        source="Megatron-LM core_v0.12.1 arguments.py:946; not checked by ms-swift 4.6.0",
        when="optimizer_cpu_offload & !use_precision_aware_optimizer",
        message="offload.optimizer without optimizer.precision_aware: Megatron-LM refuses it, this version "
        "checks nothing",
        severity="warning",
        since=FOUR,
    ),
)

declare((*LAYOUT, *RECOMPUTE, *PRECISION, *EXPERTS, *OPTIMIZER), backends=BACKENDS, phase="config")
