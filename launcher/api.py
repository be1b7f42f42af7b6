"""The stable Python API for notebooks and services: typed, without side effects."""

from collections.abc import Sequence

from launcher import pipeline
from launcher.compose import ComposeError
from launcher.compose import compose as _compose
from launcher.job import Job
from launcher.plan import LaunchPlan
from launcher.rules.finding import Finding
from launcher.translate.backend import Backend, backend_names, get_backend
from launcher.translate.native import NativeArgs

__all__ = [
    "Backend",
    "ComposeError",
    "Finding",
    "Job",
    "LaunchPlan",
    "NativeArgs",
    "backend_names",
    "check",
    "compose",
    "get_backend",
    "plan",
    "translate",
]


def compose(overrides: Sequence[str], recipe: str | None = None, config_dirs: Sequence[str] = ()) -> Job:
    """Compose a job from overrides in Hydra's grammar and, optionally, a recipe by name or path.

    Raises:
        ComposeError: the words do not describe a job; holds every mistake with its place.
    """
    return _compose([*([f"+recipe={recipe}"] if recipe else []), *overrides], config_dirs)


def translate(job: Job, backend: str | None = None, version: str | None = None) -> NativeArgs:
    """Translate a job into a backend's own arguments; what it cannot express is told by `check`.

    Raises:
        pipeline.Refused: there is no such backend or version.
    """
    return pipeline.judge(_for(job, backend, version), fixes=False).native


def check(job: Job, strict: str | None = None) -> list[Finding]:
    """Return every finding about a job on its backend, errors first.

    Args:
        strict: `all` or `upstream`, instead of the job's own `rules.strict`.

    Raises:
        pipeline.Refused: there is no such backend or version.
    """
    import dataclasses

    if strict is not None:
        job = dataclasses.replace(job, rules=dataclasses.replace(job.rules, strict=strict))
    return list(pipeline.judge(job).findings)


def plan(job: Job) -> LaunchPlan:
    """Return what would run: files, and environment and command of every node.

    Raises:
        pipeline.Refused: there is no such backend or version.
    """
    from launcher.runtime import planned

    outcome = pipeline.judge(job, fixes=False)
    return planned(outcome)


def _for(job: Job, backend: str | None, version: str | None) -> Job:
    import dataclasses

    if backend is None and version is None:
        return job
    choice = dataclasses.replace(job.backend, name=backend or job.backend.name, version=version)
    return dataclasses.replace(job, backend=choice)
