"""The mapping table of MindFormers' mcore static YAML (use_legacy: False), read in both directions."""

from functools import cache

from backends.mindformers.mapping.attention_variants import (
    VARIANT_GAPS,
    VARIANTS_ASIDE,
    VARIANTS_BEFORE_2_1,
    variant_rows,
)
from backends.mindformers.mapping.config_defaults import silent_row, usual_row
from backends.mindformers.mapping.data import data_rows, length_rows
from backends.mindformers.mapping.details import (
    BEFORE_2_1,
    DETAIL_GAPS,
    DETAILS_ASIDE,
    data_detail_rows,
    fault_rows,
    model_detail_rows,
)
from backends.mindformers.mapping.evaluation import evaluation_rows
from backends.mindformers.mapping.generation import beside_rows
from backends.mindformers.mapping.graph import context_rows, expert_exchange_row, sink_row
from backends.mindformers.mapping.legacy import legacy_rows, modern
from backends.mindformers.mapping.loader import mask_rows, strategy_row
from backends.mindformers.mapping.memory import memory_rows
from backends.mindformers.mapping.model import (
    dropout_row,
    latent_attention_rows,
    model_rows,
    prediction_rows,
    weight_rows,
)
from backends.mindformers.mapping.moe import bias_callback, moe_rows
from backends.mindformers.mapping.outputs import callback_rows, checkpoint_rows, output_rows, reshard_row
from backends.mindformers.mapping.parallel import batch_rows, parallel_rows, stage_rows
from backends.mindformers.mapping.services import SERVICE_GAPS, SERVICES_BEFORE_2_1, service_rows, window_row
from backends.mindformers.mapping.sharding import LAYOUT_ASIDE, LAYOUT_GAPS
from backends.mindformers.mapping.support import architecture
from backends.mindformers.mapping.training import (
    general_rows,
    kernel_rows,
    lora_rows,
    optimizer_rows,
    precision_rows,
    schedule_rows,
    trainer_rows,
)
from backends.mindformers.mapping.unsupported import IRRELEVANT, UNSUPPORTED
from launcher.mapping.rows import Row, Table


def _mcore_model(version: str) -> tuple[Row, ...]:
    return (
        *(architecture(row) for row in model_rows(version)),
        dropout_row(),
        *(architecture(row) for row in latent_attention_rows()),
        *(architecture(row) for row in moe_rows(version)),
        *(architecture(row) for row in prediction_rows(version)),
        *(architecture(row) for row in model_detail_rows()),
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
        silent_row(),
        *general_rows(),
        *checkpoint_rows(),
        *weight_rows(),
        reshard_row(),
        *trainer_rows(),
        *batch_rows(),
        *data_rows(version),
        *length_rows(),
        *data_detail_rows(),
        sink_row(),
        *optimizer_rows(version),
        *schedule_rows(),
        *context_rows(version),
        *parallel_rows(version),
        strategy_row(),
        *memory_rows(version),
        *legacy_rows(),
        *map(modern, _mcore_model(version)),
        expert_exchange_row(),
        *stage_rows(version),
        *map(modern, (*mask_rows(), *precision_rows())),
        *kernel_rows(version),
        *lora_rows(),
        *callback_rows(),
        modern(bias_callback()),
        *output_rows(),
        *fault_rows(),
        *service_rows(),
        *evaluation_rows(),
        *beside_rows(),
        usual_row(),
    )
    unsupported = {**UNSUPPORTED, **LAYOUT_GAPS, **DETAIL_GAPS, **SERVICE_GAPS, **VARIANT_GAPS}
    if version == "1.6.0":
        unsupported |= {**BEFORE_2_1, **SERVICES_BEFORE_2_1, **VARIANTS_BEFORE_2_1}
    return Table(
        rows=rows, unsupported=unsupported, irrelevant={**IRRELEVANT, **LAYOUT_ASIDE, **DETAILS_ASIDE, **VARIANTS_ASIDE}
    )
