"""The stable Python API for notebooks and services: typed, without side effects."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike

from launcher import pipeline
from launcher.compose import ComposeError
from launcher.compose import compose as _compose
from launcher.estimate import CannotEstimate, Estimate
from launcher.estimate import estimate as _estimate
from launcher.estimate import estimate_many as _estimate_many
from launcher.importing.imported import Imported
from launcher.importing.notes import ImportRefused
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.mapping.backend import Backend, backend_names, get_backend
from launcher.mapping.native import NativeArgs
from launcher.plan import LaunchPlan

__all__ = [
    "Backend",
    "CannotEstimate",
    "ComposeError",
    "Estimate",
    "Finding",
    "ImportRefused",
    "Imported",
    "Job",
    "LaunchPlan",
    "NativeArgs",
    "backend_names",
    "check",
    "compose",
    "estimate",
    "estimate_many",
    "get_backend",
    "import_argv",
    "import_file",
    "plan",
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
        pipeline.Refused: there is no such backend or version.
    """
    return pipeline.judge(_for(job, backend, version), fixes=False).native


def check(job: Job | Imported, strict: str | None = None) -> list[Finding]:
    """Return all findings for a job, or for imported arguments as given, errors first.

    Args:
        strict: `all` or `upstream`, instead of the job's own `rules.strict`.

    Raises:
        pipeline.Refused: there is no such backend or version.
    """
    import dataclasses

    if not isinstance(job, Job):
        from launcher.importing.judge import judge_existing

        return list(judge_existing(job, strict).findings)
    if strict is not None:
        job = dataclasses.replace(job, rules=dataclasses.replace(job.rules, strict=strict))
    return list(pipeline.judge(job).findings)


def plan(job: Job) -> LaunchPlan:
    """Return the launch plan: files, and the environment and command of every node.

    Raises:
        pipeline.Refused: there is no such backend or version.
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


def _for(job: Job, backend: str | None, version: str | None) -> Job:
    import dataclasses

    if backend is None and version is None:
        return job
    choice = dataclasses.replace(job.backend, name=backend or job.backend.name, version=version)
    return dataclasses.replace(job, backend=choice)
