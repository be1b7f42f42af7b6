"""Refuses, before anything is made, jobs that a backend would refuse, and names what works: each was tried."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from launcher.compose import ComposeError
from launcher.job import Job, Origin, with_values
from launcher.job.finding import Finding
from launcher.mapping.backend import backend_names
from launcher.parity.request import Request
from launcher.parity.samples import reference_lacks
from launcher.parity.sides import SHARED, CannotCompare, Side, check_means, is_set_here, on_shared, side_of
from launcher.pipeline import judge
from launcher.rehearse.plan import rehearsal_plan
from launcher.rehearse.refusal import RehearsalRefused

_MOST_BACKENDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    """A side and the errors for which its backend does not train the small job."""

    side: Side
    job: Job
    errors: tuple[Finding, ...]

    @property
    def shown(self) -> Sequence[Finding]:
        """The errors about what the user wrote; if there are none, those about what the comparison gives to all."""
        return [each for each in self.errors if not _is_ours(self.job, each)] or self.errors


def check_jobs(request: Request, sides: Sequence[Side], folder: Path) -> None:
    """Refuse a job that a side does not train.

    Args:
        folder: where the comparison will be written; nothing has to be there.

    Raises:
        CannotCompare: with the errors, and with changes of the command line that leave none.
    """
    refused = list(_refused(sides, folder))
    if not refused:
        return
    labels = " and ".join(each.side.label for each in refused)
    job = refused[0].job
    errors = [_with_helpful_fixes(request, each, error, folder) for each in refused for error in each.shown]
    why = f"the small job is refused on {labels}"
    if all(_is_ours(each.job, error) for each in refused for error in each.shown):
        why += f", which cannot read the samples or weights that all sides of task.type={job.task.type} share"
    names = [each.side.backend.name for each in refused]
    raise CannotCompare(why, *_works(request, names, job, folder), findings=errors, job=job)


def _refused(sides: Sequence[Side], folder: Path) -> Iterator[_Refused]:
    """Yield the sides that refuse their job, which is what it will be once model and data are made."""
    for side in sides:
        job = _future(side, folder)
        outcome = judge(job)
        errors = [each for each in outcome.findings if each.severity == "error"]
        if not errors and side.entry == "native":
            try:
                rehearsal_plan(outcome, {**os.environ, **side.environ})
            except RehearsalRefused as refused:
                errors = list(refused.findings)
        if errors:
            yield _Refused(side=side, job=job, errors=tuple(errors))


def _future(side: Side, folder: Path) -> Job:
    job = on_shared(side, model=folder / SHARED / "model", data=folder / "data", folder=folder / side.backend.name)
    # As on the command line of the run, before which the conversion writes that folder.
    return with_values(job, {"checkpoint.load": job.checkpoint.load}, Origin(kind="override"))


def _is_ours(job: Job, error: Finding) -> bool:
    """Return whether an error is about values that the comparison sets itself: no override changes them."""
    return bool(error.fields) and all(is_set_here(job, path) for path in error.fields)


def _with_helpful_fixes(request: Request, refused: _Refused, error: Finding, folder: Path) -> Finding:
    """Return an error with those fixes after which only errors are left that have fixes of their own."""
    if _is_ours(refused.job, error):
        return replace(error, fixes=())
    curable = {(each.rule, each.fields) for each in refused.errors if each.fixes and each != error}

    def helps(overrides: Sequence[str]) -> bool:
        changed = replace(
            request, overrides=[*request.overrides, *overrides], backends=[refused.side.label.partition(" ")[0]]
        )
        left = _left(changed, folder)
        return left is not None and all((each.rule, each.fields) in curable for each in left)

    return replace(error, fixes=tuple(fix for fix in error.fixes if helps(fix.overrides)))


def _left(request: Request, folder: Path) -> list[Finding] | None:
    """Return the errors of a request, whether or not its backends are installed here; None: it is no comparison."""
    try:
        sides = [
            side_of(
                request.overrides,
                name,
                entry=request.entry or "native",
                python=request.pythons.get(name.partition("@")[0]),
                environ=request.environs.get(name.partition("@")[0], {}),
                config_dirs=request.config_dirs,
                iterations=request.iterations,
            )
            for name in request.backends
        ]
        if request.reference is None:
            check_means(sides)
        jobs = [_future(side, folder) for side in sides]
    except (CannotCompare, ComposeError):
        return None
    if request.reference is not None and reference_lacks(sides[0].job):
        return None
    judged = (judge(job, fixes=False) for job in jobs)
    return [each for outcome in judged for each in outcome.findings if each.severity == "error"]


def _works(request: Request, refused: Sequence[str], job: Job, folder: Path) -> list[str]:
    """Return changes of the command line with which no side refuses the job, those that keep the training first."""

    same = list(islice(not_refused(_other_backends(request, refused, job), folder), _MOST_BACKENDS))
    return [*same, *not_refused(_other_trainings(request, job), folder)]


def not_refused(candidates: Iterable[tuple[str, Request]], folder: Path) -> Iterator[str]:
    """Yield the words of those changed requests whose job no side refuses."""
    yield from (words for words, changed in candidates if _left(changed, folder) == [])


def _other_backends(request: Request, refused: Sequence[str], job: Job) -> Iterator[tuple[str, Request]]:
    kept = [name for name in request.backends if name.partition("@")[0] not in refused]
    known = {name.partition("@")[0] for name in request.backends}
    others = [name for name in backend_names() if name not in known]
    if request.reference is None and kept:
        for backends in ([*kept, *added] for added in ((), *((name,) for name in others))):
            if len(backends) > 1:
                yield f"--backends {','.join(backends)}", replace(request, backends=backends)
        yield (
            f"--backends {','.join(kept)} --reference transformers",
            replace(request, backends=kept, reference="transformers"),
        )
        return
    if job.lora.rank is not None and not kept:
        for name in others:  # the embedded trainer translates another backend's LoRA (choose.py, _with_entry)
            yield f"--backends {name} --entry core", replace(request, backends=[name], entry="core")
    for backends in [kept] if kept else ([name] for name in others):
        yield f"--backends {','.join(backends)}", replace(request, backends=backends)


def _other_trainings(request: Request, job: Job) -> Iterator[tuple[str, Request]]:
    plain = ["task=pretrain"] if job.task.type != "pretrain" else []
    plain += ["lora.rank=null"] if job.lora.rank is not None else []
    if plain:
        words = f"{' '.join(plain)} (changes training)"
        yield words, replace(request, overrides=[*request.overrides, *plain])
