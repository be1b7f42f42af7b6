"""The mapping engine: one table, read forwards (job to native arguments) and backwards (native arguments to job)."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from launcher.job import Job, Value, build, fields, override_text, value_at
from launcher.job.finding import PLACEHOLDER, Finding, Fix
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.family_row import FAMILY
from launcher.mapping.native import NativeArg, NativeArgs
from launcher.mapping.passthrough import pass_through
from launcher.mapping.rows import Gap, NativeView, Read, Row, Table, Unsupported, active_rows
from launcher.records import dataclass

# Rule of what a backend cannot express, whichever field it is.
UNSUPPORTED = "MAP-UNSUPPORTED"
_RANK = ("override", "recipe", "derived", "default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """Native arguments of a job on one backend version, and the findings of the translation."""

    native: NativeArgs
    findings: tuple[Finding, ...]


def translate(job: Job, backend: Backend, version: str) -> Translation:
    """Write the job in the backend's own arguments.

    Every value that differs from its default and that the backend cannot express becomes a finding; nothing is dropped
    silently. Arguments keep the order of the table, pass-through arguments come last.
    """
    table = backend.table(version)
    args: list[NativeArg] = []
    findings: list[Finding] = []
    for row in active_rows(table, version):
        written, finding = write_row(job, row, backend, version)
        args.extend(written)
        if finding is not None and not _stands_as_imported(job, finding.fields[0], row.flags, backend, version):
            findings.append(finding)
    gaps = (gap_finding(job, path, gap, backend, version) for path, gap in table.unsupported.items())
    findings.extend(finding for finding in gaps if finding is not None)
    args, more = pass_through(job, args, backend, version)
    findings.extend(more)
    native = NativeArgs(backend=backend.name, version=version, args=tuple(args))
    return Translation(native=native, findings=tuple(findings))


def fields_by_flag(table: Table, version: str, *, first: bool = False) -> dict[str, tuple[str, ...]]:
    """Return the canonical fields that each native argument expresses, in the table's order.

    Args:
        first: only the main field of each row, not the others that it reads.
    """
    found: dict[str, dict[str, None]] = {}
    for row in active_rows(table, version):
        for flag in row.flags:
            found.setdefault(flag, {}).update(dict.fromkeys(row.fields[:1] if first else row.fields))
    return {flag: tuple(paths) for flag, paths in found.items()}


@cache
def fields_of_flags(backend: str, version: str) -> Mapping[str, tuple[str, ...]]:
    """Return the canonical fields that each native argument of a backend's version maps to."""
    return fields_by_flag(get_backend(backend).table(version), version)


def write_row(job: Job, row: Row, backend: Backend, version: str) -> tuple[list[NativeArg], Finding | None]:
    """Return the arguments that one row writes for the job, and what it cannot express."""
    if row.when is not None and not row.when(job):
        return [], None
    args: list[NativeArg] = []
    try:
        args.extend(_written(job, row))
    except Unsupported as error:
        return args, _inexpressible(error.path, str(error), error.severity, error.works, job, backend, version)
    return args, _unparsed(job, row, args, backend, version)


def _unparsed(job: Job, row: Row, args: Iterable[NativeArg], backend: Backend, version: str) -> Finding | None:
    """Return what the version's own command-line parser would refuse of a row's arguments; a YAML has no parser."""
    catalogue = backend.catalogue(version)
    if catalogue.style == "yaml" or not row.fields:
        return None
    for arg in args:
        problem = catalogue.check(arg.flag, arg.value)
        if problem is not None:
            path = next((name for name in row.fields if value_at(job, name) == arg.value), row.fields[0])
            argument = catalogue.get(arg.flag)
            # Another family is another model.
            same = argument is not None and value_at(job, path) == arg.value and path != FAMILY
            choices = argument.choices if argument is not None and same else None
            works = tuple(f"{path}={override_text(choice)}" for choice in choices or ())
            return _inexpressible(path, problem, "error", works, job, backend, version)
    return None


def _stands_as_imported(job: Job, path: str, flags: Iterable[str], backend: Backend, version: str) -> bool:
    """Return whether a field of a job imported from this backend needs no argument but those passed through.

    An existing file may omit what a new job must say, and may say in its own arguments what no row writes. What the
    user overrides is written or refused as in any job.
    """
    if job.imported.backend != backend.name or job.origin(path).kind == "override":
        return False
    if value_at(job, path) is None or any(flag in job.backend.passthrough for flag in flags):
        return True
    # Another row may refuse the combination of this field with its own.
    known = fields_of_flags(backend.name, version)
    return any(path in known.get(flag, ()) for flag in job.backend.args)


def _written(job: Job, row: Row) -> Iterator[NativeArg]:
    field = row.fields[0] if row.fields else None
    for flag, value in row.emit(job):
        origins = [job.origin(path) for path in row.fields]
        origin = origins[0] if len(origins) == 1 else min(origins, key=lambda each: _rank(each.kind), default=None)
        kind = "derived" if origin is None or (row.derived and len(row.fields) != 1) else origin.kind
        yield NativeArg(flag=flag, value=value, field=field, origin=kind, where=origin.where if origin else "")


def _rank(kind: str) -> int:
    return _RANK.index(kind) if kind in _RANK else len(_RANK)


def gap_finding(job: Job, path: str, gap: Gap, backend: Backend, version: str) -> Finding | None:
    """Return a finding if the job sets a field that the backend does not take."""
    if not is_lost(job, path, gap):
        return None
    works = tuple(_instead(path, each) for each in gap.works)
    return _inexpressible(path, gap.why, gap.severity, works, job, backend, version)


def _instead(path: str, works: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return what does instead of a field, with the field unset; another version may take it."""
    overrides = (works,) if isinstance(works, str) else works
    if any(each.startswith((f"{path}=", "backend.")) for each in overrides):
        return overrides
    return (*overrides, f"{path}={override_text(fields()[path].default)}")


def is_lost(job: Job, path: str, gap: Gap) -> bool:
    """Return whether the job sets a field to a value that the gap loses."""
    value = value_at(job, path)
    if value is None or value == fields()[path].default or value in gap.neutral:
        return False
    return gap.matters is None or gap.matters(job)


def _inexpressible(
    path: str,
    why: str,
    severity: str,
    works: tuple[str | tuple[str, ...], ...],
    job: Job,
    backend: Backend,
    version: str,
) -> Finding:
    changes = [tuple(map(_unset, (each,) if isinstance(each, str) else each)) for each in works]
    changes = [overrides for overrides in changes if all("=" in each for each in overrides)]
    asks = [overrides for overrides in changes if PLACEHOLDER in " ".join(overrides)]
    return Finding(
        rule=UNSUPPORTED,
        severity=severity,
        message=f"{backend.title} {version} cannot express {path}={override_text(value_at(job, path))}: {why}",
        fields=(path,),
        fixes=tuple(Fix(overrides=overrides) for overrides in changes if overrides not in asks),
        asks=asks[0] if asks else (),
        source=f"mapping table of {backend.name}",
    )


def _unset(override: str) -> str:
    """Return an override; `null` for a field that takes none is its default, such as an empty list."""
    path, _, text = override.partition("=")
    default = fields()[path].default if path in fields() else None
    return f"{path}={override_text(default)}" if text == "null" and default is not None else override


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """A job read from native arguments, and the arguments that the table does not map."""

    job: Job
    unmapped: tuple[NativeArg, ...]
    warnings: tuple[str, ...] = ()


def read_back(native: Mapping[str, Value], backend: Backend, version: str) -> ReadBack:
    """Read native arguments backwards through the table; those without a canonical field go to `backend.args`.

    Args:
        native: argument names in the catalogue's spelling, with values of the catalogue's types.
    """
    view = NativeView(native)
    flat: dict[str, Value] = {}
    for row in active_rows(backend.table(version), version):
        if row.read is not None:
            flat.update({path: value for path, value in understood(row.read, view).items() if value is not None})
    rest = {flag: value for flag, value in view.values.items() if flag not in view.taken}
    tree = nest(flat)
    tree["backend"] = {**tree.get("backend", {}), "name": backend.name, "version": version, "args": rest}
    job, problems = build(tree)
    warnings = tuple(f"{problem.path} {problem.message}" for problem in problems)
    return ReadBack(
        job=job, unmapped=tuple(NativeArg(flag=flag, value=value) for flag, value in rest.items()), warnings=warnings
    )


def read_argument(flag: str, value: Value, backend: Backend, version: str) -> dict[str, Value]:
    """Return the canonical fields that one native argument sets by itself; empty where it has none."""
    view = NativeView({flag: value})
    flat: dict[str, Value] = {}
    for read in _readers(backend.name, version).get(flag, ()):
        flat.update({path: each for path, each in understood(read, view).items() if each is not None})
    return flat


@cache
def _readers(backend: str, version: str) -> Mapping[str, list[Read]]:
    """Return the functions that read each native argument of a backend's version, in the table's order."""
    found: dict[str, list[Read]] = {}
    for row in active_rows(get_backend(backend).table(version), version):
        if row.read is not None:
            for flag in dict.fromkeys(row.flags):
                found.setdefault(flag, []).append(row.read)
    return found


def understood(read: Read, view: NativeView) -> Mapping[str, Value]:
    """Return what a row reads; nothing for a value of a wrong type, which the backend's parser refuses as well."""
    taken = set(view.taken)
    try:
        return read(view)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        view.taken = taken
        return {}


def nest(flat: Mapping[str, Value]) -> dict[str, Value]:
    """Return a nested mapping from a mapping by dotted paths."""
    tree: dict[str, Value] = {}
    for path, value in flat.items():
        *parents, leaf = path.split(".")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[leaf] = value
    return tree
