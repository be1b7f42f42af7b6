"""Taylor's inputs and quirks: its ratios, its memory constants under their original names, and its errors.

Source: mindspore/toolkits e8d3573 autoparallel/symphony (README; pipeline_conductor/memory.py, math_model.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from launcher.balance.problem import BadProblem, Fixed, Kind, Mode, Problem
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Times relative to the forward of one MoE layer; the defaults are the README's.

    Attributes:
        backward: backward over forward (`bfratio`, -b_ratio).
        dense: dense layer over MoE layer (`dmratio`, -layer_ratio).
        head: output layer and loss (`hratio`, -head_loss).
        recompute: full recomputation (`re_grow_ration`, -ra_ratio).
    """

    backward: float = 2.0
    dense: float = 0.33
    head: float = 1.5
    recompute: float = 1.0


_MEMORY = (
    *("act_mem0", "act_mem", "re_comp_mem0", "re_comp_mem", "layer_mem012", "layer_mem"),
    *("mem_lim_stage0", "mem_lim_others", "mem_lim_last"),
)


def taylor_problem(
    *,
    stages: int,
    chunks: int,
    micro_batches: int,
    dense_layers: int,
    moe_layers: int,
    ratios: Ratios,
    memory: Mapping[str, float],
    few_in_flight: bool = True,
    quirks: bool = False,
) -> Problem:
    """Return the problem that Taylor poses for these figures.

    Args:
        memory: megabytes by Taylor's names (`act_mem`, `layer_mem012`, `mem_lim_stage0` …); limits exclude the
            static memory of their stage.
        quirks: recompute dense layers at the full cost of a forward whatever the recompute ratio, as its expression
            does by operator precedence (math_model.py:158-162).

    Raises:
        BadProblem: a figure is missing.
    """
    lacking = [name for name in _MEMORY if name not in memory]
    if lacking:
        raise BadProblem(f"memory figures are missing: {', '.join(lacking)}")
    kinds = []
    for name, count, time, again, suffix, held in (
        ("dense", dense_layers, ratios.dense, 1.0 if quirks else ratios.recompute, "0", "layer_mem012"),
        ("moe", moe_layers, 1.0, ratios.recompute, "", "layer_mem"),
    ):
        backward = ratios.backward * time
        modes = [Mode(name="none", backward=backward, keeps=memory[f"act_mem{suffix}"])]
        modes.append(Mode(name="full", backward=backward + again * time, keeps=memory[f"re_comp_mem{suffix}"]))
        if count:
            kinds.append(Kind(name=name, count=count, forward=time, memory=memory[held], modes=tuple(modes)))
    middle = [memory["mem_lim_others"]] * (stages - 2)
    limits = (memory["mem_lim_stage0"], *middle, memory["mem_lim_last"]) if stages > 1 else (memory["mem_lim_stage0"],)
    head = Fixed(forward=ratios.head, backward=ratios.backward * ratios.head)
    return Problem(
        stages=stages,
        chunks=chunks,
        micro_batches=micro_batches,
        kinds=tuple(kinds),
        limits=limits,
        fixed={stages * chunks - 1: head},
        few_in_flight=few_in_flight,
    )
