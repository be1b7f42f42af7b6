"""Pass-through arguments (`backend.args`): checked, merged with those of fields, conflicts reported."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from launcher.catalogue.catalogue import Argument, Catalogue
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, fields, override_text, value_at
from launcher.job.derive import with_values
from launcher.job.finding import Finding
from launcher.job.schema import USER_ORIGINS
from launcher.mapping.backend import Backend
from launcher.mapping.native import NativeArg
from launcher.mapping.rows import Row, Unsupported
from launcher.mapping.sections import flattened

BAD_VALUE = "ARG-VALUE"


def pass_through(
    job: Job, args: list[NativeArg], backend: Backend, version: str
) -> tuple[list[NativeArg], list[Finding]]:
    """Return the arguments merged with the job's `backend.args`, and the findings about these.

    A pass-through argument of an imported job's file is replaced by a field that the user overrides and that the
    argument depends on; one that the user sets in `backend.args` is never replaced.
    """
    if not job.backend.args:
        return args, []
    catalogue = backend.catalogue(version)
    findings: list[Finding] = []
    retyped = _retyped(job, backend, version)
    is_nested = catalogue.style == "yaml"
    # A key of a file (`a.b: 1`) and the same one as it is typed (`a: {b: 2}`): the latter replaces it.
    args_by_key = dict(flattened(job.backend.args, backend.mapping_values)) if is_nested else job.backend.args
    for typed, value in args_by_key.items():
        path = f"backend.args.{typed}"
        argument = catalogue.of_key(typed)
        # A YAML key keeps its spelling: an alias in the catalogue is a different key in the file.
        name = typed if argument is None or is_nested else argument.name
        from_import = job.imported.backend == backend.name and job.origin(path).kind == "recipe"
        spellings = {name} if argument is None else {name, argument.name, *argument.aliases}
        same = [
            arg
            for arg in args
            if _excludes(arg, name, spellings, catalogue) and not (from_import and _is_key(arg, name))
        ]
        overriding_field = _overriding_field(job, value, spellings, same, retyped)
        if overriding_field is not None and job.origin(path).kind != "override":
            findings.append(_outdated(path, name, value, overriding_field, job))
            continue
        problem = None if value is None else catalogue.check(name, value)
        if problem is not None:
            ask = _ask(job, path, argument, value, backend, version)
            findings.append(_bad_argument(path, name, problem, ask, catalogue, backend, version))
        # A value of the imported script that the user has not overridden is not reported.
        if same and same[0].value != value and (not from_import or same[0].origin in USER_ORIGINS):
            first = next((arg for arg in same if arg.origin in USER_ORIGINS and arg.field is not None), same[0])
            written = replace(same[0], origin="override", field=overriding_field) if overriding_field else first
            findings.append(_override_of(path, name, value, written, others=len(same) - 1, settled=from_import))
        args = [arg for arg in args if arg not in same]
        native = tuple(value) if isinstance(value, list) else value
        # null: not written, even if a field would write it; the backend's own default applies.
        is_omitted = native is None and not (from_import and typed in job.imported.null)
        if is_omitted or _is_off(native, argument):
            continue
        where = job.origin(path).where
        args.append(NativeArg(flag=name, value=native, origin="pass-through", where=where, key=typed))
    return args, findings


def _excludes(arg: NativeArg, name: str, spellings: Collection[str], catalogue: Catalogue) -> bool:
    """Return whether an argument cannot stand beside one of that name: the same, or in YAML a value and its section."""
    if arg.flag in spellings:
        return True
    return catalogue.style == "yaml" and (name.startswith(f"{arg.flag}.") or arg.flag.startswith(f"{name}."))


def _is_key(arg: NativeArg, name: str) -> bool:
    """Return whether an argument is another key of the imported file, which has two names of one setting."""
    return arg.origin == "pass-through" and arg.flag != name


def _is_off(value: Value, argument: Argument | None) -> bool:
    return value is False and argument is not None and argument.action in ("store_true", "store_false")


def _ask(
    job: Job, path: str, argument: Argument | None, value: Value, backend: Backend, version: str
) -> tuple[str, ...]:
    """Return what to specify instead of a variable of a shell, whose value only the user knows."""
    if argument is None or not any(isinstance(item, str) and "$" in item for item in _items(value)):
        return ()
    if job.imported.backend == backend.name and job.origin(path).kind != "override":
        spellings = {argument.name, *argument.aliases}
        for row in backend.table(version).rows:
            main = row.fields[0] if row.fields and in_range(version, row.since, row.until) else None
            if main is None or spellings.isdisjoint(row.flags) or not _depends(row, job, main, spellings):
                continue
            kind = str(fields()[main].type)
            if "bool" not in kind and "tuple" not in kind:
                return (f"{main}={_placeholder(kind, named=bool(fields()[main].meta.choices))}",)
    return (f"{path}={_placeholder(argument.type, named=bool(argument.choices))}",)


def _placeholder(kind: str, *, named: bool) -> str:
    return "N" if "int" in kind else "X" if "float" in kind else "NAME" if named else "VALUE"


def _items(value: Value) -> Iterable[Value]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _bad_argument(
    path: str, name: str, problem: str, asks: tuple[str, ...], catalogue: Catalogue, backend: Backend, version: str
) -> Finding:
    return Finding(
        rule="ARG-UNKNOWN" if catalogue.get(name) is None else BAD_VALUE,
        severity="error",
        message=problem,
        fields=(path,),
        flags=(name,),
        asks=asks,
        source=f"catalogue of {backend.name} {version}",
    )


# -- two values for one argument


def _retyped(job: Job, backend: Backend, version: str) -> tuple[Row, ...]:
    """Return the rows of fields of an imported job that the user overrides."""
    typed = {path for path, origin in job.origins.items() if origin.kind == "override"}
    if job.imported.backend is None or not typed:
        return ()
    rows = backend.table(version).rows
    return tuple(row for row in rows if not typed.isdisjoint(row.fields) and in_range(version, row.since, row.until))


def _overriding_field(
    job: Job, value: Value, spellings: set[str], written: list[NativeArg], rows: Iterable[Row]
) -> str | None:
    """Return the field that the user overrides and that sets an imported pass-through argument; None: there is none."""
    if written and _plain(written[0].value) == _plain(value):
        return None
    for row in rows:
        if spellings.isdisjoint(row.flags):
            continue
        # If the row writes nothing, only its main field can be the reason.
        for field in row.fields if written else row.fields[:1]:
            if job.origin(field).kind == "override" and _depends(row, job, field, spellings):
                return field
    return None


def _plain(value: Value) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _depends(row: Row, job: Job, field: str, flags: set[str]) -> bool:
    """Return whether the value that a row writes for an argument depends on a field."""
    written = _written_by(row, job, flags)
    return any(
        _written_by(row, with_values(job, {field: other}), flags) != written
        for other in other_values(field, value_at(job, field))
    )


def _written_by(row: Row, job: Job, flags: set[str]) -> Value:
    if row.when is not None and not row.when(job):
        return None
    try:
        return next((value for flag, value in row.emit(job) if flag in flags), None)
    except (Unsupported, TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return None  # the row cannot write this value


def other_values(field: str, value: Value) -> Iterator[Value]:
    """Yield values of a field that are set and differ from `value`."""
    info = fields()[field]
    kind = str(info.type)
    if "bool" in kind:
        yield from (each for each in (True, False) if each is not value)
    elif info.meta.choices:
        yield from (each for each in info.meta.choices if each != value)
    elif "tuple" in kind:
        items = tuple(value or ())
        yield (*items, items[-1] if items else 1 if "int" in kind or "float" in kind else "x")
    elif "int" in kind or "float" in kind:
        number = value if isinstance(value, (int, float)) else 0
        yield from (number + 1, 2 * number + 2)
    elif "str" in kind:
        yield f"{value}x"


def _outdated(path: str, flag: str, value: Value, field: str, job: Job) -> Finding:
    return Finding(
        rule="ARG-REPLACED",
        severity="change",
        message=f"{flag}={override_text(value)} of the imported script is replaced by {field}="
        f"{override_text(value_at(job, field))}, which is set now",
        fields=(path, field),
        flags=(flag,),
        source="two values for one argument",
    )


def _override_of(path: str, flag: str, value: Value, written: NativeArg, *, others: int = 0, settled: bool) -> Finding:
    """Return the finding for a pass-through argument that replaces one that a field writes.

    Args:
        others: how many more it replaces: those of a YAML section.
        settled: an import wrote both to the job file: the script sets both, and this one takes effect there.
    """
    by_user = written.origin in USER_ORIGINS and written.field is not None
    contradicts = by_user and value is not None and not settled
    return Finding(
        rule="ARG-CONTRADICTION" if contradicts else "ARG-REPLACED",
        severity="error" if contradicts else "warning" if by_user and value is not None else "change",
        message=f"{flag}={override_text(value)} (pass-through) against {override_text(written.value)}"
        + (f" from {written.field}" if written.field else " written by the launcher")
        + (f" and {others} other argument{'s' if others > 1 else ''} of the section" if others else "")
        + (
            ": set only one of them"
            if contradicts
            else ": the pass-through value is used"
            if value is not None
            else ": removed"
        ),
        fields=(path, written.field) if written.field else (path,),
        flags=(flag,),
        source="two values for one argument",
    )
