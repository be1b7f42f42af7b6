"""Maps the parameters of a MindFormers checkpoint, in any arrangement, to logical tensors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from backends.mindformers.checkpoint.chunks import part as part_of
from backends.mindformers.checkpoint.found import Found, LocatedPart
from backends.mindformers.checkpoint.older import EMBEDDING, HEAD, older_found, older_parameters
from backends.mindformers.checkpoint.rank_folders import seen
from backends.mindformers.checkpoint.tensors import NEW, OLD, Arrangement, Parameter, arrangement_of, parameters
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot
from launcher.convert.formats.format import Layout
from launcher.convert.layouts.content import Content, Stored
from launcher.convert.logical import Logical, without_mtp

_EMBEDDING: Final = "embedding.word_embeddings.weight"
_CONCATENATED: Final = ".self_attention.linear_kvb.weight"
# The converter of 1.6 and later (toolkit/weight_convert/deepseekv3) writes it; no network has such a parameter.
_EXTRA_HEAD: Final = "mtp.output_layer.weight"
_OF_MTP: Final = ("mtp.layers.", "model.mtp_norms.")
_OLDER: Final = re.compile(r"model\.layers\.\d+\.(attention|feed_forward|attention_norm|ffn_norm)\.")
_STATE: Final = (
    (re.compile(r".*\.(seed|offset)"), "state of a random generator, not a weight"),
    (re.compile(r".*\.(expert_load|fi_accu|fi_parameter|[fp]i_cache)"), "a counter of routed tokens, not a weight"),
    (re.compile(r".*(num_tokens_per_expert|tokens_per_expert|max_logits_val)"), "a counter, not a weight"),
    (re.compile(r"(adam_[mv]|muon_m|moments?[12]|accu_grads|fp32_params?)\..*"), "optimizer state, not a weight"),
    (
        re.compile(
            r"(global_step|epoch_num|step_num|loss_scale|scale_sense|current_iterator_step|last_overflow_iterator_step"
            r"|learning_rate|beta[12]_power|optimizer\..*|state_step|global_batch_size"
            # What the wrapper's parameter_register holds (wrapper/wrapper.py:303 @1.8.0, 285 @2.1.0).
            r"|(lm|aux|mtp|indexer)_loss|current_(default|grouped)_lr)"
        ),
        "state of the training, not a weight",
    ),
)


def meanings(logical: Logical, found: Found, layout: Layout) -> tuple[Logical, Stored]:
    """Return the contents of a checkpoint, and the model without the layers missing in it.

    Raises:
        ConvertError: unknown or missing parameters, or different shapes.
    """
    notes = list(found.notes)
    names = {parts.part.name for parts in found.parts}
    if logical.model.num_nextn_predict_layers and not any(name.startswith(_OF_MTP) for name in names):
        notes.append("config.json has MTP layers, the checkpoint has none: converted without")
        logical = without_mtp(logical)
    if EMBEDDING in names or any(_OLDER.match(name) for name in names):
        known = _known_older(logical, found)
    else:
        known = _known(logical, found, _arrangement(logical, found, layout, notes))
    contents: list[Content] = []
    problems: list[str] = []
    dropped = dict.fromkeys(found.skipped, "optimizer state, not weights")
    for parts in found.parts:
        parameter, reason = known.get(parts.part.name), _state(parts.part.name)
        if parameter is None and reason is not None:
            dropped[parts.part.name] = reason
        elif parameter is None:
            kind = logical.model.model_type
            problems.append(f"{_shown(parts)}: a {kind} model of this config.json has no such parameter")
        elif parts.part.whole not in (parameter.shape, parameter.declared):
            problems.append(f"{_shown(parts)}: config.json says {list(parameter.shape)}")
        else:
            contents.append(content_of(parts, parameter))
    problems += _missing(known, contents, names)
    if problems:
        raise ConvertError([*problems, found.hint] if found.hint else problems)
    # The head before its duplicate.
    contents.sort(key=lambda content: content.slot.name in known and known[content.slot.name].name != content.slot.name)
    return logical, Stored(contents=tuple(contents), dropped=dropped, notes=tuple(notes))


def _arrangement(logical: Logical, found: Found, layout: Layout, notes: list[str]) -> Arrangement:
    """Return the arrangement: mla_qkv_concat and version from names and shapes, row order from options or record."""
    names = {parts.part.name for parts in found.parts}
    wide = logical.model.is_moe and _is_wide(logical, found)
    asked = arrangement_of(layout)
    if asked not in (NEW, OLD):
        base = asked
    elif "arrangement" in found.record:
        base = replace(NEW, **{key: bool(value) for key, value in json.loads(found.record["arrangement"]).items()})
    else:
        base = OLD if wide else asked
        rows = "gate and up rows alternate" if base.interleaved_mlp else "gate rows, then up rows"
        notes.append(f"the files do not define the order of rows; assumed: {rows} (--source for another)")
    return replace(base, wide_experts=wide, mla_concat=any(name.endswith(_CONCATENATED) for name in names))


def _is_wide(logical: Logical, found: Found) -> bool:
    hidden = logical.model.hidden_size
    experts = [parts.part.whole for parts in found.parts if parts.part.name.endswith(".experts.weight1")]
    width = 2 * (logical.model.moe_intermediate_size or 0)
    return bool(experts) and all(shape[0] == hidden and shape[-1] != width for shape in experts)


def _known(logical: Logical, found: Found, arrangement: Arrangement) -> dict[str, Parameter]:
    rows = next((parts.part.whole[0] for parts in found.parts if parts.part.name == _EMBEDDING), None)
    _check_rows(logical, _EMBEDDING, rows, found)
    known = {one.name: one for one in parameters(logical, arrangement, vocabulary=rows)}
    head = known.get("output_layer.weight")
    return known if head is None else {**known, _EXTRA_HEAD: head}


def _known_older(logical: Logical, found: Found) -> dict[str, Parameter]:
    rows = next((parts.part.whole[0] for parts in found.parts if parts.part.name == EMBEDDING), None)
    _check_rows(logical, EMBEDDING, rows, found)
    older = older_found(parts.part.name for parts in found.parts)
    known = {one.name: one for one in older_parameters(logical, older, vocabulary=rows)}
    # Converters also write a tied head, a duplicate of the embedding.
    return known if HEAD in known else {**known, HEAD: known[EMBEDDING]}


def _check_rows(logical: Logical, name: str, rows: int | None, found: Found) -> None:
    if rows is not None and rows < (logical.model.vocab_size or 0):
        problem = f"{name} has {rows} rows, config.json has vocab_size {logical.model.vocab_size}"
        raise ConvertError([problem, found.hint] if found.hint else problem)


def content_of(parts: LocatedPart, parameter: Parameter) -> Content:
    """Return the logical content of a stored part of a parameter."""
    part, slot = parts.part, parts.slot
    if part.whole == part.shape:
        same = Slot(name=slot.name, shape=parameter.shape, dtype=slot.dtype, path=slot.path, offset=slot.offset)
        return Content(slot=same, boxes=parameter.boxes, fill=parameter.fill)
    at, shape = seen(parameter, part.at, part.shape) if part.whole == parameter.declared else (part.at, part.shape)
    chunk = part_of(parameter, at, shape)
    same = Slot(name=slot.name, shape=shape, dtype=slot.dtype, path=slot.path, offset=slot.offset)
    return Content(slot=same, boxes=chunk.boxes, fill=chunk.fill)


def _missing(known: Mapping[str, Parameter], contents: list[Content], names: set[str]) -> list[str]:
    if not contents:
        return ["no parameter of this model is there"]
    lacking = [one for name, one in known.items() if name not in names and name == one.name]
    return [f"{one.name} {list(one.declared)} is missing: by config.json the model has it" for one in lacking]


def _state(name: str) -> str | None:
    return next((reason for pattern, reason in _STATE if pattern.fullmatch(name)), None)


def _shown(parts: LocatedPart) -> str:
    return f"{parts.slot.path.name}: {parts.part.name} {list(parts.part.whole)}"
