"""Resolves a job as its backend runs it: passed-through arguments, sizes of a named model, backend defaults."""

import re

from launcher.compose.presets import named_like
from launcher.estimate.unread import unread
from launcher.importing.presets import with_preset
from launcher.job import Job, Origin, Value, fields, override_text, value_at, with_values
from launcher.mapping.backend import Backend, get_backend
from launcher.mapping.engine import UNSUPPORTED, Translation, read_back, translate
from launcher.mapping.ignored_fields import ignored_field_findings
from launcher.rules.effects import Overruled, overruled
from launcher.rules.passthrough import with_passthrough, without_arguments
from launcher.syntax import is_count

_DERIVED = Origin(kind="derived")
# Sections whose values decide memory and time; sizes of the model are the job's.
_ESTIMATED = (
    "batch.",
    "kernels.",
    "moe.",
    "offload.",
    "optimizer.",
    "overlap.",
    "parallel.",
    "precision.",
    "recompute.",
)
# Values with which a job leaves the choice to the backend.
_OPEN = (None, "auto")
# Where the model's files are, which costs nothing.
_FILES = ("model.hub_id", "model.path")
_ENDS = ("parallel.first_stage_layers", "parallel.last_stage_layers")


def as_run(job: Job) -> tuple[Job, tuple[str, ...]]:
    """Return the resolved job and the assumptions made for it.

    Arguments in `backend.args` that the mapping table covers become fields and are removed from `backend.args`; fields
    that the backend ignores get the value that it trains with, those that it refuses are named. A model that is only
    named gets the sizes of the preset of that name. Other fields that the job sets do not change.
    """
    job, notes = before_validation(job)
    job = _without_ignored(_validated(job, notes), notes)
    notes.extend(_refused(job))
    return _with_defaults(job, notes), tuple(notes)


def before_validation(job: Job) -> tuple[Job, list[str]]:
    """Return a job as `as_run` resolves it, as far as no layout decides it, and the assumptions made for it."""
    notes: list[str] = []
    job = with_passthrough(job)
    job = _without_ineffective(job, notes)
    job = _passed_vocabulary(job)
    if job.model.hidden_size is None:
        job = _named(job, notes)
    return _with_vocabulary(job, notes), notes


def overruled_by_validation(job: Job) -> list[Overruled]:
    """Return the fields that the estimate reads and that the backend's validation leaves at another value."""
    if job.backend.name is None or job.imported.backend not in (None, job.backend.name):
        return []
    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    found = overruled(backend.prepare(job, version), backend, version)
    return [each for each in found if _is_estimated(each.path, job)]


def _validated(job: Job, notes: list[str]) -> Job:
    """Return the job with the values that its backend's validation leaves."""
    found = overruled_by_validation(job)
    for each in found:
        old, new = override_text(each.before), override_text(each.after)
        title = get_backend(job.backend.name or "").title
        notes.append(f"{each.path}: {new} instead of {old}, as {title} sets it ({each.rule})")
    return with_values(job, {each.path: each.after for each in found}, _DERIVED) if found else job


def _is_estimated(path: str, job: Job) -> bool:
    """Return whether a field is one that the estimate reads and that the model's own files do not decide."""
    if path == "parallel.distributed_optimizer" and job.optimizer.type == "muon":
        return False  # Muon's states are spread over the ranks, too: layer by layer
    return path.startswith(_ESTIMATED)


def _without_ineffective(job: Job, notes: list[str]) -> Job:
    """Return the job without the values that its backend cannot express and that it trains without."""
    if job.backend.name is None:
        return job
    backend, version, translation = _translated(job)
    changed: dict[str, Value] = {}
    for path, why in _inexpressible(translation, "warning"):
        if _is_estimated(path, job):
            changed[path] = _as_unset(path, backend, version)
            value = override_text(value_at(job, path))
            notes.append(f"{path}: {value} has no effect, {backend.title} cannot express it ({why})")
    for path, gap in backend.table(version).unsupported.items():
        value, unset = value_at(job, path), _as_unset(path, backend, version)
        if value is not None and value in gap.neutral and value != unset and _is_estimated(path, job):
            changed[path] = unset
            if job.origin(path).kind == "override":
                notes.append(f"{path}: {override_text(value)} is what {backend.title} does without it ({gap.why})")
    return with_values(job, changed, _DERIVED) if changed else job


def _without_ignored(job: Job, notes: list[str]) -> Job:
    """Return the job without the values that its backend ignores, given the other values of the job."""
    if job.backend.name is None or job.imported.backend not in (None, job.backend.name):
        return job
    backend, version, translation = _translated(job)
    prepared = backend.prepare(job, version)
    reported = {path for finding in translation.findings for path in finding.fields}
    found = ignored_field_findings(prepared, backend, version, translation.native, reported)
    paths = [path for finding in found for path in finding.fields if _is_estimated(path, job)]
    notes.extend(
        f"{path}: {override_text(value_at(job, path))} has no effect, {backend.title} ignores it in this job"
        for path in paths
    )
    return with_values(job, {path: fields()[path].default for path in paths}, _DERIVED) if paths else job


def _refused(job: Job) -> list[str]:
    """Return a note for every value that counts although the backend refuses it: the job would not start so."""
    if job.backend.name is None or job.imported.backend not in (None, job.backend.name):
        return []
    backend, _, translation = _translated(job)
    return [
        f"{path}: {override_text(value_at(job, path))} is counted, but {backend.title} refuses it ({why})"
        for path, why in _inexpressible(translation, "error")
        if path.startswith((*_ESTIMATED, "model.", "lora.")) and path not in _FILES
    ]


def _translated(job: Job) -> tuple[Backend, str, Translation]:
    """Return the job's backend, its version, and the job in its arguments."""
    backend = get_backend(job.backend.name or "")
    version = backend.version(job.backend.version)
    return backend, version, translate(backend.prepare(job, version), backend, version)


def _inexpressible(translation: Translation, severity: str) -> list[tuple[str, str]]:
    """Return the fields that the backend cannot express, each with the reason."""
    found = (each for each in translation.findings if each.rule == UNSUPPORTED and each.severity == severity)
    return [(path, finding.message.partition(": ")[2]) for finding in found for path in finding.fields]


def _as_unset(path: str, backend: Backend, version: str) -> Value:
    """Return the value of a field that counts as what the backend does without it."""
    default, gap = fields()[path].default, backend.table(version).unsupported.get(path)
    neutral = gap.neutral if gap is not None else ()
    return default if default is None or default in neutral or not neutral else neutral[0]


def _passed_vocabulary(job: Job) -> Job:
    """Return the job with the vocabulary size of a passed-through argument, where model.vocab_size is unset."""
    known = get_backend(job.backend.name).vocabulary_size if job.backend.name is not None else None
    if known is None or job.model.vocab_size is not None:
        return job
    size = job.backend.passthrough.get(known.size)
    if not isinstance(size, (int, str)) or not is_count(str(size)):
        return job
    kinds = (job.tokenizer.type, job.backend.passthrough.get(known.tokenizer))
    added = max(known.added.get(str(kind), 0) for kind in kinds)
    return without_arguments(with_values(job, {"model.vocab_size": int(size) + added}, _DERIVED), {known.size})


def _named(job: Job, notes: list[str]) -> Job:
    """Return the job with the sizes of the preset of its model's name."""
    known = with_preset(job)
    if known.model.hidden_size is not None:
        return known
    named = job.model.hub_id or (job.checkpoint.load if job.model.path is None else None)
    like = named_like(named or "")
    if like is None:
        return job
    where = "model.hub_id" if job.model.hub_id else "checkpoint.load"
    notes.append(f"{where}: {named} is taken to have the sizes of model={like.name}, by its name")
    return with_preset(job, like)


def _with_vocabulary(job: Job, notes: list[str]) -> Job:
    """Return the job with the vocabulary size of the preset named like the tokenizer's directory."""
    if job.model.vocab_size is not None or job.tokenizer.padded_vocab_size is not None or job.tokenizer.path is None:
        return job
    like = named_like(re.sub(r"/tokenizer\.\w+$", "", job.tokenizer.path))
    if like is None:
        return job
    size = like.fields["vocab_size"]
    notes.append(f"model.vocab_size: {size}, that of model={like.name}, by the name of {job.tokenizer.path}")
    return with_values(job, {"model.vocab_size": size}, _DERIVED)


def positions(job: Job) -> dict[str, Value]:
    """Return the sequence length as the number of positions where none is set and no weight depends on it."""
    model, seq = job.model, job.batch.seq_length
    free = model.max_position_embeddings is None and model.position_embedding != "learned_absolute" and seq
    return {"model.max_position_embeddings": seq} if free else {}


def chosen_by_backend(job: Job) -> dict[str, Value]:
    """Return the values that the job's backend writes, or starts with, for fields that the job leaves unset.

    Only of fields that the estimate reads. An uneven split that the job gives by one end is no choice of the backend.
    """
    if job.backend.name is None:
        return {}
    backend, version, translation = _translated(job)
    prepared = backend.prepare(job, version)
    written = read_back({arg.flag: arg.value for arg in translation.native}, backend, version).job
    found: dict[str, Value] = {}
    for path in fields():
        if path.startswith(_ESTIMATED) and path not in _ENDS and value_at(job, path) in _OPEN:
            value = value_at(written, path)
            found[path] = value_at(prepared, path) if value is None else value
    found = {path: value for path, value in found.items() if value not in _OPEN}
    counted_otherwise = {note.partition(":")[0] for note in unread(with_values(job, found))}
    return {path: value for path, value in found.items() if path not in counted_otherwise}


def _with_defaults(job: Job, notes: list[str]) -> Job:
    """Return the job with the defaults that backends choose or compute for unset fields."""
    model, values = job.model, positions(job)
    if job.backend.name is not None:
        backend = get_backend(job.backend.name)
        defaults = chosen_by_backend(job)
        routed = model.is_moe and model.moe_intermediate_size is not None
        known = model.intermediate_size is not None or routed
        width = None if known else backend.default_ffn_size(model, backend.version(job.backend.version))
        if width is not None:
            defaults["model.intermediate_size"] = width
        notes.extend(f"{path}: {override_text(value)} ({backend.title}'s default)" for path, value in defaults.items())
        values |= defaults
    return with_values(job, values, _DERIVED) if values else job
