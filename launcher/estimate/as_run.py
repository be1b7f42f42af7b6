"""The job as its backend runs it: passed-through arguments seen as fields, a named model's sizes, usual defaults."""

import re
from dataclasses import replace

from launcher.importing.presets import named_like, with_preset
from launcher.job import Job, Origin, Value, value_at, with_values
from launcher.job.width import megatron_width

_DERIVED = Origin(kind="derived")


def as_run(job: Job) -> tuple[Job, tuple[str, ...]]:
    """Return the job as the estimate reads it, and what was assumed for it.

    Arguments in `backend.args` that a row of the mapping table reads become fields and are no longer among them. A
    model that is only named gets the sizes of the preset of that name. Nothing that the job says is changed.
    """
    notes: list[str] = []
    job = _through_mapping(job)
    job = _passed_vocabulary(job)
    if job.model.hidden_size is None:
        job = _named(job, notes)
    job = _with_vocabulary(job, notes)
    return _with_defaults(job, notes), tuple(notes)


def _through_mapping(job: Job) -> Job:
    """Return the job with what the mapping reads out of passed-through arguments."""
    if job.backend.name is None or not job.backend.args or job.imported.backend not in (None, job.backend.name):
        return job
    from launcher.mapping.backend import get_backend
    from launcher.mapping.engine import translate
    from launcher.rules.native import facts_of

    backend = get_backend(job.backend.name)
    version = backend.version(job.backend.version)
    facts = facts_of(job, backend, version, translate(job, backend, version).native)
    read = set(facts.passed.values())
    if not read:
        return job
    changed = {path: value_at(facts.job, path) for path in facts.passed}
    return _without(with_values(job, changed, _DERIVED), read)


def _without(job: Job, names: set[str]) -> Job:
    args = {name: value for name, value in job.backend.args.items() if name not in names}
    return replace(job, backend=replace(job.backend, args=args))


# Megatron-LM's argument of the tokens before padding; NullTokenizer adds one, for the end of a document.
# Source: tokenizers/text/libraries/null_tokenizer.py @core_v0.16.1.
_VOCABULARY = "vocab-size"


def _passed_vocabulary(job: Job) -> Job:
    """Return the job with the tokens that --vocab-size counts, where the mapping leaves it to another padding."""
    size = job.backend.args.get(_VOCABULARY)
    if job.model.vocab_size is not None or not isinstance(size, (int, str)) or not str(size).isdigit():
        return job
    known = int(size) + int("NullTokenizer" in (job.tokenizer.type, job.backend.args.get("tokenizer-type")))
    return _without(with_values(job, {"model.vocab_size": known}, _DERIVED), {_VOCABULARY})


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
    """Return the job with the vocabulary of the preset that the tokenizer's folder is named after."""
    if job.model.vocab_size is not None or job.tokenizer.padded_vocab_size is not None or job.tokenizer.path is None:
        return job
    like = named_like(re.sub(r"/tokenizer\.\w+$", "", job.tokenizer.path))
    if like is None:
        return job
    size = like.fields["vocab_size"]
    notes.append(f"model.vocab_size: {size}, that of model={like.name}, by the name of {job.tokenizer.path}")
    return with_values(job, {"model.vocab_size": size}, _DERIVED)


# Megatron-LM's argument of the width of a dense network; backends that take it compute it where it is not given.
_FFN = "ffn-hidden-size"


def _with_defaults(job: Job, notes: list[str]) -> Job:
    """Return the job with what backends choose or compute where nothing is said."""
    model, seq = job.model, job.batch.seq_length
    values: dict[str, Value] = {}
    if model.max_position_embeddings is None and model.position_embedding != "learned_absolute" and seq:
        values["model.max_position_embeddings"] = seq  # no weight depends on it
    if job.backend.name is not None:
        from launcher.mapping.backend import get_backend

        backend = get_backend(job.backend.name)
        version = backend.version(job.backend.version)
        etp = backend.prepare(job, version).parallel.etp if job.parallel.etp is None else None
        if etp is not None:
            values["parallel.etp"] = etp
            notes.append(f"parallel.etp: {etp} ({backend.title}'s default)")
        routed = model.is_moe and model.moe_intermediate_size is not None
        open_width = model.intermediate_size is None and model.hidden_size is not None and not routed
        if open_width and backend.catalogue(version).get(_FFN) is not None:
            width = megatron_width(model.hidden_size or 0, gated=model.hidden_act == "silu")
            values["model.intermediate_size"] = width
            notes.append(f"model.intermediate_size: {width} ({backend.title}'s default)")
    return with_values(job, values, _DERIVED) if values else job
