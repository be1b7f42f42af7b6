"""The mapping table of MindFormers' mcore static YAML (use_legacy: False), read in both directions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from backends.mindformers.mapping.attention_variants import variant_rows, window_row
from backends.mindformers.mapping.checkpoint import checkpoint_monitor_rows, checkpoint_rows, reshard_row
from backends.mindformers.mapping.config_defaults import class_default_row, section_default_row
from backends.mindformers.mapping.data import cache_and_stream_rows, data_rows, ignored_label_row
from backends.mindformers.mapping.evaluation import evaluation_rows
from backends.mindformers.mapping.fault_tolerance import nan_check_row
from backends.mindformers.mapping.generation import generation_rows
from backends.mindformers.mapping.graph import all_to_all_row, context_rows, sink_row
from backends.mindformers.mapping.irrelevant import IRRELEVANT
from backends.mindformers.mapping.kernels import kernel_rows, sparse_mode_row
from backends.mindformers.mapping.latent import latent_attention_rows
from backends.mindformers.mapping.legacy import legacy_rows, modern
from backends.mindformers.mapping.loader import mask_rows, strategy_row
from backends.mindformers.mapping.logging import loss_monitor_row, output_dir_row, tensorboard_row
from backends.mindformers.mapping.lora import lora_row
from backends.mindformers.mapping.memory import memory_rows
from backends.mindformers.mapping.model import (
    dropout_row,
    model_rows,
    prediction_rows,
    rotation_and_residual_rows,
    weight_rows,
)
from backends.mindformers.mapping.moe import bias_callback, forced_balance_row, moe_rows
from backends.mindformers.mapping.parallel import batch_rows, parallel_rows, stage_rows
from backends.mindformers.mapping.profiler import profiler_level_row, profiler_rows
from backends.mindformers.mapping.support import architecture
from backends.mindformers.mapping.training import (
    general_rows,
    layerwise_rate_rows,
    optimizer_rows,
    precision_rows,
    schedule_rows,
    trainer_rows,
)
from backends.mindformers.mapping.unsupported import BEFORE_2_1, UNSUPPORTED
from launcher.catalogue.versions import in_range
from launcher.mapping.rows import Gap, Row, Table


def _mcore_model(version: str) -> tuple[Row, ...]:
    return (
        *(architecture(row) for row in model_rows(version)),
        dropout_row(),
        *(architecture(row) for row in latent_attention_rows()),
        *(architecture(row) for row in moe_rows(version)),
        *(architecture(row) for row in prediction_rows(version)),
        *(architecture(row) for row in rotation_and_residual_rows()),
        architecture(forced_balance_row()),
        *(architecture(row) for row in variant_rows()),
        architecture(window_row()),
    )


@cache
def table(version: str) -> Table:
    """Return the mapping table of one version, its rows in the order of MindFormers' examples.

    Native arguments are dotted paths of the YAML. A callback is addressed by its type,
    `callbacks.MFLossMonitor.per_print_times`; other lists are values, and so are mappings whose keys are data
    (rope_scaling, pet_config, select_recompute).
    """
    rows = (
        section_default_row(),
        *general_rows(),
        output_dir_row(),
        *checkpoint_rows(),
        *weight_rows(),
        reshard_row(),
        *trainer_rows(),
        *batch_rows(),
        *data_rows(version),
        sink_row(),
        *optimizer_rows(version),
        *schedule_rows(),
        *context_rows(version),
        *parallel_rows(version),
        strategy_row(),
        *memory_rows(version),
        *legacy_rows(),
        *map(modern, _mcore_model(version)),
        all_to_all_row(),
        *stage_rows(version),
        *map(modern, (*mask_rows(), *precision_rows())),
        *kernel_rows(version),
        lora_row(),
        loss_monitor_row(),
        *checkpoint_monitor_rows(),
        modern(bias_callback()),
        tensorboard_row(),
        *profiler_rows(),
        nan_check_row(),
        profiler_level_row(),
        sparse_mode_row(),
        *cache_and_stream_rows(),
        *evaluation_rows(),
        *layerwise_rate_rows(),
        ignored_label_row(),
        *generation_rows(),
        class_default_row(),
    )
    return Table(rows=rows, unsupported={**UNSUPPORTED, **_later(version, rows)}, irrelevant=IRRELEVANT)


def _later(version: str, rows: Iterable[Row]) -> Mapping[str, Gap]:
    """Return the gaps of fields whose rows begin with a later version."""
    first = {path: row.since for row in rows if not in_range(version, row.since, None) for path in row.fields}
    return {path: replace(gap, why=f"it came with {first[path]}") for path, gap in BEFORE_2_1.items() if path in first}
