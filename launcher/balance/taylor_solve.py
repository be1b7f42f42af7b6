"""Solves the pipeline of a training's YAML by Taylor's own figures, and writes the split into the YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from launcher.balance.local import even
from launcher.balance.problem import Problem
from launcher.balance.solve import Balanced, balance_any
from launcher.balance.taylor import Ratios, taylor_problem
from launcher.balance.taylor_files import Pipeline, yaml_tree
from launcher.pipeline_schedule.precedence import precedence
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorAnswer:
    """One balanced YAML.

    Attributes:
        unit_ms: milliseconds of the forward of a MoE layer (`moe_bw`); None: not given.
    """

    pipeline: Pipeline
    ratios: Ratios
    problem: Problem
    balanced: Balanced
    unit_ms: float | None = None

    @property
    def objective(self) -> float:
        """The pipeline's time over the forward of one MoE layer: Taylor's objective."""
        return self.balanced.time

    @property
    def cost_ms(self) -> float | None:
        """Taylor's cost: objective x milliseconds of the forward of a MoE layer."""
        return None if self.unit_ms is None else self.objective * self.unit_ms

    @property
    def layers(self) -> list[list[int]]:
        """Layers of each stage, one row a chunk."""
        return self._rows(self.balanced.split.layers())

    @property
    def recompute(self) -> list[list[int]]:
        """Fully recomputed layers of each stage, one row a chunk."""
        return self._rows(self.balanced.split.in_mode(self.problem, "full"))

    @property
    def offset(self) -> list[list[int]]:
        """Layers of each stage beyond an equal share, one row a chunk (solution.py:141-146)."""
        share = self.problem.layers // self.problem.parts
        return [[count - share for count in row] for row in self.layers]

    def _rows(self, parts: tuple[int, ...]) -> list[list[int]]:
        stages = self.problem.stages
        return [list(parts[start : start + stages]) for start in range(0, len(parts), stages)]

    def as_tree(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "file": str(self.pipeline.file),
            **self.pipeline.sizes(),
            "vp": self.pipeline.chunks,
            "micro_batches": self.pipeline.micro_batches,
            "objective": self.objective,
            "bound": self.balanced.bound,
            "gap": self.balanced.gap,
            "optimal": self.balanced.optimal,
            "cost_ms": self.cost_ms,
            "layers": self.layers,
            "offset": self.offset,
            "recompute": self.recompute,
            "memory_mb": list(self.balanced.memory),
            "limits_mb": list(self.problem.limits),
        }

    def yaml_text(self) -> str:
        """Return the YAML with the split in it, as Taylor writes it (pp_util.py:158-190).

        Comments and anchors of the file are lost; Taylor's, too.
        """
        import yaml

        tree = yaml_tree(self.pipeline.file)
        one = self.pipeline.chunks == 1
        tree["model"]["model_config"]["offset"] = self.offset[0] if one else self.offset
        recompute = tree.setdefault("recompute_config", {})
        recompute["recompute"] = self.recompute[0] if one else self.recompute
        recompute["select_recompute"] = False
        recompute["select_comm_recompute"] = False
        return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def solve_taylor(
    pipeline: Pipeline,
    ratios: Ratios,
    memory: Mapping[str, float],
    *,
    seconds: float,
    gap: float,
    quick: bool = False,
    corrected: bool = False,
    unit_ms: float | None = None,
    watch: Callable[[float, float], None] | None = None,
) -> TaylorAnswer:
    """Return the split of least time by Taylor's figures.

    Args:
        corrected: recomputed dense layers take the recomputation ratio, too, which Taylor's expression leaves out.

    Raises:
        Infeasible: no split fits.
        BadProblem: the figures do not describe a pipeline.
    """
    problem = taylor_problem(
        stages=pipeline.stages,
        chunks=pipeline.chunks,
        micro_batches=pipeline.micro_batches,
        dense_layers=pipeline.dense_layers,
        moe_layers=pipeline.moe_layers,
        ratios=ratios,
        memory=memory,
        few_in_flight=pipeline.chunks == 1,
        quirks=not corrected,
    ).checked()
    _, balanced = balance_any([problem], seconds=seconds, gap=gap, quick=quick, watch=watch)
    return TaylorAnswer(pipeline=pipeline, ratios=ratios, problem=problem, balanced=balanced, unit_ms=unit_ms)


def even_split(answer: TaylorAnswer) -> tuple[float, bool]:
    """Return the objective of layers spread evenly, all recomputed, and whether they fit."""
    from launcher.balance.local import kinds_in_order
    from launcher.balance.problem import Split
    from launcher.balance.timing import seconds

    problem = answer.problem
    dealt = kinds_in_order(problem, even(problem))
    zeros = (0,) * problem.parts
    counts = tuple(
        (*(zeros for _ in kind.modes[1:]), tuple(row)) for kind, row in zip(problem.kinds, dealt, strict=True)
    )
    split = Split(counts=counts)
    memory = split.memory(problem, precedence(problem.schedule).in_flight)
    fits = all(used <= limit for used, limit in zip(memory, problem.limits, strict=True))
    return seconds(problem, split), fits
