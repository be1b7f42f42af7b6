"""Layers and chunks of the pipeline stages of an argument list."""

from __future__ import annotations

import re

from launcher.rehearse.core.arguments import Arguments


def virtual_stages(arguments: Arguments) -> int | None:
    """Count the model chunks of each pipeline rank; None without interleaving."""
    pp = arguments.pipeline_model_parallel_size
    if arguments.pipeline_model_parallel_layout is not None:
        count = layout_stages(arguments.pipeline_model_parallel_layout) // pp
    elif arguments.num_virtual_stages_per_pipeline_rank is not None:
        count = arguments.num_virtual_stages_per_pipeline_rank
    elif arguments.num_layers_per_virtual_pipeline_stage is not None:
        layers = layers_to_split(arguments)
        count = layers // pp // arguments.num_layers_per_virtual_pipeline_stage
    else:
        return None
    return count if count > 1 else None


def layers_to_split(arguments: Arguments) -> int:
    """Count the layers split over pipeline stages, embedding and loss included where they count as layers."""
    layers: int = arguments.num_layers or arguments.encoder_num_layers
    return layers + arguments.account_for_embedding_in_pipeline_split + arguments.account_for_loss_in_pipeline_split


def layout_stages(text: str) -> int:
    """Count the stages of a pipeline layout such as `Et*3|(tt|)*2L`: `|` separates stages."""
    expanded = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        expanded = re.sub(pattern, lambda match: match.group(1) * int(match.group(2)), expanded)
    return expanded.count("|") + 1
