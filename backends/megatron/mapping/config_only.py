"""Rows of architecture fields that only the model's config.json sets, and of expert and prediction layers."""

from collections.abc import Iterable, Mapping

from backends.megatron.mapping import attention_variants
from backends.megatron.mapping.architecture import MODEL_FIELDS, PLACES, dense_layers_and_interval, layer_pattern
from backends.megatron.mapping.extra_args import padded_vocabulary
from backends.megatron.mapping.factories import FOUR, THREE, only
from backends.megatron.mapping.model import overridden
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value
from launcher.mapping.rows import NativeView, Row, Unsupported


def config_rows(version: str) -> tuple[Row, ...]:
    """Return rows for fields that only config.json sets in this version, and for features that no swift model has."""
    known = ("silu", "quick_geglu") if in_range(version, "4.3", None) else ("silu",)
    refused: tuple[Row, ...] = (
        only("model.hidden_act", known, "its Megatron models are SwiGLU models", ("model.hidden_act=silu",)),
    )
    if in_range(version, "3.12", THREE):
        refused = (attention_variants.activation(),)
    if in_range(version, "4.3", None):
        return refused
    names = ["sliding_window"] if in_range(version, None, FOUR) else []
    if in_range(version, FOUR, None):
        named = [model_field.field for model_field in MODEL_FIELDS]
        names = [*named, "vocab_size", "v_head_dim", "sliding_window", *sorted(PLACES - {"num_hidden_layers"})]
    if in_range(version, FOUR, None):
        refused = (*refused, _no_padding(version))
    return (*refused, *(_unchanged(f"model.{name}", version) for name in names))


def _no_padding(version: str) -> Row:
    paths = ("tokenizer.padded_vocab_size", "tokenizer.make_vocab_size_divisible_by")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if padded_vocabulary(job, version) not in (None, job.model.vocab_size):
            path = paths[0] if job.tokenizer.padded_vocab_size is not None else paths[1]
            raise Unsupported(path, "this version pads to a multiple of tp only", (f"{path}=null",))
        return ()

    return Row(fields=paths, flags=(), emit=emit)


def _unchanged(path: str, version: str) -> Row:
    """Return the row of a field that swift reads from config.json only."""
    name = path.removeprefix("model.")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if name in overridden(job, version):
            raise Unsupported(
                path,
                "this version reads it from the model's config.json only",
                ("backend.version=4.6.0",),
            )
        if name == "sliding_window" and job.model.sliding_window is not None:
            raise Unsupported(path, "its Megatron models of this family attend to everything")
        if name == "moe_layer_freq" and job.model.moe_layer_freq > 1:
            raise Unsupported(path, "swift does not read it from config.json (decoder_sparse_step)")
        if name == "hidden_dropout" and job.model.hidden_dropout:
            raise Unsupported(path, "this version has no option for it", ("model.hidden_dropout=0",))
        return ()

    return Row(fields=(path,), flags=(), emit=emit)


def layers_row() -> Row:
    """Return the row of `--moe_layer_freq`, an option of 3.6 to 3.12."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        changed = PLACES & set(job.model.overridden)
        if not changed and job.model.moe_layer_freq == 1:
            return  # config.json sets it, even where all layers are dense
        pattern = layer_pattern(job)
        if pattern is not None:
            yield "moe_layer_freq", pattern

    def read(view: NativeView) -> Mapping[str, Value]:
        places = dense_layers_and_interval(view.peek("moe_layer_freq"), view.peek("num_layers"))
        if places is None or view.peek("num_experts") is None or view.peek("num_layers") is None:
            return {}
        view.take("moe_layer_freq")
        return {"model.first_k_dense_replace": places[0], "model.moe_layer_freq": places[1]}

    return Row(
        fields=("model.first_k_dense_replace", "model.moe_layer_freq", "model.mlp_only_layers"),
        flags=("moe_layer_freq",),
        emit=emit,
        read=read,
        since="3.6",
        until=THREE,
    )


def prediction_row() -> Row:
    """Return the row of multi-token prediction: swift adds its layers only when their number is written."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.num_nextn_predict_layers:
            yield "mtp_num_layers", job.model.num_nextn_predict_layers

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has("mtp_num_layers"):
            return {}
        return {"model.num_nextn_predict_layers": view.take("mtp_num_layers")}

    return Row(
        fields=("model.num_nextn_predict_layers",),
        flags=("mtp_num_layers",),
        emit=emit,
        read=read,
        since="3.10",
        note="num_nextn_predict_layers of config.json is not read (mcore_bridge/config/parser.py @1.6.5)",
    )
