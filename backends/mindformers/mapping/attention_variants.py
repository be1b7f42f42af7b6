"""Rows and gaps for sparse attention (DeepSeek-V3.2, GLM-5), DeepSeek-V4 and variants of other stacks."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.mindformers.mapping.support import key, model_kind, require
from launcher.job import Job, Value, value_at
from launcher.job.model import DSA_SPARSE_LOSS, INDEXER
from launcher.mapping.rows import Gap, NativeView, Row, computed, same

_VARIANT = "model.experimental_attention_variant"
_NEW = "2.1"
_SPARSE_SINCE = "1.9"
"""First version with sparse attention (parallel_core/transformer_config.py:1365 @1.9.0)."""
_V4_SINCE = "2.0"
"""First version with DeepSeek-V4's class (models/deepseek4)."""
_WINDOWS_SINCE = "1.8"
"""First version with windows of attention (flash_attention.py:125, parallel_core/transformer_config_utils.py:280)."""
_SPARSE = ("dsa", "dsv4_hybrid")
_SIZES = {
    "index_n_heads": "dsa_indexer_n_heads",
    "index_head_dim": "dsa_indexer_head_dim",
    "index_topk": "dsa_indexer_topk",
    "dsa_indexer_loss_coeff": "dsa_indexer_loss_coeff",
}
# Keys of DeepseekV4Config (models/deepseek4/configuration_deepseek_v4.py:160-275 @2.1.0).
_V4 = {
    "csa_window_size": "sliding_window",
    "compress_ratios": "compress_ratios",
    "compress_rope_theta": "compress_rope_theta",
    "o_groups": "o_groups",
    "o_lora_rank": "o_lora_rank",
    "enable_hyper_connections": "enable_hyper_connections",
    "hc_mult": "hc_mult",
    "hc_sinkhorn_iters": "hc_sinkhorn_iters",
    "hc_eps": "hc_eps",
    "num_hash_layers": "num_hash_layers",
    "swiglu_limit": "swiglu_limit",
}


def variant_rows() -> tuple[Row, ...]:
    """Return the rows of the model section."""
    return (
        _variant(),
        *(_sized(f"model.{name}", key(native), INDEXER[name]) for name, native in _SIZES.items()),
        _sparse_loss(),
        _sharing(),
        _offset(),
        _indexer_types(),
        same("model.no_rope_freq", key("nope_layer_interval"), since=_WINDOWS_SINCE),
        _windowed_layers(),
        *(_of_v4(f"model.{name}", key(native)) for name, native in _V4.items()),
    )


def _is_v4(job: Job) -> bool:
    return str(model_kind(job)).startswith("deepseek_v4")


def _variant() -> Row:
    flag = key("experimental_attention_variant")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.model.experimental_attention_variant
        if wanted is None:
            return
        require(wanted != "gated_delta_net", _VARIANT, "it has no linear attention", f"{_VARIANT}=dsa")
        _require_v4(wanted != "dsv4_hybrid" or _is_v4(job), _VARIANT)
        yield flag, wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        return {_VARIANT: view.take(flag)} if view.peek(flag) in _SPARSE else {}

    return Row(fields=(_VARIANT,), flags=(flag,), emit=emit, read=read, since=_SPARSE_SINCE)


def _require_v4(holds: bool, path: str) -> None:
    why = "only its DeepSeek-V4 class has it, which its pynative trainer builds, not the static graph"
    require(holds, path, why, f"{path}=null")


def _sized(path: str, flag: str, fallback: Value) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        if given is not None or job.model.experimental_attention_variant in _SPARSE:
            yield flag, fallback if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) else {}

    note = f"written with sparse attention: {fallback} unless set"
    return computed((path, _VARIANT), (flag,), emit, read, since=_SPARSE_SINCE, note=note)


def _sparse_loss() -> Row:
    path, flag = "model.dsa_indexer_use_sparse_loss", key("dsa_indexer_use_sparse_loss")
    plain = _sized(path, flag, DSA_SPARSE_LOSS)

    def read(view: NativeView) -> Mapping[str, Value]:
        sparse = view.peek(key("experimental_attention_variant")) in _SPARSE
        return {path: view.take(flag, False)} if sparse or view.has(flag) else {}

    note = "false, its own default, trains the indexer alone (modeling_deepseek_v3_train.py:60 @2.1.0)"
    return computed(plain.fields, (flag,), plain.emit, read, since=_SPARSE_SINCE, note=note)


_SHARED = (
    "only its pynative trainer shares indexers (pynative/transformers/transformer_block.py:215), not the static graph"
)


def _sharing() -> Row:
    path = "model.index_topk_freq"
    plain = same(path, key("dsa_index_topk_freq"), since=_NEW)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        require((job.model.index_topk_freq or 1) == 1, path, _SHARED, f"{path}=1")
        yield from plain.emit(job)

    return replace(plain, emit=emit)


def _offset() -> Row:
    path, flag = "model.index_skip_topk_offset", key("dsa_index_skip_topk_offset")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.index_skip_topk_offset is not None:
            yield flag, job.model.index_skip_topk_offset - 1

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag) + 1} if view.has(flag) else {}

    note = "MindFormers counts layers from 0 (transformer_config.py:3118 @2.1.0), config.json from 1"
    return computed((path, "model.index_topk_freq"), (flag,), emit, read, since=_NEW, note=note)


def _indexer_types() -> Row:
    path, flag = "model.indexer_types", key("dsa_indexer_types")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        require("shared" not in job.model.indexer_types, path, _SHARED, f"{path}=[]")
        if job.model.indexer_types:
            yield flag, job.model.indexer_types

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: tuple(view.take(flag))} if view.peek(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, since=_NEW)


def _windowed_layers() -> Row:
    """Return the row of layers without the window: every n-th, or a list with 1 for each layer that has it."""
    fields, flag = ("model.window_attn_skip_freq", "model.full_attention_layers"), key("window_attn_skip_freq")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        if model.full_attention_layers and model.sliding_window is not None:
            why = "the key takes a list of layers or a frequency"
            require(model.window_attn_skip_freq is None, fields[0], why, f"{fields[0]}=null")
            layers = range(model.num_hidden_layers or 0)
            yield flag, tuple(int(layer not in model.full_attention_layers) for layer in layers)
        elif model.window_attn_skip_freq is not None:
            yield flag, model.window_attn_skip_freq

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek(flag)
        if type(given) is int:
            return {fields[0]: view.take(flag)}
        if not isinstance(given, (list, tuple)) or not set(given) <= {0, 1} or 0 not in given:
            return {}
        view.take(flag)
        return {fields[1]: tuple(layer for layer, windowed in enumerate(given) if not windowed)}

    return computed(fields, (flag,), emit, read, since=_WINDOWS_SINCE)


def _of_v4(path: str, flag: str) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is None or value == ():
            return
        _require_v4(_is_v4(job) or value is False, path)
        if _is_v4(job):
            yield flag, value

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag) or view.peek(flag) is None or not _is_v4_file(view):
            return {}
        value = view.take(flag)
        return {path: tuple(value) if isinstance(value, list) else value}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, since=_V4_SINCE)


def _is_v4_file(view: NativeView) -> bool:
    return str(view.peek(key("model_type"))).startswith("deepseek_v4")


def window_row() -> Row:
    """Return the row of sliding window attention, as (tokens to the left, 0 to the right)."""
    path, flag = "model.sliding_window", key("window_size")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.sliding_window is not None:
            yield flag, (job.model.sliding_window - 1, 0)

    def read(view: NativeView) -> Mapping[str, Value]:
        given = view.peek(flag)
        if not isinstance(given, (list, tuple)) or len(given) != 2 or given[1] != 0:
            return {}
        if not isinstance(given[0], int) or given[0] < 0:
            return {}
        view.take(flag)
        return {path: given[0] + 1}

    note = "flash_attention.py:125 @2.1.0"
    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, since=_WINDOWS_SINCE, note=note)


_WORKS = ("backend.version=2.1.0",)
BEFORE_2_1: Mapping[str, Gap] = {
    path: Gap(why="it came with 2.1", neutral=(False, 1), works=_WORKS)
    for path in (
        _VARIANT,
        *(f"model.{name}" for name in (*_SIZES, *_V4)),
        "model.dsa_indexer_use_sparse_loss",
        "model.index_topk_freq",
        "model.index_skip_topk_offset",
        "model.indexer_types",
        "model.no_rope_freq",
        "model.window_attn_skip_freq",
        "model.full_attention_layers",
    )
}
