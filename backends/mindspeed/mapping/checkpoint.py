"""MindSpeed-LLM mapping rows for initial weights and checkpoints."""

from collections.abc import Iterable, Mapping

from backends.mindspeed.families import FAMILIES
from backends.mindspeed.mapping.model import converter_name, family_of_converter
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported, computed, switch


def weights() -> tuple[Row, ...]:
    """Return the rows of initial weights: converted Hugging Face weights, or a checkpoint."""
    return (
        computed(
            ("model.pretrained", "model.path", "model.hub_id", "checkpoint.load"),
            ("enable-hf2mg-convert", "load"),
            _write_start,
            _read_start,
            note="Converted into LOAD/megatron_cache_tpXppYepZ at start (convert_checkpoint.py @26.1.0).",
        ),
        computed(
            ("model.model_type",),
            ("model-type-hf",),
            lambda job: [("model-type-hf", converter_name(job))],
            _read_family,
            when=lambda job: converts(job) and converter_name(job) is not None,
        ),
        computed(
            ("checkpoint.format", "model.pretrained", "model.first_k_dense_replace", "model.compress_ratios"),
            ("ckpt-format",),
            _write_format,
            _read_format,
            note="Converted weights are of format torch; torch_dist, the default, is refused with them.",
        ),
        _load_weights_only("checkpoint.finetune", "finetune"),
        _load_weights_only("checkpoint.no_load_optim", "no-load-optim"),
        _load_weights_only("checkpoint.no_load_rng", "no-load-rng"),
        switch("checkpoint.save_safetensors", "enable-mg2hf-convert"),
    )


def converts(job: Job) -> bool:
    """Return whether the job starts from Hugging Face weights that are converted at start."""
    return job.model.starts_from_weights and job.checkpoint.load is None


def _write_start(job: Job) -> Iterable[tuple[str, Value]]:
    if not converts(job):
        if job.checkpoint.load is not None:
            yield "load", job.checkpoint.load
        return
    if job.model.path is None:
        why = "weights are converted from a local directory: download them and name it"
        raise Unsupported("model.pretrained", why, ("model.path=…", "model.pretrained=false"))
    family = FAMILIES.get(job.model.model_type or "")
    if converter_name(job) is None and (family is None or family.names):
        known = (family for family, row in FAMILIES.items() if row.converter is not None)
        why = (
            f"the converter knows {', '.join(known)}; convert the weights with launch convert hf-to-mcore --backend "
            "mindspeed, and name the result in checkpoint.load, with checkpoint.finetune=true"
        )
        raise Unsupported("model.model_type", why, ("model.pretrained=false",))
    yield "enable-hf2mg-convert", True
    yield "load", job.model.path


def _read_start(view: NativeView) -> Mapping[str, Value]:
    if not view.has("load"):
        return {}
    if not view.peek("enable-hf2mg-convert"):
        return {"checkpoint.load": view.take("load")}
    if family_of_converter(view) is None:
        return {}
    view.take("enable-hf2mg-convert")
    return {"model.pretrained": True, "model.path": view.take("load")}


def _read_family(view: NativeView) -> Mapping[str, Value]:
    family = family_of_converter(view)
    if family is None or not view.peek("enable-hf2mg-convert") or view.peek("load") is None:
        return {}
    view.take("model-type-hf")
    return {"model.model_type": family}


def _write_format(job: Job) -> Iterable[tuple[str, Value]]:
    wanted = job.checkpoint.format
    if wanted == "safetensors":
        works = ("checkpoint.format=torch", "checkpoint.save_safetensors=true")
        raise Unsupported("checkpoint.format", "safetensors are written beside its own format", works)
    if wanted not in (None, "torch", "torch_dist", "torch_dcp", "zarr"):
        raise Unsupported("checkpoint.format", "core 0.12 has no such format", ("checkpoint.format=torch",))
    if converts(job) and wanted == "torch_dist":
        why = "converted weights are of format torch (convert_checkpoint.py:116)"
        raise Unsupported("checkpoint.format", why, ("checkpoint.format=torch",))
    # torch_dist, the default, cannot save layers that differ: dense ones before MoE layers ("Invalid access pattern for
    # ShardedTensor"), or compressed attention of several ratios (an assertion about the shape of compressor.ape).
    mixed = (job.model.is_moe and job.model.first_k_dense_replace > 0) or len(set(job.model.compress_ratios)) > 1
    if wanted is not None or converts(job) or mixed:
        yield "ckpt-format", wanted or "torch"


def _read_format(view: NativeView) -> Mapping[str, Value]:
    if view.has("ckpt-format"):
        return {"checkpoint.format": view.take("ckpt-format")}
    ratios = view.peek("compress-ratios")
    mixed = view.peek("num-experts") and (view.peek("first-k-dense-replace") or 0) > 0
    mixed = mixed or (isinstance(ratios, list | tuple) and len(set(map(str, ratios))) > 1)
    # The native default differs from what is written for an unset field.
    return {"checkpoint.format": "torch_dist"} if mixed or view.peek("enable-hf2mg-convert") else {}


def _load_weights_only(path: str, flag: str) -> Row:
    """Return a row for a switch that converted weights require, as they hold no optimizer or RNG state."""
    field = path.rsplit(".", maxsplit=1)[-1]

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = getattr(job.checkpoint, field)
        if given or (given is None and converts(job)):
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.take(flag, False):
            return {path: True}
        return {path: False} if view.peek("enable-hf2mg-convert") else {}

    return computed((path, "model.pretrained"), (flag,), emit, read)
