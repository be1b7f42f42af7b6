"""Compares a job with the arguments it was read from, by effective values after the backend's defaults."""

from collections.abc import Iterable, Iterator

from launcher.importing.imported import Imported
from launcher.importing.presets import with_known_model
from launcher.job import Job, Value
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import Translation, translate
from launcher.mapping.equivalence import Difference
from launcher.mapping.native import NativeArgs
from launcher.rules import effective
from launcher.rules.native import effective_of


def written(job: Job, backend: str, version: str) -> tuple[dict[str, Value], tuple[Finding, ...]]:
    """Return the arguments written for a job, and the findings of the translation."""
    found = get_backend(backend)
    translation = translate(found.prepare(job, version), found, version)
    return {arg.flag: arg.value for arg in translation.native}, translation.findings


def lost(imported: Imported) -> list[Difference]:
    """Return the arguments that the import's job does not write as the input has them, or cannot write."""
    job, translation = translated(imported)
    return [*_differing(imported.native, translation.native, job), *_unwritten(imported, translation.findings)]


def differences(imported: Imported) -> list[Difference]:
    """Return the arguments whose effective value changes by import and translation."""
    job, translation = translated(imported)
    return _differing(imported.native, translation.native, job)


def translated(imported: Imported) -> tuple[Job, Translation]:
    """Return the job with the sizes of its model, as it is translated, and its translation."""
    backend, version = get_backend(imported.backend), imported.version
    job = backend.prepare(with_known_model(imported)[0], version)
    return job, translate(job, backend, version)


def _differing(before: NativeArgs, after: NativeArgs, job: Job) -> list[Difference]:
    if _by_flag(before) == _by_flag(after):
        return []
    backend, version = get_backend(before.backend), before.version
    return effective.differences(
        *(effective_of(job, backend, version, native, as_written=True) for native in (before, after))
    )


def _by_flag(native: NativeArgs) -> dict[str, str]:
    """Return the values as text, which tells numbers, text and null from each other; one value and a list of it not."""
    return {arg.flag: repr(_single(arg.value)) for arg in native}


def _single(value: Value) -> Value:
    return value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value


def _unwritten(imported: Imported, findings: Iterable[Finding]) -> Iterator[Difference]:
    """Yield arguments of fields that no row can write, although their effect may be the default's."""
    fields = {
        path
        for finding in findings
        if finding.rule == "MAP-UNSUPPORTED" and finding.severity == "error"
        for path in finding.fields
    }
    for each in imported.mapped_args if fields else ():
        if not fields.isdisjoint(each.fields) and each.flag not in imported.job.backend.args:
            yield Difference(flag=each.flag, before=each.value, after=None)
