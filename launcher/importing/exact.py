"""Makes an import exact: arguments that the fields do not reproduce are passed through as well."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from launcher.catalogue.catalogue import Catalogue
from launcher.importing.imported import Imported
from launcher.importing.roundtrip import differences, written
from launcher.job import Origin, Value, fields, value_at
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import translate
from launcher.mapping.equivalence import Difference

_ROUNDS = 3


def exact(make: Callable[[set[str]], Imported], kept: set[str]) -> Imported:
    """Return the import with pass-through arguments where its job would write other effective arguments.

    The fields stay, since ports to other backends use them. Where a field and the pass-through argument would
    contradict each other in a job file, the argument is not read into a field at all.

    Args:
        make: assembles the import with some arguments passed through instead of read.
        kept: arguments that are passed through in any case.
    """
    imported = make(kept)
    for _ in range(_ROUNDS):
        found = [*differences(imported), *_unwritten(imported)]
        if not found:
            return imported
        repaired = _repaired(imported, found)
        bad = _contradictions(repaired)
        more = bad & {arg.flag for arg in imported.native}
        if not bad:
            left = len(differences(repaired)) + len(list(_unwritten(repaired)))
            return repaired if left < len(found) else imported
        if more <= kept:
            return _repaired(imported, found, without=bad)
        kept = kept | more
        imported = make(kept)
    return imported


def _unwritten(imported: Imported) -> Iterator[Difference]:
    """Yield arguments of fields that no row can write, although their effect may be the default's."""
    fields = {
        path
        for finding in written(imported.job, imported.backend, imported.version)[1]
        if finding.rule == "MAP-UNSUPPORTED" and finding.severity == "error"
        for path in finding.fields
    }
    for each in imported.mapped_args if fields else ():
        if not fields.isdisjoint(each.fields) and each.flag not in imported.job.backend.args:
            yield Difference(flag=each.flag, before=each.value, after=None)


def _repaired(imported: Imported, found: list[Difference], without: Iterable[str] = ()) -> Imported:
    catalogue = get_backend(imported.backend).catalogue(imported.version)
    given = {arg.flag: arg.value for arg in imported.native}
    repairs = {flag: value for each in found for flag, value in _repair(each, given, catalogue).items()}
    return _with(imported, {flag: value for flag, value in repairs.items() if flag not in set(without)})


def _repair(difference: Difference, given: Mapping[str, Value], catalogue: Catalogue) -> dict[str, Value]:
    """Return the input's arguments that store into the differing destination; None as value: omit the argument."""
    effective = get_backend(catalogue.backend).entry.effective
    storing = [flag for flag, value in given.items() if _dest(flag, catalogue) == difference.flag]
    storing = storing or [flag for flag, value in given.items() if difference.flag in effective({flag: value})]
    if storing:
        return {flag: given[flag] for flag in storing}
    argument = catalogue.by_dest(difference.flag) or catalogue.get(difference.flag)
    return {difference.flag if argument is None else argument.name: None}


def _dest(flag: str, catalogue: Catalogue) -> str:
    argument = catalogue.get(flag)
    return flag if argument is None else argument.dest


def _with(imported: Imported, repairs: Mapping[str, Value]) -> Imported:
    job = imported.job
    plain = {flag: list(value) if isinstance(value, tuple) else value for flag, value in repairs.items()}
    backend = dataclasses.replace(job.backend, args={**job.backend.args, **plain})
    return dataclasses.replace(imported, job=dataclasses.replace(job, backend=backend), exact=dict(repairs))


def _contradictions(imported: Imported) -> set[str]:
    """Return pass-through arguments for which the job file would be rejected, since a field contradicts them."""
    backend = get_backend(imported.backend)
    origin = Origin(kind="recipe")
    specified = [path for path, info in fields().items() if value_at(imported.job, path) != info.default]
    job = dataclasses.replace(imported.job, origins={**dict.fromkeys(specified, origin), **imported.job.origins})
    translation = translate(backend.prepare(job, imported.version), backend, imported.version)
    return {flag for finding in translation.findings if finding.rule == "ARG-CONTRADICTION" for flag in finding.flags}
