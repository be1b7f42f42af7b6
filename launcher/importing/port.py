"""Port: the imported job judged for another backend; what does not exist there is named, with reason and substitute."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from launcher.importing.accounts import Account, Outcome, accounts
from launcher.importing.imported import Imported
from launcher.importing.left_out import Missing, Way, expressible, is_default, missing, spelled, text_of
from launcher.importing.presets import with_preset
from launcher.importing.versions import Elsewhere, elsewhere
from launcher.job import Job, Origin, Value
from launcher.job.derive import with_values
from launcher.rules.finding import Finding, Fix
from launcher.translate.backend import Backend, get_backend
from launcher.translate.own import MODEL, Own, plain

ALL = "all"
# Variables that mean something to one kind of device only; `CUDA_DEVICE_MAX_CONNECTIONS` is read on NPUs, too.
_OF_DEVICES = {
    "cuda": ("CUDA_", "PYTORCH_CUDA_", "NCCL_", "NVTE_"),
    "npu": ("ASCEND_", "HCCL_", "PYTORCH_NPU_", "TASK_QUEUE_ENABLE", "NPU_"),
}
_SHARED = frozenset({"CUDA_DEVICE_MAX_CONNECTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A job written for another backend.

    Attributes:
        job: the job with the target as its backend, without arguments and variables that exist on the source only.
        accounts: what became of every argument of the source.
        variables: names of environment variables that were left out.
        findings: what the target's rules and mapping say, as `launch check` would, and what is left out although
            training goes otherwise without it.
    """

    job: Job
    accounts: tuple[Account, ...]
    variables: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing stands against running it there."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def missing(self) -> tuple[Missing, ...]:
        """What was left out without a finding of the mapping, with reason and substitute."""
        found = (account.missing for account in self.accounts)
        return tuple(each for each in found if each is not None and not each.told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Where pass-through arguments go: by the source's names.

    Attributes:
        kept: name and value of the target's argument.
        substituted: fields that say it from now on, with their values, and the table's row.
        missing: what is left out.
    """

    kept: dict[str, tuple[str, Value]] = field(default_factory=dict)
    substituted: dict[str, Own] = field(default_factory=dict)
    missing: dict[str, Missing] = field(default_factory=dict)


def ported(
    imported: Imported, target: str, version: str | None = None, *, accepted: Iterable[str] = (), fixes: bool = True
) -> Ported:
    """Return the imported job for another backend, judged by all of its rules.

    Args:
        accepted: names of arguments whose loss is accepted although the model or the loss is another one without them
            (`all`: of every one); they become warnings.
        fixes: look for values that satisfy all rules, which takes longer than all the rest.
    """
    from launcher.pipeline import judge

    backend = get_backend(target)
    way = _way(imported.job, imported.backend, imported.version, backend, backend.version(version), imported.program)
    split = _split(way, without=imported.exact)
    job = _changed(way, split)
    outcome = judge(with_preset(job), fixes=fixes)
    found = accounts(
        imported,
        way,
        Outcome(
            job=outcome.job,
            native=outcome.native,
            findings=outcome.findings,
            kept={flag: name for flag, (name, _) in split.kept.items()},
            substituted={flag: tuple(row.becomes) for flag, row in split.substituted.items()},
            missing=split.missing,
        ),
    )
    told = [*_nearly(way, split), *_losses(way, found, {plain(name) for name in accepted})]
    return Ported(
        job=outcome.job,
        accounts=tuple(found),
        variables=tuple(name for name in imported.job.backend.env if name not in job.backend.env),
        findings=tuple(sorted([*outcome.findings, *told], key=lambda each: each.severity != "error")),
    )


def carried(
    job: Job, name: str, own_version: str, target: str, version: str, *, without: Iterable[str] = ()
) -> tuple[Job, list[Missing]]:
    """Return a job with another backend: pass-through arguments and variables of the source only are gone.

    Args:
        name, own_version: what its pass-through arguments are written for.
        without: pass-through arguments that only make the source's own command exact.
    """
    way = _way(job, name, own_version, get_backend(target), version)
    split = _split(way, without=without)
    return _changed(way, split), list(split.missing.values())


def _way(job: Job, name: str, own_version: str, target: Backend, version: str, program: str = "") -> Way:
    words = program.split()
    return Way(
        source=get_backend(name),
        own_version=own_version,
        target=target,
        version=version,
        job=job,
        command=words[1] if len(words) > 1 else None,
    )


def _changed(way: Way, split: Split) -> Job:
    """Return the job with the target as its backend and with what says there what its arguments said."""
    values = {path: value for row in split.substituted.values() for path, value in row.becomes.items()}
    job = with_values(way.job, values, Origin(kind="derived")) if values else way.job
    env = {name: text for name, text in job.backend.env.items() if not _of_source(name, way.source, way.target)}
    args = dict(split.kept.values())
    choice = dataclasses.replace(job.backend, name=way.target.name, version=way.version, args=args, env=env)
    return dataclasses.replace(job, backend=choice)


def _split(way: Way, *, without: Iterable[str] = ()) -> Split:
    """Tell which pass-through arguments the target has, too, which a field can say, and which are left out."""
    split, skipped = Split(), set(without)
    for flag, value in way.job.backend.args.items():
        if flag in skipped:
            continue
        row = way.row(flag, value)
        here = _same_name(way, flag, row)
        problem = None if here is None else way.target.catalogue(way.version).check(here, value)
        if is_default(way, flag, value):
            split.missing[flag] = missing(way, flag, value)
        elif here is not None and (problem is None or "$" in str(value)):
            split.kept[flag] = (here, value)  # a blank stays one: whoever fills it in is told what fits
        elif here is None and (known := _renamed(way, flag, row)) is not None and known.convert is not None:
            split.kept[flag] = (known.name or flag, known.convert(value))
        elif row is not None and row.becomes and all(_can(way, path, each) for path, each in row.becomes.items()):
            split.substituted[flag] = row
        else:
            split.missing[flag] = missing(way, flag, value, problem or _history(way, flag, here))
    return split


def _can(way: Way, path: str, value: Value) -> bool:
    return expressible(way, f"{path}={text_of(value)}")


def _same_name(way: Way, flag: str, row: Own | None) -> str | None:
    """Return the target's argument of the same name and meaning."""
    if row is not None and row.alone and way.source.name != way.target.name:
        return None
    found = spelled(way.target, way.version, flag)
    return None if found is None else found.name


def _of_one_dialect(way: Way) -> bool:
    """Tell whether source and target share the history of their names."""
    renames = way.source.entry.renames
    return way.source.name == way.target.name or (renames is not None and renames == way.target.entry.renames)


def _renamed(way: Way, flag: str, row: Own | None) -> Elsewhere | None:
    """Return what took the argument's place in the target's version."""
    if not _of_one_dialect(way) or (row is not None and row.alone and way.source.name != way.target.name):
        return None
    known = elsewhere(flag, way.target, way.version)
    return known if known.name is not None and known.convert is not None else None


def _history(way: Way, flag: str, here: str | None) -> str | None:
    if here is not None or way.source.name != way.target.name:
        return None
    return elsewhere(flag, way.target, way.version).message or None


def _nearly(way: Way, split: Split) -> list[Finding]:
    """Tell of arguments that a field says from now on, and how that differs."""
    return [
        Finding(
            rule="PORT-NEAREST",
            severity="warning" if row.nearly else "change",
            message=f"{flag} {row.does}: {' '.join(f'{path}={text_of(each)}' for path, each in row.becomes.items())} "
            f"says so on every backend" + (f"; not quite the same: {row.nearly}" if row.nearly else ""),
            fields=tuple(row.becomes),
            flags=(flag,),
            source=row.source or f"table of {way.source.name}'s own arguments",
        )
        for flag, row in split.substituted.items()
    ]


def _losses(way: Way, found: Iterable[Account], accepted: set[str]) -> list[Finding]:
    """Tell of what is left out although training goes otherwise without it; arguments of one row together."""
    groups: dict[tuple[object, ...], list[Missing]] = {}
    for account in found:
        each = account.missing
        if each is not None and each.changes_training and not each.told:
            groups.setdefault((each.does, each.effect, each.why, each.works, each.without), []).append(each)
    return [_loss(way, group, accepted) for group in groups.values()]


def _loss(way: Way, group: list[Missing], accepted: set[str]) -> Finding:
    one = group[0]
    agreed = ALL in accepted or all(plain(each.flag) in accepted for each in group)
    grave = one.effect == MODEL and not one.works and not agreed
    shown = ", ".join(shown_argument(each.flag, each.value) for each in group)
    what = "the model or its loss is another one" if one.effect == MODEL else "training goes otherwise"
    return Finding(
        rule="PORT-LEFT-OUT",
        severity="error" if grave else "warning",
        message=f"{shown}: {one.does}; {one.why}{'' if one.works else f'; instead: {one.instead}'}. Without it {what}"
        + (" (accepted)" if agreed and one.effect == MODEL and not one.works else ""),
        fields=tuple(dict.fromkeys(path for each in group for path in each.fields)),
        flags=tuple(each.flag for each in group),
        fixes=tuple(Fix(overrides=(override,)) for override in one.works),
        source=f"table of {way.source.name}'s own arguments",
    )


def shown_argument(flag: str, value: Value) -> str:
    """Return an argument as people write it, shortened."""
    text = "" if value is True else f" {text_of(value)}"
    return f"{flag}{text if len(text) <= 60 else text[:57] + '…'}"


def _of_source(name: str, source: Backend, backend: Backend) -> bool:
    """Tell whether a variable means something to the source, or to its devices, only."""
    signs = source.entry.signs
    if any(name.startswith(sign) for sign in signs) and not any(name.startswith(sign) for sign in backend.entry.signs):
        return name not in _SHARED
    return name not in _SHARED and any(
        name.startswith(prefixes) for device, prefixes in _OF_DEVICES.items() if device not in backend.devices
    )
