"""Adapts a checkpoint's optimizer state to this run's optimizers, whose number and groups depend on the layout.

With expert parallelism megatron-core keeps experts and the rest in two chained optimizers, without it in one. The
tensors of a state are named after parameters and fit any layout; parameter groups and the step do not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """Parameter groups and sharding of one optimizer before a checkpoint is loaded into it."""

    groups: tuple[dict[str, Any], ...]
    """Its parameter groups without the parameters."""
    sharding: str | None


def describe(state: dict[Any, Any]) -> tuple[Described, ...]:
    """Describe each optimizer of a newly created optimizer state."""
    return tuple(
        Described(
            groups=tuple(_without_parameters(group) for group in _inner(part)["param_groups"]),
            sharding=part.get("param_state_sharding_type"),
        )
        for part in _parts(state)
    )


def fit(loaded: dict[Any, Any], described: Sequence[Described]) -> Any:
    """Return the loaded state in the form that the described optimizers accept; `loaded` is changed."""
    step = next(_values(loaded, ("common_step", "step")), None)
    scaler = next(_values(loaded, ("grad_scaler",)), None)
    parts = [loaded.setdefault(index, {}) for index in range(len(described))] if len(described) > 1 else [loaded]
    for part, own in zip(parts, described, strict=True):
        if own.sharding is not None:  # a distributed optimizer keeps its parameters out of its groups
            groups = [{**group, "step": float(step) if step is not None else 0.0} for group in own.groups]
            part.update(optimizer={"param_groups": groups}, param_state_sharding_type=own.sharding)
        else:
            inner = _inner(part)
            read = inner["param_groups"]
            inner["param_groups"] = [
                {**group, "params": old["params"]} for group, old in zip(own.groups, read, strict=True)
            ]
            if step is not None:
                inner["state"]["common_step"] = step
        if scaler is not None:
            part["grad_scaler"] = scaler
    if len(described) == 1:
        return {key: value for key, value in loaded.items() if not isinstance(key, int)}
    return {index: parts[index] for index in range(len(described))}


def _parts(state: dict[Any, Any]) -> list[dict[Any, Any]]:
    indices = sorted(key for key in state if isinstance(key, int))
    return [state[index] for index in indices] if indices else [state]


def _inner(part: dict[Any, Any]) -> dict[Any, Any]:
    inner: dict[Any, Any] = part.get("optimizer", part)
    return inner


def _without_parameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _values(tree: Any, names: tuple[str, ...]) -> Iterator[Any]:
    """Yield every value under one of the names, outermost first."""
    children = list(tree.values()) if isinstance(tree, dict) else list(tree) if isinstance(tree, list | tuple) else []
    if isinstance(tree, dict):
        yield from (tree[name] for name in names if tree.get(name) is not None)
    for child in children:
        yield from _values(child, names)
