"""Names that ms-swift and Megatron-core look up after the parser took them as any text."""

import json
from functools import partial
from pathlib import Path

from backends.megatron.rules.terms import BACKENDS, FOUR, THREE
from backends.megatron_lm.rules.known_names import (
    CONTEXT_COMMUNICATION,
    CONTEXT_DOC,
    CONTEXT_SOURCE,
    MUON_COEFFICIENTS,
    MUON_DOC,
)
from launcher.rules.known_names import Names, known_names, named, without_layers
from launcher.rules.table import checked, declare, needs

_ARGS = "ms-swift 4.6.0 megatron/arguments/megatron_args.py"
_TRAINERS = "ms-swift 4.6.0 megatron/trainers"
# Modules that register names of their own.
_PLUGINS = ("external_plugins", "custom_register_path")
# The first version with GRPO on Megatron, after 3.6.
_GRPO = "3.7"
_OLDEST = "3.6.99"
_LAZY, _EAGER = "4.2", "4.1.99"

# Made by tools/catalogue/swift_names.py.
_REGISTERED: dict[str, Names] = {
    argument: {name: (since, until) for name, (since, until) in names.items()}
    for argument, names in json.loads(
        (Path(__file__).parents[1] / "registered_names.json").read_text(encoding="utf-8")
    ).items()
    if argument != "versions"
}
_RECOMPUTED = named("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
_ATTENTION: Names = {
    **named("flash", "fused", "unfused", "local", "auto"),
    **named("flash_2", "flash_3", "flash_4", versions=("4.3", None)),
}
_LOSS_SCALES: Names = {
    **named("default", "last_round", "all", "ignore_empty_think", "react", "hermes", "qwen", "agentflan", "alpha_umi"),
    **named("last_round_with_ignore_empty_think", versions=(None, _OLDEST)),
    **named("-", versions=("3.7", THREE)),
    **named("base", versions=(FOUR, None)),
    **named("ignore_think_prefix", versions=("4.5", None)),
}
_AGENT_TEMPLATES: Names = {
    **named("react_en", "react_zh", "qwen_en", "qwen_zh", "qwen_en_parallel", "qwen_zh_parallel", "hermes"),
    **named("toolbench", "glm4", "llama3", "llama4", "react_grpo"),
    **named("glm4_0414", versions=(None, THREE)),
    **named("qwen3_coder", "hunyuan_hermes", "glm4_5", "glm4_7", "deepseek_v3_1", versions=("3.7", None)),
    **named("seed_oss", "mistral", "youtu", versions=("3.7", None)),
    **named("qwen3_5", "chatglm4", versions=(FOUR, None)),
    **named("glm5_1", "minimax_m2", versions=("4.1", None)),
    **named("hy_v3", "deepseek_v4", "kimi_k25", "minicpm5", versions=("4.2", None)),
    **named("minimax_m3", "gemma4", versions=("4.3", None)),
    **named("hy_v3_preview", versions=("4.4", None)),
    **named("spark2_5", "kimi_k3", "ling3", versions=("4.5", None)),
    **named("deepseek_v41", "xing4_0", versions=("4.6", None)),
}
_CALLBACKS = named("print", "default_flow", "swanlab", "wandb", "tensorboard")
_REWARDS = named("toolbench", "math", "accuracy", "format", "react_format", "cosine", "repetition", "soft_overlong")
_SCHEDULERS: Names = {
    **named("math_tip_trick", "gym_scheduler", "thinking_tips_scheduler"),
    **named("openenv_scheduler", versions=("4.4", None)),
}
_GRPO_LOSSES: Names = {
    **named("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo"),
    **named("fipo", "real", versions=("4.2", None)),
}
_TASK_LOSSES: Names = {
    **named("cross_entropy", "cosine_similarity", "contrastive", "online_contrastive", "infonce"),
    **named("pointwise_reranker", "listwise_reranker"),
    **named("scoring", "distill_rps", "smooth_brier", "ce_rps", versions=("4.6", None)),
}
_PAIRED = "task_type=embedding|reranker|generative_reranker"

# fmt: off
declare((
    known_names("SW-TEMPLATE", "template", _REGISTERED["template"],
                "A chat template is looked up by its name among those that ms-swift registers.",
                "ms-swift 4.6.0 template/register.py:50", extended_by=_PLUGINS),
    known_names("SW-MODEL-TYPE", "model_type", _REGISTERED["model_type"],
                "A model's type is looked up by its name among those that ms-swift registers; it is not that of "
                "config.json.",
                "ms-swift 4.6.0 model/model_meta.py:238", extended_by=_PLUGINS),
    known_names("SW-TEACHER-TYPE", "teacher_model_type", _REGISTERED["model_type"],
                "The teacher's type is looked up by its name among those that ms-swift registers.",
                f"{_ARGS}:1086", when="teacher_model?", since="3.12", extended_by=_PLUGINS),
    known_names("SW-RC-MODULES", "recompute_modules", _RECOMPUTED, "Selective recomputation supports these modules.",
                "megatron-core 0.16.1 transformer_config.py:1191", when="recompute_granularity=selective", since="3.7"),
    known_names("SW-ATTENTION", "attention_backend", _ATTENTION,
                "An unknown attention backend ends in a KeyError without a message.", f"{_ARGS}:973-993", since=FOUR),
    known_names("SW-CP-COMM-NAMES", "cp_comm_type", CONTEXT_COMMUNICATION, CONTEXT_DOC, CONTEXT_SOURCE, since="4.4",
                when="context_parallel_size>1 & job.model.experimental_attention_variant=None"),
    known_names("SW-MUON-COEFFICIENTS", "muon_coefficient_type", MUON_COEFFICIENTS, MUON_DOC,
                f"{_ARGS}:576; emerging-optimizers 0.4.0, newton_schulz of muon_utils", since="4.3",
                when="optimizer=muon|dist_muon"),
    known_names("SW-MUON-SCALAR", "muon_scalar_optimizer", named("adam", "sgd", "lion"),
                "Parameters that Muon does not train have one of these optimizers.",
                f"{_ARGS}:580; megatron-core 0.17.1 optimizer/muon.py:214", since="4.3",
                when="optimizer=muon|dist_muon"),
    known_names("SW-LOSS-SCALE", "loss_scale", _LOSS_SCALES,
                "The weights of parts of an answer have these names, joined by +.",
                "ms-swift 4.6.0 loss_scale/mapping.py:53", separator="+", extended_by=_PLUGINS),
    known_names("SW-AGENT-TEMPLATE", "agent_template", _AGENT_TEMPLATES,
                "Tools are described to the model in one of these forms, which is looked up at the start.",
                "ms-swift 4.0.0 template/base.py:148", until=_EAGER, extended_by=_PLUGINS),
    known_names("SW-AGENT-TEMPLATE-TOOLS", "agent_template", _AGENT_TEMPLATES,
                "Tools are described to the model in one of these forms, which is looked up at the first sample that "
                "has tools.",
                "ms-swift 4.6.0 template/base.py:222", since=_LAZY, extended_by=_PLUGINS, severity="warning"),
    known_names("SW-CALLBACKS", "callbacks", _CALLBACKS, "The trainer's callbacks have these names.",
                f"{_TRAINERS}/base.py:113", since=FOUR, extended_by=_PLUGINS),
    known_names("SW-REPORT-TO", "report_to", _CALLBACKS,
                "Trackers are callbacks of these names; an unknown one ends in a KeyError as the trainer is built.",
                f"{_TRAINERS}/base.py:113; {_ARGS}:909", since=FOUR, extended_by=_PLUGINS),
    known_names("SW-REWARD-NAMES", "reward_funcs", _REWARDS,
                "ms-swift has reward functions of these names; since 4.3 an unknown name fails only when the first "
                "answers are scored.",
                "ms-swift 3.12.6 megatron/trainers/grpo_trainer.py:153; 4.6.0 rlhf_trainers/utils.py:2291",
                when="rlhf_type=grpo", since=_GRPO, extended_by=_PLUGINS),
    known_names("SW-MULTI-TURN-NAMES", "multi_turn_scheduler", _SCHEDULERS,
                "ms-swift has multi-turn schedulers of these names.",
                f"{_TRAINERS}/rollout_mixin.py:442", when="rlhf_type=grpo", since=_GRPO, extended_by=_PLUGINS),
    known_names("SW-GRPO-LOSS", "loss_type", _GRPO_LOSSES, "GRPO has these losses.",
                f"{_TRAINERS}/grpo_trainer.py:1069", when="rlhf_type=grpo", since=_GRPO),
    known_names("SW-KTO-LOSS", "loss_type", named("kto", "apo_zero_unpaired"),
                "KTO has these losses; any other name leaves the loss undefined in the first step.",
                "trl 0.24.0, KTOTrainer.kto_loss; ms-swift 4.6.0 megatron/trainers/kto_trainer.py:31",
                when="rlhf_type=kto"),
    known_names("SW-TASK-LOSS", "loss_type", _TASK_LOSSES, "Embeddings and rankings have these losses.",
                f"{_TRAINERS}/embedding_trainer.py:20; megatron/trainers/reranker_trainer.py:21", when=_PAIRED,
                since=FOUR, extended_by=_PLUGINS),
    needs("SW-TASK-LOSS-NONE", _PAIRED, "loss_type?",
          "The loss of embeddings and rankings has no default under Megatron.",
          f"{_TRAINERS}/embedding_trainer.py:20; megatron/trainers/reranker_trainer.py:21", since=FOUR),
    checked("SW-LORA-NAMES", partial(without_layers, "target_modules"),
            "PEFT refuses adapters none of whose names matches a layer; vision towers have Hugging Face's names.",
            "ms-swift 4.6.0 megatron/utils/utils.py:140; peft 0.20.0, BaseTuner.inject_adapter",
            when="@lora & !@multimodal", since="3.7", reads="target_modules", flags=("target_modules",)),
), backends=BACKENDS)
# fmt: on
