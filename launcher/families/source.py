"""Typed access to a config.json that records which keys were used and collects every problem."""

from collections.abc import Mapping, Set
from typing import Any, Final

from launcher.budgets import BUDGETS, FIELDS, BeyondBudget, spend
from launcher.job.build import WrongValue, convert
from launcher.job.schema import Value, field_at

_LONGEST = 80  # characters of a value that is shown
NEEDED: Final = object()  # default of a key that config.json must have


class ModelConfigError(ValueError):
    """A config.json (or a `model` section) that cannot be read exactly.

    Attributes:
        where: file or section that was read.
        problems: one sentence each, with the key it is about.
    """

    def __init__(self, where: str, problems: tuple[str, ...]) -> None:
        self.where = where
        self.problems = problems
        super().__init__("\n".join(f"{where}: {problem}" for problem in problems))


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class Source:
    """One config.json, read key by key."""

    def __init__(self, config: Mapping[str, Any], where: str, model_type: str) -> None:
        self.config = config
        self.where = where
        self.model_type = model_type
        self.used: set[str] = set()
        self.problems: list[str] = []

    def layers(self) -> int:
        """Return num_hidden_layers; 0 where it is missing or no usable number, which its own key reports."""
        raw = self.config.get("num_hidden_layers")
        return raw if isinstance(raw, int) and 0 < raw <= BUDGETS["layers"].limit else 0

    def has(self, name: str) -> bool:
        """Return whether the key is there with a value other than null."""
        return self.config.get(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return the raw value of a key (null counts as missing) and count the key as used."""
        self.used.add(name)
        value = self.config.get(name)
        return default if value is None else value

    def field(self, field: str, names: tuple[str, ...], default: Any = NEEDED, *, null: bool = False) -> Value:
        """Return the value of the first of `names` that is present, as a value of the canonical field `model.<field>`.

        Args:
            field: canonical field below `model`, for type and bounds.
            names: spellings of the key, usual one first.
            default: default of the family's configuration class; NEEDED: the key is required.
            null: null is a valid value (None), not a missing key.
        """
        self.used.update(names)
        present = [name for name in names if name in self.config and (null or self.config[name] is not None)]
        if not present:
            if default is NEEDED:
                also = f" (or {', '.join(names[1:])})" if names[1:] else ""
                self.problem(f"the key {names[0]}{also} is needed for model_type {self.model_type} and is missing")
                return None
            return default
        values = [self.config[name] for name in present]
        if any(value != values[0] for value in values):
            shown = ", ".join(f"{name}={value!r}" for name, value in zip(present, values, strict=True))
            self.problem(f"{shown} contradict each other")
        if values[0] is None:
            return None
        return self.typed(present[0], values[0], field)

    def typed(self, name: str, raw: Any, field: str) -> Value:
        """Return `raw`, found at key `name`, as a value of the canonical field; a problem if it does not fit."""
        info = field_at(f"model.{field}")
        try:
            value = convert(raw, info.type, info.meta)
            if f"model.{field}" in FIELDS and isinstance(value, int):
                spend(FIELDS[f"model.{field}"], value, "")
            return value
        except WrongValue as error:
            self.problem(f"{name}: {error}")
        except BeyondBudget as error:
            self.problem(f"{name} has {error.message}")
        return None

    def misread(self, before: Set[str], error: Exception) -> None:
        """Record a problem: keys have values of an unusable type.

        Args:
            before: keys that were used before the wrong ones.
        """
        if isinstance(error, ModelConfigError):
            raise error
        names = [name for name in self.config if name in self.used - before]
        shown = ", ".join(f"{name}={_shortened(self.config[name])}" for name in names) or "a section"
        self.problem(f"{shown}: not the kind of value that is expected there ({error})")

    def problem(self, text: str) -> None:
        """Record a problem."""
        self.problems.append(text)

    def finish(self, ignorable: Mapping[str, str]) -> None:
        """Add a problem for each key that was not used and is not ignorable, then raise all problems.

        Raises:
            ModelConfigError: there were problems.
        """
        for name, value in self.config.items():
            if name in self.used or name in ignorable or name.startswith("_") or value is None:
                continue
            self.problem(
                f"the key {name}={_shortened(value)} is not known for model_type {self.model_type}: it may change"
                " the model and has no canonical field (if it does not, remove it from a copy of the file)"
            )
        if self.problems:
            raise ModelConfigError(self.where, tuple(self.problems))
