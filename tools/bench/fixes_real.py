"""Asks the backends' own validators about mended jobs."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from launcher.job import Job, with_values
from launcher.pipeline import judge
from tests.backends import verdicts
from tests.backends.users_path import UsersPath
from tools.bench.fixes_result import Result


def ask(results: Sequence[Result], jobs: Mapping[str, Job], folder: Path, megatron_lm: str | None) -> None:
    """Set the real validator's message for each accepted job, where there is one for its version.

    Megatron-SWIFT 4.6.0 and MindFormers 1.6.0 stand in the tests' environments; Megatron-LM is a checkout.
    """
    for backend in {result.backend for result in results}:
        own = {result.name: jobs[result.name] for result in results if result.backend == backend and result.accepted}
        answers = _answers(backend, own, folder, megatron_lm)
        for result in results:
            if result.name in answers:
                result.real = answers[result.name]


def _answers(backend: str, jobs: Mapping[str, Job], folder: Path, megatron_lm: str | None) -> dict[str, str]:
    if backend == "megatron":
        return _swift(jobs, folder)
    if backend == "mindformers":
        return _mindformers(jobs, folder / "mindformers")
    if backend == "megatron_lm" and megatron_lm is not None:
        return _megatron_lm(jobs, megatron_lm)
    return {}


def _swift(jobs: Mapping[str, Job], folder: Path) -> dict[str, str]:
    from tests.backends.megatron.verdicts import compare, validator
    from tests.rehearse.native.environments import swift_python

    # Samples of our own are written when training starts; the validator wants a data set's name.
    named = {
        name: with_values(job, {"data.format": "hub", "data.paths": ("owner/data",)})
        if job.data.format == "sample"
        else job
        for name, job in jobs.items()
    }
    found = compare(named.items(), UsersPath(folder=folder / "swift"), validator(swift_python()))
    return {each.name: _said(each) for each in found if not each.ours}


def _mindformers(jobs: Mapping[str, Job], folder: Path) -> dict[str, str]:
    from backends.mindformers.launch import launch
    from tests.backends.mindformers.verdicts import validator
    from tests.rehearse.native.environments import mindformers_1_6_python

    folder.mkdir()
    cases, names = [], []
    for name, job in jobs.items():
        outcome = judge(with_values(job, {"backend.version": "1.6.0"}), fixes=False)
        if not outcome.ok:
            continue
        content = launch(outcome.job, outcome.native).files[0].content
        path = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:16]}.yaml"
        path.write_text(content, encoding="utf-8")
        cases.append([str(path), outcome.job.cluster.world_size])
        names.append(name)
    answers = verdicts.ask(validator(mindformers_1_6_python(), folder), cases)
    return {name: reported or "" for name, reported in zip(names, answers, strict=True)}


def _megatron_lm(jobs: Mapping[str, Job], checkout: str) -> dict[str, str]:
    from launcher.mapping.backend import get_backend
    from tests.backends.megatron_lm.verdicts import LATER, MACHINE, validator

    backend = get_backend("megatron_lm")
    judged = {name: judge(job, fixes=False) for name, job in jobs.items()}
    cases = [
        {"argv": list(backend.argv(each.native)), "world_size": each.job.cluster.world_size} for each in judged.values()
    ]
    answers = verdicts.ask(validator("megatron_lm", [checkout]), cases)
    return {
        name: _said(verdicts.Verdict(name=name, ours=(), real=reported or None, later=LATER, machine=MACHINE))
        for name, reported in zip(judged, answers, strict=True)
    }


def _said(verdict: verdicts.Verdict) -> str:
    return "" if verdict.real is None or verdict.kind == "machine" else verdict.real
