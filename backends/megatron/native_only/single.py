"""Effects of single Megatron-SWIFT arguments that table.py groups in one row, and why some have no field.

From docs/source_en/{Megatron-SWIFT,Instruction}/Command-line-parameters.md and megatron_args.py at 4.6.0.
"""

from collections.abc import Mapping

from launcher.mapping.native_only import NativeOnlyArg, row, single_rows

_ROLLOUTS = {
    "advantage_estimator": "chooses how advantages are estimated (grpo, rloo, reinforce_plus_plus)",
    "kl_in_reward": "subtracts the KL term from the reward instead of adding it to the loss",
    "epsilon": "clips the policy's ratio from below, and from above where epsilon_high is not given",
    "epsilon_high": "clips the policy's ratio from above",
    "delta": "bounds the ratio of two-sided GRPO from above",
    "dynamic_sample": "samples again where all answers of a group have one reward",
    "max_resample_times": "bounds how often dynamic_sample samples again",
    "overlong_filter": "leaves answers that were cut off out of the loss",
    "top_entropy_quantile": "takes the loss of the tokens of highest entropy only",
    "importance_sampling_level": "takes the policy's ratio by token or by sequence",
    "rollout_importance_sampling_mode": "corrects for the rollout engine's other probabilities",
    "rollout_importance_sampling_threshold": "bounds the weights that correct for the rollout engine",
    "off_policy_sequence_mask_delta": "leaves sequences that the policy has left too far behind out of the loss",
    "scale_rewards": "scales rewards by the deviation of their group or batch",
    "tau_pos": "sets how sharply SAPO gates tokens of positive advantage",
    "tau_neg": "sets how sharply SAPO gates tokens of negative advantage",
    "real_tau": "sets the temperature of the loss REAL",
    "fipo_decay_rate": "sets the half-life of FIPO's future KL, in tokens",
    "fipo_clip_range": "clips FIPO's weights",
    "fipo_clip_high_only": "clips FIPO's weights from above only",
    "fipo_safety_threshold": "caps FIPO's weights of tokens with a large ratio and negative advantage",
    "num_generations": "sets how many answers are sampled for a prompt",
    "num_generations_eval": "sets how many answers are sampled for a prompt in evaluation",
    "generation_batch_size": "sets how many answers are sampled at once",
    "steps_per_generation": "sets how many optimizer steps use one round of answers",
    "num_iterations": "sets how often each sample updates the policy",
    "sync_ref_model": "moves the reference model towards the policy",
    "ref_model_sync_steps": "sets after how many steps the reference model is moved",
    "ref_model_mixup_alpha": "sets how far the reference model is moved towards the policy",
    "reward_funcs": "names the functions that score answers",
    "reward_weights": "weighs the functions that score answers",
    "reward_model_plugin": "names the code that turns a reward model's output into a score",
    "cosine_min_len_value_wrong": "scores the shortest wrong answer, for the cosine reward",
    "cosine_max_len_value_wrong": "scores the longest wrong answer, for the cosine reward",
    "cosine_min_len_value_correct": "scores the shortest right answer, for the cosine reward",
    "cosine_max_len_value_correct": "scores the longest right answer, for the cosine reward",
    "cosine_max_len": "sets the length at which the cosine reward ends",
    "repetition_n_grams": "sets the length of the n-grams whose repetition is punished",
    "repetition_max_penalty": "bounds the punishment of repetition",
    "soft_max_length": "sets the length of answers from which the punishment of length is full",
    "soft_cache_length": "sets the interval of lengths below soft_max_length in which punishment grows",
    "multi_turn_scheduler": "names the code that leads conversations of several turns",
    "max_turns": "bounds the turns of a conversation",
    "completion_length_limit_scope": "bounds the length of answers by turn or by conversation",
    "use_gym_env": "takes rewards from an environment instead of functions",
    "gym_env": "names the environment that gives rewards",
    "calculate_KL": "computes the KL divergence though beta is 0",
    "teacher_model": "names the teacher of distillation",
    "teacher_model_type": "names the kind of the teacher",
    "teacher_model_revision": "names the revision of the teacher",
    "teacher_model_server": "names the server that runs the teacher",
    "teacher_tag_key": "names the column that sends samples to one of several teachers",
    "teacher_kl_coef": "weighs the KL divergence to the teacher in the advantage",
    "gkd_logits_topk": "compares with the teacher over its likeliest tokens only",
    "lmbda": "sets the share of the student's own answers in distillation",
    "seq_kd": "trains on answers of the teacher",
}
_OTHERS = {
    "decision_drop_instructions": "sets how often the instructions of a decision's question are left out",
    "decision_subsample_options": "bounds the options of a decision's question",
    "decision_state_as_text": "sets how often the state of a decision is written as text instead of JSON",
    "decision_shuffle_fields": "shuffles the fields and questions of a decision",
    "bnb_4bit_compute_dtype": "sets the precision in which 4-bit weights are multiplied",
    "bnb_4bit_quant_storage": "sets the type in which 4-bit weights are stored",
    "bnb_4bit_quant_type": "chooses the 4-bit code of weights (nf4, fp4)",
    "bnb_4bit_use_double_quant": "quantises the scales of 4-bit weights, too",
    "dataloader_multiprocessing_context": "chooses how the loader's processes start (fork, spawn)",
    "dataloader_persistent_workers": "keeps the loader's processes between passes",
    "dataloader_pin_memory": "loads batches into pinned memory",
    "dataloader_prefetch_factor": "sets how many batches each of the loader's processes prepares",
    "muon_lr": "sets the learning rate of the weights that Muon trains",
    "muon_min_lr": "sets the last learning rate of the weights that Muon trains",
    "vit_attn_impl": "chooses the attention of the vision part",
    "vit_lr": "sets the learning rate of the vision part",
}
PHRASES: Mapping[str, str] = {**_ROLLOUTS, **_OTHERS}
SINGLE: tuple[NativeOnlyArg, ...] = (
    *single_rows(PHRASES),
    row(
        "hub_token",
        no_field="It is a secret: a job only refers to the variable that holds it "
        "(backend.args.hub_token=${HUB_TOKEN}).",
        source="swift/arguments/base_args/base_args.py:141 @4.6.0",
    ),
    row(
        "architectures group_query_attention layer_types multi_latent_attention original_max_position_embeddings "
        "rotary_percent swiglu window_size",
        no_field="The model's config.json sets it, and has the field; the option is filled in from there.",
        source="swift/megatron/argument/megatron_args.py:735 @3.12.6; swift/megatron/model/config.py:19 @3.5-dev",
    ),
    row(
        "distributed_timeout_minutes num_layers_per_virtual_pipeline_stage seq_length",
        no_field="Another option has the field and takes its place (ddp_timeout, max_length, "
        "virtual_pipeline_model_parallel_size).",
        source="swift/megatron/argument/megatron_args.py:733 @3.12.6; swift/megatron/argument/megatron_base_args.py:23 "
        "@3.12.6",
    ),
    row(
        "local_rank",
        no_field="It is another number for each process, which torchrun sets; a job has one value for all of them.",
        source="swift/megatron/arguments/megatron_args.py:778 @4.6.0",
    ),
)
