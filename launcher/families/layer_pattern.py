"""Which layers are MoE layers: Megatron's pattern expressions, written and parsed without evaluating Python."""

from collections.abc import Iterable, Sequence

from launcher.job.model import Model
from launcher.list_expression import expand


def pattern(layers: int, dense: int, every: int) -> str:
    """Return the expression for `dense` dense layers, then an MoE layer at each multiple of `every`.

    Source: moe_freq_type, megatron/training/arguments.py:231 @core_v0.16.1; Hugging Face's rule is
    `layer >= first_k_dense_replace and layer % moe_layer_freq == 0` (DeepseekV3DecoderLayer).
    """
    if every == 1:
        return f"([0]*{dense}+[1]*{layers - dense})"
    return written(index >= dense and index % every == 0 for index in range(layers))


def written(kinds: Iterable[int | bool]) -> str:
    """Return a list of layers as an expression: `[0,1,1]`."""
    return "[" + ",".join(str(int(kind)) for kind in kinds) + "]"


def expert_pattern(model: Model) -> str:
    """Return the expression for the layers of a model that have experts."""
    layers = model.num_hidden_layers or 0
    if model.mlp_only_layers:
        return written(map(model.has_experts_at, range(layers)))
    return pattern(layers, model.first_k_dense_replace, model.moe_layer_freq)


def window_pattern(model: Model) -> str:
    """Return the expression for the layers of a model that attend within the window."""
    return written(layer not in model.full_attention_layers for layer in range(model.num_hidden_layers or 0))


def full_layers(expression: object, layers: object) -> tuple[int, ...] | None:
    """Return the layers without the window of an expression for all `layers`; None if it is none."""
    kinds = expand(str(expression))
    if kinds is None or len(kinds) != layers or not set(kinds) <= {0, 1}:
        return None
    return zeros(kinds)


def zeros(kinds: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of zeros."""
    return tuple(index for index, kind in enumerate(kinds) if not kind)


def describe(kinds: list[int]) -> tuple[int, int] | None:
    """Return (dense layers at the start, MoE layer every n) of a list of kinds; None if no such rule describes it."""
    layers = len(kinds)
    if 1 not in kinds:
        return None
    first = kinds.index(1)
    for every in range(1, layers + 1):
        for dense in range(max(0, first - every + 1), first + 1):
            if [int(index >= dense and index % every == 0) for index in range(layers)] == kinds:
                return dense, every
    return None
