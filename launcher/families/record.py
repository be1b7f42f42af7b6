"""The record of a model family: its config.json keys, and the names and shapes of its parameters."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from launcher.families.parts import Part
from launcher.families.source import NEEDED
from launcher.families.weights import Weights
from launcher.job.schema import Value
from launcher.records import dataclass, record


@record()
class Key:
    """One key of config.json that maps to one canonical field.

    Attributes:
        field: canonical field below `model`.
        names: spellings of the key, the one of transformers 4 first; empty: the field's name.
        default: default of the family's configuration class in transformers; NEEDED: no safe default.
        null: null in the file is a valid value.
    """

    field: str
    names: tuple[str, ...] = ()
    default: Any = NEEDED
    null: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        """All spellings, the one that is written first."""
        return self.names or (self.field,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A key with only one supported value: `name` must be `value` or absent, else `why` is reported."""

    name: str
    value: Any
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    """What config.json of a multimodal model has around its language model's keys.

    Attributes:
        text_type: model_type of the section text_config.
        tokens: the other keys, which are ids of tokens, with the defaults of the family's class.
        vision: the section vision_config of a file without weights: the defaults of its class.
        vision_width: its key that must be the language model's hidden_size.
        flat: the language model's keys are written beside the others, not in text_config.
    """

    text_type: str
    tokens: Mapping[str, int]
    vision: Mapping[str, Any]
    vision_width: str = "out_hidden_size"
    flat: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of models: everything about it that no backend decides.

    Attributes:
        model_type: `model_type` of config.json and of the canonical job; the name of its file, too.
        aliases: other names of the same family in published files, which are written as model_type.
        stem: start of the class names in `architectures`, such as Qwen3Moe.
        other_stems: others in published files, which are written as `stem`.
        keys: keys that map one-to-one to fields.
        parts: conversions that are not one-to-one.
        fixed: canonical fields that the family's code determines.
        pinned: keys without a canonical field, which must have their usual value.
        weights: its parameters; None: its checkpoints cannot be converted.
        own_code: whether its class is in the models' own repositories (`trust_remote_code`), not in transformers.
        outer: what its config.json has besides its language model; None: it is nothing else.
        chat_template: name of the chat template of its instruction-tuned models (`data.template`); "": not known here.
    """

    model_type: str
    stem: str
    keys: tuple[Key, ...]
    parts: tuple[Part, ...]
    fixed: Mapping[str, Value] = field(default_factory=dict)
    pinned: tuple[Pinned, ...] = ()
    aliases: tuple[str, ...] = ()
    other_stems: tuple[str, ...] = ()
    weights: Weights | None = None
    own_code: bool = False
    outer: Outer | None = None
    chat_template: str = ""

    @property
    def architecture(self) -> str:
        """Class name of the model with its output layer, as in `architectures`."""
        return self.stem + ("ForCausalLM" if self.outer is None else "ForConditionalGeneration")

    @property
    def has_experts(self) -> bool:
        """Whether every model of the family has routed experts."""
        return any(key.field == "num_experts" for key in self.keys)

    @property
    def truncates_yarn(self) -> bool:
        """Whether its YaRN rounds the bounds of its ramp to whole dimensions."""
        return all(part.truncate for part in self.parts)

    def decides(self, field: str) -> bool:
        """Return whether config.json or the family's code determines `field`, which not every family has."""
        keys = any(key.field == field for key in self.keys)
        return keys or field in self.fixed or any(field in part.variants for part in self.parts)
