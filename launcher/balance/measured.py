"""Replaces estimated times by measured ratios, under the names of Taylor's profiles."""

from __future__ import annotations

from dataclasses import replace

from launcher.balance.problem import Fixed, Kind, Problem
from launcher.balance.profile import Measured


def with_ratios(
    problem: Problem,
    *,
    dense: float | None = None,
    backward: float | None = None,
    head: float | None = None,
    recompute: float | None = None,
    layer: float | None = None,
) -> Problem:
    """Return the problem with times by these ratios; the forward of a layer with experts (if there is one) is the unit.

    Args:
        dense: forward of the other kind of layer over that unit.
        backward: backward over forward, of layers and the head.
        head: forward of the last chunk's modules besides layers, over that of a layer.
        recompute: full recomputation over forward.
        layer: forward of one layer with experts, or of any if there is one kind; None: unchanged. Unmeasured times
            scale with it.
    """
    main = next((kind for kind in problem.kinds if kind.name == "moe"), problem.kinds[-1])
    unit, name = main.forward if layer is None else layer, main.name
    grown = _grown(unit, main.forward)
    kinds = [
        _kind(kind, kind.forward * grown if dense is None or kind.name == name else dense * unit, backward, recompute)
        for kind in problem.kinds
    ]
    fixed = dict(problem.fixed)
    last = problem.fixed_of(problem.parts - 1)
    forward = last.forward * grown if head is None else head * unit
    fixed[problem.parts - 1] = Fixed(
        forward=forward,
        backward=backward * forward if backward is not None else last.backward * _grown(forward, last.forward),
        keeps=last.keeps,
    )
    return replace(problem, kinds=tuple(kinds), fixed=fixed)


def with_measured(problem: Problem, row: Measured) -> Problem:
    """Return the problem with the times of a profile."""
    return with_ratios(
        problem, dense=row.dense, backward=row.backward, head=row.head, recompute=row.recompute, layer=row.layer
    )


def _grown(now: float, before: float) -> float:
    return now / before if before else 1.0


def _kind(kind: Kind, forward: float, backward: float | None, recompute: float | None) -> Kind:
    """Return a kind of layer with another forward time; unmeasured times keep their ratio to the forward."""
    grown, first = _grown(forward, kind.forward), kind.modes[0]
    plain = first.backward * grown if backward is None else backward * forward
    if first.name == "full":
        # The job's fixed recomputation, which the estimate counts as one more forward.
        plain += 0.0 if backward is None else forward
        plain += 0.0 if recompute is None else (recompute - 1) * forward
    modes = [replace(first, backward=plain)]
    for mode in kind.modes[1:]:
        again = (mode.backward - kind.modes[0].backward) * grown
        if mode.name == "full" and recompute is not None:
            again = recompute * forward
        modes.append(replace(mode, backward=plain + again))
    return replace(kind, forward=forward, modes=tuple(modes))
