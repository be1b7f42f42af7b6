"""Families that build the same network as a model of which a script says the sizes only, not the family."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from launcher.families.config_json import config_from_model
from launcher.families.registry import FAMILIES
from launcher.families.source import ModelConfigError
from launcher.job.model import Model
from launcher.job.shipped_models import shipped_of_family

# Sizes that a tokenizer or a backend gives, and that tell no family from another.
_SIZES = ("vocab_size", "intermediate_size", "max_position_embeddings", "num_experts_per_tok", "moe_intermediate_size")


def families_like(model: Model) -> tuple[str, ...]:
    """Return the families whose config.json expresses every field of a model, those with the most presets first.

    Sizes that the model lacks count as given: they are another question.
    """
    return tuple(name for name, problems in _compared(model).items() if not problems)


def why_none(model: Model) -> str:
    """Return which family is nearest to a model without a name, and the fields in which it differs; empty: one fits."""
    found = _compared(model)
    if not found or not all(found.values()):
        return ""
    name = min(found, key=lambda each: len(found[each]))
    # `x=1 cannot be expressed in a config.json of …`
    differs = ", ".join(problem.partition(" cannot be expressed")[0] for problem in found[name])
    return f"no known family has this network: the nearest, {name}, differs in {differs}"


@lru_cache(maxsize=256)
def _compared(model: Model) -> dict[str, tuple[str, ...]]:
    if model.hidden_size is None or not model.num_hidden_layers or not model.num_attention_heads:
        return {}
    width = 4 * model.hidden_size
    sizes = {name: 8 if name.startswith("num_") else width for name in _SIZES}
    unknown: dict[str, Any] = {name: value for name, value in sizes.items() if getattr(model, name) is None}
    if not model.is_moe:
        unknown = {name: value for name, value in unknown.items() if name[:3] not in ("moe", "num")}
    complete = replace(model, **unknown)
    names = sorted(FAMILIES, key=lambda name: (-shipped_of_family(name), name))
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        family = FAMILIES[name]
        if family.own_code or family.outer is not None or family.has_experts != model.is_moe:
            continue
        try:
            config_from_model(replace(complete, model_type=name))
        except ModelConfigError as error:
            found[name] = tuple(error.problems)
        else:
            found[name] = ()
    return found
