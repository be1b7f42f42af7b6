"""Options of the trainer in addition to Megatron-LM's arguments, as one JSON file; no heavy imports."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from launcher.rehearse.core.errors import UsageError

DataKind = Literal["sample", "text", "messages", "preferences", "megatron"]
LayerImplementation = Literal["auto", "local", "transformer_engine"]
Device = Literal["cpu", "cuda"]

_KINDS = ("sample", "text", "messages", "preferences", "megatron")
_IMPLEMENTATIONS = ("auto", "local", "transformer_engine")
_DEVICES = (None, "cpu", "cuda")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Source of the tokens.

    `sample`: the text that ships with the project, bytes as tokens. `text`: JSONL of {"text": …}. `messages`: JSONL of
    {"messages": [{"role", "content"}, …]}. `preferences`: JSONL of pairs, in the formats of Megatron-SWIFT and TRL.
    `megatron`: prefixes of .bin/.idx pairs (none: those of --data-path). `messages` and `preferences` without paths are
    made of the text that ships with the project.
    """

    kind: DataKind = "sample"
    paths: tuple[str, ...] = ()
    tokenizer: str | None = None
    """Directory with a tokenizer.json; None: the one that ships with the project (bytes)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FakeWorld:
    """A world larger than this machine; one process simulates single ranks on torch's fake process group."""

    world_size: int
    ranks: tuple[int, ...] = (0,)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoraOptions:
    """LoRA adapters; PEFT's LoraConfig has the same names."""

    rank: int
    alpha: float
    dropout: float = 0.0
    target_modules: tuple[str, ...] = ()
    """Last names of linear layers in megatron-core, or `all-linear`; none: all."""
    rslora: bool = False
    load: str | None = None
    """torch_dist checkpoint of the adapters to start from; None: A as PEFT draws it, B 0."""

    @property
    def scale(self) -> float:
        """Factor of the adapters' output."""
        return float(self.alpha / (self.rank**0.5 if self.rslora else self.rank))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceOptions:
    """Direct preference optimisation; TRL's DPOConfig has the same names. The reference is the start model."""

    beta: float = 0.1
    label_smoothing: float = 0.0
    rpo_alpha: float | None = None
    """Weight of the chosen answers' mean loss per token; None: not added."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOptions:
    """Everything that `python -m launcher.rehearse.core --options FILE` reads from FILE."""

    output_dir: str
    """Receives result.json, log.txt, loss.png and tensorboard/."""
    data: DataOptions = dataclasses.field(default_factory=DataOptions)
    layer_impl: LayerImplementation = "auto"
    """`auto`: Transformer Engine's layers where it and CUDA are available, else megatron-core's local ones."""
    device: Device | None = None
    """Device of every rank; None: cuda where torch sees one, else cpu."""
    progress: bool = True
    """Print a line each --log-interval iterations."""
    check_only: bool = False
    """Stop after the arguments are checked, before torch is imported."""
    fake_world: FakeWorld | None = None
    lora: LoraOptions | None = None
    """Train adapters, and nothing else; None: all parameters."""
    preference: PreferenceOptions | None = None
    """Train on preferences; None: on the next token. The micro and global batch then count pairs."""

    def to_json(self) -> str:
        """Write these options as the JSON text that `from_json` reads."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str, source: str = "options") -> TrainerOptions:
        """Read options from JSON text; UsageError names `source` and every unknown or wrong key."""
        try:
            raw = json.loads(text)
        except json.JSONDecodeError as error:
            raise UsageError(f"{source}:{error.lineno}: not JSON: {error.msg}") from error
        problems: list[str] = []
        fields = _known(cls, raw, source, problems)
        data = _known(DataOptions, fields.pop("data", None) or {}, f"{source}: data", problems)
        fake = fields.pop("fake_world", None)
        fake_fields = _known(FakeWorld, fake, f"{source}: fake_world", problems) if fake else None
        lora = fields.pop("lora", None)
        lora_fields = _known(LoraOptions, lora, f"{source}: lora", problems) if lora else None
        preference = fields.pop("preference", None)
        loss_fields = _known(PreferenceOptions, preference, f"{source}: preference", problems) if preference else None
        if (data.get("kind") == "preferences") is not (loss_fields is not None):
            problems.append(f"{source}: data of kind preferences and the option preference need each other")
        if data.get("kind", "sample") not in _KINDS:
            problems.append(f"{source}: data.kind is {data['kind']!r}; choose from {', '.join(_KINDS)}")
        if fields.get("layer_impl", "auto") not in _IMPLEMENTATIONS:
            problems.append(
                f"{source}: layer_impl is {fields['layer_impl']!r}; choose from {', '.join(_IMPLEMENTATIONS)}"
            )
        if fields.get("device") not in _DEVICES:
            problems.append(f"{source}: device is {fields['device']!r}; choose from cpu, cuda")
        if not isinstance(fields.get("output_dir"), str):
            problems.append(f"{source}: output_dir is missing")
        if fake_fields is not None and not isinstance(fake_fields.get("world_size"), int):
            problems.append(f"{source}: fake_world.world_size is missing")
        if lora_fields is not None:
            missing = [name for name in ("rank", "alpha") if not isinstance(lora_fields.get(name), int | float)]
            problems += [f"{source}: lora.{name} is missing" for name in missing]
            lora_fields["target_modules"] = tuple(lora_fields.get("target_modules") or ())
        if problems:
            raise UsageError(*problems)
        data["paths"] = tuple(data.get("paths") or ())
        if fake_fields is not None:
            fake_fields["ranks"] = tuple(fake_fields.get("ranks") or (0,))
        return cls(
            **fields,
            data=DataOptions(**data),
            fake_world=FakeWorld(**fake_fields) if fake_fields else None,
            lora=LoraOptions(**lora_fields) if lora_fields else None,
            preference=PreferenceOptions(**loss_fields) if loss_fields is not None else None,
        )

    @classmethod
    def from_file(cls, path: str) -> TrainerOptions:
        """Read options from a JSON file."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"), path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error


def _known(record: type, raw: Any, source: str, problems: list[str]) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        problems.append(f"{source}: expected an object")
        return {}
    names = [field.name for field in dataclasses.fields(record)]
    for key in raw:
        if key not in names:
            problems.append(f"{source}: unknown key {key!r}; known: {', '.join(names)}")
    return {key: value for key, value in raw.items() if key in names}
