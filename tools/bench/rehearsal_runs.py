"""Rehearses jobs by the plans of `launch run`, in forks of a process with megatron-core imported; compares losses."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.compose import compose
from launcher.compose.errors import ComposeError
from launcher.executors.local.run import run
from launcher.pipeline import Outcome, judge
from launcher.plan import LaunchPlan, NodePlan
from launcher.rehearse.cpu.recorder import VARIABLE
from launcher.rehearse.refusal import RehearsalRefused
from launcher.runtime import planned
from tests.rehearse.core.core_world import Zygote
from tools.bench.rehearsal_layouts import KINDS, SIZE, Layout, overrides

LOSS_TOLERANCE = 1e-5
"""Largest absolute difference of a loss (about 6). float32 rounds a loss to 5e-7; sums in another order move it by a
few of these, and each step of Adam passes the difference on to the weights. A layout that trains something else is off
by 1e-3 and more in the first steps."""
NORM_TOLERANCE = 1e-4
"""Largest relative difference of a gradient norm: a sum of squares over all weights, whose rounding is larger."""
LIMIT_S = 420.0
EQUAL, TRAINED = "equal", "trained"
REFUSED, NOT_REHEARSED = "refused by check", "refused by the rehearsal"
DIFFERS, FAILED, WARNED = "differs", "failed", "differs as a warning says"
WARNINGS = frozenset({"MLM-MTP-CP-MEAN", "MLM-BALANCE-SHARE"})
"""Warnings of `launch check` that a layout does not train like one process."""
BAD = (DIFFERS, FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a job: the verdict, its reason or what was seen, and the largest differences from one process."""

    verdict: str
    seen: str
    loss: float | None = None
    norm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What a rehearsal reported."""

    losses: Sequence[float]
    norms: Sequence[float]
    parameters: int
    processes: int
    native: bool = False
    """Whether the backend itself trained it."""


class NoTraining(Exception):
    """A job that was refused or whose training failed."""

    def __init__(self, verdict: str, seen: str) -> None:
        super().__init__(f"{verdict}: {seen}")
        self.result = Result(verdict=verdict, seen=seen)


def checked(words: Sequence[str]) -> Outcome:
    """Return what `launch check` judges.

    Raises:
        NoTraining: it refuses the job.
    """
    try:
        outcome = judge(compose(list(words)), fixes=False)
    except ComposeError as error:
        raise NoTraining(REFUSED, str(error).splitlines()[0]) from None
    errors = [finding for finding in outcome.findings if finding.severity == "error"]
    if errors:
        raise NoTraining(REFUSED, "; ".join(f"{each.rule}: {each.message}" for each in errors))
    return outcome


class Rehearsals:
    """Trains jobs on the real megatron-core, on CPU and gloo, in folders below one."""

    def __init__(self, zygote: Zygote, folder: Path) -> None:
        self.zygote, self.folder, self._count = zygote, folder, 0
        self._alone: dict[tuple[str, str], Training] = {}

    def train(self, words: Sequence[str], shortened: Sequence[str] = ()) -> Training:
        """Train a job that `launch check` accepts, by the plan of its rehearsal.

        Args:
            shortened: overrides of the rehearsal only.

        Raises:
            NoTraining: it is refused, or its training fails.
        """
        self._count += 1
        out = self.folder / f"job{self._count}"
        checked(words)
        here = ("runtime=rehearsal", "rehearse.entry=core", f"output_dir={out}")
        plan = _planned([*words, *shortened, *here])
        (node,) = plan.nodes
        argv = list(node.argv)
        processes = int(argv[argv.index("--nproc_per_node") + 1]) if "--nproc_per_node" in argv else 1
        options = self.folder / f"job{self._count}.json"
        options.write_text(plan.files[0].content, encoding="utf-8")
        args = ["--options", str(options), "--", *argv[argv.index("--") + 1 :]]
        codes, output = self.zygote.call("launcher.rehearse.core.__main__:main", args, ranks=processes, limit_s=LIMIT_S)
        if any(codes):
            raise NoTraining(FAILED, f"exit codes {codes}: {_reason(output)}")
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        shutil.rmtree(out)
        return Training(
            losses=result["losses"],
            norms=result["grad_norms"],
            parameters=result["parameters"],
            processes=processes,
        )

    def train_native(self, words: Sequence[str], python: Path) -> Training:
        """Train a job that the embedded trainer refuses by the backend itself, as `native_training` does."""
        self._count += 1
        return native_training(words, self.folder / f"job{self._count}", python)

    def alone(self, kind: str, training: str) -> Training:
        """Return the training of a kind of model on one process, run when it is asked for first."""
        key = kind, training
        if key not in self._alone:
            self._alone[key] = self.train(job_of(kind, Layout(words="", training=training)))
        return self._alone[key]

    def compare(self, kind: str, layout: Layout) -> Result:
        """Train a layout and compare it with one process."""
        try:
            found = self.train(job_of(kind, layout))
        except NoTraining as error:
            return error.result
        try:
            alone = self.alone(kind, layout.training)
        except NoTraining as error:
            return Result(verdict=FAILED, seen=f"one process: {error}")
        loss = max(abs(one - other) for one, other in zip(found.losses, alone.losses, strict=True))
        norm = max(abs(one - other) / other for one, other in zip(found.norms, alone.norms, strict=True))
        warnings = {finding.rule for finding in checked(job_of(kind, layout)).findings} & WARNINGS
        same = loss <= LOSS_TOLERANCE and norm <= NORM_TOLERANCE and found.parameters == alone.parameters
        return Result(
            verdict=EQUAL if same else WARNED if warnings else DIFFERS,
            seen=f"{found.processes} processes, {len(found.losses)} iterations, loss {found.losses[-1]:.6f}"
            + (
                ""
                if same
                else f", one process {alone.losses[-1]:.6f}, {found.parameters} of {alone.parameters} weights"
            ),
            loss=loss,
            norm=norm,
        )


def native_training(words: Sequence[str], folder: Path, python: Path) -> Training:
    """Train a shrunken job by the backend itself, where `rehearse.shrink` chooses it.

    Args:
        words: overrides, `rehearse.shrink=true` among them.
        folder: of the run; is removed where it ends well.
        python: interpreter of the ranks, with the backend.

    Raises:
        NoTraining: the backend cannot run there, or its training fails.
    """
    plan = _planned([*words, f"output_dir={folder}/run", f"cluster.python={python}"])
    folder.mkdir(exist_ok=True)
    record = folder / "recorded.jsonl"
    nodes = [replace(node, env={**node.env, VARIABLE: str(record)}) for node in plan.nodes]
    ended = run(replace(plan, nodes=tuple(nodes)), quiet=True)
    if ended.code or not record.exists():
        raise NoTraining(FAILED, f"exit code {ended.code}: {_reason(ended.log.read_text(errors='replace'))}")
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    shutil.rmtree(folder)
    return Training(
        losses=[line["loss"] for line in lines],
        norms=[line["grad_norm"] for line in lines],
        parameters=0,  # not reported
        native=True,
        processes=_processes(nodes[0]),
    )


def _processes(node: NodePlan) -> int:
    """Return how many ranks a node starts: by torchrun's option, or by the variable that ms-swift's starter reads."""
    words = list(node.argv)
    option = "--nproc_per_node"
    return int(words[words.index(option) + 1] if option in words else node.env["NPROC_PER_NODE"])


def _planned(words: Sequence[str]) -> LaunchPlan:
    """Return the plan of a rehearsal.

    Raises:
        NoTraining: `launch check` or the rehearsal refuses the job.
    """
    try:
        return planned(checked(words))
    except RehearsalRefused as error:
        raise NoTraining(NOT_REHEARSED, str(error)) from None


def job_of(kind: str, layout: Layout) -> list[str]:
    """Return the overrides of a kind of model with a layout; those of one process if it has no words."""
    return [*KINDS[kind].split(), *SIZE.split(), *layout.training.split(), *overrides(layout.words)]


def _reason(output: str) -> str:
    """Return the last line of an output that names an exception, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error:") or "Error" in line.partition(":")[0]]
    first = [line for line in errors if "closed by peer" not in line and "reset by peer" not in line]
    return (first or errors or lines or ["no output"])[-1][:300]


def as_result(values: Mapping[str, object]) -> Result:
    """Return a result that was saved."""
    return Result(**values)  # type: ignore[arg-type]
