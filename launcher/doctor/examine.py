"""All checks, for a job or for a machine."""

import os
from collections.abc import Iterator, Mapping

from launcher.doctor.check import ERROR, OK, Check
from launcher.doctor.data import global_batch, paths
from launcher.doctor.hosts import same_everywhere
from launcher.doctor.machine import devices, devices_seen, disk, rendezvous
from launcher.doctor.software import software
from launcher.mapping.backend import Backend
from launcher.pipeline import Outcome
from launcher.plan import LaunchPlan
from launcher.plan.executor import get_executor


def of_job(outcome: Outcome, environ: Mapping[str, str] = os.environ, *, forced: bool = False) -> list[Check]:
    """Return checks of what prevents, or may prevent, a native run of a job, as far as visible from this machine.

    Args:
        forced: the user requested a native run here, so devices that are not detected are no error.
    """
    return list(_of_job(outcome, environ, forced))


def _of_job(outcome: Outcome, environ: Mapping[str, str], forced: bool) -> Iterator[Check]:
    job, backend = outcome.job, outcome.backend
    here = get_executor(job.cluster.executor).here
    if job.cluster.container is None:
        device, python = job.hardware.device, job.cluster.python
        yield from software(backend, outcome.version, device=device, python=python, environ=environ)
    if here:
        yield devices(job, supported=backend.devices, forced=forced)
        yield from rendezvous(job)
    yield from disk(job, here=here)
    yield from paths(job, here=here)
    yield from global_batch(job, here=here)


def of_hosts(outcome: Outcome, plan: LaunchPlan, environ: Mapping[str, str] = os.environ) -> list[Check]:
    """Return differences between the hosts that a plan names; empty if it names none."""
    return list(same_everywhere(plan, outcome.backend, outcome.version, environ))


def of_machine(backend: Backend, environ: Mapping[str, str] = os.environ) -> list[Check]:
    """Return checks of a backend on this machine: its software, and devices that it supports."""
    seen = {kind: devices_seen(kind, environ) for kind in backend.devices}
    here = [kind for kind, count in seen.items() if count]
    found = ", ".join(f"{count} {kind}" for kind, count in seen.items())
    checks = software(backend, backend.default_version, device=here[0] if here else None, environ=environ)
    works = "" if here else f"a machine with {' or '.join(backend.devices)} devices and their driver"
    return [*checks, Check(what="devices", verdict=OK if here else ERROR, found=found, works=works)]
