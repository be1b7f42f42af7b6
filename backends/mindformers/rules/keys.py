"""Keys of the file that MindFormers does not know: refused where they reach a constructor or a check, else ignored."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from backends.mindformers.mapping.loader import MEGATRON
from backends.mindformers.mapping.support import MODEL, WEIGHTS
from backends.mindformers.rules.terms import BACKENDS, STATIC, STRICT_UNTIL, dialect_of
from launcher.catalogue.catalogue import Catalogue
from launcher.catalogue.versions import in_range
from launcher.rules.registry import Rule, RuleContext
from launcher.rules.table import declare


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Files whose keys are remembered: the variants of a job differ in few of them.
_FILES = 256
_COPY = re.compile(r"#\d+")
# Taken out before a constructor sees them: register.py:371, transformer_config_utils.py:482-493 @1.6.0.
_TAKEN = frozenset({"type", "auto_register", "monitor_config", "parallel_config"})
# Passed over by the conversion (DEFAULT_WHITE_KEY, transformer_config_utils.py:186-200 @1.6.0).
_PASSED_OVER = _words(
    "torch_dtype transformers_version batch_size checkpoint_name_or_path do_sample ffn_dim_multiplier input_sliced_sig "
    "max_decode_length moe_config multiple_of qkv_concat repetition_penalty top_k top_p use_past"
)
# Model types that take a key of the model section which the others' converters refuse; measured with MindFormers 1.6.0.
_KINDS = ("qwen3", "qwen3_moe", "deepseek_v3")
_ONLY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("decoder_sparse_step", "mlp_only_layers"), ("qwen3_moe",)),
    **dict.fromkeys(("output_router_logits", "router_aux_loss_coef"), ("qwen3_moe",)),
    **dict.fromkeys(("max_window_layers", "sliding_window", "use_sliding_window"), ("qwen3", "qwen3_moe")),
    "layer_types": ("qwen3",),
    "ep_size": ("deepseek_v3",),
    **dict.fromkeys(("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "rotary_percent"), ("deepseek_v3",)),
    **dict.fromkeys(("rotary_scaling_factor", "factor"), ("deepseek_v3",)),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "v_head_dim"), ("deepseek_v3",)),
    **dict.fromkeys(("qk_head_dim", "qk_nope_head_dim"), ("deepseek_v3",)),
    **dict.fromkeys(("qk_pos_emb_head_dim", "qk_rope_head_dim"), ("deepseek_v3",)),
}
_CONSTRUCTED = ("optimizer", "lr_schedule", "runner_wrapper")
_IGNORED = ("trainer.", "train_dataset.", "train_dataset_task.", "lr_schedule.", "runner_wrapper.")
_LOADER = "train_dataset.data_loader"
# In the published files; nothing reads it, as `input_columns` takes its place.
_COMMON = frozenset({"train_dataset.construct_args_key"})
# Keywords without a type check, which the catalogue's source does not have: mindspore 2.7.0
# parallel/_auto_parallel_context.py:1270, context.py:1880 (setters, attributes, ms_ctx_param).
KEYWORDS: Mapping[str, frozenset[str]] = {
    "parallel": _words(
        "auto_parallel_new_interface auto_pipeline communi_parallel_mode dataset_strategy dump_device_local_norm "
        "dump_local_norm dump_local_norm_path grad_accumulation_step group_ckpt_save_file init_param_in_compile "
        "loss_repeated_mean optimizer_weight_shard_aggregated_save optimizer_weight_shard_size "
        "sharding_propagation"
    ),
    "context": _words(
        "aoe_job_type bias_add_comm_swap compile_cache_path compute_communicate_fusion_level conv_allow_tf32 "
        "conv_dgrad_algo conv_fprop_algo conv_wgrad_algo cur_step_num dataset_broadcast_opt_level "
        "enable_allreduce_slice_to_reducescatter enable_begin_end_inline_opt enable_concat_eliminate_opt "
        "enable_debug_runtime enable_flash_attention_load_balance enable_fused_cast_add_opt enable_ge "
        "enable_grad_comm_opt enable_interleave_parallel_branch enable_interleave_split_concat_branch "
        "enable_offloading_packed_experts enable_opt_shard_comm_opt enable_parallel_split enable_profiling "
        "enable_task_opt exec_order hccl_watchdog infer_boost interleaved_layernorm_comm interleaved_matmul_comm "
        "jit_level last_triggered_step matmul_allow_tf32 matmul_grad_comm_overlap memory_offload "
        "memory_optimize_level need_ckpt pp_1f1b_overlap profiling_options recompute_allgather_overlap_fagrad "
        "recompute_comm_overlap save_checkpoint_steps support_binary topo_order "
        # MindFormers' own (trainer/config_args.py, MFContextConfig): taken out before.
        "affinity_cpu_list auto_trans_ckpt exclude_cann_cpu infer_precision_sync load_checkpoint only_save_strategy "
        "output_dir postprocess_use_numpy profile profile_level profile_start_step profile_stop_step resume_training "
        "run_mode seed src_strategy_path_or_dir train_precision_sync use_graceful_exit use_legacy "
        # Read by its own set-up (core/context/build_context.py:150-195): save_dump_path beside enable_dump.
        "enable_dump save_dump_path"
    ),
}


@dataclass(frozen=True, slots=True)
class _File:
    """What decides on the keys of a file. Its values seldom change from one variant of a job to the next.

    Attributes:
        types: the class of each section that is constructed.
        is_parallel: MindSpore's parallel context is set.
        is_megatron: the data are read by Megatron's loader.
    """

    version: str | None
    catalogue: Catalogue
    keys: tuple[str, ...]
    dialect: str
    types: tuple[str, ...]
    model_type: str
    is_parallel: bool
    is_megatron: bool

    @property
    def is_strict(self) -> bool:
        """Whether unknown keys of the model section and of the context are refused, not read past.

        Source: parallel_core/transformer_config_utils.py:507 @1.6.0, :503 @1.8.0; config_converter.py:99 @2.1.0.
        """
        return self.version is not None and in_range(self.version, None, STRICT_UNTIL)


def _file(context: RuleContext, catalogue: Catalogue) -> _File:
    return _File(
        version=context.version,
        catalogue=catalogue,
        keys=tuple(context.written),
        dialect=dialect_of(context),
        types=tuple(str(context[f"{section}.type"]) for section in _CONSTRUCTED),
        model_type=str(context[f"{MODEL}model_type"]),
        is_parallel=bool(context["use_parallel"]),
        is_megatron=context[f"{_LOADER}.type"] == MEGATRON,
    )


Why = Callable[[_File, str], str]


def _keys(file: _File) -> Iterator[tuple[str, str]]:
    """Yield each written key, as typed and as the catalogue names it."""
    for key in file.keys:
        name = _COPY.sub("", key)
        if name.rpartition(".")[2] not in _TAKEN:
            yield key, name


def _class_of(file: _File, name: str) -> str:
    """Return the class of a key that goes to a constructor without other keys; empty if none does."""
    section, _, leaf = name.partition(".")
    if section == "callbacks":
        kind, _, leaf = leaf.partition(".")
    elif section in _CONSTRUCTED:
        kind = file.types[_CONSTRUCTED.index(section)]
    else:
        return ""
    return kind if kind in file.catalogue.strict_types.get(section, ()) and leaf and "." not in leaf else ""


def _constructor(file: _File, name: str) -> str:
    kind = _class_of(file, name)
    argument = file.catalogue.get(name)
    # A key of the template is declared by every class of the section.
    takes = argument is not None and (argument.owner.endswith("Config") or kind in argument.owner.split(", "))
    return f"{kind} does not accept it" if kind and not takes else ""


def _mindspore(file: _File, name: str) -> str:
    section, _, leaf = name.partition(".")
    # 2.1 hands on only what it knows of `context` (core/context/build_context.py:141).
    is_set = file.is_parallel if section == "parallel" else section == "context" and file.is_strict
    if not is_set or not leaf or _is_keyword(file.catalogue, section, leaf):  # without a leaf: a section of null
        return ""
    return f"MindSpore's set_{'auto_parallel_' * (section == 'parallel')}context does not accept it"


def _is_keyword(catalogue: Catalogue, section: str, leaf: str) -> bool:
    first = leaf.partition(".")[0]
    return first in KEYWORDS[section] or catalogue.get(f"{section}.{first}") is not None


def _experts(file: _File, name: str) -> str:
    is_unknown = name.startswith("moe_config.") and file.dialect == "legacy" and file.catalogue.get(name) is None
    return "moe_config does not accept it" if is_unknown else ""


def _model(file: _File, name: str) -> str:
    leaf = name.removeprefix(MODEL).partition(".")[0]
    if not name.startswith(MODEL) or leaf in _PASSED_OVER or not file.is_strict or file.dialect != "mcore":
        return ""
    argument = file.catalogue.get(f"{MODEL}{leaf}")
    kind = file.model_type
    is_of_another = kind in _KINDS and kind not in _ONLY.get(leaf, _KINDS)
    if argument is None or argument.group == "legacy" or is_of_another:
        return f"the converter of {kind if is_of_another else 'mcore models'} does not accept it"
    return ""


_REFUSING: tuple[Why, ...] = (_constructor, _mindspore, _experts, _model)


def _refused(context: RuleContext) -> str:
    return "" if context.catalogue is None else _refused_keys(_file(context, context.catalogue))


@lru_cache(maxsize=_FILES)
def _refused_keys(file: _File) -> str:
    found = {key: why for key, name in _keys(file) for each in _REFUSING if (why := each(file, name))}
    return "; ".join(f"{key}: {why}{_near(file.catalogue, key)}" for key, why in found.items())


def _ignored(context: RuleContext) -> str:
    return "" if context.catalogue is None else _ignored_keys(_file(context, context.catalogue))


@lru_cache(maxsize=_FILES)
def _ignored_keys(file: _File) -> str:
    found = [key for key, name in _keys(file) if _is_ignored(file, name)]
    return ", ".join(f"{key}{_near(file.catalogue, key)}" for key in found) + ": not read by MindFormers" * bool(found)


def _is_ignored(file: _File, name: str) -> bool:
    catalogue = file.catalogue
    top = ".".join(name.split(".")[:3]) if name.startswith(MODEL) else name
    if catalogue.get(top) is not None or name in _COMMON:
        return False
    section, _, leaf = top.partition(".")
    if name.startswith(MODEL):
        is_read = file.is_strict or file.dialect != "mcore" or top.removeprefix(MODEL) in _PASSED_OVER
    elif section == "context":
        is_read = file.is_strict or _is_keyword(catalogue, section, leaf)
    else:
        # A class with keywords beyond its own, or a section of which only some keys are read.
        is_read = not name.startswith(_IGNORED) or _is_handed_on(file, name)
    return not is_read


def _is_handed_on(file: _File, name: str) -> bool:
    """Return whether a key without a row goes to code that may know it."""
    parent = name.rpartition(".")[0]
    if parent.startswith(_LOADER):
        return parent != _LOADER or not file.is_megatron
    is_section = any(each.startswith(f"{parent}.") for each in file.catalogue.names())
    return not is_section or bool(_class_of(file, name))


def _near(catalogue: Catalogue, key: str) -> str:
    section = key.rpartition(".")[0]
    near = [name for name in catalogue.suggest(key) if name.rpartition(".")[0] == section]
    return f" (did you mean {near[0]}?)" if near else ""


KEYS = (
    Rule(
        id="MF-KEY",
        doc="A key that the section's class, MindSpore or the model's converter does not know ends the run.",
        source="mindformers 1.6.0 parallel_core/transformer_config_utils.py:507; tools/register/register.py:408; "
        "core/context/parallel.py:110",
        flags=(),
        fields=("backend.args",),
        when=STATIC,
        check=_refused,
        reads="*",
    ),
    Rule(
        id="MF-KEY-IGNORED",
        doc="MindFormers accepts a key that nothing reads, and trains without it.",
        source="mindformers 2.1.0 parallel_core/config_converter.py:99; tools/register/template.py:63",
        severity="warning",
        flags=(),
        fields=("backend.args",),
        when=STATIC,
        check=_ignored,
        reads="*",
    ),
)
declare(KEYS, backends=BACKENDS, phase="parse")

NEWER_NAMES = (
    Rule(
        id="MF-CONFIG-NAMES",
        doc="config.json is read key by key, and a name that came with transformers 5 is refused.",
        source="mindformers 1.6.0 parallel_core/transformer_config_utils.py:507; measured",
        when=f"{WEIGHTS}? & job.model.newer_names~rope_parameters|num_local_experts|dtype",
        message="config.json has rope_parameters, num_local_experts or dtype, which came with transformers 5, without "
        "the older names (rope_theta and rope_scaling, num_experts, torch_dtype): rename them there",
        flags=(WEIGHTS,),
        fields=("model.path",),
        stricter=True,
        reason="building the model refuses them, after the file was validated",
        until=STRICT_UNTIL,
    ),
)
declare(NEWER_NAMES, backends=BACKENDS, when=STATIC)
