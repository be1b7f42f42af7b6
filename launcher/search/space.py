"""The points of a search: values of every axis, in the combinations that are compatible with the world size.

Backend rules are not duplicated here. The rule engine checks combinations, once for all points that share the deciding
fields (`launcher.search.validity`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from launcher.job import Job, Value
from launcher.job.hardware import close_devices
from launcher.job.planning import SEARCH_AXES
from launcher.pipeline_schedule.order import DUALPIPEV
from launcher.records import dataclass

Values = Mapping[str, Value]

# Most chunks a stage that are tried where the layers do not divide: more of them cost more transfers than bubble.
_UNEVEN_VPP = 8

# The field behind each axis that is one field.
FIELDS = {
    "tp": "parallel.tp",
    "pp": "parallel.pp",
    "vpp": "parallel.vpp",
    "cp": "parallel.cp",
    "ep": "parallel.ep",
    "etp": "parallel.etp",
    "micro_batch_size": "batch.micro_batch_size",
    "sequence_parallel": "parallel.sequence_parallel",
    "distributed_optimizer": "parallel.distributed_optimizer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The search space.

    Attributes:
        choices: values of each field, the most promising first; one value where the job's value is kept.
        stages: whether uneven splits are tried where layers do not divide.
        recompute: whether granularity and depth of recomputation are searched; otherwise the job's are kept.
        world: devices.
        layers: layers of the model.
        uneven_vpp: most chunks a stage where the layers do not divide.
    """

    choices: Mapping[str, tuple[Value, ...]]
    stages: bool
    recompute: bool
    world: int
    layers: int
    uneven_vpp: int

    def layouts(self) -> Iterator[dict[str, Value]]:
        """Yield combinations of parallel sizes that are compatible with the number of devices."""
        choices = self.choices
        for pp in choices["parallel.pp"]:
            for tp in choices["parallel.tp"]:
                for cp in choices["parallel.cp"]:
                    if self.world % (_number(tp) * _number(pp) * _number(cp)):
                        continue
                    for ep in choices["parallel.ep"]:
                        for etp in choices["parallel.etp"]:
                            if (self.world // _number(pp)) % (_number(ep) * _number(etp)):
                                continue
                            for vpp in choices["parallel.vpp"]:
                                if not self._interleaves(_number(pp), _number(vpp)):
                                    continue
                                yield {
                                    "parallel.tp": tp,
                                    "parallel.pp": pp,
                                    "parallel.vpp": vpp,
                                    "parallel.cp": cp,
                                    "parallel.ep": ep,
                                    "parallel.etp": etp,
                                }

    def _interleaves(self, pp: int, vpp: int) -> bool:
        """Return whether so many chunks a stage are tried: powers of two, and those that share the layers equally."""
        if vpp == 1 or (vpp,) == self.choices["parallel.vpp"]:
            return vpp == 1 or pp > 1
        return pp > 1 and (vpp in _powers(self.uneven_vpp) or _shares(self.layers, pp, vpp))

    @property
    def per_layout(self) -> int:
        """Number of points of one layout, not counting recomputation."""
        names = ("batch.micro_batch_size", "parallel.sequence_parallel", "parallel.distributed_optimizer")
        return math.prod(len(self.choices[name]) for name in names)


def promise(layout: Mapping[str, Value]) -> tuple[int, ...]:
    """Sort key of layouts that puts little communication and small bubbles first."""
    number = {path: int(str(value or 1)) for path, value in layout.items()}
    order = ("parallel.cp", "parallel.etp", "parallel.tp", "parallel.pp", "parallel.ep", "parallel.vpp")
    return tuple(number[path] for path in order)


def _number(value: Value) -> int:
    assert value is None or isinstance(value, int)
    return value or 1


def axes_of(job: Job) -> frozenset[str]:
    """Return the axes that the job searches."""
    chosen = job.search.axes or SEARCH_AXES
    return frozenset(chosen) - set(job.search.fix)


def space_of(job: Job, expresses: Callable[[str], bool] = lambda _path: True) -> Space:
    """Return the search space of a job: powers of two, and divisors of its layers, batch and device counts.

    Args:
        expresses: whether all backends have an argument for a field. Without one for the experts' tensor parallelism it
            is what the backend does by itself; the other sizes have 1 without an argument.
    """
    axes, limit, model = axes_of(job), job.search, job.model
    world = job.cluster.world_size
    node = close_devices(job.hardware, job.cluster.devices_per_node, world)
    experts = model.num_experts or 0
    layers = model.num_hidden_layers or 1
    choices: dict[str, tuple[Value, ...]] = {
        "parallel.tp": _divisors(world, min(limit.max_tp or node, world)),
        "parallel.pp": tuple(n for n in _divisors(world, min(limit.max_pp, world)) if n <= layers),
        "parallel.cp": _powers(min(limit.max_cp, world)),
        "parallel.vpp": _chunks(layers, limit.max_vpp, tuple(n for n in _divisors(world, limit.max_pp) if n > 1)),
        "parallel.ep": _divisors(experts, limit.max_ep or experts) if experts else (job.parallel.ep,),
        "parallel.etp": _powers(min(limit.max_etp or node, world)) if experts else (job.parallel.etp,),
        "batch.micro_batch_size": _divisors(job.batch.global_batch_size or 1, limit.max_micro_batch_size),
        "parallel.sequence_parallel": (True, False),
        "parallel.distributed_optimizer": (True, False),
    }
    folded = job.parallel.schedule == DUALPIPEV
    if folded:
        choices["parallel.vpp"] = (2,)
    for axis, path in FIELDS.items():
        if axis not in axes or (axis == "etp" and not expresses(path)):
            section, name = path.split(".")
            choices[path] = (getattr(getattr(job, section), name),)
    return Space(
        choices=choices,
        stages="stages" in axes and not folded,
        recompute="recompute" in axes,
        world=world,
        layers=layers,
        uneven_vpp=limit.max_vpp or _UNEVEN_VPP,
    )


def _shares(layers: int, pp: int, vpp: int) -> bool:
    """Return whether the chunks get equally many layers, with embedding and loss counted as layers or not."""
    return any((layers + extra) % (pp * vpp) == 0 for extra in (0, 1, 2))


def _chunks(layers: int, most: int | None, stages: tuple[int, ...]) -> tuple[Value, ...]:
    """Return the numbers of chunks a stage: powers of two, and what shares the layers equally among some stages."""
    limit = min(most or layers, layers)
    equal = {n for pp in stages for n in range(2, limit + 1) if _shares(layers, pp, n)}
    return None, *sorted({*_powers(min(most or _UNEVEN_VPP, layers)), *equal} - {1})


def _powers(most: int) -> tuple[int, ...]:
    return tuple(2**n for n in range(most.bit_length()) if 2**n <= most)


def _divisors(of: int, most: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, most + 1) if of % n == 0)
