"""Two-way mapping tables of Megatron-SWIFT (ms-swift), one for each version, in the customary argument order."""

from functools import cache

from backends.megatron.mapping import (
    attention_variants,
    data_and_checkpoints,
    details,
    parallel,
    services,
    sharding,
    training,
    unsupported,
)
from backends.megatron.mapping.architecture import option_rows, weights_row
from backends.megatron.mapping.extra_args import argument_row, key_row
from backends.megatron.mapping.factories import FOUR
from backends.megatron.mapping.model import model_rows, rope_scaling_row
from launcher.catalogue.versions import in_range
from launcher.mapping.rows import Row, Table, same


@cache
def table(version: str) -> Table:
    """Return the mapping table of one ms-swift version."""
    return Table(
        rows=_rows(version),
        unsupported=unsupported.unsupported(version),
        irrelevant=unsupported.irrelevant(version),
    )


def _rows(version: str) -> tuple[Row, ...]:
    return (
        *training.task_rows(version),
        *model_rows(version),
        *_architecture_rows(version),
        *details.model_rows(),
        attention_variants.initialization(),
        *attention_variants.rows(),
        *training.lora_rows(),
        *parallel.parallel_rows(),
        *parallel.recompute_rows(),
        *parallel.offload_rows(),
        *parallel.moe_rows(version),
        *training.batch_rows(),
        *training.schedule_rows(version),
        *training.optimizer_rows(version),
        *details.optimizer_rows(),
        *training.precision_rows(),
        *details.precision_rows(),
        *parallel.kernel_rows(),
        *parallel.overlap_rows(),
        *data_and_checkpoints.data_rows(version),
        *training.seed_rows(),
        *data_and_checkpoints.checkpoint_rows(version),
        *data_and_checkpoints.logging_rows(),
        *details.other_rows(),
        *services.rows(),
        *sharding.other_rows(),
    )


def _architecture_rows(version: str) -> tuple[Row, ...]:
    changes = (key_row(version),) if in_range(version, FOUR, None) else (*option_rows(version), argument_row(version))
    return (
        *changes,
        weights_row(),
        rope_scaling_row(version),
        *unsupported.config_rows(version),
        unsupported.layers_row(),
        unsupported.prediction_row(),
        same("model.mtp_loss_scaling_factor", "mtp_loss_scaling_factor", since="3.10"),
    )
