"""Rows for position embeddings: rotary embeddings with Llama 3, linear and YaRN scaling."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.families import THREE_POSITIONS
from backends.megatron_lm.mapping.factories import BEFORE_0_19, WITH_NEWEST, valued
from backends.megatron_lm.mapping.model import is_mla
from launcher.families.registry import FAMILIES
from launcher.job import Job, Value, field_paths
from launcher.mapping.rows import NativeView, Row, UnreadArgs, Unsupported, computed, switch


def has_rope(job: Job) -> bool:
    """Return whether the job's model has rotary position embeddings."""
    return job.model.position_embedding == "rope"


def rotary_flag() -> Row:
    """Return the row that reads the old switch for rotary positions as the position-embedding type that it sets."""

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.take("use-rotary-position-embeddings", False):
            view.values["position-embedding-type"] = "rope"
        return {}

    return Row(fields=(), flags=(), emit=lambda job: (), read=read)


NO_POSITIONS = UnreadArgs(
    flags=("no-position-embedding",),
    why="Models with rotary positions have no others.",
    source="Megatron-LM core_v0.12.1 arguments.py:822; Megatron-LM core_v0.16.1 arguments.py:999",
    where={"position-embedding-type": ("rope",)},
)


_KIND, _KIND_FLAG = "model.position_embedding", "position-embedding-type"


def kind_of_positions() -> Row:
    """Return the row of the kind of positions; three for each token are rejected."""
    row = valued(_KIND, _KIND_FLAG, "learned_absolute")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if THREE_POSITIONS.when(job.model):
            path = THREE_POSITIONS.fields[0]
            # Of text the three are the same number, and the angles those of rope.
            raise Unsupported(path, THREE_POSITIONS.describe(job.model), (f"{path}=rope",))
        return row.emit(job)

    return replace(row, emit=emit)


def _kind_with_yarn() -> Row:
    """Return the row of the kind of positions where rotary positions scaled by YaRN are a kind of their own."""
    row = kind_of_positions()

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        return ((_KIND_FLAG, "yarn"),) if _is_plain_yarn(job) else row.emit(job)

    def read(view: NativeView) -> Mapping[str, Value]:
        if view.peek(_KIND_FLAG) != "yarn" or view.peek("multi-latent-attention"):
            return row.read(view) if row.read is not None else {}
        view.take(_KIND_FLAG)
        return {_KIND: "rope"}

    fields = (_KIND, "model.rope_scaling.type")
    return replace(row, fields=fields, emit=emit, read=read, codec=None, since="0.19")


def _is_plain_yarn(job: Job) -> bool:
    """Return whether ordinary attention has positions scaled by YaRN."""
    return has_rope(job) and job.model.rope_scaling.type == "yarn" and not job.model.is_mla


def positions() -> tuple[Row, ...]:
    """Return the rows of position embeddings, with Llama 3, linear and YaRN scaling."""
    return (
        replace(kind_of_positions(), until=BEFORE_0_19),
        _kind_with_yarn(),
        computed(
            ("model.rope_theta",),
            ("rotary-base",),
            _write_theta,
            lambda view: {"model.rope_theta": view.take("rotary-base", 10000)},
            when=has_rope,
        ),
        valued("model.partial_rotary_factor", "rotary-percent", 1.0, quiet=True, when=has_rope),
        *rope_scaling(),
        switch("model.rotary_interleaved", "rotary-interleaved"),
    )


def _write_theta(job: Job) -> Iterable[tuple[str, Value]]:
    theta = job.model.rope_theta
    if theta != int(theta):
        raise Unsupported(
            "model.rope_theta", "--rotary-base takes whole numbers", (f"model.rope_theta={round(theta)}",)
        )
    yield "rotary-base", int(theta)


def rope_scaling() -> tuple[Row, ...]:
    """Return the rows of RoPE scaling."""
    fields = tuple(path for path in field_paths() if path.startswith("model.rope_scaling."))
    flags = ("use-rope-scaling", "rope-scaling-factor", "rotary-seq-len-interpolation-factor", "rotary-scaling-factor")
    return (
        computed(
            ("model.rope_scaling.type", "model.kv_lora_rank"),
            ("rope-type",),
            _write_rope_type,
            _read_rope_type,
            when=lambda job: has_rope(job) and job.model.is_mla,
            since="0.14",
            note="MLATransformerConfig.rope_type is yarn by default.",
        ),
        computed(
            fields,
            (*flags, "mscale", "mscale-all-dim"),
            _write_scaling,
            _read_scaling,
            when=has_rope,
            until=BEFORE_0_19,
        ),
        computed(
            (*fields, "model.model_type", "model.max_position_embeddings"),
            (*flags, "mscale", "mscale-all-dim", _LENGTH, _FAST, _SLOW, _UNROUNDED),
            lambda job: _write_plain_yarn(job) if _is_plain_yarn(job) else _write_scaling(job),
            lambda view: _read_plain_yarn(view) if _has_plain_yarn(view) else _read_scaling(view),
            when=has_rope,
            since="0.19",
            note="YaRN of ordinary attention: argument_utils.py:384 @core_v0.19.0.",
        ),
        refused_mscale(),
    )


def _write_rope_type(job: Job) -> Iterable[tuple[str, Value]]:
    yield "rope-type", "yarn" if job.model.rope_scaling.type == "yarn" else "rope"


def _read_rope_type(view: NativeView) -> Mapping[str, Value]:
    if not view.peek("multi-latent-attention"):
        return {}
    if view.take("rope-type", "yarn") == "yarn" and view.peek("rotary-scaling-factor", 1.0) != 1.0:
        return {"model.rope_scaling.type": "yarn"}
    return {}


# Constants of RotaryEmbedding._apply_scaling, which no argument sets.
# Source: megatron/core/models/common/embeddings/rotary_pos_embedding.py:94-98 @core_v0.16.1
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


# Fields of MLATransformerConfig without an argument. Source: transformer_config.py:2046 @core_v0.16.1
_YARN = {"beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}


def not_stretched(job: Job) -> bool:
    """Return whether dynamic scaling leaves all positions of the job as they are: it begins after the longest length.

    Source: transformers 5.24 modeling_rope_utils.py _compute_dynamic_ntk_parameters.
    """
    scaling = job.model.rope_scaling
    longest = scaling.original_max_position_embeddings or job.model.max_position_embeddings
    if scaling.type != "dynamic" or longest is None:
        return False
    return job.batch.seq_length is None or job.batch.seq_length <= longest


def _write_scaling(job: Job) -> Iterable[tuple[str, Value]]:
    scaling = job.model.rope_scaling
    if scaling.type is None or not_stretched(job):
        return
    if scaling.type == "llama3":
        _only_fixed(job, _LLAMA3, "Llama 3 scaling")
        yield "use-rope-scaling", True
        yield "rope-scaling-factor", 8.0 if scaling.factor is None else scaling.factor
    elif scaling.type == "linear" and not job.model.is_mla and scaling.factor is not None:
        if scaling.factor != int(scaling.factor):
            raise Unsupported("model.rope_scaling.factor", "linear scaling takes whole numbers")
        yield "rotary-seq-len-interpolation-factor", int(scaling.factor)
    elif scaling.type == "yarn" and job.model.is_mla:
        _only_fixed(job, _YARN, "YaRN")
        yield "rotary-scaling-factor", 1.0 if scaling.factor is None else scaling.factor
        # Absent keys mean 1 and 0: transformers modeling_rope_utils._compute_yarn_parameters, DeepseekV3Attention.
        yield "mscale", 1.0 if scaling.mscale is None else scaling.mscale
        yield "mscale-all-dim", 0.0 if scaling.mscale_all_dim is None else scaling.mscale_all_dim
    else:
        why = f"{scaling.type} scaling of {'MLA' if job.model.is_mla else 'ordinary attention'} has no argument"
        later = (WITH_NEWEST,) if _is_plain_yarn(job) else ()
        if later:
            why += " before core 0.19"
        raise Unsupported("model.rope_scaling.type", why, (*later, "model.rope_scaling.type=null"))


_LENGTH, _FAST, _SLOW = "yarn-original-max-position-embeddings", "yarn-beta-fast", "yarn-beta-slow"
_UNROUNDED = "no-yarn-correction-range-round-to-int"


def _write_plain_yarn(job: Job) -> Iterable[tuple[str, Value]]:
    scaling, path = job.model.rope_scaling, "model.rope_scaling.original_max_position_embeddings"
    length = scaling.original_max_position_embeddings or job.model.max_position_embeddings
    if length is None:
        raise Unsupported(path, "YaRN needs the length before stretching", (f"{path}=4096",))
    yield "rotary-scaling-factor", 1.0 if scaling.factor is None else scaling.factor
    yield _LENGTH, length
    if scaling.beta_fast is not None:
        yield _FAST, scaling.beta_fast
    if scaling.beta_slow is not None:
        yield _SLOW, scaling.beta_slow
    # One alone is not read: transformers modeling_rope_utils._compute_yarn_parameters.
    if scaling.mscale and scaling.mscale_all_dim:
        yield "mscale", scaling.mscale
        yield "mscale-all-dim", scaling.mscale_all_dim
    family = FAMILIES.get(job.model.model_type or "")
    if family is not None and not family.truncates_yarn:
        yield _UNROUNDED, True


def _has_plain_yarn(view: NativeView) -> bool:
    return view.peek(_KIND_FLAG) == "yarn" and not view.peek("multi-latent-attention")


def _read_plain_yarn(view: NativeView) -> Mapping[str, Value]:
    prefix = "model.rope_scaling."
    found = {
        prefix + "type": "yarn",
        prefix + "factor": view.take("rotary-scaling-factor", 1.0),
        prefix + "original_max_position_embeddings": view.take(_LENGTH, 4096),
    }
    if view.has(_FAST):
        found[prefix + "beta_fast"] = view.take(_FAST)
    if view.has(_SLOW):
        found[prefix + "beta_slow"] = view.take(_SLOW)
    if view.peek("mscale", 1.0) and view.peek("mscale-all-dim", 0.0):
        found[prefix + "mscale"] = view.take("mscale", 1.0)
        found[prefix + "mscale_all_dim"] = view.take("mscale-all-dim")
    return found


def _only_fixed(job: Job, constants: Mapping[str, float], name: str) -> None:
    for key, value in constants.items():
        wanted = getattr(job.model.rope_scaling, key)
        if wanted is not None and wanted != value:
            path = f"model.rope_scaling.{key}"
            raise Unsupported(
                path, f"{name} is built with {value:g}, which no argument changes", (f"{path}={value:g}",)
            )


def _read_scaling(view: NativeView) -> Mapping[str, Value]:
    prefix = "model.rope_scaling."
    if view.take("use-rope-scaling", False):
        return {prefix + "type": "llama3", prefix + "factor": view.take("rope-scaling-factor", 8.0)}
    if view.has("rotary-seq-len-interpolation-factor"):
        factor = view.take("rotary-seq-len-interpolation-factor")
        return {prefix + "type": "linear", prefix + "factor": factor}
    if view.peek("multi-latent-attention") and view.peek("rotary-scaling-factor", 1.0) != 1.0:
        return {
            prefix + "type": "yarn",
            prefix + "factor": view.take("rotary-scaling-factor"),
            prefix + "mscale": view.take("mscale", 1.0),
            prefix + "mscale_all_dim": view.take("mscale-all-dim", 0.0),
        }
    return {}


def refused_mscale() -> Row:
    """Return the row that rejects mscale_all_dim unequal to mscale before 0.13, which reads mscale instead."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        scaling = job.model.rope_scaling
        if scaling.type == "yarn" and (scaling.mscale or 1.0) != (scaling.mscale_all_dim or 0.0):
            raise Unsupported(
                "model.rope_scaling.mscale_all_dim",
                "the softmax scale is computed from mscale in this version, so both must be equal",
                (f"model.rope_scaling.mscale_all_dim={scaling.mscale or 1.0}",),
            )
        return ()

    return Row(
        fields=("model.rope_scaling.mscale_all_dim",),
        flags=(),
        emit=emit,
        until="0.12.9",
        when=is_mla,
        note="megatron/core/transformer/multi_latent_attention.py:83 @core_v0.12.1; mscale_all_dim since 0.13.",
    )
