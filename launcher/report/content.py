"""What a report says of one job: collected from the same functions that the verbs ask, without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launcher.estimate import CannotEstimate, Estimate, estimate
from launcher.estimate.memory import GIB
from launcher.executors.failure import CannotStart
from launcher.job import Job, fields, override_text, value_at
from launcher.job.finding import Finding
from launcher.job.schema import USER_ORIGINS
from launcher.job.secret import job_without_secrets, redacted, without_secrets
from launcher.mapping.native import value_text
from launcher.pipeline import Outcome, Refused, judge
from launcher.plan.shell import one_line, settled
from launcher.records import dataclass
from launcher.rehearse.refusal import RehearsalRefused
from launcher.report.figures import Chart, devices_chart, memory_chart, timeline_chart
from launcher.report.origins import BY_BACKEND, origin_parts, origin_words
from launcher.report.placement import placement_of
from launcher.rules.passthrough import with_passthrough
from launcher.runtime import planned
from launcher.terminal import counted, parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One native argument, environment variable, or value that the backend sets itself; all texts.

    Attributes:
        origin: name of its origin, as in launcher.report.origins.
        where: file and line, override, or rule.
    """

    flag: str
    value: str
    field: str
    origin: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command to copy, and what it does."""

    does: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A job in a report.

    Attributes:
        label: short, unique in the report.
        backend: title and version; "": none is chosen.
        facts: what the job is, as names and texts.
        findings: of all rules, and of the estimate where it refuses.
        answer: the estimate; None: the job cannot be estimated.
        charts: those that the job has: devices, memory, timeline.
        missing: charts that cannot be drawn, each with the reason.
        values: the fields that were set: path, value, where.
        commands: commands to copy.
        overrides: words with which `launch` composes the job, without secrets.
    """

    label: str
    job: Job
    backend: str
    facts: Sequence[tuple[str, str]]
    findings: Sequence[Finding]
    answer: Estimate | None
    charts: Sequence[Chart]
    missing: Sequence[str]
    arguments: Sequence[Argument]
    values: Sequence[tuple[str, str, str]]
    commands: Sequence[Command]
    overrides: Sequence[str]

    @property
    def refused(self) -> bool:
        """Whether the job would not be started."""
        return any(finding.severity == "error" for finding in self.findings)

    @property
    def verdict(self) -> str:
        """The answer in one line."""
        answer, counts = self.answer, self.counts
        parts = ["refused" if self.refused else "legal"]
        if answer is not None:
            parts.append({True: "fits", False: "does not fit", None: "memory of the device unknown"}[answer.fits])
            parts += [f"{answer.time.step_s:.4g} s/step"] if answer.time is not None else []
        names = (counted(count, name) for name, count in counts.items() if count)
        return " · ".join([*parts, *names])

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of findings by severity."""
        found = [finding.severity for finding in self.findings]
        return {severity: found.count(severity) for severity in ("error", "warning", "change")}


def entry_of(job: Job, label: str, overrides: Sequence[str], number: int = 1) -> Entry:
    """Return what a report says of a job.

    Args:
        overrides: words with which `launch` composes the job, for the commands.
        number: distinguishes charts of several jobs.
    """
    job = job_without_secrets(job)
    findings: list[Finding] = []
    outcome: Outcome | None = None
    try:
        outcome = judge(job)
        findings += outcome.findings
    except Refused as refused:
        findings.append(refused.finding)
    charts, missing = list[Chart](), list[str]()
    placement = placement_of(job)
    if placement is not None:
        charts.append(devices_chart(placement, f"devices-{number}"))
    else:
        missing.append("What trains where: the parallel sizes do not divide the devices (see the findings).")
    answer = _estimated(job, findings, missing)
    if answer is not None:
        charts.append(memory_chart(answer, f"memory-{number}"))
        timeline = timeline_chart(answer, f"timeline-{number}")
        if timeline is not None:
            charts.append(timeline)
        else:
            missing.append("The pipeline's timeline: the hardware's speed is not known (choose hardware=NAME).")
    return Entry(
        label=label,
        job=job,
        backend="" if outcome is None else f"{outcome.backend.title} {outcome.version}",
        facts=list(_facts(job, answer)),
        findings=[_without_secrets(finding) for finding in findings],
        answer=answer,
        charts=charts,
        missing=missing,
        arguments=[] if outcome is None else _arguments(outcome),
        values=_values(job),
        commands=_commands(outcome, overrides),
        overrides=without_secrets(overrides),
    )


def _estimated(job: Job, findings: list[Finding], missing: list[str]) -> Estimate | None:
    try:
        return estimate(job, timeline=True)
    except CannotEstimate as error:
        known = {(each.rule, each.fields) for each in findings}
        findings += [each for each in error.findings if (each.rule, each.fields) not in known]
        missing.append(f"Memory and time: {redacted(str(error))}.")
        return None


def _without_secrets(finding: Finding) -> Finding:
    import dataclasses

    return dataclasses.replace(finding, message=redacted(finding.message))


def _facts(job: Job, answer: Estimate | None) -> list[tuple[str, str]]:
    job = with_passthrough(job)
    model, parallel, batch = job.model, job.parallel, job.batch
    every = {name: getattr(parallel, name) for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "dp")}
    sizes = ", ".join(f"{name} {size}" for name, size in every.items() if size is not None)
    devices = f"{job.cluster.nodes:,} × {job.cluster.devices_per_node} {job.hardware.name or 'devices'}"
    facts = [
        ("model", f"{model.hub_id or model.path or model.model_type or 'not chosen'}"),
        ("devices", devices),
        ("parallel sizes", sizes),
        (
            "batch",
            f"{batch.global_batch_size} sequences of {batch.seq_length} tokens, {batch.micro_batch_size} at a time",
        ),
    ]
    if answer is None:
        return [(name, redacted(text)) for name, text in facts]
    total, active = answer.parameters["total"], answer.parameters["active"]
    facts.insert(1, ("parameters", parameters(total) + (f", {parameters(active)} active" if active != total else "")))
    used = (answer.fullest.peak_reserved + answer.outside) / GIB
    of = "" if answer.capacity is None else f" of {answer.capacity / GIB:g}"
    facts.append(("memory", f"{used:.1f}{of} GiB on stage {answer.fullest.stage}"))
    if answer.time is not None:
        speed = f"{answer.tokens_per_s_per_device or 0:,.0f} tokens/s per device, MFU {100 * (answer.mfu or 0):.1f} %"
        facts.append(("speed", f"{answer.time.step_s:.4g} s a step, {speed}"))
    return [(name, redacted(text)) for name, text in facts]


def _arguments(outcome: Outcome) -> list[Argument]:
    rows = [
        Argument(
            flag=arg.flag,
            value=redacted(value_text(arg.value), arg.flag),
            field=arg.field or "",
            origin=name,
            where=redacted(where),
        )
        for arg in outcome.native
        for name, where in (origin_parts(arg.origin, arg.where),)
    ]
    rows += [
        Argument(
            flag=each.flag,
            value=value_text(each.after),
            field="",
            origin=BY_BACKEND,
            where=f"{each.rule}: was {value_text(each.before)}",
        )
        for each in outcome.effective.changes
    ]
    return rows


def _values(job: Job) -> list[tuple[str, str, str]]:
    found = []
    for path in fields():
        origin = job.origin(path)
        if origin.kind in USER_ORIGINS:
            words = redacted(origin_words(origin.kind, origin.where))
            found.append((path, redacted(override_text(value_at(job, path)), path), words))
    return found


def _commands(outcome: Outcome | None, overrides: Sequence[str]) -> list[Command]:
    words = one_line(without_secrets(overrides))
    found = [
        Command(does="start it", text=f"launch run {words}"),
        Command(does="show exactly what would run", text=f"launch dry-run {words}"),
        Command(does="a script that runs without Launch", text=f"launch dry-run {words} --format shell > job.sh"),
        Command(does="check it", text=f"launch check {words}"),
        Command(does="search a faster layout", text=f"launch search {words} -o best.yaml"),
    ]
    if outcome is None or not outcome.ok:
        return found[3:]
    try:
        node: Any = settled(planned(outcome).nodes[0])
    except (CannotStart, RehearsalRefused):
        return found
    return [*found, Command(does="what runs on the first node", text=redacted(one_line(node.argv)))]
