"""Converts layers per pipeline stage and chunk between job fields and MindFormers' `offset`."""

import re
from collections.abc import Sequence

from launcher.job import Job
from launcher.mapping.rows import Unsupported

Matrix = tuple[tuple[int, ...], ...]
"""Layers by chunk (row) and stage (column)."""

_REPEAT = re.compile(r"\(([^()]*)\)\*(\d+)|([EtmL])\*(\d+)")


def extra_layers(job: Job, version: str) -> int:
    """Return the number of MTP layers in the pipeline split: version 1.6 and legacy models split them with the others.

    Source: parallel_core/training_graph/transformer/transformer_block.py:154 @1.6.0 (num_layers + mtp_num_layers),
    :155 @2.1.0 (num_layers); research/deepseek3/deepseek2_model.py:1261 @1.6.0 (num_layers + mtp_depth).
    """
    return job.model.num_nextn_predict_layers if version == "1.6.0" or job.model.legacy else 0


def layers_per_chunk(job: Job) -> Matrix | None:
    """Return the model's layers by chunk and stage, without MTP; None if the number of layers is unknown.

    Raises:
        Unsupported: the layers do not divide evenly and the job sets no split.
    """
    layers = job.model.num_hidden_layers
    parallel = job.parallel
    if layers is None:
        return None
    pp, vpp = parallel.pp, parallel.vpp or 1
    if parallel.layout is not None:
        counts = _from_layout(parallel.layout, pp * vpp, layers, job.model.num_nextn_predict_layers)
    elif parallel.noop_layers:
        counts = _with_noops(layers, parallel.noop_layers, pp * vpp)
    elif parallel.first_stage_layers is not None or parallel.last_stage_layers is not None:
        return _with_ends(layers, pp, vpp, parallel.first_stage_layers, parallel.last_stage_layers)
    else:
        counts = _even(layers, pp * vpp, bool(parallel.account_for_embedding), bool(parallel.account_for_loss))
    return tuple(tuple(counts[chunk * pp : (chunk + 1) * pp]) for chunk in range(vpp))


def _even(layers: int, chunks: int, embedding: bool, loss: bool) -> list[int]:
    total = layers + embedding + loss
    if total % chunks:
        near = [f"model.num_hidden_layers={total // chunks * chunks - embedding - loss}"] if total >= chunks else []
        why = f"{layers} layers do not divide over {chunks} chunks (pp x vpp): set the split with first_stage_layers, "
        raise Unsupported("parallel.pp", why + "last_stage_layers or layout", tuple(near))
    counts = [total // chunks] * chunks
    counts[0] -= embedding
    counts[-1] -= loss
    return counts


def _with_ends(layers: int, pp: int, vpp: int, first: int | None, last: int | None) -> Matrix:
    middle = pp - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    uneven = [n for n in (first, last) if n is not None and n % vpp]
    if rest < 0 or uneven or (rest % (middle * vpp) if middle else rest):
        why = f"{layers} layers with {first} first and {last} last leave {rest} for {middle} stages of {vpp} chunks"
        raise Unsupported("parallel.first_stage_layers" if first is not None else "parallel.last_stage_layers", why)
    row = [rest // (middle * vpp) if middle else 0] * pp
    if first is not None:
        row[0] = first // vpp
    if last is not None:
        row[-1] = last // vpp
    return tuple(tuple(row) for _ in range(vpp))


def _with_noops(layers: int, noops: Sequence[int], chunks: int) -> list[int]:
    total = layers + len(set(noops))
    if total % chunks or max(noops) >= total:
        why = f"{layers} layers and {len(set(noops))} empty ones do not fill {chunks} chunks evenly"
        raise Unsupported("parallel.noop_layers", why)
    size = total // chunks
    empty = set(noops)
    return [sum(1 for layer in range(start, start + size) if layer not in empty) for start in range(0, total, size)]


def expand_layout(text: str) -> list[str]:
    """Return the chunks of a Megatron pipeline layout, with repetitions expanded and commas removed.

    Source: Megatron-core transformer/pipeline_parallel_layer_layout.py (parse_str_to_list).
    """
    previous = ""
    while previous != text:
        previous = text
        text = _REPEAT.sub(lambda found: (found[1] or found[3]) * int(found[2] or found[4]), text)
    return [chunk.replace(",", "").replace(" ", "") for chunk in text.split("|")]


def _from_layout(text: str, chunks: int, layers: int, mtp: int) -> list[int]:
    parts = expand_layout(text)
    path = "parallel.layout"
    if len(parts) != chunks:
        raise Unsupported(path, f"{text} has {len(parts)} chunks, pp x vpp is {chunks}")
    if any("E" in part for part in parts[1:]) or any("L" in part or "m" in part for part in parts[:-1]):
        why = "MindFormers keeps the embedding on the first chunk, and MTP and the output layer on the last"
        raise Unsupported(path, f"{text}: {why}")
    counts = [part.count("t") for part in parts]
    if sum(counts) != layers:
        raise Unsupported(path, f"{text} places {sum(counts)} layers, the model has {layers}")
    if parts[-1].count("m") not in (0, mtp):
        raise Unsupported(path, f"{text} places {parts[-1].count('m')} MTP layers, the model has {mtp}")
    return counts


def offset_of(matrix: Matrix, extra: int) -> int | tuple[int, ...] | Matrix:
    """Return MindFormers' `offset` for a split: 0 if it is even, else one number per chunk and stage.

    Never one row for several chunks: it is broadcast after its sum is checked, and builds a wrong number of layers
    (parallel_core/training_graph/transformer/utils.py:585 @2.1.0).

    Args:
        matrix: layers by chunk and stage.
        extra: layers that MindFormers adds at the end of the last chunk (MTP, version 1.6).
    """
    rows = [list(row) for row in matrix]
    rows[-1][-1] += extra
    chunks = sum(len(row) for row in rows)
    base = sum(map(sum, rows)) // chunks
    offset = tuple(tuple(count - base for count in row) for row in rows)
    if all(count == 0 for row in offset for count in row):
        return 0
    return offset if len(offset) > 1 else offset[0]


def matrix_of(offset: object, layers: int, pp: int, vpp: int) -> Matrix | None:
    """Return the layers by chunk and stage that an `offset` list builds; None if the list is invalid."""
    rows = offset if isinstance(offset, (list, tuple)) and offset and isinstance(offset[0], (list, tuple)) else [offset]
    if not isinstance(rows, (list, tuple)) or len(rows) != vpp:
        return None
    base = layers // (pp * vpp)
    matrix = []
    for row in rows:
        if not isinstance(row, (list, tuple)) or len(row) != pp or not all(isinstance(n, int) for n in row):
            return None
        matrix.append(tuple(base + n for n in row))
    if sum(map(sum, matrix)) != layers or any(n < 0 for row in matrix for n in row):
        return None
    return tuple(matrix)


def canonical_split(matrix: Matrix, mtp: int) -> dict[str, object]:
    """Return the job fields of a split: first and last stage if sufficient, else a layout."""
    if len({count for row in matrix for count in row}) == 1:
        return {}
    if len(matrix) == 1 and len(matrix[0]) > 1:
        row = matrix[0]
        ends: dict[str, object] = {}
        inner = row[1:-1]
        if len(set(inner)) <= 1:
            common = inner[0] if inner else None
            if row[0] != common:
                ends["parallel.first_stage_layers"] = row[0]
            if row[-1] != common:
                ends["parallel.last_stage_layers"] = row[-1]
            return ends
    chunks = [n for row in matrix for n in row]
    parts = ["t" * n if n < 4 else f"t*{n}" for n in chunks]
    parts[0] = "E" + parts[0]
    parts[-1] += ("m" if mtp else "") + "L"
    return {"parallel.layout": "|".join(parts)}
