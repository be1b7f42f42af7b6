"""MindSpeed-LLM mapping rows for the architecture: layer specification, experts, positions."""

from collections.abc import Iterable, Mapping

from backends.megatron_lm.mapping.attention_variants import variant_of
from backends.megatron_lm.mapping.factories import flag_on, when_set
from backends.megatron_lm.mapping.moe import is_moe, write_scores
from backends.megatron_lm.mapping.positions import has_rope, not_stretched
from backends.mindspeed.families import DEEPSEEK, FAMILIES, GEMMA2, MINIMAX, QWEN2_MOE, QWEN3, is_named
from backends.mindspeed.versions import accepts
from launcher.job import Job, Value, field_paths
from launcher.mapping.rows import NativeView, Row, Unsupported, computed
from launcher.syntax import is_count

_SPECS = "mindspeed_llm.tasks.models.spec."


_LITE = "deepseek2-lite"
_WIDE = ("model.qk_norm_type",)
_SPECIFYING = ("qk_layernorm", "kv_lora_rank", "shared_expert_gate", "norms_of_outputs")


def converter_name(job: Job) -> str | None:
    """Return the weight converter's name for this architecture; None if it does not support the family."""
    if job.model.model_type == "deepseek_v2" and job.model.q_lora_rank is None:
        return _LITE
    row = FAMILIES.get(job.model.model_type or "")
    return None if row is None else row.converter


def converted_folder(job: Job, version: str) -> str | None:
    """Return "" where weights are converted before the start; None where it converts them, or there are none."""
    row = FAMILIES.get(job.model.model_type or "")
    at_start = row is not None and row.converts_at_start(version)
    if converter_name(job) == _LITE:
        at_start = accepts(version, "enable-hf2mg-convert")
    at_start = at_start and "num_local_experts" not in job.model.newer_names  # MS-CONVERT-NAMES
    return "" if job.model.starts_from_weights and not at_start else None


def layer_spec(known: tuple[str, ...]) -> Row:
    """Return the row of the layer specification, without which MindSpeed-LLM builds plain GPT layers.

    Args:
        known: specifications in this version, among those that supported families need.
    """

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        module = spec_of(job)
        if module in known:
            yield "spec", (f"{_SPECS}{module}", "layer_spec")

    return computed(
        ("model.model_type", *(f"model.{name}" for name in _SPECIFYING), *(_WIDE if MINIMAX in known else ())),
        ("spec",),
        emit,
        lambda view: _read_spec(view, known),
        note="Without it --qk-layernorm is silently ignored (pretrain_gpt.py:57 @26.1.0).",
    )


def spec_of(job: Job) -> str | None:
    """Return the module of the layer specification that this architecture needs; None if Megatron's layers suffice."""
    other = job.model.mamba or variant_of(job) in ("gated_delta_net", "dsv4_hybrid")
    if other:  # their rows write their own specifications
        return None
    if job.model.is_mla:
        return DEEPSEEK
    if job.model.norms_of_outputs:
        return GEMMA2
    if job.model.normalises_all_heads:
        return MINIMAX
    if is_named(job.model.model_type, QWEN2_MOE) or job.model.shared_expert_gate:
        return QWEN2_MOE
    return QWEN3 if is_named(job.model.model_type, QWEN3) or job.model.qk_layernorm else None


def _read_spec(view: NativeView, known: tuple[str, ...]) -> Mapping[str, Value]:
    given = view.peek("spec")
    module = str(given[0] if isinstance(given, (list, tuple)) else given).removeprefix(_SPECS)
    experts = bool(view.peek("num-experts"))
    deepseek = "deepseek_v3" if view.peek("moe-router-score-function") == "sigmoid" else "deepseek_v2"
    families = {
        "deepseek_spec": deepseek,
        "qwen2_moe_spec": "qwen2_moe",
        "qwen3_spec": "qwen3_moe" if experts else "qwen3",
        **({"gemma2_spec": "gemma2"} if view.peek("post-norm") else {}),
    }
    if module == MINIMAX and MINIMAX in known:
        view.take("spec")
        scores = "minimax_m2" if view.peek("moe-router-score-function") == "sigmoid" else "olmoe"
        return {"model.model_type": family_of_converter(view) or scores, **dict.fromkeys(_WIDE, "per_layer")}
    if module in families and (module != "deepseek_spec" or view.peek("multi-latent-attention")):
        view.take("spec")
        return {"model.model_type": families[module]}
    family = family_of_converter(view)
    if given is None and _needed(view, family) in known:
        view.values["spec"] = None  # plain layers, though the architecture needs a specification: kept as given
    return {"model.model_type": family}


def _needed(view: NativeView, family: str | None) -> str | None:
    """Return the module that `spec_of` selects, from native arguments."""
    if view.peek("full-attention-interval") or (view.peek("enable-dsa-indexer") and view.peek("kv-compress")):
        return None
    if view.peek("multi-latent-attention"):
        return DEEPSEEK
    if view.peek("post-norm"):
        return GEMMA2
    if is_named(family, QWEN2_MOE) or view.peek("shared-expert-gate"):
        return QWEN2_MOE
    return QWEN3 if is_named(family, QWEN3) or view.peek("qk-layernorm") else None


def family_of_converter(view: NativeView) -> str | None:
    """Return the family of --model-type-hf, without consuming the argument; None if it is unknown."""
    name = "deepseek2" if view.peek("model-type-hf") == _LITE else view.peek("model-type-hf")
    return {row.converter: family for family, row in FAMILIES.items()}.get(str(name))


def layer_count() -> Row:
    """Return the row of the number of layers: those of the model plus no-op layers."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.num_hidden_layers is not None:
            yield "num-layers", job.model.num_hidden_layers + len(job.parallel.noop_layers)

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("num-layers"):
            return {}
        return {"model.num_hidden_layers": view.take("num-layers") - len(noop_layers_of(view))}

    return Row(
        fields=("model.num_hidden_layers", "parallel.noop_layers"),
        flags=("num-layers",),
        emit=emit,
        read=read,
        note="--num-layers counts the --noop-layers too.",
    )


def noop_layers() -> Row:
    """Return the row of the indices of no-op layers."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.parallel.noop_layers:
            yield "noop-layers", ",".join(str(layer) for layer in job.parallel.noop_layers)

    def read(view: NativeView) -> Mapping[str, Value]:
        layers = noop_layers_of(view)
        if not layers:
            return {}
        view.take("noop-layers")
        return {"parallel.noop_layers": layers}

    return Row(fields=("parallel.noop_layers",), flags=("noop-layers",), emit=emit, read=read)


def noop_layers_of(view: NativeView) -> tuple[int, ...]:
    """Return the layer indices in --noop-layers; empty if it is not a list of numbers."""
    parts = [part.strip() for part in str(view.peek("noop-layers") or "").split(",")]
    return tuple(int(part) for part in parts) if all(map(is_count, parts)) else ()


def expert_places() -> Row:
    """Return the row of dense and MoE layers, set by Hugging Face's first_k_dense_replace and moe_layer_freq."""
    fields = ("model.first_k_dense_replace", "model.moe_layer_freq")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        dense, every = job.model.first_k_dense_replace, job.model.moe_layer_freq
        if dense == 0 and every == 1:
            return
        yield "first-k-dense-replace", dense or -1
        yield "moe-layer-freq", every

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek("num-experts"):
            return {}
        dense, every = view.take("first-k-dense-replace"), view.take("moe-layer-freq", 1)
        if not dense:
            return {fields[0]: 0, fields[1]: 1}
        return {fields[0]: max(0, int(dense)), fields[1]: max(1, int(every))}

    return Row(
        fields=fields,
        flags=("first-k-dense-replace", "moe-layer-freq"),
        emit=emit,
        read=read,
        when=is_moe,
        derived=True,
        note="Read only if --first-k-dense-replace is not 0; -1: no dense layer (transformer_block.py:163 @26.1.0).",
    )


def routing_scores(functions: tuple[str, ...] = ()) -> Row:
    """Return the row of router scores and top-k normalization; `functions` are the version's score functions."""
    return computed(
        ("model.norm_topk_prob", "model.scoring_func", "model.num_experts_per_tok"),
        ("moe-router-score-function", "moe-router-pre-softmax", "norm-topk-prob"),
        lambda job: _write_scores(job, functions),
        _read_scores,
        when=is_moe,
        note=(
            "Softmax after top-k normalises already; under aux_loss --norm-topk-prob divides once more, which would "
            "undo a scaling factor and divide by 0 where a capacity drops tokens; other balancing types do not read it "
            "(core/transformer/moe/router.py topk_router_routing @26.1.0)."
        ),
    )


def _write_scores(job: Job, functions: tuple[str, ...]) -> Iterable[tuple[str, Value]]:
    normalised = job.model.norm_topk_prob
    function = job.model.scoring_func
    if function != "sigmoid" and function != "softmax" and function in functions:
        single = job.model.num_experts_per_tok == 1
        yield "moe-router-score-function", function
        if normalised == single:
            why = f"{function} scores of several experts are always normalised to one, that of a single expert never"
            raise Unsupported("model.norm_topk_prob", why, (f"model.norm_topk_prob={str(not single).lower()}",))
        return
    if job.backend.passthrough.get("moe-router-load-balancing-type") in _MINDSPEED_BALANCING:
        if normalised:
            yield "norm-topk-prob", True
        return
    yield from write_scores(job)
    balancing = job.moe.load_balancing_type
    if normalised and balancing != "sinkhorn" and (_sums_to_one(job) or balancing != "aux_loss"):
        yield "norm-topk-prob", True


def _sums_to_one(job: Job) -> bool:
    """Return whether the weights of a token's experts sum to one: no scaling factor, no dropped tokens."""
    return job.model.routed_scaling_factor in (None, 1.0) and job.moe.capacity_factor is None


def _read_scores(view: NativeView) -> Mapping[str, Value]:
    if not view.peek("num-experts"):
        return {}
    balancing_type = view.peek("moe-router-load-balancing-type", "aux_loss")
    function = view.take("moe-router-score-function", "softmax")
    changed = view.peek("moe-router-topk-scaling-factor", 1.0) != 1.0 or view.peek("moe-expert-capacity-factor")
    divides = not (balancing_type == "aux_loss" and changed) and bool(view.take("norm-topk-prob", False))
    if balancing_type == "sinkhorn":
        view.take("moe-router-pre-softmax")
        normalised = False
    elif balancing_type in _MINDSPEED_BALANCING:
        normalised = divides
    elif function != "softmax":
        normalised = view.peek("moe-router-topk", 2) > 1
    elif divides and balancing_type == "aux_loss":
        normalised = True
    else:
        normalised = not view.take("moe-router-pre-softmax", False)
    return {"model.scoring_func": function, "model.norm_topk_prob": normalised}


# Balancing types with their own routing; they stay native arguments when read.
_MINDSPEED_BALANCING = ("group_limited_greedy", "softmax_topk", "pai_megatron_aux_loss", "sparsemixer_topk")


def balancing() -> Row:
    """Return the row of load balancing, with Megatron's types."""
    path, flag = "moe.load_balancing_type", "moe-router-load-balancing-type"
    known = ("aux_loss", "seq_aux_loss", "sinkhorn", "none")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind = job.moe.load_balancing_type
        if kind not in known:
            raise Unsupported(path, f"it knows {', '.join(known)}", tuple(f"{path}={name}" for name in known[:2]))
        yield flag, kind

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek("num-experts"):
            return {}
        kind = view.peek(flag, "aux_loss")
        if kind not in known:
            return {}
        view.take(flag)
        return {path: kind}

    return computed(
        (path,),
        (flag,),
        emit,
        read,
        when=is_moe,
        note="Upstream's DeepSeek-V3 has none and --seq-aux, its own form of seq_aux_loss (moe/router.py @26.1.0).",
    )


def shared_experts() -> tuple[Row, ...]:
    """Return the rows of the shared expert."""
    path = "model.shared_expert_intermediate_size"

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has("moe-shared-expert-intermediate-size"):
            return {path: view.take("moe-shared-expert-intermediate-size")}
        width = view.peek("moe-ffn-hidden-size") or view.peek("ffn-hidden-size")
        if view.has("n-shared-experts") and width:
            return {path: view.take("n-shared-experts") * width}
        return {}

    width = when_set(path, "moe-shared-expert-intermediate-size")
    return (
        Row(
            fields=(path,),
            flags=("moe-shared-expert-intermediate-size",),
            emit=width.emit,
            read=read,
            when=is_moe,
            note="--n-shared-experts is its deprecated form, in units of --moe-ffn-hidden-size.",
        ),
        flag_on("model.shared_expert_gate", "shared-expert-gate", when=is_moe),
    )


def rope_scaling() -> Row:
    """Return the row of RoPE scaling, which MindSpeed-LLM supports for every kind of attention."""
    return computed(
        tuple(path for path in field_paths() if path.startswith("model.rope_scaling.")),
        (
            "rope-scaling-type",
            "rope-scaling-factor",
            "rope-scaling-original-max-position-embeddings",
            "original-max-position-embeddings",
            "low-freq-factor",
            "high-freq-factor",
            "beta-fast",
            "beta-slow",
            "rope-scaling-mscale",
            "rope-scaling-mscale-all-dim",
            "rotary-seq-len-interpolation-factor",
        ),
        _write_scaling,
        _read_scaling,
        when=has_rope,
        note="features_manager/common/rotary.py, core/models/common/embeddings/rotary_pos_embedding.py @26.1.0",
    )


# (canonical name, argument, default if config.json has none). Source: transformers modeling_rope_utils.py.
_LLAMA3 = (
    ("factor", "rope-scaling-factor", 8.0),
    ("original_max_position_embeddings", "original-max-position-embeddings", 8192.0),
    ("low_freq_factor", "low-freq-factor", 1.0),
    ("high_freq_factor", "high-freq-factor", 4.0),
)
_YARN = (
    ("factor", "rope-scaling-factor", 1.0),
    ("original_max_position_embeddings", "rope-scaling-original-max-position-embeddings", 4096),
    ("beta_fast", "beta-fast", 32),
    ("beta_slow", "beta-slow", 1),
    ("mscale", "rope-scaling-mscale", 1.0),
    ("mscale_all_dim", "rope-scaling-mscale-all-dim", 0.0),
)
_WHOLE = ("beta-fast", "beta-slow", "rope-scaling-original-max-position-embeddings")


def _write_scaling(job: Job) -> Iterable[tuple[str, Value]]:
    scaling = job.model.rope_scaling
    if scaling.type is None or not_stretched(job):
        return
    if scaling.type == "linear" and scaling.factor is not None and scaling.factor == int(scaling.factor):
        yield "rotary-seq-len-interpolation-factor", int(scaling.factor)
        return
    if scaling.type not in ("llama3", "yarn"):
        path = "model.rope_scaling.type"
        raise Unsupported(path, "it has llama3 and yarn, and linear by whole numbers", (f"{path}=yarn",))
    if scaling.type == "yarn" and not job.model.is_mla:
        _check_rope_scaling(job)
    yield "rope-scaling-type", scaling.type
    for name, flag, default in _LLAMA3 if scaling.type == "llama3" else _YARN:
        value = getattr(scaling, name)
        chosen = default if value is None else value
        yield flag, int(chosen) if flag in _WHOLE else float(chosen)


def _check_rope_scaling(job: Job) -> None:
    """Reject a factor that MindSpeed-LLM would override: outside MLA it uses max_position / original length."""
    scaling, longest = job.model.rope_scaling, job.model.max_position_embeddings
    original = scaling.original_max_position_embeddings or 4096
    if scaling.factor is not None and longest != original * scaling.factor:
        raise Unsupported(
            "model.rope_scaling.factor",
            f"outside MLA the factor is max_position_embeddings / {original}, here {longest} / {original}",
            (f"model.max_position_embeddings={round(original * scaling.factor)}",),
        )


def _read_scaling(view: NativeView) -> Mapping[str, Value]:
    prefix = "model.rope_scaling."
    if view.has("rotary-seq-len-interpolation-factor"):
        factor = view.take("rotary-seq-len-interpolation-factor")
        return {prefix + "type": "linear", prefix + "factor": factor}
    kind = view.peek("rope-scaling-type")
    if kind not in ("llama3", "yarn") or (kind == "yarn" and _has_other_scaling(view)):
        return {}
    view.take("rope-scaling-type")
    found: dict[str, Value] = {prefix + "type": kind}
    for name, flag, default in _LLAMA3 if kind == "llama3" else _YARN:
        value = view.take(flag, 8.0 if flag == "rope-scaling-factor" else default)
        found[prefix + name] = int(value) if name.startswith("original") else value
    return found


def _has_other_scaling(view: NativeView) -> bool:
    """Return whether a factor is given that MindSpeed-LLM does not use (see `_check_rope_scaling`)."""
    original = view.peek("rope-scaling-original-max-position-embeddings", 4096)
    longest, factor = view.peek("max-position-embeddings"), view.peek("rope-scaling-factor")
    known = all(isinstance(value, (int, float)) for value in (original, longest, factor))
    return known and not view.peek("multi-latent-attention") and longest != original * factor
