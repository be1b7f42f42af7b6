"""The part of a multimodal model's config.json that is around its language model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from launcher.families.ignored import IGNORABLE

if TYPE_CHECKING:
    from launcher.families.record import Family, Outer

_TEXT, _VISION, _TIED = "text_config", "vision_config", "tie_word_embeddings"
# Written at the top, where readers look for them.
_OUTSIDE: Final = ("architectures", "model_type", _TIED)


def inside(config: Mapping[str, Any], outer: Outer) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of the language model, and problems with the keys around them.

    The vision tower's own keys (vision_config) are not read: no backend trains it from a job.
    """
    nested = config.get(_TEXT)
    around_it = {_VISION, _TEXT, *outer.tokens}
    if not isinstance(nested, Mapping):
        return {name: value for name, value in config.items() if name not in around_it}, []
    text = {name: value for name, value in nested.items() if name != "model_type" and name not in outer.tokens}
    return text | _tied(config, nested), list(_problems(config, nested, outer, around_it))


def _tied(config: Mapping[str, Any], nested: Mapping[str, Any]) -> dict[str, Any]:
    found = [part[_TIED] for part in (config, nested) if part.get(_TIED) is not None]
    return {_TIED: found[0]} if found else {}


def _problems(config: Mapping[str, Any], nested: Mapping[str, Any], outer: Outer, around_it: set[str]) -> Iterator[str]:
    if nested.get("model_type") not in (None, outer.text_type):
        yield f"{_TEXT}.model_type={nested['model_type']!r}: only {outer.text_type!r} is known there"
    tied = [part[_TIED] for part in (config, nested) if part.get(_TIED) is not None]
    if len(set(map(bool, tied))) > 1:
        # Readers: transformers 5.24 modeling_utils.py, mcore-bridge 1.6.5 config/parser.py:159.
        yield (
            f"{_TIED}={tied[0]!r} and {_TEXT}.{_TIED}={tied[1]!r} contradict each other: transformers reads {_TIED}, "
            f"Megatron-SWIFT {_TEXT}.{_TIED}; works: {_TEXT}.{_TIED}={str(bool(tied[0])).lower()} in the file"
        )
    for name, value in config.items():
        if name in around_it or name in IGNORABLE or name == _TIED or name.startswith("_") or value is None:
            continue
        yield f"the key {name} beside {_TEXT} is not known: it may change the model and has no canonical field"


def around(text: Mapping[str, Any], outer: Outer, family: Family) -> dict[str, Any]:
    """Return config.json of the whole model, with a vision tower of the usual size.

    Args:
        text: the language model's keys, and names of the model's class.
    """
    vision = {**outer.vision, outer.vision_width: text.get("hidden_size")}
    beside = {**outer.tokens, _VISION: {"model_type": family.model_type, **vision}}
    if outer.flat:
        return {**text, **beside}
    own = {name: value for name, value in text.items() if name not in _OUTSIDE}
    top = {name: text[name] for name in _OUTSIDE if name in text}
    dtype = {name: text[name] for name in ("torch_dtype",) if name in text}
    return {**top, **dtype, _TEXT: {"model_type": outer.text_type, **own}, **beside}
