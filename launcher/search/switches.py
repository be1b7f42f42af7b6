"""Switches that decide speed and memory beside the parallel sizes, such as dispatch, overlap, CUDA graphs, offloading.

One entry of `SWITCHES` is one axis. Only the estimate and the rules of the backend tell which of its values is best and
which are legal; a value that a backend's version has no argument for is left out of the space.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import product

from launcher.estimate.profile import profile_of
from launcher.job import Job, Value, value_at
from launcher.job.hardware import close_devices
from launcher.records import dataclass
from launcher.rules.variants import Variants

Values = dict[str, Value]
Point = Mapping[str, Value]


def _number(point: Point, path: str) -> int:
    value = point[path]
    return value if isinstance(value, int) else 1


def _always(job: Job, point: Point) -> bool:
    return True


def _exchanges(job: Job, point: Point) -> bool:
    """Return whether tokens are sent to experts on other ranks; a stack's own `etp` may be `tp`."""
    parts = "parallel.etp" if point["parallel.etp"] else "parallel.tp"
    return job.model.is_moe and _number(point, "parallel.ep") * _number(point, parts) > 1


def _shares_experts(job: Job, point: Point) -> bool:
    return bool(job.model.shared_expert_intermediate_size) and _exchanges(job, point)


def _replicated(job: Job, point: Point) -> bool:
    used = _number(point, "parallel.tp") * _number(point, "parallel.pp")
    return job.cluster.world_size > used


def _sharded(job: Job, point: Point) -> bool:
    return bool(point["parallel.distributed_optimizer"]) and _replicated(job, point)


def _splits_sequences(job: Job, point: Point) -> bool:
    return bool(point["parallel.sequence_parallel"])


def _spans_hosts(job: Job, point: Point) -> bool:
    """Return whether stages could be neighbours inside a domain, where they are not by the usual order."""
    inside = _number(point, "parallel.tp") * _number(point, "parallel.cp")
    near = close_devices(job.hardware, job.cluster.devices_per_node, job.cluster.world_size)
    return _number(point, "parallel.pp") > 1 and inside < near < job.cluster.world_size and _replicated(job, point)


def _captures(job: Job) -> bool:
    """Return whether the stack captures CUDA graphs on these devices."""
    return job.hardware.device == "cuda" and profile_of(job).cuda_graphs


def _static(job: Job, point: Point) -> bool:
    """Return whether all kernels of a layer have sizes that are known before the step, as a graph of them needs."""
    return not job.model.is_moe or bool(job.moe.capacity_factor and job.moe.pad_to_capacity)


def _routes(job: Job, point: Point) -> bool:
    return job.model.is_moe


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Values of one axis, and whether they can make a difference to a point."""

    values: Values
    matters: Callable[[Job, Point], bool] = _always


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One axis.

    Attributes:
        axis: its name in `search.axes`.
        options: what is tried beside the job's own values, the most promising first.
        in_layers: the time of a micro-batch through the layers depends on it.
        free: by the estimate, each option is at least as fast as all later ones and as the job's own with the switch
            off, and needs no more memory: the first one that the rules accept is taken.
        fastest_first: by the estimate, each option is at least as fast as all later ones and as the switch off, but may
            need more memory: later ones are tried only where a point needs recomputation or offloading with it.
        off: values with which it does nothing, where they are not none.
        applies: whether the stack has it on the job's devices.
        relief: the options need less memory and more time: they are tried where a point does not fit without them.
    """

    axis: str
    options: tuple[Option, ...]
    in_layers: bool = False
    free: bool = False
    fastest_first: bool = False
    relief: bool = False
    off: Values = field(default_factory=dict)
    applies: Callable[[Job], bool] = lambda job: True


_FEWEST_COPIES: Values = {"moe.token_dispatcher_type": "flex", "moe.deepep": True}


def _graphs(impl: str, *scope: str) -> Values:
    return {"kernels.cuda_graph.impl": impl, "kernels.cuda_graph.scope": scope}


SWITCHES: tuple[Switch, ...] = (
    Switch(
        axis="dispatcher",
        off={"moe.token_dispatcher_type": "alltoall"},
        in_layers=True,
        options=(
            Option(values=_FEWEST_COPIES, matters=_exchanges),
            Option(values={"moe.token_dispatcher_type": "alltoall"}, matters=_exchanges),
            Option(values={"moe.token_dispatcher_type": "allgather"}, matters=_exchanges),
        ),
    ),
    Switch(
        axis="expert_overlap",
        in_layers=True,
        options=(
            Option(values={"moe.batch_overlap": True}, matters=_exchanges),
            Option(values={"moe.shared_expert_overlap": True}, matters=_shares_experts),
            Option(values={"moe.dispatch_overlap": True}, matters=_exchanges),
        ),
    ),
    Switch(axis="group_order", options=(Option(values={"parallel.dp_outermost": True}, matters=_spans_hosts),)),
    Switch(
        axis="dp_overlap",
        free=True,
        options=(
            Option(values={"overlap.grad_reduce": True, "overlap.param_gather": True}, matters=_sharded),
            Option(values={"overlap.grad_reduce": True}, matters=_replicated),
        ),
    ),
    Switch(
        axis="tp_overlap",
        in_layers=True,
        free=True,
        options=(Option(values={"overlap.tp_comm": True}, matters=_splits_sequences),),
    ),
    Switch(
        axis="cuda_graphs",
        in_layers=True,
        fastest_first=True,
        applies=_captures,
        off={"kernels.cuda_graph.scope": ()},
        options=(
            Option(values=_graphs("local", "full_iteration"), matters=_static),
            Option(values=_graphs("transformer_engine"), matters=_static),
            Option(values=_graphs("transformer_engine", "attn", "moe_router", "moe_preprocess"), matters=_routes),
            Option(values=_graphs("transformer_engine", "attn")),
        ),
    ),
    Switch(
        axis="offload",
        relief=True,
        options=(
            Option(values={"offload.optimizer": True}),
            Option(values={"offload.optimizer": True, "optimizer.precision_aware": True}),
            Option(values={"offload.attention": True}),
        ),
    ),
    Switch(
        axis="offload_modules",
        relief=True,
        off={"offload.modules": ()},
        options=(
            Option(values={"offload.modules": ("core_attn",)}),
            Option(values={"offload.modules": ("expert_fc1",)}, matters=_routes),
            Option(values={"offload.modules": ("moe_act",)}, matters=_routes),
        ),
    ),
)


def paths_of(axes: Collection[str]) -> tuple[str, ...]:
    """Return the fields that these axes vary, each once."""
    paths = (path for switch in SWITCHES if switch.axis in axes for option in switch.options for path in option.values)
    return tuple(dict.fromkeys(paths))


_Kept = Sequence[tuple[Switch, tuple[Option, ...]]]


class _Group:
    """Switches that are combined, with the values of the job where none of their options matters."""

    def __init__(self, job: Job, kept: _Kept) -> None:
        self.job, self.kept = job, kept
        self._known: dict[tuple[tuple[bool, ...], ...], tuple[Values, ...]] = {}

    def __call__(self, point: Point) -> tuple[Values, ...]:
        """Return every combination of what matters to a point."""
        key = tuple([tuple([option.matters(self.job, point) for option in options]) for _, options in self.kept])
        found = self._known.get(key)
        if found is None:
            parts = [
                self.values(switch, [option for option, counts in zip(options, matters, strict=True) if counts])
                for (switch, options), matters in zip(self.kept, key, strict=True)
            ]
            found = self._known[key] = tuple(_merged(parts))
        return found

    def values(self, switch: Switch, options: Sequence[Option]) -> list[Values]:
        """Return the values of a switch, the most promising first: options, the job's own, off.

        Values that mean the same as the job's are spelled as there. Where no option matters, the switch is off.
        """
        own = {path: value_at(self.job, path) for option in switch.options for path in option.values}
        off = dict.fromkeys(own) | switch.off
        found: list[Values] = []
        for values in (*(option.values for option in options), *([own] if options else []), off):
            complete = off | values
            spelled = own if all(_equal(own[path], value) for path, value in complete.items()) else complete
            if spelled not in found:
                found.append(spelled)
        return found


class Switching:
    """The switches of one search: the values that its backends can express, and the order in which they are tried.

    Attributes:
        in_layers: fields that decide the time of a micro-batch through the layers.
        free_paths: fields of the free switches.
        fastest: values with which a micro-batch computes least, whatever it communicates and whether it is legal.
    """

    def __init__(
        self, job: Job, judges: Sequence[Variants], axes: Collection[str], searched: frozenset[str] = frozenset()
    ) -> None:
        every = [
            (switch, tuple(option for option in switch.options if possible(option.values, judges, searched)))
            for switch in SWITCHES
            if switch.axis in axes and switch.applies(job)
        ]
        kept = [(switch, options) for switch, options in every if options]
        self._own: Values = {path: value_at(job, path) for path in paths_of(axes)}
        ordered = [each for each in kept if each[0].free or each[0].fastest_first]
        self._chosen = _Group(job, [each for each in kept if each not in ordered and not each[0].relief])
        self._free = _Group(job, [each for each in ordered if each[0].free])
        self._fastest = _Group(job, [each for each in ordered if each[0].fastest_first])
        self._relief: tuple[Option, ...] = ()
        for switch, options in kept:
            if switch.relief:
                relieving, start = _relieving(job, switch, options)
                self._relief += relieving
                self._own |= start
        self.in_layers = paths_of([switch.axis for switch, _ in kept if switch.in_layers])
        self.fastest = _FEWEST_COPIES if "dispatcher" in axes else Values()
        for _, options in self._fastest.kept:
            self.fastest = self.fastest | options[0].values
        self.free_paths = frozenset(paths_of([switch.axis for switch, _ in self._free.kept]))

    @cached_property
    def combinations(self) -> int:
        """Number of combinations of a point; free switches count once: their first legal option is the best."""
        groups = (self._chosen, self._fastest)
        tried = (len(group.values(switch, options)) for group in groups for switch, options in group.kept)
        return math.prod(tried) * (1 + len(self._relief))

    def chosen(self, point: Point) -> Iterator[Values]:
        """Yield the combinations of what costs either time or memory, with the job's values of all other switches."""
        return ({**self._own, **values} for values in self._chosen(point))

    def free(self, point: Point) -> tuple[Values, ...]:
        """Return the combinations of free switches, the best first."""
        return self._free(point)

    def fastest_first(self, point: Point) -> tuple[Values, ...]:
        """Return the combinations of switches that save time and cost memory, the fastest first."""
        return self._fastest(point)

    def relief(self, point: Point) -> Iterator[Values]:
        """Yield what needs less memory than the point and more time."""
        for option in self._relief:
            changes = any(point[path] != value for path, value in option.values.items())
            if changes and option.matters(self._chosen.job, point):
                yield option.values


def _relieving(job: Job, switch: Switch, options: Sequence[Option]) -> tuple[tuple[Option, ...], Values]:
    """Return what needs less memory, and the values to start from: what the job keeps on the host is an option."""
    own = {path: value_at(job, path) for path in paths_of([switch.axis])}
    if not any(value for path, value in own.items() if path.startswith("offload.")):
        return tuple(options), {}
    off = dict.fromkeys(own) | switch.off
    listed = any(off | option.values == own for option in options)
    return (*options, *(() if listed else (Option(values=own),))), off


def _equal(one: Value, other: Value) -> bool:
    """Return whether two values of a switch mean the same: none and off do."""
    return (one or None) == (other or None)


def _merged(parts: Iterable[Sequence[Values]]) -> Iterator[Values]:
    for chosen in product(*parts):
        values: Values = {}
        for each in chosen:
            values |= each
        yield values


def possible(values: Values, judges: Sequence[Variants], searched: frozenset[str]) -> bool:
    """Return whether all backends have arguments for these values, and refuse them for no reason that is not searched.

    Args:
        searched: fields that the search varies: a refusal that names one of them may depend on it.
    """
    used = {path for path, value in values.items() if value is not None}
    for judge in judges:
        if not all(map(judge.expresses, used)):
            return False
        before = {(error.rule, error.fields) for error in judge.errors({})}
        for error in judge.errors(values):
            if (error.rule, error.fields) not in before and error.fields and searched.isdisjoint(error.fields):
                return False
    return True
