"""Builds the launch plan of `rehearse.entry=native`: the backend's plan, with what lets its ranks run on CPU."""

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module

from launcher.families.tokenizer_files import has_tokenizer
from launcher.job import Job, Value, output_dir, value_at, with_values
from launcher.job.finding import Finding, Fix
from launcher.mapping.engine import translate
from launcher.pipeline import Outcome, judge
from launcher.plan import LaunchPlan, NodePlan
from launcher.plan.tracker_config import with_job_as_config
from launcher.rehearse.adapt import REHEARSED
from launcher.rehearse.native import (
    NativeOnCpu,
    announcement,
    catalogue_for,
    environment,
    missing_in,
    untested,
    versions_in,
)
from launcher.rehearse.refusal import RehearsalRefused
from launcher.rehearse.sample_data import LABELLED, MESSAGES, PAIRS, PROMPTS, TEXT, TOKENS, tokenizer_directory

# Records of the shipped text by task; every other task trains on its paragraphs.
_RECORDS: Mapping[str, tuple[str, str]] = {
    "sft": (MESSAGES, "conversations"),
    "gkd": (MESSAGES, "conversations"),
    "grpo": (PROMPTS, "prompts with their continuation"),
    "kto": (LABELLED, "answers with a label"),
    **dict.fromkeys(("dpo", "simpo", "orpo", "cpo", "reward_model"), (PAIRS, "pairs of answers")),
}
_SAMPLE_FIELDS = {"data.format", "data.paths", "tokenizer.path"}
# Tokens of a record with its chat template, in bytes.
_RECORD_TOKENS = 256


def native_plan(outcome: Outcome, notes: tuple[str, ...], environ: Mapping[str, str]) -> LaunchPlan:
    """Return the backend's plan of a job, with the environment that lets its ranks run on CPU.

    Raises:
        RehearsalRefused: the backend refuses the job as it is rehearsed, or cannot run here.
    """
    if outcome.job.rehearse.device is not None:
        message = "the backend's own entry point runs on the device that it finds; rehearse.device is for entry=core"
        raise RehearsalRefused([_refusal(message, "rehearse.device", works="rehearse.device=null")])
    if outcome.backend.native_cpu is None:
        message = f"{outcome.backend.title} has no native entry on CPU; rehearse.entry=core trains with megatron-core"
        raise RehearsalRefused([_refusal(message, "rehearse.entry")])
    module = import_module(outcome.backend.native_cpu)
    native = module.NATIVE_CPU
    version_of = versions_in(outcome.job.cluster.python, native)
    lacking = missing_in(outcome.job.cluster.python, native, environ)
    if lacking:
        raise RehearsalRefused([_refusal("; ".join(lacking), "rehearse.entry")])
    of_installed = _installed_version(outcome, native)
    sample = _with_sample(dataclasses.replace(_untrained(outcome.job), runtime="native"), outcome)
    adapted = getattr(module, "adapt_job", lambda job, _version: (job, ()))(sample.job, outcome.version)
    judged = judge(adapted[0], fixes=False)
    errors = [finding for finding in judged.findings if finding.severity == "error"]
    if errors:
        raise RehearsalRefused(errors)
    plan = judged.plan()
    if "logging.wandb_project" not in outcome.backend.table(outcome.version).unsupported:
        plan = with_job_as_config(plan, outcome.job)
    adapt = getattr(module, "adapt_plan", None)
    if adapt is not None:
        plan = adapt(plan, judged.job)
    nodes = tuple(
        dataclasses.replace(node, env={**node.env, **environment(native, {**environ, **node.env})})
        for node in plan.nodes
    )
    of_native = filter(None, (*sample.notes, *adapted[1], native.note))
    return dataclasses.replace(
        plan,
        nodes=nodes,
        prepare=(*sample.prepare, *plan.prepare),
        what=f"rehearsal: {announcement(native, version_of, judged.job.task.type)}",
        notes=(*notes, *of_installed, *untested(native, version_of), *of_native, *plan.notes),
    )


def _installed_version(outcome: Outcome, native: NativeOnCpu) -> tuple[str, ...]:
    """Return a note where the arguments are those of another version than the installed one.

    Raises:
        RehearsalRefused: the installed version reads other arguments than those of the job's version.
    """
    title, python = outcome.backend.title, outcome.job.cluster.python
    found = catalogue_for(native, python)
    if found is None:
        return ()
    version, known = found
    if known != outcome.version:
        message = f"{title} {version} is installed in {python or 'this environment'}: "
        message += f"it does not read the arguments of backend.version={outcome.version}"
        raise RehearsalRefused(
            [_refusal(message, "backend.version", "cluster.python", works=f"backend.version={known}")]
        )
    return () if version == known else (f"{title} {version} is installed; its arguments are written as for {known}",)


def _refusal(message: str, *paths: str, works: str = "") -> Finding:
    return Finding(
        rule="REHEARSE-NATIVE",
        severity="error",
        message=message,
        fields=paths,
        fixes=(Fix(overrides=(works,)),) if works else (),
        source="launch",
    )


def _untrained(job: Job) -> Job:
    """Return a shrunken job without weights to load, which do not fit it, and with one data process a rank."""
    if not job.rehearse.shrink:
        return job
    values: dict[str, Value] = {
        path: 1 for path in ("data.num_workers", "data.num_preprocess") if (value_at(job, path) or 0) > 1
    }
    if job.model.pretrained is not False and job.model.num_hidden_layers is not None:
        values |= {"model.pretrained": False, "model.path": None}
    return with_values(job, values, REHEARSED)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """A job on the shipped text: the command that writes it, and what is to be said of it."""

    job: Job
    prepare: tuple[NodePlan, ...] = ()
    notes: tuple[str, ...] = ()


def _with_sample(job: Job, outcome: Outcome) -> _Sample:
    """Return the job with the shipped text where it has no data, or, shrunken, data of a hub.

    Raises:
        RehearsalRefused: the backend reads the tokenizer from the model's directory, which has none.
    """
    from_hub = job.rehearse.shrink and job.data.format == "hub"
    if not from_hub and (job.data.format not in (None, "sample", "mock") or job.data.paths):
        return _Sample(job=job)
    folder = f"{output_dir(job)}/data"
    for what, values in _forms(job, folder):
        changed = with_values(job, values, REHEARSED)
        findings = translate(
            outcome.backend.prepare(changed, outcome.version), outcome.backend, outcome.version
        ).findings
        if not any(_SAMPLE_FIELDS & set(finding.fields) for finding in findings):
            writer = NodePlan(rank=0, argv=(_python(job), "-m", "launcher.rehearse.sample_data", folder))
            notes = [f"data: {what} of the shipped text instead of hub data ({', '.join(job.data.paths)})"]
            if changed.batch.seq_length != job.batch.seq_length:
                notes.append(f"batch.seq_length {job.batch.seq_length} → {changed.batch.seq_length}, for {what}")
            return _Sample(job=changed, prepare=(writer,), notes=tuple(notes) if from_hub else ())
    if job.model.path is not None and not has_tokenizer(job.model.path):
        message = f"no data is set, and the shipped text cannot be read: {job.model.path} has no tokenizer files"
        raise RehearsalRefused([_refusal(message, "model.path", "data.paths")])
    return _Sample(job=job)


def _forms(job: Job, folder: str) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """Yield the fields of the shipped text in each format, the first that a backend reads is taken."""
    tokenizer: dict[str, Value] = {"tokenizer.path": job.tokenizer.path or tokenizer_directory()}
    if job.tokenizer.path is None and job.model.path is not None and has_tokenizer(job.model.path):
        tokenizer = {}  # text is read by the model's own, as some backends can only do
    if job.rehearse.shrink and job.tokenizer.path is None:
        tokenizer["model.hub_id"] = None  # of a shrunken model nothing but the tokenizer would be fetched
    records = _RECORDS.get(job.task.type)
    if records is not None:
        file, what = records
        values: dict[str, Value] = {"data.format": "messages", "data.paths": (f"{folder}/{file}",), **tokenizer}
        length = job.batch.seq_length
        if job.rehearse.shrink and length is not None and length < _RECORD_TOKENS:
            values["batch.seq_length"] = length * math.ceil(_RECORD_TOKENS / length)
        yield f"{what} made", values
    # The tokens are those of the shipped tokenizer; a name of the hub would be asked there.
    of_hub = job.model.hub_id is not None and "model.hub_id" in tokenizer
    without_own = job.model.path is not None and not has_tokenizer(job.model.path)
    own = tokenizer if of_hub or without_own else {}
    yield "samples", {"data.format": "megatron", "data.paths": (f"{folder}/{TOKENS}",), **own}
    yield "samples", {"data.format": "text", "data.paths": (f"{folder}/{TEXT}",), **tokenizer}


def _python(job: Job) -> str:
    """Return this program's interpreter, by its path where the one on PATH is that of the ranks."""
    return sys.executable if "/" in (job.cluster.python or "") else "python"
