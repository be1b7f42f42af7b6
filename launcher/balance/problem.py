"""The balancing problem: layers with their times and bytes, the pipeline's shape, the memory of its stages.

Times may have any unit as long as all have the same one (a MoE layer's forward is 1 in Taylor's ratios, estimates are
in seconds); memory likewise (MB there, bytes here).
"""

from __future__ import annotations

from dataclasses import field

from launcher.pipeline_schedule.order import Schedule
from launcher.records import dataclass


class BadProblem(ValueError):
    """The figures do not describe a pipeline; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One mode of a layer's activations: kept, recomputed in full, recomputed in part.

    Attributes:
        backward: time of the layer's backward, recomputation included.
        keeps: memory that the layer holds for each micro-batch in flight.
    """

    name: str
    backward: float
    keeps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`count` equal layers; kinds follow each other in the model (dense layers first, then those with experts).

    Attributes:
        memory: static memory of one layer (weights, gradients, optimizer).
        modes: modes of its activations; the first keeps everything, each later one less.
    """

    name: str
    count: int
    forward: float
    memory: float
    modes: tuple[Mode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Modules of a chunk besides layers: the embedding, the output layer and loss, prediction layers."""

    forward: float = 0.0
    backward: float = 0.0
    keeps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One pipeline to balance.

    Chunks are numbered in the model's order: chunk `v` of stage `s` is number `v * stages + s`.

    Attributes:
        kinds: layers, in the model's order.
        limits: memory that layers and activations of each stage may take, embedding and head already subtracted.
        fixed: modules of chunks besides layers, by chunk number.
        transfer: time of sending one activation to the next stage.
        few_in_flight: warm up with one micro-batch per stage instead of two (always with one chunk per stage).
        fewest: minimum layers of a chunk that is not in `may_be_empty`.
        may_be_empty: chunks that need no layer (a first one with the embedding, a last one with the head).
        one_mode_a_chunk: recomputation in full and in part exclude each other within a chunk.
        in_order: where each chunk has its own numbers: no layer of a chunk is recomputed more than an earlier one.
        covered: layers recomputed at the beginning of every chunk (method `block`); None: set per chunk.
    """

    stages: int
    chunks: int
    micro_batches: int
    kinds: tuple[Kind, ...]
    limits: tuple[float, ...]
    fixed: dict[int, Fixed] = field(default_factory=dict)
    transfer: float = 0.0
    few_in_flight: bool = False
    fewest: int = 1
    may_be_empty: frozenset[int] = frozenset()
    one_mode_a_chunk: bool = True
    in_order: bool = False
    covered: int | None = None

    @property
    def schedule(self) -> Schedule:
        """The order of its steps; a chunk runs as many micro-batches in a row as there are stages."""
        return Schedule(
            stages=self.stages,
            chunks=self.chunks,
            micro_batches=self.micro_batches,
            group=self.stages,
            few_in_flight=self.few_in_flight,
        )

    @property
    def parts(self) -> int:
        """Chunks of all stages together."""
        return self.stages * self.chunks

    @property
    def layers(self) -> int:
        """Layers of all kinds."""
        return sum(kind.count for kind in self.kinds)

    def stage_of(self, chunk: int) -> int:
        """Return the stage on which a chunk lies."""
        return chunk % self.stages

    def fixed_of(self, chunk: int) -> Fixed:
        """Return the modules of a chunk besides layers."""
        return self.fixed.get(chunk, Fixed())

    def checked(self) -> Problem:
        """Check this problem and return it.

        Raises:
            BadProblem: its figures contradict each other.
        """
        for name, value in (("stages", self.stages), ("chunks", self.chunks), ("micro-batches", self.micro_batches)):
            if value < 1:
                raise BadProblem(f"{name} must be at least 1, not {value}")
        if len(self.limits) != self.stages:
            raise BadProblem(f"{len(self.limits)} memory limits for {self.stages} stages")
        for kind in self.kinds:
            figures = [kind.forward, kind.memory, *(n for mode in kind.modes for n in (mode.backward, mode.keeps))]
            if not kind.modes or kind.count < 0 or any(not 0 <= figure < float("inf") for figure in figures):
                raise BadProblem(f"{kind.name} layers: a time, size or count is negative or not a number")
        needed = self.fewest * (self.parts - len(self.may_be_empty))
        if self.layers < needed:
            raise BadProblem(
                f"{self.layers} layers cannot fill {self.parts} chunks ({self.stages} stages × {self.chunks}) "
                f"with at least {self.fewest} each"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Layers per chunk, by kind and mode: `counts[kind][mode][chunk]`."""

    counts: tuple[tuple[tuple[int, ...], ...], ...]

    def layers(self) -> tuple[int, ...]:
        """Return layers per chunk."""
        return tuple(sum(column) for column in zip(*(mode for kind in self.counts for mode in kind), strict=True))

    def in_mode(self, problem: Problem, name: str) -> tuple[int, ...]:
        """Return layers per chunk in the mode of this name."""
        chosen = [
            self.counts[index][position]
            for index, kind in enumerate(problem.kinds)
            for position, mode in enumerate(kind.modes)
            if mode.name == name
        ]
        return tuple(sum(column) for column in zip(*chosen, strict=True)) if chosen else (0,) * problem.parts

    def durations(self, problem: Problem) -> tuple[list[float], list[float]]:
        """Return forward and backward times of every chunk."""
        forward = [problem.fixed_of(chunk).forward for chunk in range(problem.parts)]
        backward = [problem.fixed_of(chunk).backward for chunk in range(problem.parts)]
        for kind, modes in zip(problem.kinds, self.counts, strict=True):
            for mode, counts in zip(kind.modes, modes, strict=True):
                for chunk, count in enumerate(counts):
                    forward[chunk] += count * kind.forward
                    backward[chunk] += count * mode.backward
        return forward, backward

    def memory(self, problem: Problem, in_flight: tuple[tuple[tuple[int, ...], ...], ...]) -> list[float]:
        """Return the peak memory of every stage.

        Args:
            in_flight: for each stage, the numbers of micro-batches in flight per chunk that can be the peak.
        """
        keeps = [problem.fixed_of(chunk).keeps for chunk in range(problem.parts)]
        held = [0.0] * problem.stages
        for kind, modes in zip(problem.kinds, self.counts, strict=True):
            for mode, counts in zip(kind.modes, modes, strict=True):
                for chunk, count in enumerate(counts):
                    keeps[chunk] += count * mode.keeps
                    held[problem.stage_of(chunk)] += count * kind.memory
        peaks = []
        for stage in range(problem.stages):
            live = max(
                sum(number * keeps[virtual * problem.stages + stage] for virtual, number in enumerate(numbers))
                for numbers in in_flight[stage]
            )
            peaks.append(held[stage] + live)
        return peaks
