"""The stable Python API for notebooks and services: typed; only `run`, `Run.stop` and `convert` have side effects."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal

from launcher import pipeline
from launcher.compose import ComposeError
from launcher.compose import compose as _compose
from launcher.estimate import CannotEstimate, Estimate
from launcher.estimate import estimate as _estimate
from launcher.estimate import estimate_many as _estimate_many
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.job import Job
from launcher.job.finding import Finding, Findings
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.native import NativeArgs
from launcher.pipeline import Refused
from launcher.plan import LaunchPlan

if TYPE_CHECKING:
    from launcher.balance.solve_job import Answer as Balanced
    from launcher.convert.compare import Comparison
    from launcher.convert.report import Report as ConversionReport
    from launcher.importing.side_by_side import Row as Difference
    from launcher.port.port import PortResult
    from launcher.runs import Run
    from launcher.search.found import Found, SearchResult

__all__ = [
    "Backend",
    "CannotEstimate",
    "ComposeError",
    "Estimate",
    "Finding",
    "Findings",
    "ImportRefused",
    "Imported",
    "Job",
    "LaunchPlan",
    "NativeArgs",
    "Refused",
    "backend_names",
    "balance",
    "check",
    "compare_checkpoints",
    "compose",
    "convert",
    "diff",
    "estimate",
    "estimate_many",
    "get_backend",
    "import_argv",
    "import_file",
    "plan",
    "port",
    "run",
    "runs",
    "search",
    "translate",
]


def compose(overrides: Sequence[str], recipe: str | None = None, config_dirs: Sequence[str] = ()) -> Job:
    """Compose a job from overrides in Hydra's grammar and, optionally, a recipe by name or path.

    Raises:
        ComposeError: the overrides do not describe a job; lists every mistake and its location.
    """
    return _compose([*([f"+recipe={recipe}"] if recipe else []), *overrides], config_dirs)


def translate(job: Job, backend: str | None = None, version: str | None = None) -> NativeArgs:
    """Translate a job into a backend's native arguments; `check` reports what it cannot express.

    Raises:
        Refused: there is no such backend or version.
    """
    return pipeline.judge(_for(job, backend, version), fixes=False).native


def check(job: Job | Imported, strict: str | None = None) -> Findings:
    """Return all findings for a job, or for imported arguments as given, errors first.

    Args:
        strict: `all` or `upstream`, instead of the job's own `rules.strict`.

    Raises:
        Refused: there is no such backend or version.
    """
    import dataclasses

    if not isinstance(job, Job):
        from launcher.importing.judge import judge_existing

        return Findings(judge_existing(job, strict).findings)
    if strict is not None:
        job = dataclasses.replace(job, rules=dataclasses.replace(job.rules, strict=strict))
    return Findings(pipeline.judge(job).findings)


def plan(job: Job) -> LaunchPlan:
    """Return the launch plan: files, and the environment and command of every node.

    Raises:
        Refused: there is no such backend or version.
    """
    from launcher.runtime import planned

    outcome = pipeline.judge(job, fixes=False)
    return planned(outcome)


def import_argv(
    argv: Sequence[str],
    *,
    backend: str,
    version: str | None = None,
    env: Mapping[str, str] | None = None,
    world_size: int | None = None,
) -> Imported:
    """Convert a backend's native command line to a job.

    Args:
        argv: arguments of the entry point, or a full command with its launcher (`torchrun … SCRIPT …`).
        version: version that the arguments are for; None: the newest that accepts most of them.
        env: environment of the command; NNODES, NPROC_PER_NODE and the like describe the cluster.
        world_size: number of devices, if the command does not set it.

    Raises:
        ImportRefused: the arguments cannot be imported; lists every reason.
    """
    from launcher.importing.read_argv import read_argv

    return read_argv(argv, backend=backend, version=version, env=env, world_size=world_size)


def import_file(
    path: str | PathLike[str],
    *,
    backend: str | None = None,
    version: str | None = None,
    variables: Mapping[str, str] | None = None,
    world_size: int | None = None,
    partial: bool = False,
) -> Imported:
    """Read a script, a YAML or JSON configuration or an argument file and return the job of its training command.

    Args:
        backend, version: used instead of the detected ones.
        variables: values of shell variables that the script does not set.
        partial: return what can be imported instead of raising; the reasons are in `problems`.

    Raises:
        ImportRefused: the file cannot be imported; lists every reason and its location.
    """
    from launcher.importing.read_command import ImportOptions
    from launcher.importing.read_file import read_file

    options = ImportOptions(backend=backend, version=version, partial=partial, world_size=world_size)
    return read_file(str(path), options, variables=variables)[0]


def estimate(job: Job) -> Estimate:
    """Return memory, time and parameters of one optimizer step, and whether the job fits its devices.

    Raises:
        CannotEstimate: the job is inconsistent or lacks a size; has a finding for each mistake.
    """
    return _estimate(job)


def estimate_many(jobs: Iterable[Job]) -> list[Estimate | CannotEstimate]:
    """Return estimates of many jobs, thousands per second; a job that cannot run yields its `CannotEstimate`."""
    return _estimate_many(jobs)


def search(
    job: Job,
    *,
    backends: Sequence[str] = (),
    top: int = 10,
    progress: Callable[[int, int, "Found"], bool | None] | None = None,
) -> "SearchResult":
    """Search parallel sizes, micro-batch, recomputation and switches for the least step time within device memory.

    Takes seconds to minutes, by the number of layouts; times are in seconds of one optimizer step, memory in bytes.

    Args:
        backends: names of backends whose rules must all accept a candidate; empty: the job's own.
        top: candidates to return.
        progress: called after every layout with layouts done, all layouts, and what was found; False ends the search.

    Raises:
        CannotSearch: the job lacks a field that every layout needs, or has errors that no layout can fix.
        Refused: there is no such backend or version.
    """
    from launcher.search.begin import begin
    from launcher.search.found import SearchResult
    from launcher.search.remedies import remedies

    running = begin(job, backends, top=top)
    for done in running.run():
        if progress is not None and progress(done, len(running.layouts), running.found) is False:
            break
    if running.found.complete and not running.found.best:
        running.found.works = remedies(running, backends)
    return SearchResult(job=job, found=running.found)


def balance(
    job: Job, *, seconds: float = 60.0, gap: float = 1e-3, quick: bool = False, recompute: bool = True
) -> "Balanced":
    """Return the layers of each pipeline stage, and how many are recomputed, for the least step time within memory.

    `job` of the result is the balanced job, `after` its estimate, `times` the seconds of a step before and after.

    Args:
        seconds: time limit of the solver.
        gap: relative distance to the proven bound at which it stops.
        quick: local search alone, with the bound of the linear program.
        recompute: also choose recomputation; False keeps the job's.

    Raises:
        Infeasible: no split fits the devices.
        CannotEstimate, BadProblem: the job's pipeline cannot be balanced; one stage, for instance.
        ModuleNotFoundError: `pip install 'launch-llm[search]'`.
    """
    from launcher.balance.solve_job import balance_job

    return balance_job(job, seconds=seconds, gap=gap, quick=quick, recompute=recompute)


def port(job: Job, backend: str, version: str | None = None) -> "PortResult":
    """Return a job written or imported for one backend on another: `job`, and `findings` on what was dropped and why.

    Fields are kept; native arguments are passed through under the target's name, expressed by a field, or reported.

    Args:
        version: of the target; None: its default.

    Raises:
        Refused: there is no such backend or version.
    """
    from launcher.port.port import sent

    chosen, number = pipeline.chosen_backend(_for(job, backend, version))
    return sent(job, chosen, number)


def diff(a: Job, b: Job) -> "list[Difference]":
    """Return what two jobs differ in, each on its own backend with that backend's defaults; empty: nothing.

    Those that affect training come first. Each has its `path`, and in `effects` the values of `a` and `b`.

    Raises:
        Refused: a job names no backend, or there is no such backend or version.
    """
    from launcher.importing.side_by_side import side_by_side, side_of

    # Equal jobs on two backends are one job: what a backend leaves open is no difference between them.
    ids = ("job", "job") if _without_backend(a) == _without_backend(b) else ("a", "b")
    return side_by_side([side_of(a, "a", job_id=ids[0]), side_of(b, "b", job_id=ids[1])])


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    *,
    model: str | PathLike[str] | None = None,
    job: Job | None = None,
    source_job: Job | None = None,
    backend: str | None = None,
    format: str | None = None,
    dtype: Literal["bf16", "fp16", "fp32"] | None = None,
    verify: bool = True,
    overwrite: bool = False,
    workers: int | None = None,
) -> "ConversionReport":
    """Convert a checkpoint to another format or layout: writes the folder `out`, complete or not at all.

    Args:
        source: Hugging Face model or training checkpoint.
        model: folder with config.json and tokenizer, where a training checkpoint lacks them.
        job: its parallel layout is written; None: one rank, or as the format has it.
        source_job: layout of the source, where its files do not record it.
        backend: write the format that this backend loads; None: the job's, if it names one.
        format: `hf`, `torch_dist`, `legacy` …; None: the backend's own, without one torch_dist.
        dtype: cast floating point tensors; None: none is cast.
        verify: compare every byte of the result with the source.
        overwrite: replace a conversion or checkpoint at `out`; other folders are never replaced.
        workers: threads; None: one for every two processors, at most 8.

    Returns:
        Tensors and bytes read and written, seconds, and whether all bytes were compared.

    Raises:
        ConvertError: it cannot be converted, or the result differs; nothing is left at `out`.
        ModuleNotFoundError: `pip install 'launch-llm[convert]'`.
    """
    from pathlib import Path

    from launcher.convert.asked import Asked
    from launcher.convert.convert import execute, prepare
    from launcher.convert.formats import format_in
    from launcher.convert.request import request
    from launcher.rules.passthrough import with_passthrough

    path = Path(source).expanduser()
    is_model = format_in(path).kind == "hf"
    asked = Asked(
        out=str(out),
        to_hf=format == "hf",
        model=str(path) if is_model else None if model is None else str(model),
        checkpoint=None if is_model else str(path),
        job=None if job is None else with_passthrough(job, and_arguments=True),
        source_job=None if source_job is None else with_passthrough(source_job, and_arguments=True),
        backend=backend,
        format=None if format == "hf" else format,
        dtype=dtype,
        verify=verify,
        overwrite=overwrite,
        workers=workers,
    )
    with request(asked) as conversion:
        return execute(prepare(conversion), quiet=True)


def compare_checkpoints(
    left: str | PathLike[str], right: str | PathLike[str], *, model: str | PathLike[str] | None = None
) -> "Comparison":
    """Compare all values of two checkpoints of one model, whatever their formats and layouts.

    Args:
        model: folder with config.json, where neither has one.

    Returns:
        `outcome`: `equal`, `equal_after_rounding` or `different`, with the differences in `problems`.

    Raises:
        ConvertError: a folder has no checkpoint that can be read.
    """
    from pathlib import Path

    from launcher.convert.compare import between
    from launcher.convert.model import config_folder, model_in

    one, other = Path(left).expanduser(), Path(right).expanduser()
    named = None if model is None else Path(model).expanduser()
    return between(one, other, model_in(config_folder([named, one, other])), quiet=True)


def run(job: Job) -> "Run":
    """Start a job, and return once it runs here or waits in its queue: writes its output folder, starts processes.

    It is checked as `launch run` does and continues when this process ends; `wait`, `status`, `logs` and `stop`
    of the result follow it.

    Raises:
        NotStarted: it is refused or cannot start here; has the findings.
    """
    from launcher.runs import start

    return start(job)


def runs() -> "list[Run]":
    """Return the runs that this user started on this machine, oldest first."""
    from launcher.runs import runs as found

    return found()


def _for(job: Job, backend: str | None, version: str | None) -> Job:
    import dataclasses

    if backend is None and version is None:
        return job
    choice = dataclasses.replace(job.backend, name=backend or job.backend.name, version=version)
    return dataclasses.replace(job, backend=choice)


def _without_backend(job: Job) -> Job:
    import dataclasses

    return dataclasses.replace(job, backend=type(job.backend)(), imported=type(job.imported)())
