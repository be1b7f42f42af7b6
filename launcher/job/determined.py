"""Fields of the `model` section that a config.json determines."""

from functools import cache
from typing import Final

from launcher.job.schema import fields

# Not in config.json: the origin of the model, its name in a backend, and training-only settings.
_NOT_DETERMINED: Final = frozenset(
    {"path", "hub_id", "pretrained", "overridden", "newer_names", "label", "legacy", "hidden_dropout"}
    | {"mtp_loss_scaling_factor"}
    | {"cpu_initialization", "init_per_replica", "init_method_xavier_uniform", "perform_initialization"}
    | {"dsa_indexer_loss_coeff", "dsa_indexer_use_sparse_loss", "is_hybrid_model", "mamba_chunk_size"}
)


@cache
def determined_fields() -> tuple[str, ...]:
    """Return the canonical fields below `model` that a config.json determines, dotted (`rope_scaling.factor`)."""
    names = (path.removeprefix("model.") for path in fields() if path.startswith("model."))
    return tuple(name for name in names if name not in _NOT_DETERMINED)
