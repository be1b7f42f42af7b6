"""Attention that differs between layers in config.json: linear attention, windows, indexers, dense first layers."""

from collections.abc import Callable, Sequence
from typing import Any

from launcher.families.parts import Part
from launcher.families.source import Source
from launcher.job.model import INDEXER_OFFSET, Model, selects_keys
from launcher.job.schema import Value

_FULL = "full_attention"
# Tokens per compressed key of DeepSeek-V4's layers, which have an indexer or not (configuration_deepseek_v4.py @5.24).
INDEXED_RATIO, COMPRESSED_RATIO = 4, 128


def every_nth(interval: int, other: str) -> Callable[[int], list[str]]:
    """Return a function from the number of layers to their kinds: each `interval`-th uses full attention."""
    return lambda layers: [other if (index + 1) % interval else _FULL for index in range(layers)]


def _interval_of(source: Source, kinds: Sequence[str], other: str, default: int) -> int | None:
    """Return n if every n-th of the listed layers uses full attention; any other list is a problem."""
    if not kinds:
        return default
    interval = kinds.index(_FULL) + 1 if _FULL in kinds else len(kinds) + 1
    if list(kinds) == every_nth(interval, other)(len(kinds)):
        return interval
    shown = ", ".join(sorted(set(kinds)))
    source.problem(f"layer_types ({shown}): only every n-th layer may be {_FULL}, the others {other}")
    return None


def _read_linear(source: Source) -> dict[str, Value]:
    """Qwen3-Next: full_attention_interval, or the same as a list of layers (transformers 5)."""
    kinds = source.get("layer_types", ())
    interval = source.get("full_attention_interval")
    if interval is None:
        interval = _interval_of(source, kinds, "linear_attention", 4)  # Qwen3NextConfig's default
    elif kinds and isinstance(interval, int) and list(kinds) != every_nth(interval, "linear_attention")(len(kinds)):
        source.problem(f"full_attention_interval={interval} and layer_types contradict each other")
    value = None if interval is None else source.typed("full_attention_interval", interval, "full_attention_interval")
    return {"full_attention_interval": value}


LINEAR_LAYERS = Part(
    read=_read_linear,
    write=lambda model: {"full_attention_interval": model.full_attention_interval or 4},
    variants=("full_attention_interval",),
    meaning=lambda model: {"full_attention_interval": model.full_attention_interval or 4},
)


def _read_alternating(source: Source) -> dict[str, Value]:
    """GPT-OSS: sliding-window attention in every layer except each n-th."""
    kinds = source.get("layer_types", ())
    interval = _interval_of(source, kinds, "sliding_attention", 2)  # GptOssConfig's default
    window = source.field("sliding_window", ("sliding_window",), 128)
    return {"sliding_window": window, "window_attn_skip_freq": interval}


def _write_alternating(model: Model) -> dict[str, Any]:
    layers, interval = model.num_hidden_layers or 0, model.window_attn_skip_freq or 1
    return {
        "sliding_window": model.sliding_window,
        "layer_types": every_nth(interval, "sliding_attention")(layers),
    }


ALTERNATING_WINDOW = Part(
    read=_read_alternating, write=_write_alternating, variants=("sliding_window", "window_attn_skip_freq")
)


def _read_indexer(source: Source) -> dict[str, Value]:
    """GLM-5: which layers select keys (indexer), as a frequency or as a list (GlmMoeDsaConfig.__post_init__)."""
    kinds = set(source.get("layer_types", ()))
    if kinds - {"indexed_attention"}:
        source.problem(f"layer_types has {', '.join(sorted(kinds))}; only indexed_attention is known")
    names = ("index_topk_freq", "index_skip_topk_offset")
    frequency, offset = (source.field(name, (name,), None) for name in names)
    listed, layers = source.get("indexer_types", ()), source.get("num_hidden_layers", 0)
    scheduled = _schedule(layers, frequency, offset) if isinstance(layers, int) else []
    types: tuple[str, ...] = () if list(listed) in ([], scheduled) else tuple(listed)
    typed = source.typed("indexer_types", types, "indexer_types") if types else ()
    return {"index_topk_freq": frequency, "index_skip_topk_offset": offset, "indexer_types": typed}


def mixer(model: Model, layer: int) -> str:
    """Return the kind of attention of a decoder layer: `full`, `linear`, `indexed`, or `shared` (another's indexer).

    Of DeepSeek-V4: `full` where keys are not compressed, `compressed`, or `indexed` (compressed, with an indexer).

    Args:
        layer: its number; layers after the last one (MTP) have the kind of attention that selects for itself.
    """
    if model.experimental_attention_variant == "gated_delta_net":
        inside = layer < (model.num_hidden_layers or 0)
        return "linear" if inside and (layer + 1) % (model.full_attention_interval or 4) else "full"
    if model.experimental_attention_variant == "dsv4_hybrid":
        ratio = model.compress_ratios[layer] if layer < len(model.compress_ratios) else 0
        return "indexed" if ratio == INDEXED_RATIO else "compressed" if ratio else "full"
    if model.experimental_attention_variant != "dsa":
        return "full"
    layers = model.num_hidden_layers or 0
    types = model.indexer_types or _schedule(layers, model.index_topk_freq, model.index_skip_topk_offset)
    return "shared" if layer < len(types) and types[layer] == "shared" else "indexed"


def _schedule(layers: int, frequency: Value, offset: Value) -> list[str]:
    every, start = (
        value if isinstance(value, int) else usual for value, usual in ((frequency, 1), (offset, INDEXER_OFFSET))
    )
    return ["full" if selects_keys(index, every, start) else "shared" for index in range(layers)]


def _write_indexer(model: Model) -> dict[str, Any]:
    values = {
        "index_topk_freq": model.index_topk_freq,
        "index_skip_topk_offset": model.index_skip_topk_offset,
        "indexer_types": list(model.indexer_types) or None,
    }
    return {name: value for name, value in values.items() if value is not None}


INDEXER_LAYERS = Part(
    read=_read_indexer, write=_write_indexer, variants=("index_topk_freq", "index_skip_topk_offset", "indexer_types")
)


def dense_first(default: int) -> Part:
    """Dense layers before the first MoE layer, as a number or as a list of layers (transformers 5).

    Args:
        default: default of the family's class if neither is given.
    """

    def read(source: Source) -> dict[str, Value]:
        kinds = list(source.get("mlp_layer_types", ()))
        listed = kinds.index("sparse") if "sparse" in kinds else len(kinds)
        if kinds != ["dense"] * listed + ["sparse"] * (len(kinds) - listed):
            source.problem("mlp_layer_types: only the first layers may be dense")
        count = source.field("first_k_dense_replace", ("first_k_dense_replace",), listed if kinds else default)
        if kinds and isinstance(count, int) and min(count, len(kinds)) != listed:
            source.problem(f"first_k_dense_replace={count} and mlp_layer_types contradict each other")
        return {"first_k_dense_replace": count}

    def write(model: Model) -> dict[str, Any]:
        layers, dense = model.num_hidden_layers or 0, model.first_k_dense_replace
        kinds = ["dense" if index < dense else "sparse" for index in range(layers)]
        return {"first_k_dense_replace": dense, "mlp_layer_types": kinds}

    return Part(read=read, write=write)
