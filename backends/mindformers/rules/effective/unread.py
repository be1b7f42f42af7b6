"""Keys of a file that training does not read, and defaults of MindSpore and MindFormers that the catalogue lacks."""

from collections.abc import Mapping

from backends.mindformers.mapping.support import MODEL
from backends.mindformers.rules.effective.tables import MCORE, unless
from backends.mindformers.rules.terms import ACCUMULATION, BACKENDS, MICRO, PP
from launcher.job import Value
from launcher.rules.registry import RuleContext
from launcher.rules.table import declare, unread

_TEMPLATE = "mindformers 2.1.0 tools/register/template.py"
_CONTEXT = "mindformers 2.1.0 core/context/build_context.py"
_TRAINER = "mindformers 2.1.0 trainer/base_trainer.py"
_OLD, _NEW = "parallel.strategy_ckpt_save_file", "parallel.strategy_ckpt_config.save_file"
_GENERATION = ("max_decode_length", "repetition_penalty", "temperature", "top_k", "top_p", "do_sample")
_PROFILED = (
    "profile_start_step profile_stop_step profile_memory profile_communication profile_level profiler_level "
    "profile_rank_ids profile_pipeline profile_output init_start_profile with_stack data_simplification mstx"
)
# Key: its default, and where that is.
_DEFAULTS: Mapping[str, tuple[Value, str]] = {
    "context.save_graphs": (False, "mindspore 2.7.0 context.py"),
    "context.enable_dump": (False, "mindspore 2.7.0 context.py"),
    "context.memory_optimize_level": ("O0", "mindspore 2.7.0 context.py"),
    "context.enable_graph_kernel": (False, "mindspore 2.7.0 context.py"),
    "parallel.strategy_ckpt_config.only_trainable_params": (False, _TEMPLATE),
    "parallel.parallel_optimizer_config.gradient_accumulation_shard": (
        False,
        "mindspore 2.7.0 parallel/_auto_parallel_context.py",
    ),
    "parallel.parallel_optimizer_config.parallel_optimizer_threshold": (
        64,
        "mindspore 2.7.0 parallel/_auto_parallel_context.py",
    ),
    "train_dataset.data_loader.dataset_dir": ("", _TEMPLATE),
    "remote_save_url": ("", _TEMPLATE),
    f"{MODEL}checkpoint_name_or_path": ("", _TEMPLATE),
    _NEW: ("./ckpt_strategy.ckpt", _TEMPLATE),
    "calculate_per_token_loss": (False, "mindformers 1.8.0 wrapper/wrapper.py:874"),
    "train_dataset.data_loader.config.eod_pad_length": (
        128,
        "mindformers 2.1.0 dataset/blended_datasets/gpt_dataset.py:44",
    ),
    # The only one that the loader builds.
    "train_dataset.data_loader.datasets_type": ("GPTDataset", "mindformers 2.1.0 dataset/dataloader"),
}


def _strategy_file(context: RuleContext) -> Value:
    """Return the file of the strategy by its newer or older key; None for the default one."""
    name = context.values.get(_NEW, context.values.get(_OLD))
    return None if name == _DEFAULTS[_NEW][0] else name


def _sources() -> str:
    return "; ".join(dict.fromkeys(source for _, source in _DEFAULTS.values()))


declare(
    (
        unread(
            "MF-UNREAD-PREDICTION",
            "",
            ("processor.*", *(f"{MODEL}{name}" for name in _GENERATION)),
            "Training drops the sections of prediction with a warning, and generation alone reads its keys.",
            f"{_TEMPLATE}:599-700; mindformers 2.1.0 models/configuration_utils.py:160-175",
        ),
        unread(
            "MF-UNREAD-DATASET",
            "",
            "train_dataset.seed train_dataset.batch_size",
            "The seed and batch size of the job replace those of the data set.",
            "mindformers 2.1.0 dataset/utils.py check_dataset_config",
        ),
        unread(
            "MF-UNREAD-EVALUATION",
            "!do_eval",
            "eval_dataset.* eval_dataset_task.* eval_callbacks eval_callbacks.* metric.* eval_step_interval eval_epoch",
            "Without do_eval the sections of evaluation are dropped with a warning.",
            f"{_TEMPLATE}:599-700",
        ),
        # qkv_concat: parallel_core reads mla_qkv_concat only; input_sliced_sig is among the keys that its converter
        # drops; vocab_emb_dp is set to false; router_aux_loss_coef is deleted.
        unread(
            "MF-UNREAD-LEGACY-KEYS",
            MCORE,
            f"moe_config.* {MODEL}qkv_concat {MODEL}input_sliced_sig {MODEL}router_aux_loss_coef "
            "parallel_config.vocab_emb_dp",
            "Only legacy models read these keys.",
            "mindformers 2.1.0 parallel_core/transformer_config_utils.py:192; parallel_core/transformer_config.py:421; "
            "mindformers 2.1.0 models/qwen3_moe/configuration_qwen3_moe.py:179",
        ),
        unread(
            "MF-UNREAD-GRAPHS",
            "!context.save_graphs",
            "context.save_graphs_path",
            "The folder of graphs is read with save_graphs only.",
            f"{_CONTEXT}:143",
        ),
        unread(
            "MF-UNREAD-DUMP",
            "!context.enable_dump",
            "context.save_dump_path",
            "The folder of dumps is read with enable_dump only.",
            f"{_CONTEXT}:151",
        ),
        unread(
            "MF-UNREAD-LR-SCALE",
            "!lr_scale",
            "lr_scale_factor",
            "The factor of the learning rate is read with lr_scale only.",
            "mindformers 1.6.0 trainer/base_trainer.py:550",
        ),
        unread(
            "MF-UNREAD-LAYER-DECAY",
            "!layer_scale",
            "layer_decay",
            "The decay by layer is read with layer_scale only.",
            "mindformers 1.6.0 trainer/base_trainer.py:556",
        ),
        # Its heads are hidden_size / num_heads wide; ChatGLM2Config alone of the older classes has the key.
        unread(
            "MF-UNREAD-OLD-HEAD-WIDTH",
            f"{MODEL}type=LlamaConfig",
            f"{MODEL}kv_channels",
            "LlamaConfig has no width of heads of its own.",
            "mindformers 1.6.0 models/llama/llama_config.py",
        ),
        unread(
            "MF-UNREAD-PREFETCH",
            "!swap_config.swap",
            "swap_config.default_prefetch",
            "The number of prefetched layers is read with swap only.",
            "mindformers 1.6.0 modules/transformer/transformer.py:223",
        ),
        unread(
            "MF-UNREAD-PROFILER",
            "!profile",
            _PROFILED,
            "The profiler's keys are read with profile only.",
            f"{_TRAINER}:658; {_TRAINER}:1020",
        ),
        unread(
            "MF-UNREAD-ACCUMULATION",
            f"{PP}>1",
            ACCUMULATION,
            "With stages gradient accumulation is reset to 1.",
            "mindformers 1.8.0 trainer/base_trainer.py:301",
        ),
        unread(
            "MF-UNREAD-MICRO-BATCHES",
            "",
            MICRO,
            "Without stages micro_batch_num is reset to 1.",
            "mindformers 1.8.0 trainer/base_trainer.py:202",
            check=lambda context: not context.number(PP, 1) > 1,
            reads=PP,
        ),
        unread(
            "MF-UNREAD-STRATEGY-FILE",
            "",
            _OLD,
            "The older key means the one of the section.",
            _TEMPLATE,
            equivalent={_NEW: _strategy_file},
        ),
        unread(
            "MF-UNREAD-DEFAULTS",
            "",
            (),
            "Defaults of MindSpore and MindFormers, written out.",
            _sources(),
            equivalent={key: unless(key, default) for key, (default, _) in _DEFAULTS.items() if key != _NEW},
        ),
    ),
    backends=BACKENDS,
    phase="launch",
)
