"""Compares a job with the arguments it was read from, by effective values after the backend's defaults."""

from launcher.importing.imported import Imported
from launcher.importing.presets import with_known_model
from launcher.job import Job, Value
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.mapping.equivalence import Difference
from launcher.rules import effective
from launcher.rules.native import effective_of


def written(job: Job, backend: str, version: str) -> tuple[dict[str, Value], tuple[Finding, ...]]:
    """Return the arguments written for a job, and the findings of the translation."""
    found = get_backend(backend)
    translation = translate(found.prepare(job, version), found, version)
    return {arg.flag: arg.value for arg in translation.native}, translation.findings


def differences(imported: Imported) -> list[Difference]:
    """Return the arguments whose effective value changes by import and translation."""
    backend, version = get_backend(imported.backend), imported.version
    job, _ = with_known_model(imported)
    prepared = backend.prepare(job, version)
    after = translate(prepared, backend, version).native
    return effective.differences(
        *(effective_of(prepared, backend, version, native, as_written=True) for native in (imported.native, after))
    )
