"""PEFT's LoRA format: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Final

from launcher.convert.containers import safetensors
from launcher.convert.containers.errors import ConvertError
from launcher.convert.containers.records import Slot, TensorSpec
from launcher.convert.containers.transfer import OpenFiles
from launcher.convert.formats.format import Draft, Format, Layout, Target
from launcher.convert.formats.huggingface import CONFIGURATION
from launcher.convert.layouts.content import Content, Stored, Wanted
from launcher.convert.logical import Logical
from launcher.convert.lora.adapter import CONFIG, WEIGHTS, pattern_value, read_config, refusals, weights_file
from launcher.convert.lora.fused import fused_boxes, fused_modules
from launcher.convert.lora.held import Held, factor_words
from launcher.convert.lora.logical import A, AdapterLogical, B, Shared, adaptable, adapter_logical, base_of
from launcher.convert.records import TensorSlice
from launcher.convert.slices import whole
from launcher.records import dataclass

_PREFIX: Final = "base_model.model."
_ORDER: Final = ("F16", "BF16", "F32", "F64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Contents of a PEFT folder, before the check whether a training stack supports it unchanged.

    Attributes:
        text, config: adapter_config.json.
        factors: logical name (module + `.lora_A.weight`) to its position; one per module and expert.
        scales: module to (rank, alpha).
    """

    folder: Path
    base: Logical
    text: str
    config: Mapping[str, Any]
    factors: Mapping[str, Held]
    scales: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def rslora(self) -> bool:
        """Whether the product is divided by the square root of the rank."""
        return bool(self.config.get("use_rslora"))

    @property
    def modules(self) -> list[str]:
        """The modules with factors."""
        return [name.removesuffix(B) for name in self.factors if name.endswith(B)]

    def scale(self, module: str) -> float:
        """Return the scale of the product of a module's factors."""
        rank, alpha = self.scales[module]
        return alpha / math.sqrt(rank) if self.rslora else alpha / rank


def survey(folder: Path, base: Logical) -> Survey:
    """Read names and shapes of an adapter.

    Raises:
        ConvertError: all reasons why it cannot be converted, even if rewritten.
    """
    config = read_config(folder)
    problems = refusals(folder, config)
    if problems:
        raise ConvertError(problems)
    known = {
        module: shape
        for instance, parts in adaptable(base)
        for module, shape in zip(parts, instance.shapes, strict=True)
    }
    factors: dict[str, Held] = {}
    stored = safetensors.read(weights_file(folder)).slots
    slots: dict[str, Slot] = {}
    for slot in stored:
        other = slots.setdefault(base.family.usual(slot.name.removeprefix(_PREFIX)), slot)
        if other is not slot:
            raise ConvertError(f"{slot.path}: {other.name} and {slot.name} are two names of one tensor")
    shapes = {name: slot.shape for name, slot in slots.items()}
    called: dict[str, str] = {}
    for name, slot in slots.items():
        fused = fused_boxes(base, name, shapes)
        parameter, boxes = fused or ("", (whole(name, slot.shape),) if name.endswith((A, B)) else ())
        unknown = [box.logical for box in boxes if box.logical[: -len(A)] not in known]
        if not boxes or unknown:
            problems.append(_unknown(folder, base, slot, name, unknown))
            continue
        problems += [
            f"{slot.path}: {box.logical} is stored twice, in {factors[box.logical].slot.name} and {slot.name}"
            for box in boxes
            if box.logical in factors
        ]
        factors.update({box.logical: Held(slot=slot, box=box) for box in boxes})
        called.update({box.logical[: -len(A)]: parameter or box.logical[: -len(A)] for box in boxes})
    scales = {}
    for module, name in called.items():
        rank, alpha = (
            pattern_value(config, *words, base.family.in_class(name))
            for words in (("rank_pattern", "r"), ("alpha_pattern", "lora_alpha"))
        )
        scales[module] = (rank, alpha)
        problems += _misshaped(folder, factors, module, rank, known[module])
    if problems:
        raise ConvertError(problems)
    if not factors:
        raise ConvertError(f"{folder}: the adapter changes nothing")
    text = (folder / CONFIG).read_text(encoding="utf-8")
    return Survey(folder=folder, base=base, text=text, config=config, factors=factors, scales=scales)


def _unknown(folder: Path, base: Logical, slot: Slot, name: str, unknown: Sequence[str]) -> str:
    where = f"{folder / WEIGHTS}: {slot.name} {list(slot.shape)}"
    enclosing = base.family.enclosing
    if enclosing is not None and enclosing.other(name) is not None:
        return f"{where}: not of the language model, whose adapters alone are converted; works: launch convert merge"
    if unknown:
        return f"{where}: no linear layer of the model that training stacks give factors to"
    kind = "factors of an embedding" if "lora_embedding" in name else "no LoRA factor (modules_to_save, a bias)"
    return f"{where}: {kind}: adapters of training stacks cannot store it; works: launch convert merge"


def _misshaped(
    folder: Path, factors: Mapping[str, Held], module: str, rank: int, shape: tuple[int, ...]
) -> Iterator[str]:
    wanted = {module + A: (rank, shape[1]), module + B: (shape[0], rank)}
    for name, expected in wanted.items():
        held = factors.get(name)
        if held is None:
            yield f"{folder / WEIGHTS}: {name} is missing"
        else:
            if held.shape != expected:
                needed = f"model and {CONFIG} need {list(expected)}"
                yield f"{folder / WEIGHTS}: {name} has shape {list(held.shape)}; {needed}"


# --- obstacles to an unchanged conversion ---


def obstacles(found: Survey, groups: Iterable[tuple[str, ...]], missing: Sequence[str]) -> list[str]:
    """Return why a training stack does not support the adapter unchanged.

    Args:
        found: the adapter.
        groups: modules that a training stack fuses into one layer, which share their A.
        missing: modules without factors while others of the same name have some.
    """
    problems = []
    modules = set(found.modules)
    values = sorted({found.scales[module] for module in modules})
    if len(values) > 1:
        shown = ", ".join(f"r {rank} alpha {alpha}" for rank, alpha in values[:4])
        problems.append(f"{len(values)} pairs of rank and alpha ({shown}): training stacks have one for all layers")
    for parts in groups:
        held = [part for part in parts if part in modules]
        if held and len(held) == len(parts):
            other = next((part for part in held[1:] if not same_factor(found, held[0] + A, part + A)), None)
            if other is not None:
                problems.append(f"{held[0]} and {other.rpartition('.')[2]} have different lora_A; they are one layer")
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        problems.append(f"{missing[0]}{more}: no factors, and training stacks give some to all layers of one name")
    return problems


def same_factor(found: Survey, left: str, right: str) -> bool:
    """Return whether two factors are equal byte by byte."""
    import numpy as np

    one, other = found.factors[left], found.factors[right]
    if one.slot == other.slot and one.box.stored_at == other.box.stored_at:
        return True
    with OpenFiles() as files:
        a, b = (factor_words(files, held) for held in (one, other))
        return one.slot.dtype == other.slot.dtype and bool(np.array_equal(a, b))


# --- the format ---


def _recognises(path: Path) -> bool:
    return (path / CONFIG).is_file() and (path / WEIGHTS).is_file()


def _read(path: Path, logical: Logical, _layout: Layout, *, shared: Shared = ()) -> tuple[Logical, Stored]:
    base = base_of(logical)
    shared = logical.shared if isinstance(logical, AdapterLogical) else shared
    found = survey(path, base)
    (rank, alpha), *others = dict.fromkeys(found.scales.values())
    if others:
        raise ConvertError(f"{path}: several ranks or alphas; works: --rewrite")
    adapter = adapter_logical(
        base, found.modules, rank=rank, alpha=alpha, rslora=found.rslora, config=found.text, shared=shared
    )
    return adapter, Stored(contents=tuple(_contents(found, adapter)))


def _contents(found: Survey, adapter: AdapterLogical) -> Iterator[Content]:
    """Yield every stored tensor; a factor that repeats another maps to that one, and verification compares both."""
    boxes: dict[Slot, dict[Any, TensorSlice]] = {}
    for name, held in found.factors.items():
        copy = adapter.copies.get(name)
        box = held.box
        if copy is not None:
            box = TensorSlice(
                logical=copy.of, logical_at=box.logical_at, stored_at=box.stored_at, transposed=box.transposed
            )
        boxes.setdefault(held.slot, {})[box.logical, box.stored_at] = box
    for slot, known in boxes.items():
        yield Content(slot=slot, boxes=tuple(known.values()))


def _draft(target: Target) -> Draft:
    logical = target.logical
    assert isinstance(logical, AdapterLogical)
    text = _config_text(logical)
    fused = "target_parameters" in json.loads(text) and bool(json.loads(text)["target_parameters"])
    wanted = sorted(
        _wanted(logical, fused=fused), key=lambda tensor: (-_ORDER.index(target.dtype(tensor)), tensor.name)
    )
    dtypes = tuple(target.dtype(tensor) for tensor in wanted)
    specs = [
        TensorSpec(name=tensor.name, shape=tensor.shape, dtype=dtype)
        for tensor, dtype in zip(wanted, dtypes, strict=True)
    ]

    def create(directory: Path) -> list[Slot]:
        (directory / CONFIG).write_text(text, encoding="utf-8")
        return safetensors.create_file(directory / WEIGHTS, specs)

    return Draft(wanted=tuple(wanted), dtypes=dtypes, create=create, files=3)


def _wanted(logical: AdapterLogical, *, fused: bool) -> Iterator[Wanted]:
    inside: set[str] = set()
    if fused:
        for name, shape, boxes, modules in fused_modules(logical.base, logical.modules, logical.rank):
            resolved = tuple(_resolved(box, logical) for box in boxes if box.logical not in logical.copies)
            yield Wanted(name=_PREFIX + logical.base.family.in_class(name), shape=shape, boxes=resolved)
            inside.update(modules)
    names = {**{name: name for name in logical.tensors}, **{name: copy.of for name, copy in logical.copies.items()}}
    for name, of in names.items():
        if name[: -len(A)] not in inside:
            shape = logical.tensors[of]
            named = _PREFIX + logical.base.family.in_class(name)
            yield Wanted(name=named, shape=shape, boxes=(whole(of, shape),))


def _resolved(box: TensorSlice, logical: AdapterLogical) -> TensorSlice:
    copy = logical.copies.get(box.logical)
    return box if copy is None else TensorSlice(logical=copy.of, logical_at=box.logical_at, stored_at=box.stored_at)


def _config_text(logical: AdapterLogical) -> str:
    """Return the source's adapter_config.json if it describes the adapter; else a generated one."""
    if logical.config and _mentions(logical.config, logical):
        return logical.config
    alpha = int(logical.alpha) if float(logical.alpha).is_integer() else logical.alpha
    tree = {
        "base_model_name_or_path": None,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": logical.rank,
        "target_modules": hf_targets(logical.base, logical.modules),
        "task_type": "CAUSAL_LM",
        "use_rslora": logical.rslora,
    }
    return json.dumps(tree, indent=2) + "\n"


def _mentions(text: str, logical: AdapterLogical) -> bool:
    try:
        tree = json.loads(text)
    except ValueError:
        return False
    same = (tree.get("r"), tree.get("lora_alpha"), bool(tree.get("use_rslora")))
    if same != (logical.rank, logical.alpha, logical.rslora) or tree.get("rank_pattern") or tree.get("alpha_pattern"):
        return False
    if tree.get("target_parameters"):
        return True
    matches = matcher(tree.get("target_modules"))
    own = set(logical.modules)
    return all(
        matches(logical.base.family.in_class(module)) == (module in own) for module in _all_modules(logical.base)
    )


def matcher(targets: Any) -> Callable[[str], bool]:
    """Return PEFT's module matcher (peft 0.20 tuners_utils.py check_target_module_exists): regex, or name suffixes."""
    if isinstance(targets, str):
        return lambda module: re.fullmatch(targets, module) is not None
    names = tuple(targets or ())
    return lambda module: module in names or module.endswith(tuple(f".{name}" for name in names))


def _all_modules(base: Logical) -> Iterator[str]:
    for _, parts in adaptable(base):
        yield from parts


def hf_targets(base: Logical, modules: Iterable[str]) -> list[str]:
    """Return PEFT's `target_modules`: last name components where they are unambiguous, else full names."""
    own = set(modules)
    leaves: dict[str, list[str]] = {}
    for module in _all_modules(base):
        leaves.setdefault(module.rpartition(".")[2], []).append(module)
    found: list[str] = []
    for leaf, modules in leaves.items():
        held = [module for module in modules if module in own]
        if held:
            found += [leaf] if len(held) == len(modules) else [base.family.in_class(module) for module in held]
    return sorted(found)


def peft_format(shared: Shared = ()) -> Format:
    """Return PEFT's format, read for a training stack that fuses these modules into one layer."""
    return Format(
        name="peft",
        title="PEFT LoRA",
        kind="hf",
        recognises=_recognises,
        read=partial(_read, shared=shared),
        draft=_draft,
        config=lambda path: path if (path / "config.json").is_file() else None,
        holds=(*CONFIGURATION, WEIGHTS),
    )


FORMAT = peft_format()
