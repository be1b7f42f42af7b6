"""Mapping table of plain Megatron-LM between canonical fields and arguments, with the unsupported fields."""

from functools import cache

from backends.megatron_lm import static_graph
from backends.megatron_lm.families import FAMILIES
from backends.megatron_lm.mapping import (
    attention_variants,
    checkpoint,
    data,
    evaluation,
    fault_tolerance,
    kernels,
    logging,
    memory,
    model,
    moe,
    optimizer,
    overlap,
    parallel,
    positions,
    precision,
    profiler,
    sharding,
    state_space,
    task,
    tokenizer,
    training,
    unsupported,
)
from backends.megatron_lm.mapping.factories import VERSIONS, reworded
from launcher.job import field_paths
from launcher.job.fault_tolerance import OF_LAUNCHER
from launcher.mapping.family_row import refusal
from launcher.mapping.rows import Row, Table

LAUNCHER_ONLY = "only the launcher reads it"


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of all versions, in the customary argument order."""
    return (
        reworded(
            {},
            {"use-mcore-models": True},
            note="Megatron-core models are the only ones left.",
        ),
        kernels.renamed_scope(),
        positions.rotary_flag(),
        model.encoder_sizes(),
        positions.NO_POSITIONS.row(),
        *checkpoint.unread(),
        *task.task(),
        *parallel.parallel(),
        *sharding.sharding(),
        *model.sizes(),
        *model.layers(),
        *positions.positions(),
        *model.norms_and_initialization(),
        state_space.stack(),
        *state_space.sizes(),
        *state_space.constants(),
        *model.layer_variants(),
        *model.latent_attention(),
        *attention_variants.attention(),
        *moe.experts(),
        *moe.routing(),
        *moe.balance(),
        *moe.dispatch(),
        *model.multi_token_prediction(),
        *tokenizer.tokenizer(),
        *training.batch(),
        *training.schedule(),
        *optimizer.optimizer(),
        *precision.precision(),
        training.seed(),
        *memory.recompute(),
        *memory.offload(),
        *overlap.overlap(),
        *kernels.kernels(),
        *parallel.process_groups(),
        moe.forced_balance(),
        *overlap.gradient_buckets(),
        *kernels.runtime(),
        *parallel.communication(),
        *overlap.collectives(),
        *kernels.cuda_graphs(),
        *memory.optimizer_offload(),
        kernels.embedding_output(),
        kernels.FLASH_SWITCH.row("kernels.attention_backend"),
        *data.data(),
        *checkpoint.checkpoint(),
        *logging.logging(),
        *profiler.profiler(),
        fault_tolerance.timeout(),
        *logging.further_logging(),
        *profiler.inspection(),
        *fault_tolerance.fault_tolerance(),
        *evaluation.evaluation(),
    )


@cache
def table(version: str) -> Table:
    """Return the whole mapping of one version."""
    return Table(
        rows=(
            *rows(),
            refusal(FAMILIES, version, VERSIONS, note="The architecture is written out argument by argument."),
        ),
        unsupported=unsupported.unsupported(version, rows()),
        irrelevant={path: why for path, why in irrelevant().items() if path != "model.model_type"},
    )


def irrelevant() -> dict[str, str]:
    """Return the fields that need no Megatron argument, with the reason."""
    sections = ("cluster.", "hardware.", "rehearse.", "rules.", "estimate.", "search.", "imported.")
    unrelated = {"name", "output_dir", "runtime", "model.overridden"}
    unrelated |= {"backend.name", "backend.version"}
    launcher_fields = [path for path in field_paths() if path.startswith(sections) or path in unrelated]
    return {
        **static_graph.irrelevant(),
        **attention_variants.LLAMA4_IRRELEVANT,
        **dict.fromkeys(launcher_fields, LAUNCHER_ONLY),
        "backend.args": "passed through as they are",
        "backend.env": "set in the environment of every node",
        "model.model_type": "the architecture is written out argument by argument",
        "parallel.dp": "what remains of the world size",
        "cluster.nodes": "torchrun --nnodes",
        "cluster.devices_per_node": "torchrun --nproc_per_node",
        "cluster.master_addr": "torchrun --master_addr",
        "cluster.master_port": "torchrun --master_port",
        **dict.fromkeys(OF_LAUNCHER, LAUNCHER_ONLY),
        "fault_tolerance.max_restarts": "the launcher starts all ranks again, with the last checkpoint",
    }
