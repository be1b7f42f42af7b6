"""Rows for the model: source of weights and config.json, and fields that override config.json."""

import re
from collections.abc import Iterable, Mapping, Sequence

from backends.megatron.families import FAMILIES, ids, is_multimodal
from backends.megatron.mapping.factories import FOUR, THREE, mapping_of
from backends.megatron.versions import REGISTERED
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, output_dir
from launcher.job.model import Model
from launcher.job.shipped_models import presets_like
from launcher.mapping.family_row import later
from launcher.mapping.rows import NativeView, Row, Unsupported, fixed, same

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
# First version that loads weights from safetensors, through mcore-bridge.
BRIDGED = "3.10"
# First version with language_model_only (swift/megatron/arguments/megatron_args.py:738 @4.6.0).
WITHOUT_VISION = "4.3"
# swift infers model type and template from a folder name that is a model name on a hub (model_meta.py:165 @4.6.0).
_HUB_NAME = re.compile(r"(Qwen[\d.]*|Llama|Meta-Llama|DeepSeek|Mixtral)-[\w.\-]+")

# Options that the table writes for every MoE model.
_EXPERT_OPTIONS = ("moe_router_load_balancing_type", "moe_aux_loss_coeff")


def model_dir(job: Job) -> str:
    """Return the directory that the launcher creates for a model without pretrained weights."""
    return f"{output_dir(job)}/model"


def source(job: Job) -> str | None:
    """Return the model's directory (a relative one with ./, else swift would query a hub) or its hub id."""
    return job.model.hub_id if job.model.path is None else _as_path(job.model.path)


def config_json(job: Job) -> dict[str, Value]:
    """Return the config.json that the launcher writes for a model.

    Raises:
        Unsupported: the model's family cannot express its fields.
    """
    from launcher.families.config_json import config_from_model
    from launcher.families.registry import FAMILIES as RECORDS
    from launcher.families.source import ModelConfigError

    record = RECORDS.get(job.model.model_type or "")
    if record is not None and record.own_code:
        why = f"the class of {record.model_type} is in the models' own repositories, and a written directory has none"
        raise Unsupported("model.pretrained", why, ("model.pretrained=true",))
    try:
        return config_from_model(job.model, torch_dtype=DTYPES[job.precision.dtype])
    except ModelConfigError as error:
        raise _incomplete(job.model, error.problems) from None


_OFFERED = 3  # families with the network of a model without a name


def _incomplete(model: Model, problems: Sequence[str]) -> Unsupported:
    """Return what a config.json lacks, with the values of known models of the same sizes.

    MindSpeed-LLM's scripts name no family, and leave the size of the vocabulary to the tokenizer.
    """
    works = []
    for preset in presets_like(model):
        missing = [name for name in ("model_type", "vocab_size") if getattr(model, name) is None]
        works.append(tuple(f"model.{name}={preset[name]}" for name in missing))
    why = "; ".join(problems)
    if model.model_type is None:
        from launcher.families.like import families_like, why_none

        works += [(f"model.model_type={name}",) for name in families_like(model)[:_OFFERED]]
        why = why_none(model) or "a config.json names its family; those offered build the same network"
    if model.model_type is not None and model.vocab_size is None:
        why += ": it is in the model's own config.json, or the number of rows of its embedding"
        return Unsupported("model.vocab_size", why, tuple(dict.fromkeys(works)))
    return Unsupported("model.model_type", why, tuple(filter(None, dict.fromkeys(works))))


def from_pretrained(job: Job) -> bool:
    """Whether training starts from the weights of model.path or model.hub_id."""
    return source(job) is not None and job.model.pretrained is not False


def is_described(job: Job, version: str) -> bool:
    """Whether the launcher must write the model's directory itself.

    Without path and hub id there is no config.json. Random weights need a directory, too, since 3.10: swift always
    reads safetensors when there is no mcore checkpoint (trainers/base.py:479 @3.12.6, :206 @4.6.0).
    """
    if source(job) is None:
        resumes = job.checkpoint.load is not None and not in_range(version, FOUR, None)  # its args.json names the model
        return _has_architecture(job) and not resumes
    return job.model.pretrained is False and job.checkpoint.load is None and in_range(version, BRIDGED, None)


def _has_architecture(job: Job) -> bool:
    return job.model.hidden_size is not None


def is_random(job: Job) -> bool:
    """Whether a named or described model starts from random weights."""
    named = source(job) is not None or _has_architecture(job)
    return named and not from_pretrained(job) and job.checkpoint.load is None


def mcore_directory(job: Job) -> str | None:
    """Return the converted checkpoint of a hub model by the examples' convention (`Qwen3-8B` -> `Qwen3-8B-mcore`)."""
    named = source(job)
    return f"{named.rstrip('/').rsplit('/', 1)[-1]}-mcore" if named and from_pretrained(job) else None


def converted_folder(job: Job, version: str) -> str | None:
    """Return the default of `--load`; None since 3.10, which reads safetensors."""
    return None if in_range(version, BRIDGED, None) else mcore_directory(job)


def model_rows(version: str) -> tuple[Row, ...]:
    """Return the rows of the model and its initial weights."""
    return (
        _model_path(version),
        _model_hub_id(version),
        _model_type(version),
        _template(version),
        Row(
            fields=("checkpoint.load", "model.hub_id"),
            flags=("load",),
            emit=_load_emit,
            read=_load_read,
            until="3.9",
            note="up to 3.9 only mcore checkpoints are loaded: <model>-mcore is made by `swift export --to_mcore true`",
        ),
        same("checkpoint.load", "load", since=BRIDGED, until=THREE),
        same("checkpoint.load", "mcore_model", since=FOUR),
        fixed(
            "load_safetensors",
            True,
            when=lambda job: job.checkpoint.load is None and (source(job) is not None or is_described(job, version)),
            since=BRIDGED,
            until=THREE,
            note="needed in 3.10; 3.12.6 reads the weights of --model anyway",
        ),
        Row(
            fields=(),
            flags=("check_model",),
            emit=lambda job: (("check_model", False),),
            when=lambda job: is_described(job, version),
            since=BRIDGED,
            derived=True,
            note="no hub has this model; swift would ask for its newest revision, 20 s where there is no network",
        ),
        Row(
            fields=(),
            flags=("language_model_only",),
            emit=lambda job: (("language_model_only", True),),
            when=lambda job: is_described(job, version) and is_multimodal(job),
            since=WITHOUT_VISION,
            derived=True,
            note="there are no weights of a vision tower to train text with",
        ),
        Row(
            fields=("model.pretrained",),
            flags=("no_initialization",),
            emit=lambda job: (("no_initialization", False),),
            read=_random_read,
            when=is_random,
            until="3.9",
            derived=True,
            note="no weights are loaded: Megatron-LM must draw them",
        ),
    )


def _model_path(version: str) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if source(job) is None and job.model.pretrained:
            raise Unsupported("model.pretrained", "neither model.path nor model.hub_id names weights to start from")
        if is_described(job, version):
            config_json(job)
            if is_multimodal(job) and not in_range(version, WITHOUT_VISION, None):
                why = f"it builds the vision tower, too, and has no weights for it; {WITHOUT_VISION} leaves it out"
                raise Unsupported("model.pretrained", why, ("model.pretrained=true", "backend.version=4.6.0"))
            yield "model", _as_path(model_dir(job))
        elif job.model.path is not None:
            yield "model", source(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.has("model") and _is_path(str(view.peek("model"))):
            return {"model.path": str(view.take("model")).removeprefix("./")}
        return {}

    return Row(
        fields=("model.path", "model.pretrained"),
        flags=("model",),
        emit=emit,
        read=read,
        note="random weights and models without path or hub id: a directory that the plan prepares",
    )


def _model_hub_id(version: str) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.hub_id is not None and job.model.path is None and not is_described(job, version):
            yield "model", job.model.hub_id

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"model.hub_id": view.take("model")} if view.has("model") else {}

    return Row(
        fields=("model.hub_id",),
        flags=("model",),
        emit=emit,
        read=read,
        note="looked up on ModelScope; on Hugging Face with backend.args.use_hf=true",
    )


def _as_path(path: str) -> str:
    return path if _is_path(path) else f"./{path}"


def _is_path(named: str) -> bool:
    return named.startswith(("/", "./", "../", "~"))


def _model_type(version: str) -> Row:
    known = ids(version)
    back = {id_: name for name, id_ in known.items()}

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        family = job.model.model_type
        if family is None:
            return
        if family not in known:
            why = f"no Megatron model of this family (it has {', '.join(known)})"
            works = later(FAMILIES[family], version, REGISTERED.names) if family in FAMILIES else ()
            raise Unsupported("model.model_type", why, works)
        local = job.model.path is not None and in_range(version, FOUR, None)
        if is_described(job, version) or (local and not _is_local_folder(job)):
            yield "model_type", known[family]

    def read(view: NativeView) -> Mapping[str, Value]:
        names_folder = in_range(version, FOUR, None) and not _HUB_NAME.fullmatch(_folder(view.peek("model", "")))
        if names_folder and view.peek("model_type") in back and _is_path(str(view.peek("model"))):
            return {"model.model_type": back[view.take("model_type")]}
        if all(view.peek(flag) is not None for flag in _EXPERT_OPTIONS):
            family = back.get(view.peek("model_type")) or _expert_family(_folder(view.peek("model", view.peek("load"))))
            return {"model.model_type": family} if family else {}
        return {}

    return Row(fields=("model.model_type",), flags=("model_type",), emit=emit, read=read)


# Chat formats that only MindSpeed-LLM knows (--prompt-type of 2.1 to 26.1): in none of swift/template/constant.py of
# 3.5 to 4.6 (swift/llm/template/constant.py up to 3.12).
_NO_TEMPLATES = (
    *("alpaca", "baichuan2", "bailing_mini", "chatglm3", "chatglm3_system", "chatml_de", "cpm", "deepseek2"),
    *("deepseek2-lite", "deepseek3", "deepseek4", "empty", "glm4_moe", "intern2", "llama2", "magistral", "minicpm3"),
    *("mistral", "mixtral", "plm", "qwen_lf", "qwen_math_r1", "qwen_r1", "trl"),
)


def _template(version: str) -> Row:
    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.data.template in _NO_TEMPLATES and "external_plugins" not in job.backend.passthrough:
            why = "ms-swift has no template of this name; without one it takes the model's own"
            raise Unsupported("data.template", why, ("data.template=null",))
        needed = in_range(version, FOUR, None) and (
            is_described(job, version) or (job.model.path is not None and not _is_local_folder(job))
        )
        default = _template_of(job) if needed else None
        value = job.data.template or default
        if value is not None:
            yield "template", value

    def read(view: NativeView) -> Mapping[str, Value]:
        return {"data.template": view.take("template")} if view.has("template") else {}

    return Row(
        fields=("data.template", "model.model_type"),
        flags=("template",),
        emit=emit,
        read=read,
        note="a folder not named as on the hub does not determine the template (swift/template/register.py:43 @4.6.0)",
    )


def _template_of(job: Job) -> str | None:
    row = FAMILIES.get(job.model.model_type or "")
    return None if row is None else row.template_of(job.model)


def _folder(path: Value) -> str:
    return str(path).rstrip("/").rsplit("/", 1)[-1]


def _expert_family(folder: str) -> str | None:
    named = (row for row in FAMILIES.values() if row.hub_names and re.match(row.hub_names, folder))
    return next((row.model_type for row in named), None)


def _is_local_folder(job: Job) -> bool:
    return _HUB_NAME.fullmatch(_folder(job.model.path)) is not None


def _load_emit(job: Job) -> Iterable[tuple[str, Value]]:
    value = job.checkpoint.load or mcore_directory(job)
    if value is not None:
        yield "load", value


def _load_read(view: NativeView) -> Mapping[str, Value]:
    if not view.has("load"):
        return {}
    value = view.take("load")
    derived = view.peek("model") is not None and value == f"{_folder(view.peek('model'))}-mcore"
    return {} if derived else {"checkpoint.load": value}


def _random_read(view: NativeView) -> Mapping[str, Value]:
    if view.peek("no_initialization") is not False or view.peek("load") is not None or not view.peek("model"):
        return {}
    view.take("no_initialization")
    return {"model.pretrained": False}


def rope_scaling_row(version: str) -> Row:
    """Return the row of `--rope_scaling`, written only where it differs from the model's config.json."""
    names = {
        "type": "rope_type",
        "factor": "factor",
        "original_max_position_embeddings": "original_max_position_embeddings",
        "low_freq_factor": "low_freq_factor",
        "high_freq_factor": "high_freq_factor",
        "beta_fast": "beta_fast",
        "beta_slow": "beta_slow",
        "mscale": "mscale",
        "mscale_all_dim": "mscale_all_dim",
    }
    paths = tuple(f"model.rope_scaling.{name}" for name in names)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if not any(path.startswith("rope_scaling.") for path in overridden(job, version)):
            return
        scaling = job.model.rope_scaling
        if scaling.type is None:
            raise Unsupported("model.rope_scaling.type", "the scaling of config.json cannot be taken away")
        values = {native: getattr(scaling, name) for name, native in names.items()}
        yield "rope_scaling", {native: value for native, value in values.items() if value is not None}

    def read(view: NativeView) -> Mapping[str, Value]:
        given = mapping_of(view.peek("rope_scaling"))
        if given is None:
            return {}
        if "type" in given:
            given.setdefault("rope_type", given.pop("type"))
        if set(given) - set(names.values()):
            return {}
        view.take("rope_scaling")
        return {f"model.rope_scaling.{name}": given[native] for name, native in names.items() if native in given}

    return Row(fields=paths, flags=("rope_scaling",), emit=emit, read=read)


def overridden(job: Job, version: str) -> frozenset[str]:
    """Return the fields below `model` that differ from the config.json which swift reads itself."""
    if is_described(job, version):
        return frozenset()
    return frozenset(path.removeprefix("model.") for path in job.model.overridden)
