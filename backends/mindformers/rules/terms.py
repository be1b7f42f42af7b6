"""Values that MindFormers' rules derive from the keys of the written file, and the names of those keys."""

from collections.abc import Sequence
from typing import Any

from backends.mindformers.class_defaults import missing_defaults
from backends.mindformers.mapping.support import MODEL
from launcher.rules.registry import RuleContext
from launcher.rules.table import term

NAME = "mindformers"
BACKENDS = (NAME,)
OLD = "1.6.0"
STRICT_UNTIL = "1.8.99"
"""Last version that converts each key by a table and refuses the others (1.9 has config_converter.py)."""
DP, TP = "parallel_config.data_parallel", "parallel_config.model_parallel"
PP, CP = "parallel_config.pipeline_stage", "parallel_config.context_parallel"
EP, SP = "parallel_config.expert_parallel", "parallel_config.use_seq_parallel"
MICRO, ACCUMULATION = "parallel_config.micro_batch_num", "runner_config.gradient_accumulation_steps"
ALGORITHM, DEGREE = "parallel_config.context_parallel_algo", "parallel_config.ulysses_degree_in_cp"
MODE, FULL_BATCH, STRATEGY = "parallel.parallel_mode", "parallel.full_batch", "parallel.dataset_strategy"
INTERLEAVE, SCHEDULER = "parallel.pipeline_config.pipeline_interleave", "parallel.pipeline_config.pipeline_scheduler"
RECOMPUTE, SELECT = "recompute_config.recompute", "recompute_config.select_recompute"
SWAP = "swap_config.swap"
# Kinds of file, as values of @dialect: written by the launcher, with use_legacy, or for 2.x's pynative trainer.
MCORE, STATIC, PYNATIVE = "@dialect=mcore", "@dialect=mcore|legacy", "@dialect=pynative"
_LAYERS = tuple(MODEL + name for name in ("num_hidden_layers", "num_layers", "n_layer"))
_CHUNKS = ("pp_interleave_num", "virtual_pipeline_model_parallel_size")
_AUTOMATIC = (1, 2, "SEMI_AUTO_PARALLEL", "AUTO_PARALLEL", "semi_auto_parallel", "auto_parallel")


def size_of(context: RuleContext, key: str) -> int:
    """Return a size; 1 if it is not set or not a number."""
    value = context[key]
    return value if isinstance(value, int) and value > 0 else 1


def model_key(context: RuleContext, *names: str) -> Any:
    """Return the value of the first written key of several names in the model section."""
    keys = [MODEL + name for name in names]
    return context[next((key for key in keys if key in context.values), keys[0])]


def class_key(context: RuleContext, name: str) -> Any:
    """Return the value of a key of the model section; if it is not written, the default of the model's class."""
    key = MODEL + name
    return context[key] if key in context.values else missing_defaults(context.values).get(key, context[key])


def whole(value: Any) -> bool:
    """Return whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


@term(NAME, "dialect", "job.backend.args", "use_legacy")
def dialect_of(context: RuleContext) -> str:
    """Return the kind of file: `mcore` (written by the launcher), `legacy` (use_legacy) or `pynative` (2.x)."""
    # No row of the mapping table writes the section of the pynative trainer.
    if any(key.startswith("parallelism") for key in context.job.backend.passthrough):
        return "pynative"
    return "mcore" if context["use_legacy"] is False else "legacy"


@term(
    NAME,
    "layers",
    "@dialect",
    *_LAYERS,
    MODEL + "mtp_depth",
    "job.model.num_hidden_layers",
    "job.model.num_nextn_predict_layers",
)
def layers_of(context: RuleContext) -> int | None:
    """Return the number of layers split over stages: 1.6 includes MTP layers."""
    value = next((context[key] for key in _LAYERS if key in context.values), None)
    value = context.job.model.num_hidden_layers if value is None else value
    if not isinstance(value, int):
        return None
    more = model_key(context, "mtp_depth") or context.job.model.num_nextn_predict_layers
    return value + (more if context.version == OLD or dialect_of(context) == "legacy" else 0)


@term(NAME, "declared_chunks", *(MODEL + name for name in _CHUNKS))
def declared_chunks(context: RuleContext) -> int:
    """Return the number of chunks per stage as configured."""
    value = model_key(context, *_CHUNKS)
    return value if isinstance(value, int) and value > 0 else 1


@term(NAME, "chunks", "@declared_chunks", INTERLEAVE)
def chunks_of(context: RuleContext) -> int:
    """Return the number of chunks per stage that MindFormers builds: 1 without pipeline_interleave."""
    return declared_chunks(context) if context[INTERLEAVE] else 1


@term(NAME, "offset", MODEL + "offset")
def offset_of(context: RuleContext) -> tuple[tuple[int, ...], ...] | None:
    """Return the offset as rows of chunks; None if it is a plain number or not a list of numbers."""
    value = model_key(context, "offset")
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return None
    rows = value if isinstance(value[0], Sequence) else (value,)
    return tuple(tuple(row) for row in rows)


@term(NAME, "automatic", MODE, "use_parallel")
def is_automatic(context: RuleContext) -> bool:
    """Return whether MindSpore partitions the graph: parallel_mode, which is set with use_parallel only."""
    return bool(context["use_parallel"]) and context[MODE] in _AUTOMATIC


@term(NAME, "counted", "@automatic", "job.parallel.dp", DP)
def is_counted(context: RuleContext) -> bool:
    """Return whether MindSpore partitions the graph and the data-parallel size is known."""
    # Where no data-parallel size fits the devices, another rule reports it.
    unsized = not context.as_written and context.job.parallel.dp is None and DP not in context.values
    return is_automatic(context) and not unsized


@term(NAME, "resets_wrapper", "@automatic", PP, ACCUMULATION)
def resets_wrapper(context: RuleContext) -> bool:
    """Return whether MindFormers takes its own wrapper of the training step, whatever the file names."""
    # trainer/base_trainer.py:325-352 @1.6.0
    return is_automatic(context) and max(size_of(context, PP), size_of(context, ACCUMULATION)) > 1


@term(NAME, "flash", MODEL + "use_flash_attention")
def uses_flash(context: RuleContext) -> bool:
    """Return whether flash attention is on."""
    return model_key(context, "use_flash_attention") is not False
