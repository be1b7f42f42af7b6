"""The number of chunks of a pipeline stage where only the layers of a chunk are given."""

from collections.abc import Mapping
from typing import Any

CHUNKS, LAYERS_OF_CHUNK = "num-virtual-stages-per-pipeline-rank", "num-layers-per-virtual-pipeline-stage"


def chunks_of(values: Mapping[str, Any]) -> int | None:
    """Return the chunks per pipeline stage where the layers per chunk are set (arguments.py:443-464 @0.12.1).

    None: they are not set, or the layers do not divide (which validate_args rejects).
    """
    per_chunk, layers = values.get(LAYERS_OF_CHUNK), values.get("num-layers", values.get("encoder-num-layers"))
    uneven = values.get("decoder-first-pipeline-num-layers") or values.get("decoder-last-pipeline-num-layers")
    if not isinstance(per_chunk, int) or not isinstance(layers, int) or per_chunk < 1 or uneven:
        return None
    for end in ("embedding", "loss"):
        layers += bool(values.get(f"account-for-{end}-in-pipeline-split"))
    size = per_chunk * values.get("pipeline-model-parallel-size", 1)
    return layers // size if layers % size == 0 else None
