"""Ports an imported job to another backend and checks it; dropped arguments get a reason and a substitute."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING

from launcher.catalogue.catalogue import plain
from launcher.compose.presets import with_model_of_checkpoint
from launcher.importing.accounts import Account, Outcome, accounts
from launcher.importing.exact import as_loaded
from launcher.importing.imported import Imported, source_of
from launcher.importing.notes import Note
from launcher.importing.presets import named_by_folder, with_preset
from launcher.job import Job
from launcher.job.finding import Finding
from launcher.mapping.backend import get_backend
from launcher.port.dropped import DroppedArg, PortRoute
from launcher.port.port import ALL, PortResult, Split, command_of
from launcher.records import dataclass

if TYPE_CHECKING:
    from launcher.pipeline import Outcome as Judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Ported:
    """A job ported to another backend.

    Attributes:
        job: the job with the target as its backend, without arguments and variables of the source backend only;
            `job.imported` keeps them.
        accounts: result of porting every argument of the source.
        variables: names of dropped environment variables.
        findings: findings of the target's rules and mapping, as from `launch check`, including dropped arguments.
        notes: what was read from names.
    """

    job: Job
    accounts: tuple[Account, ...]
    variables: tuple[str, ...]
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the port has no errors."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def missing(self) -> tuple[DroppedArg, ...]:
        """Dropped arguments without a finding of the mapping, with reason and substitute."""
        found = (account.missing for account in self.accounts)
        return tuple(each for each in found if each is not None and not each.reported)


def ported(
    imported: Imported, target: str, version: str | None = None, *, accepted: Iterable[str] = (), fixes: bool = True
) -> Ported:
    """Return the imported job ported to another backend and checked by all of its rules.

    Args:
        accepted: names of arguments that may be dropped although that changes the model or its loss
            (`all`: every argument); they become warnings.
        fixes: search for values that satisfy all rules; this takes most of the time.
    """
    from launcher.pipeline import judge

    job = imported.job
    passthrough = {plain(name) for name in job.backend.args}
    origin = dataclasses.replace(
        source_of(imported),
        args=job.backend.args,
        env=job.backend.env,
        # The others have canonical fields: nothing is dropped for them.
        accept=tuple(name for name in accepted if name == ALL or plain(name) in passthrough),
    )
    backend = get_backend(target)
    chosen = dataclasses.replace(job.backend, name=target, version=backend.version(version), args={}, env={})
    loaded, name = with_model_of_checkpoint(as_loaded(dataclasses.replace(job, backend=chosen, imported=origin)))
    start = with_preset(loaded)
    outcome = judge(start, fixes=fixes)
    result = outcome.port
    assert result is not None  # it is an imported job
    return Ported(
        job=outcome.job,
        accounts=tuple(_accounts(imported, result, outcome)),
        variables=tuple(name for name in job.backend.env if name not in outcome.job.backend.env),
        findings=outcome.findings,
        notes=(_named_by_checkpoint(name, job),) if name else named_by_folder(start),
    )


def _named_by_checkpoint(name: str, job: Job) -> Note:
    message = f"the model is taken to be {name}, by the name of checkpoint.load={job.checkpoint.load}"
    return Note(message=message, works=("model.path=DIR with another config.json",))


def _accounts(imported: Imported, result: PortResult, judged: "Judged") -> list[Account]:
    split, route = result.split, result.route
    if route is None:  # same backend and version: nothing changes
        route = PortRoute(
            source=judged.backend,
            source_version=judged.version,
            target=judged.backend,
            version=judged.version,
            job=result.job,
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
    return accounts(imported, route, outcome)
