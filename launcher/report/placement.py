"""Which rank runs where, and with which other ranks it works: tp, cp, ep, dp and pp groups.

Ranks are ordered as Megatron-core orders them, tp first and pp last; experts have groups of their own in the same stage
(core/parallel_state.py, RankGenerator, order "tp-cp-ep-dp-pp", with use_tp_pp_dp_mapping "tp-cp-ep-pp-dp").
"""

from collections.abc import Iterator

from launcher.estimate.as_run import as_run
from launcher.job import Job
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One dimension of parallelism: ranks `stride` apart form groups of `size`."""

    name: str
    size: int
    stride: int

    def index(self, rank: int) -> int:
        """Return the place of a rank in its group."""
        return rank // self.stride % self.size

    def group(self, rank: int) -> range:
        """Return the ranks of a rank's group."""
        first = rank - self.index(rank) * self.stride
        return range(first, first + self.size * self.stride, self.stride)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Axes of a job's ranks, and how many ranks a node has."""

    axes: tuple[Axis, ...]
    nodes: int
    devices_per_node: int

    def axis(self, name: str) -> Axis:
        """Return the axis of this name."""
        return next(axis for axis in self.axes if axis.name == name)

    def pattern(self, node: int) -> tuple[tuple[int, ...], ...]:
        """Return the places of a node's ranks without those in data parallel groups: equal nodes do the same work."""
        axes = [axis for axis in self.axes if axis.name not in ("dp", "edp")]
        first = node * self.devices_per_node
        return tuple(tuple(axis.index(first + local) for axis in axes) for local in range(self.devices_per_node))

    def kinds(self) -> list[list[int]]:
        """Return the nodes, those that do the same work together, in the order of their first one."""
        found: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for node in range(self.nodes):
            found.setdefault(self.pattern(node), []).append(node)
        return list(found.values())


def placement_of(job: Job) -> Placement | None:
    """Return where the ranks of a job are, as its backend runs it; None where its sizes do not divide its devices."""
    job, _ = as_run(job)
    parallel, world = job.parallel, job.cluster.world_size
    tp, cp, pp = parallel.tp, parallel.cp, parallel.pp
    ep, etp = parallel.ep or 1, parallel.etp or parallel.tp
    if min(tp, cp, pp, ep, etp) < 1 or world % (tp * cp * pp) or world // pp % (ep * etp):
        return None
    stage = world // pp
    outer, moe = bool(parallel.dp_outermost), bool(job.model.num_experts)
    axes = tuple(_axes(tp, cp, stage // (tp * cp), pp, ep, etp, stage, outer=outer, moe=moe))
    return Placement(axes=axes, nodes=job.cluster.nodes, devices_per_node=job.cluster.devices_per_node)


def _axes(
    tp: int, cp: int, dp: int, pp: int, ep: int, etp: int, stage: int, *, outer: bool, moe: bool
) -> Iterator[Axis]:
    yield Axis(name="tp", size=tp, stride=1)
    yield Axis(name="cp", size=cp, stride=tp)
    yield Axis(name="dp", size=dp, stride=tp * cp * (pp if outer else 1))
    yield Axis(name="pp", size=pp, stride=tp * cp if outer else stage)
    # With dp outside of pp, the ranks of a stage are not consecutive: expert groups that cross them are not drawn.
    if moe and (not outer or ep * etp <= tp * cp):
        yield Axis(name="ep", size=ep, stride=etp)
        if etp != tp:
            yield Axis(name="etp", size=etp, stride=1)


def shown_ranks(ranks: range) -> str:
    """Return ranks as text: `0–7`, or `0, 8, 16 … 56 (8)`."""
    if len(ranks) == 1:
        return str(ranks[0])
    if ranks.step == 1:
        return f"{ranks[0]}–{ranks[-1]}"
    if len(ranks) <= 4:
        return ", ".join(map(str, ranks))
    return f"{ranks[0]}, {ranks[1]}, {ranks[2]} … {ranks[-1]} ({len(ranks)})"
