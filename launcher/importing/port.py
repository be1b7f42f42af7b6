"""Port: the imported job judged for another backend; what does not exist there is named, with reason and substitute."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from launcher.importing.imported import Imported
from launcher.importing.presets import with_preset
from launcher.importing.versions import elsewhere
from launcher.job import Job, Value
from launcher.rules.finding import Finding
from launcher.translate.backend import Backend, get_backend

# Variables that mean something to one kind of device only; `CUDA_DEVICE_MAX_CONNECTIONS` is read on NPUs, too.
_OF_DEVICES = {
    "cuda": ("CUDA_", "PYTORCH_CUDA_", "NCCL_", "NVTE_"),
    "npu": ("ASCEND_", "HCCL_", "PYTORCH_NPU_", "TASK_QUEUE_ENABLE", "NPU_"),
}
_SHARED = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An argument of the source that the target does not have.

    Attributes:
        flag, value: as the source spelled it.
        why: reason.
        works: nearest substitutes on the target.
    """

    flag: str
    value: Value
    why: str
    works: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A job written for another backend.

    Attributes:
        job: the job with the target as its backend, without arguments and variables that exist on the source only.
        missing: what was left out, with reason and substitute.
        variables: names of environment variables that were left out.
        findings: what the target's rules and mapping say, as `launch check` would.
    """

    job: Job
    missing: tuple[Missing, ...]
    variables: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing stands against running it there."""
        return all(finding.severity != "error" for finding in self.findings)


def ported(imported: Imported, target: str, version: str | None = None) -> Ported:
    """Return the imported job for another backend, judged by all of its rules."""
    from launcher.pipeline import judge

    backend = get_backend(target)
    version = backend.version(version)
    job, missing = carried(imported.job, imported.backend, imported.version, target, version, without=imported.exact)
    env = job.backend.env
    outcome = judge(with_preset(job))
    variables = tuple(name for name in imported.job.backend.env if name not in env)
    return Ported(job=outcome.job, missing=tuple(missing), variables=variables, findings=outcome.findings)


def carried(
    job: Job, name: str, own_version: str, target: str, version: str, *, without: Iterable[str] = ()
) -> tuple[Job, list[Missing]]:
    """Return a job with another backend: pass-through arguments and variables of the source only are gone.

    Args:
        name, own_version: what its pass-through arguments are written for.
        without: pass-through arguments that only make the source's own command exact.
    """
    source, backend = get_backend(name), get_backend(target)
    passed = {flag: value for flag, value in job.backend.args.items() if flag not in set(without)}
    args, missing = _split(passed, source, own_version, backend, version)
    env = {variable: text for variable, text in job.backend.env.items() if not _of_source(variable, source, backend)}
    choice = dataclasses.replace(job.backend, name=target, version=version, args=args, env=env)
    return dataclasses.replace(job, backend=choice), missing


def _split(
    passed: Mapping[str, Value], source: Backend, own_version: str, backend: Backend, version: str
) -> tuple[dict[str, Value], list[Missing]]:
    """Return pass-through arguments that the target has, too, and those that it has not."""
    catalogue = backend.catalogue(version)
    own = source.catalogue(own_version)
    kept: dict[str, Value] = {}
    missing: list[Missing] = []
    for flag, value in passed.items():
        written = own.get(flag)
        if written is not None and written.has_default and written.default == value:
            continue  # it says what the source does anyway
        argument = catalogue.get(flag) or catalogue.get(flag.replace("_", "-")) or catalogue.get(flag.replace("-", "_"))
        problem = None if argument is None else catalogue.check(argument.name, value)
        if argument is not None and (problem is None or "$" in str(value)):
            kept[argument.name] = value  # a blank stays one: whoever fills it in is told what fits
            continue
        if backend.name == source.name and argument is None:
            known = elsewhere(flag, backend, version)
            if known.name is not None and known.convert is not None:
                kept.setdefault(known.name, known.convert(value))
                continue
            problem = known.message or None
        if problem is None:
            problem = f"{backend.title} {version} has no such argument"
        near = tuple(name for name in catalogue.suggest(flag) if name != flag)
        nearest = source.entry.substitutes.get(flag) if backend.name != source.name else None
        missing.append(Missing(flag=flag, value=value, why=problem, works=near if nearest is None else (nearest,)))
    return kept, missing


def _of_source(name: str, source: Backend, backend: Backend) -> bool:
    """Tell whether a variable means something to the source, or to its devices, only."""
    signs = source.entry.signs
    if any(name.startswith(sign) for sign in signs) and not any(name.startswith(sign) for sign in backend.entry.signs):
        return name not in _SHARED
    return name not in _SHARED and any(
        name.startswith(prefixes) for device, prefixes in _OF_DEVICES.items() if device not in backend.devices
    )
