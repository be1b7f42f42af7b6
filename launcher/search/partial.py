"""Recomputation of parts of every layer: which parts a backend can recompute, and which of them cost the least time.

The estimate decides; this module only says what to ask it. What a part frees and costs is nearly the same share of
what all parts free and cost, whatever the stages are, so it is asked once for each set of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from launcher.balance.parts import MODULES, PARTS, modules_of, union
from launcher.job import Value
from launcher.job.recompute import SELECTIVE_MODULES
from launcher.rules.variants import Variants
from launcher.search.found import Candidate
from launcher.search.points import in_part
from launcher.search.switches import possible

Values = dict[str, Value]
Point = Mapping[str, Value]
# Error of a sum of shares.
_ERROR = 0.03


def _members(part: Mapping[str, Value]) -> frozenset[str]:
    flags = {path for path, value in part.items() if value is True}
    return frozenset(flags | {str(module) for module in modules_of(part.get(MODULES))})


class Partial:
    """The sets of parts of which all backends can recompute each.

    Args:
        searched: fields that the search varies.
        reads: fields on which the shares of the parts depend.
    """

    def __init__(self, judges: Sequence[Variants], searched: frozenset[str], reads: tuple[str, ...]) -> None:
        self._single = [part for part in PARTS if possible(part, judges, searched - set(part))]
        sets: dict[frozenset[str], Values] = {}
        whole: Values = {}  # in the end the union of all parts
        for count in range(1, len(self._single) + 1):
            for parts in combinations(self._single, count):
                whole = {}
                for part in parts:
                    whole = union(whole, part)
                sets.setdefault(_members(whole), whole)
        self._sets, self._reads, self._most = sets, reads, whole
        self._shares: dict[tuple[Value, ...], dict[frozenset[str], tuple[float, float]]] = {}

    def __len__(self) -> int:
        """Number of sets."""
        return len(self._sets)

    def least(
        self, plain: Candidate, limit: float, ask: Callable[[Values, bool], Candidate | None]
    ) -> Iterator[tuple[float, float, Values]]:
        """Yield the sets to estimate for a point that does not fit: seconds of a step, share of memory freed, values.

        Those that should take the least come first; sets that free too little by far are left out.

        Args:
            plain: the point without recomputation.
            limit: bytes that fit.
            ask: returns the estimate of a point without recording it, with its time even if it does not fit where True.
        """
        if not self._sets:
            return
        most = ask({**plain.point, **in_part(self._most)}, False)
        if most is None or most.peak > limit or most.peak >= plain.peak:
            return  # no set frees more than all parts do
        freed, cost = plain.peak - most.peak, most.step_s - plain.step_s
        enough = (plain.peak - limit) / freed - _ERROR
        shares = self._of(plain, most, ask)
        # Of equal sets, modules come before flags: a backend that counts layers of each stage counts those of modules.
        for members, (saved, spent) in sorted(
            shares.items(), key=lambda item: (round(item[1][1], 9), sum("." in name for name in item[0]), len(item[0]))
        ):
            if saved >= enough:
                yield plain.step_s + spent * cost, saved, in_part(self._sets[members])

    def _of(
        self, plain: Candidate, most: Candidate, ask: Callable[[Values, bool], Candidate | None]
    ) -> dict[frozenset[str], tuple[float, float]]:
        """Return the shares of memory and time of every set, of those of all parts together."""
        key = tuple([plain.point[path] for path in self._reads])
        found = self._shares.get(key)
        if found is None:
            freed, cost = plain.peak - most.peak, max(most.step_s - plain.step_s, 1e-12)
            each: dict[str, tuple[float, float]] = {}
            for part in self._single:
                asked = ask({**plain.point, **in_part(part)}, True)
                if asked is not None and asked.peak < plain.peak:
                    (name,) = _members(part)
                    each[name] = ((plain.peak - asked.peak) / freed, (asked.step_s - plain.step_s) / cost)
            found = self._shares[key] = {
                members: (sum(each[name][0] for name in members), sum(each[name][1] for name in members))
                for members in self._sets
                if members <= each.keys()
            }
        return found

    def lighter(self, point: Point) -> Iterator[Values]:
        """Yield what recomputes one part less than a point that recomputes parts."""
        members = self.members(point)
        for name in sorted(members):
            less = self._sets.get(members - {name})
            if less is not None:
                yield in_part(less)

    @staticmethod
    def members(point: Point) -> frozenset[str]:
        """Return the parts that a point recomputes."""
        values = {path: value for path, value in point.items() if path.startswith("recompute.")}
        if values["recompute.granularity"] == "selective" and not values[MODULES]:
            values[MODULES] = SELECTIVE_MODULES
        return _members(values)
