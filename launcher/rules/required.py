"""Fields that every job must set before anything else can be checked."""

from collections.abc import Iterator

from launcher.job.model import Model
from launcher.job.shipped_models import presets_like
from launcher.mapping.backend import VocabularySize, get_backend, is_backend
from launcher.rules.registry import RuleContext, Violation, rule

_SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)


@rule(
    "REQ-MODEL",
    source="Megatron-LM arguments.py validate_args",
    reads="job.checkpoint.load job.imported.backend job.tokenizer.path job.tokenizer.padded_vocab_size "
    "job.imported.args job.imported.replaced job.tokenizer.type job.model.*",
)
def model_is_known(context: RuleContext) -> Iterator[Violation]:
    """The architecture must be complete: choose a preset (`model=`), or read it from a directory (`model.path=`)."""
    if _is_read_by_the_backend(context) or (context.existing and _has_defaults(context)):
        return
    model, tokenizer = context.job.model, context.job.tokenizer
    missing = [f"model.{name}" for name in _SIZES if getattr(model, name) is None]
    if tokenizer.path is not None or tokenizer.padded_vocab_size is not None:
        # Backends compute the vocabulary size themselves when they load the tokenizer.
        missing = [path for path in missing if path != "model.vocab_size"]
    if model.intermediate_size is None and not (model.is_moe and model.moe_intermediate_size is not None):
        missing.append("model.intermediate_size")
    if missing:
        names = ", ".join(missing)
        named = model.hub_id or model.path
        known = f" (the config.json of {named} is not on this machine)" if named and model.hidden_size is None else ""
        derived, usual = _of_the_script(context, missing), _of_its_files(context, missing)
        yield Violation(
            message=f"{names} not set{known}: choose model=…, or model.path=DIR with the model's config.json in it"
            + (f"; the script's backend derives {' '.join(derived)} from its arguments" if derived else "")
            + (f"; the files of the script's tokenizer usually have {usual[0]}" if usual else ""),
            fields=tuple(missing),
            works=_together([*usual, *derived], missing) or _of_known_models(model, missing),
        )


def _together(derived: list[str], missing: list[str]) -> tuple[str | tuple[str, ...], ...]:
    """Return the derived values as one change, if they are all that is missing."""
    if len(derived) < len(missing):
        return ()
    return (derived[0],) if len(derived) == 1 else (tuple(derived),)


def _of_known_models(model: Model, missing: list[str]) -> tuple[str, ...]:
    """Return the vocabulary of shipped models of the same sizes: scripts often leave it to the tokenizer."""
    found = (preset["vocab_size"] for preset in presets_like(model)) if missing == ["model.vocab_size"] else ()
    return tuple(f"model.vocab_size={size}" for size in dict.fromkeys(found))


def _of_its_files(context: RuleContext, missing: list[str]) -> list[str]:
    """Return the vocabulary of the files that a script's class of tokenizers is used with, where that is known."""
    script = context.job.imported
    known = get_backend(script.backend).vocabulary_size if script.backend and is_backend(script.backend) else None
    size = known.usual.get(_tokenizer_kind(context, known)) if known and "model.vocab_size" in missing else None
    return [] if size is None else [f"model.vocab_size={size}"]


def _tokenizer_kind(context: RuleContext, vocabulary: VocabularySize) -> str:
    """Return the class of tokenizers of an imported script; a port leaves out those that the target does not have."""
    script, own = context.job.imported, context.job.tokenizer.type
    return str((script.args or {}).get(vocabulary.tokenizer) or script.replaced.get("tokenizer.type", own))


def _of_the_script(context: RuleContext, missing: list[str]) -> list[str]:
    """Return overrides with the values that its backend derives from an imported script's arguments."""
    script, model = context.job.imported, context.job.model
    if script.backend is None or not is_backend(script.backend):
        return []
    backend = get_backend(script.backend)
    vocabulary, found = backend.vocabulary_size, []
    size = (script.args or {}).get(vocabulary.size) if vocabulary is not None else None
    added = vocabulary.added.get(_tokenizer_kind(context, vocabulary)) if vocabulary is not None else None
    if "model.vocab_size" in missing and isinstance(size, int) and added is not None:
        found.append(f"model.vocab_size={size + added}")
    width = backend.default_ffn_size(model, backend.versions[0])
    if "model.intermediate_size" in missing and width is not None:
        found.append(f"model.intermediate_size={width}")
    return found


def _is_read_by_the_backend(context: RuleContext) -> bool:
    """Return whether the backend itself reads the architecture, from config.json of the named model or checkpoint."""
    job = context.job
    named = job.model.path or job.model.hub_id or job.checkpoint.load
    return bool(named) and job.model.hidden_size is None and _has_defaults(context)


def _has_defaults(context: RuleContext) -> bool:
    """Return whether unset values follow from the model or the backend; not so for plain argparse command lines."""
    return context.catalogue is not None and context.catalogue.style != "argparse"


@rule(
    "REQ-BATCH",
    source="Megatron-LM arguments.py validate_args",
    reads="job.imported.backend job.model.path job.model.hub_id job.checkpoint.load job.model.hidden_size "
    "job.batch.global_batch_size job.batch.seq_length",
)
def batch_is_known(context: RuleContext) -> Iterator[Violation]:
    """Sequence length and global batch size affect training; they have no default."""
    # An existing command line has a global batch size: the one that the backend derives.
    names = ("seq_length",) if context.existing else ("seq_length", "global_batch_size")
    for name in () if _is_read_by_the_backend(context) or (context.existing and _has_defaults(context)) else names:
        if getattr(context.job.batch, name) is None:
            yield Violation(message=f"batch.{name} is not set", fields=(f"batch.{name}",))


@rule("REQ-LR", source="Megatron-LM arguments.py: lr is required", reads="job.optimizer.lr job.imported.backend")
def learning_rate_is_known(context: RuleContext) -> Iterator[Violation]:
    """The learning rate has no default."""
    if context.job.optimizer.lr is None and not (context.existing and _has_defaults(context)):
        yield Violation(message="optimizer.lr is not set", fields=("optimizer.lr",))


@rule(
    "REQ-LENGTH",
    source="Megatron-LM arguments.py validate_args; ms-swift 4.6 trains without end otherwise",
    reads="job.imported.backend job.schedule.train_iters job.schedule.train_samples job.schedule.epochs",
)
def length_is_known(context: RuleContext) -> Iterator[Violation]:
    """Iterations, samples or epochs define when training ends; iterations and samples must not both be set."""
    schedule = context.job.schedule
    names = [
        f"schedule.{name}" for name in ("train_iters", "train_samples", "epochs") if getattr(schedule, name) is not None
    ]
    if not names and not (context.existing and _has_defaults(context)):
        yield Violation(
            message="training has no end: set schedule.train_iters (or train_samples, or epochs)",
            fields=("schedule.train_iters",),
        )
    elif schedule.train_iters is not None and schedule.train_samples is not None:
        yield Violation(message=f"{' and '.join(names)} both define when training ends: keep one", fields=tuple(names))


@rule("REQ-BACKEND", source="launch", reads="job.backend.name")
def backend_is_known(context: RuleContext) -> Iterator[Violation]:
    """A job is translated for one backend."""
    if context.job.backend.name is None:
        yield Violation(message="no backend is chosen: add backend=NAME", fields=("backend.name",))
