"""Measured ratios in place of estimated times, by the names that Taylor's profiles give them."""

from __future__ import annotations

from dataclasses import replace

from launcher.balance.problem import Fixed, Kind, Problem


def with_ratios(
    problem: Problem,
    *,
    dense: float | None = None,
    backward: float | None = None,
    head: float | None = None,
    recompute: float | None = None,
) -> Problem:
    """Return the problem with times by these ratios; the forward of its last kind of layer stays the unit.

    Args:
        dense: forward of an earlier kind of layer over that of the last one.
        backward: backward over forward, of layers and the head.
        head: forward of what the last chunk carries besides layers, over that of a layer.
        recompute: full recomputation over forward.
    """
    unit = problem.kinds[-1].forward
    kinds = [
        _kind(kind, kind.forward if dense is None else dense * unit, backward, recompute) for kind in problem.kinds
    ]
    kinds[-1] = _kind(problem.kinds[-1], unit, backward, recompute)
    fixed = dict(problem.fixed)
    last = problem.fixed_of(problem.parts - 1)
    forward = last.forward if head is None else head * unit
    fixed[problem.parts - 1] = Fixed(
        forward=forward,
        backward=backward * forward if backward is not None else last.backward * _grown(forward, last.forward),
        keeps=last.keeps,
    )
    return replace(problem, kinds=tuple(kinds), fixed=fixed)


def _grown(now: float, before: float) -> float:
    return now / before if before else 1.0


def _kind(kind: Kind, forward: float, backward: float | None, recompute: float | None) -> Kind:
    """Return a kind of layer with another forward time; what is not measured keeps its ratio to the forward."""
    grown = _grown(forward, kind.forward)
    plain = kind.modes[0].backward * grown if backward is None else backward * forward
    modes = [replace(kind.modes[0], backward=plain)]
    for mode in kind.modes[1:]:
        again = (mode.backward - kind.modes[0].backward) * grown
        if mode.name == "full" and recompute is not None:
            again = recompute * forward
        modes.append(replace(mode, backward=plain + again))
    return replace(kind, forward=forward, modes=tuple(modes))
