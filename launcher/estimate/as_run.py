"""Resolves a job as its backend runs it: passed-through arguments, sizes of a named model, backend defaults."""

import re

from launcher.compose.presets import named_like
from launcher.importing.presets import with_preset
from launcher.job import Job, Origin, Value, fields, override_text, value_at, with_values
from launcher.mapping.backend import get_backend
from launcher.mapping.engine import is_lost
from launcher.rules.effects import Overruled, overruled
from launcher.rules.passed import with_passed, without_arguments

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


def as_run(job: Job) -> tuple[Job, tuple[str, ...]]:
    """Return the resolved job and the assumptions made for it.

    Arguments in `backend.args` that the mapping table covers become fields and are removed from `backend.args`; fields
    that the backend cannot express get the value that it trains with. A model that is only named gets the sizes of the
    preset of that name. Other fields that the job sets do not change.
    """
    job, notes = before_validation(job)
    job = _validated(job, notes)
    return _with_defaults(job, notes), tuple(notes)


def before_validation(job: Job) -> tuple[Job, list[str]]:
    """Return a job as `as_run` resolves it, as far as no layout decides it, and the assumptions made for it."""
    notes: list[str] = []
    job = with_passed(job)
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
    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    changed: dict[str, Value] = {}
    for path, gap in backend.table(version).unsupported.items():
        if gap.severity == "warning" and _is_estimated(path, job) and is_lost(job, path, gap):
            default = fields()[path].default
            changed[path] = default if default is None or default in gap.neutral or not gap.neutral else gap.neutral[0]
            value = override_text(value_at(job, path))
            notes.append(f"{path}: {value} has no effect, {backend.title} cannot express it ({gap.why})")
    return with_values(job, changed, _DERIVED) if changed else job


def _passed_vocabulary(job: Job) -> Job:
    """Return the job with the vocabulary size of a passed-through argument, where model.vocab_size is unset."""
    known = get_backend(job.backend.name).vocabulary_size if job.backend.name is not None else None
    if known is None or job.model.vocab_size is not None:
        return job
    size = job.backend.passed.get(known.size)
    if not isinstance(size, (int, str)) or not str(size).isdigit():
        return job
    kinds = (job.tokenizer.type, job.backend.passed.get(known.tokenizer))
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


def _with_defaults(job: Job, notes: list[str]) -> Job:
    """Return the job with the defaults that backends choose or compute for unset fields."""
    model, values = job.model, positions(job)
    if job.backend.name is not None:
        backend = get_backend(job.backend.name)
        version = backend.version(job.backend.version)
        etp = backend.prepare(job, version).parallel.etp if job.parallel.etp is None else None
        if etp is not None:
            values["parallel.etp"] = etp
            notes.append(f"parallel.etp: {etp} ({backend.title}'s default)")
        routed = model.is_moe and model.moe_intermediate_size is not None
        width = None if model.intermediate_size is not None or routed else backend.default_ffn_size(model, version)
        if width is not None:
            values["model.intermediate_size"] = width
            notes.append(f"model.intermediate_size: {width} ({backend.title}'s default)")
    return with_values(job, values, _DERIVED) if values else job
