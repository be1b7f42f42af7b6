"""Exact conversion between Hugging Face's config.json and the canonical `model` section."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.budgets import load_json, read_limited
from launcher.families.ignored import IGNORABLE
from launcher.families.outer import around, inside
from launcher.families.record import Family
from launcher.families.registry import FAMILIES
from launcher.families.rope import scaling_value
from launcher.families.source import NEEDED, ModelConfigError, Source
from launcher.job.determined import determined_fields
from launcher.job.model import Model
from launcher.job.schema import Value, fields
from launcher.nearest import nearest

# Suffixes of a family's class names that share its base model.
_SUFFIXES: Final = ("ForCausalLM", "Model", "ForSequenceClassification", "ForTokenClassification")


def read_config(path: Path) -> dict[str, Value]:
    """Read a file and return its fields as `model_from_config` does.

    Args:
        path: the file, or the folder that holds it.

    Raises:
        OSError, ValueError: the file cannot be read, or is not JSON.
        BeyondBudget, ModelConfigError: the file is too large, or describes no known model.
    """
    file = path if path.suffix == ".json" else path / "config.json"
    return model_from_config(load_json(read_limited(file, "config bytes").decode("utf-8"), str(file)), str(file))


def model_from_config(config: Mapping[str, Any], where: str = "config.json") -> dict[str, Value]:
    """Return every canonical field of section `model` that a config.json determines.

    Args:
        config: the parsed file, of transformers 4 or 5.
        where: its path, for messages.

    Returns:
        All of `determined_fields()`, None where not applicable; `rope_scaling` is a nested mapping.

    Raises:
        ModelConfigError: unknown family, missing keys, or values without a canonical field; all of them at once.
    """
    if not isinstance(config, Mapping):
        holds = "null" if config is None else f"a {type(config).__name__}"
        raise ModelConfigError(where, (f"holds {holds}, and an object ({{...}}) of the model's settings is expected",))
    family, config, problems = language_part(config, where)
    source = Source(config, where, family.model_type)
    source.problems += problems
    source.used.update(("architectures", "model_type"))
    found = {name: fields()[f"model.{name}"].default for name in determined_fields()}
    found["model_type"] = family.model_type
    found.update(family.fixed)
    for key in family.keys:
        found[key.field] = source.field(key.field, key.spellings, key.default, null=key.null)
    for pinned in family.pinned:
        value = source.get(pinned.name, pinned.value)
        if value != pinned.value:
            source.problem(f"{pinned.name}={value!r} cannot be expressed, only {pinned.value!r}: {pinned.why}")
    for part in family.parts:
        asked = set(source.used)
        try:
            found.update(part.read(source))
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, ZeroDivisionError, OverflowError) as error:
            source.misread(asked, error)
    source.finish(IGNORABLE)
    return _nested(found)


def _nested(found: Mapping[str, Value]) -> dict[str, Value]:
    """Convert keys `a.b` to nested mappings."""
    tree: dict[str, Any] = {}
    for path, value in found.items():
        *sections, name = path.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[name] = value
    return tree


def config_from_model(
    model: Model, *, torch_dtype: str | None = "bfloat16", where: str = "section model"
) -> dict[str, Any]:
    """Return the config.json of a canonical model, in the spelling of transformers 4 (which 5 reads, too).

    Args:
        model: its `model_type` names the family.
        torch_dtype: dtype to write; None: omitted.
        where: name of the model in messages.

    Raises:
        ModelConfigError: no model_type, a missing size, or a value that the family's config.json cannot express.
    """
    if model.model_type is None or model.model_type not in FAMILIES:
        raise ModelConfigError(where, (f"model_type is needed to write a config.json: {', '.join(FAMILIES)}",))
    family = FAMILIES[model.model_type]
    config: dict[str, Any] = {"architectures": [family.architecture], "model_type": family.model_type}
    config["hidden_act"] = "silu"
    for key in family.keys:
        value = getattr(model, key.field)
        if value is not None or key.null:
            config[key.spellings[0]] = value
    for part in family.parts:
        config.update(part.write(model))
    if torch_dtype is not None:
        config["torch_dtype"] = torch_dtype
    config["use_cache"] = True
    if family.outer is not None:
        config = around(config, family.outer, family)
    problems = tuple(_lost(model, model_from_config(config, where)))
    if problems:
        raise ModelConfigError(where, problems)
    return config


def _lost(model: Model, back: Mapping[str, Value]) -> Iterator[str]:
    """Yield the fields that differ when the written config.json is read back."""
    for name in determined_fields():
        wanted, value = _effective(model, name), _at(back, name)
        if wanted != value:
            yield (
                f"{name}={wanted!r} cannot be expressed in a config.json of model_type {model.model_type}"
                f" (it would be read as {value!r})"
            )


def _at(tree: Mapping[str, Any], path: str) -> Value:
    section, _, name = path.rpartition(".")
    return tree[section][name] if section else tree[name]


def _effective(model: Model, name: str) -> Value:
    """Return the value of a field, None replaced by its meaning, in the form in which config.json is read."""
    if name.startswith("rope_scaling."):
        return scaling_value(model.rope_scaling, name.removeprefix("rope_scaling."))
    family = FAMILIES[str(model.model_type)]
    for part in family.parts:
        meaning = part.meaning(model)
        if name in meaning:
            return meaning[name]
    value: Value = getattr(model, name)
    if value is None:
        defaults = {key.field: key.default for key in family.keys if key.default is not NEEDED and not key.null}
        return defaults.get(name)
    return value


def language_part(config: Mapping[str, Any], where: str) -> tuple[Family, Mapping[str, Any], list[str]]:
    """Return the family of a config.json, the keys of its language model, and problems with those around them.

    Raises:
        ModelConfigError: unknown family, or a multimodal model that is not known.
    """
    nested = config.get("text_config")
    known = _multimodal(config)
    if known is not None:
        assert known.outer is not None
        return (_family_of(config, where), *inside(config, known.outer))
    if not isinstance(nested, Mapping) or "hidden_size" in config:
        return _family_of(config, where), config, []
    senses = [name for name in ("vision_config", "audio_config") if config.get(name)]
    if senses:
        raise ModelConfigError(where, (f"{', '.join(senses)}: only language models are known ({_known()})",))
    return _family_of(nested, where), nested, []


def _multimodal(config: Mapping[str, Any]) -> Family | None:
    """Return the known multimodal family of a file, or None."""
    own = _named_by_both(config)
    if own is not None:
        return own if own.outer is not None else None
    named = config.get("architectures")
    names = [config.get("model_type"), *(named if isinstance(named, (list, tuple)) else ())]
    found = (each for each in FAMILIES.values() if each.outer is not None)
    return next((each for each in found if {each.model_type, each.architecture} & {str(name) for name in names}), None)


def _named_by_both(config: Mapping[str, Any]) -> Family | None:
    """Return the family of which a file has model_type and class, without reading the other families; None: unknown.

    No two families have a name in common.
    """
    model_type, named = config.get("model_type"), config.get("architectures")
    if not isinstance(model_type, str) or not isinstance(named, (list, tuple)) or len(named) != 1:
        return None
    family = FAMILIES.get(model_type)
    return family if family is not None and named[0] in classes(family) else None


def classes(family: Family) -> tuple[str, ...]:
    """Return the names of a family's classes."""
    stems = (family.stem, *family.other_stems)
    return (*(stem + suffix for stem in stems for suffix in _SUFFIXES), family.architecture)


def _family_of(config: Mapping[str, Any], where: str) -> Family:
    own = _named_by_both(config)
    if own is not None:
        return own
    named = config.get("architectures")
    architecture = named[0] if isinstance(named, (list, tuple)) and named else None
    model_type = config.get("model_type")
    if architecture is None and model_type is None:
        raise ModelConfigError(where, (f"neither architectures nor model_type is given; known: {_known()}",))
    by_class = {name: family for family in FAMILIES.values() for name in classes(family)}
    by_type = {name: family for family in FAMILIES.values() for name in (family.model_type, *family.aliases)}
    for key, value in (("architectures", architecture), ("model_type", model_type)):
        if value is not None and not isinstance(value, str):
            raise ModelConfigError(where, (f"{key} holds {value!r}, and a name is expected; known: {_known()}",))
    if architecture is not None and architecture not in by_class:
        raise ModelConfigError(where, (_unknown("architectures", architecture, list(by_class)),))
    if model_type is not None and model_type not in by_type:
        raise ModelConfigError(where, (_unknown("model_type", model_type, list(by_type)),))
    family = by_class[architecture] if architecture is not None else by_type[str(model_type)]
    if model_type is not None and by_type[model_type] is not family:
        raise ModelConfigError(
            where, (f"architectures={architecture} and model_type={model_type} contradict each other",)
        )
    return family


def _known() -> str:
    return ", ".join(family.architecture for family in FAMILIES.values())


def _unknown(key: str, value: Any, names: list[str]) -> str:
    near = nearest(str(value), names, limit=1, cutoff=0.8)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{key}={value!r} is not a known family{hint} Known: {_known()}"
