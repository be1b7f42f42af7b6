"""All checks, for a job or for a machine."""

import dataclasses
import os
from collections.abc import Iterator, Mapping

from launcher.catalogue.requirements import Needed
from launcher.doctor.check import ERROR, OK, SKIPPED, WARNING, Check
from launcher.doctor.data import global_batch, paths
from launcher.doctor.hosts import of_nodes
from launcher.doctor.machine import devices, disk, rendezvous
from launcher.doctor.software import software
from launcher.doctor.trackers import wandb
from launcher.executors.failure import CannotStart
from launcher.executors.forwarded_env import ASSIGNED
from launcher.executors.local.run import check_references
from launcher.installed import installed
from launcher.mapping.backend import Backend
from launcher.pipeline import Outcome
from launcher.plan import LaunchPlan
from launcher.plan.executor import get_executor
from launcher.rules.data_files import ID as DATA_FILE
from launcher.runtime import asks_for_rehearsal, devices_seen, on_devices

_TRACKED = "logging.wandb_project"
# What the embedded trainer imports; the backend's own entry point is checked when it is planned.
_REHEARSAL = tuple(
    Needed(name=name, install="pip install 'launch-llm[rehearsal]'", source="pyproject.toml, extra rehearsal")
    for name in ("torch", "megatron-core")
)


def of_job(
    outcome: Outcome, environ: Mapping[str, str] = os.environ, *, forced: bool = False, asks_hosts: bool | None = None
) -> list[Check]:
    """Return checks of what prevents, or may prevent, a run of a job, as far as visible from this machine.

    Args:
        forced: the user requested a native run here, so devices that are not detected are no error.
        asks_hosts: `of_hosts` follows, which checks the software; None: if the executor's hosts can be asked.
    """
    if asks_hosts is None:
        asks_hosts = get_executor(outcome.job.cluster.executor).asks_hosts
    return list(_of_job(outcome, environ, forced, asks_hosts))


def _of_job(outcome: Outcome, environ: Mapping[str, str], forced: bool, asks_hosts: bool) -> Iterator[Check]:
    backend = outcome.backend
    job = on_devices(outcome.job, backend)
    executor = get_executor(job.cluster.executor)
    here, rehearsed = executor.here, asks_for_rehearsal(job)
    if job.cluster.container is not None:
        image = f"that of {job.cluster.container} is not checked from here"
        yield Check(what="software", verdict=SKIPPED, found=image)
    elif rehearsed:
        yield from _rehearsal(job.cluster.python)
    elif not asks_hosts:
        device, python = job.hardware.device, job.cluster.python
        values = {**environ, **job.backend.env}
        yield from software(backend, outcome.version, device=device, python=python, environ=values, starts_here=here)
    if here and not rehearsed:
        yield devices(job, supported=backend.devices, forced=forced)
        yield from rendezvous(job)
        if job.cluster.container is None and _TRACKED not in backend.table(outcome.version).unsupported:
            yield from wandb(job, environ)
    yield from disk(job, here=here)
    yield from paths(job, here=here, mounted=executor.mounted(job))
    yield from _doubts(outcome)
    yield from global_batch(job, here=here)


def _doubts(outcome: Outcome) -> Iterator[Check]:
    """Yield the warnings of `launch check` on data files; errors are shown as they are there."""
    for finding in outcome.findings:
        if finding.rule == DATA_FILE and finding.severity == "warning":
            works = " · ".join(fix.shown for fix in finding.fixes)
            yield Check(
                what=finding.fields[0], verdict=WARNING, found=finding.message, works=works, source=finding.source
            )


def _rehearsal(python: str | None) -> Iterator[Check]:
    """Yield what the embedded trainer needs."""
    found = installed([each.name for each in _REHEARSAL], python)
    for each in _REHEARSAL:
        here = found.versions.get(each.name)
        if here is not None:
            yield Check(what=each.name, verdict=OK, found=here, source=each.source)
        elif found.problem:
            yield Check(what=each.name, verdict=SKIPPED, found=found.problem)
        else:
            where = f"is not installed for {python or 'this Python'}"
            yield Check(what=each.name, verdict=ERROR, found=where, works=each.install, source=each.source)


def of_hosts(
    outcome: Outcome, plan: LaunchPlan, environ: Mapping[str, str] = os.environ, *, allocate: bool = False
) -> list[Check]:
    """Return what is missing on the hosts of a plan, and their differences; empty if the hosts are not known.

    Args:
        allocate: hosts that only a queue knows are allocated for the question.
    """
    backend = outcome.backend
    job = on_devices(outcome.job, backend)
    device: str | None = job.hardware.device
    if asks_for_rehearsal(job):
        backend, device = dataclasses.replace(backend, support=_REHEARSAL, requires=()), None
    return list(of_nodes(plan, backend, outcome.version, environ, device=device, allocate=allocate))


def of_executor(plan: LaunchPlan) -> list[Check]:
    """Return whether the system that runs a plan accepts it, and what it warns of; nothing of this machine itself."""
    executor = get_executor(plan.start.executor)
    if executor.here:
        return []
    what = executor.title
    try:
        unset = "" if executor.own_environment else check_references(plan, ASSIGNED)
        if unset:
            return [Check(what="variables", verdict=ERROR, found=unset)]
        warnings = executor.preflight(plan)
    except CannotStart as error:
        return [Check(what=what, verdict=ERROR, found=error.reason, works=" · ".join(error.works))]
    made = [Check(what=what, verdict=WARNING, found=warning) for warning in warnings]
    return made or [Check(what=what, verdict=OK, found="it accepts the job")]


def of_machine(backend: Backend) -> list[Check]:
    """Return checks of a backend on this machine: its software, and devices that it supports."""
    seen = {kind: devices_seen(kind, os.environ) for kind in backend.devices}
    here = [kind for kind, count in seen.items() if count]
    found = ", ".join(f"{count} {kind}" for kind, count in seen.items())
    checks = software(backend, backend.default_version, device=here[0] if here else None, environ=os.environ)
    works = "" if here else f"a machine with {' or '.join(backend.devices)} devices and their driver"
    return [*checks, Check(what="devices", verdict=OK if here else ERROR, found=found, works=works)]
