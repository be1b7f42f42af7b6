"""Taylor's search space and expert rules: the configurations that its tool keeps, for comparison and as a test.

Source: mindspore/toolkits e8d3573 autoparallel/symphony: ndsearch/build_initial_spaces.py,
ndsearch/expert_filter_configs.py, ndsearch/memory_model.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from launcher.job import Job, Value
from launcher.records import dataclass


class Point(NamedTuple):
    """One configuration; `op` is the number of devices over which optimizer states are sharded."""

    dp: int
    tp: int
    cp: int
    pp: int
    ep: int
    op: int
    vp: int
    mbs: int
    sp: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Parameters of the space.

    Attributes:
        layers: including MTP layers.
        quirks: reproduce errors of the original: the number of experts does not limit ep (operator precedence,
            build_initial_spaces.py:40), and chunks per stage run from 0 to one below the layers of a stage.
    """

    world: int
    layers: int
    experts: int
    global_batch: int
    quirks: bool = True


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


_MICRO_BATCHES = (1, 2, 4)


def layouts(setting: Setting) -> Iterator[tuple[int, int, int, int]]:
    """Yield dp, tp, cp, pp whose product is the world."""
    for dp in _divisors(setting.world):
        for tp in _divisors(setting.world // dp):
            for cp in _divisors(setting.world // dp // tp):
                yield dp, tp, cp, setting.world // dp // tp // cp


def space(setting: Setting) -> Iterator[Point]:
    """Yield every configuration before any expert rule."""
    for dp, tp, cp, pp in layouts(setting):
        per_stage = -(-setting.layers // pp)
        chunks = range(per_stage) if setting.quirks else range(1, per_stage + 1)
        for ep in _divisors(dp * tp):
            if not setting.quirks and ep > setting.experts:
                continue
            for op in _divisors(dp):
                if op % (dp * tp // ep):
                    continue
                for vp in chunks:
                    for mbs in _MICRO_BATCHES:
                        yield Point(dp, tp, cp, pp, ep, op, vp, mbs, True)
                        yield Point(dp, tp, cp, pp, ep, op, vp, mbs, False)


Rule = Callable[[Point, Setting], bool]

# In the order in which the original applies them (expert_filter_configs.py:149-169).
RULES: Mapping[str, Rule] = {
    "cp = 1": lambda point, _: point.cp == 1,
    "tp ≤ 64": lambda point, _: point.tp <= 64,
    "ep ≤ 64": lambda point, _: point.ep <= 64,
    "sp on from 1,000 devices": lambda point, setting: setting.world < 1000 or point.sp,
    "pp ≤ layers and micro-batches": lambda point, setting: (
        point.pp <= min(setting.layers, setting.global_batch // point.dp // point.mbs)
    ),
    "dp divides the global batch": lambda point, setting: setting.global_batch % point.dp == 0,
    "pp > 1": lambda point, _: point.pp > 1,
    "pp ≤ 32": lambda point, _: point.pp <= 32,
    "tp no multiple of 3": lambda point, _: point.tp % 3 != 0,
    "tp divides 56": lambda point, _: 56 % point.tp == 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Configurations that the rules accept.

    Attributes:
        raw: configurations before the rules.
        rejected: number of configurations rejected, by rule.
    """

    raw: int
    points: tuple[Point, ...]
    rejected: Mapping[str, int]

    @property
    def layouts(self) -> list[tuple[int, int, int, int]]:
        """Distinct dp, tp, cp, pp."""
        return sorted({point[:4] for point in self.points})


def prune(setting: Setting) -> Kept:
    """Return the configurations that all expert rules accept."""
    raw, kept, rejected = 0, [], Counter[str]()
    for point in space(setting):
        raw += 1
        name = next((name for name, accepts in RULES.items() if not accepts(point, setting)), None)
        if name is None:
            kept.append(point)
        else:
            rejected[name] += 1
    return Kept(raw=raw, points=tuple(kept), rejected={name: rejected[name] for name in RULES if rejected[name]})


def setting_of(job: Job) -> Setting:
    """Return the setting of a job; its global batch size must be set."""
    model = job.model
    return Setting(
        world=job.cluster.world_size,
        layers=(model.num_hidden_layers or 0) + model.num_nextn_predict_layers,
        experts=model.num_experts or 1,
        global_batch=job.batch.global_batch_size or 0,
    )


def narrowed(layouts: Iterable[dict[str, Value]], kept: Kept, world: int) -> list[dict[str, Value]]:
    """Return the layouts of a search that Taylor also keeps; Taylor has no expert tensor parallelism."""
    known = {(point.dp, point.tp, point.cp, point.pp, point.ep) for point in kept.points}
    chosen = []
    for layout in layouts:
        tp, cp, pp, ep = (int(str(layout[f"parallel.{name}"] or 1)) for name in ("tp", "cp", "pp", "ep"))
        if (world // (tp * cp * pp), tp, cp, pp, ep) in known and layout["parallel.etp"] in (None, 1):
            chosen.append(layout)
    return chosen
