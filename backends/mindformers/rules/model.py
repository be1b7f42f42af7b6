"""Settings that MindFormers' mcore graph rejects: tensor, sequence and context parallelism, experts, model section."""

from collections.abc import Callable
from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.terms import (
    ALGORITHM,
    BACKENDS,
    CP,
    DEGREE,
    DP,
    EP,
    MCORE,
    OLD,
    SP,
    TP,
    class_key,
    is_counted,
    model_key,
    size_of,
    uses_flash,
    whole,
)
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import checked, declare, needs, never

_CONFIG = "mindformers 2.1.0 parallel_core/transformer_config.py"
_CHECKS = "mindformers 2.1.0 tools/check_rules.py"
_ALGORITHMS = ("colossalai_cp", "ulysses_cp", "hybrid_cp")
_ATTENTION = "mindformers 2.1.0 parallel_core/training_graph/transformer/attention.py"
_HEADS = ("parallel.tp", "parallel.cp", "parallel.ulysses_degree", "model.num_attention_heads")
# Hugging Face's, Megatron's and MindFormers' names of one setting (transformer_config_utils.py @1.6.0).
_SOFTMAX, _SOFTMAX_TYPE = MODEL + "attention_softmax_in_fp32", MODEL + "softmax_compute_dtype"
_SYNONYMS = (
    ("num_hidden_layers", "num_layers", "n_layer"),
    ("num_attention_heads", "num_heads", "n_head"),
    ("num_key_value_heads", "num_query_groups", "n_kv_heads"),
    ("intermediate_size", "ffn_hidden_size"),
    ("moe_intermediate_size", "moe_ffn_hidden_size"),
    ("num_experts_per_tok", "moe_router_topk", "num_experts_chosen"),
    ("n_group", "moe_router_num_groups"),
    ("topk_group", "moe_router_group_topk"),
    ("rope_theta", "rotary_base"),
    ("rms_norm_eps", "layernorm_epsilon"),
    ("initializer_range", "init_method_std"),
    ("head_dim", "kv_channels"),
)


def _degree(context: RuleContext) -> int:
    degree = context[DEGREE]
    if degree is None or context[ALGORITHM] == "colossalai_cp":
        return 1
    return int(degree)


def _ulysses_heads(context: RuleContext) -> Any:
    heads, degree = context.job.model.num_attention_heads, _degree(context)
    size = size_of(context, TP) * degree
    return (
        degree > 1
        and heads is not None
        and heads % size
        and f"{heads} heads are not a multiple of tp × ulysses_degree {size}"
    )


def _ulysses_groups(context: RuleContext) -> Any:
    groups, degree, tp = context.job.model.num_key_value_heads, _degree(context), size_of(context, TP)
    if degree < 2 or groups is None or context.job.model.is_mla:
        return None
    fits = groups % (tp * degree) == 0 or (context.version != OLD and groups % tp == 0)
    nor = "" if context.version == OLD else f" or of tp {tp}"
    return not fits and f"{groups} query groups are not a multiple of tp × ulysses_degree {tp * degree}{nor}"


def _hybrid(context: RuleContext) -> Any:
    if context[ALGORITHM] != "hybrid_cp" or size_of(context, CP) == 1:
        return None
    degree, cp = context[DEGREE], size_of(context, CP)
    return (not degree or cp % degree) and f"hybrid_cp: cp {cp} is not a multiple of ulysses_degree {degree}"


def _ulysses_limit(context: RuleContext) -> Any:
    if context[ALGORITHM] != "ulysses_cp" or size_of(context, CP) == 1:
        return None
    heads = model_key(context, "n_kv_heads", "multi_query_group_num") or context.job.model.num_attention_heads
    split = size_of(context, CP) * size_of(context, TP)
    return heads is not None and split > heads and f"ulysses_cp: cp × tp {split} is more than {heads} heads"


def _three_d(context: RuleContext) -> Any:
    if not model_key(context, "use_3d_tensor_parallel"):
        return None
    sizes = [model_key(context, f"tp_{axis}") or 1 for axis in "xyz"]
    if sizes[0] * sizes[1] * sizes[2] != size_of(context, TP):
        return f"tp_x × tp_y × tp_z = {sizes[0] * sizes[1] * sizes[2]} is not tp {size_of(context, TP)}"
    wrong = not uses_flash(context) or not context[SP] or context.job.model.is_moe or _degree(context) > 1
    return (
        wrong and "3-D tensor parallelism needs flash attention and sequence parallelism, without experts and Ulysses"
    )


# fmt: off
PARALLEL = (
    checked("MF-SP-TP", lambda context: size_of(context, TP) == 1,
            "Sequence parallelism splits over tensor-parallel ranks; the mcore graph refuses it without them.",
            f"{_CONFIG}:2281; model_parallel_config.py:159", when=f"{SP}=True", flags=(SP, TP),
            message="use_seq_parallel true needs tp above 1"),
    checked("MF-KV-TP", lambda context: (context.job.model.num_key_value_heads or 0) % size_of(context, TP),
            "Version 1.6 splits query groups over tensor-parallel ranks and does not repeat them.",
            "mindformers 1.6.0 parallel_core/transformer_config.py:470",
            when="job.model.num_key_value_heads!=None & !job.model.is_mla", until="1.6.99",
            flags=(TP, MODEL + "num_key_value_heads"),
            message=f"{{job.model.num_key_value_heads}} query groups are not a multiple of tp {{{TP}}}"),
    never("MF-FLASH-HALF", f"{MODEL}compute_dtype=float32 & @flash & !job.model.is_mla",
          "Flash attention casts float32 queries, keys and values to float16: a fp32 job has fp16's rounding there.",
          f"{_ATTENTION}:331; measured with launch parity on 1.8.0: gradients of iteration 1 differ by 1e-4 to 6e-4",
          severity="warning", flags=(MODEL + "compute_dtype", MODEL + "use_flash_attention"),
          fields=("precision.dtype", "kernels.attention_backend"),
          message="attention is computed in float16, although the job is fp32"),
    Rule(
        id="MF-UNFUSED-GROUPS",
        doc="Without flash attention, key and value heads are repeated along the batch, which fails with query groups.",
        source=f"{_ATTENTION}:389 (it reads [batch, heads, …], keys are [tokens, batch, heads, …]); measured on 1.8.0: "
        "MatMulExt, shapes not broadcastable",
        flags=(MODEL + "use_flash_attention", MODEL + "num_key_value_heads"),
        fields=("kernels.attention_backend", "model.num_key_value_heads"),
        when="!@flash & !job.model.is_mla & job.model.num_key_value_heads!=None",
        check=lambda context: context.job.model.num_key_value_heads != context.job.model.num_attention_heads,
        reads="job.model.num_attention_heads",
        message="without flash attention training fails: {job.model.num_attention_heads} heads share "
        "{job.model.num_key_value_heads} of keys and values",
        stricter=True,
        reason="the compilation of the first step fails, not the reading of the file",
    ),
    never("MF-CP-FLASH", f"{CP}>1 & !@flash",
          "Context parallelism runs on flash attention.", f"{_CONFIG}:2365; {_CHECKS}:189",
          flags=(CP, MODEL + "use_flash_attention"),
          message="cp above 1 needs flash attention"),
    never("MF-CP-FLASH-WRITTEN", f"{CP}>1 & !{MODEL}use_flash_attention?",
          "With context parallelism the file must set use_flash_attention: a check reads the file, not the default.",
          f"{_CHECKS}:189, called by trainer/base_trainer.py:951 @1.6.0 before the model is built",
          fields=("kernels.attention_backend", "parallel.cp"),
          message="cp above 1 needs model_config.use_flash_attention: True in the file, even though it is the default"),
    Rule(
        id="MF-CP-ALGORITHM",
        doc="The algorithm of context parallelism is one that MindFormers supports.",
        source="mindformers 1.6.0 modules/transformer/op_parallel_config.py (ContextParallelAlgo)",
        flags=(ALGORITHM,),
        check=lambda context: (
            context[ALGORITHM] not in (None, *_ALGORITHMS)
            and f"context_parallel_algo {context[ALGORITHM]}: supported are {', '.join(_ALGORITHMS)}"
        ),
    ),
    checked("MF-CP-HYBRID", _hybrid,
            "The all-to-all part of a hybrid divides the context parallel size.",
            "mindformers 1.6.0 modules/transformer/transformer.py:643", flags=(ALGORITHM, DEGREE, CP),
            fields=("parallel.cp", "parallel.ulysses_degree")),
    never("MF-CP-DEGREE", f"{CP}>1 & {ALGORITHM}=colossalai_cp & {DEGREE}>1",
          "The ring that gathers keys and values reads no ulysses degree.",
          "mindformers 1.6.0 modules/transformer/transformer.py:643", severity="warning", flags=(DEGREE, ALGORITHM),
          message="ulysses_degree_in_cp is ignored: context_parallel_algo is colossalai_cp"),
    checked("MF-ULYSSES-HEADS", _ulysses_heads,
            "Ulysses exchanges whole heads of each tensor-parallel rank.",
            "mindformers 1.6.0 llama_transformer.py:176; 2.1.0 attention.py:165", flags=(DEGREE, TP), fields=_HEADS,
            reads="job.model.num_attention_heads parallel_config.context_parallel_algo"),
    checked("MF-ULYSSES-GROUPS", _ulysses_groups,
            "Ulysses exchanges whole query groups, or version 2.1 repeats those of a tensor-parallel rank.",
            "mindformers 2.1.0 attention.py:178; 1.6.0 llama_transformer.py:188", flags=(DEGREE, TP),
            fields=(*_HEADS[:3], "model.num_key_value_heads"),
            reads="job.model.num_key_value_heads parallel_config.context_parallel_algo job.model.is_mla"),
    checked("MF-ULYSSES-LIMIT", _ulysses_limit,
            "Ulysses cannot split more ways than there are heads.", f"{_CHECKS}:146", flags=(ALGORITHM, CP, TP),
            fields=_HEADS, reads="model.model_config.n_kv_heads model.model_config.multi_query_group_num "
            "job.model.num_attention_heads"),
    needs("MF-MASK-FLASH", "!@flash", f"!{MODEL}use_attn_mask_compression & !{MODEL}use_eod_attn_mask_compression",
          "Compressed masks are read by flash attention only.", f"{_CONFIG}:2409",
          fields=("kernels.attention_backend",),
          message="mask compression needs flash attention"),
    never("MF-RING-FLASH", f"!@flash & {MODEL}use_ring_attention",
          "Ring attention is a variant of flash attention.", f"{_CONFIG}:2411",
          flags=(MODEL + "use_ring_attention", MODEL + "use_flash_attention"),
          message="ring attention needs flash attention"),
    checked("MF-TP-3D", _three_d,
            "3-D tensor parallelism uses a separate layout, which excludes several features.",
            "mindformers 1.6.0 models/utils.py:89-114", flags=(MODEL + "use_3d_tensor_parallel", TP),
            fields=("parallel.tp",), reads="@flash parallel_config.use_seq_parallel job.model.is_moe "
            "parallel_config.ulysses_degree_in_cp parallel_config.context_parallel_algo model.model_config.tp_x "
            "model.model_config.tp_y model.model_config.tp_z"),
)
# fmt: on


def _expert_ranks(context: RuleContext) -> Any:
    ep, ranks = (
        size_of(context, EP),
        size_of(context, DP) * size_of(context, TP) * (size_of(context, CP) if context.version == OLD else 1),
    )
    by = "dp × tp × cp" if context.version == OLD else "dp × tp"
    return is_counted(context) and ep > 1 and ranks % ep and f"ep {ep} does not divide {by} = {ranks}"


def _dense_layers(context: RuleContext) -> Any:
    first, freq, layers = (
        model_key(context, "first_k_dense_replace") or 0,
        model_key(context, "moe_layer_freq"),
        context.job.model.num_hidden_layers,
    )
    if not context.job.model.is_moe:
        return None
    if layers is not None and first > layers:
        return f"first_k_dense_replace {first} is more than {layers} layers"
    if first < -1:
        return f"first_k_dense_replace {first} must be at least -1"
    if isinstance(freq, (list, tuple)):
        bad = (layers is not None and len(freq) != layers) or set(freq) - {0, 1}
        return bad and "moe_layer_freq as a list needs a 0 or 1 for each layer"
    return whole(freq) and freq > 1 and first > 0 and "first_k_dense_replace cannot be used with moe_layer_freq above 1"


def _top_groups(context: RuleContext) -> Any:
    topk, groups = context.job.model.num_experts_per_tok, context.job.model.topk_group
    return (
        topk is not None
        and groups
        and topk % groups
        and f"num_experts_per_tok {topk} is not a multiple of topk_group {groups}"
    )


def _balances(version_names: tuple[str, ...]) -> Callable[[RuleContext], Any]:
    def when(context: RuleContext) -> Any:
        kind = model_key(context, "moe_router_load_balancing_type")
        capacity = model_key(context, "moe_expert_capacity_factor")
        known = ", ".join(version_names)
        return (
            context.job.model.is_moe
            and capacity is not None
            and kind not in (None, *version_names)
            and (f"moe_expert_capacity_factor does not support the balancing loss {kind}: supported are {known}")
        )

    return when


# fmt: off
EXPERTS = (
    checked("MF-EP-RANKS", _expert_ranks,
            "Experts are spread over data- and tensor-parallel ranks (and context-parallel ones in 1.6).",
            "mindformers 2.1.0 training_graph/transformer/moe/ffn.py:190; 1.6.0 ffn.py:145", flags=(EP, DP, TP),
            fields=("parallel.ep", "parallel.tp", "cluster.nodes", "cluster.devices_per_node"),
            reads="parallel_config.context_parallel @counted"),
    checked("MF-DEREDUNDANCY", lambda context: size_of(context, EP) < (model_key(context, "npu_nums_per_device") or 8),
            "The alltoall_deredundency dispatcher distributes experts over whole nodes.", f"{_CONFIG}:2421",
            when=f"{MODEL}moe_token_dispatcher_type=alltoall_deredundency",
            flags=(MODEL + "moe_token_dispatcher_type", EP), reads="model.model_config.npu_nums_per_device",
            message="moe_token_dispatcher_type alltoall_deredundency needs ep of at least the devices per node"),
    checked("MF-BIAS-MOE", lambda context: class_key(context, "add_bias_linear") is True,
            "MoE layers do not support biases in experts.", f"{_CONFIG}:2472", when="job.model.is_moe",
            flags=(MODEL + "add_bias_linear",), fields=("model.linear_bias",), reads=MODEL + "model_type",
            message="add_bias_linear true is not supported with experts"),
    never("MF-TOPK-ONE",
          f"job.model.num_experts_per_tok=1 & job.model.scoring_func=softmax & {MODEL}moe_router_pre_softmax!=True",
          "Softmax over one selected expert has no gradient: with top-1 it must be computed before the selection.",
          f"{_CONFIG}:2488", flags=(MODEL + "num_experts_per_tok", MODEL + "moe_router_pre_softmax"),
          fields=("model.num_experts_per_tok",),
          message="num_experts_per_tok 1 with softmax needs moe_router_pre_softmax true"),
    checked("MF-TOPK-GROUPS", _top_groups,
            "A token is routed to the same number of experts in each selected group.", f"{_CONFIG}:2506", since="1.7",
            flags=(MODEL + "num_experts_per_tok", MODEL + "topk_group"),
            fields=("model.num_experts_per_tok", "model.topk_group"),
            reads="job.model.num_experts_per_tok job.model.topk_group"),
    checked("MF-DENSE-LAYERS", _dense_layers,
            "Dense layers come first, or a pattern states for each layer whether it has experts.",
            f"{_CONFIG}:2524-2574; 1.6.0:570", flags=(MODEL + "first_k_dense_replace", MODEL + "moe_layer_freq"),
            fields=("model.first_k_dense_replace", "model.moe_layer_freq"),
            reads="job.model.num_hidden_layers job.model.is_moe"),
    checked("MF-CAPACITY-BALANCE", _balances(("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss")),
            "Tokens beyond the capacity are dropped only with some balancing losses.", f"{_CONFIG}:2455", since="1.7",
            flags=(MODEL + "moe_expert_capacity_factor", MODEL + "moe_router_load_balancing_type"),
            fields=("moe.capacity_factor", "moe.load_balancing_type"), reads="job.model.is_moe"),
    checked("MF-CAPACITY-BALANCE-OLD", _balances(("aux_loss", "seq_aux_loss", "none")),
            "Tokens beyond the capacity are dropped only with some balancing losses.",
            "mindformers 1.6.0 parallel_core/transformer_config.py (__post_init__)", until="1.6.99",
            flags=(MODEL + "moe_expert_capacity_factor", MODEL + "moe_router_load_balancing_type"),
            fields=("moe.capacity_factor", "moe.load_balancing_type"), reads="job.model.is_moe"),
    never("MF-PAD-CAPACITY", f"{MODEL}moe_pad_expert_input_to_capacity & {MODEL}moe_expert_capacity_factor=None",
          "Inputs of experts can be padded to a capacity only if there is one.",
          "mindformers 1.6.0 parallel_core/transformer_config.py (__post_init__), 1.7.0 :532", until="1.7.99",
          fields=("moe.pad_to_capacity", "moe.capacity_factor"),
          message="moe_pad_expert_input_to_capacity needs moe_expert_capacity_factor"),
    checked("MF-MOE-SECTION", lambda context: any(key.startswith("moe_config") for key in context.written),
            "The mcore graph drops the section moe_config: experts are described in the model section.",
            "mindformers 1.6.0 models/build_config.py (use_legacy: False)", severity="warning", flags=("moe_config",),
            fields=("backend.args",), reads="*",
            message="moe_config is ignored: the mcore graph reads experts from model.model_config"),
    Rule(
        id="MF-OLD-MOE",
        doc="The values of the section moe_config are within its bounds.",
        source="mindformers 1.6.0 modules/transformer/moe.py:160-169",
        flags=("moe_config.num_experts_chosen", "moe_config.expert_num", "moe_config.aux_loss_factor"),
        fields=("backend.args",),
        check=lambda context: (
            (context["moe_config.num_experts_chosen"] or 1) > (context["moe_config.expert_num"] or 1)
            or (context["moe_config.aux_loss_factor"] or 0) >= 1
            or (not 0 < (context["moe_config.cold_token_percent"] or 1) <= 1)
        ),
        reads="moe_config.cold_token_percent",
        message="moe_config needs num_experts_chosen ≤ expert_num, aux_loss_factor < 1 and 0 < cold_token_percent ≤ 1",
    ),
    Rule(
        id="MF-DRYRUN-EXPERTS",
        doc="A simulated run gives every expert the same number of tokens.",
        source=f"{_CONFIG}:2580",
        flags=(MODEL + "seq_length",),
        fields=("batch.seq_length", "backend.env"),
        check=lambda context: (
            context.job.backend.env.get("MS_SIMULATION_LEVEL", "0") != "0"
            and context.job.model.num_experts
            and context.job.batch.seq_length is not None
            and context.job.batch.seq_length % context.job.model.num_experts
        ),
        reads="job.backend.env job.model.num_experts job.batch.seq_length",
        message="MS_SIMULATION_LEVEL (simulated run) needs seq_length to be a multiple of num_experts",
        since="1.7",
    ),
)
# fmt: on


def _twice(context: RuleContext) -> Any:
    for names in _SYNONYMS:
        # A passed-through name replaces the one that the launcher would write.
        given = [name for name in names if MODEL + name in context.job.backend.passthrough]
        if len(given) > 1:
            return f"{' and '.join(given)} are names of one setting of model_config: keep one"
    return None


def _dropout(context: RuleContext) -> Any:
    for name in ("hidden_dropout", "attention_dropout"):
        value = model_key(context, name)
        if MODEL + name in context.written and not (isinstance(value, float) and 0 <= value < 1):
            return f"{name} {value} must be a float from 0.0 to below 1 (0.0, not 0)"
    return None


def _window(context: RuleContext) -> Any:
    window = model_key(context, "window_size")
    return isinstance(window, (list, tuple)) and min(window) < -1 and f"window_size {list(window)} must be at least -1"


# fmt: off
STRUCTURE = (
    checked("MF-TWICE", _twice,
            "Hugging Face's, Megatron's and MindFormers' names of one setting exclude each other.",
            "mindformers 1.6.0 parallel_core/transformer_config_utils.py:475; 2.1.0 config_converter.py:266",
            flags=tuple(MODEL + name for names in _SYNONYMS for name in names), fields=("backend.args",)),
    checked("MF-DROPOUT", _dropout,
            "Dropout is a fraction written with a point: the number 0 is refused.", f"{_CONFIG}:2301-2303",
            flags=(MODEL + "hidden_dropout", MODEL + "attention_dropout"),
            fields=("model.hidden_dropout", "model.attention_dropout")),
    never("MF-MTP", "job.model.num_nextn_predict_layers>1",
          "At most one multi-token-prediction layer is built.", f"{_CONFIG}:2344",
          flags=(MODEL + "num_nextn_predict_layers",), fields=("model.num_nextn_predict_layers",),
          message="num_nextn_predict_layers {job.model.num_nextn_predict_layers}: MindFormers supports at most 1"),
    never("MF-SWIGLU-FUSION", f"{MODEL}bias_swiglu_fusion=True & {MODEL}hidden_act!=swiglu",
          "The fused kernel supports hidden_act swiglu only.", f"{_CONFIG}:2618", since="1.7",
          fields=("kernels.bias_activation_fusion", "model.hidden_act"),
          message="bias_swiglu_fusion needs hidden_act swiglu"),
    checked("MF-WINDOW", _window,
            "A window of -1 is unlimited; smaller values are invalid.", f"{_CONFIG}:2715", since="1.8",
            flags=(MODEL + "window_size",), fields=("model.sliding_window",)),
    Rule(
        id="MF-SET-SOFTMAX",
        doc="Scaling attention scores by the layer needs a softmax in fp32.",
        source=f"{_CONFIG}:2414",
        flags=(MODEL + "apply_query_key_layer_scaling",),
        fields=("precision.apply_query_key_layer_scaling", "precision.attention_softmax_in_fp32"),
        when="job.precision.apply_query_key_layer_scaling & !job.precision.attention_softmax_in_fp32",
        sets={_SOFTMAX: True, _SOFTMAX_TYPE: lambda context: "float32" if context.given(_SOFTMAX_TYPE) else None},
        reads=_SOFTMAX_TYPE,
        message="attention_softmax_in_fp32 false → true: apply_query_key_layer_scaling needs it",
        severity="change",
    ),
)
# fmt: on

declare((*PARALLEL, *EXPERTS, *STRUCTURE), backends=BACKENDS, when=MCORE, phase="config")
