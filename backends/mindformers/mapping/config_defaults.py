"""Defaults for settings that a file omits: MindFormers' default sections and class defaults."""

from collections.abc import Mapping
from typing import Any

from backends.mindformers.class_defaults import LLAMA_WIDTH, legacy_defaults
from backends.mindformers.mapping.support import drop, is_file, key, legacy_file
from launcher.job import Value
from launcher.mapping.rows import NativeView, Row

# Defaults if the whole section is missing (tools/register/template.py:475-511 @2.1.0).
_SECTIONS: Mapping[str, Mapping[str, Any]] = {
    "lr_schedule": {
        "type": "CosineWithWarmUpLR",
        "learning_rate": 5e-5,
        "lr_end": 0.0,
        "warmup_ratio": 0.0,
        "total_steps": -1,
    },
    "optimizer": {"type": "AdamW", "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0},
    "runner_wrapper": {
        "type": "MFTrainOneStepCell",
        "use_clip_grad": True,
        "scale_sense.type": "DynamicLossScaleUpdateCell",
        "scale_sense.loss_scale_value": 65536,
        "scale_sense.scale_factor": 2,
        "scale_sense.scale_window": 1000,
    },
}
# Defaults of keys missing in a given section: signatures of core/optim/adamw.py:158 and wrapper/wrapper.py:235.
_CLASSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "optimizer": ("AdamW", {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0}),
    "runner_wrapper": ("MFTrainOneStepCell", {"use_clip_grad": False, "scale_sense": 1.0}),
}


def omitted_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return MindFormers' defaults for settings that a complete file omits."""
    found: dict[str, Any] = {}
    for section, settings in _SECTIONS.items():
        written = [name for name in values if name.startswith(f"{section}.")]
        kind, defaults = _CLASSES.get(section, ("", {}))
        chosen = settings if not written else defaults if values.get(f"{section}.type") == kind else {}
        for name, value in chosen.items():
            if not any(other.startswith(f"{section}.{name}") for other in written):
                found[f"{section}.{name}"] = value
    return found


def section_default_row() -> Row:
    """Return the row that writes nothing and, when reading, adds the defaults of settings that a file omits."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if is_file(view):
            for name, value in {**omitted_settings(view.values), **_class_defaults(view)}.items():
                view.values.setdefault(name, value)
        return {}

    return Row(fields=(), flags=(), emit=lambda job: (), read=read, derived=True)


def class_default_row() -> Row:
    """Return the last row, which consumes remaining arguments that equal the defaults of the model class."""

    def read(view: NativeView) -> Mapping[str, Value]:
        drop(view, _class_defaults(view))
        if view.peek(key("type")) == "LlamaConfig" and view.peek(key("intermediate_size")) is not None:
            view.taken.update(name for name in LLAMA_WIDTH if name in view.values)  # the width itself is a field
        return {}

    return Row(fields=(), flags=(), emit=lambda job: (), read=read, derived=True)


def _class_defaults(view: NativeView) -> dict[str, Any]:
    return legacy_defaults(view.values) if legacy_file(view) else {}
