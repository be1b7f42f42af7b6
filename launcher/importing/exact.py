"""Makes an import exact: arguments that the fields do not reproduce are passed through as well."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from launcher.catalogue.catalogue import Catalogue
from launcher.importing.imported import Imported
from launcher.importing.roundtrip import lost, translated
from launcher.job import Job, Origin, Value, fields, value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.mapping.equivalence import Difference, canonical
from launcher.mapping.native import NativeArgs
from launcher.rules.native import effective_of

_ROUNDS = 3


def exact(make: Callable[[set[str]], Imported], kept: set[str]) -> Imported:
    """Return the import with pass-through arguments where its job would write other effective arguments.

    The fields stay, since ports to other backends use them. Where a field and the pass-through argument would
    contradict each other in a job file, the argument is not read into a field at all.

    Args:
        make: assembles the import with some arguments passed through instead of read.
        kept: arguments that are passed through in any case.
    """
    return _as_typed(_same_effect(make, kept))


def _as_typed(imported: Imported) -> Imported:
    """Return the import with its backend's `as_typed` arguments passed through where a row writes another form."""
    names = get_backend(imported.backend).entry.as_typed
    if not names:
        return imported
    given = {arg.flag: arg.value for arg in imported.native}
    after = {arg.flag: arg.value for arg in translated(imported)[1].native}
    repairs = {name: given.get(name) for name in names if str(after.get(name)) != str(given.get(name))}
    if not repairs:
        return imported
    repaired = passing(imported, {**imported.exact, **repairs})
    worse = _contradictions(repaired) - _contradictions(imported) or len(lost(repaired)) > len(lost(imported))
    return imported if worse else repaired


def _same_effect(make: Callable[[set[str]], Imported], kept: set[str]) -> Imported:
    imported = make(kept)
    for _ in range(_ROUNDS):
        found = lost(imported)
        if not found:
            return imported
        repaired = _repaired(imported, found)
        bad = _contradictions(repaired)
        more = bad & {arg.flag for arg in imported.native}
        if not bad:
            return repaired if len(lost(repaired)) < len(found) else imported
        if more <= kept:
            return _repaired(imported, found, without=bad)
        kept = kept | more
        imported = make(kept)
    return imported


def _repaired(imported: Imported, found: list[Difference], without: Iterable[str] = ()) -> Imported:
    repairs = {flag: value for each in found for flag, value in _repair(each, imported).items()}
    return passing(imported, {flag: value for flag, value in repairs.items() if flag not in set(without)})


def _repair(difference: Difference, imported: Imported) -> dict[str, Value]:
    """Return the input's arguments that store into the differing destination, or else that decide its value.

    None as value: omit the argument.
    """
    backend = get_backend(imported.backend)
    catalogue = backend.catalogue(imported.version)
    given = {arg.flag: arg.value for arg in imported.native}
    storing = [flag for flag in given if difference.flag in (flag, _dest(flag, catalogue))]
    storing = storing or _deciding(difference.flag, imported)
    if storing:
        return {flag: given[flag] for flag in storing}
    argument = catalogue.by_dest(difference.flag) or catalogue.get(difference.flag)
    return {difference.flag if argument is None else argument.name: None}


def _deciding(dest: str, imported: Imported) -> list[str]:
    """Return the arguments without any one of which training would read another value of a destination."""
    backend, native = get_backend(imported.backend), imported.native

    def value(args: NativeArgs) -> Value:
        found = effective_of(imported.job, backend, imported.version, args, as_written=True)
        return canonical(found.read().get(dest))

    whole = value(native)
    flags = dict.fromkeys(arg.flag for arg in native)
    return [flag for flag in flags if value(native.with_args(arg for arg in native if arg.flag != flag)) != whole]


def _dest(flag: str, catalogue: Catalogue) -> str:
    argument = catalogue.get(flag)
    return flag if argument is None else argument.dest


def passing(imported: Imported, repairs: Mapping[str, Value]) -> Imported:
    """Return the import with these arguments passed through beside its fields; None as value: omit the argument."""
    job = imported.job
    plain = {flag: list(value) if isinstance(value, tuple) else value for flag, value in repairs.items()}
    backend = dataclasses.replace(job.backend, args={**job.backend.args, **plain})
    return dataclasses.replace(imported, job=dataclasses.replace(job, backend=backend), exact=dict(repairs))


def _contradictions(imported: Imported) -> set[str]:
    """Return pass-through arguments for which the job file would be rejected, since a field contradicts them."""
    backend = get_backend(imported.backend)
    translation = translate(backend.prepare(as_loaded(imported.job), imported.version), backend, imported.version)
    return {flag for finding in translation.findings if finding.rule == "ARG-CONTRADICTION" for flag in finding.flags}


def as_loaded(job: Job) -> Job:
    """Return the job with the origins that its values have in a job file."""
    specified = [path for path, info in fields().items() if value_at(job, path) != info.default]
    specified += [f"backend.args.{flag}" for flag in job.backend.args]
    return dataclasses.replace(job, origins={**dict.fromkeys(specified, Origin(kind="recipe")), **job.origins})
