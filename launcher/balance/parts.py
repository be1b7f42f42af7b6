"""Parts of a layer that a backend may recompute by themselves, and their unions."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.job import Value

MODULES = "recompute.modules"
# Parts of a layer that can be recomputed, alone or together. Of equally good parts, the cheaper comes first.
PARTS: tuple[dict[str, Value], ...] = (
    {"recompute.activation": True},
    {"recompute.norm": True},
    *(
        {"recompute.granularity": "selective", MODULES: (module,)}
        for module in ("layernorm", "moe_act", "core_attn", "mla_up_proj", "shared_experts", "mlp", "moe")
    ),
)
# Parts that recomputing a module includes.
_INSIDE = {
    "moe": ("moe_act", "shared_experts", "recompute.activation"),
    "mlp": ("recompute.activation",),
    "shared_experts": ("recompute.activation",),
}


def modules_of(value: Value) -> tuple[Value, ...]:
    """Return the modules that `recompute.modules` lists."""
    return value if isinstance(value, tuple) else ()


def union(one: Mapping[str, Value], other: Mapping[str, Value]) -> dict[str, Value]:
    """Return the union of both, without parts that a module of `other` includes."""
    inside = {name for module in modules_of(other.get(MODULES)) for name in _INSIDE.get(str(module), ())}
    left = [module for module in modules_of(one.get(MODULES)) if module not in inside]
    modules = tuple(dict.fromkeys([*left, *modules_of(other.get(MODULES))]))
    both = {**one, **other, **({MODULES: modules} if modules else {})}
    return {path: value for path, value in both.items() if path not in inside}
