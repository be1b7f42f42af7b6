"""Two-way mapping tables of Megatron-SWIFT (ms-swift): Megatron-LM's rows in its spelling, and its own."""

from functools import cache, partial

from backends.megatron.mapping import (
    attention_variants,
    checkpoint,
    config_only,
    data,
    kernels,
    logging,
    moe,
    parallel,
    task,
    training,
    unsupported,
)
from backends.megatron.mapping.architecture import option_rows, weights_row
from backends.megatron.mapping.extra_args import argument_row, key_row
from backends.megatron.mapping.factories import FOUR
from backends.megatron.mapping.model import model_rows, rope_scaling_row
from backends.megatron.mapping.options import option, respelled
from backends.megatron_lm.mapping.table import rows as megatron_rows
from launcher.catalogue.versions import in_range
from launcher.mapping.inherit import extend
from launcher.mapping.rows import Row, Table

# Architecture fields that are options beside the model's config.json, as in Megatron-LM; it decides all others.
_MODEL = ("rotary_interleaved", "cpu_initialization", "init_per_replica")
# Arguments of Megatron-LM with another name in all versions of ms-swift; names of some are in renames.json.
_RENAMED = {"muon-no-split-qkv": "no_muon_split_qkv"}


@cache
def table(version: str) -> Table:
    """Return the mapping table of one ms-swift version."""
    rows = tuple(row for row in _rows(version) if in_range(version, row.since, row.until))
    mapped = {path for row in rows for path in row.fields}
    return Table(
        rows=rows,
        unsupported=unsupported.unsupported(version, mapped),
        irrelevant=unsupported.irrelevant(version, mapped),
    )


def _rows(version: str) -> tuple[Row, ...]:
    base = megatron_rows()
    known = {f"model.{name}" for name in _MODEL}
    by_config = {row.fields[0] for row in base if row.fields and row.fields[0].startswith("model.")} - known
    return extend(
        base,
        replace={
            "task.type": (
                *task.task_rows(version),
                *model_rows(version),
                *_architecture_rows(version),
                *task.lora_rows(version),
            ),
            **parallel.rows(version),
            **moe.rows(version),
            **training.rows(version),
            **kernels.rows(version),
            **data.rows(version),
            **checkpoint.rows(version),
            **logging.rows(),
        },
        # swift's own --loss_scale weights the tokens of a sample.
        drop=(*by_config, "checkpoint.load", "precision.loss_scale"),
        rename=_RENAMED,
        respell=partial(respelled, version=version),
    )


def _architecture_rows(version: str) -> tuple[Row, ...]:
    changes = (key_row(version),) if in_range(version, FOUR, None) else (*option_rows(version), argument_row(version))
    return (
        *changes,
        weights_row(),
        rope_scaling_row(version),
        *config_only.config_rows(version),
        config_only.layers_row(),
        config_only.prediction_row(),
        *option("model.mtp_loss_scaling_factor", "mtp_loss_scaling_factor", version),
        attention_variants.initialization(),
        *attention_variants.rows(version),
    )
