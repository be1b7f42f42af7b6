"""What ms-swift sets of preference training, distillation and GRPO (RLHFMegatronArgumentsMixin)."""

from dataclasses import replace

from backends.megatron.rules.changes.sources import ARGS, sets
from launcher.job import Value
from launcher.rules.registry import RuleContext

_BETAS, _LOSSES = {"gkd": 0.5, "grpo": 0.04}, {"kto": "kto", "dpo": "sigmoid", "grpo": "grpo"}
_SCALES = {"grpo": "group", "rloo": "none", "reinforce_plus_plus": "batch"}
_SIZE, _STEPS, _BATCH = "generation_batch_size", "steps_per_generation", "global_batch_size"


def _generated(context: RuleContext) -> Value:
    return context[_BATCH] * (context[_STEPS] or 1)


def _steps(context: RuleContext) -> Value:
    return context[_SIZE] // max(1, context[_BATCH])


def _distils_itself(context: RuleContext) -> bool:
    return context["rlhf_type"] in ("gkd", "grpo") and context["teacher_model"] == context["model"]


RLHF = (
    sets(
        "SW-SET-BETA",
        "rlhf_type!=None & beta=None",
        {"beta": lambda context: _BETAS.get(context["rlhf_type"], 0.1)},
        "Each kind of training has a different default of beta, the weight of the distance to the reference.",
        f"{ARGS}:218",
        reads="rlhf_type",
    ),
    sets(
        "SW-SET-LOSS",
        "rlhf_type!=None & loss_type=None",
        {"loss_type": lambda context: _LOSSES.get(context["rlhf_type"])},
        "Each kind of training has a different default loss.",
        f"{ARGS}:220",
        reads="rlhf_type",
    ),
    sets(
        "SW-SET-KL",
        "rlhf_type=kto & calculate_KL=None",
        {"calculate_KL": lambda context: context["loss_type"] != "apo_zero_unpaired"},
        "KTO computes the KL divergence from the reference model unless its loss does not use it.",
        f"{ARGS}:207",
        reads="loss_type",
    ),
    sets(
        "SW-SET-SHUFFLE",
        "rlhf_type=grpo & dataset_shuffle!=None",
        {"train_dataloader_shuffle": "{dataset_shuffle}"},
        "Prompts are shuffled if the data set is (dataset_shuffle).",
        f"{ARGS}:410",
        since="4.2",
    ),
    replace(
        sets(
            "SW-SET-TEACHER",
            "teacher_model!=None & tuner_type=lora",
            {"teacher_model": None},
            "The base model without its adapter is the teacher: no second model is loaded.",
            f"{ARGS}:360",
            reads="rlhf_type model",
            since="4.1",
        ),
        check=_distils_itself,
    ),
    sets(
        "SW-SET-GKD-GENERATIONS",
        "rlhf_type=gkd",
        {"num_generations": 1},
        "Distillation generates one answer for each prompt.",
        f"{ARGS}:248",
        since="4.2",
    ),
    sets(
        "SW-SET-GENERATED",
        f"rlhf_type=grpo & {_SIZE}=None",
        {_SIZE: _generated},
        "Answers are generated for the batches of steps_per_generation steps, one unless it is set.",
        f"{ARGS}:272",
        reads=f"{_BATCH} {_STEPS}",
    ),
    sets(
        "SW-SET-GENERATED-STEPS",
        f"rlhf_type=grpo & {_STEPS}=None",
        {_STEPS: _steps},
        "Generated answers last for as many steps as their batches.",
        f"{ARGS}:283",
        reads=f"{_BATCH} {_SIZE}",
    ),
    sets(
        "SW-SET-GKD-GENERATED",
        f"rlhf_type=gkd & {_SIZE}=None",
        {_SIZE: _generated},
        "Answers are generated for the batches of steps_per_generation steps, one unless it is set.",
        f"{ARGS}:249",
        reads=f"{_BATCH} {_STEPS}",
        since="4.2",
    ),
    sets(
        "SW-SET-GKD-STEPS",
        f"rlhf_type=gkd & {_STEPS}=None",
        {_STEPS: _steps},
        "Generated answers last for as many steps as their batches.",
        f"{ARGS}:249",
        reads=f"{_BATCH} {_SIZE}",
        since="4.2",
    ),
    sets(
        "SW-SET-COLUMNS",
        "rlhf_type=grpo",
        {"remove_unused_columns": False},
        "Rewards may read every column of the data.",
        f"{ARGS}:412",
    ),
    sets(
        "SW-SET-REAL",
        "rlhf_type=grpo & loss_type=real",
        {"scale_rewards": "none"},
        "The REAL loss does not scale rewards.",
        f"{ARGS}:421",
        since="4.2",
    ),
    sets(
        "SW-SET-KL-REWARD",
        "rlhf_type=grpo & kl_in_reward=None",
        {"kl_in_reward": lambda context: context["advantage_estimator"] != "grpo"},
        "RLOO and REINFORCE++ subtract the KL divergence from the reward.",
        f"{ARGS}:430",
        reads="advantage_estimator",
        since="4.6",
    ),
    sets(
        "SW-SET-SCALE",
        "rlhf_type=grpo & scale_rewards=None",
        {"scale_rewards": lambda context: _SCALES.get(context["advantage_estimator"])},
        "Each estimator of the advantage has a different default scaling of rewards.",
        f"{ARGS}:438",
        reads="advantage_estimator",
        since="4.6",
    ),
    sets(
        "SW-SET-OVERLONG",
        "rlhf_type=grpo & reward_funcs~soft_overlong & soft_max_length=None",
        {"soft_max_length": "{max_completion_length}"},
        "The length penalty of soft_overlong ends at max_completion_length by default.",
        f"{ARGS}:457",
    ),
    sets(
        "SW-SET-GYM",
        "rlhf_type=grpo & use_gym_env=None & gym_env!=None",
        {"use_gym_env": True},
        "A gym environment that is named is used.",
        f"{ARGS}:464",
        since="4.3",
    ),
    sets(
        "SW-SET-COSINE",
        "rlhf_type=grpo & cosine_max_len=None",
        {"cosine_max_len": "{max_completion_length}"},
        "The cosine reward ends at max_completion_length by default.",
        f"{ARGS}:226",
        since="4.1",
    ),
)
