"""Settings that MindFormers' mcore graph rejects: tensor, sequence and context parallelism, experts, model section."""

from collections.abc import Callable
from typing import Any

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.view import (
    ALGORITHM,
    CP,
    DEGREE,
    DP,
    EP,
    OLD,
    SP,
    TP,
    MindRule,
    View,
    declare,
    whole,
)

_CONFIG = "mindformers 2.1.0 parallel_core/transformer_config.py"
_CHECKS = "mindformers 2.1.0 tools/check_rules.py"
_ALGORITHMS = ("colossalai_cp", "ulysses_cp", "hybrid_cp")
_POSITIONS = ("rope", "yarn", "none", "relative", "learned_absolute", "partial_rope")
_HEADS = ("parallel.tp", "parallel.cp", "parallel.ulysses_degree", "model.num_attention_heads")
# Hugging Face's, Megatron's and MindFormers' names of one setting (transformer_config_utils.py @1.6.0).
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


def _degree(v: View) -> int:
    degree = v[DEGREE]
    if degree is None or v[ALGORITHM] == "colossalai_cp":
        return 1
    return int(degree)


def _ulysses_heads(v: View) -> Any:
    heads, degree = v.job.model.num_attention_heads, _degree(v)
    size = v.size(TP) * degree
    return (
        degree > 1 and heads is not None and heads % size and f"{heads} heads are not a multiple of tp·ulysses {size}"
    )


def _ulysses_groups(v: View) -> Any:
    groups, degree, tp = v.job.model.num_key_value_heads, _degree(v), v.size(TP)
    if degree < 2 or groups is None or v.job.model.is_mla:
        return None
    fits = groups % (tp * degree) == 0 or (v.version != OLD and groups % tp == 0)
    return not fits and f"{groups} query groups are a multiple of neither tp·ulysses {tp * degree} nor tp"


def _hybrid(v: View) -> Any:
    if v[ALGORITHM] != "hybrid_cp" or v.size(CP) == 1:
        return None
    degree, cp = v[DEGREE], v.size(CP)
    return (not degree or cp % degree) and f"hybrid_cp: cp {cp} is not a multiple of ulysses degree {degree}"


def _ulysses_limit(v: View) -> Any:
    if v[ALGORITHM] != "ulysses_cp" or v.size(CP) == 1:
        return None
    heads = v.model("n_kv_heads", "multi_query_group_num") or v.job.model.num_attention_heads
    split = v.size(CP) * v.size(TP)
    return heads is not None and split > heads and f"ulysses: cp·tp {split} is more than {heads} heads"


def _three_d(v: View) -> Any:
    if not v.model("use_3d_tensor_parallel"):
        return None
    sizes = [v.model(f"tp_{axis}") or 1 for axis in "xyz"]
    if sizes[0] * sizes[1] * sizes[2] != v.size(TP):
        return f"tp_x·tp_y·tp_z = {sizes[0] * sizes[1] * sizes[2]} is not tp {v.size(TP)}"
    wrong = not v.flash or not v[SP] or v.job.model.is_moe or _degree(v) > 1
    return wrong and "3-D tensor parallelism needs flash attention and sequence parallelism, no experts, no ulysses"


PARALLEL = (
    MindRule(
        id="MF-SP-TP",
        doc="Sequence parallelism splits over tensor-parallel ranks; the mcore graph refuses it without them.",
        source=f"{_CONFIG}:2281; model_parallel_config.py:159",
        keys=(SP, TP),
        when=lambda v: v[SP] is True and v.size(TP) == 1,
        say="use_seq_parallel true needs tp above 1",
    ),
    MindRule(
        id="MF-KV-TP",
        doc="Version 1.6 splits query groups over tensor-parallel ranks and does not repeat them.",
        source="mindformers 1.6.0 parallel_core/transformer_config.py:470",
        keys=(TP, MODEL + "num_key_value_heads"),
        when=lambda v: (
            v.job.model.num_key_value_heads is not None
            and not v.job.model.is_mla
            and v.job.model.num_key_value_heads % v.size(TP)
            and f"{v.job.model.num_key_value_heads} query groups are not a multiple of tp {v.size(TP)}"
        ),
        until="1.6.99",
    ),
    MindRule(
        id="MF-CP-FLASH",
        doc="Context parallelism runs on flash attention.",
        source=f"{_CONFIG}:2365; {_CHECKS}:189",
        keys=(CP, MODEL + "use_flash_attention"),
        when=lambda v: v.size(CP) > 1 and not v.flash,
        say="cp above 1 needs flash attention",
    ),
    MindRule(
        id="MF-CP-FLASH-WRITTEN",
        doc="With context parallelism the file must say use_flash_attention: a check reads the file, not the default.",
        source=f"{_CHECKS}:189, called by trainer/base_trainer.py:951 @1.6.0 before the model is built",
        keys=(CP, MODEL + "use_flash_attention"),
        fields=("kernels.attention_backend", "parallel.cp"),
        when=lambda v: v.size(CP) > 1 and not v.given(MODEL + "use_flash_attention"),
        say="cp above 1 needs model_config.use_flash_attention: True written in the file",
    ),
    MindRule(
        id="MF-CP-ALGORITHM",
        doc="Context parallelism has these algorithms.",
        source="mindformers 1.6.0 modules/transformer/op_parallel_config.py (ContextParallelAlgo)",
        keys=(ALGORITHM,),
        when=lambda v: (
            v[ALGORITHM] not in (None, *_ALGORITHMS)
            and f"context_parallel_algo {v[ALGORITHM]}: known are {', '.join(_ALGORITHMS)}"
        ),
    ),
    MindRule(
        id="MF-CP-HYBRID",
        doc="The all-to-all part of a hybrid divides the context parallel size.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:643",
        keys=(ALGORITHM, DEGREE, CP),
        fields=("parallel.cp", "parallel.ulysses_degree"),
        when=_hybrid,
    ),
    MindRule(
        id="MF-CP-DEGREE",
        doc="The ring that gathers keys and values reads no ulysses degree.",
        source="mindformers 1.6.0 modules/transformer/transformer.py:643",
        keys=(DEGREE, ALGORITHM),
        when=lambda v: v.size(CP) > 1 and v[ALGORITHM] == "colossalai_cp" and v.size(DEGREE) > 1,
        say="ulysses_degree_in_cp is ignored: context_parallel_algo is colossalai_cp",
        severity="warning",
    ),
    MindRule(
        id="MF-ULYSSES-HEADS",
        doc="Ulysses exchanges whole heads of each tensor-parallel rank.",
        source="mindformers 1.6.0 llama_transformer.py:176; 2.1.0 attention.py:165",
        keys=(DEGREE, TP),
        fields=_HEADS,
        when=_ulysses_heads,
    ),
    MindRule(
        id="MF-ULYSSES-GROUPS",
        doc="Ulysses exchanges whole query groups, or version 2.1 repeats those of a tensor-parallel rank.",
        source="mindformers 2.1.0 attention.py:178; 1.6.0 llama_transformer.py:188",
        keys=(DEGREE, TP),
        fields=(*_HEADS[:3], "model.num_key_value_heads"),
        when=_ulysses_groups,
    ),
    MindRule(
        id="MF-ULYSSES-LIMIT",
        doc="Ulysses cannot split more ways than there are heads.",
        source=f"{_CHECKS}:146",
        keys=(ALGORITHM, CP, TP),
        fields=_HEADS,
        when=_ulysses_limit,
    ),
    MindRule(
        id="MF-MASK-FLASH",
        doc="Compressed masks are read by flash attention only.",
        source=f"{_CONFIG}:2409",
        keys=(MODEL + "use_attn_mask_compression", MODEL + "use_eod_attn_mask_compression"),
        fields=("kernels.attention_backend",),
        when=lambda v: (
            not v.flash and (v.model("use_attn_mask_compression") or v.model("use_eod_attn_mask_compression"))
        ),
        say="mask compression needs flash attention",
    ),
    MindRule(
        id="MF-RING-FLASH",
        doc="Ring attention is flash attention in pieces.",
        source=f"{_CONFIG}:2411",
        keys=(MODEL + "use_ring_attention", MODEL + "use_flash_attention"),
        when=lambda v: not v.flash and v.model("use_ring_attention"),
        say="ring attention needs flash attention",
    ),
    MindRule(
        id="MF-FINE-GRAIN",
        doc="Fine-grained interleaving overlaps the communication of split sequences.",
        source=f"{_CHECKS} (_check_config_campacity)",
        keys=(MODEL + "fine_grain_interleave", SP, CP),
        fields=("parallel.sequence_parallel",),
        when=lambda v: (v.model("fine_grain_interleave") or 1) > 1 and not v[SP] and v.size(CP) == 1,
        say="fine_grain_interleave needs sequence or context parallelism",
    ),
    MindRule(
        id="MF-TP-3D",
        doc="3-D tensor parallelism has a layout of its own and excludes much.",
        source="mindformers 1.6.0 models/utils.py:89-114",
        keys=(MODEL + "use_3d_tensor_parallel", TP),
        fields=("parallel.tp",),
        when=_three_d,
    ),
)


def _expert_ranks(v: View) -> Any:
    ep, ranks = v.size(EP), v.size(DP) * v.size(TP) * (v.size(CP) if v.version == OLD else 1)
    by = "dp·tp·cp" if v.version == OLD else "dp·tp"
    return v.counted and ep > 1 and ranks % ep and f"ep {ep} does not divide {by} = {ranks}"


def _dense_layers(v: View) -> Any:
    first, freq, layers = (
        v.model("first_k_dense_replace") or 0,
        v.model("moe_layer_freq"),
        v.job.model.num_hidden_layers,
    )
    if not v.job.model.is_moe:
        return None
    if layers is not None and first > layers:
        return f"first_k_dense_replace {first} is more than {layers} layers"
    if first < -1:
        return f"first_k_dense_replace {first} must be at least -1"
    if isinstance(freq, (list, tuple)):
        bad = (layers is not None and len(freq) != layers) or set(freq) - {0, 1}
        return bad and "moe_layer_freq needs a 0 or 1 for each layer"
    return whole(freq) and freq > 1 and first > 0 and "first_k_dense_replace cannot be used with moe_layer_freq above 1"


def _top_groups(v: View) -> Any:
    topk, groups = v.job.model.num_experts_per_tok, v.job.model.topk_group
    return (
        topk is not None and groups and topk % groups and f"num_experts_per_tok {topk} % topk_group {groups} is not 0"
    )


def _balances(version_names: tuple[str, ...]) -> Callable[[View], Any]:
    def when(v: View) -> Any:
        kind = v.model("moe_router_load_balancing_type")
        capacity = v.model("moe_expert_capacity_factor")
        known = ", ".join(version_names)
        return (
            v.job.model.is_moe
            and capacity is not None
            and kind not in (None, *version_names)
            and (f"moe_expert_capacity_factor with balancing {kind}: it works with {known}")
        )

    return when


EXPERTS = (
    MindRule(
        id="MF-EP-RANKS",
        doc="Experts are spread over data- and tensor-parallel ranks (and context-parallel ones in 1.6).",
        source="mindformers 2.1.0 training_graph/transformer/moe/ffn.py:190; 1.6.0 ffn.py:145",
        keys=(EP, DP, TP),
        fields=("parallel.ep", "parallel.tp", "cluster.nodes", "cluster.devices_per_node"),
        when=_expert_ranks,
    ),
    MindRule(
        id="MF-DEREDUNDANCY",
        doc="The dispatcher without repeated sending spreads experts over whole nodes.",
        source=f"{_CONFIG}:2421",
        keys=(MODEL + "moe_token_dispatcher_type", EP),
        when=lambda v: (
            v.model("moe_token_dispatcher_type") == "alltoall_deredundency"
            and v.size(EP) < (v.model("npu_nums_per_device") or 8)
        ),
        say="moe_token_dispatcher_type alltoall_deredundency needs ep of at least the devices of a node",
    ),
    MindRule(
        id="MF-BIAS-MOE",
        doc="Experts have no bias.",
        source=f"{_CONFIG}:2472",
        keys=(MODEL + "add_bias_linear",),
        fields=("model.linear_bias",),
        when=lambda v: v.job.model.is_moe and v.model("add_bias_linear") is True,
        say="add_bias_linear true: experts have no bias",
    ),
    MindRule(
        id="MF-TOPK-ONE",
        doc="Softmax over one chosen expert has no gradient: with top-1 it must come before the choice.",
        source=f"{_CONFIG}:2488",
        keys=(MODEL + "num_experts_per_tok", MODEL + "moe_router_pre_softmax"),
        fields=("model.num_experts_per_tok",),
        when=lambda v: (
            v.job.model.num_experts_per_tok == 1
            and v.job.model.scoring_func == "softmax"
            and v.model("moe_router_pre_softmax") is not True
        ),
        say="num_experts_per_tok 1 with softmax needs moe_router_pre_softmax true",
    ),
    MindRule(
        id="MF-TOPK-GROUPS",
        doc="Every group that a token visits gives it the same number of experts.",
        source=f"{_CONFIG}:2506",
        keys=(MODEL + "num_experts_per_tok", MODEL + "topk_group"),
        fields=("model.num_experts_per_tok", "model.topk_group"),
        when=_top_groups,
        since="2.0",
    ),
    MindRule(
        id="MF-DENSE-LAYERS",
        doc="Dense layers come first, or a pattern says for each layer whether it has experts.",
        source=f"{_CONFIG}:2524-2574; 1.6.0:570",
        keys=(MODEL + "first_k_dense_replace", MODEL + "moe_layer_freq"),
        fields=("model.first_k_dense_replace", "model.moe_layer_freq"),
        when=_dense_layers,
    ),
    MindRule(
        id="MF-CAPACITY-BALANCE",
        doc="Tokens beyond capacity are dropped with these balancing losses only.",
        source=f"{_CONFIG}:2455",
        keys=(MODEL + "moe_expert_capacity_factor", MODEL + "moe_router_load_balancing_type"),
        fields=("moe.capacity_factor", "moe.load_balancing_type"),
        when=_balances(("sub_seq_aux_loss", "seq_aux_loss", "gbs_aux_loss")),
        since="2.0",
    ),
    MindRule(
        id="MF-CAPACITY-BALANCE-OLD",
        doc="Tokens beyond capacity are dropped with these balancing losses only.",
        source="mindformers 1.6.0 parallel_core/transformer_config.py (__post_init__)",
        keys=(MODEL + "moe_expert_capacity_factor", MODEL + "moe_router_load_balancing_type"),
        fields=("moe.capacity_factor", "moe.load_balancing_type"),
        when=_balances(("aux_loss", "seq_aux_loss", "none")),
        until="1.6.99",
    ),
    MindRule(
        id="MF-PAD-CAPACITY",
        doc="Inputs of experts can be padded to a capacity only if there is one.",
        source="mindformers 1.6.0 parallel_core/transformer_config.py (__post_init__)",
        keys=(MODEL + "moe_pad_expert_input_to_capacity", MODEL + "moe_expert_capacity_factor"),
        fields=("moe.pad_to_capacity", "moe.capacity_factor"),
        when=lambda v: v.model("moe_pad_expert_input_to_capacity") and v.model("moe_expert_capacity_factor") is None,
        say="moe_pad_expert_input_to_capacity needs moe_expert_capacity_factor",
        until="1.6.99",
    ),
    MindRule(
        id="MF-MOE-SECTION",
        doc="The mcore graph drops the section moe_config: experts are described in the model section.",
        source="mindformers 1.6.0 models/build_config.py (use_legacy: False)",
        keys=("moe_config",),
        fields=("backend.args",),
        when=lambda v: any(key.startswith("moe_config") for key in v.written),
        say="moe_config is dropped: the mcore graph reads experts from model.model_config",
        severity="warning",
    ),
    MindRule(
        id="MF-OLD-MOE",
        doc="The old section has bounds of its own.",
        source="mindformers 1.6.0 modules/transformer/moe.py:160-169",
        keys=("moe_config.num_experts_chosen", "moe_config.expert_num", "moe_config.aux_loss_factor"),
        fields=("backend.args",),
        when=lambda v: (
            (v["moe_config.num_experts_chosen"] or 1) > (v["moe_config.expert_num"] or 1)
            or (v["moe_config.aux_loss_factor"] or 0) >= 1
            or not 0 < (v["moe_config.cold_token_percent"] or 1) <= 1
        ),
        say="moe_config: num_experts_chosen ≤ expert_num, aux_loss_factor < 1, 0 < cold_token_percent ≤ 1",
    ),
    MindRule(
        id="MF-DRYRUN-EXPERTS",
        doc="A simulated run gives every expert the same number of tokens.",
        source=f"{_CONFIG}:2580",
        keys=(MODEL + "seq_length",),
        fields=("batch.seq_length", "backend.env"),
        when=lambda v: (
            v.job.backend.env.get("MS_SIMULATION_LEVEL", "0") != "0"
            and v.job.model.num_experts
            and v.job.batch.seq_length is not None
            and v.job.batch.seq_length % v.job.model.num_experts
        ),
        say="MS_SIMULATION_LEVEL: seq_length must be a multiple of num_experts",
        since="2.0",
    ),
)


def _twice(v: View) -> Any:
    for names in _SYNONYMS:
        # A passed-through name replaces the one that the launcher would write.
        given = [name for name in names if v.passed(MODEL + name)]
        if len(given) > 1:
            return f"{' and '.join(given)} name one setting of model_config: keep one"
    return None


def _dropout(v: View) -> Any:
    for name in ("hidden_dropout", "attention_dropout"):
        value = v.model(name)
        if MODEL + name in v.written and not (isinstance(value, float) and 0 <= value < 1):
            return f"{name} {value} must be written as a fraction from 0.0 to below 1 (0.0, not 0)"
    return None


def _window(v: View) -> Any:
    window = v.model("window_size")
    return isinstance(window, (list, tuple)) and min(window) < -1 and f"window_size {list(window)}: at least -1"


STRUCTURE = (
    MindRule(
        id="MF-TWICE",
        doc="Hugging Face's, Megatron's and MindFormers' names of one setting exclude each other.",
        source="mindformers 1.6.0 parallel_core/transformer_config_utils.py:475; 2.1.0 config_converter.py:266",
        keys=tuple(MODEL + name for names in _SYNONYMS for name in names),
        fields=("backend.args",),
        when=_twice,
    ),
    MindRule(
        id="MF-DROPOUT",
        doc="Dropout is a fraction written with a point: the number 0 is refused.",
        source=f"{_CONFIG}:2301-2303",
        keys=(MODEL + "hidden_dropout", MODEL + "attention_dropout"),
        fields=("model.hidden_dropout", "model.attention_dropout"),
        when=_dropout,
    ),
    MindRule(
        id="MF-MTP",
        doc="At most one multi-token-prediction layer is built.",
        source=f"{_CONFIG}:2344",
        keys=(MODEL + "num_nextn_predict_layers",),
        fields=("model.num_nextn_predict_layers",),
        when=lambda v: (
            v.job.model.num_nextn_predict_layers > 1
            and f"{v.job.model.num_nextn_predict_layers} MTP layers: MindFormers builds one"
        ),
    ),
    MindRule(
        id="MF-POSITION",
        doc="Positions are one of these kinds.",
        source=f"{_CONFIG}:2590",
        keys=(MODEL + "position_embedding_type",),
        fields=("model.position_embedding",),
        when=lambda v: (
            v.model("position_embedding_type") not in (None, *_POSITIONS)
            and f"position_embedding_type {v.model('position_embedding_type')}: known are {', '.join(_POSITIONS)}"
        ),
        since="2.0",
    ),
    MindRule(
        id="MF-SWIGLU-FUSION",
        doc="The fused kernel is SwiGLU's, under that name.",
        source=f"{_CONFIG}:2618",
        keys=(MODEL + "bias_swiglu_fusion", MODEL + "hidden_act"),
        fields=("kernels.bias_activation_fusion", "model.hidden_act"),
        when=lambda v: v.model("bias_swiglu_fusion") is True and v.model("hidden_act") != "swiglu",
        say="bias_swiglu_fusion needs hidden_act swiglu",
        since="2.0",
    ),
    MindRule(
        id="MF-WINDOW",
        doc="A window of -1 is unlimited; there is nothing below.",
        source=f"{_CONFIG}:2715",
        keys=(MODEL + "window_size",),
        fields=("model.sliding_window",),
        when=_window,
        since="2.0",
    ),
    MindRule(
        id="MF-SET-SOFTMAX",
        doc="Scaling attention scores by the layer needs a softmax in fp32.",
        source=f"{_CONFIG}:2414",
        keys=(MODEL + "apply_query_key_layer_scaling",),
        fields=("precision.apply_query_key_layer_scaling", "precision.attention_softmax_in_fp32"),
        when=lambda v: v.job.precision.apply_query_key_layer_scaling and not v.job.precision.attention_softmax_in_fp32,
        say="attention_softmax_in_fp32 false → true: scaling Q·K by the layer needs it",
        severity="change",
    ),
)

declare(*PARALLEL, *EXPERTS, *STRUCTURE, dialects=("mcore",))
