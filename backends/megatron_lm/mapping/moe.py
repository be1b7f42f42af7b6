"""Rows for MoE models: architecture and training."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.families import ALL_DENSE
from backends.megatron_lm.mapping.factories import (
    BEFORE_0_15,
    BEFORE_0_17,
    BEFORE_0_18,
    WITH_NEWEST,
    came,
    refused,
    single,
    when_set,
)
from launcher.families.layer_pattern import describe, expert_pattern, zeros
from launcher.job import Job, Value, value_at
from launcher.list_expression import expand
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, warning
from launcher.syntax import is_count

BALANCING = ("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none")


def is_moe(job: Job) -> bool:
    """Return whether the job's model has routed experts."""
    return job.model.is_moe


def experts() -> tuple[Row, ...]:
    """Return the rows of number, width and layers of the experts."""
    return (
        when_set("model.num_experts", "num-experts"),
        _moe_valued("model.num_experts_per_tok", "moe-router-topk", 2),
        when_set("model.moe_intermediate_size", "moe-ffn-hidden-size", when=is_moe),
        layer_frequency(),
        when_set("model.shared_expert_intermediate_size", "moe-shared-expert-intermediate-size", when=is_moe),
        switch("model.shared_expert_gate", "moe-shared-expert-gate", when=is_moe, since="0.16"),
        refused(
            "model.shared_expert_gate",
            "the shared expert has no gate before core 0.16",
            ("backend.version=0.16.1",),
            when=is_moe,
            until="0.15.9",
        ),
    )


def layer_frequency() -> Row:
    """Return the row of the pattern of MoE layers."""
    fields = ("model.first_k_dense_replace", "model.moe_layer_freq", "model.mlp_only_layers")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        if model.first_k_dense_replace == 0 and not model.mlp_only_layers:
            if model.moe_layer_freq > 1:
                yield "moe-layer-freq", model.moe_layer_freq
            return
        if model.num_hidden_layers is None or ALL_DENSE.when(model):
            raise Unsupported(fields[0], ALL_DENSE.describe(model))
        yield "moe-layer-freq", expert_pattern(model)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek("moe-layer-freq")
        if given is None:
            return {}
        text = str(given)
        kinds = expand(text) or []
        if not is_count(text) and not (set(kinds) <= {0, 1} and len(kinds) == view.peek("num-layers")):
            return {}
        found = (0, int(text)) if is_count(text) else describe(kinds)
        if found is None and 1 not in kinds:
            return {}
        view.take("moe-layer-freq")
        if found is None:
            return {fields[2]: zeros(kinds)}
        return {fields[0]: found[0], fields[1]: found[1]}

    return Row(fields=fields, flags=("moe-layer-freq",), emit=emit, read=read, when=is_moe, derived=True)


def routing() -> tuple[Row, ...]:
    """Return the rows of the router: selection and weights of the experts."""
    return (
        _scores(_FUNCTIONS, until=BEFORE_0_18),
        _scores((*_FUNCTIONS, "sqrtsoftplus"), since=_SQRTSOFTPLUS),
        computed(
            ("model.router_expert_bias", "model.scoring_func"),
            ("moe-router-enable-expert-bias",),
            _write_expert_bias,
            _read_expert_bias,
            when=is_moe,
        ),
        when_set("moe.bias_update_rate", "moe-router-bias-update-rate", when=lambda job: job.model.router_expert_bias),
        computed(
            ("model.n_group", "model.topk_group"),
            ("moe-router-num-groups", "moe-router-group-topk"),
            _write_groups,
            _read_groups,
            when=is_moe,
            note="A group's score is the sum of its best topk / topk_group experts (group_limited_topk, moe_utils.py).",
        ),
        when_set("model.routed_scaling_factor", "moe-router-topk-scaling-factor", when=is_moe),
        *router_precision(),
    )


_SCORES = "model.scoring_func"
_FUNCTIONS, _SQRTSOFTPLUS = ("softmax", "sigmoid"), "0.18"


def _scores(functions: tuple[str, ...], **bounds: str) -> Row:
    """Return the row of the experts' scores and of their normalisation.

    Args:
        functions: score functions of these versions.
        bounds: `since` and `until` of the row.
    """
    later = () if "sqrtsoftplus" in functions else (WITH_NEWEST,)
    return computed(
        ("model.norm_topk_prob", _SCORES, "model.num_experts_per_tok"),
        ("moe-router-score-function", "moe-router-pre-softmax"),
        lambda job: write_scores(job, functions, later),
        _read_scores,
        when=is_moe,
        note=(
            "Softmax before top-k leaves the weights as they are (norm_topk_prob=false); after top-k it normalises "
            "them, which equals Hugging Face's softmax, top-k, division by the sum. Other scores are always "
            "normalised. megatron/core/transformer/moe/moe_utils.py topk_routing_with_score_function @core_v0.16.1; "
            "sqrtsoftplus: moe_utils.py:804 @core_v0.18.2"
        ),
        **bounds,
    )


def write_scores(
    job: Job, functions: tuple[str, ...] = _FUNCTIONS, later: tuple[str, ...] = ()
) -> Iterable[tuple[str, Value]]:
    """Yield the arguments of the experts' scores and of their normalisation.

    Args:
        job: whose router it is.
        functions: score functions of the backend's version.
        later: overrides that choose a version with more of them.
    """
    model = job.model
    single_expert, function = model.num_experts_per_tok == 1, model.scoring_func
    if function not in functions:
        why = f"it knows {', '.join(functions)}"
        if later:
            why = f"{function} came with core {_SQRTSOFTPLUS}; before it there are {' and '.join(functions)}"
        raise Unsupported(_SCORES, why, (*later, *(f"{_SCORES}={name}" for name in functions)))
    if job.moe.load_balancing_type == "sinkhorn":
        if function != "softmax":
            yield "moe-router-score-function", function
    elif function != "softmax":
        yield "moe-router-score-function", function  # also where the rest is refused: rules read it
        if model.norm_topk_prob == single_expert:
            raise Unsupported(
                "model.norm_topk_prob",
                f"{function} scores of several experts are always normalised to one, that of a single expert never",
                (f"model.norm_topk_prob={str(not single_expert).lower()}",),
            )
    elif not model.norm_topk_prob:
        yield "moe-router-pre-softmax", True
    elif single_expert:
        raise Unsupported(
            "model.norm_topk_prob",
            "softmax over a single chosen expert would always be one; Megatron refuses it",
            ("model.norm_topk_prob=false",),
        )


def _read_scores(view: NativeView) -> Mapping[str, Value]:
    if not view.peek("num-experts"):
        return {}
    function = view.take("moe-router-score-function", "softmax")
    before = bool(view.take("moe-router-pre-softmax", False))
    normalised = not before if function == "softmax" else view.peek("moe-router-topk", 2) > 1
    if view.peek("moe-router-load-balancing-type") == "sinkhorn":
        normalised = False  # it computes its own scores (_sinkhorn_activation, moe/router.py:231 @core_v0.16.1)
    return {"model.scoring_func": function, "model.norm_topk_prob": normalised}


def _write_expert_bias(job: Job) -> Iterable[tuple[str, Value]]:
    if not job.model.router_expert_bias:
        return
    if job.model.scoring_func == "softmax":
        raise Unsupported(
            "model.router_expert_bias",
            "the learned expert bias needs sigmoid scores (TransformerConfig.__post_init__)",
            ("model.scoring_func=sigmoid",),
        )
    yield "moe-router-enable-expert-bias", True


def _read_expert_bias(view: NativeView) -> Mapping[str, Value]:
    if view.peek("moe-router-score-function", "softmax") == "softmax":
        return {}
    return {"model.router_expert_bias": bool(view.take("moe-router-enable-expert-bias", False))}


def _read_groups(view: NativeView) -> Mapping[str, Value]:
    if view.peek("moe-router-num-groups", 1) == 1:
        return {}
    groups = view.take("moe-router-num-groups")
    return {"model.n_group": groups, "model.topk_group": view.take("moe-router-group-topk")}


def _write_groups(job: Job) -> Iterable[tuple[str, Value]]:
    groups, chosen_groups = job.model.n_group, job.model.topk_group
    if groups is None or groups == 1:
        return
    yield "moe-router-num-groups", groups
    if chosen_groups is not None:
        yield "moe-router-group-topk", chosen_groups


def router_precision() -> tuple[Row, ...]:
    """Return the row of the router's precision."""
    return (
        Row(
            fields=("moe.router_dtype",),
            flags=("moe-router-dtype",),
            emit=lambda job: () if job.moe.router_dtype == "model" else (("moe-router-dtype", job.moe.router_dtype),),
            read=lambda view: (
                {"moe.router_dtype": view.take("moe-router-dtype", "model")} if view.peek("num-experts") else {}
            ),
            when=is_moe,
            note="Megatron's own default is the precision of the model.",
        ),
    )


def balance() -> tuple[Row, ...]:
    """Return the rows of load balancing and capacity."""
    return (
        _moe_choice(
            "moe.load_balancing_type",
            "moe-router-load-balancing-type",
            BALANCING,
            "aux_loss",
            since="0.15",
        ),
        _moe_choice(
            "moe.load_balancing_type",
            "moe-router-load-balancing-type",
            tuple(name for name in BALANCING if name != "global_aux_loss"),
            "aux_loss",
            until=BEFORE_0_15,
        ),
        _moe_valued("moe.aux_loss_coeff", "moe-aux-loss-coeff", 0.0),
        when_set("moe.z_loss_coeff", "moe-z-loss-coeff", when=is_moe),
        when_set("moe.capacity_factor", "moe-expert-capacity-factor", when=is_moe),
        switch("moe.pad_to_capacity", "moe-pad-expert-input-to-capacity", when=is_moe),
        when_set("moe.token_drop_policy", "moe-token-drop-policy", when=is_moe),
        when_set("moe.input_jitter_eps", "moe-input-jitter-eps", when=is_moe),
    )


def dispatch() -> tuple[Row, ...]:
    """Return the rows of dispatch, expert kernels and upcycling."""
    return (
        _moe_choice(
            "moe.token_dispatcher_type",
            "moe-token-dispatcher-type",
            ("alltoall", "allgather", "flex"),
            "allgather",
            since="0.13",
        ),
        _moe_choice(
            "moe.token_dispatcher_type",
            "moe-token-dispatcher-type",
            ("alltoall", "allgather", "flex", "alltoall_seq"),
            "allgather",
            until="0.12.9",
        ),
        switch("moe.grouped_gemm", "moe-grouped-gemm", when=is_moe),
        switch("moe.permute_fusion", "moe-permute-fusion", when=is_moe),
        switch("moe.router_fusion", "moe-router-fusion", when=is_moe, since="0.14"),
        switch("moe.shared_expert_overlap", "moe-shared-expert-overlap", when=is_moe),
        switch("moe.batch_overlap", "overlap-moe-expert-parallel-comm", when=is_moe, since="0.14"),
        switch("moe.deepep", "moe-enable-deepep", when=is_moe, until="0.15.9"),
        computed(
            ("moe.deepep", "moe.token_dispatcher_type"),
            ("moe-flex-dispatcher-backend",),
            _write_deepep,
            _read_deepep,
            when=is_moe,
            since="0.16",
            note="--moe-enable-deepep is deprecated in 0.16 (TransformerConfig.__post_init__).",
        ),
        switch("model.apply_probs_on_input", "moe-apply-probs-on-input", since="0.13"),
        switch("moe.use_upcycling", "moe-use-upcycling", since="0.12"),
        switch("moe.use_legacy_grouped_gemm", "moe-use-legacy-grouped-gemm", since="0.12", until=BEFORE_0_17),
    )


def forced_balance() -> Row:
    """Return the row of routing that is balanced by force, for measurements."""
    return switch("moe.force_load_balancing", "moe-router-force-load-balancing", since="0.13")


def _write_deepep(job: Job) -> Iterable[tuple[str, Value]]:
    if not job.moe.deepep:
        return
    if job.moe.token_dispatcher_type != "flex":
        why = f"DeepEP dispatches tokens for the flex dispatcher only, not for {job.moe.token_dispatcher_type}"
        raise Unsupported("moe.deepep", why, ("moe.token_dispatcher_type=flex", "moe.deepep=false"))
    yield "moe-flex-dispatcher-backend", "deepep"


def _read_deepep(view: NativeView) -> Mapping[str, Value]:
    flex = view.peek("moe-token-dispatcher-type") == "flex"
    if flex and (view.peek("moe-flex-dispatcher-backend") == "deepep" or view.has("moe-enable-deepep")):
        view.take("moe-flex-dispatcher-backend")
        view.take("moe-enable-deepep")
        return {"moe.deepep": True}
    return {}


def _moe_valued(path: str, flag: str, default: Value) -> Row:
    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: single(view.take(flag, default))} if view.peek("num-experts") else {}

    row = when_set(path, flag)
    return replace(row, read=read, when=is_moe)


def _moe_choice(
    path: str, flag: str, names: tuple[str, ...], default: str, since: str | None = None, until: str | None = None
) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value not in names:
            raise Unsupported(path, f"it knows {', '.join(names)}", tuple(f"{path}={name}" for name in names)[:3])
        yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek("num-experts"):
            return {}
        value = single(view.peek(flag, default))
        return {path: single(view.take(flag, default))} if value in names else {}

    return Row(
        fields=(path,), flags=(flag,), emit=emit, read=read, when=is_moe, since=since, until=until, codec="value"
    )


UNSUPPORTED: Mapping[str, Gap] = {
    "moe.dispatch_overlap": warning(
        "only shared experts hide the dispatch (moe.shared_expert_overlap)", False, works=("moe.dispatch_overlap=null",)
    ),
    "moe.tp_extend_ep": warning("use parallel.etp=1 and a larger parallel.ep", False, works=("parallel.etp=1",)),
}
GONE: Mapping[str, Gap] = {
    "moe.use_legacy_grouped_gemm": warning("core 0.17 removed the older experts", False),
}
CAME_LATER: Mapping[str, Gap] = {
    "moe.force_load_balancing": came(False),
    "model.apply_probs_on_input": came(False),
    "moe.batch_overlap": came(False, severity="warning"),
    "moe.router_fusion": came(False, severity="warning"),
}
