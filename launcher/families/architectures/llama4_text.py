"""Llama 4, its language model."""

from collections.abc import Mapping
from typing import Any, Final

from launcher.families.keys import NO_BIAS, PINNED, common
from launcher.families.parts import Part, dense_layers, heads, rope
from launcher.families.record import Family, Key, Pinned
from launcher.families.source import Source
from launcher.families.weight_rows import DENSE, EMBEDDING, FINAL, GROUPED_ATTENTION, IGNORED, SPARSE_NORM, gated
from launcher.families.weights import Row, Spelling, Weights, hf
from launcher.job.model import Model
from launcher.job.schema import Value

_FULL, _CHUNKED = "full_attention", "chunked_attention"
_EXPERT: Final = "feed_forward.experts.{expert}"
_GATE, _UP, _DOWN = (f"{_EXPERT}.{name}.weight" for name in ("gate_proj", "up_proj", "down_proj"))


def _read_experts(source: Source) -> dict[str, Value]:
    """The shared expert is as wide as a routed one, and layers with experts are each n-th, or listed."""
    width = source.field("moe_intermediate_size", ("intermediate_size",))
    if source.get("num_experts_per_tok", 1) != 1:
        source.problem("num_experts_per_tok: only one expert per token can scale its input")
    layers, step = source.layers(), source.get("interleave_moe_layer_step", 1)
    if not isinstance(step, int) or isinstance(step, bool) or step < 1:
        source.problem(f"interleave_moe_layer_step={step!r}: needs a whole number of at least 1")
        return {}
    listed = source.get("moe_layers")
    sparse = set(range(step - 1, layers, step) if listed is None else listed)
    if sparse - set(range(layers)):
        source.problem(f"moe_layers has {max(sparse)}, and there are {layers} layers, counted from 0")
    found = tuple(index for index in range(layers) if index not in sparse)
    first = found == tuple(range(len(found)))
    return {
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": width,
        "first_k_dense_replace": len(found) if first else 0,
        "moe_layer_freq": 1,
        "mlp_only_layers": () if first else found,
    }


def _write_experts(model: Model) -> dict[str, Any]:
    layers = model.num_hidden_layers or 0
    sparse = [index for index in range(layers) if model.has_experts_at(index)]
    steps = (step for step in range(1, layers + 1) if sparse == list(range(step - 1, layers, step)))
    step = next(steps, 1)
    return {
        "intermediate_size": model.moe_intermediate_size,
        "interleave_moe_layer_step": step,
        "moe_layers": sparse,
    }


def _read_positions(source: Source) -> dict[str, Value]:
    """no_rope_layers has 1 for a layer with rotary positions, despite its name; empty: by the interval."""
    layers, interval = source.layers(), source.get("no_rope_layer_interval", 4)
    if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
        source.problem(f"no_rope_layer_interval={interval!r}: needs a whole number of at least 1")
        return {}
    rotated = list(source.get("no_rope_layers", ())) or _rotated(layers, interval)
    every = rotated.index(0) + 1 if 0 in rotated else None
    if rotated != _rotated(layers, every):
        source.problem("no_rope_layers: only every n-th layer may be without rotary positions (0)")
        return {}
    chunk = source.field("attention_chunk_size", ("attention_chunk_size",), None, null=True)
    if "attention_chunk_size" not in source.config:
        chunk = 8192
    kinds = list(source.get("layer_types", ())) or _kinds(rotated, chunk)
    if kinds != _kinds(rotated, chunk):
        source.problem(f"layer_types: layers with rotary positions are {_CHUNKED}, those without {_FULL}")
    normed = bool(source.get("use_qk_norm", True))
    tuned = bool(source.get("attn_temperature_tuning", True))
    floor = source.field("floor_scale", ("floor_scale",), 8192)
    scale = source.field("attn_scale", ("attn_scale",), 0.1)
    return {
        "no_rope_freq": every,
        "attention_chunk_size": chunk,
        "qk_l2_norm": True if normed else None,
        "qk_l2_norm_rope_only": True if normed else None,
        "floor_scale": floor if tuned else None,
        "attn_scale": scale if tuned else None,
    }


def _rotated(layers: int, every: int | None) -> list[int]:
    return [int(every is None or (index + 1) % every != 0) for index in range(layers)]


def _kinds(rotated: list[int], chunk: Value) -> list[str]:
    return [_CHUNKED if each and chunk is not None else _FULL for each in rotated]


def _write_positions(model: Model) -> dict[str, Any]:
    rotated = _rotated(model.num_hidden_layers or 0, model.no_rope_freq)
    tuning = {"floor_scale": model.floor_scale, "attn_scale": model.attn_scale} if model.floor_scale else {}
    return {
        "no_rope_layers": rotated,
        "attention_chunk_size": model.attention_chunk_size,
        "layer_types": _kinds(rotated, model.attention_chunk_size),
        "use_qk_norm": bool(model.qk_l2_norm),
        "attn_temperature_tuning": bool(model.floor_scale),
        **tuning,
    }


def _meaning(model: Model) -> Mapping[str, Value]:
    """An interval beyond the last layer leaves none without rotary positions."""
    every = model.no_rope_freq
    return {"no_rope_freq": None} if every is not None and every > (model.num_hidden_layers or 0) else {}


FAMILY = Family(
    model_type="llama4_text",
    stem="Llama4",
    keys=(
        *(key for key in common(1e-5) if key.field != "intermediate_size"),
        Key(field="intermediate_size", names=("intermediate_size_mlp",)),
        Key(field="num_experts", names=("num_local_experts", "num_experts")),
        Key(field="num_experts_per_tok", default=1),
    ),
    parts=(
        heads(explicit=True, default=128),
        rope(500000.0, scaled=True),
        Part(read=_read_experts, write=_write_experts, meaning=dense_layers),
        Part(
            read=_read_positions,
            write=_write_positions,
            meaning=_meaning,
            variants=(
                "no_rope_freq",
                "attention_chunk_size",
                "qk_l2_norm",
                "qk_l2_norm_rope_only",
                "floor_scale",
                "attn_scale",
            ),
        ),
    ),
    fixed={
        "scoring_func": "sigmoid",
        "rotary_interleaved": True,
        "apply_probs_on_input": True,
        # The score of the one expert is not normalised (modeling_llama4.py @5.24, Llama4Router).
        "norm_topk_prob": False,
    },
    pinned=(
        *PINNED,
        NO_BIAS,
        Pinned(name="for_llm_compressor", value=False, why="experts are stored as one tensor"),
    ),
    weights=Weights(
        embedding=EMBEDDING,
        final=FINAL,
        attention=GROUPED_ATTENTION,
        dense=(DENSE[0], *gated("mlp", "feed_forward", "ffn")),
        sparse=(
            SPARSE_NORM,
            Row(core="mlp.router.weight", hf=(hf("feed_forward.router.weight", "experts", "hidden"),)),
            *gated("mlp.experts.{expert}", _EXPERT, "expert_ffn"),
            *gated("mlp.shared_experts", "feed_forward.shared_expert", "shared_ffn"),
        ),
        # One tensor for all experts, transposed (modeling_llama4.py @5.24, Llama4TextExperts). The names of single
        # experts are ours: no file has them.
        spellings=(
            Spelling(stored="feed_forward.experts.gate_up_proj", parts=(_GATE, _UP), transposed=True, written=True),
            Spelling(stored="feed_forward.experts.down_proj", parts=(_DOWN,), transposed=True, written=True),
        ),
        ignored=IGNORED,
    ),
)
