"""Rows of recomputation and swapping."""

from collections.abc import Iterable, Mapping

from backends.mindformers.mapping.parallel import PP, effective_vpp
from backends.mindformers.mapping.stages import Matrix, layers_per_chunk
from backends.mindformers.mapping.support import (
    dense_layers_of,
    frozen,
    has_experts,
    is_concatenated,
    is_legacy,
    key,
    require,
)
from launcher.job import Job, Value
from launcher.job.recompute import SELECTIVE_MODULES
from launcher.mapping.rows import NativeView, Row, same

_FULL = "recompute_config.recompute"
_IN_PART = "recompute.selective_layers_per_chunk"
_SWAP, _LAYER_SWAP = "swap_config.swap", "swap_config.layer_swap"

# Cells by name, as regular expressions whose parts are separated by an escaped dot (LayerSetting.set_pattern_recompute,
# parallel_core/training_graph/transformer/utils.py @2.1.0). The activation patterns are MindFormers' defaults.
ACTIVATION = (
    r"mlp\.shared_experts\.mul",
    r"mlp\.shared_experts\.activation_func\.silu",
    r"mlp\.mul",
    r"mlp\.activation_func\.silu",
)
NORMS = ("input_layernorm", "pre_mlp_layernorm")
MODULES: Mapping[str, tuple[str, ...]] = {
    "core_attn": (r"self_attention\.core_attention",),
    "mlp": ("mlp",),
    "moe": ("mlp",),
    "shared_experts": (r"mlp\.shared_experts",),
    "layernorm": NORMS,
    "mla_up_proj": (r"self_attention\.linear_q_up_proj", r"self_attention\.linear_kv_up_proj"),
    "moe_act": (),  # The experts' SwiGLU is always recomputed (moe/ffn.py:131 @2.1.0).
}
# With mla_qkv_concat (training_graph/base_models/gpt/gpt_layer_specs.py:131 @2.1.0).
_CONCATENATED = {"mla_up_proj": (r"self_attention\.linear_qb", r"self_attention\.linear_kvb")}
_READ = ("core_attn", "mlp", "moe", "shared_experts", "layernorm", "mla_up_proj")


def cells_of(module: str, *, concatenated: bool = False) -> tuple[str, ...]:
    """Return the cells of a module of `recompute.modules`.

    Args:
        concatenated: both down projections of latent attention are one matrix.
    """
    return _CONCATENATED.get(module, MODULES[module]) if concatenated else MODULES[module]


def _modules_of_file(view: NativeView) -> dict[str, tuple[str, ...]]:
    """Return the modules that can be read from a file, and their cells.

    Dense and MoE layers both have a cell mlp: which of them is meant is clear where a model has one kind.
    """
    unclear = {"moe"} if not has_experts(view) else {"mlp", "moe"} if dense_layers_of(view) else {"mlp"}
    concatenated = is_concatenated(view)
    return {name: cells_of(name, concatenated=concatenated) for name in _READ if name not in unclear}


def _swaps(job: Job) -> bool:
    return bool(job.offload.attention) or bool(job.offload.activation_layers)


def _first_layers(matrix: Matrix, counts: int | Matrix) -> tuple[int, ...]:
    layers: list[int] = []
    start = 0
    for chunk, row in enumerate(matrix):
        for stage, size in enumerate(row):
            count = counts if isinstance(counts, int) else counts[chunk][stage]
            layers.extend(range(start, start + min(count, size)))
            start += size
    return tuple(layers)


def _per_chunk(job: Job, path: str = "recompute.layers_per_chunk") -> Matrix | None:
    """Return the recomputed layers by chunk and stage, if the job sets them per chunk."""
    counts: tuple[int, ...] = getattr(job.recompute, path.split(".")[1])
    pp = job.parallel.pp
    chunks = pp * (job.parallel.vpp or 1)
    if not counts:
        return None
    require(len(counts) == chunks, path, f"there are {chunks} chunks (pp x vpp), it has {len(counts)} numbers")
    return tuple(tuple(counts[start : start + pp]) for start in range(0, chunks, pp))


def _in_part(job: Job) -> Matrix | None:
    """Return selectively recomputed layers by chunk and stage, plus the fully recomputed ones before them.

    MindFormers counts both from the start of a chunk; full recomputation takes precedence
    (LayerSetting.set_recompute @2.1.0).
    """
    per_chunk = _per_chunk(job, _IN_PART)
    if per_chunk is None:
        return None
    recompute = job.recompute
    every = recompute.num_layers or 1 if recompute.granularity == "full" else 0
    full = _per_chunk(job) or tuple((every,) * len(row) for row in per_chunk)
    return tuple(
        tuple(before + count if count else 0 for before, count in zip(*rows, strict=True))
        for rows in zip(full, per_chunk, strict=True)
    )


def _full() -> Row:
    paths = ("granularity", "method", "num_layers", "per_pp_rank", "layers_per_chunk")
    fields = tuple(f"recompute.{name}" for name in paths)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        recompute, parallel = job.recompute, job.parallel
        if recompute.granularity != "full":
            yield _FULL, False
            return
        count, per_chunk = recompute.num_layers or 1, _per_chunk(job)
        if recompute.method != "block":
            why = f"it recomputes each layer by itself, not groups of {count}"
            require(count == 1, fields[2], why, f"{fields[2]}=1", "recompute.method=block")
            yield _FULL, True
            return
        if _swaps(job):
            # With swapping on, MindFormers reads the list as layer numbers instead of counts (S7).
            matrix = layers_per_chunk(job)
            require(matrix is not None, "model.num_hidden_layers", "swapping needs it to number the layers")
            require(not recompute.per_pp_rank, fields[3], "with swapping the layers are numbered chunk by chunk")
            yield _FULL, _first_layers(matrix or (), per_chunk or count)
        elif per_chunk is not None:
            yield _FULL, per_chunk if len(per_chunk) > 1 else per_chunk[0]
        elif (parallel.vpp or 1) > 1 and not recompute.per_pp_rank:
            yield _FULL, tuple((count,) * parallel.pp for _ in range(parallel.vpp or 1))
        else:
            yield _FULL, (count,) * parallel.pp

    def read(view: NativeView) -> Mapping[str, Value]:
        written = frozen(view.peek(_FULL))
        if written is False:
            view.take(_FULL)
            return {}
        if written is True:
            view.take(_FULL)
            return {fields[0]: "full", fields[1]: "uniform", fields[2]: 1}
        pp, vpp = view.peek(PP, 1), effective_vpp(view)
        rows = written if isinstance(written, tuple) and written and isinstance(written[0], tuple) else (written,)
        figures = {n for row in rows if isinstance(row, tuple) for n in row}
        count = next(iter(figures), None)
        is_valid = all(isinstance(row, tuple) and len(row) == pp for row in rows)
        whole = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in figures)
        numbers = view.peek(key("cpu_offloading"))  # Layer numbers, not counts (S7).
        if numbers or not is_valid or not whole or not any(figures) or len(rows) not in (1, vpp):
            return {}
        if len(figures) > 1:
            if len(rows) != vpp:
                return {}
            view.take(_FULL)
            counts = tuple(n for row in rows if isinstance(row, tuple) for n in row)
            return {fields[0]: "full", fields[1]: "block", fields[2]: max(counts), fields[4]: counts}
        view.take(_FULL)
        found: dict[str, Value] = {fields[0]: "full", fields[1]: "block", fields[2]: count}
        if vpp > 1 and len(rows) == 1:
            found[fields[3]] = True
        return found

    note = "block: a count for each stage, or each chunk of each stage; uniform: every layer by itself"
    return Row(fields=fields, flags=(_FULL,), emit=emit, read=read, note=note)


def _counts(job: Job, layers: int | None) -> Value:
    per_chunk = _in_part(job)
    if per_chunk is not None:
        require(layers is None, _IN_PART, "activation_num_layers and norm_num_layers count the same layers")
        if _swaps(job):
            return _first_layers(layers_per_chunk(job) or (), per_chunk)
        return per_chunk if len(per_chunk) > 1 else per_chunk[0]
    if layers is None:
        return True
    if _swaps(job):
        return _first_layers(layers_per_chunk(job) or (), layers)
    return (layers,) * job.parallel.pp


def _wanted_modules(job: Job) -> tuple[str, ...]:
    recompute = job.recompute
    if recompute.granularity != "selective" and not (recompute.granularity and recompute.selective_layers_per_chunk):
        return ()
    model = job.model
    modules = recompute.modules or (SELECTIVE_MODULES if recompute.granularity == "selective" else ())
    path = "recompute.modules"
    mixed = model.mixes_dense_layers
    why = "dense and MoE layers both call it mlp here, and this model has both kinds"
    require(not (mixed and {"mlp", "moe"} & set(modules)), path, why, "recompute.granularity=full")
    why = "the model has no such layers"
    require(not ("mlp" in modules and model.is_moe), path, why)
    require(not ("moe" in modules and not model.is_moe), path, why)
    return modules


def _keys_of_switch(version: str, name: str) -> tuple[str, ...]:
    """Return the keys of a switch of recompute_config.

    Version 1.6 passes only `recompute` to the mcore graph (get_recompute, transformer_config_utils.py:64 @1.6.0),
    which reads the others from the model section.
    """
    section = f"recompute_config.{name}"
    return (section, key(name)) if version == "1.6.0" else (section,)


def _selective(version: str) -> Row:
    flags = _keys_of_switch(version, "select_recompute")
    fields = ("modules", "activation", "activation_num_layers", "norm", "norm_num_layers")
    paths = (*(f"recompute.{name}" for name in fields), _IN_PART)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        recompute = job.recompute
        chosen: dict[str, Value] = {}
        for module in _wanted_modules(job):
            cells = cells_of(module, concatenated=job.model.is_mla and bool(job.kernels.qkv_concat))
            chosen.update(dict.fromkeys(cells, _counts(job, None)))
        if recompute.activation:
            chosen.update(dict.fromkeys(ACTIVATION, _counts(job, recompute.activation_num_layers)))
        if recompute.norm:
            chosen.update(dict.fromkeys(NORMS, _counts(job, recompute.norm_num_layers)))
        value: Value = chosen or False
        if chosen == dict.fromkeys(ACTIVATION, True):
            value = True
        elif chosen and all(value is True for value in chosen.values()) and not _swaps(job):
            value = tuple(chosen)
        yield from ((flag, value) for flag in flags)

    def read(view: NativeView) -> Mapping[str, Value]:
        written = frozen(view.peek(flags[-1]))
        if written is None or frozen(view.peek(flags[0], written)) != written:
            return {}
        if isinstance(written, bool):
            found: Mapping[str, Value] = {"recompute.activation": True} if written else {}
        elif isinstance(written, tuple) and all(isinstance(name, str) for name in written):
            found = _read_patterns(view, dict.fromkeys(written, True))
        elif isinstance(written, Mapping):
            found = _read_patterns(view, dict(written))
            found = found or _read_in_part(view, dict(written))
        else:
            return {}
        if found or written is False:
            for flag in flags:
                view.take(flag)
        return found

    note = "cells by name; true alone is MindFormers' default, the activation function"
    return Row(fields=("recompute.granularity", *paths), flags=flags, emit=emit, read=read, note=note)


def _read_patterns(view: NativeView, written: dict[str, Value]) -> dict[str, Value]:
    pp, selective = view.peek(PP, 1), view.peek(_FULL) in (False, None)
    found: dict[str, Value] = {}
    groups: tuple[tuple[str, tuple[str, ...]], ...] = (("activation", ACTIVATION), ("norm", NORMS))
    for name, patterns in groups:
        values = {str(written.get(pattern)): written.get(pattern) for pattern in patterns}
        value = next(iter(values.values()))
        counted = isinstance(value, tuple) and len(value) == pp and len(set(value)) == 1 and isinstance(value[0], int)
        if len(values) != 1 or not (counted or (value is True and name == "activation")):
            continue
        for pattern in patterns:
            written.pop(pattern)
        found[f"recompute.{name}"] = True
        if isinstance(value, tuple) and counted:
            found[f"recompute.{name}_num_layers"] = value[0]
    modules = []
    for module, patterns in _modules_of_file(view).items():
        if all(written.get(pattern) is True for pattern in patterns):
            modules.append(module)
            for pattern in patterns:
                written.pop(pattern)
    if written or (modules and not selective):
        return {}
    if modules:
        found |= {"recompute.granularity": "selective", "recompute.modules": tuple(modules)}
    return found


def _matrix(written: Value, pp: int, vpp: int) -> Matrix | None:
    """Return counts as rows of chunks; None if they are invalid, or not one for each chunk."""
    rows = written if isinstance(written, tuple) and written and isinstance(written[0], tuple) else (written,)
    whole = all(
        isinstance(row, tuple) and len(row) == pp and all(type(count) is int and count >= 0 for count in row)
        for row in rows
    )
    return rows if whole and len(rows) == vpp else None


def _read_in_part(view: NativeView, written: dict[str, Value]) -> dict[str, Value]:
    """Return the fields of counts per chunk, if all cells have the same counts."""
    pp, vpp = view.peek(PP, 1), effective_vpp(view)
    values = [frozen(value) for value in written.values()]
    counts, given = _matrix(values[0], pp, vpp) if values else None, frozen(view.peek(_FULL))
    full = ((0,) * pp,) * vpp if given in (False, None) else _matrix(given, pp, vpp)
    swapped = view.peek(key("cpu_offloading"))
    if counts is None or full is None or swapped or any(value != values[0] for value in values):
        return {}
    pairs = [pair for rows in zip(full, counts, strict=True) for pair in zip(*rows, strict=True)]
    if any(0 < count <= before for before, count in pairs) or not any(map(any, counts)):
        return {}
    found: dict[str, Value] = {_IN_PART: tuple(count - before if count else 0 for before, count in pairs)}
    left, modules = set(written), []
    if left >= set(ACTIVATION):
        left -= set(ACTIVATION)
        found["recompute.activation"] = True
    for module, cells in _modules_of_file(view).items():
        if left >= set(cells):
            left -= set(cells)
            modules.append(module)
    if modules:
        found["recompute.modules"] = tuple(modules)
        if given in (False, None):
            found["recompute.granularity"] = "selective"
    return {} if left else found


def _swapping(version: str) -> Row:
    paths = ("offload.attention", "offload.activation_layers")
    # The mcore graph reads the model's own keys only: TransformerOpParallelConfig.to_dict drops swap_config
    # (modules/transformer/transformer.py:645 @2.1.0). The section still enables the checks of recompute lists.
    switches, layers_flags = (_SWAP, key("cpu_offloading")), (_LAYER_SWAP, key("cpu_offloading_num_layers"))

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        attention, layers = job.offload.attention, job.offload.activation_layers
        if attention is None and layers is None:
            return
        why = "version 1.6's mcore graph swaps nothing (training_graph/transformer/utils.py: LayerSetting)"
        named = paths[0] if attention else paths[1]
        require(version != "1.6.0" or not (attention or layers), named, why, "backend.version=2.1.0")
        why = "attention of all layers is its default only where no layers are named"
        require(not (attention and layers), paths[1], why, f"{paths[1]}=null", f"{paths[0]}=false")
        yield from ((flag, bool(attention) or bool(layers)) for flag in switches)
        if layers:
            entry = ({"backward_prefetch": 1, "layers": tuple(range(layers))},)
            yield from ((flag, entry) for flag in layers_flags)

    def read(view: NativeView) -> Mapping[str, Value]:
        on = view.peek(switches[1])
        if not isinstance(on, bool):
            return {}
        layers = frozen(view.peek(layers_flags[1]))
        consistent = view.peek(_SWAP, on) is on and frozen(view.peek(_LAYER_SWAP, layers)) == layers
        count = len(layers[0]["layers"]) if on and _is_prefix(layers) else 0
        if not consistent or key("op_swap") in view.values or (layers is not None and not count):
            return {}
        for flag in (*switches, *layers_flags):
            view.take(flag)
        return {paths[1]: count} if count else {paths[0]: on}

    note = "swap alone swaps flash attention in all layers (transformer.py:190 @2.1.0)"
    return Row(fields=paths, flags=(*switches, *layers_flags), emit=emit, read=read, note=note)


def _is_prefix(layers: Value) -> bool:
    """Return whether a list of swapped layers is one entry with the first layers."""
    if not isinstance(layers, tuple) or len(layers) != 1 or not isinstance(layers[0], Mapping):
        return False
    numbers = layers[0].get("layers")
    is_valid = isinstance(numbers, tuple) and numbers == tuple(range(len(numbers)))
    return is_valid and layers[0].get("backward_prefetch") == 1


def _communication(version: str) -> Row:
    path, flags = "recompute.communication", _keys_of_switch(version, "mp_comm_recompute")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.recompute.communication is not None:
            yield from ((flag, job.recompute.communication) for flag in flags)

    def read(view: NativeView) -> Mapping[str, Value]:
        value = view.peek(flags[-1])
        if value is None or view.peek(flags[0], value) != value:
            return {}
        for flag in flags:
            view.take(flag)
        return {path: value}

    return Row(fields=(path,), flags=flags, emit=emit, read=read, note="MindFormers' default is true")


def _slices() -> Row:
    path, flag = "recompute.distribute_saved_activations", "recompute_config.recompute_slice_activation"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        wanted = job.recompute.distribute_saved_activations
        why = "mcore refuses it (transformer_config.py:2709 @2.1.0)"
        require(not wanted or is_legacy(job), path, why, f"{path}=false")
        if wanted is not None:
            yield flag, wanted

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if isinstance(view.peek(flag), bool) and view.has(flag) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read)


def memory_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of recompute_config and swap_config."""
    return (
        _full(),
        _selective(version),
        _communication(version),
        same("recompute.optimizer_communication", "recompute_config.parallel_optimizer_comm_recompute"),
        _slices(),
        _swapping(version),
    )
