"""Rows for linear and sparse attention, gated activations, heterogeneous layers and weight initialization."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from backends.megatron_lm.families import NORM_WITHOUT_ROPE
from backends.megatron_lm.mapping.factories import came, listed, when_set
from launcher.families.layer_pattern import full_layers, window_pattern
from launcher.job import Job, Value, value_at
from launcher.job.model import DSA_SPARSE_LOSS, INDEXER, INDEXER_OFFSET, LINEAR_HEADS, Model
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported, computed, switch, without
from launcher.syntax import is_count

VARIANT, INTERVAL = "model.experimental_attention_variant", "model.full_attention_interval"
_NEW = "0.16"


def variant_of(job: Job) -> str | None:
    """Return the attention variant; full_attention_interval implies linear attention in the layers between."""
    return job.model.experimental_attention_variant or (
        "gated_delta_net" if job.model.full_attention_interval else None
    )


def is_linear(job: Job) -> bool:
    """Return whether some layers use linear attention."""
    return variant_of(job) == "gated_delta_net"


def is_sparse(job: Job) -> bool:
    """Return whether attention is sparse: an indexer selects the keys."""
    return variant_of(job) in ("dsa", "dsv4_hybrid")


def sized(path: str, flag: str, fallback: Value, active: Callable[[Job], bool], **row: Any) -> Row:
    """Return the row of a size, written with its attention variant (as set, else `fallback`) and read where present."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = value_at(job, path)
        if given is not None or active(job):
            yield flag, fallback if given is None else given

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: view.take(flag)} if view.has(flag) else {}

    note = f"Written with this attention: {fallback} unless set."
    fields = (path, VARIANT, INTERVAL) if active is is_linear else (path, VARIANT)
    return computed(fields, (flag,), emit, read, note=note, **row)


def attention() -> tuple[Row, ...]:
    """Return the rows of linear and sparse attention, attention window, softmax type and position embeddings."""
    return (
        _variant(),
        *(
            sized(f"model.{name}", name.replace("_", "-"), fallback, is_linear, since=_NEW)
            for name, fallback in LINEAR_HEADS.items()
        ),
        _gate(),
        *indexer(since=_NEW),
        *_shared_indexers(),
        _sparse_loss(),
        when_set("model.softmax_type", "softmax-type", since="0.15"),
        _windowed_layers(),
        counted("model.no_rope_freq", "no-rope-freq", since="0.13"),
        switch("model.qk_l2_norm", "qk-l2-norm", since="0.13"),
        listed("model.mrope_section", "mrope-section", since="0.12"),
    )


def _gate() -> Row:
    path, flag = "model.attention_output_gate", "attention-output-gate"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = job.model.attention_output_gate
        if given or (given is None and is_linear(job)):
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        linear = view.peek("experimental-attention-variant") == "gated_delta_net"
        return {path: bool(view.take(flag, False))} if linear or view.has(flag) else {}

    note = "Written beside linear attention unless the field is false: Qwen3-Next has it."
    return computed((path, VARIANT, INTERVAL), (flag,), emit, read, since=_NEW, note=note)


def _sparse_loss() -> Row:
    path, flag = "model.dsa_indexer_use_sparse_loss", "dsa-indexer-use-sparse-loss"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        given = job.model.dsa_indexer_use_sparse_loss
        if given or (given is None and is_sparse(job) and DSA_SPARSE_LOSS):
            yield flag, True

    def read(view: NativeView) -> Mapping[str, Value]:
        sparse = view.peek("experimental-attention-variant") == "dsa"
        return {path: bool(view.take(flag, False))} if sparse or view.has(flag) else {}

    note = "Written with sparse attention unless the field is false: MindSpeed-LLM has no other."
    return computed((path, VARIANT), (flag,), emit, read, since=_NEW, note=note)


def indexer(prefix: str = "dsa-indexer-", **row: Any) -> tuple[Row, ...]:
    """Return the rows of the indexer's sizes and of its loss coefficient."""
    names = {"index_n_heads": "n-heads", "index_head_dim": "head-dim", "index_topk": "topk"}
    rows = (sized(f"model.{name}", f"{prefix}{flag}", INDEXER[name], is_sparse, **row) for name, flag in names.items())
    path = "dsa_indexer_loss_coeff"
    weight = "indexer-loss-coeff" if prefix == "index-" else f"{prefix}loss-coeff"
    return (*rows, sized(f"model.{path}", weight, INDEXER[path], is_sparse, **row))


def _shared_indexers() -> tuple[Row, ...]:
    """Return the rows of layers that reuse the keys of an earlier one."""
    frequency, offset = "model.index_topk_freq", "model.index_skip_topk_offset"
    flag = "dsa-indexer-skip-topk-offset"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        start = job.model.index_skip_topk_offset
        if start is None and _shares_indexers(job):
            start = INDEXER_OFFSET
        if start is not None and start != 1:
            yield flag, start

    def read(view: NativeView) -> Mapping[str, Value]:
        if not view.has(flag) and view.peek("dsa-indexer-topk-freq", 1) == 1:
            return {}
        return {offset: max(1, view.take(flag, 0))}

    note = (
        "Layers are counted from 1; absent means 1 there (experimental_attention_variant/dsa.py:46 @core_v0.19.0), "
        f"and {INDEXER_OFFSET} in config.json (transformers GlmMoeDsaConfig)."
    )
    return (
        when_set(frequency, "dsa-indexer-topk-freq", since="0.19"),
        computed((offset, frequency), (flag,), emit, read, since="0.19", note=note),
    )


def _variant() -> Row:
    flags = ("experimental-attention-variant", "linear-attention-freq")

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        kind, interval = variant_of(job), job.model.full_attention_interval
        if kind == "dsv4_hybrid":
            raise Unsupported(VARIANT, "compressed attention came after core 0.16", (f"{VARIANT}=dsa",))
        if kind == "gated_delta_net" and interval is None:
            raise Unsupported(VARIANT, "it needs the interval of layers that attend fully", (f"{INTERVAL}=4",))
        if kind is not None:
            yield flags[0], kind
        if interval is not None:
            yield flags[1], str(interval)

    def read(view: NativeView) -> Mapping[str, Value]:
        kind, interval = view.peek(flags[0]), str(view.peek(flags[1], ""))
        if kind == "dsa":
            return {VARIANT: view.take(flags[0])}
        if kind != "gated_delta_net" or not is_count(interval):  # a list of layers is passed through
            return {}
        view.take(flags[0])
        view.take(flags[1])
        return {VARIANT: kind, INTERVAL: int(interval)}

    note = "--linear-attention-freq N: every N-th layer attends by softmax, as full_attention_interval sets it."
    return computed((VARIANT, INTERVAL), flags, emit, read, since=_NEW, note=note)


def counted(path: str, flag: str, **row: Any) -> Row:
    """Return the row of a count for which Megatron also takes a list of layers; a list is passed through."""

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        value = value_at(job, path)
        if value is not None:
            yield flag, str(value)

    def read(view: NativeView) -> Mapping[str, Value]:
        return {path: int(view.take(flag))} if is_count(str(view.peek(flag, ""))) else {}

    return Row(fields=(path,), flags=(flag,), emit=emit, read=read, **row)


def _windowed_layers() -> Row:
    fields, flag = ("model.window_attn_skip_freq", "model.full_attention_layers"), "window-attn-skip-freq"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        model = job.model
        if model.full_attention_layers and model.window_attn_skip_freq is not None:
            raise Unsupported(fields[1], "it takes a list of layers or a frequency", (f"{fields[0]}=null",))
        if model.full_attention_layers and model.sliding_window is not None:
            yield flag, window_pattern(model)
        elif model.window_attn_skip_freq is not None:
            yield flag, str(model.window_attn_skip_freq)

    def read(view: NativeView) -> Mapping[str, Value]:
        if is_count(str(view.peek(flag, ""))):
            return {fields[0]: int(view.take(flag))}
        layers = full_layers(view.peek(flag, ""), view.peek("num-layers")) if view.has("window-size") else None
        if not layers:
            return {}
        view.take(flag)
        return {fields[1]: layers}

    return computed(fields, (flag,), emit, read, since="0.15")


_OWN_INDEXER = "every layer has its own indexer; sharing one came with core {since}"
_V4 = "compressed attention and hyper-connections came after core 0.16"


def _shares_indexers(job: Job) -> bool:
    return (job.model.index_topk_freq or 1) > 1


OF_V4 = (
    "csa_window_size",
    "compress_ratios",
    "compress_rope_theta",
    "o_groups",
    "o_lora_rank",
    "enable_hyper_connections",
    "hc_mult",
    "hc_sinkhorn_iters",
    "hc_eps",
    "num_hash_layers",
)


def gemma_gaps() -> dict[str, Gap]:
    """Return the gaps of what only Gemma has: megatron-core 0.19.0 transformer/transformer_layer.py, attention.py."""
    capped = "logits are not capped (softcap is 0 in megatron-core 0.19.0 transformer/attention.py:952)"
    return {
        "model.norms_of_outputs": Gap(why="the outputs of its layers are not normalised", neutral=(False,)),
        "model.scale_embeddings": Gap(why="embeddings are not scaled", neutral=(False,)),
        "model.query_pre_attn_scalar": Gap(
            why="attention logits are divided by the square root of the head size",
            works=("model.query_pre_attn_scalar=null",),
            matters=lambda job: job.model.query_pre_attn_scalar != job.model.head_size,
        ),
        "model.attn_logit_softcapping": Gap(why=capped, works=("model.attn_logit_softcapping=null",)),
        "model.final_logit_softcapping": Gap(why=capped, works=("model.final_logit_softcapping=null",)),
        "model.rope_local_theta": Gap(
            why="all layers have the same positions",
            matters=lambda job: job.model.rope_local_theta != job.model.rope_theta,
        ),
    }


def llama4_gaps() -> dict[str, Gap]:
    """Return the gaps of what only Llama 4 has: megatron-core 0.19.0 models/gpt/gpt_layer_specs.py, attention.py."""
    long = "attention within chunks is not built: the same for sequences of at most model.attention_chunk_size tokens"
    scaled = "queries are not scaled by their position: the same for sequences shorter than model.floor_scale tokens"
    return {
        "model.qk_l2_norm_rope_only": Gap(
            why=NORM_WITHOUT_ROPE.describe(Model()),
            neutral=(False,),
            matters=lambda job: NORM_WITHOUT_ROPE.when(job.model),
        ),
        "model.attention_chunk_size": Gap(
            why=long,
            works=(f"{_LENGTH}=8192",),
            matters=lambda job: _length(job) > (job.model.attention_chunk_size or 0),
        ),
        "model.floor_scale": Gap(why=scaled, works=(f"{_LENGTH}=4096",), matters=_scales_queries),
    }


LLAMA4_IRRELEVANT: Mapping[str, str] = {"model.attn_scale": without("model.floor_scale")}
_LENGTH = "batch.seq_length"


def _length(job: Job) -> int:
    return job.batch.seq_length or 0


def _scales_queries(job: Job) -> bool:
    model = job.model
    return bool(
        model.floor_scale and model.no_rope_freq and model.attn_scale != 0 and _length(job) >= model.floor_scale
    )


UNSUPPORTED: Mapping[str, Gap] = {
    **gemma_gaps(),
    **llama4_gaps(),
    **{f"model.{name}": Gap(why=_V4, neutral=(False, 0)) for name in OF_V4},
    "model.qk_norm_type": Gap(
        why="query and key heads are normalised one by one",
        neutral=("per_head",),
        works=("model.qk_norm_type=null",),
        matters=lambda job: job.model.qk_layernorm,
    ),
    "model.indexer_types": Gap(why="it takes no list of layers: model.index_topk_freq, since core 0.19"),
}
CAME_LATER: Mapping[str, Gap] = {
    VARIANT: came(),
    INTERVAL: came(1),
    **{f"model.{name}": came() for name in (*LINEAR_HEADS, *INDEXER)},
    "model.attention_output_gate": came(False),
    "model.dsa_indexer_use_sparse_loss": came(False),
    "model.softmax_type": came("vanilla"),
    "model.window_attn_skip_freq": came(),
    "model.full_attention_layers": Gap(
        why="a window in some layers came with core {since}",
        matters=lambda job: job.model.sliding_window is not None,
    ),
    "model.no_rope_freq": came(),
    "model.qk_l2_norm": came(False),
    "model.index_topk_freq": came(1, why=_OWN_INDEXER),
    "model.index_skip_topk_offset": Gap(why=_OWN_INDEXER, matters=_shares_indexers),
}
