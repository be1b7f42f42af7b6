"""Port: the imported job judged for another backend; what does not exist there is named, with reason and substitute."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.catalogue.catalogue import plain
from launcher.importing.accounts import Account, Outcome, accounts
from launcher.importing.imported import Imported
from launcher.importing.presets import with_preset
from launcher.job import Job, Origin, fields, value_at
from launcher.job.finding import Finding
from launcher.job.imported import ImportedFrom
from launcher.mapping.backend import get_backend
from launcher.port.dropped import DroppedArg, PortRoute
from launcher.port.port import ALL, PortResult, Split, command_of, port_job

if TYPE_CHECKING:
    from launcher.pipeline import Outcome as Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A job written for another backend.

    Attributes:
        job: the job with the target as its backend, without arguments and variables that exist on the source only;
            `job.imported` keeps them.
        accounts: what became of every argument of the source.
        variables: names of environment variables that were left out.
        findings: what the target's rules and mapping say, as `launch check` of the job does; what is left out is among
            them.
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
    def missing(self) -> tuple[DroppedArg, ...]:
        """What was left out without a finding of the mapping, with reason and substitute."""
        found = (account.missing for account in self.accounts)
        return tuple(each for each in found if each is not None and not each.told)


def ported(
    imported: Imported, target: str, version: str | None = None, *, accepted: Iterable[str] = (), fixes: bool = True
) -> Ported:
    """Return the imported job for another backend, judged by all of its rules.

    Args:
        accepted: names of arguments whose loss is accepted although the model or the loss is another one without them
            (`all`: of every one); they become warnings.
        fixes: look for values that satisfy all rules, which takes longer than all the rest.
    """
    from launcher.pipeline import judge, sound

    job = imported.job
    told = dataclasses.replace(source_of(imported, accepted), args=job.backend.args, env=job.backend.env)
    backend = get_backend(target)
    chosen = dataclasses.replace(job.backend, name=target, version=backend.version(version), args={}, env={})
    start = with_preset(dataclasses.replace(_as_file(job), backend=chosen, imported=told))
    arrival = port_job(start, backend, backend.version(version), sound if fixes else None)
    outcome = judge(arrival.job, fixes=fixes)
    return Ported(
        job=outcome.job,
        accounts=tuple(_accounts(imported, arrival, outcome)),
        variables=tuple(name for name in job.backend.env if name not in outcome.job.backend.env),
        findings=outcome.findings,
    )


def _as_file(job: Job) -> Job:
    """Return the job with its values set by a file, as they are once it is written."""
    said = (path for path, info in fields().items() if value_at(job, path) != info.default)
    return dataclasses.replace(job, origins={**dict.fromkeys(said, Origin(kind="recipe")), **job.origins})


def _accounts(imported: Imported, arrival: PortResult, judged: "Judged") -> list[Account]:
    split, way = arrival.split, arrival.way
    if way is None:  # the same backend and version: everything stays
        way = PortRoute(
            source=judged.backend,
            own_version=judged.version,
            target=judged.backend,
            version=judged.version,
            job=arrival.job,
            command=command_of(imported.program),
        )
        split = Split(kept={flag: (flag, value) for flag, value in imported.job.backend.args.items()})
    outcome = Outcome(
        job=judged.job,
        native=judged.native,
        findings=judged.findings,
        kept={flag: name for flag, (name, _) in split.kept.items()},
        substituted={flag: tuple(row.becomes) for flag, row in split.substituted.items()},
        missing=split.missing,
    )
    return accounts(imported, way, outcome)


def source_of(imported: Imported, accepted: Iterable[str] = ()) -> ImportedFrom:
    """Return what a job file tells of its script.

    Args:
        accepted: arguments that it may go without; only those that no field says are kept.
    """
    passed = {plain(name) for name in imported.job.backend.args}
    return ImportedFrom(
        backend=imported.backend,
        version=imported.version,
        program=imported.program or None,
        exact=tuple(imported.exact),
        accept=tuple(name for name in accepted if name == ALL or plain(name) in passed),
    )
