"""The whole problem, schedule included, as one mixed-integer program for other solvers (`--mps`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from launcher.balance.problem import Problem
from launcher.balance.program import Program, Terms
from launcher.outputs.files import write_output
from launcher.outputs.kinds import MARK, PROGRAM
from launcher.pipeline_schedule.precedence import precedence


def whole_program(problem: Problem) -> Program:
    """Return the program with a start time for every forward and backward instead of cuts."""
    steps = precedence(problem.schedule)
    program = Program(problem, steps)
    program.integral(True)
    start = [program.column(program.infinity, f"start_{n}", integer=False) for n in range(len(steps.chunk_of))]
    period = program.column(program.infinity, "period", integer=False)

    def after(terms: Terms, step: int, delay: float) -> None:
        """Require that Σ terms is at least the duration of a step plus a delay."""
        chunk = steps.chunk_of[step]
        duration: Terms = [(int(c), -float(program.growth[chunk, c])) for c in np.flatnonzero(program.growth[chunk])]
        program.row(float(program.base[chunk]) + delay, program.infinity, [*terms, *duration])

    for (first, second), sent in zip(steps.arcs, steps.sends, strict=True):
        after([(start[second], 1.0), (start[first], -1.0)], first, problem.transfer if sent else 0.0)
    for last, before in steps.period if steps.repeated else ():
        program.row(0.0, program.infinity, [(period, 1.0), (start[last], -1.0), (start[before], 1.0)])
    after([(program.time, 1.0), (start[steps.end], -1.0), (period, -float(steps.repeated))], steps.end, 0.0)
    return program


def write_mps(path: Path, problem: Problem) -> None:
    """Write the whole program as an MPS file.

    Raises:
        OutputRefused: another file exists at this path.
        OSError: the file cannot be written.
    """
    import highspy

    def write(temporary: Path) -> None:
        if whole_program(problem.checked()).solver.writeModel(str(temporary)) == highspy.HighsStatus.kError:
            raise OSError(f"{path}: cannot be written")
        # A line that begins with an asterisk is a comment.
        temporary.write_bytes(f"* {MARK}\n".encode() + temporary.read_bytes())

    write_output(path, write, PROGRAM)
