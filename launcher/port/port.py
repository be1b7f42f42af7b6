"""Ports arguments without a field: passed through under the target's name, expressed by a field, or dropped."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TypeAlias

from launcher.catalogue.catalogue import plain
from launcher.job import Job, Origin, Value, override_text, value_at
from launcher.job.derive import with_values
from launcher.job.finding import Finding, Fix
from launcher.mapping.backend import Backend, UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.mapping.engine import translate
from launcher.mapping.native_only import EFFECTS, MODEL, NOTHING, TRAINING, NativeOnlyArg
from launcher.mapping.renames import RenamedArg, find_renamed
from launcher.port.defaults import default_findings, layout_findings, source_defaults
from launcher.port.dropped import DroppedArg, PortRoute, expressible, is_default, missing, spelled, values_of
from launcher.port.files import files
from launcher.port.substitutes import originals, substitute_findings, with_substitutes
from launcher.records import dataclass
from launcher.rules.computations import computed_differently
from launcher.rules.effective import EffectiveValues
from launcher.rules.native import effective_of

ALL = "all"
DROPPED_RULE, NEAREST = "PORT-LEFT-OUT", "PORT-NEAREST"
# Variables of one device type only; `CUDA_DEVICE_MAX_CONNECTIONS` is read on NPUs as well.
_OF_DEVICES = {
    "cuda": ("CUDA_", "PYTORCH_CUDA_", "NCCL_", "TORCH_NCCL_", "NVTE_"),
    "npu": (
        *("ASCEND_", "HCCL_", "TORCH_HCCL_", "PYTORCH_NPU_", "NPU_", "TASK_QUEUE_ENABLE"),
        *("CPU_AFFINITY_CONF", "STREAMS_PER_DEVICE", "MULTI_STREAM_MEMORY_REUSE"),
    ),
}
# Read in every process on these devices, whatever launches it: by drivers, communication and kernel libraries.
_OF_LIBRARIES = {
    "cuda": _OF_DEVICES["cuda"],
    "npu": ("ASCEND_", "HCCL_"),
}
_SHARED = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS"})
_DERIVED = Origin(kind="derived")


ValidatorFactory: TypeAlias = Callable[[Job], Callable[[Mapping[str, Value]], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How arguments without a field are ported, by the source's names.

    Attributes:
        kept: name and value of the target's argument.
        substituted: the table's row, with the fields that replace the argument and their values.
        reasons: arguments that are dropped, and why the target's parser or the history of its arguments rejects them.
        missing: the same arguments, described.
    """

    kept: dict[str, tuple[str, Value]] = field(default_factory=dict)
    substituted: dict[str, NativeOnlyArg] = field(default_factory=dict)
    reasons: dict[str, str | None] = field(default_factory=dict)
    missing: dict[str, DroppedArg] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortResult:
    """A job ported to the backend that runs it.

    Attributes:
        job: the job, with those of the source's arguments and variables that apply to this backend.
        route: source and target; None: it was written for this backend.
        split: how each argument without a field was ported.
        findings: dropped arguments, and arguments that a field expresses only approximately.
    """

    job: Job
    route: PortRoute | None = None
    split: Split = field(default_factory=Split)
    findings: tuple[Finding, ...] = ()


def port_job(job: Job, target: Backend, version: str, validator: ValidatorFactory | None = None) -> PortResult:
    """Return a job that was imported, or written, for another backend or version, ported to this one.

    What `job.imported` keeps of the script is never lost: its arguments are passed through where the target has them,
    expressed by fields, or reported. Porting a ported job again gives the same job and the same findings.

    Args:
        validator: for a job, returns a check that values cause no new error; substitutes that fail it are not fixes.
    """
    recorded = job.imported
    if recorded.backend is None and recorded.args is None:
        return PortResult(job=job)
    job = originals(job)
    try:
        source = get_backend(recorded.backend or "")
        source_version = source.version(recorded.version)
    except (UnknownBackend, UnknownVersion) as error:
        return PortResult(job=job, findings=(_unknown_source(job, error, target, version),))
    if (source.name, source_version) == (target.name, version):
        return PortResult(job=job if recorded.args is None else _restored(job))
    given, own = _arguments(job)
    origin = dataclasses.replace(job.backend, name=source.name, version=source_version, args=given, env=_variables(job))
    route = PortRoute(
        source=source,
        source_version=source_version,
        target=target,
        version=version,
        job=dataclasses.replace(job, backend=origin),
        command=command_of(recorded.program or ""),
    )
    split = _split(route, without=recorded.exact)
    accepted = {plain(name) for name in recorded.accept}
    changed = _changed(route, split, own)
    defaults = source_defaults(route, changed)
    changed, replaced = with_substitutes(route, _with_defaults(changed, defaults))
    # What the source computes, and what can replace an argument, also depends on what no field of the script says.
    route = replace(route, job=_with_defaults(_with_fields(route.job, split), defaults))
    split = _described_losses(route, split)
    if validator is not None and any(each.works for each in split.missing.values()):
        passes = validator(changed)
        split = replace(split, missing={flag: _tried(each, passes) for flag, each in split.missing.items()})
    return PortResult(
        job=changed,
        route=route,
        split=split,
        findings=(
            *_nearly(route, split),
            *default_findings(route, defaults),
            *layout_findings(route, changed),
            *substitute_findings(route, replaced),
            *_losses(route, split.missing.values(), accepted),
            *files(route, changed),
            *_computations(route, changed),
            *_unread(route, changed),
            *_unknown_accepted(route, recorded.accept),
        ),
    )


def _tried(each: DroppedArg, passes: Callable[[Mapping[str, Value]], bool]) -> DroppedArg:
    """Return the description of an argument with only those substitutes with which the job passes."""
    later = []
    for override in each.works:
        values = values_of(override)
        if values is not None and not passes(values):
            later.append(override)
    works = tuple(override for override in each.works if override not in later)
    return each if not later else replace(each, works=works, later=tuple(later))


def sent(job: Job, target: Backend, version: str) -> PortResult:
    """Return a job that names a backend, ported to another one as if that were chosen for its file."""
    recorded, name = job.imported, job.backend.name
    if recorded.args is None and name is not None:
        kept = dataclasses.replace(
            recorded, backend=recorded.backend or name, args=job.backend.args, env=job.backend.env
        )
        recorded = (
            kept if recorded.version or recorded.backend else dataclasses.replace(kept, version=job.backend.version)
        )
    choice = dataclasses.replace(job.backend, name=target.name, version=version, args={}, env={})
    return port_job(dataclasses.replace(job, backend=choice, imported=recorded), target, version)


def command_of(program: str) -> str | None:
    """Return the sub-command of a program; some defaults depend on it."""
    words = program.split()
    return words[1] if len(words) > 1 else None


def _arguments(job: Job) -> tuple[Mapping[str, Value], Mapping[str, Value]]:
    """Return the source's arguments, and those that are written for the backend that runs the job."""
    passed, recorded = job.backend.args, job.imported.args
    if recorded is not None:
        return recorded, passed
    own = {name: value for name, value in passed.items() if job.origin(f"backend.args.{name}").kind == "override"}
    return {name: value for name, value in passed.items() if name not in own}, own


def _variables(job: Job) -> Mapping[str, str]:
    return {**job.imported.env, **job.backend.env}


def _restored(job: Job) -> Job:
    args = {**(job.imported.args or {}), **job.backend.args}
    return dataclasses.replace(job, backend=dataclasses.replace(job.backend, args=args, env=_variables(job)))


def _changed(route: PortRoute, split: Split, own: Mapping[str, Value]) -> Job:
    """Return the job with the target as its backend, and with the equivalents of its arguments there."""
    job = route.job
    env = {name: text for name, text in job.backend.env.items() if not _of_source(name, route.source, route.target)}
    args = {**dict(split.kept.values()), **own}
    choice = dataclasses.replace(job.backend, name=route.target.name, version=route.version, args=args, env=env)
    recorded = dataclasses.replace(job.imported, args=job.backend.args, env=job.backend.env)
    return dataclasses.replace(_with_fields(job, split), backend=choice, imported=recorded)


def _with_fields(job: Job, split: Split) -> Job:
    """Return the job with the fields that replace arguments."""
    values = {
        path: value
        for row in split.substituted.values()
        for path, value in row.becomes.items()
        if value_at(job, path) != value
    }
    return with_values(job, values, _DERIVED) if values else job


def _with_defaults(job: Job, defaults: Mapping[str, Value]) -> Job:
    """Return the job with the source's defaults set in its fields and recorded in `imported.defaults`."""
    if not defaults:
        return job
    recorded = dataclasses.replace(job.imported, defaults=tuple(defaults))
    return dataclasses.replace(with_values(job, defaults, _DERIVED), imported=recorded)


_TRIED = 3


def _unknown_source(job: Job, error: UnknownBackend | UnknownVersion, target: Backend, version: str) -> Finding:
    recorded = job.imported
    names = ", ".join(list(recorded.args or {})[:6])
    of_version = isinstance(error, UnknownVersion)
    what = error.message if isinstance(error, UnknownVersion) else f"no backend {recorded.backend!r}"
    works = [f"imported.backend={name}" for name in backend_names()]
    add = error.add if isinstance(error, UnknownVersion) else ""
    if of_version and recorded.backend:
        nearest = get_backend(recorded.backend).nearest_versions(recorded.version or "")[: 1 if add else _TRIED]
        ported = [each for each in nearest if _is_ported(job, each, target, version)]
        works = [f"imported.version={each}" for each in (ported if ported or add else nearest)]
    return Finding(
        rule=DROPPED_RULE,
        severity="error",
        message=f"imported.args ({names or 'no arguments'}) cannot be read: "
        + (what if recorded.backend else "its backend is not specified"),
        fields=("imported.version" if of_version else "imported.backend",),
        fixes=tuple(Fix(overrides=(word,)) for word in works[:_TRIED]),
        asks=(add,) if add else (),
        source="launch",
    )


def _is_ported(job: Job, source_version: str, target: Backend, version: str) -> bool:
    """Return whether a job, read as one for another version of its source, is ported without an error."""
    changed = with_values(job, {"imported.version": source_version})
    return not any(each.severity == "error" for each in port_job(changed, target, version).findings)


# -- how each argument is ported


def _split(route: PortRoute, *, without: Iterable[str] = ()) -> Split:
    """Split arguments into those that the target also has, those that a field can express, and dropped ones.

    The latter are not described yet.

    Args:
        without: arguments that only serve to reproduce the source's own command exactly.
    """
    split, skipped = Split(), set(without)
    for flag, value in route.job.backend.args.items():
        if flag in skipped:
            continue
        row = route.row(flag, value)
        here = _same_name(route, flag, row)
        problem = None if here is None else route.target.catalogue(route.version).check(here, value)
        if is_default(route, flag, value):
            split.reasons[flag] = None
        elif here is not None and (problem is None or "$" in str(value)):
            split.kept[flag] = (here, value)  # a placeholder is kept; its value is checked once the user fills it in
        elif here is None and (known := _renamed(route, flag, row)) is not None and known.convert is not None:
            split.kept[flag] = (known.name or flag, known.convert(value))
        elif row is not None and row.becomes and all(_becomes(route, row, *each) for each in row.becomes.items()):
            split.substituted[flag] = row
        else:
            split.reasons[flag] = problem or _history(route, flag, here)
    return split


def _described_losses(route: PortRoute, split: Split) -> Split:
    args = route.job.backend.args
    found = {flag: missing(route, flag, args[flag], why) for flag, why in split.reasons.items()}
    return replace(split, missing=found)


def _becomes(route: PortRoute, row: NativeOnlyArg, path: str, value: Value) -> bool:
    """Return whether a field can replace an argument on the target; not where the user has overridden the field."""
    origin = route.job.origin(path).kind
    is_open = origin == "default" or (origin != "override" and path in row.holds)
    return (is_open or value_at(route.job, path) == value) and expressible(route, f"{path}={override_text(value)}")


def _same_name(route: PortRoute, flag: str, row: NativeOnlyArg | None) -> str | None:
    """Return the target's argument of the same name and meaning."""
    if row is not None and row.unrelated and route.source.name != route.target.name:
        return None
    found = spelled(route.target, route.version, flag)
    return None if found is None else found.name


def _share_argument_names(route: PortRoute) -> bool:
    """Return whether source and target share a history of argument names."""
    renames = route.source.entry.renames
    return route.source.name == route.target.name or (renames is not None and renames == route.target.entry.renames)


def _renamed(route: PortRoute, flag: str, row: NativeOnlyArg | None) -> RenamedArg | None:
    """Return the argument that replaced this one in the target's version."""
    if not _share_argument_names(route) or (
        row is not None and row.unrelated and route.source.name != route.target.name
    ):
        return None
    known = find_renamed(flag, route.target, route.version, near=False)
    return known if known.name is not None and known.convert is not None else None


def _history(route: PortRoute, flag: str, here: str | None) -> str | None:
    if here is not None or route.source.name != route.target.name:
        return None
    return find_renamed(flag, route.target, route.version, near=False).message or None


def _of_source(name: str, source: Backend, backend: Backend) -> bool:
    """Return whether a variable applies only to the source, or to its devices."""
    markers = source.entry.markers
    if any(name.startswith(_OF_LIBRARIES.get(device, ())) for device in backend.devices):
        return False
    if any(name.startswith(sign) for sign in markers) and not any(
        name.startswith(sign) for sign in backend.entry.markers
    ):
        return name not in _SHARED
    return name not in _SHARED and any(
        name.startswith(prefixes) for device, prefixes in _OF_DEVICES.items() if device not in backend.devices
    )


# -- findings


def _nearly(route: PortRoute, split: Split) -> Iterator[Finding]:
    """Yield findings for arguments that a field replaces, and how it differs."""
    for flag, row in split.substituted.items():
        replacement = " ".join(f"{path}={override_text(each)}" for path, each in row.becomes.items())
        yield Finding(
            rule=NEAREST,
            severity="warning" if row.nearly else "change",
            message=f"{flag} {row.does}: {replacement} sets it on every backend"
            + (f"; not exactly the same: {row.nearly}" if row.nearly else ""),
            fields=tuple(row.becomes),
            flags=(flag,),
            source=row.source or _table(route),
        )


def _losses(route: PortRoute, found: Iterable[DroppedArg], accepted: set[str]) -> Iterator[Finding]:
    """Yield findings for dropped arguments that have an effect; those with the same effect and reason are grouped."""
    groups: dict[tuple[object, ...], list[DroppedArg]] = {}
    for each in found:
        if each.effect != NOTHING:
            is_accepted = ALL in accepted or plain(each.flag) in accepted
            instead = "" if each.works else each.instead
            groups.setdefault((each.effect, each.unknown, each.why, instead, is_accepted), []).append(each)
    return (_loss(route, group, key[-1] is True) for key, group in groups.items())


def _unknown_accepted(route: PortRoute, names: Iterable[str]) -> Iterator[Finding]:
    """Yield findings for accepted names that match no argument: the argument that was meant is still refused."""
    catalogue = route.source.catalogue(route.source_version)
    given = {ALL, *map(plain, route.job.backend.args)}
    for name in names:
        if plain(name) not in given and not any(catalogue.get(each) for each in (name, name.replace("_", "-"))):
            near = catalogue.suggest(name)
            yield Finding(
                rule=DROPPED_RULE,
                severity="warning",
                message=f"imported.accept: {route.source.title} {route.source_version} has no argument {name}",
                fields=("imported.accept",),
                fixes=tuple(Fix(overrides=(f"imported.accept=[{each}]",)) for each in near),
                source="launch",
            )


def _computations(route: PortRoute, changed: Job) -> Iterator[Finding]:
    """Yield findings for what the target computes differently; not what its own rules say of the job."""
    source = _effective(route.job, route.source, route.source_version)
    return computed_differently([_effective(changed, route.target, route.version), source], reported_by=0)


def _effective(job: Job, backend: Backend, version: str) -> EffectiveValues:
    prepared = backend.prepare(job, version)
    return effective_of(prepared, backend, version, translate(prepared, backend, version).native)


def _unread(route: PortRoute, changed: Job) -> Iterator[Finding]:
    """Yield a finding for dropped environment variables; none of them affects training."""
    names = [name for name in route.job.backend.env if name not in changed.backend.env]
    if names:
        yield Finding(
            rule=DROPPED_RULE,
            severity="change",
            message=f"environment: {', '.join(names)} dropped; {route.target.title} does not read "
            f"{'it' if len(names) == 1 else 'them'}",
            source="launch",
        )


def _loss(route: PortRoute, group: list[DroppedArg], is_accepted: bool) -> Finding:
    """Return the finding for arguments that are dropped for one reason."""
    one = group[0]
    message = f"{_described(group)}; {one.why}{'' if one.works else f'; instead: {one.instead}'}"
    if one.works or not one.has:
        effect = EFFECTS[one.effect]
        message += f". Dropping it {effect.replace('changes', 'may change') if one.unknown else effect}"
    if is_accepted and one.changes_training:
        message += " (accepted)"
    elif one.needs_acceptance:
        names = ",".join(each.flag for each in group)
        message += f"; to drop it anyway: imported.accept=[{names}] (launch import --to: --accept)"
    return Finding(
        rule=DROPPED_RULE,
        severity=_severity(one, is_accepted),
        message=message,
        fields=tuple(dict.fromkeys(path for each in group for path in each.fields)),
        flags=tuple(each.flag for each in group),
        fixes=tuple(
            Fix(overrides=tuple(override.split(" ")))
            for override in dict.fromkeys(works for each in group for works in each.works)
        ),
        source=_table(route),
    )


def _described(group: list[DroppedArg]) -> str:
    """Return arguments with what they do, grouped by that."""
    kinds: dict[str, list[str]] = {}
    for each in group:
        kinds.setdefault(each.does, []).append(shown_argument(each.flag, each.value))
    return "; ".join(f"{', '.join(shown)}: {does}" for does, shown in kinds.items())


def _severity(one: DroppedArg, is_accepted: bool) -> str:
    if one.needs_acceptance and not is_accepted:
        return "error"
    settled = is_accepted or bool(one.has and not one.works)
    return "warning" if one.effect == MODEL or (one.effect == TRAINING and not settled) else "change"


def _table(route: PortRoute) -> str:
    return f"table of {route.source.name}'s own arguments"


def shown_argument(flag: str, value: Value) -> str:
    """Return an argument as written on a command line, shortened."""
    text = "" if value is True else f" {override_text(value)}"
    return f"{flag}{text if len(text) <= 60 else text[:57] + '…'}"
