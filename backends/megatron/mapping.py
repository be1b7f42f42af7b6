"""The two-way mapping table of Megatron-SWIFT (ms-swift), one for each version, in the order an expert types."""

from functools import cache

from backends.megatron import (
    mapping_details,
    mapping_gaps,
    mapping_layout,
    mapping_parallel,
    mapping_services,
    mapping_surroundings,
    mapping_training,
    mapping_variants,
)
from backends.megatron.mapping_extra import argument_row, key_row
from backends.megatron.mapping_model import model_rows, rope_scaling_row
from backends.megatron.mapping_rows import FOUR
from backends.megatron.mapping_shape import option_rows, weights_row
from launcher.catalogue.versions import in_range
from launcher.mapping.rows import Row, Table, same


@cache
def table(version: str) -> Table:
    """Return the mapping table of one ms-swift version."""
    return Table(
        rows=_rows(version),
        unsupported=mapping_gaps.unsupported(version),
        irrelevant=mapping_gaps.irrelevant(version),
    )


def _rows(version: str) -> tuple[Row, ...]:
    return (
        *mapping_training.task_rows(version),
        *model_rows(version),
        *_architecture_rows(version),
        *mapping_details.model_rows(),
        mapping_variants.initialization(),
        *mapping_variants.rows(),
        *mapping_training.lora_rows(),
        *mapping_parallel.parallel_rows(),
        *mapping_parallel.recompute_rows(),
        *mapping_parallel.offload_rows(),
        *mapping_parallel.moe_rows(version),
        *mapping_training.batch_rows(),
        *mapping_training.schedule_rows(version),
        *mapping_training.optimizer_rows(version),
        *mapping_details.optimizer_rows(),
        *mapping_training.precision_rows(),
        *mapping_details.precision_rows(),
        *mapping_parallel.kernel_rows(),
        *mapping_parallel.overlap_rows(),
        *mapping_surroundings.data_rows(version),
        *mapping_training.seed_rows(),
        *mapping_surroundings.checkpoint_rows(version),
        *mapping_surroundings.logging_rows(),
        *mapping_details.other_rows(),
        *mapping_services.rows(),
        *mapping_layout.other_rows(),
    )


def _architecture_rows(version: str) -> tuple[Row, ...]:
    changes = (key_row(version),) if in_range(version, FOUR, None) else (*option_rows(version), argument_row(version))
    return (
        *changes,
        weights_row(),
        rope_scaling_row(version),
        *mapping_gaps.config_rows(version),
        mapping_gaps.layers_row(),
        mapping_gaps.prediction_row(),
        same("model.mtp_loss_scaling_factor", "mtp_loss_scaling_factor", since="3.10"),
    )
