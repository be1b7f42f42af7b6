"""Hardware with which a job has a step time, of those that ship: what is offered where the job names none."""

from collections.abc import Iterator

from launcher.estimate.estimate import CannotEstimate, estimate
from launcher.job import Job, with_values
from launcher.job.shipped import hardware_for, shipped_hardware
from launcher.mapping.backend import backend_names, get_backend


def timed_hardware(job: Job) -> Iterator[str]:
    """Yield overrides with which the job has a step time: the machine itself first, then others that it runs on."""
    backend = job.backend.name
    devices = get_backend(backend).devices if backend in backend_names() else (job.hardware.device,)
    names = sorted(
        hardware_for(devices, job.cluster.devices_per_node, timed=True),
        key=lambda name: shipped_hardware()[name].get("name") != job.hardware.name,
    )
    yield from (f"hardware={name}" for name in names if _gives_time(job, name))


def _gives_time(job: Job, hardware: str) -> bool:
    values = {f"hardware.{key}": value for key, value in shipped_hardware()[hardware].items()}
    try:
        return estimate(with_values(job, values), changes=False).time is not None
    except CannotEstimate:
        return False
