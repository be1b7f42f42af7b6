"""MindSpeed-LLM mapping rows for the positions, head sizes and router scores of DeepSeek-V4 (since 26.1).

Its layers read arguments of their own (core/models/deepseek4/deepseek4_model.py:268, tasks/models/transformer/
deepseek4/csa.py:103 @26.1.0): --qk-head-dim is the whole head, and only compressed keys are scaled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from backends.megatron_lm.mapping.attention_variants import VARIANT, variant_of
from backends.megatron_lm.mapping.model import latent_attention
from backends.mindspeed.mapping.attention_variants import native_variant
from launcher.job import Job, Value, field_paths
from launcher.mapping.rows import NativeView, Row, Unsupported, computed

_KIND = "dsv4_hybrid"
_PREFIX = "model.rope_scaling."
_NOPE, _ROTATED, _LENGTH = "model.qk_nope_head_dim", "model.qk_rope_head_dim", "batch.seq_length"
_TABLE = "rope-scaling-original-max-position-embeddings"
# Defaults: features_manager/transformer/multi_latent_attention/dsa_indexer_feature.py:44, common/rotary.py:22 @26.1.0.
_BASE, _ORIGINAL, _FACTOR, _FAST, _SLOW = 10000.0, 65536, 4.0, 32, 1


def is_compressed(job: Job) -> bool:
    """Return whether the job has DeepSeek-V4's attention."""
    return variant_of(job) == _KIND


def unless_compressed(row: Row) -> Row:
    """Return a row for jobs without DeepSeek-V4's attention, whose layers do not read its arguments."""

    def when(job: Job) -> bool:
        return not is_compressed(job) and (row.when is None or row.when(job))

    def read(view: NativeView) -> Mapping[str, Value]:
        return {} if row.read is None or native_variant(view) == _KIND else row.read(view)

    return replace(row, when=when, read=read, fields=(*row.fields, VARIANT), until=None)


def positions() -> Row:
    """Return the row of the scaling of compressed keys, whose table of positions must cover the sequence."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        scaling = job.model.rope_scaling
        if scaling.type not in (None, "yarn"):
            raise Unsupported(f"{_PREFIX}type", "compressed keys are scaled by YaRN", (f"{_PREFIX}type=null",))
        if job.model.rope_theta != _BASE:
            yield "rope-theta", job.model.rope_theta
        if job.batch.seq_length is not None:
            yield _TABLE, job.batch.seq_length
        if scaling.type is None:
            yield "original-seq-len", 0
            return
        yield "original-seq-len", scaling.original_max_position_embeddings or _ORIGINAL
        yield "rope-factor", _FACTOR if scaling.factor is None else scaling.factor
        yield "beta-fast", int(scaling.beta_fast or _FAST)
        yield "beta-slow", int(scaling.beta_slow or _SLOW)

    def read(view: NativeView) -> Mapping[str, Value]:
        if native_variant(view) != _KIND:
            return {}
        if view.peek(_TABLE) == view.peek("seq-length"):
            view.take(_TABLE)
        if view.peek("rope-theta") == view.peek("rotary-base", _BASE):
            view.take("rope-theta")
        original = view.take("original-seq-len", _ORIGINAL)
        if original == 0:
            return {}
        return {
            f"{_PREFIX}type": "yarn",
            f"{_PREFIX}original_max_position_embeddings": original,
            f"{_PREFIX}factor": view.take("rope-factor", _FACTOR),
            f"{_PREFIX}beta_fast": float(view.take("beta-fast", _FAST)),
            f"{_PREFIX}beta_slow": float(view.take("beta-slow", _SLOW)),
        }

    scaling = tuple(path for path in field_paths() if path.startswith(_PREFIX))
    flags = ("rope-theta", _TABLE, "original-seq-len", "rope-factor", "beta-fast", "beta-slow")
    note = "core/models/common/embeddings/rotary_pos_embedding.py:321 @26.1.0: of compressed keys only."
    fields = (*scaling, VARIANT, "model.rope_theta", _LENGTH)
    return computed(fields, flags, emit, read, when=is_compressed, note=note)


def head_size() -> tuple[Row, Row]:
    """Return the rows of the size of a head: of its part without positions, or (DeepSeek-V4) of the whole."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        if job.model.qk_nope_head_dim is not None:
            yield "qk-head-dim", job.model.qk_nope_head_dim + (job.model.qk_rope_head_dim or 0)

    def read(view: NativeView) -> Mapping[str, Value]:
        if native_variant(view) != _KIND:
            return {}
        return {_NOPE: view.take("qk-head-dim", 128) - view.peek("qk-pos-emb-head-dim", 64)}

    note = "DeepSeek-V4: the whole head, with its rotated end (deepseek4/csa.py:103 @26.1.0)."
    (plain,) = (row for row in latent_attention() if row.fields[0] == _NOPE)
    whole = computed((_NOPE, _ROTATED, VARIANT), ("qk-head-dim",), emit, read, when=is_compressed, note=note)
    return unless_compressed(plain), whole
