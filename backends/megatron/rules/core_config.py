"""Checks of Megatron-core's configuration classes, on the values that Megatron-SWIFT's options set."""

from backends.megatron.rules.terms import BACKENDS, FOUR
from backends.megatron_lm.rules.balance_weight import (
    BALANCE_SHARE,
    FIELDS,
    PER_TOKEN,
    balance_share,
    reads_of_balance_share,
)
from launcher.rules.registry import Rule, RuleContext, lower
from launcher.rules.sanity_checks import layout_error
from launcher.rules.table import checked, declare, needs, never
from launcher.rules.training import (
    BALANCED_PER_TOKEN,
    BALANCED_PER_TOKEN_MESSAGE,
    DROPPED_BY_POSITION,
    GROUP_SCORES,
    MEAN_OF_RANK,
    MEAN_OF_RANK_MESSAGE,
    group_scores_differ,
)

_CONFIG = "megatron-core 0.16.1 transformer_config.py"
_OLD = "0.12.1"
_COMPRESSED = "job.model.experimental_attention_variant=dsv4_hybrid"
_OPTIMIZER = "megatron-core 0.16.1 optimizer_config.py"
_LAYOUT = "megatron-core 0.16.1 pipeline_parallel_layer_layout.py"
_ENDS = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
_ACCOUNTS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def _underscored(name: str) -> str:
    return name.replace("-", "_")


def _layout_fault(context: RuleContext) -> str:
    layout = str(context["pipeline_model_parallel_layout"])
    return layout_error(layout, context["pipeline_model_parallel_size"], context["mtp_num_layers"] or 0)


def _offload_fault(context: RuleContext) -> str:
    wanted, layers = context.job.offload.activation_layers or 0, context.job.model.num_hidden_layers
    if not wanted:
        return ""
    if layers is not None and not 0 <= wanted < layers:
        return f"must be from 0 to below num_hidden_layers {layers}"
    if context["pipeline_model_parallel_size"] > 1:
        return f"needs pp 1, not {context['pipeline_model_parallel_size']}"
    granularity = context["recompute_granularity"]
    return "" if granularity in (None, "none") else f"cannot be combined with recompute_granularity {granularity}"


def _yarn(context: RuleContext) -> tuple[float | None, int | None]:
    scaling = context.job.model.rope_scaling
    return (scaling.factor, scaling.original_max_position_embeddings) if scaling else (None, None)


# fmt: off
LAYOUT = (
    Rule(
        id="SW-LAYOUT",
        doc="An explicit layout places every layer once, embedding first and loss last, on a whole number of chunks.",
        source=f"{_LAYOUT}:85; ms-swift 4.6.0 megatron_args.py:1096",
        flags=("pipeline_model_parallel_layout", "pipeline_model_parallel_size"),
        when="pipeline_model_parallel_layout!=None",
        check=lambda context: (
            _layout_fault(context) and f"layout {context['pipeline_model_parallel_layout']}: {_layout_fault(context)}"
        ),
        reads="mtp_num_layers",
        since="3.7",
    ),
    needs("SW-LAYOUT-ALONE", "pipeline_model_parallel_layout!=None", "decoder_first_pipeline_num_layers=None & "
          "decoder_last_pipeline_num_layers=None & !account_for_embedding_in_pipeline_split & "
          "!account_for_loss_in_pipeline_split",
          "A layout defines the whole split; other settings of the split contradict it.",
          f"{_CONFIG}:1305; Megatron-LM core_v0.13 arguments.py", since="3.7",
          flags=("pipeline_model_parallel_layout", *_ENDS, *_ACCOUNTS),
          fields=("parallel.layout", "parallel.first_stage_layers", "parallel.last_stage_layers"),
          message="pipeline_model_parallel_layout cannot be combined with first or last stage layers, or with "
          "account_for_embedding or account_for_loss"),
    Rule(
        id="SW-UNEVEN-ACCOUNT",
        doc="Uneven ends are given, or follow from counting embedding and loss as layers: not both.",
        source=f"{_CONFIG}:1286; {_OLD}:767",
        flags=(*_ENDS, *_ACCOUNTS),
        when="pipeline_model_parallel_layout=None",
        check=lambda context: (
            (
                context["decoder_first_pipeline_num_layers"] is not None
                or context["decoder_last_pipeline_num_layers"] is not None
            )
            and (context["account_for_embedding_in_pipeline_split"] or context["account_for_loss_in_pipeline_split"])
        ),
        message="first or last stage layers cannot be combined with account_for_embedding or account_for_loss",
    ),
    checked("SW-STAGE-EMPTY", lambda context: any(context[name] is not None and context[name] <= 0 for name in _ENDS),
            "The first and the last stage have at least one layer each.", f"{_CONFIG}:1368,1387; {_OLD}:787,806",
            flags=_ENDS,
            message="first and last stage need at least one layer each: use parallel.layout for empty stages"),
)
# fmt: on


# fmt: off
RECOMPUTE = (
    never("SW-DISTRIBUTE-SP", "job.recompute.distribute_saved_activations & sequence_parallel & "
          "tensor_model_parallel_size>1 & recompute_granularity!=None|none",
          "Sequence parallelism already distributes saved activations over tensor-parallel ranks.",
          f"{_CONFIG}:1187", since=FOUR, flags=("megatron_extra_kwargs", "recompute_granularity", "sequence_parallel"),
          fields=("recompute.distribute_saved_activations", "parallel.sequence_parallel"),
          message="recompute.distribute_saved_activations cannot be combined with sequence_parallel"),
    needs("SW-RC-DEFAULT", "job.recompute.granularity=None & recompute_granularity=selective",
          "recompute_method=None & recompute_num_layers=None",
          "swift recomputes selectively by default, and a method or a number of layers contradicts that.",
          f"ms-swift 4.6.0 megatron_args.py:849; {_CONFIG}:1180",
          message="recompute.method and num_layers need recompute.granularity=full (the default of swift is "
          "selective)"),
    checked("SW-GROUP-SCORES", lambda context: group_scores_differ(context.job.model),
            "A group of experts is scored by its best topk / topk_group experts; models count one (V2) or two (V3).",
            GROUP_SCORES, since="3.7", severity="warning", flags=("moe_router_num_groups", "moe_router_group_topk"),
            fields=("model.n_group", "model.topk_group", "model.num_experts_per_tok"),
            reads="job.model.num_experts_per_tok job.model.n_group job.model.topk_group job.model.scoring_func"),
    never("SW-RC-SHARED-OLD", "recompute_granularity=selective & recompute_modules~shared_experts",
          "Core 0.12 does not recompute shared experts separately.", f"megatron-core {_OLD} transformer_config.py:728",
          until="3.6.99", flags=("recompute_modules",),
          message="recompute.modules shared_experts is not supported by megatron-core 0.12"),
    never("SW-RC-MOE-ACT", "recompute_granularity=selective & recompute_modules~moe_act & moe_grouped_gemm=False",
          "The activation of experts is recomputed inside the grouped kernel only.", f"{_CONFIG}:1207; {_OLD}:735",
          flags=("recompute_modules", "moe_grouped_gemm"),
          message="recompute.modules moe_act needs moe.grouped_gemm"),
    never("SW-RC-MLA", "recompute_granularity=selective & recompute_modules~mla_up_proj & job.model.hidden_size!=None "
          "& !job.model.is_mla",
          "The up-projection of latent attention exists only in models that have it.", f"{_CONFIG}:1212; {_OLD}:740",
          flags=("recompute_modules",),
          message="recompute.modules mla_up_proj needs a model with multi-head latent attention"),
    never("SW-RC-SHARED-OVERLAP", "recompute_granularity=selective & recompute_modules~shared_experts & "
          "moe_shared_expert_overlap & job.model.shared_expert_intermediate_size!=None",
          "A shared expert that overlaps with the dispatch cannot be recomputed separately.", f"{_CONFIG}:1226",
          since="3.7", flags=("recompute_modules", "moe_shared_expert_overlap"),
          message="recompute.modules shared_experts cannot be combined with moe.shared_expert_overlap"),
    needs("SW-RC-FP8-DELAYED", "fp8_format & fp8_recipe=delayed & recompute_granularity=selective",
          "!recompute_modules~moe_act & !recompute_modules~layernorm",
          "Delayed scaling keeps amax histories that recomputed activations would update twice.", f"{_CONFIG}:1234",
          since="3.7", flags=("recompute_modules", "fp8_recipe", "fp8_format"),
          message="recompute.modules moe_act and layernorm need an fp8_recipe other than delayed"),
    never("SW-RC-LAYER", "moe_layer_recompute & recompute_granularity=full",
          "The old argument for recomputing MoE layers needs selective recomputation.", f"{_CONFIG}:1250; {_OLD}:759",
          message="moe_layer_recompute with full recompute: use recompute.granularity=selective "
          "recompute.modules=[moe]"),
)

SPARSE_ATTENTION = (
    never("SW-DSA-ROPE-FUSION", "job.model.experimental_attention_variant=dsa & apply_rope_fusion",
          "Sparse attention does not support fused RoPE.", f"{_CONFIG}:1991", since=FOUR,
          flags=("apply_rope_fusion",),
          message="apply_rope_fusion: attention over the keys that an indexer chooses has no fused RoPE"),
    never("SW-DSA-CP", "job.model.experimental_attention_variant=dsa & context_parallel_size>1",
          "Sparse attention does not split sequences over context-parallel ranks.", f"{_CONFIG}:1988", since=FOUR,
          flags=("context_parallel_size",),
          message="context_parallel_size {context_parallel_size}: attention over the keys that an indexer chooses is "
          "not split over ranks"),
    never("SW-COMPRESSED-TP", f"{_COMPRESSED} & tensor_model_parallel_size>1",
          "Compressed attention runs without tensor parallelism.",
          "megatron-core, branch dev at d48bd6be, transformer_config.py: DSv4 Hybrid Attention only supports TP size 1",
          since="4.3", flags=("tensor_model_parallel_size",), fields=("parallel.tp",),
          message="tp {tensor_model_parallel_size}: compressed attention is not split over tensor-parallel ranks"),
    needs("SW-COMPRESSED-CP", f"{_COMPRESSED} & context_parallel_size>1",
          "cp_partition_mode=contiguous & padding_free or cp_partition_mode=contiguous & packing",
          "Compressed attention splits packed sequences over context-parallel ranks, each a contiguous part.",
          "mcore-bridge 1.6.5 model/gpts/deepseek_v4.py:347, 350", since="4.4",
          flags=("context_parallel_size", "cp_partition_mode", "padding_free"),
          fields=("parallel.cp", "batch.padding_free"),
          message="context_parallel_size {context_parallel_size}: compressed attention needs packed sequences and "
          "backend.args.cp_partition_mode=contiguous"),
    Rule(
        id="SW-COMPRESSED-ROPE",
        doc="mcore-bridge leaves YaRN's factor and length at 40 and 4,096 in the compressor and the indexer of "
        "DeepSeek-V4, whatever config.json says: their rotary positions differ from those of the pre-training.",
        source="mcore-bridge 1.6.5 model/gpts/deepseek_v4.py:44, 105; megatron-core, branch dev at d48bd6be, "
        "transformer_config.py (rotary_scaling_factor 40); measured: tests/backends/megatron/test_dev_core.py",
        when=_COMPRESSED,
        check=lambda context: _yarn(context) != (40, 4096),
        reads="job.model.rope_scaling.factor job.model.rope_scaling.original_max_position_embeddings",
        message="it trains, but with wrong positions in the compressor and the indexer: mcore-bridge gives them YaRN "
        "with factor 40 over 4,096 positions, not config.json's; set rotary_scaling_factor and "
        "original_max_position_embeddings in its model/gpts/deepseek_v4.py",
        fields=("model.rope_scaling",),
        severity="warning",
        since="4.3",
    ),
    checked("SW-YARN-MSCALE", lambda context: (
                (scaling := context.job.model.rope_scaling) is not None
                and scaling.type == "yarn" and None in (scaling.mscale, scaling.mscale_all_dim)
            ),
            "mcore-bridge reads both temperatures of YaRN where attention is latent, without a default.",
            "mcore-bridge 1.6.5 model/gpt_model.py:141", since=FOUR,
            when=f"job.model.kv_lora_rank>0 & {_COMPRESSED.replace('=', '!=')}",
            reads="job.model.rope_scaling.type job.model.rope_scaling.mscale job.model.rope_scaling.mscale_all_dim",
            fields=("model.rope_scaling.mscale", "model.rope_scaling.mscale_all_dim"),
            message="YaRN on latent attention needs rope_scaling.mscale and mscale_all_dim: mcore-bridge stops with "
            "KeyError: 'mscale' without them; where both are missing, transformers computes as with 1 and 0",
            works=(
                ("model.rope_scaling.mscale=1.0", "model.rope_scaling.mscale_all_dim=0.0"),
                ("model.rope_scaling.mscale=1.0", "model.rope_scaling.mscale_all_dim=1.0"),
            )),
)

PRECISION = (
    never("SW-FP16-BF16", "fp16 & bf16",
          "Weights have one precision: fp16 and bf16 exclude each other.",
          f"{_CONFIG}:915; Megatron-LM core_v0.12.1 arguments.py:573", fields=("precision.dtype",),
          message="fp16 and bf16 are both true"),
    Rule(
        id="SW-FP16-DTYPE",
        doc="Where fp16 or bf16 is not set, it follows torch_dtype, else the model's dtype, usually bfloat16.",
        source="ms-swift 4.6.0 model_args.py:130; megatron-core 0.16.1 model_parallel_config.py",
        flags=("fp16", "bf16", "torch_dtype"),
        fields=("precision.dtype",),
        check=lambda context: (
            (
                (
                    context["fp16"]
                    and context["bf16"] is None
                    and (str(context["torch_dtype"]).removeprefix("torch.") in ("None", "bfloat16"))
                )
                or (
                    context["bf16"]
                    and context["fp16"] is None
                    and (str(context["torch_dtype"]).removeprefix("torch.") in ("float16", "float32"))
                )
            )
            and (
                "fp16 is true, and bf16 is not set, which makes it true for a bfloat16 model: set bf16 to false"
                if context["fp16"]
                else "bf16 is true, and fp16 is not set, which makes it true for torch_dtype "
                    f"{context['torch_dtype']}: "
                "set fp16 to false"
            )
        ),
        since=FOUR,
    ),
    never("SW-FP8-PARAM", "fp8_param_gather & !fp8_format",
          "Weights can be kept in FP8 only where products are in FP8.", f"{_CONFIG}:1027; {_OLD}:614", since="3.6",
          message="precision.fp8_param_gather needs precision.fp8_format"),
    never("SW-FP4-FP8", "fp4_format & fp8_format",
          "Matrix products are in FP4 or in FP8.", f"{_CONFIG}:1034", since="4.2",
          message="fp4_format and fp8_format are both set"),
    never("SW-FP4-PARAM", "fp4_param_gather & !fp4_format",
          "Weights can be kept in FP4 only where products are in FP4.", f"{_CONFIG}:1031", since="4.2",
          message="fp4_param_gather needs fp4_format"),
)
# fmt: on


def _balances(context: RuleContext) -> tuple[str, ...]:
    return context.items("moe_router_load_balancing_type")


def _moe(context: RuleContext) -> bool:
    return context.job.model.is_moe or context.job.model.hidden_size is None


_CAPACITY = ("aux_loss", "seq_aux_loss", "global_aux_loss", "none")

# fmt: off
EXPERTS = (
    never("SW-DEEPEP-FLEX", "moe_enable_deepep & moe_token_dispatcher_type!=flex",
          "DeepEP is an implementation of the flex dispatcher.", f"{_CONFIG}:1064; {_OLD}:630", since="3.5.0",
          message="moe.deepep needs moe.token_dispatcher_type=flex, not {moe_token_dispatcher_type}"),
    never("SW-SHARED-OVERLAP", "moe_shared_expert_overlap & moe_token_dispatcher_type!=alltoall & "
          "job.model.shared_expert_intermediate_size!=None",
          "A shared expert overlaps with the dispatch of the all-to-all dispatcher only.",
          f"{_CONFIG}:1090; {_OLD}:646",
          message="moe.shared_expert_overlap needs moe.token_dispatcher_type=alltoall, not "
          "{moe_token_dispatcher_type}"),
    checked("SW-CAPACITY-BALANCE", lambda context: _moe(context) and set(_balances(context)) - set(_CAPACITY),
            "Dropping tokens beyond capacity is defined for balancing losses (or none), not for sinkhorn.",
            f"{_CONFIG}:1109", when="moe_expert_capacity_factor!=None", since="3.7",
            flags=("moe_expert_capacity_factor", "moe_router_load_balancing_type"),
            reads="job.model.is_moe job.model.hidden_size",
            message=f"moe.capacity_factor needs moe.load_balancing_type {', '.join(_CAPACITY)}"),
    checked("SW-CAPACITY-BALANCE-OLD",
            lambda context: set(_balances(context)) - {"aux_loss", "seq_aux_loss", "none"} and _moe(context),
            "Core 0.12 drops tokens with the losses aux_loss and seq_aux_loss only.",
            f"megatron-core {_OLD} transformer_config.py:656", when="moe_expert_capacity_factor!=None", until="3.6.99",
            flags=("moe_expert_capacity_factor", "moe_router_load_balancing_type"),
            reads="job.model.is_moe job.model.hidden_size",
            message="moe.capacity_factor needs moe.load_balancing_type aux_loss, seq_aux_loss or none"),
    never("SW-PAD-CAPACITY", "moe_pad_expert_input_to_capacity & moe_expert_capacity_factor=None",
          "Inputs of experts can be padded to a capacity only if there is one.", f"{_CONFIG}:1131; {_OLD}:661",
          message="moe.pad_to_capacity needs moe.capacity_factor"),
    never("SW-DROP-POSITION", "moe_expert_capacity_factor!=None & moe_token_drop_policy=position",
          DROPPED_BY_POSITION,
          "megatron-core 0.16.1 megatron/core/transformer/moe/moe_utils.py:847; measured: docs/parity.md",
          message="moe.token_drop_policy=position: torch.topk chooses the tokens that are dropped, not their position",
          severity="warning", flags=("moe_token_drop_policy", "moe_expert_capacity_factor")),
    checked("SW-SEQUENCE-BALANCE", lambda context: _moe(context) and "seq_aux_loss" in _balances(context),
            "Without padding the sequences of a micro-batch are joined to one, and the sequence-wise balancing loss is "
            "then that of the micro-batch.",
            "ms-swift 4.6.0 swift/megatron/arguments/megatron_args.py:545; megatron-core 0.16.1 "
            "megatron/core/transformer/moe/router.py:335; measured: docs/parity.md",
            when="padding_free & micro_batch_size>1 & moe_aux_loss_coeff>0", since="4.1",
            flags=("moe_router_load_balancing_type", "micro_batch_size", "padding_free"),
            reads="job.model.is_moe job.model.hidden_size",
            message="seq_aux_loss with padding_free and micro_batch_size {micro_batch_size}: the load is balanced over "
            "the micro-batch, not over each sequence",
            severity="warning"),
    never("SW-BALANCE-PER-TOKEN",
          "job.model.is_moe & calculate_per_token_loss & moe_aux_loss_coeff>0 & job.task.type!=pretrain",
          BALANCED_PER_TOKEN,
          "megatron-core 0.16.1 megatron/core/transformer/moe/router.py:465; measured: docs/parity.md",
          message=f"moe.aux_loss_coeff {{moe_aux_loss_coeff}} {BALANCED_PER_TOKEN_MESSAGE}",
          severity="warning", since="4.1", flags=("moe_aux_loss_coeff", "calculate_per_token_loss")),
    Rule(id="SW-BALANCE-SHARE", doc=BALANCE_SHARE, source=f"{PER_TOKEN}; measured: docs/rehearsal.md",
         check=balance_share(_underscored), reads=reads_of_balance_share(_underscored), fields=FIELDS,
         flags=("moe_aux_loss_coeff", "calculate_per_token_loss"), severity="warning", since="4.1", phase="launch"),
    never("SW-PAD-FLEX", "moe_pad_expert_input_to_capacity & moe_token_dispatcher_type=flex",
          "DeepEP does not dispatch padding.", f"{_CONFIG}:1074; {_OLD}:633", since="3.7",
          flags=("moe_pad_expert_input_to_capacity", "moe_token_dispatcher_type", "moe_enable_deepep"),
          message="moe.pad_to_capacity cannot be combined with the flex dispatcher on DeepEP"),
    Rule(
        id="SW-BALANCE-LIST",
        doc="Several balancing losses need as many coefficients.",
        source=f"{_CONFIG}:1097",
        flags=("moe_router_load_balancing_type", "moe_aux_loss_coeff"),
        check=lambda context: (
            len(_balances(context)) > 1
            and len(context.items("moe_aux_loss_coeff")) != len(_balances(context))
            and f"moe_router_load_balancing_type has {len(_balances(context))} values, moe_aux_loss_coeff "
            f"{len(context.items('moe_aux_loss_coeff'))}"
        ),
        since=FOUR,
    ),
    never("SW-ALLGATHER", "moe_token_dispatcher_type=allgather",
          "The all-gather dispatcher needs sequences of one length; mcore-bridge always lets them vary.",
          f"{_CONFIG}:1827; mcore-bridge 1.6.5 config/model_config.py", since=FOUR,
          message="moe.token_dispatcher_type allgather does not support variable_seq_lengths, which "
          "mcore-bridge always sets"),
    Rule(
        id="SW-ALLTOALL-SEQ",
        doc="The alltoall_seq dispatcher needs the same tensor-parallel size for experts, and no fused permutation.",
        source=f"megatron-core {_OLD} transformer_config.py:948",
        flags=("moe_token_dispatcher_type", "expert_tensor_parallel_size", "moe_permute_fusion"),
        when="moe_token_dispatcher_type=alltoall_seq",
        check=lambda context: (
            context["moe_permute_fusion"]
            or (context["expert_tensor_parallel_size"] or context["tensor_model_parallel_size"])
            != context["tensor_model_parallel_size"]
        ),
        reads="tensor_model_parallel_size",
        message="alltoall_seq needs etp equal to tp and no moe.permute_fusion: use alltoall",
        until="3.99",
    ),
    checked("SW-TOPK-ONE", lambda context: "sinkhorn" not in _balances(context),
            "Softmax over one selected expert has no gradient: with top-1 it must be computed before the selection.",
            f"{_CONFIG}:1641; {_OLD}:984",
            when="job.model.num_experts_per_tok=1 & job.model.scoring_func=softmax & job.model.norm_topk_prob",
            flags=("moe_router_topk", "moe_router_load_balancing_type"),
            fields=("model.num_experts_per_tok", "model.norm_topk_prob", "moe.load_balancing_type"),
            message="num_experts_per_tok 1 with softmax needs norm_topk_prob false (softmax before top-k)"),
    Rule(
        id="SW-ETP-REPLICAS",
        doc="Without expert parallelism, experts must be split like the other layers: core reduces their gradients "
        "over the data-parallel group of dense layers, so replicas of experts on tensor-parallel ranks each keep the "
        "gradient of a part of the tokens and drift apart.",
        source="megatron-core 0.16.1 extensions/transformer_engine.py:1551; mcore-bridge 1.6.5 "
        "model/mm_gpts/glm5_next.py:272, which corrects it for GLM-5 only; ms-swift 4.6.0 megatron_args.py:645 "
        "(default 1); measured: tests/backends/megatron_lm/test_expert_gradients.py, "
        "tests/rehearse/native/test_megatron_swift.py",
        when="job.model.is_moe & expert_model_parallel_size<=1 & "
        "expert_tensor_parallel_size!={tensor_model_parallel_size}",
        message="etp {expert_tensor_parallel_size} with tp {tensor_model_parallel_size} and ep 1: gradients of experts "
        "are not reduced over all ranks that hold them, so training is wrong without an error",
        flags=("expert_tensor_parallel_size", "tensor_model_parallel_size", "expert_model_parallel_size"),
        fields=("parallel.etp", "parallel.tp", "parallel.ep"),
        since="3.7",
        stricter=True,
        reason="it trains, with wrong gradients of experts",
    ),
    never("SW-FP16-OVERFLOW", "job.precision.dtype=fp16",
          "Megatron-SWIFT stops at the first gradient that is not finite, and fp16's loss scale, which begins at 2**32 "
          "without an option for it, relies on skipping those iterations.",
          "ms-swift 4.6.0 swift/megatron/utils/megatron_lm_utils.py:674; megatron-core 0.16.1 "
          "distributed/param_and_grad_buffer.py:222; measured: docs/parity.md",
          message="fp16: its check of gradients stops training at the first overflow, which loss scaling expects",
          since=FOUR, phase="launch", flags=("torch_dtype", "fp16"), fields=("precision.dtype",)),
    needs("SW-CP-MEAN", "context_parallel_size>1 & !calculate_per_token_loss & job.task.type!=dpo",
          "job.task.type=pretrain & job.batch.packing",
          MEAN_OF_RANK,
          "megatron-core 0.16.1 pipeline_parallel/schedules.py:262; ms-swift 4.6.0 trainers/trainer.py:72; "
          "measured: docs/parity.md",
          message=f"cp {{context_parallel_size}} {MEAN_OF_RANK_MESSAGE}",
          severity="warning", since="4.1", flags=("context_parallel_size", "calculate_per_token_loss")),
    never("SW-MTP-RC-LAYERS",
          "mtp_num_layers>0 & recompute_granularity=full & recompute_method=uniform & recompute_num_layers>1",
          "Full uniform recomputation of multi-token-prediction layers is by single layers.",
          "megatron-core 0.16.1 transformer/multi_token_prediction.py:848",
          since=FOUR, flags=("mtp_num_layers", "recompute_num_layers", "recompute_method"),
          message="recompute_num_layers {recompute_num_layers}: multi-token-prediction layers need 1 with uniform "
          "recomputation"),
    never("SW-BIAS-ETP", "job.model.is_moe & job.model.linear_bias & expert_tensor_parallel_size>1",
          "Bias in experts works only where experts are not split by tensor parallelism.", f"{_CONFIG}:1583",
          since="3.7", fields=("model.linear_bias", "parallel.etp"),
          message="linear bias in experts needs etp 1, not {expert_tensor_parallel_size}"),
)
# fmt: on

_STATES = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")

# fmt: off
OPTIMIZER = (
    needs("SW-PRECISION-AWARE", "use_precision_aware_optimizer", "optimizer=adam & use_distributed_optimizer!=False",
          "States in lower precision are a feature of Adam under the distributed optimizer.",
          f"{_OPTIMIZER}:376; after the weights are loaded", since="3.5.0", phase="launch",
          message="optimizer.precision_aware needs optimizer adam and the distributed optimizer"),
    checked("SW-STATE-DTYPE", lambda context: any(context[name] not in (None, "fp32") for name in _STATES),
            "Optimizer states are fp32 unless use_precision_aware_optimizer is set.",
            f"{_OPTIMIZER}:411; after the weights are loaded", when="!use_precision_aware_optimizer", since="3.6",
            phase="launch", flags=(*_STATES, "use_precision_aware_optimizer"),
            message="main_grads, main_params, exp_avg and exp_avg_sq other than fp32 need optimizer.precision_aware"),
    never("SW-GATHER-DISTRIBUTED", "overlap_param_gather & use_distributed_optimizer=False & !use_megatron_fsdp",
          "Weights are gathered only where the optimizer is distributed.",
          "Megatron-LM core_v0.12.1 arguments.py:503; megatron-core 0.16.1 distributed_data_parallel_config.py",
          until="3.99", flags=("overlap_param_gather", "use_distributed_optimizer"),
          message="overlap.param_gather needs parallel.distributed_optimizer"),
    never("SW-GATHER-REDUCE", "overlap_param_gather & !overlap_grad_reduce",
          "Weights are gathered ahead only where gradients are reduced early; 3.x refuses it.",
          "Megatron-LM core_v0.12.1 arguments.py:505", until="3.99",
          message="overlap.param_gather needs overlap.grad_reduce"),
    never("SW-GATHER-REDUCE-UNCHECKED", "overlap_param_gather & !overlap_grad_reduce",
          "Megatron-LM refuses gathering weights ahead without early reduction of gradients; 4.x does not check it.",
          "Megatron-LM core_v0.12.1 arguments.py:505; not checked by ms-swift 4.6.0", since=FOUR, severity="warning",
          message="overlap.param_gather without overlap.grad_reduce: Megatron-LM refuses it, this version checks "
          "nothing"),
    Rule(
        id="SW-OFFLOAD-LAYERS",
        doc="Offloading activations to the host needs one pipeline stage, no recomputation, and fewer layers than all.",
        source=f"{_CONFIG}:1137-1152",
        flags=("megatron_extra_kwargs", "pipeline_model_parallel_size", "recompute_granularity"),
        fields=("offload.activation_layers", "parallel.pp", "recompute.granularity"),
        check=lambda context: (
            _offload_fault(context)
            and f"offload.activation_layers {context.job.offload.activation_layers}: {_offload_fault(context)}"
        ),
        reads="job.offload.activation_layers job.model.num_hidden_layers",
        since="4.3",
    ),
    never("SW-OFFLOAD-AWARE", "optimizer_cpu_offload & !use_precision_aware_optimizer",
          "The optimizer on the host works with the precision-aware optimizer; 3.x refuses it otherwise.",
          "Megatron-LM core_v0.12.1 arguments.py:946", since="3.5.0", until="3.99",
          message="offload.optimizer needs optimizer.precision_aware"),
    never("SW-OFFLOAD-AWARE-UNCHECKED", "optimizer_cpu_offload & !use_precision_aware_optimizer",
          "Megatron-LM refuses an optimizer on the host that is not precision-aware; 4.x does not check it.",
          "Megatron-LM core_v0.12.1 arguments.py:946; not checked by ms-swift 4.6.0", since=FOUR, severity="warning",
          message="offload.optimizer without optimizer.precision_aware: Megatron-LM refuses it, this version checks "
          "nothing"),
)
# fmt: on

declare((*LAYOUT, *RECOMPUTE, *SPARSE_ATTENTION, *PRECISION, *EXPERTS, *OPTIMIZER), backends=BACKENDS, phase="config")
lower("SW-ETP-REPLICAS", BACKENDS[0], "the command runs as it is", when=lambda context: context.existing)
