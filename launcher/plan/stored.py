"""A plan from plain data: the inverse of `LaunchPlan.as_tree`, so that a run can be started again from what it kept."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from launcher.plan.node import RANK, NodePlan
from launcher.plan.plan import LaunchPlan, PlanFile
from launcher.plan.start import Start, Watch

Settings = Callable[[Any], Any]


class WrongPlan(ValueError):
    """Plain data that is not a plan of this program."""


def plan_from(tree: Mapping[str, Any], settings: Settings) -> LaunchPlan:
    """Return the plan in plain data.

    Args:
        settings: returns the executor's settings from their plain data.

    Raises:
        WrongPlan: it is not a plan.
    """
    try:
        return _plan(tree, settings)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise WrongPlan(f"{type(error).__name__}: {error}") from None


def _plan(tree: Mapping[str, Any], settings: Settings) -> LaunchPlan:
    start, watch = _known(Start, tree["start"]), _known(Watch, tree["watch"])
    start |= {name: tuple(start[name]) for name in ("setup", "container_mounts") if name in start}
    kept = start.get("settings")
    watch["trackers"] = tuple((str(pattern), str(file)) for pattern, file in watch.get("trackers", ()))
    watch["figures"] = tuple((str(name), str(text), float(scale)) for name, text, scale in watch.get("figures", ()))
    return LaunchPlan(
        what=tree["what"],
        files=tuple(PlanFile(path=f["path"], content=f["content"], mode=int(f["mode"], 8)) for f in tree["files"]),
        prepare=tuple(node for entry in tree["prepare"] for node in _nodes(entry)),
        nodes=tuple(node for entry in tree["nodes"] for node in _nodes(entry)),
        output_dir=tree["output_dir"],
        notes=tuple(tree["notes"]),
        start=Start(**{**start, "settings": None if kept is None else settings(kept)}),
        watch=Watch(**watch),
        resume=None if tree["resume"] is None else _plan(tree["resume"], settings),
    )


def _known(kind: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: tree[field.name] for field in fields(kind) if field.name in tree}


def _nodes(entry: Mapping[str, Any]) -> Iterator[NodePlan]:
    """Yield the nodes of an entry: one, or those that differ only in their rank."""
    first, last = entry["ranks"] if "ranks" in entry else (entry["rank"], entry["rank"])

    def of(text: str, rank: int) -> str:
        return text.replace(RANK, str(rank)) if "ranks" in entry else text

    for rank in range(first, last + 1):
        yield NodePlan(
            rank=rank,
            argv=tuple(of(word, rank) for word in entry["argv"]),
            env={of(name, rank): of(value, rank) for name, value in entry["env"].items()},
            workdir=of(entry["workdir"], rank),
        )
