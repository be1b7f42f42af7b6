"""Fields that are unsupported by or irrelevant to a version of Megatron-SWIFT."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from backends.megatron.mapping import attention_variants, details, services, sharding
from backends.megatron.mapping.architecture import SHAPES, expert_places, layer_pattern
from backends.megatron.mapping.extra_args import padded_vocabulary
from backends.megatron.mapping.factories import FOUR, THREE, only
from backends.megatron.mapping.model import BRIDGED, overridden
from backends.megatron_lm import static_graph
from launcher.catalogue.versions import in_range
from launcher.job import Job, Value, field_paths
from launcher.mapping.rows import Gap, NativeView, Row, Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    path: str
    gap: Gap
    since: str | None = None
    until: str | None = None


def _scales(job: Job) -> bool:
    """Return whether the loss is scaled: in fp16 only."""
    return job.precision.dtype == "fp16"


def _missing(
    path: str,
    why: str,
    *,
    neutral: tuple[Value, ...] = (),
    works: tuple[str, ...] = (),
    warning: bool = False,
    since: str | None = None,
    until: str | None = None,
    matters: Callable[[Job], bool] | None = None,
) -> _Missing:
    gap = Gap(why=why, neutral=neutral, works=works, severity="warning" if warning else "error", matters=matters)
    return _Missing(path=path, gap=gap, since=since, until=until)


_ASCEND = "a feature of MindSpeed-LLM and MindFormers"
_TOKENIZER = "it takes Hugging Face tokenizers, from their directory (tokenizer.path)"
_MEMORY = "it has no option for it; training itself is unaffected, but more memory is needed"
_SPEED = "it has no option for it; training itself is unaffected"

_GAPS = (
    _missing("task.simpo_gamma", "it has no SimPO"),
    _missing("task.beta", "this version has pt and sft", until="3.5.99"),
    _missing("task.loss_type", "this version has pt and sft", until="3.5.99"),
    _missing("task.label_smoothing", "this version has pt and sft", neutral=(0.0,), until="3.5.99"),
    _missing("task.rpo_alpha", "this version has pt and sft", until="3.5.99"),
    _missing("task.desirable_weight", "this version has no KTO", until="3.6.99"),
    _missing("task.undesirable_weight", "this version has no KTO", until="3.6.99"),
    _missing("task.reference_model", "this version has pt and sft", until="3.5.99"),
    _missing("lora.quantization", "it has no quantised base weights under Megatron"),
    _missing("lora.load", "adapters are loaded since 3.10", until="3.9"),
    _missing("parallel.ulysses_degree", "no two-level context parallelism", neutral=(1,)),
    _missing("parallel.cp_window", _ASCEND, neutral=(1,)),
    _missing("parallel.cp_mask_type", "attention is always causal", neutral=("causal",)),
    _missing("parallel.noop_layers", _ASCEND),
    _missing("parallel.tp_2d_x", _ASCEND, neutral=(1,)),
    _missing("parallel.tp_2d_y", _ASCEND, neutral=(1,)),
    _missing("recompute.activation", _MEMORY, neutral=(False,), warning=True),
    _missing("recompute.activation_num_layers", _MEMORY, neutral=(0,), warning=True),
    _missing("recompute.norm", _MEMORY, neutral=(False,), works=("recompute.modules=[layernorm]",), warning=True),
    _missing("recompute.norm_num_layers", _MEMORY, neutral=(0,), warning=True),
    _missing("recompute.per_pp_rank", "num_layers counts per chunk", neutral=(False,), warning=True),
    _missing("recompute.layers_per_chunk", "num_layers holds for all chunks", works=("recompute.num_layers=…",)),
    _missing(
        "recompute.selective_layers_per_chunk",
        "selective recompute holds for all layers or none",
        works=("recompute.selective_layers_per_chunk=[]",),
    ),
    _missing("recompute.in_bubble", _SPEED, neutral=(False,), warning=True),
    _missing("recompute.in_advance", _SPEED, neutral=(False,), warning=True),
    _missing("recompute.communication", _SPEED, neutral=(True,), warning=True),
    _missing(
        "recompute.distribute_saved_activations", _MEMORY, neutral=(False,), warning=True, since=FOUR, until="4.2.99"
    ),
    _missing("offload.attention", _MEMORY, neutral=(False,), warning=True),
    _missing("offload.modules", _MEMORY, warning=True),
    _missing("offload.optimizer_times", _SPEED, warning=True),
    _missing("offload.activation_layers", _MEMORY, neutral=(0,), warning=True, until="4.2.99"),
    _missing("moe.dispatch_overlap", _SPEED, neutral=(False,), warning=True),
    _missing("moe.batch_overlap", _SPEED, neutral=(False,), warning=True),
    _missing("moe.tp_extend_ep", _ASCEND, neutral=(False,), works=("parallel.etp=1",)),
    _missing("moe.bias_update_rate", "this version has no option for it", neutral=(0.001,), since=FOUR, until="4.2.99"),
    _missing("moe.input_jitter_eps", "this version has no option for it", neutral=(0.0,), since=FOUR, until="4.2.99"),
    _missing("kernels.rmsnorm_fusion", "Transformer Engine's RMSNorm is always fused", neutral=(True,), warning=True),
    _missing("kernels.deterministic", "removed at 4.0", neutral=(False,), since=FOUR, until="4.2.99"),
    _missing("precision.residual_in_fp32", "residual connections are in the model's precision", neutral=(False,)),
    _missing("moe.router_fusion", _SPEED, neutral=(False,), warning=True),
    _missing("data.seed", "this version orders samples by the job's seed", until="3.5-dev"),
    _missing("precision.initial_loss_scale", "4.x has no option for it", since=FOUR, matters=_scales),
    _missing("precision.loss_scale_window", "4.x has no option for it", since=FOUR, matters=_scales),
    _missing("precision.loss_scale", "4.x scales dynamically only", since=FOUR, matters=_scales),
    _missing(
        "data.cache_path", "caches go where MODELSCOPE_CACHE says: set backend.env.MODELSCOPE_CACHE", warning=True
    ),
    _missing("data.eod_mask_loss", "the loss covers the end of every sample", neutral=(False,)),
    _missing("tokenizer.type", "tokenizers are Hugging Face's", neutral=("HuggingFaceTokenizer",)),
    _missing("tokenizer.trust_remote_code", "swift always trusts it", neutral=(True,), warning=True),
    _missing(
        "checkpoint.save_safetensors", "convert with `swift export` in this version", neutral=(False,), until="3.9"
    ),
    _missing("checkpoint.save_total_limit", "this version keeps all checkpoints", warning=True, until=THREE),
    _missing(
        "checkpoint.optimizer_fully_reshardable", "this version has no option for it", neutral=(False,), until=THREE
    ),
    _missing(
        "logging.throughput",
        "4.x has no option for it; training is unaffected",
        neutral=(False,),
        warning=True,
        since=FOUR,
    ),
    *(
        _missing(
            f"logging.{name}", "4.x logs it not; training is unaffected", neutral=(False,), warning=True, since=FOUR
        )
        for name in ("params_norm", "timers", "memory", "perplexity")
    ),
    _missing("logging.zero_gradients", "it has no option for it", neutral=(False,), warning=True),
    _missing("logging.timer_level", "it has no option for it", neutral=(0,), warning=True),
    _missing("checkpoint.strictness", "it loads what it can and tells the rest", warning=True),
    _missing("tokenizer.vocab_file", _TOKENIZER),
    _missing("tokenizer.merge_file", _TOKENIZER),
    _missing("profiler.enabled", "it starts no profiler; training is unaffected", warning=True),
    _missing("model.num_nextn_predict_layers", "no multi-token prediction before 3.10", until="3.9"),
    _missing("model.mtp_loss_scaling_factor", "no multi-token prediction before 3.10", until="3.9"),
)


def unsupported(version: str) -> dict[str, Gap]:
    """Return the fields that this version does not support."""
    own = {item.path: item.gap for item in _GAPS if in_range(version, item.since, item.until)}
    return {
        **static_graph.GAPS,
        **details.gaps(version),
        **sharding.gaps(version),
        **attention_variants.gaps(version),
        **services.gaps(version),
        **own,
    }


_LAUNCHER = "read by the launcher itself"
_SECTIONS = ("hardware", "cluster", "backend", "imported", "rehearse", "rules", "estimate", "search")
_IRRELEVANT = {
    "name": _LAUNCHER,
    "output_dir": _LAUNCHER,
    "runtime": _LAUNCHER,
    "fault_tolerance.max_restarts": _LAUNCHER,
    "fault_tolerance.hang_minutes": _LAUNCHER,
    "parallel.dp": "swift derives it from the number of processes",
    "profiler.start_step": "only with profiler.enabled, which it cannot express",
    "profiler.end_step": "only with profiler.enabled, which it cannot express",
    "profiler.ranks": "only with profiler.enabled, which it cannot express",
    "profiler.path": "only with profiler.enabled, which it cannot express",
}
_WITHOUT_LORA = ("lora.alpha", "lora.dropout", "lora.target_modules", "lora.rslora", "lora.merge")


def irrelevant(version: str) -> dict[str, str]:
    """Return the fields that are irrelevant to this version, with the reason."""
    found = {
        **static_graph.irrelevant(),
        **details.irrelevant(version),
        **sharding.IRRELEVANT,
        **_IRRELEVANT,
    }
    found |= {**services.IRRELEVANT, **attention_variants.IRRELEVANT}
    found = {path: why for path, why in found.items() if path not in services.GENERATION}
    for path in field_paths():
        if path.split(".")[0] in _SECTIONS:
            found[path] = _LAUNCHER
    if in_range(version, None, "3.6.99"):
        found |= dict.fromkeys(_WITHOUT_LORA, "only with lora.rank, which this version cannot express")
    if in_range(version, FOUR, "4.2.99"):
        found["model.overridden"] = "what config.json says cannot be changed in this version"
    if in_range(version, BRIDGED, None):
        found["model.initializer_range"] = "the random weights that the plan prepares are drawn with it, not by swift"
    return found


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
        shaped = [shape.field for shape in SHAPES]
        names = [*shaped, "vocab_size", "v_head_dim", "sliding_window", "first_k_dense_replace", "moe_layer_freq"]
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
        changed = set(job.model.overridden) & {"num_hidden_layers", "first_k_dense_replace", "moe_layer_freq"}
        if not changed and job.model.moe_layer_freq == 1:
            return  # config.json sets it, even where all layers are dense
        pattern = layer_pattern(job)
        if pattern is not None:
            yield "moe_layer_freq", pattern

    def read(view: NativeView) -> Mapping[str, Value]:
        places = expert_places(view.peek("moe_layer_freq"), view.peek("num_layers"))
        if places is None or view.peek("num_experts") is None or view.peek("num_layers") is None:
            return {}
        view.take("moe_layer_freq")
        return {"model.first_k_dense_replace": places[0], "model.moe_layer_freq": places[1]}

    return Row(
        fields=("model.first_k_dense_replace", "model.moe_layer_freq"),
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
