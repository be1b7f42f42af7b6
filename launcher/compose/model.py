"""Fills the `model` section: from the config.json of model.path, or from the preset of the model that is named.

A model's name, its sizes, its vocabulary and its tokenizer belong together: where the command line names another model
than the recipe, all of them change, and where the sizes of the other model are unknown, the job is refused.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from launcher.budgets import BeyondBudget
from launcher.compose.errors import ComposeError, Mistake
from launcher.compose.model_folders import CONFIG, offered_models
from launcher.compose.presets import (
    Preset,
    is_port,
    named_like,
    preset_named,
    preset_of_folder,
    with_model_of_checkpoint,
)
from launcher.compose.search_path import SearchPath
from launcher.compose.yaml_lines import key_lines, shown
from launcher.families.config_names import with_config_names
from launcher.families.fill import filled, model_of, model_value
from launcher.families.tokenizer_files import with_tokenizer_files
from launcher.job import Job, Origin
from launcher.job.derive import with_fields
from launcher.job.determined import determined_fields
from launcher.job.model import Model
from launcher.job.shipped import shipped
from launcher.records import dataclass

# With these a job describes an architecture; the rest has the defaults of its backend, or follows from the tokenizer.
_SIZES = {"num_hidden_layers", "hidden_size", "num_attention_heads"}
# Padding of embeddings and special tokens added later: a larger difference means another vocabulary.
_SAME_VOCABULARY = 1024
# Settings of the tokenizer that do not depend on the vocabulary.
_ANY_VOCABULARY = ("tokenizer.make_vocab_size_divisible_by", "tokenizer.trust_remote_code")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The files of a composition that describe its model.

    Attributes:
        preset: file of the group `model`; None: none is chosen.
        chosen: the command line chooses it, not the recipe.
        whole: recipes and job files, in merge order.
        places: where options of groups are found.
        named: the model that `model=` names by its name on a hub; `preset` is then its file.
        here: a typed model.path is a folder of this machine.
    """

    preset: Path | None
    chosen: bool
    whole: tuple[Path, ...]
    places: SearchPath
    named: Preset | None = None
    here: bool = True


def with_model(job: Job, files: ModelFiles) -> Job:
    """Return the job with the architecture of the model that it names, with the job's other settings on top.

    Raises:
        ComposeError: config.json cannot be used, or the name, the sizes and the tokenizer are of different models.
    """
    if files.chosen:
        job = _of_variant(_of_chosen_preset(job, files), files)
    changed, name = with_model_of_checkpoint(job) if is_port(job) else (job, "")
    preset = preset_named(name) if name else None
    if preset is not None:
        job = _of_preset(changed, preset)
    elif job.model.path is not None:
        job = _from_config(job, Path(job.model.path).expanduser(), files)
    elif job.model.hub_id is not None:
        job = _from_hub_id(job, job.model.hub_id, files)
    elif files.preset is not None:
        _check_family(job, _read(files.preset), shown(files.preset))
    job = _with_tokenizer_of_model(job, files)
    _check_tokenizer(job)
    return with_config_names(with_tokenizer_files(job))


def _of_chosen_preset(job: Job, files: ModelFiles) -> Job:
    """Remove a recipe's settings of its own model: the command line chooses another preset.

    A job file's whole section is removed before (`config_source`).
    """
    if files.preset is None:
        return job
    pristine, lines = _read(files.preset), key_lines(files.preset)
    names = ("path", "hub_id", *determined_fields())
    of_recipe = [path for path in _stated(job, files.preset) if path.removeprefix("model.") in names]
    of_recipe = [path for path in of_recipe if job.origin(path).kind == "recipe"]
    values = {path: model_value(pristine, path.removeprefix("model.")) for path in of_recipe}
    origins = {path: origin for path, origin in job.origins.items() if path not in of_recipe}
    for path in of_recipe:
        if (line := lines.get(path.removeprefix("model."))) is not None:
            origins[path] = Origin(kind="recipe", where=f"{shown(files.preset)}:{line}")
    return dataclasses.replace(with_fields(job, values), origins=origins)


def _of_variant(job: Job, files: ModelFiles) -> Job:
    """Set the fields in which the model that the command line names differs from its preset."""
    if files.named is None or files.preset is None or not files.named.differs:
        return job
    known, pristine = _model_of(files.named.fields), _read(files.preset)
    names = [name for name in determined_fields() if model_value(known, name) != model_value(pristine, name)]
    values = {f"model.{name}": model_value(known, name) for name in ("hub_id", *names) if not _is_typed(job, name)}
    where = f"{shown(files.preset)}, as {known.hub_id}"
    return dataclasses.replace(
        with_fields(job, values),
        origins={**job.origins, **dict.fromkeys(values, Origin(kind="recipe", where=where))},
    )


def _stated(job: Job, preset: Path | None) -> Iterator[str]:
    """Yield the fields of the model that the user, a recipe or a job file states, in contrast to the preset."""
    from_preset = shown(preset) if preset is not None else None
    for path, origin in job.origins.items():
        in_file = origin.kind == "recipe" and origin.where.rpartition(":")[0] != from_preset
        if path.startswith("model.") and (in_file or origin.kind == "override"):
            yield path


def _specified(job: Job, preset: Path | None) -> set[str]:
    return {path.removeprefix("model.") for path in _stated(job, preset)} & set(determined_fields())


def _from_config(job: Job, folder: Path, files: ModelFiles) -> Job:
    from launcher.families.config_json import read_config
    from launcher.families.source import ModelConfigError

    where = job.origin("model.path").where
    if files.here and folder.name == CONFIG and folder.is_file():  # programs want the folder
        folder = folder.parent
        job = with_fields(job, {"model.path": str(folder)})
    file = folder if folder.suffix == ".json" else folder / CONFIG
    on_other_machine = not files.here or job.origin("model.path").kind == "recipe"
    if not file.is_file() and on_other_machine and not folder.exists():
        # A job written for another machine (`launch import`): its own architecture fields and the overrides apply.
        # Where all of them are overrides they are the architecture, not changes to one.
        is_open = is_port(job) and files.preset is None and job.model.hidden_size is None
        preset = preset_of_folder(str(folder)) if is_open else None
        if preset is not None:
            there = f"conf/model/{preset.name}.yaml, by the name of {job.model.path}"
            return filled(job, _model_of(preset.fields), there, _specified(job, None))
        return _with_typed(job) if files.here or files.preset is not None else job
    if not file.is_file():
        what = f"model.path: {file} does not exist; a model's folder is expected (a name on a hub: model.hub_id)"
        works = offered_models(str(job.model.path)) if files.here else ()
        raise ComposeError([Mistake(what=what, where=where, works=works, field="model.path")])
    try:
        read = read_config(file)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ComposeError([Mistake(what=f"model.path: {file} is not JSON: {error}", where=where)]) from None
    except BeyondBudget as error:
        raise ComposeError([Mistake(what=f"model.path: {error}", where=where, works=(error.works,))]) from None
    except ModelConfigError as error:
        if _specified(job, files.preset) >= _SIZES:
            return _with_typed(job)  # the file is not needed: the job describes the whole model itself
        raise ComposeError([Mistake(what=f"model.path: {error}", where=where)]) from None
    known = _model_of(read)
    _check_family(job, known, shown(file))
    if "model.hub_id" in _stated(job, files.preset):
        _check_name(job, known, shown(file))
    else:
        job = with_fields(job, {"model.hub_id": None})  # the preset's: config.json may be another model's
    return filled(job, known, shown(file), _specified(job, files.preset))


def _check_name(job: Job, known: Model, where: str) -> None:
    """Refuse a hub id beside a config.json of other sizes."""
    like = named_like(job.model.hub_id or "")
    names = ("model_type", "num_hidden_layers", "hidden_size", "vocab_size")
    differ = [name for name in names if like is not None and like.fields[name] != getattr(known, name)]
    if like is not None and differ:
        what = (
            f"model.hub_id={job.model.hub_id} has {differ[0]} {like.fields[differ[0]]}, and {where}"
            f" {getattr(known, differ[0])}: two models"
        )
        works = ("model.hub_id=null",)
        raise ComposeError([Mistake(what=what, where=job.origin("model.hub_id").where, works=works)])


def _from_hub_id(job: Job, hub_id: str, files: ModelFiles) -> Job:
    """Check that the sizes are those of the named model, or use the model's sizes if its name is set after them."""
    origin = job.origin("model.hub_id")
    typed = origin.kind == "override"
    if files.preset is None:
        like = named_like(hub_id) if typed and job.model.hidden_size is not None else None
        if like is None or like.fields["hidden_size"] == job.model.hidden_size:
            return _with_typed(job)
        return _of_preset(job, like)
    pristine = _read(files.preset)
    if pristine.hub_id == hub_id:
        _check_family(job, pristine, shown(files.preset))
        changed = (name for name in determined_fields() if model_value(job.model, name) != model_value(pristine, name))
        return with_fields(job, {"model.overridden": tuple(changed)})
    like = named_like(hub_id)
    together = files.chosen == typed  # both on the command line, or both in the recipe
    if like is not None and like.name != files.preset.stem and not together:
        return _of_preset(job, like)
    named = f"model={files.preset.stem}"
    if like is not None and like.name != files.preset.stem:
        what = f"model.hub_id={hub_id} and {named} name two models"
        works: tuple[str, ...] = (f"model={like.name}",)
    elif like is None and not together:
        of = pristine.hub_id or files.preset.stem
        what = f"the sizes of model.hub_id={hub_id} are not known, only those of {of}: add {named} if they are the same"
        works = (named, "model.path=DIR")
    else:
        _check_family(job, pristine, shown(files.preset))
        return _with_typed(job)
    raise ComposeError([Mistake(what=what, where=origin.where, works=works, field="model.hub_id")])


def _is_typed(job: Job, name: str) -> bool:
    return job.origin(f"model.{name}").kind == "override"


def _of_preset(job: Job, preset: Preset) -> Job:
    """Return the job with the architecture of a preset, overridden by the command line."""
    known, where = _model_of(preset.fields), f"conf/model/{preset.name}.yaml"
    _check_family(job, known, where)
    return filled(job, known, where, [name for name in determined_fields() if _is_typed(job, name)])


def _with_typed(job: Job) -> Job:
    """Record which architecture fields the command line sets, if there are no model values to compare with."""
    typed = tuple(name for name in determined_fields() if _is_typed(job, name))
    return with_fields(job, {"model.overridden": typed}) if typed else job


def _check_family(job: Job, known: Model, where: str) -> None:
    """Refuse another model_type on the command line: parameters and their names would be of two families."""
    wanted, there = job.model.model_type, known.model_type
    if _is_typed(job, "model_type") and None not in (wanted, there) and wanted != there:
        what = f"model.model_type={wanted} contradicts {there}, of {where}"
        works = (f"model.model_type={there}",)
        raise ComposeError([Mistake(what=what, where=job.origin("model.model_type").where, works=works)])


# -- vocabulary and tokenizer


def _with_tokenizer_of_model(job: Job, files: ModelFiles) -> Job:
    """Remove a recipe's tokenizer settings if the command line names a model of another vocabulary."""
    renamed = files.chosen or any(job.origin(f"model.{name}").kind == "override" for name in ("path", "hub_id"))
    stated = [path for path, origin in job.origins.items() if path.startswith("tokenizer.") and origin.kind == "recipe"]
    stated = [path for path in stated if path not in _ANY_VOCABULARY]
    if not renamed or not stated:
        return job
    own = next((size for file in reversed(files.whole) if (size := _vocabulary_of_job(file, files.places))), None)
    if own in (None, job.model.vocab_size) or "vocab_size" in _specified(job, files.preset):
        return job
    default = type(job.tokenizer)()
    values = {path: getattr(default, path.removeprefix("tokenizer.")) for path in stated}
    origins = {path: origin for path, origin in job.origins.items() if path not in stated}
    return dataclasses.replace(with_fields(job, values), origins=origins)


def _vocabulary_of_job(file: Path, places: SearchPath) -> int | None:
    """Return the vocabulary of the model that a recipe or a job file itself names, if it does."""
    tree = _loaded(file)
    model, defaults = tree.get("model"), tree.get("defaults")
    size = model.get("vocab_size") if isinstance(model, Mapping) else None
    for entry in defaults if isinstance(defaults, list) else ():
        name = entry.get("override /model") if isinstance(entry, Mapping) else None
        preset = places.find("model", name) if isinstance(name, str) else None
        size = size or (_read(preset).vocab_size if preset is not None else None)
    return size if isinstance(size, int) else None


def _check_tokenizer(job: Job) -> None:
    """Refuse a tokenizer of another model whose vocabulary the weights or the embedding do not have."""
    path, size = job.tokenizer.path, job.model.vocab_size
    if path is None or size is None or path in (job.model.path, job.model.hub_id):
        return
    theirs, source = _vocabulary_at(path)
    if theirs is None:
        return
    rows = max(size, job.tokenizer.padded_vocab_size or 0)
    weights = bool(job.model.path or job.model.hub_id) and job.model.pretrained is not False
    if theirs > rows + _SAME_VOCABULARY or (weights and theirs < size - _SAME_VOCABULARY):
        what = f"tokenizer.path={path} has a vocabulary of {theirs} ({source}), the model one of {size}"
        works = ("tokenizer.path=null", *(() if weights else (f"model.vocab_size={theirs}",)))
        raise ComposeError([Mistake(what=what, where=job.origin("tokenizer.path").where, works=works)])


def _vocabulary_at(path: str) -> tuple[int | None, str]:
    """Return the vocabulary size of the model in a tokenizer's folder, and the file that has it."""
    file = Path(path).expanduser() / "config.json"
    if file.is_file():
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None, ""
        size = config.get("vocab_size") if isinstance(config, Mapping) else None
        return (size if isinstance(size, int) else None), shown(file)
    preset = preset_named(path)
    return (None, "") if preset is None else (preset.fields.get("vocab_size"), f"conf/model/{preset.name}.yaml")


# -- files


def _read(preset: Path) -> Model:
    return _model_of(_loaded(preset))


def _loaded(file: Path) -> dict[str, Any]:
    return _shipped(file) if file.is_relative_to(shipped("conf")) else _parsed(file)


@cache
def _shipped(file: Path) -> dict[str, Any]:
    return _parsed(file)


def _parsed(file: Path) -> dict[str, Any]:
    from omegaconf import OmegaConf

    loaded = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    return {str(key): value for key, value in loaded.items()} if isinstance(loaded, dict) else {}


def _model_of(values: Mapping[str, Any]) -> Model:
    try:
        return model_of(values)
    except ValueError as error:
        raise ComposeError([Mistake(what=line) for line in str(error).splitlines()]) from None
