"""Rows and gaps for model families read from config.json: options up to 3.12, ModelConfig keys since 4.3."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron.mapping.factories import FOUR, THREE, as_values, one_of
from backends.megatron_lm.mapping.attention_variants import LLAMA4_IRRELEVANT
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, field_at, value_at
from launcher.job.model import DSA_SPARSE_LOSS, INDEXER, MAMBA, Model
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, same, without
from launcher.syntax import is_count

_OLD, _KEYED = "3.12", "4.3"
# Options of the indexer of DeepSeek's sparse attention.
_DSA = "4.1"

# Fields that are options of the same meaning in 3.12 (swift/megatron/argument/megatron_args.py:360-530 @3.12.6).
_OPTIONS = {
    "linear_num_key_heads": "linear_num_key_heads",
    "linear_num_value_heads": "linear_num_value_heads",
    "linear_key_head_dim": "linear_key_head_dim",
    "linear_value_head_dim": "linear_value_head_dim",
    "linear_conv_kernel_dim": "linear_conv_kernel_dim",
    "swiglu_limit": "activation_func_clamp_value",
    "glu_linear_offset": "glu_linear_offset",
    "no_rope_freq": "no_rope_freq",
    "qk_l2_norm": "qk_l2_norm",
    "apply_probs_on_input": "moe_apply_probs_on_input",
}
# Fields of mcore-bridge's ModelConfig (mcore_bridge/config/model_config.py:118-310 @1.6.5).
KEYS = {
    "experimental_attention_variant": "experimental_attention_variant",
    **_OPTIONS,
    "attention_output_gate": "attention_output_gate",
    "index_n_heads": "dsa_indexer_n_heads",
    "index_head_dim": "dsa_indexer_head_dim",
    "index_topk": "dsa_indexer_topk",
    "index_topk_freq": "dsa_indexer_topk_freq",
    "index_skip_topk_offset": "dsa_indexer_skip_topk_offset",
    "csa_window_size": "csa_window_size",
    "compress_rope_theta": "csa_compress_rotary_base",
    "o_groups": "o_groups",
    "o_lora_rank": "o_lora_rank",
    "softmax_type": "softmax_type",
    "enable_hyper_connections": "enable_hyper_connections",
    "hc_mult": "num_residual_streams",
    "hc_sinkhorn_iters": "mhc_sinkhorn_iterations",
    "hc_eps": "hc_eps",
    "num_hash_layers": "moe_n_hash_layers",
    "norm_zero_centered": "layernorm_zero_centered_gamma",
    "rotary_interleaved": "rotary_interleaved",
}
# The same for values of another type: string for integer, list for tuple.
_INTERVAL = "full_attention_interval"
TEXT_KEYS = {_INTERVAL: "linear_attention_freq", "window_attn_skip_freq": "window_attn_skip_freq"}
_QUICK: Mapping[str, Value] = {"swiglu": False, "quick_geglu": True}
LIST_KEYS = {"mrope_section": "mrope_section", "compress_ratios": "csa_compress_ratios"}


def rows(version: str) -> tuple[Row, ...]:
    """Return the rows of options."""
    return (
        *(
            _unless_in_config(same(f"model.{name}", option, since=_OLD, until=THREE))
            for name, option in _OPTIONS.items()
        ),
        _unless_in_config(one_of("model.softmax_type", "softmax_type", _SINKS, since=_OLD, until=THREE)),
        _unless_in_config(_windowed_layers()),
        _unless_in_config(_sections()),
        _with_indexer("dsa_indexer_loss_coeff", INDEXER["dsa_indexer_loss_coeff"]),
        _with_indexer("dsa_indexer_use_sparse_loss", DSA_SPARSE_LOSS),
        _old_initialization(),
    )


_SINKS = ("vanilla", "off-by-one", "learnable")


def _unless_in_config(row: Row) -> Row:
    """Return the row of a field that is not written where the model's config.json sets it."""
    name = row.fields[0].removeprefix("model.")
    return replace(row, emit=lambda job: () if in_config(job, name) else row.emit(job))


def _with_indexer(name: str, fallback: Value) -> Row:
    """Return the row of an indexer option, written where it is set or where the attention variant has an indexer."""
    path = f"model.{name}"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        if given is not None or job.model.experimental_attention_variant in ("dsa", "dsv4_hybrid"):
            yield name, fallback if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(name)} if view.has(name) else {}

    note = f"written with model.experimental_attention_variant=dsa: {fallback} unless set"
    fields = (path, "model.experimental_attention_variant")
    return computed(fields, (name,), emit, read, since=_DSA, note=note)


def activation() -> Row:
    """Return the row of the activation function: SwiGLU, or quick GeGLU as in GPT-OSS."""
    path, flags = "model.hidden_act", ("swiglu", "quick_geglu")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.hidden_act == "quick_geglu" and in_config(job, "hidden_act"):
            return
        if job.model.hidden_act == "quick_geglu":
            yield from zip(flags, (False, True), strict=True)
        elif job.model.hidden_act != "silu":
            raise Unsupported(path, "its Megatron models are SwiGLU models", (f"{path}=silu",))

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.peek("quick_geglu") or view.peek("swiglu", True):
            return {}
        view.take("quick_geglu")
        view.take("swiglu")
        return {path: "quick_geglu"}

    return Row(fields=(path,), flags=flags, emit=emit, read=read, since=_OLD, until=THREE)


def _windowed_layers() -> Row:
    path = "model.window_attn_skip_freq"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.window_attn_skip_freq is not None:
            yield "window_attn_skip_freq", str(job.model.window_attn_skip_freq)

    def read(view: NativeView) -> Mapping[str, Value]:
        text = str(view.peek("window_attn_skip_freq", ""))
        return {path: int(view.take("window_attn_skip_freq"))} if is_count(text) else {}

    return Row(fields=(path,), flags=("window_attn_skip_freq",), emit=emit, read=read, since=_OLD, until=THREE)


def _sections() -> Row:
    path = "model.mrope_section"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.mrope_section:
            yield "mrope_section", job.model.mrope_section

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: as_values(view.take("mrope_section"))} if view.has("mrope_section") else {}

    return Row(fields=(path,), flags=("mrope_section",), emit=emit, read=read, since=_OLD, until=THREE)


def _old_initialization() -> Row:
    path, flag = "model.perform_initialization", "no_initialization"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.perform_initialization is not None:
            yield flag, not job.model.perform_initialization

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: not view.take(flag)} if view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, until=THREE)


def initialization() -> Row:
    """Return the row of perform_initialization, which tensor parallelism needs since 4.0."""
    path, flag, split = "model.perform_initialization", "perform_initialization", "tensor_model_parallel_size"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.model.perform_initialization
        if wanted is not None or job.parallel.tp > 1:
            yield flag, True if wanted is None else wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has(flag):
            given = bool(view.take(flag))
            return {} if given and view.peek(split, 1) > 1 else {path: given}
        if view.peek(split, 1) > 1:  # swift's default, which differs from the table's
            view.values[flag] = False
        return {}

    return computed(
        (path, "parallel.tp"),
        (flag,),
        emit,
        read,
        since=FOUR,
        note="without it the vocabulary's weights never get tensor_model_parallel=True (megatron-core 0.16.1 "
        "tensor_parallel/layers.py:244) and the gradient norm counts one rank's vocabulary shard only; the weights "
        "drawn are replaced by the loaded ones",
    )


_CONFIG = "the model's config.json decides it"
_WORKS = ("backend.version=4.6.0",)
_OTHER = "it trains no Mamba models from options"


def gaps(version: str) -> dict[str, Gap]:
    """Return the fields of this module that a version does not support."""
    keyed = in_range(version, _KEYED, None)
    known = {f"model.{name}" for name in (*KEYS, *TEXT_KEYS, *LIST_KEYS)} if keyed else set()
    if in_range(version, _OLD, THREE):
        known |= {f"model.{name}" for name in (*_OPTIONS, "softmax_type", "window_attn_skip_freq", "mrope_section")}
    known |= {path for path, since in _SINCE.items() if in_range(version, since, None)}
    return {path: gap for path, gap in _gaps(keyed).items() if path not in known}


def _gaps(keyed: bool) -> dict[str, Gap]:
    works = () if keyed else _WORKS
    found = {
        path: _gap(path, _CONFIG, works)
        for path in _below_model((*KEYS, *TEXT_KEYS, *LIST_KEYS, *_SHAPES, "indexer_types", "qk_norm_type"))
    }
    found |= {path: _gap(path, f"it came with {since}", _WORKS) for path, since in _SINCE.items()}
    found |= {path: _gap(path, _OTHER) for path in _below_model(_STATE_SPACE)}
    return found | {
        "kernels.use_fused_mhc": Gap(why="it came with 4.3", neutral=(False,), severity="warning"),
        "kernels.inference_rng_tracker": Gap(why="it keeps no random states for inference", neutral=(False,)),
        "moe.use_upcycling": Gap(why="weights come from a checkpoint of experts", neutral=(False,)),
        "moe.use_legacy_grouped_gemm": Gap(
            why="Transformer Engine computes experts", neutral=(False,), severity="warning"
        ),
        "model.use_legacy_models": Gap(why="only megatron-core's classes are left", neutral=(False,)),
        "model.init_method_xavier_uniform": Gap(why="first weights are drawn normally", neutral=(False,)),
        "precision.disable_bf16_reduced_precision_matmul": Gap(why="it has no option for it", neutral=(False,)),
    }


IRRELEVANT = {
    **LLAMA4_IRRELEVANT,
    **dict.fromkeys(
        (
            *(f"model.{name}" for name in MAMBA),
            "model.mamba_num_heads",
            "model.mamba_chunk_size",
        ),
        without("model.mamba"),
    ),
}


def _below_model(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"model.{name}" for name in names)


def _gap(path: str, why: str, works: tuple[str, ...] = ()) -> Gap:
    is_switch = field_at(path).type == bool | None
    name = path.removeprefix("model.")
    return Gap(
        why=why, neutral=(False,) if is_switch else (), works=works, matters=lambda job: not in_config(job, name)
    )


# Options and the version that they came with.
_SINCE = {
    "model.dsa_indexer_loss_coeff": _DSA,
    "model.dsa_indexer_use_sparse_loss": _DSA,
    "kernels.use_fused_mhc": "4.3",
    "precision.fp4_format": "4.2",
    "precision.fp4_recipe": "4.2",
    "precision.fp4_param_gather": "4.2",
    "optimizer.muon_coefficient_type": "4.3",
    "optimizer.muon_scalar_optimizer": "4.3",
}
_STATE_SPACE = (
    "mamba",
    "hybrid_attention_ratio",
    "hybrid_mlp_ratio",
    "hybrid_override_pattern",
    "is_hybrid_model",
)
_SHAPES = ("heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json")


def in_config(job: Job, name: str) -> bool:
    """Return whether the config.json of a known model sets a field below `model`, so that swift needs no option."""
    from launcher.families.registry import FAMILIES

    model, family = job.model, FAMILIES.get(job.model.model_type or "")
    known = family is not None and model.hidden_size is not None and name not in model.overridden
    return known and family is not None and family.decides(name)


def linear_pattern_is_lost(model: Model) -> bool:
    """Return whether swift builds another pattern of linear attention than config.json has: every fourth layer.

    transformers since 5.4 keeps the pattern as layer_types only (configuration_qwen3_next.py:123 @5.4.0), which
    mcore-bridge does not read (config/parser.py:50, :344 @1.6.5).
    """
    return model.experimental_attention_variant == "gated_delta_net" and (model.full_attention_interval or 4) != 4


def _decided(job: Job, name: str) -> bool:
    return in_config(job, name) and not (name == _INTERVAL and linear_pattern_is_lost(job.model))


def as_keys(job: Job) -> dict[str, Value]:
    """Return the values for ModelConfig, by field name."""
    names = [name for name in (*KEYS, *TEXT_KEYS, *LIST_KEYS) if not _decided(job, name)]
    given = {name: value_at(job, f"model.{name}") for name in names}
    quick = job.model.hidden_act == "quick_geglu" and not in_config(job, "hidden_act")
    found: dict[str, Value] = dict(_QUICK) if quick else {}
    found |= {key: given[name] for name, key in KEYS.items() if given.get(name) is not None}
    found |= {key: str(given[name]) for name, key in TEXT_KEYS.items() if given.get(name) is not None}
    found |= {key: list(given[name]) for name, key in LIST_KEYS.items() if given.get(name)}
    if "linear_attention_freq" in found:
        found.setdefault("experimental_attention_variant", "gated_delta_net")
        found.setdefault("attention_output_gate", True)
    return found


def read_keys(given: dict[str, Value]) -> dict[str, Value]:
    """Take the known ModelConfig fields out of `given` and return them as canonical values."""
    found = {f"model.{name}": given.pop(key) for name, key in KEYS.items() if key in given}
    for name, key in TEXT_KEYS.items():
        if is_count(str(given.get(key, ""))):
            found[f"model.{name}"] = int(given.pop(key))
    found |= {f"model.{name}": tuple(given.pop(key)) for name, key in LIST_KEYS.items() if key in given}
    if _QUICK.items() <= given.items():
        found["model.hidden_act"] = "quick_geglu"
        for key in _QUICK:
            del given[key]
    return found
