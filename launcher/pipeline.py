"""Pipeline from job to launch plan: port, translate, apply the rules, plan."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from launcher.installed import version_read
from launcher.job import Job, Origin, Value, with_values
from launcher.job.finding import Finding, Fix
from launcher.job.secret import job_without_secrets
from launcher.mapping.backend import Backend, UnknownBackend, UnknownVersion, backend_names, get_backend
from launcher.mapping.engine import Translation, translate
from launcher.mapping.ignored_fields import ignored_field_findings
from launcher.mapping.native import NativeArgs
from launcher.mapping.passthrough import pass_through
from launcher.plan import LaunchPlan
from launcher.plan.executor import rules_for
from launcher.records import dataclass
from launcher.rules.changes import affects_training, changes_of
from launcher.rules.data_files import ID as DATA_FILE
from launcher.rules.data_files import Tried, data_file_findings
from launcher.rules.effective import EffectiveValues, effective_values
from launcher.rules.engine import load, ordered, run, without_duplicates
from launcher.rules.fixes import missing, with_fixes
from launcher.rules.native import rule_context
from launcher.rules.other_backends import with_other_backends
from launcher.rules.passthrough import with_passthrough_unless_set
from launcher.rules.registry import RuleContext
from launcher.rules.variants import Variants

if TYPE_CHECKING:
    from launcher.port.port import PortResult
    from launcher.rules.repair import Repair

# Environment variables that a plan refers to if the path of the weights or the data is not given.
MODEL_PATH = "MODEL_PATH"
DATA_PATH = "DATA_PATH"


class Refused(Exception):
    """No backend or version to translate `job` for; `finding` has the reason."""

    def __init__(self, finding: Finding, job: Job) -> None:
        super().__init__(finding.message)
        self.finding, self.job = finding, job


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A job checked and translated for one backend; nothing has been started or written.

    Attributes:
        port: how it was ported to the backend; None: it was not imported.
    """

    job: Job
    backend: Backend
    version: str
    native: NativeArgs
    findings: tuple[Finding, ...]
    context: RuleContext = dataclasses.field(repr=False, compare=False)
    port: "PortResult | None" = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def effective(self) -> EffectiveValues:
        """What the phases of the backend's validation leave of the arguments."""
        return effective_values(self.context)

    @property
    def ok(self) -> bool:
        """Whether there is no error among the findings."""
        return all(finding.severity != "error" for finding in self.findings)

    def plan(self) -> LaunchPlan:
        """Return the launch plan of the backend's native stack."""
        return self.backend.launch(self.job, self.native)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsWritten:
    """Arguments of an existing command line or file, to be judged without translation.

    Attributes:
        native: the arguments; the job was read from them.
        flags: by canonical path, the arguments that it was read from.
        findings: what reading found.
        assumed: canonical fields that neither they nor what starts them says.
        errors: what `errors_as_written` found for the same job; None: not judged yet.
    """

    native: NativeArgs
    flags: Mapping[str, Sequence[str]]
    findings: tuple[Finding, ...] = ()
    assumed: tuple[str, ...] = ()
    errors: tuple[Finding, ...] | None = None


def chosen_backend(job: Job) -> tuple[Backend, str]:
    """Return the job's backend and version; without one, a native rehearsal has that of the interpreter of its ranks.

    Raises:
        Refused: no backend is chosen, or the backend or its version is unknown.
    """
    name = job.backend.name
    try:
        if name is None:
            raise _refused(job, "no backend is chosen: add backend=NAME", "backend.name", "backend", backend_names())
        backend = get_backend(name)
        return backend, backend.version(job.backend.version or _installed(job, backend))
    except UnknownBackend:
        message = f"no backend {name!r}; installed: {', '.join(backend_names())}"
        raise _refused(job, message, "backend.name", "backend", backend_names()) from None
    except UnknownVersion as error:
        works = _working_versions(job, backend)
        if not works:
            wanted = job.backend.version or backend.default_version
            works = (backend.similar_versions if error.add else backend.nearest_versions)(wanted)[:1]
        asks = (error.add,) if error.add else ()
        raise _refused(job, error.message, "backend.version", "backend.version", works, asks) from None


_TRIED = 4


def _working_versions(job: Job, backend: Backend) -> list[str]:
    """Return the version nearest to the job's unknown one with which the job passes, if one of the nearest does."""
    nearest = backend.nearest_versions(job.backend.version or backend.default_version)
    return [version for version in nearest[:_TRIED] if _passes(job, version)][:1]


def _passes(job: Job, version: str) -> bool:
    try:
        outcome = judge(with_values(job, {"backend.version": version}), fixes=False)
    except (Refused, UnknownVersion, UnknownBackend):
        return False
    return not any(finding.severity == "error" for finding in outcome.findings)


def _installed(job: Job, backend: Backend) -> str | None:
    """Return the version whose arguments a native rehearsal reads where it runs; None: not known, or none runs."""
    if job.rehearse.entry != "native" or job.runtime == "native" or backend.native_cpu is None:
        return None
    native = import_module(backend.native_cpu).NATIVE_CPU
    found = version_read(native.requires[-1].distribution, native.catalogues, job.cluster.python)
    return None if found is None else found[1]


def _refused(job: Job, message: str, field: str, key: str, works: Sequence[str], asks: tuple[str, ...] = ()) -> Refused:
    fixes = tuple(Fix(overrides=(f"{key}={value}",)) for value in works)
    finding = Finding(
        rule="REQ-BACKEND", severity="error", message=message, fields=(field,), fixes=fixes, asks=asks, source="launch"
    )
    return Refused(finding, job)


def judge(job: Job, *, written: AsWritten | None = None, fixes: bool = True) -> Outcome:
    """Apply every rule to the job and to its native arguments: those of its translation, or existing ones.

    Args:
        written: the existing arguments that `job` was read from; they are judged instead of the translation.
        fixes: search for changes with which the job passes.

    Raises:
        Refused: there is no such backend or version.
    """
    given, job = job, job_without_secrets(job)
    backend, version = chosen_backend(job)
    load((*backend.rules, *rules_for(job)))
    if written is not None:
        if job is not given:
            written = dataclasses.replace(written, errors=None)
        return _judged_as_written(job, backend, version, written, fixes=fixes)
    port = _ported(job, backend, version, change_validator if fixes else None)
    given = job
    job, reported = (job, ()) if port is None else (port.job, port.findings)
    translation, context, findings = _judged(job, backend, version)
    findings = without_duplicates(findings)
    if fixes:
        findings = with_fixes(findings, lambda: _variants(job, backend, version))
        findings = [_with_readable_fixes(each, job) for each in findings]
        findings = with_other_backends(findings, given, lambda other, fixes: judge(other, fixes=fixes).findings)
    named = {path for finding in findings for path in finding.fields}
    findings = ordered(
        [
            *findings,
            *reported,
            *ignored_field_findings(job, backend, version, translation.native, named),
            *_of_data_files(job, context, findings, fixes=fixes),
        ]
    )
    job = dataclasses.replace(job, backend=dataclasses.replace(job.backend, version=version))
    return Outcome(
        job=with_passthrough_unless_set(job, backend, version),
        backend=backend,
        version=version,
        native=translation.native,
        findings=tuple(findings),
        context=context,
        port=port,
    )


def _with_readable_fixes(finding: Finding, job: Job) -> Finding:
    """Return a finding without fixes that name another form of the data than the files of this machine have."""
    if finding.severity != "error" or not job.data.paths:
        return finding
    kept = tuple(fix for fix in finding.fixes if not _misreads(job, changes_of(fix) or {}))
    return dataclasses.replace(finding, fixes=kept)


def _misreads(job: Job, values: Mapping[str, Value]) -> bool:
    """Return whether the backend cannot read the job's data files with other values."""
    if not any(path.startswith("data.") for path in values):
        return False
    found = judge(with_values(job, values), fixes=False).findings
    return any((each.rule, each.severity) == (DATA_FILE, "error") for each in found)


def _of_data_files(job: Job, context: RuleContext, findings: Sequence[Finding], *, fixes: bool) -> Iterator[Finding]:
    """Yield the findings on data files of this machine; none where the backend refuses the format that is named."""
    refused = {path for finding in findings if finding.severity == "error" for path in finding.fields}
    if "data.format" not in refused:
        yield from data_file_findings(context, _reads_files(job, refused) if fixes else None)


def _reads_files(job: Job, refused: set[str]) -> Tried:
    """Return a predicate: whether other values of a job let its backend read the files, without any new error."""

    def passes(values: Mapping[str, Value]) -> bool:
        findings = judge(with_values(job, values), fixes=False).findings
        if any(
            each.rule in (DATA_FILE, "MAP-UNREAD") and {*values, "data.paths"} & {*each.fields} for each in findings
        ):
            return False
        return all(refused.issuperset(each.fields) for each in findings if each.severity == "error")

    return passes


def errors_as_written(job: Job, backend: Backend, version: str, native: NativeArgs) -> list[Finding]:
    """Return the findings of the rules that report errors, on existing arguments that the job was read from."""
    load((*backend.rules, *rules_for(job)))
    context = rule_context(backend.prepare(job, version), backend, version, native, as_written=True)
    return run(context, errors_only=True)


def _judged_as_written(job: Job, backend: Backend, version: str, written: AsWritten, *, fixes: bool) -> Outcome:
    prepared = backend.prepare(job, version)
    context = rule_context(prepared, backend, version, written.native, as_written=True)
    findings = run(context, errors=written.errors)
    if backend.catalogue(version).style == "yaml":
        # A command-line parser rejects a wrong value while it reads; a file's values are read as they are.
        findings += (each for each in pass_through(prepared, [], backend, version)[1] if each.rule == "ARG-VALUE")
    findings += _of_data_files(prepared, context, findings, fixes=False)
    findings = ordered(_with_flags(finding, written.flags) for finding in (*findings, *written.findings))
    outcome = Outcome(
        job=job,
        backend=backend,
        version=version,
        native=written.native,
        findings=tuple(findings),
        context=context,
    )
    if outcome.ok or not fixes:
        return outcome
    # The same errors of the job, which the user can change field by field.
    of_job = judge(job).findings
    fixed = (_with_fixes_of(_same(each, findings, of_job), each, job, written.assumed) for each in findings)
    return dataclasses.replace(outcome, findings=tuple(fixed))


def _same(finding: Finding, written: Sequence[Finding], of_job: Sequence[Finding]) -> Finding:
    """Return the finding of the job that one of the existing arguments is; itself, if there is none.

    The job names the key in `backend.args` as well: the only one of a rule is the same.
    """
    others = [each for each in of_job if each.rule == finding.rule]
    exact = [each for each in others if each.fields == finding.fields]
    is_only = len(others) == 1 and sum(each.rule == finding.rule for each in written) == 1
    return (exact or (others if is_only else [finding]))[0]


def _with_fixes_of(same: Finding, finding: Finding, job: Job, assumed: Sequence[str]) -> Finding:
    asks = missing(job, finding, assumed) if finding.severity == "error" and assumed else ()
    return dataclasses.replace(finding, fixes=same.fixes, asks=asks or same.asks)


def _with_flags(finding: Finding, flags: Mapping[str, Sequence[str]]) -> Finding:
    named = (flag for path in finding.fields for flag in flags.get(path, ()))
    return finding if finding.flags else dataclasses.replace(finding, flags=tuple(dict.fromkeys(named)))


def variants_of(job: Job) -> Variants:
    """Return an object that checks the job with many other values, thousands per second.

    Raises:
        Refused: there is no such backend or version.
    """
    backend, version = chosen_backend(job)
    load((*backend.rules, *rules_for(job)))
    port = _ported(job, backend, version)
    return _variants(job if port is None else port.job, backend, version)


def _variants(job: Job, backend: Backend, version: str) -> Variants:
    """Return `variants_of` a job that is ported to the backend."""
    # Set the references before any value changes, instead of in each variant.
    job = _with_data_reference(job)
    local, _ = with_local_model(job, backend)

    def prepare(changed: Job) -> Job:
        if changed.model is job.model and local is not job:
            origins = {**changed.origins, "model.path": local.origin("model.path")}
            changed = local if changed is job else dataclasses.replace(changed, model=local.model, origins=origins)
        return _prepared(changed, backend, version)[0]

    return Variants(job, backend, version, prepare)


def repair_of(job: Job, assumed: Collection[str] = ()) -> "Repair":
    """Return the nearest changes with which a job passes all rules; `assumed` as in `repair`."""
    from launcher.rules.repair import repair  # of few commands

    # Variants of a job do not read files: what a data file needs is found, and tried, with its finding.
    unread = any(each.rule == DATA_FILE for each in judge(job, fixes=False).findings)
    findings = judge(job).findings if unread else ()
    offered = [fix for each in findings if each.rule == DATA_FILE for fix in each.fixes[:1]]
    first = {path: value for fix in offered for path, value in (changes_of(fix) or {}).items()}
    if first:
        job = with_values(job, first, Origin(kind="override", where="launch check --fix"))
    found = repair(job, lambda changed: judge(changed, fixes=False).findings, variants_of, assumed)
    if not first:
        return found
    trains = tuple(path for path in first if affects_training(path, job.backend.name))
    return dataclasses.replace(
        found, values={**first, **found.values}, affects_training=(*trains, *found.affects_training)
    )


def change_validator(job: Job) -> Callable[[Mapping[str, Value]], bool]:
    """Return a predicate: whether the backend of a ported job uses given other values, without any new error."""
    backend, version = chosen_backend(job)
    variants = _variants(job, backend, version)
    before = {(error.rule, error.fields) for error in variants.errors({})}

    def passes(values: Mapping[str, Value]) -> bool:
        if any((error.rule, error.fields) not in before for error in variants.errors(values)):
            return False
        changed = _prepared(with_values(job, values), backend, version)[0]
        native = translate(changed, backend, version).native
        return not any(
            {*values} & {*each.fields} for each in ignored_field_findings(changed, backend, version, native, set())
        )

    return passes


def _ported(
    job: Job,
    backend: Backend,
    version: str,
    change_validator: Callable[[Job], Callable[[Mapping[str, Value]], bool]] | None = None,
) -> "PortResult | None":
    """Return an imported job ported to the backend; None: it was not imported."""
    if job.imported.backend is None and job.imported.args is None:
        return None
    from launcher.port.port import port_job

    return port_job(job, backend, version, change_validator)


def _prepared(job: Job, backend: Backend, version: str) -> tuple[Job, list[Finding]]:
    local, notes = with_local_model(_with_data_reference(job), backend)
    return with_passthrough_unless_set(backend.prepare(local, version), backend, version), notes


def _judged(job: Job, backend: Backend, version: str) -> tuple[Translation, RuleContext, list[Finding]]:
    prepared, notes = _prepared(job, backend, version)
    translation = translate(prepared, backend, version)
    context = rule_context(prepared, backend, version, translation.native)
    return translation, context, ordered([*run(context), *notes, *translation.findings])


def _with_data_reference(job: Job) -> Job:
    """Set data.paths to a variable if no data is given, so that a script requires it before it starts."""
    if job.data.paths or job.data.format in ("sample", "mock"):
        return job
    return with_values(job, {"data.paths": (f"${{{DATA_PATH}}}",)}, Origin(kind="derived"))


def with_local_model(job: Job, backend: Backend) -> tuple[Job, list[Finding]]:
    """Set model.path to a variable if the backend cannot download the weights of model.hub_id itself."""
    model = job.model
    if backend.reads_hub or model.path is not None or model.hub_id is None or model.pretrained is False:
        return job, []
    finding = Finding(
        rule="MODEL-LOCAL",
        severity="warning",
        message=f"{backend.title} reads weights from a local directory: download {model.hub_id} and set model.path, "
        f"or name the directory in the environment variable {MODEL_PATH} when it starts",
        fields=("model.path", "model.hub_id"),
        source=f"mapping table of {backend.name}",
    )
    return with_values(job, {"model.path": f"${{{MODEL_PATH}}}"}, Origin(kind="derived")), [finding]
