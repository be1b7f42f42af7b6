"""Recomputation of a pynative `TrainConfig` as `recompute_config` of the static graph.

The pynative trainer names layers, "0-15" (pynative/distributed/activation_checkpoint.py: apply_recompute @2.1.0). The
static graph counts them from the first layer of each pipeline chunk (parallel_core/training_graph/transformer/utils.py:
LayerSetting @2.1.0), so that other layers become as many of the same chunk: the memory is the same.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import accumulate
from typing import Any

from backends.mindformers.class_defaults import CLASSES
from backends.mindformers.mapping.memory import ACTIVATION, cells_of
from launcher.mapping.backend import FileNote

FULL, SELECT = "recompute_config.recompute", "recompute_config.select_recompute"
EXCLUDE = "recompute_config.select_recompute_exclude"
OFFSET = "model.model_config.offset"
_SPEC = re.compile(r"\s*(\d+)(?:-(\d+))?\s*\Z")  # _LAYER_ID_SPEC_PATTERN
_SHARED, _DENSE = ACTIVATION[:2], ACTIVATION[2:]

# Parts of a layer and their names in the static graph (transformers/transformer_layer.py, attention.py, moe @2.1.0).
CELLS: Mapping[str, tuple[str, ...]] = {
    "self_attention": ("self_attention",),
    "self_attention.core_attention": cells_of("core_attn"),
    "self_attention.linear_qkv": (r"self_attention\.linear_qkv",),
    "self_attention.linear_qb": cells_of("mla_up_proj", concatenated=True)[:1],
    "self_attention.linear_kvb": cells_of("mla_up_proj", concatenated=True)[1:],
    "self_attention.linear_proj": (r"self_attention\.linear_proj",),
    "self_attention.q_layernorm": (r"self_attention\.q_layernorm",),
    "self_attention.k_layernorm": (r"self_attention\.k_layernorm",),
    "input_layernorm": ("input_layernorm",),
    "pre_mlp_layernorm": ("pre_mlp_layernorm",),
    "mlp": ("mlp",),
    "mlp.linear_fc1": (r"mlp\.linear_fc1",),
    "mlp.linear_fc2": (r"mlp\.linear_fc2",),
    "mlp.mul": (r"mlp\.mul",),
    "mlp.activation_func": (r"mlp\.activation_func\.silu",),
    "mlp.experts": (r"mlp\.experts",),
    "mlp.experts.activation_func": (),  # The static graph always recomputes it (moe/ffn.py:131 @2.1.0).
    "mlp.shared_experts": cells_of("shared_experts"),
    "mlp.shared_experts.linear_fc1": (r"mlp\.shared_experts\.linear_fc1",),
    "mlp.shared_experts.linear_fc2": (r"mlp\.shared_experts\.linear_fc2",),
    "mlp.shared_experts.mul": _SHARED[:1],
    "mlp.shared_experts.activation_func": _SHARED[1:],
}
# The static graph excludes operations of a part, and no part as a whole (LayerSetting.set_pattern_recompute).
_OPERATIONS = tuple(name for name in CELLS if name.rpartition(".")[2] in ("mul", "activation_func") and CELLS[name])
_CONCATENATED = {"self_attention.linear_qb": 0, "self_attention.linear_kvb": 1}

Chunks = Sequence[range]
"""Layers of each pipeline chunk, in the model's order."""


def chunks_of(parallelism: Mapping[str, Any], layers: int) -> tuple[range, ...]:
    """Return the layers of each pipeline chunk; none if their number is unknown or MindFormers refuses the split."""
    pp, vpp = (_size(parallelism.get(name)) for name in ("pipeline_parallel", "pipeline_parallel_interleave_num"))
    split = parallelism.get("pipeline_parallel_layers_per_stage")
    if isinstance(split, (list, tuple)):
        found = _named_chunks(split, pp, vpp)
        whole = [layer for chunk in found for layer in chunk] == list(range(layers))
        return found if whole and len(found) == pp * vpp else ()
    if layers < 1 or layers % (pp * vpp):
        return ()
    size = layers // (pp * vpp)
    return tuple(range(start, start + size) for start in range(0, layers, size))


def _size(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _named_chunks(split: Sequence[Any], pp: int, vpp: int) -> tuple[range, ...]:
    """Return the chunks of `["0-3,8-11", "4-7,12-15"]`, a text for each stage (PpLayerSetting @2.1.0)."""
    stages = [[_layers_of(part) for part in str(stage).split(",")] for stage in split]
    if len(stages) != pp or any(len(stage) != vpp or None in stage for stage in stages):
        return ()
    return tuple(part for chunk in range(vpp) for stage in stages if (part := stage[chunk]) is not None)


def _layers_of(spec: Any) -> range | None:
    found = _SPEC.match(str(spec))
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    return range(first, last + 1) if first <= last else None


def offset_of_chunks(chunks: Chunks, stages: int) -> tuple[tuple[int, ...], ...] | tuple[int, ...] | int:
    """Return the static graph's `offset`: what each chunk has beyond an even split."""
    each = sum(len(chunk) for chunk in chunks) // len(chunks)
    extra = tuple(len(chunk) - each for chunk in chunks)
    if not any(extra):
        return 0
    rows = tuple(extra[start : start + stages] for start in range(0, len(extra), stages))
    return rows if len(rows) > 1 else rows[0]


def layers_named(specs: Any, count: int, key: str) -> tuple[set[int], list[FileNote]]:
    """Return the layers that a list names; what MindFormers refuses of it is a note and names none.

    Args:
        count: layers of the model, MTP included: they come last.
    """
    found: set[int] = set()
    for spec in specs if isinstance(specs, (list, tuple)) else (specs,):
        layers, text = _layers_of(spec), ""
        if layers is None:
            text = f"has {spec!r}: a layer or a range of layers like '0-3' is needed"
        elif layers[-1] >= count:
            text = f"has {spec!r}, and the model has layers 0 to {count - 1}"
        elif found and layers[0] <= max(found):
            text = f"has {spec!r} after {max(found)}: layers must be in ascending order"
        if text or layers is None:
            return set(), [FileNote(key=key, text=text, refused=True)]
        found.update(layers)
    return found, []


def counts_of(layers: set[int], chunks: Chunks, stages: int, before: Set[int] = frozenset()) -> Any:
    """Return what the static graph's keys hold: true for every layer, else a count for each chunk.

    Args:
        before: layers that are recomputed in full, or in a part that contains this one, and counted first.
    """
    if layers >= {layer for chunk in chunks for layer in chunk}:
        return True
    counts = tuple(len((layers | before).intersection(chunk)) if layers.intersection(chunk) else 0 for chunk in chunks)
    rows = tuple(counts[start : start + stages] for start in range(0, len(counts), stages))
    return rows if len(rows) > 1 else rows[0]


def _moved(layers: set[int], before: Set[int], chunks: Chunks) -> bool:
    """Return whether some layer that is named has one before it in its chunk that is not recomputed."""
    named = [(chunk, (layers | before).intersection(chunk)) for chunk in chunks if layers.intersection(chunk)]
    return any(set(chunk[: len(inside)]) != inside for chunk, inside in named)


def _moved_note(key: str, layers: set[int], before: Set[int], chunks: Chunks) -> list[FileNote]:
    text = (
        f"names layers {_shown(layers)}; the static graph counts from the first layer of each pipeline chunk: as many "
        "layers of each chunk are recomputed, but the first ones"
    )
    return [FileNote(key=key, text=text)] if _moved(layers, before, chunks) else []


def _shown(layers: set[int]) -> str:
    """Return layers as ranges: 0-3, 7."""
    starts = [layer for layer in sorted(layers) if layer - 1 not in layers]
    ends = [layer for layer in sorted(layers) if layer + 1 not in layers]
    return ", ".join(
        f"{first}-{last}" if last > first else f"{first}" for first, last in zip(starts, ends, strict=True)
    )


class Recomputation:
    """The static graph's arguments for the sections `recompute` and `recompute_comm`, and what they do not keep."""

    def __init__(self, chunks: Chunks, stages: int, model: Mapping[str, Any]) -> None:
        self.chunks, self.stages = chunks, stages
        self.mtp = _count(model, "num_nextn_predict_layers", "mtp_num_layers")
        self.concatenated = model.get("mla_qkv_concat", True) is not False
        experts = _count(model, "n_routed_experts", "num_experts")
        self.without = [_SHARED] if not _count(model, "n_shared_experts", "shared_expert_num") else []
        self.without += [_DENSE] if experts and not _count(model, "first_k_dense_replace") else []
        self.arguments: dict[str, Any] = {}
        self.notes: list[FileNote] = []

    def read(self, section: Mapping[str, Any]) -> None:
        """Read the section `recompute`."""
        self._read_switches(section)
        mode, full = section.get("mode", "None"), section.get("full_recompute_layer")
        if mode not in ("full", "select"):
            return
        needed = "full_recompute_layer" if mode == "full" else "select_module"
        if not section.get(needed):
            text = f"needs {needed}, and MindFormers refuses it without"
            self.notes.append(FileNote(key="recompute.mode", text=f"{mode} {text}", refused=True))
            return
        if not self.chunks:
            text = f"{mode} names layers, and how the model's layers divide over pipeline chunks is not known: dropped"
            self.notes.append(FileNote(key="recompute.mode", text=text))
            return
        layers = self._named(full, "recompute.full_recompute_layer") if full else set()
        if layers:
            self.arguments[FULL] = counts_of(layers, self.chunks, self.stages)
        if mode == "select":
            self._put(SELECT, section["select_module"], "recompute.select_module", layers)
        if section.get("exclude_op"):
            self._exclude(section["exclude_op"])

    def read_communication(self, section: Mapping[str, Any]) -> None:
        """Read the section `recompute_comm`."""
        if section.get("enable") is True:
            text = (
                "repeats the communication of single modules; the static graph has one switch for whatever is "
                "recomputed (recompute.communication): dropped"
            )
            self.notes.append(FileNote(key="recompute_comm.select_module", text=text))

    def _read_switches(self, section: Mapping[str, Any]) -> None:
        """Read the two keys of 1.9, which its trainer does not read: the job has what they ask for."""
        for name, key in (("full_recompute", FULL), ("select_recompute", SELECT)):
            if section.get(name) is True:
                self.arguments[key] = True
                text = "is read by nothing in the pynative trainer of 1.9; the static graph does as it says"
                self.notes.append(FileNote(key=f"recompute.{name}", text=text))

    def _named(self, specs: Any, key: str, before: Set[int] = frozenset()) -> set[int]:
        count = sum(len(chunk) for chunk in self.chunks)
        layers, refused = layers_named(specs, count + self.mtp, key)
        decoder = {layer for layer in layers if layer < count}
        self.notes += refused or _moved_note(key, decoder.difference(before), before, self.chunks)
        return decoder.difference(before)

    def _put(self, argument: str, modules: Any, key: str, before: Set[int]) -> None:
        if not isinstance(modules, Mapping):
            text = "must be a mapping of modules to lists of layers when the model is built"
            self.notes.append(FileNote(key=key, text=text, refused=True))
            return
        chosen: dict[str, set[int]] = {}
        for pattern, specs in modules.items():
            layers = self._named(specs, key, before)
            names = _matched(str(pattern), _OPERATIONS if argument == EXCLUDE else CELLS)
            if not names:
                what = "operation that the static graph can exclude" if argument == EXCLUDE else "part of its layers"
                self.notes.append(FileNote(key=key, text=f"has {pattern}, which matches no {what}: dropped"))
            for name in names:
                chosen[name] = chosen.get(name, set()) | layers
        written: dict[str, Any] = {}
        for name, layers in chosen.items():
            around = _containing(name, chosen)
            if layers - around:
                counts = counts_of(layers - around, self.chunks, self.stages, before | around)
                written |= dict.fromkeys(self._static(name), counts)
        if written:
            written = self._with_absent(written)
            every = all(count is True for count in written.values())
            default = argument == SELECT and every and set(written) == set(ACTIVATION)  # what `true` stands for
            self.arguments[argument] = True if default else list(written) if every else written

    def _static(self, name: str) -> Iterable[str]:
        if name in _CONCATENATED and not self.concatenated:
            return (cells_of("mla_up_proj")[_CONCATENATED[name]],)
        return CELLS[name]

    def _with_absent(self, written: dict[str, Any]) -> dict[str, Any]:
        """Return the modules with the activation function of layers that the model does not have: one field is both."""
        for absent in self.without:
            present = _DENSE if absent is _SHARED else _SHARED
            if all(name in written for name in present):
                written |= dict(zip(absent, (written[name] for name in present), strict=True))
        return written

    def _exclude(self, modules: Any) -> None:
        if isinstance(modules, Mapping):
            self._put(EXCLUDE, modules, "recompute.exclude_op", set())
        else:
            text = "names operators of any module, which the static graph cannot exclude: they are recomputed"
            self.notes.append(FileNote(key="recompute.exclude_op", text=text))


def _count(model: Mapping[str, Any], *names: str) -> int:
    known = {**CLASSES.get(str(model.get("model_type")), {}), **model}
    return next((value for name in names if isinstance(value := known.get(name), int)), 0)


def _matched(pattern: str, parts: Iterable[str]) -> list[str]:
    """Return the parts of a layer that an expression matches, without parts of these."""
    try:
        found = [name for name in parts if re.fullmatch(pattern, name)]
    except re.error:
        return []
    return [name for name in found if not any(name.startswith(f"{other}.") for other in found)]


def _containing(name: str, chosen: Mapping[str, set[int]]) -> set[int]:
    """Return the layers in which a part is recomputed with one that contains it: these are counted first."""
    heads = accumulate(name.split(".")[:-1], lambda head, part: f"{head}.{part}")
    return {layer for head in heads for layer in chosen.get(head, ())}
