"""Row of `megatron_extra_kwargs`: Megatron-LM arguments up to 3.12, ModelConfig fields since 4.3."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from backends.megatron.mapping.architecture import (
    MODEL_FIELDS,
    PLACES,
    as_keys,
    as_megatron,
    dense_layers_and_interval,
    has_option,
    layer_pattern,
    read_keys,
)
from backends.megatron.mapping.attention_variants import KEYS as VARIANTS
from backends.megatron.mapping.attention_variants import LIST_KEYS, TEXT_KEYS, in_config
from backends.megatron.mapping.attention_variants import as_keys as variant_keys
from backends.megatron.mapping.attention_variants import read_keys as read_variants
from backends.megatron.mapping.factories import THREE, mapping_of, may_be_moe
from backends.megatron.mapping.model import BRIDGED, is_random, overridden
from backends.megatron.mapping.options import megatron_name
from backends.megatron.versions import catalogue
from launcher.catalogue.versions import in_range
from launcher.families.layer_pattern import full_layers, window_pattern
from launcher.job import Job, Value, value_at
from launcher.mapping.rows import NativeView, Row, Unsupported
from launcher.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One canonical field that is a key of `megatron_extra_kwargs`.

    Attributes:
        path: canonical field.
        key: argument of Megatron-LM (underscores) or field of ModelConfig.
        names: canonical to native value where they differ; a canonical value that maps to None is not written.
        when: whether the field applies to a job.
    """

    path: str
    key: str
    names: Mapping[Value, Value] = field(default_factory=dict)
    when: Callable[[Job], bool] = lambda job: True


def _extra(path: str, key: str = "", **others: Any) -> Extra:
    """Return a field whose key is Megatron-LM's argument unless named; those of `moe` are for MoE models."""
    if path.startswith("moe."):
        others.setdefault("when", may_be_moe(path))
    return Extra(path=path, key=key or megatron_name(path), **others)


def _trained_fp8(job: Job) -> bool:
    return job.precision.fp8_format is not None


_CP = {"megatron": "p2p", "ulysses": "a2a", "allgather": "all_gather"}
_ROUTER = {"fp32": "fp32", "fp64": "fp64", "model": None}
_LOSS_SCALE, _SPREAD = "precision.loss_scale", "recompute.distribute_saved_activations"

# Arguments of Megatron-LM (core_r0.12 in 3.5-3.6, 0.15 in 3.12) that some version of 3.x has no option for: swift
# appends them to the argv that it gives Megatron-LM (swift/megatron/argument/megatron_args.py, _args_to_argv).
ARGUMENTS = (
    _extra("model.initializer_range", when=is_random),
    _extra("model.v_head_dim", when=lambda job: job.model.is_mla and "v_head_dim" in job.model.overridden),
    _extra("parallel.vpp"),
    _extra("parallel.etp"),
    _extra("parallel.cp_algorithm", names=_CP),
    _extra("parallel.account_for_embedding"),
    _extra("parallel.account_for_loss"),
    _extra("parallel.microbatch_group_size"),
    _extra(_SPREAD),
    _extra("offload.optimizer"),
    _extra("offload.optimizer_fraction"),
    _extra("moe.permute_fusion"),
    _extra("moe.deepep"),
    _extra("moe.router_dtype", names=_ROUTER),
    _extra("moe.bias_update_rate"),
    _extra("moe.token_drop_policy"),
    _extra("moe.pad_to_capacity"),
    _extra("moe.input_jitter_eps"),
    _extra("schedule.lr_warmup_fraction"),
    _extra("schedule.lr_warmup_init"),
    _extra("optimizer.precision_aware"),
    _extra("optimizer.main_grads_dtype"),
    _extra("optimizer.main_params_dtype"),
    _extra("optimizer.exp_avg_dtype"),
    _extra("optimizer.exp_avg_sq_dtype"),
    _extra("precision.fp8_format"),
    _extra("precision.fp8_recipe", when=_trained_fp8),
    _extra("precision.fp8_param_gather", when=_trained_fp8),
    _extra("precision.initial_loss_scale"),
    _extra("precision.loss_scale_window"),
    _extra(_LOSS_SCALE),
    _extra("kernels.cross_entropy_fusion_impl"),
    _extra("checkpoint.async_save"),
)

# Fields of ModelConfig (mcore-bridge 1.6.5), which extends Megatron-core's TransformerConfig.
KEYS = (
    _extra("model.v_head_dim", when=lambda job: "v_head_dim" in job.model.overridden),
    _extra("moe.bias_update_rate"),
    _extra("moe.input_jitter_eps"),
    _extra(_SPREAD),
    _extra("kernels.deterministic"),
)


def extra_arguments(version: str) -> tuple[Extra, ...]:
    """Return the arguments that a version of 3.x has no option for."""
    drawn_by_plan = in_range(version, BRIDGED, None)  # the weights that initializer_range shapes
    return tuple(
        extra
        for extra in ARGUMENTS
        # swift's own --loss_scale weights the tokens of a sample.
        if (extra.path == _LOSS_SCALE or catalogue(version).get(extra.key) is None)
        and not (drawn_by_plan and extra.path == "model.initializer_range")
    )


def argument_row(version: str) -> Row:
    """Return the row of 3.x: extra arguments of Megatron-LM."""
    flag = "megatron_extra_kwargs" if in_range(version, "3.10", None) else "extra_megatron_kwargs"
    entries = extra_arguments(version)

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        values = {**as_megatron(job, version), **_entries(entries, job), **_layers(job, version)}
        values = {key: value for key, value in values.items() if value is not False}  # swift also drops false values
        if "use_shared_expert_gate" in values:
            raise Unsupported("model.shared_expert_gate", "in this version the model's family decides it")
        if values:
            yield flag, _with_passthrough(values, job, flag)

    def read(view: NativeView) -> Mapping[str, Value]:
        absent = _read_absent(entries, mapping_of(view.peek(flag)) or {})
        return {**absent, **_read(view, flag, lambda given: _read_key(entries, given))}

    fields = (*_paths(entries), *_field_paths(version), *_places())
    note = "a mapping in JSON; its keys become arguments of Megatron-LM"
    return Row(fields=fields, flags=(flag,), emit=emit, read=read, until=THREE, derived=True, note=note)


def key_row(version: str) -> Row:
    """Return the row of 4.3 and later: fields of ModelConfig."""
    flag = "megatron_extra_kwargs"

    def emit(job: Job) -> Iterable[tuple[str, Value]]:
        values = {**as_keys(job, version), **_entries(KEYS, job), **_layers(job, version), **_vocabulary(job, version)}
        values |= {**variant_keys(job), **_window(job)}
        if job.offload.activation_layers:
            values |= {"cpu_offloading": True, "cpu_offloading_num_layers": job.offload.activation_layers}
        if values:
            yield flag, _with_passthrough(values, job, flag)

    def take(given: dict[str, Value]) -> dict[str, Value]:
        found = read_keys(given) | read_variants(given) | _read_key(KEYS, given)
        places = dense_layers_and_interval(given.get("moe_layer_freq"), found.get("model.num_hidden_layers"))
        if places is not None and {"model.num_experts", "model.num_hidden_layers"} <= set(found):
            del given["moe_layer_freq"]
            found["model.first_k_dense_replace"], found["model.moe_layer_freq"] = places
            found["model.overridden"] = (*found.get("model.overridden", ()), "first_k_dense_replace")
        if given.get("cpu_offloading") is True and "cpu_offloading_num_layers" in given:
            del given["cpu_offloading"]
            found["offload.activation_layers"] = given.pop("cpu_offloading_num_layers")
        if "padded_vocab_size" in given:
            found["tokenizer.padded_vocab_size"] = given.pop("padded_vocab_size")
        if "window_size" in given:
            full = full_layers(given.get("window_attn_skip_freq", ""), found.get("model.num_hidden_layers"))
            if full:
                del given["window_attn_skip_freq"]
                found["model.full_attention_layers"] = full
        if str(given.get("window_size", "")).endswith(",0"):
            found["model.sliding_window"] = int(str(given.pop("window_size"))[:-2]) + 1
        return found

    others = (
        *_places(),
        "model.full_attention_layers",
        "model.vocab_size",
        "model.sliding_window",
        "tokenizer.padded_vocab_size",
        "tokenizer.make_vocab_size_divisible_by",
        "offload.activation_layers",
        *(f"model.{name}" for name in (*VARIANTS, *TEXT_KEYS, *LIST_KEYS)),
    )
    return Row(
        fields=(
            "model.overridden",
            *_paths(KEYS),
            *(f"model.{model_field.field}" for model_field in MODEL_FIELDS),
            *others,
        ),
        flags=(flag,),
        emit=emit,
        read=lambda view: _read(view, flag, take),
        since="4.3",
        derived=True,
        note="a mapping in JSON that goes to mcore-bridge's ModelConfig; an unknown key is a TypeError there",
    )


def _with_passthrough(values: dict[str, Value], job: Job, flag: str) -> dict[str, Value]:
    """Return the user's mapping where it contains all of the launcher's values (see `merge`), else the launcher's."""
    passthrough = mapping_of(job.backend.passthrough.get(flag)) or {}
    return passthrough if values.items() <= passthrough.items() else values


def _entries(entries: Iterable[Extra], job: Job) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for entry in entries:
        value = value_at(job, entry.path)
        if value is None or not entry.when(job):
            continue
        if entry.names and value not in entry.names:
            works = tuple(f"{entry.path}={name}" for name in entry.names)
            raise Unsupported(entry.path, f"{value} has no counterpart here (it knows {', '.join(entry.names)})", works)
        native = entry.names.get(value, value)
        if native is not None:
            values[entry.key] = native
    return values


def _read_key(entries: Iterable[Extra], given: dict[str, Value]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for entry in entries:
        back = {native: canonical for canonical, native in entry.names.items() if native is not None}
        if entry.key not in given or (back and given[entry.key] not in back):
            continue
        value = given.pop(entry.key)
        found[entry.path] = back.get(value, value)
    return found


def _read_absent(entries: Iterable[Extra], given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the fields whose value is Megatron-LM's default, for which nothing is written."""
    return {
        entry.path: canonical
        for entry in entries
        for canonical, native in entry.names.items()
        if native is None and entry.key not in given
    }


def _read(view: NativeView, flag: str, take: Callable[[dict[str, Value]], dict[str, Value]]) -> Mapping[str, Value]:
    given = mapping_of(view.peek(flag))
    if given is None:
        return {}
    found = take(given)
    if given:  # something in it has no canonical field: all of it is passed through
        return {}
    view.take(flag)
    return found


def _layers(job: Job, version: str) -> dict[str, Value]:
    """Return the pattern of MoE layers where config.json does not set it (swift computes it from its own values)."""
    if in_range(version, "3.6", THREE):
        return {}  # has its own option
    changed = PLACES & overridden(job, version)
    if not changed and job.model.moe_layer_freq == 1:
        return {}
    pattern = layer_pattern(job)
    if pattern is None:
        return {"moe_layer_freq": "1"} if changed - {"num_hidden_layers"} else {}
    # decoder_sparse_step is not read from config.json at all (mcore_bridge/config/parser.py @1.6.5).
    return {"moe_layer_freq": pattern} if changed or job.model.moe_layer_freq > 1 else {}


def padded_vocabulary(job: Job, version: str) -> int | None:
    """Return the padded vocabulary size to write; None where config.json's size is used.

    mcore-bridge and swift pad to a multiple of tp only (mcore_bridge/model/gpt_model.py:72 @1.6.5).
    """
    tokenizer, vocabulary = job.tokenizer, job.model.vocab_size
    padded = tokenizer.padded_vocab_size
    if padded is None and tokenizer.make_vocab_size_divisible_by is not None and vocabulary is not None:
        multiple = tokenizer.make_vocab_size_divisible_by * job.parallel.tp
        padded = -(-vocabulary // multiple) * multiple
    if "vocab_size" in overridden(job, version):
        return padded or vocabulary
    return None if padded == vocabulary else padded


def _vocabulary(job: Job, version: str) -> dict[str, Value]:
    padded = padded_vocabulary(job, version)
    return {} if padded is None else {"padded_vocab_size": padded}


def _window(job: Job) -> dict[str, Value]:
    """Return the attention window; mcore-bridge reads `sliding_window` for gemma4 and gpt-oss only (parser.py:205)."""
    window = job.model.sliding_window
    if window is None or in_config(job, "window_attn_skip_freq"):
        return {}
    layers: dict[str, Value] = (
        {"window_attn_skip_freq": window_pattern(job.model)} if job.model.full_attention_layers else {}
    )
    return {"window_size": f"{window - 1},0", **layers}


def _places() -> tuple[str, ...]:
    return tuple(f"model.{name}" for name in sorted(PLACES - {"num_hidden_layers"}))


def _paths(entries: Iterable[Extra]) -> tuple[str, ...]:
    return tuple(entry.path for entry in entries)


def _field_paths(version: str) -> tuple[str, ...]:
    return tuple(
        f"model.{model_field.field}" for model_field in MODEL_FIELDS if not has_option(model_field.option, version)
    )
